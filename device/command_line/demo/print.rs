//! The report for people.

use super::report::{CrossingRow, HostReport, NakRow, Report};
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
    if let Some(untouched) = report.target_untouched {
        dashed_branch(&mut out, report);
        let _ = writeln!(out, "target memory {}", if untouched { "untouched" } else { "WRITTEN" });
    } else {
        let right = |yes: Option<bool>| if yes == Some(true) { "right" } else { "WRONG" };
        let immediate = match (report.imm_verified, report.stray_immediate) {
            (Some(_), _) => format!(", immediate {}", right(report.imm_verified)),
            (None, false) => String::new(),
            (None, true) => ", an immediate that was NOT sent".to_owned(),
        };
        let digest = report.data_sha256.as_deref().and_then(|digest| digest.get(..16)).unwrap_or_default();
        let _ = writeln!(out, "data {} (sha256 {digest}…){immediate}", right(report.data_verified));
    }
    let [a, b] = report.story;
    let [host_a, host_b] = &report.hosts;
    let verdict = if report.matches_story { "as the story tells" } else { "NOT as the story tells" };
    let again = match report.repeated {
        0 => String::new(),
        repeated => format!(", and {repeated} made again for the lost packet"),
    };
    let _ = writeln!(out, "crossings: {} and {} ({verdict}: {a} and {b}{again})", host_a.total, host_b.total);
    out
}

/// What becomes of a refused request, in the order of its happening.
fn dashed_branch(out: &mut String, report: &Report) {
    let [a, b] = &report.hosts;
    let _ = writeln!(out, "\nThe dashed branch");
    for told in &b.diagnostics {
        let _ = writeln!(out, "    B refuses        {} {}: {} ({:#x})", told.number, told.name, told.rule, told.value);
    }
    let nak = match report.nak {
        Some(NakRow { syndrome, meaning, psn, msn, dest_qp }) => {
            format!("NAK, syndrome {syndrome:#04x} ({meaning}), PSN {psn}, MSN {msn}, to QP {dest_qp:#x}")
        }
        None => "NO NAK was on the wire".to_owned(),
    };
    let _ = writeln!(out, "    B sends          {nak}");
    for host in [b, a] {
        let Some(after) = &host.aftermath else { continue };
        let name = &host.name;
        let _ = writeln!(out, "    {name} queue pair     {:#x} is in state {}", after.qpn, after.state.to_uppercase());
        for one in &after.completions {
            let rule = one.rule.as_ref().map(|rule| format!(", {} {rule}", one.vendor_err)).unwrap_or_default();
            let _ = writeln!(out, "    {name} completion     {}: {}{rule}", one.opcode, one.status);
        }
        if after.completions.is_empty() {
            let _ = writeln!(out, "    {name} completion     none: no receive was posted");
        }
    }
    let _ = writeln!(out);
}

/// A doorbell line in pieces is no fault of the device, and changes what is counted.
fn torn_text(out: &mut String, host: &HostReport) {
    if host.torn_lines == 0 {
        return;
    }
    let stores = |rows: &[CrossingRow]| rows.iter().filter(|row| row.class == "doorbell").count();
    let _ = writeln!(
        out,
        "    the doorbell line came in pieces (its processor lost its turn for long between two stores): each store \
         counts for itself, {} with the operation and {} in the housekeeping,\n    and the request is read from the \
         ring; below they stand for one doorbell",
        stores(&host.crossings),
        stores(&host.housekeeping),
    );
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
            None => kinds.push((&row.class, 1)),
        }
    }
    let kinds: Vec<_> = kinds.iter().map(|(class, count)| format!("{class} {count}")).collect();
    let kinds = if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") };
    let _ = writeln!(out, "    {} crossings; housekeeping apart: {kinds}", host.total);
    torn_text(out, host);
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

#[cfg(test)]
mod tests {
    use super::*;
    use rnic_device::management::reports::crossing::{LinkRow, TlpRow, WireRow};

    fn row(class: &'static str) -> CrossingRow {
        CrossingRow {
            class: class.into(),
            bytes: 8,
            ranges: 1,
            tlps: TlpRow { mrd: 0, mwr: 1, cpld: 0 },
            wire_bytes: WireRow { down: 32, up: 0 },
            observed: None,
            cause: "send 0x11[0]".to_owned(),
            attempt: 0,
            fault: None,
            sequence: 1,
            time_ns: 0,
        }
    }

    #[test]
    fn a_line_in_pieces_is_told_with_what_it_does_to_the_counts() {
        let mut host = HostReport {
            name: "A".to_owned(),
            role: "requester",
            kernel: None,
            link: LinkRow { generation: 3, width: 16, mps: 256, mrrs: 512, rcb: 64 },
            crossings: vec![row("doorbell"), row("wqe_fetch")],
            total: 2,
            housekeeping: vec![row("doorbell"); 7],
            ledger_delta: Default::default(),
            remainder: 0,
            diagnostics: Vec::new(),
            torn_lines: 1,
            aftermath: None,
            bring_up: None,
        };
        let mut text = String::new();
        host_text(&mut text, &host);
        assert!(
            text.contains("came in pieces") && text.contains("1 with the operation and 7 in the housekeeping"),
            "{text}"
        );
        let json = serde_json::to_value(&host).expect("JSON");
        assert_eq!(json["torn_lines"], 1);
        host.torn_lines = 0;
        text.clear();
        host_text(&mut text, &host);
        assert!(!text.contains("pieces"), "{text}");
    }
}
