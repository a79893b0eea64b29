//! The record of crossings and packets: it begins when it is asked for, and ends when nobody asks any more.

use super::{CALL_LIMIT, ServerAnswers};
use crate::adapter::{Adapter, AdapterError};
use crate::management::protocol::{MAX_ENTRIES, Refusal};
use crate::management::reports::trace::{Lost, Places, TraceReport, merge};
use std::time::{Duration, Instant};

/// Crossings and packets that a record keeps, each.
const RECORDED: usize = 1 << 16;
/// A record that nobody has asked for so long ends.
const RECORD_LEASE: Duration = Duration::from_secs(600);

/// How long an adapter's record is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    Until(Instant),
    ForGood,
}

impl ServerAnswers<'_> {
    /// Records crossings and packets of every adapter from now on, whoever asks.
    pub fn record_all(&mut self) -> Result<(), AdapterError> {
        for handle in &self.server.adapters {
            handle.call(begin_record)?;
            self.records.insert(handle.name().to_owned(), Record::ForGood);
        }
        Ok(())
    }

    /// Ends records that nobody has asked for in a long time.
    pub fn end_unwatched(&mut self, now: Instant) {
        let server = self.server;
        self.records.retain(|name, record| {
            let keeps = *record == Record::ForGood || matches!(record, Record::Until(end) if *end > now);
            if !keeps && let Some(handle) = server.adapter(name) {
                // An adapter that does not answer records no more than its bound.
                let _ = handle.call_within(CALL_LIMIT, end_record);
            }
            keeps
        });
    }

    pub(super) fn trace(&mut self, name: &str, from: Places, limit: usize) -> Result<TraceReport, Refusal> {
        let limit = limit.clamp(1, MAX_ENTRIES);
        let report = self.call(name, move |adapter| trace(adapter, from, limit))?;
        let record = self.records.entry(name.to_owned()).or_insert(Record::ForGood);
        if report.began || matches!(record, Record::Until(_)) {
            *record = Record::Until(Instant::now() + RECORD_LEASE);
        }
        Ok(report)
    }

    pub(super) fn stop_trace(&mut self, name: &str) -> Result<(), Refusal> {
        self.call(name, end_record)?;
        self.records.remove(name);
        Ok(())
    }
}

// What follows runs in an adapter's thread.

fn begin_record(adapter: &mut Adapter) {
    adapter.function.link.trace_mut().watch(RECORDED);
    adapter.packets.watch(RECORDED);
}

fn end_record(adapter: &mut Adapter) {
    adapter.function.link.trace_mut().unwatch();
    adapter.packets.unwatch();
}

fn trace(adapter: &mut Adapter, from: Places, limit: usize) -> TraceReport {
    let began = !adapter.function.link.trace().is_watched();
    if began {
        begin_record(adapter);
    }
    let (mut crossings, mut packets) = (Vec::new(), Vec::new());
    let link = &adapter.function.link;
    let of_crossings = link.read_trace(from.crossings, limit, &mut crossings);
    let of_packets = adapter.packets.read(from.packets, limit, &mut packets);
    let (entries, used_crossings, used_packets) = merge(&crossings, &packets, limit);
    let next = |first: Option<u64>, used: usize, end: u64| first.map_or(end, |first| first + used as u64);
    let next = Places {
        crossings: next(
            crossings.first().map(|crossing| crossing.sequence),
            used_crossings,
            of_crossings.next_sequence,
        ),
        packets: next(packets.first().map(|packet| packet.sequence), used_packets, of_packets.next_sequence),
    };
    let last = Places { crossings: link.last_sequence(), packets: adapter.packets.last_sequence() };
    let more = next.crossings <= last.crossings || next.packets <= last.packets;
    TraceReport {
        adapter: adapter.name.clone(),
        link: link.settings().into(),
        began,
        entries,
        lost: Lost { crossings: of_crossings.lost, packets: of_packets.lost },
        next,
        last,
        more,
    }
}
