//! `rnic show`: the objects of a live adapter.

use crate::connection::{Connection, Failure, ServerChoice, exit_of, print, print_json, seconds};
use crate::exit::Exit;
use clap::Args;
use rnic_device::management::reports::adapter::AdapterReport;
use rnic_device::management::reports::objects::{
    CompletionQueueRow, EventQueueRow, KeyRow, ObjectRows, ObjectsReport, QueuePairRow, RingRow, SharedReceiveQueueRow,
};
use rnic_device::management::{MAX_ENTRIES, ObjectKind, Page, Request};
use serde::Serialize;

#[derive(Debug, Args)]
#[command(
    long_about = "What lives in a server's adapters now: queue pairs with state and PSNs, completion and event queues, \
        memory keys, GIDs, rings with their indices, caches, timers, the command queue.\n\n\
        Looking changes nothing and crosses nothing: of a context that is in host memory alone, and not in the adapter's \
        cache, the resident part is shown. Indices are free-running, as in the doorbells.",
    after_help = "Examples:\n  rnic show\n  rnic show A\n  rnic show A --json | jq '.queue_pairs[] | {qpn, state}'\n\n\
        With --json one object an adapter and line, schema rnic.show/1; sizes in bytes, times in nanoseconds of the \
        adapter's own clock.\n\
        Exit: 0; 2 for a name that does not exist; 3 when no server runs or it goes; 4 when it does not answer in time."
)]
pub struct ShowOptions {
    /// The adapter [default: all].
    adapter: Option<String>,
    #[command(flatten)]
    server: ServerChoice,
    /// JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// Everything of one adapter.
#[derive(Debug, Serialize)]
struct Whole {
    schema: &'static str,
    #[serde(flatten)]
    adapter: AdapterReport,
    queue_pairs: Vec<QueuePairRow>,
    completion_queues: Vec<CompletionQueueRow>,
    event_queues: Vec<EventQueueRow>,
    shared_receive_queues: Vec<SharedReceiveQueueRow>,
    keys: Vec<KeyRow>,
}

pub fn run(options: &ShowOptions) -> Exit {
    exit_of("show", show(options))
}

fn show(options: &ShowOptions) -> Result<(), Failure> {
    let mut connection = options.server.connect()?;
    for name in connection.adapters(options.adapter.as_deref())? {
        let whole = read(&mut connection, &name)?;
        match options.json {
            true => print_json(&whole)?,
            false => print(&text(&whole))?,
        }
    }
    Ok(())
}

const KINDS: [ObjectKind; 5] = [
    ObjectKind::QueuePairs,
    ObjectKind::CompletionQueues,
    ObjectKind::EventQueues,
    ObjectKind::SharedReceiveQueues,
    ObjectKind::Keys,
];

fn read(connection: &mut Connection, name: &str) -> Result<Whole, Failure> {
    let adapter = connection.ask(&Request::Show { adapter: name.to_owned() })?;
    let mut whole = Whole {
        schema: "rnic.show/1",
        adapter,
        queue_pairs: Vec::new(),
        completion_queues: Vec::new(),
        event_queues: Vec::new(),
        shared_receive_queues: Vec::new(),
        keys: Vec::new(),
    };
    for kind in KINDS {
        let mut from = Some(0);
        while let Some(place) = from {
            let page = Page { from: place, limit: MAX_ENTRIES };
            let report: ObjectsReport = connection.ask(&Request::Objects { adapter: name.to_owned(), kind, page })?;
            match report.objects {
                ObjectRows::QueuePairs(rows) => whole.queue_pairs.extend(rows),
                ObjectRows::CompletionQueues(rows) => whole.completion_queues.extend(rows),
                ObjectRows::EventQueues(rows) => whole.event_queues.extend(rows),
                ObjectRows::SharedReceiveQueues(rows) => whole.shared_receive_queues.extend(rows),
                ObjectRows::Keys(rows) => whole.keys.extend(rows),
            }
            from = report.next.filter(|next| *next > place);
        }
    }
    Ok(whole)
}

fn text(whole: &Whole) -> String {
    let mut text = adapter(&whole.adapter);
    whole.queue_pairs.iter().for_each(|row| text += &queue_pair(row));
    whole.completion_queues.iter().for_each(|row| text += &completion_queue(row));
    whole.event_queues.iter().for_each(|row| text += &event_queue(row));
    whole.shared_receive_queues.iter().for_each(|row| text += &shared_receive_queue(row));
    whole.keys.iter().for_each(|row| text += &key(row));
    text
}

fn adapter(row: &AdapterReport) -> String {
    let state = match (row.fatal, row.enabled) {
        (true, _) => "STOPPED after an error",
        (false, true) => "enabled",
        (false, false) => "disabled",
    };
    let flags = [
        (row.attached, "a guest is attached"),
        (row.bus_master, "bus master"),
        (row.link_up, "link up"),
        (row.strict, "strict"),
        (row.recording, "recording"),
    ];
    let flags: String = flags.iter().filter(|(set, _)| *set).map(|(_, name)| format!(", {name}")).collect();
    let link = &row.link;
    let mut text = format!(
        "adapter {}: {state}{flags}; clock {}, resets {}, mark {:#x}\n",
        row.adapter,
        seconds(row.time_ns),
        row.resets,
        row.mark
    );
    text += &format!(
        "  link        PCIe gen {} x{}, MPS {} MRRS {} RCB {}; {} DMA maps, {} messages unanswered\n",
        link.generation, link.width, link.mps, link.mrrs, link.rcb, row.dma_maps, row.unanswered_messages
    );
    if let Some(queue) = &row.command_queue {
        let busy = if queue.busy { ", busy" } else { "" };
        text += &format!(
            "  commands    ring {:#x}, completions {:#x}, {} slots, producer {} consumer {}{busy}\n",
            queue.commands_iova, queue.completions_iova, queue.slots, queue.producer, queue.consumer
        );
    }
    for (name, cache) in &row.caches {
        text += &format!("  cache       {name}: {} of {}\n", cache.used, cache.capacity);
    }
    for gid in &row.gids {
        let vlan = gid.vlan_id.map_or(String::new(), |id| format!(" VLAN {id}"));
        text += &format!("  GID {:<7} {} MAC {}{vlan}\n", gid.index, gid.gid, gid.mac);
    }
    for group in &row.groups {
        let members: Vec<String> = group.qpns.iter().map(|qpn| format!("{qpn:#x}")).collect();
        text += &format!("  group       {} QPs {}\n", group.gid, members.join(" "));
    }
    let next = row.timers.next_due_ns.map_or(String::new(), |due_ns| format!(", next looked at {}", seconds(due_ns)));
    let scheduled = &row.scheduled;
    text += &format!("  timers      {} in the table{next}\n", row.timers.running);
    text += &format!(
        "  waiting     {} queue pairs to send, {} to answer, {} with a late payload; {} frames and {} completions parked\n",
        scheduled.requests,
        scheduled.responses,
        scheduled.late_payloads,
        scheduled.parked_frames,
        scheduled.waiting_completions
    );
    text
}

fn ring(row: &RingRow) -> String {
    format!(
        "{} x {} bytes, producer {} fetch {} consumer {}",
        row.entries, row.entry_bytes, row.producer, row.fetch, row.consumer
    )
}

fn queue_pair(row: &QueuePairRow) -> String {
    let mut text = format!(
        "  QP {:#x}: {} {}, PD {}, doorbell page {}, CQs {} (send) {} (receive)\n",
        row.qpn, row.qp_type, row.state, row.pdn, row.doorbell_page, row.send_cqn, row.receive_cqn
    );
    text += &format!(
        "    send      {}; {} waiting, {} unacknowledged, {}\n",
        ring(&row.send_queue),
        row.waiting_sends,
        row.unacknowledged_messages,
        row.transmit
    );
    let receives = row.srqn.map_or_else(|| ring(&row.receive_queue), |srqn| format!("from SRQ {srqn}"));
    text += &format!("    receive   {receives}; {} frames waiting\n", row.inbound_frames);
    for (timer, due_ns) in &row.timers_due_ns {
        text += &format!("    timer     {timer} due at {}\n", seconds(*due_ns));
    }
    match &row.context {
        None => text += "    context   in host memory alone\n",
        Some(context) if row.is_datagram() => {
            text += &format!(
                "    datagrams Q_Key {:#x}, MTU {}, PSN {} next\n",
                context.qkey, context.path_mtu_bytes, context.send_psn
            );
        }
        Some(context) => {
            text += &format!(
                "    peer      QP {:#x} at {} ({}), path MTU {}, source GID {}\n",
                context.dest_qpn, context.dest_gid, context.dest_mac, context.path_mtu_bytes, context.sgid_index
            );
            text += &format!(
                "    requester PSN {} unacknowledged, {} next, {} fresh; retries {} of {}, RNR retries {} of {}, timeout code {}\n",
                context.unacked_psn,
                context.send_psn,
                context.fresh_psn,
                context.retries_left,
                context.retry_cnt,
                context.rnr_retries_left,
                context.rnr_retry,
                context.timeout
            );
            let nak = if context.nak_outstanding { ", NAK outstanding" } else { "" };
            text += &format!("    responder PSN {} expected, MSN {}{nak}\n", context.expected_psn, context.msn);
        }
    }
    text
}

fn completion_queue(row: &CompletionQueueRow) -> String {
    let failed = if row.failed { ", FAILED" } else { "" };
    let events = row.eqn.map_or("no event queue".to_owned(), |eqn| format!("event queue {eqn}"));
    let mut text = format!(
        "  CQ {}: {events}, {} queue pairs, {} completions waiting{failed}\n",
        row.cqn, row.queue_pairs, row.waiting
    );
    match &row.context {
        None => text += "    context   in host memory alone\n",
        Some(context) => {
            let armed = match (context.armed, context.solicited_only) {
                (false, _) => "not armed",
                (true, false) => "armed",
                (true, true) => "armed for solicited ones",
            };
            text += &format!(
                "    ring      {} entries, producer {} consumer {} (as last heard of), record {:#x}, {armed}\n",
                context.entries, context.producer, context.consumer, context.consumer_record_iova
            );
            if context.moderation_count > 1 && context.moderation_period_us > 0 {
                text += &format!(
                    "    events    held back for {} entries or {} us\n",
                    context.moderation_count, context.moderation_period_us
                );
            }
        }
    }
    text
}

fn event_queue(row: &EventQueueRow) -> String {
    let vector = row.vector.map_or("no vector".to_owned(), |vector| format!("vector {vector}"));
    let armed = if row.armed { "armed" } else { "not armed" };
    format!(
        "  EQ {}: {vector}, {armed}, {}, {} completion queues, {} events waiting\n",
        row.eqn,
        ring(&row.ring),
        row.completion_queues,
        row.waiting
    )
}

fn shared_receive_queue(row: &SharedReceiveQueueRow) -> String {
    let failed = row.failed.as_ref().map_or(String::new(), |rule| format!(", FAILED by {rule}"));
    let taken = match (row.consumer, row.limit) {
        (Some(consumer), Some(limit)) => format!("consumer {consumer}, limit {limit}"),
        _ => "context in host memory alone".to_owned(),
    };
    format!(
        "  SRQ {}: PD {}, {} queue pairs, {} x {} bytes, producer {} {taken}, {} returned{failed}\n",
        row.srqn, row.pdn, row.queue_pairs, row.slots, row.slot_bytes, row.producer, row.returned
    )
}

fn key(row: &KeyRow) -> String {
    match &row.context {
        None => format!("  key index {}: in host memory alone\n", row.index),
        Some(key) => format!(
            "  key {:#x}: {}{}, PD {}, {} bytes from {:#x}, access {:#x}, pages of {} at {:#x}, {} levels\n",
            key.key,
            key.kind,
            if key.valid { "" } else { " that allows nothing" },
            key.pdn,
            key.length_bytes,
            key.start,
            key.access,
            key.pages.page_bytes,
            key.pages.root_iova,
            key.pages.levels
        ),
    }
}
