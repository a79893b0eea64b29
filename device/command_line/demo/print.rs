//! The report for people.

use super::report::{CrossingRow, HostReport, Report};
use serde_json::Value;
use std::fmt::Write;

pub fn text(report: &Report) -> String {
    let mut out = String::new();
    let fault = report.fault.as_ref().map(|fault| format!(", fault {fault}")).unwrap_or_default();
    let hosts = match (&report.qemu, &report.accelerator) {
        (Some(qemu), Some(accelerator)) => format!("two QEMU {qemu} guests ({accelerator})"),
        _ => "two model hosts".to_owned(),
    };
    let _ = writeln!(
        out,
        "{} of {} bytes, path MTU {}, {} packet{}, {hosts}{fault}",
        report.operation,
        report.length_bytes,
        report.mtu,
        report.packets,
        if report.packets == 1 { "" } else { "s" },
    );
    for host in &report.hosts {
        host_text(&mut out, host);
    }
    let _ = writeln!(out, "\nrequester: {}; responder: {}", report.requester_status, report.responder_status);
    if report.fault.as_deref().is_none_or(|fault| fault.starts_with("drop")) {
        let right = |yes| if yes { "right" } else { "WRONG" };
        let _ = writeln!(
            out,
            "data {} (sha256 {}…), immediate {}",
            right(report.data_verified),
            &report.data_sha256[..16],
            right(report.imm_verified),
        );
    } else {
        let _ = writeln!(out, "target memory {}", if report.data_verified { "untouched" } else { "WRITTEN" });
    }
    let [a, b] = report.story;
    let [host_a, host_b] = &report.hosts;
    let verdict = if report.matches_story { "as the story tells" } else { "NOT as the story tells" };
    let lossy = report.fault.as_deref().is_some_and(|fault| fault.starts_with("drop"));
    let again = if lossy { ", and what is read again for the lost packet" } else { "" };
    let _ = writeln!(out, "crossings: {} and {} ({verdict}: {a} and {b}{again})", host_a.total, host_b.total);
    out
}

fn host_text(out: &mut String, host: &HostReport) {
    let link = &host.link;
    let kernel = host.kernel.as_ref().map(|kernel| format!(", Linux {kernel}")).unwrap_or_default();
    let _ = writeln!(
        out,
        "\nHost {} ({}{kernel}), PCIe gen {} x{}, MPS {} MRRS {} RCB {}",
        host.name, host.role, link.generation, link.width, link.mps, link.mrrs, link.rcb,
    );
    let _ = writeln!(out, "    #  crossing             bytes   TLPs (MRd MWr CplD)   wire down/up   cause");
    for (number, row) in host.crossings.iter().enumerate() {
        if shown(number, host.crossings.len()) {
            row_text(out, number + 1, row);
        } else if shown(number - 1, host.crossings.len()) {
            let _ = writeln!(out, "    …");
        }
    }
    let mut kinds: Vec<(&str, usize)> = Vec::new();
    for row in &host.housekeeping {
        match kinds.iter_mut().find(|(class, _)| *class == row.class) {
            Some((_, count)) => *count += 1,
            None => kinds.push((row.class, 1)),
        }
    }
    let kinds: Vec<_> = kinds.iter().map(|(class, count)| format!("{class} {count}")).collect();
    let kinds = if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") };
    let _ = writeln!(out, "    {} crossings; housekeeping apart: {kinds}", host.total);
    if host.remainder != 0 {
        let _ = writeln!(out, "    {} crossings of the ledger are in NEITHER list", host.remainder);
    }
}

/// Of a long list the first and the last are shown.
fn shown(number: usize, of: usize) -> bool {
    of <= 24 || number < 12 || number >= of - 6
}

fn row_text(out: &mut String, number: usize, row: &CrossingRow) {
    let tlps = format!("{:>3} {:>3} {:>4}", row.tlps.mrd, row.tlps.mwr, row.tlps.cpld);
    let wire = format!("{}/{}", row.wire_bytes.down, row.wire_bytes.up);
    let again = if row.attempt > 0 { format!(", attempt {}", row.attempt) } else { String::new() };
    let seen = match row.observed {
        Some(seen) if seen.messages > 1 => format!(" (seen as {} stores)", seen.messages),
        _ => String::new(),
    };
    let fault = row.fault.as_ref().map(|fault| format!(", {fault}")).unwrap_or_default();
    let _ = writeln!(
        out,
        "   {number:>2}  {:<18} {:>7}   {tlps:<18}   {wire:>12}   {}{again}{seen}{fault}",
        row.class, row.bytes, row.cause
    );
}

/// What was made before the operation: the region, and the attributes at each transition.
pub fn bring_up(host: &str, details: &Value) -> String {
    let number = |path: &str| details.pointer(path).and_then(Value::as_u64).unwrap_or(0);
    let mut out = format!("\nBring-up of host {host} over {}\n", details["backing"].as_str().unwrap_or("?"));
    let _ = writeln!(
        out,
        "    region   key {:#x} (lkey here, rkey at the peer), {} bytes at {:#x}",
        number("/key"),
        number("/own/length_bytes"),
        number("/own/address"),
    );
    let pages: Vec<_> = details["pages"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
    let listed: Vec<_> = pages.iter().take(4).map(|page| format!("{page:#x}")).collect();
    let more = if pages.len() > listed.len() { ", …" } else { "" };
    let _ = writeln!(out, "    pages    {} of 4096 bytes, at {}{more}", pages.len(), listed.join(", "));
    let _ = writeln!(out, "    queues   QP {:#x}, CQ {}, EQ {}", number("/own/qpn"), number("/cqn"), number("/eqn"));
    for step in details["transitions"].as_array().into_iter().flatten() {
        let given = step["given"].as_object().into_iter().flatten().map(|(name, value)| format!("{name} {value}"));
        let given: Vec<_> = given.collect();
        let _ = writeln!(out, "    to {:<5} {}", step["to"].as_str().unwrap_or("?").to_uppercase(), given.join(", "));
    }
    out
}
