//! The objects of an adapter, a paragraph each.

use super::Whole;
use crate::connection::seconds;
use rnic_device::management::reports::adapter::AdapterReport;
use rnic_device::management::reports::ethernet::EthernetRow;
use rnic_device::management::reports::objects::{
    CompletionQueueRow, EventQueueRow, KeyRow, QueuePairRow, RingRow, SharedReceiveQueueRow,
};

pub fn of(whole: &Whole) -> String {
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
    text + &ethernet(&row.ethernet)
}

fn ethernet(row: &EthernetRow) -> String {
    let state = match (&row.fault, row.running) {
        (Some(fault), _) => format!("STOPPED, net {} {}: {}", fault.number, fault.name, fault.sentence),
        (None, true) => "a driver is at work".to_owned(),
        (None, false) => "no driver".to_owned(),
    };
    let attached = if row.attached { ", attached" } else { "" };
    let mut text = format!(
        "  Ethernet    function 1: {state}{attached}; resets {}, {} DMA maps, {} messages unanswered\n",
        row.resets, row.dma_maps, row.unanswered_messages
    );
    for queue in row.queues.iter().filter(|queue| queue.enabled) {
        let vector = queue.vector.map_or("no vector".to_owned(), |vector| format!("vector {vector}"));
        text += &format!(
            "    {:<9} {} entries, available {} taken {} used {}, {vector}\n",
            queue.name, queue.entries, queue.available_index, queue.taken_index, queue.used_index
        );
    }
    text
}

fn ring(row: &RingRow) -> String {
    format!(
        "{} x {} bytes, producer {} fetch {} consumer {}",
        row.entries, row.entry_bytes, row.producer, row.fetch, row.consumer
    )
}

fn queue_pair(row: &QueuePairRow) -> String {
    let cq = |cqn: Option<u32>| cqn.map_or_else(|| "none".to_owned(), |cqn| cqn.to_string());
    let domain = row.xrc_domain.map_or_else(String::new, |domain| format!(", XRC domain {domain}"));
    let mut text = format!(
        "  QP {:#x}: {} {}, PD {}{domain}, doorbell page {}, CQs {} (send) {} (receive)\n",
        row.qpn,
        row.qp_type,
        row.state,
        row.pdn,
        row.doorbell_page,
        cq(row.send_cqn),
        cq(row.receive_cqn)
    );
    text += &format!(
        "    send      {}; {} waiting, {} unacknowledged, {}\n",
        ring(&row.send_queue),
        row.waiting_sends,
        row.unacknowledged_messages,
        row.transmit
    );
    let receives = row.srqn.map_or_else(|| ring(&row.receive_queue), |srqn| format!("from SRQ {srqn}"));
    let ahead = row.kept_ahead.map_or_else(String::new, |kept| format!(", {kept} kept ahead of a gap (selective)"));
    text += &format!("    receive   {receives}; {} frames waiting{ahead}\n", row.inbound_frames);
    if let Some(rate) = row.limited_bits_per_second {
        text += &format!("    rate      held to {:.3} Gb/s\n", rate as f64 / 1e9);
    }
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
            if let Some(credits) = context.credits {
                text += &format!("    credits   {credits} receives promised by the peer\n");
            }
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
        "  CQ {}: {events}, of {} work queues, {} completions waiting{failed}\n",
        row.cqn, row.work_queues, row.waiting
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
    let xrc = match (row.xrc_domain, row.cqn) {
        (Some(domain), Some(cqn)) => format!(", XRC domain {domain}, CQ {cqn}"),
        _ => String::new(),
    };
    format!(
        "  SRQ {}: PD {}{xrc}, {} queue pairs, {} x {} bytes, producer {} {taken}, {} returned{failed}\n",
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
