//! `rnic trace`: crossings and packets of live adapters, in their order.

use crate::connection::{Connection, Failure, ServerChoice, exit_of, parse_qpn, print, print_json, seconds};
use crate::exit::Exit;
use clap::Args;
use rnic_device::management::reports::crossing::CrossingRow;
use rnic_device::management::reports::trace::{PacketRow, Places, TraceEntry, TraceReport};
use rnic_device::management::{MAX_ENTRIES, Request};
use rnic_pcie::Class;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// How often a live adapter is looked at.
const PERIOD: Duration = Duration::from_millis(100);
/// In place of a class: packets.
const PACKET: &str = "packet";

#[derive(Debug, Args)]
#[command(
    long_about = "The latest crossings and packets of a server's adapters in one order, each with its cause.\n\n\
        An adapter records only while somebody watches: the first `rnic trace` begins the record, and what came before is \
        reported as lost. The latest 65,536 crossings and packets are kept until --stop, or until nobody has asked for ten \
        minutes. `rnic serve --record` records from the start.\n\n\
        A packet (<- received, -> sent) stands behind the crossing that was the latest when it passed.",
    after_help = "Examples:\n  rnic trace A\n  rnic trace --follow --qp 0x11\n  rnic trace A --class doorbell,packet\n  \
        rnic trace A --json | jq -r 'select(.kind == \"crossing\") | .class' | sort | uniq -c\n  rnic trace --stop\n\n\
        With --json each line is an object: a crossing, a packet, or what is missing (`kind`: \"lost\"). Sizes are in bytes, \
        times in nanoseconds of the adapter's own clock.\n\
        Exit: 0; 2 for a name that does not exist; 3 when no server runs or it goes; 4 when it does not answer in time."
)]
pub struct TraceOptions {
    /// The adapter [default: all].
    adapter: Option<String>,
    #[command(flatten)]
    server: ServerChoice,
    /// Go on with what comes.
    #[arg(short, long)]
    follow: bool,
    /// Only what belongs to operations of this queue pair.
    #[arg(long, value_name = "QPN", value_parser = parse_qpn)]
    qp: Option<u32>,
    /// Only these classes of crossings; `packet` for packets.
    #[arg(long, value_name = "CLASS", value_delimiter = ',', value_parser = class)]
    class: Vec<String>,
    /// End the record.
    #[arg(long, conflicts_with_all = ["follow", "qp", "class", "json"])]
    stop: bool,
    /// A JSON object a line.
    #[arg(long)]
    json: bool,
}

fn class(text: &str) -> Result<String, String> {
    let known = || Class::ALL.iter().map(|class| class.name()).chain([PACKET]);
    match known().any(|name| name == text) {
        true => Ok(text.to_owned()),
        false => Err(format!("there is no class {text:?}; there are: {}", known().collect::<Vec<_>>().join(", "))),
    }
}

pub fn run(options: &TraceOptions) -> Exit {
    exit_of("trace", trace(options))
}

fn trace(options: &TraceOptions) -> Result<(), Failure> {
    let mut connection = options.server.connect()?;
    let adapters = connection.adapters(options.adapter.as_deref())?;
    if options.stop {
        let mut stop = |name: &String| connection.ask::<()>(&Request::StopTrace { adapter: name.clone() });
        return adapters.iter().try_for_each(&mut stop);
    }
    let start = Places { crossings: 1, packets: 1 };
    let mut places: BTreeMap<&str, Places> = adapters.iter().map(|name| (name.as_str(), start)).collect();
    let mut is_first_look = true;
    loop {
        for (name, place) in &mut places {
            *place = read(&mut connection, options, name, *place, is_first_look)?;
        }
        is_first_look = false;
        if !options.follow {
            return Ok(());
        }
        std::thread::sleep(PERIOD);
    }
}

/// Prints what there is from a place on, and gives the next place. The first look says of which adapter it is.
fn read(
    connection: &mut Connection,
    options: &TraceOptions,
    adapter: &str,
    from: Places,
    is_first_look: bool,
) -> Result<Places, Failure> {
    let mut from = from;
    let mut opens = is_first_look && !options.json;
    // What comes while this prints is for the next look, or a busy adapter would never let it end.
    let mut last = None;
    loop {
        let request = Request::Trace {
            adapter: adapter.to_owned(),
            crossings_from: from.crossings,
            packets_from: from.packets,
            limit: MAX_ENTRIES,
        };
        let report: TraceReport = connection.ask(&request)?;
        if std::mem::take(&mut opens) {
            print(&opening(&report))?;
        }
        print_lost(options, adapter, &report)?;
        let wanted = report.entries.iter().filter(|entry| is_wanted(options, entry));
        if options.json {
            wanted.map(|entry| tagged(adapter, entry)).try_for_each(|value| print_json(&value?))?;
        } else {
            print(&wanted.map(|entry| line(adapter, entry)).collect::<String>())?;
        }
        from = report.next;
        let end = *last.get_or_insert(report.last);
        if !report.more || (from.crossings > end.crossings && from.packets > end.packets) {
            return Ok(from);
        }
    }
}

fn opening(report: &TraceReport) -> String {
    let link = &report.link;
    let mut text = format!(
        "adapter {}, PCIe gen {} x{}, MPS {} MRRS {} RCB {}\n",
        report.adapter, link.generation, link.width, link.mps, link.mrrs, link.rcb
    );
    if report.began {
        text += "the record begins now; `rnic trace` shows what comes from here on, `rnic trace --stop` ends it\n";
    }
    text
}

fn print_lost(options: &TraceOptions, adapter: &str, report: &TraceReport) -> Result<(), Failure> {
    let lost = report.lost;
    if lost.crossings == 0 && lost.packets == 0 {
        return Ok(());
    }
    if options.json {
        return print_json(&json!({
            "kind": "lost", "adapter": adapter, "crossings": lost.crossings, "packets": lost.packets
        }));
    }
    print(&format!("adapter {adapter}: {} crossings and {} packets were not kept\n", lost.crossings, lost.packets))
}

fn is_wanted(options: &TraceOptions, entry: &TraceEntry) -> bool {
    let of_queue = options.qp.is_none_or(|qpn| entry.qpn() == Some(qpn));
    let class = match entry {
        TraceEntry::Crossing { row, .. } => row.class.as_ref(),
        TraceEntry::Packet(_) => PACKET,
    };
    of_queue && (options.class.is_empty() || options.class.iter().any(|wanted| wanted == class))
}

fn tagged(adapter: &str, entry: &TraceEntry) -> Result<serde_json::Value, Failure> {
    let mut value = serde_json::to_value(entry).map_err(|error| Failure::Environment(error.to_string()))?;
    value["adapter"] = adapter.into();
    Ok(value)
}

fn line(adapter: &str, entry: &TraceEntry) -> String {
    match entry {
        TraceEntry::Crossing { row, .. } => crossing(adapter, row),
        TraceEntry::Packet(row) => packet(adapter, row),
    }
}

fn crossing(adapter: &str, row: &CrossingRow) -> String {
    let mut notes = String::new();
    if let Some(seen) = row.observed.filter(|seen| seen.messages > 1) {
        notes += &format!(" (seen as {} stores)", seen.messages);
    }
    if row.attempt > 0 {
        notes += &format!(" (attempt {})", row.attempt);
    }
    if let Some(fault) = &row.fault {
        notes += &format!(" FAILED: {fault}");
    }
    format!(
        "{adapter} {:>8}  {:>14}  {:<19}{:>7} bytes  MRd {} MWr {} CplD {}  wire {}/{}  {}{notes}\n",
        row.sequence,
        seconds(row.time_ns),
        row.class,
        row.bytes,
        row.tlps.mrd,
        row.tlps.mwr,
        row.tlps.cpld,
        row.wire_bytes.down,
        row.wire_bytes.up,
        row.cause
    )
}

fn packet(adapter: &str, row: &PacketRow) -> String {
    let arrow = if row.direction == "sent" { "->" } else { "<-" };
    let mut text = format!("{adapter} {:>8}  {:>14}  ", arrow, seconds(row.time_ns));
    match (&row.transport, &row.dropped) {
        (Some(headers), _) => {
            text += &format!(
                "{:<19}{:>7} bytes  to QP {:#x} PSN {}",
                headers.opcode, row.frame_bytes, headers.dest_qp, headers.psn
            );
            if headers.payload_bytes > 0 {
                text += &format!(" payload {}", headers.payload_bytes);
            }
            if headers.ack_req {
                text += " asks for ACK";
            }
            if let Some(syndrome) = &headers.syndrome {
                text += &format!(" {syndrome}");
            }
            if let Some(msn) = headers.msn {
                text += &format!(" MSN {msn}");
            }
        }
        (None, reason) => {
            text +=
                &format!("{} bytes, dropped: {}", row.frame_bytes, reason.as_deref().unwrap_or("it is not understood"));
        }
    }
    text + "\n"
}
