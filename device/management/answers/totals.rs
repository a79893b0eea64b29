//! Totals: since the start, since a zero point, or between two marks of the driver.

use super::ServerAnswers;
use crate::adapter::Adapter;
use crate::function::marks::{Mark, MarkSpan, Reading};
use crate::management::protocol::{MAX_ENTRIES, Reason, Refusal, Span};
use crate::management::reports::stat::{FunctionStat, Moment, Operations, QueueStat, StatReport};
use rnic_pcie::LinkSettings;
use rnic_pcie::ledger::Ledger;
use rnic_pcie::queue_totals::QueueShares;
use std::collections::BTreeMap;

/// What both functions have counted at a moment.
#[derive(Clone, Debug, Default)]
struct Counts {
    reading: Reading,
    ethernet: Ledger,
    time_ns: u64,
}

/// What counting begins with.
#[derive(Clone, Debug, Default)]
pub struct Zero {
    counts: Counts,
    queues: BTreeMap<u32, QueueShares>,
}

/// What an adapter says of its totals.
struct Counted {
    now: Counts,
    /// What two marks enclose, or the mark that is missing.
    between: Option<Result<MarkSpan, u64>>,
    links: [LinkSettings; 2],
    /// From the number asked for on, one more than is given.
    queues: Vec<(u32, QueueShares)>,
    /// All, to count from.
    all_queues: Option<BTreeMap<u32, QueueShares>>,
    counters: Vec<(&'static str, u64)>,
    ethernet_counters: Vec<(&'static str, u64)>,
}

/// Where counting begins, or ends.
struct End {
    what: &'static str,
    mark: Option<u64>,
    counts: Counts,
}

/// Queue pairs with their totals at both ends; none where they are not kept.
type Queues = Option<BTreeMap<u32, (QueueShares, QueueShares)>>;

impl ServerAnswers<'_> {
    pub(super) fn stat(&mut self, name: &str, span: Span, zero: bool, queues_from: u32) -> Result<StatReport, Refusal> {
        let mut counted = self.call(name, move |adapter| count(adapter, span, zero, queues_from))?;
        let (since, until, queues) = match counted.between.take() {
            Some(Ok(span)) => of_marks(&span),
            Some(Err(missing)) => {
                let message = format!("adapter {name} has no mark {missing:#x} there (see rnic stat --marks)");
                return Err(Refusal::new(Reason::NotFound, message));
            }
            None => self.until_now(name, span, &mut counted),
        };
        let queues_missing = queues.is_none();
        let mut queues = queues.unwrap_or_default().split_off(&queues_from);
        let more_queues_from = queues.keys().nth(MAX_ENTRIES).copied();
        if let Some(more) = more_queues_from {
            queues.split_off(&more);
        }
        let queues = queues.iter().map(|(qpn, (then, now))| QueueStat::since(*qpn, now, then));
        let named = |counters: Vec<(&'static str, u64)>| {
            counters.into_iter().map(|(name, value)| (name.into(), value)).collect()
        };
        let [rdma, ethernet] = counted.links;
        let ledger = until.counts.reading.ledger.since(&since.counts.reading.ledger);
        let ethernet_ledger = until.counts.ethernet.since(&since.counts.ethernet);
        Ok(StatReport {
            adapter: name.to_owned(),
            functions: vec![
                FunctionStat::new(0, "rdma", rdma.into(), &ledger),
                FunctionStat::new(1, "ethernet", ethernet.into(), &ethernet_ledger),
            ],
            operations: operations(&since.counts.reading, &until.counts.reading),
            queues: queues.filter(|queue| !queue.is_empty()).collect(),
            queues_missing,
            more_queues_from,
            counters: named(counted.counters),
            ethernet_counters: named(counted.ethernet_counters),
            since: since.moment(),
            until: until.moment(),
        })
    }

    /// From the start, or the zero point, until now; which then may become the zero point.
    fn until_now(&mut self, name: &str, span: Span, counted: &mut Counted) -> (End, End, Queues) {
        let zero = self.zeros.get(name).filter(|_| span == Span::SinceZero);
        let what = if zero.is_some() { "zero" } else { "start" };
        let zero = zero.cloned().unwrap_or_default();
        let then = |qpn: u32| zero.queues.get(&qpn).copied().unwrap_or_default();
        let queues = counted.queues.iter().map(|(qpn, now)| (*qpn, (then(*qpn), *now))).collect();
        if let Some(queues) = counted.all_queues.take() {
            self.zeros.insert(name.to_owned(), Zero { counts: counted.now.clone(), queues });
        }
        let until = End { what: "now", mark: None, counts: counted.now.clone() };
        (End { what, mark: None, counts: zero.counts }, until, Some(queues))
    }
}

fn of_marks(span: &MarkSpan) -> (End, End, Queues) {
    let end = |mark: &Mark, reading: &Reading| {
        let ethernet = mark.ethernet.clone().unwrap_or_default();
        let counts = Counts { reading: reading.clone(), ethernet, time_ns: mark.time_ns };
        End { what: "mark", mark: Some(mark.value), counts }
    };
    (end(&span.first, &span.first.after), end(&span.last, &span.last.before), span.queues())
}

fn operations(since: &Reading, until: &Reading) -> Operations {
    Operations {
        finished_sends: until.finished_sends.saturating_sub(since.finished_sends),
        executed_messages: until.executed_messages.saturating_sub(since.executed_messages),
    }
}

impl End {
    fn moment(&self) -> Moment {
        let Counts { reading, time_ns, .. } = &self.counts;
        Moment { what: self.what.into(), mark: self.mark, sequence: reading.sequence, time_ns: *time_ns }
    }
}

/// Runs in the adapter's thread: it copies, and leaves the rest to the thread that asked.
fn count(adapter: &mut Adapter, span: Span, zero: bool, queues_from: u32) -> Counted {
    adapter.function.tick();
    adapter.function.complete_marks(&adapter.ethernet.link);
    let (function, ethernet) = (&adapter.function, &adapter.ethernet);
    let between = match span {
        Span::Between(first, last) => Some(function.marks().between(first, last)),
        Span::SinceZero | Span::SinceStart => None,
    };
    let totals = function.link.queue_totals();
    let queues = match between {
        Some(_) => Vec::new(),
        None => totals.used_from(queues_from).take(MAX_ENTRIES + 1).collect(),
    };
    let now =
        Counts { reading: function.reading(), ethernet: ethernet.link.ledger().snapshot(), time_ns: function.now_ns() };
    Counted {
        now,
        between,
        links: [function.link.settings(), ethernet.link.settings()],
        queues,
        all_queues: zero.then(|| totals.used_from(0).collect()),
        counters: function.engine.counters().named(),
        ethernet_counters: ethernet.device.counters().all().collect(),
    }
}
