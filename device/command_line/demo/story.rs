//! The story: how often which crossing is made, told from the request alone, before anything runs.

use super::options::{DemoOptions, Doorbell, Fault, Op, Transport};
use super::report::CrossingRow;
use rnic_device::management::reports::Name;
use rnic_shim::transaction::Role;
use std::collections::BTreeMap;

/// Crossings by class.
pub type Counts = BTreeMap<Name, u32>;

/// What the two hosts must show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Story {
    pub requester: Counts,
    pub responder: Counts,
    /// A lost packet: how many are sent again depends on when its loss is noticed, so payload reads are a least; those
    /// of whoever sends the data.
    pub retransmits: Option<Role>,
    /// The pieces of a torn line count as one doorbell.
    pub torn: bool,
}

fn add(counts: &mut Counts, class: impl Into<Name>, count: u32) {
    if count > 0 {
        *counts.entry(class.into()).or_default() += count;
    }
}

/// `torn`: the doorbell line came in pieces, which is told, and no fault of the operation. A carried work request is
/// then read from the ring after all, and the pieces stand for one doorbell.
pub fn of(options: &DemoOptions, torn: bool) -> Story {
    let refused = options.is_refused();
    let (mut requester, mut responder) = (Counts::new(), Counts::new());
    let packets = options.packets();
    let with_payload = if options.length() > 0 { packets } else { 0 };
    add(&mut requester, "doorbell", 1);
    // A carried work request is read from the ring after all when it has more than one slot.
    let slots = slots(options);
    add(&mut requester, "wqe_fetch", u32::from(options.doorbell != Doorbell::Wqe || slots > 1 || torn));
    let fetches = options.op.fetches();
    if fetches {
        add(&mut requester, "payload_write", if refused { 0 } else { with_payload });
    } else {
        add(&mut requester, "payload_read", if options.inline { 0 } else { with_payload });
    }
    add(&mut requester, "cqe_write", u32::from(!options.unsignaled || refused));
    match (refused, options.op) {
        (true, _) => {}
        (false, op) if op.is_atomic() => {
            add(&mut responder, "atomic_read", 1);
            add(&mut responder, "atomic_write", 1);
        }
        (false, Op::Read) => add(&mut responder, "payload_read", with_payload),
        // Behind a datagram's header there may be nothing.
        (false, _) => add(&mut responder, "payload_write", with_payload.max(u32::from(options.header_bytes() > 0))),
    }
    if options.op.receives() {
        // Refused: the posted receive is flushed without having been read.
        add(&mut responder, "recv_wqe_fetch", u32::from(!refused));
        add(&mut responder, "cqe_write", 1);
        add(&mut responder, "event", u32::from(options.armed));
    }
    if options.cold {
        let uses_local = with_payload > 0 && !options.inline && !(fetches && refused);
        cold(options, &mut requester, &mut responder, uses_local, refused);
    }
    if options.expect_one_more {
        add(&mut requester, "doorbell", 1);
    }
    let sender = if fetches { Role::Responder } else { Role::Requester };
    let retransmits = matches!(options.fault, Some(Fault::Drop(_))).then_some(sender);
    Story { requester, responder, retransmits, torn }
}

fn slots(options: &DemoOptions) -> u32 {
    let remote = if options.op.names_remote() { 16 } else { 0 };
    let operands = if options.op.is_atomic() { 16 } else { 0 };
    let body = match (options.length(), options.inline) {
        (0, _) => 0,
        (length, true) => length.next_multiple_of(16),
        (_, false) => 16,
    };
    let datagram = if options.transport == Transport::Ud { 48 } else { 0 };
    (16 + remote + operands + datagram + body).div_ceil(64)
}

/// Empty caches add a fetch at the first use of each context, key and line of a page list, and nothing else.
fn cold(options: &DemoOptions, requester: &mut Counts, responder: &mut Counts, uses_local: bool, refused: bool) {
    let writes_cqe = u32::from(!options.unsignaled || refused);
    add(requester, "context_fetch", 1 + writes_cqe);
    add(requester, "key_fetch", u32::from(uses_local));
    let pages = u64::from(options.length()).div_ceil(4096);
    let lines = pages.div_ceil(8) as u32;
    add(requester, "translation_fetch", if uses_local { lines } else { 0 });
    let placed = options.length() + options.header_bytes();
    let scatters = placed > 0 && !refused;
    // Data are placed by the key that a SEND_WITH_INV invalidates; without data that is the first use of it.
    let looks = placed > 0 || (options.op == Op::SendInv && !refused);
    let placed_lines = u64::from(placed).div_ceil(4096).div_ceil(8) as u32;
    // Behind the queue pair's: the completion queue's, or what is remembered of READs and atomics.
    add(responder, "context_fetch", 1 + u32::from(options.op.receives() || options.op.fetches()));
    add(responder, "key_fetch", u32::from(looks));
    add(responder, "translation_fetch", if scatters { placed_lines } else { 0 });
}

impl Story {
    pub fn requester_total(&self) -> u32 {
        self.requester.values().sum()
    }

    pub fn responder_total(&self) -> u32 {
        self.responder.values().sum()
    }

    /// Whether what was counted is the story.
    pub fn matches(&self, requester: &[CrossingRow], responder: &[CrossingRow]) -> bool {
        self.matches_side(Role::Requester, requester, &self.requester)
            && self.matches_side(Role::Responder, responder, &self.responder)
    }

    fn counted(&self, rows: &[CrossingRow]) -> Counts {
        let mut counts = counts(rows);
        if self.torn {
            counts.entry("doorbell".into()).and_modify(|count| *count = 1);
        }
        counts
    }

    fn matches_side(&self, side: Role, rows: &[CrossingRow], told: &Counts) -> bool {
        if self.retransmits != Some(side) {
            return self.counted(rows) == *told;
        }
        let first = rows.iter().filter(|row| row.attempt == 0).cloned().collect::<Vec<_>>();
        let again = rows.iter().filter(|row| row.attempt > 0).count();
        // Inline data are not read again, and an atomic is not executed again.
        let reads = told.contains_key("payload_read");
        self.counted(&first) == *told && (reads == (again > 0))
    }
}

pub fn counts(rows: &[CrossingRow]) -> Counts {
    let mut counts = Counts::new();
    rows.iter().for_each(|row| add(&mut counts, row.class.clone(), 1));
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: DemoOptions,
    }

    fn totals(arguments: &str) -> (u32, u32) {
        let words = std::iter::once("demo").chain(arguments.split_whitespace());
        let story = of(&Line::parse_from(words).options, false);
        (story.requester_total(), story.responder_total())
    }

    /// The totals that the story and the published per-verb table state.
    #[test]
    fn the_known_totals() {
        assert_eq!(totals(""), (4, 3));
        assert_eq!(totals("--armed"), (4, 4));
        assert_eq!(totals("--unsignaled"), (3, 3));
        assert_eq!(totals("--length 10000 --mtu 1024"), (13, 12));
        assert_eq!(totals("--op write"), (4, 1));
        assert_eq!(totals("--op send"), (4, 3));
        assert_eq!(totals("--op write --inline --length 28 --doorbell wqe"), (2, 1));
        assert_eq!(totals("--op send --length 0"), (3, 2));
        assert_eq!(totals("--op read"), (4, 1));
        assert_eq!(totals("--op read --length 10000 --mtu 1024"), (13, 10));
        assert_eq!(totals("--op read --length 0"), (3, 0));
        assert_eq!(totals("--op fetch_add --unsignaled"), (3, 2));
        assert_eq!(totals("--op cmp_swap --cold"), (8, 6));
        assert_eq!(totals("--op read --fault bad-rkey"), (3, 0));
        assert_eq!(totals("--transport uc --length 10000 --mtu 1024"), (13, 12));
        assert_eq!(totals("--transport ud --op send"), (4, 3));
        assert_eq!(totals("--transport ud --op send --length 0"), (3, 3));
        assert_eq!(totals("--transport ud --op send --length 16 --inline --doorbell wqe"), (3, 3));
        assert_eq!(totals("--transport ud --op send --length 0 --doorbell wqe"), (2, 3));
        assert_eq!(totals("--op send_inv --length 0 --cold"), (5, 5));
    }

    #[test]
    fn a_torn_line_is_one_doorbell_and_a_carried_request_is_fetched() {
        let options = |arguments: &str| {
            let words = std::iter::once("demo").chain(arguments.split_whitespace());
            Line::parse_from(words).options
        };
        assert_eq!(of(&options(""), true).requester_total(), 4);
        assert_eq!(of(&options("--op write --inline --length 28 --doorbell wqe"), true).requester_total(), 3);
    }
}
