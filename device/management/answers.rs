//! What a server answers: it asks the adapters' threads, between two of their steps and with a time limit, and keeps what
//! belongs to the watching alone: zero points, and until when a record is kept.

use super::protocol::{MAX_ENTRIES, ObjectKind, Page, Reason, Refusal, Request, Span};
use super::reports::adapter::{AdapterReport, mac_text};
use super::reports::events::EventsReport;
use super::reports::objects::{ObjectRows, ObjectsReport};
use super::reports::server::{AdapterRow, ServerReport};
use super::reports::stat::{FunctionStat, MarkRow, MarksReport, Moment, Operations, QueueStat, StatReport};
use super::reports::trace::{Lost, Places, TraceReport, merge};
use super::session::Answers;
use crate::adapter::{Adapter, AdapterError, AdapterHandle};
use crate::function::marks::Reading;
use crate::server::{Server, mac_of};
use rnic_pcie::queue_totals::QueueTotals;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long an adapter's thread may take to come round to a question.
const CALL_LIMIT: Duration = Duration::from_secs(2);
/// Crossings and packets that a record keeps, each.
const RECORDED: usize = 1 << 16;
/// A record that nobody has asked for so long ends.
const RECORD_LEASE: Duration = Duration::from_secs(600);
/// Objects of one reply: fewer than other entries, since they are larger.
const MAX_OBJECTS: usize = 512;

/// What counting begins with.
#[derive(Clone, Debug, Default)]
struct Zero {
    reading: Reading,
    queues: QueueTotals,
    time_ns: u64,
}

/// How long an adapter's record is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Record {
    Until(Instant),
    ForGood,
}

/// The answers of one server.
pub struct ServerAnswers<'a> {
    server: &'a Server,
    name: String,
    started_unix_s: u64,
    strict: bool,
    zeros: BTreeMap<String, Zero>,
    records: BTreeMap<String, Record>,
}

/// What an adapter says of its totals.
struct Counted {
    now: Reading,
    now_ns: u64,
    /// The span between two marks, or the mark that is missing.
    between: Option<Result<[(Reading, u64); 2], u64>>,
    link: rnic_pcie::LinkSettings,
    queues: Vec<(u32, rnic_pcie::queue_totals::QueueShares)>,
    whole: Option<QueueTotals>,
    counters: Vec<(&'static str, u64)>,
}

impl<'a> ServerAnswers<'a> {
    pub fn new(server: &'a Server, name: &str, strict: bool) -> Self {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            server,
            name: name.to_owned(),
            started_unix_s: started.as_secs(),
            strict,
            zeros: BTreeMap::new(),
            records: BTreeMap::new(),
        }
    }

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

    fn adapter(&self, name: &str) -> Result<&'a AdapterHandle, Refusal> {
        self.server.adapter(name).ok_or_else(|| {
            let names: Vec<_> = self.server.adapters.iter().map(AdapterHandle::name).collect();
            let message = format!("this server has no adapter {name:?}, but {}", names.join(", "));
            Refusal::new(Reason::NotFound, message)
        })
    }

    fn call<T: Send + 'static>(
        &self,
        name: &str,
        ask: impl FnOnce(&mut Adapter) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let answer = self.adapter(name)?.call_within(CALL_LIMIT, ask);
        answer.map_err(|error| Refusal::new(Reason::Unavailable, error.to_string()))
    }

    fn server_report(&self) -> ServerReport {
        let adapter = |handle: &AdapterHandle| AdapterRow {
            name: handle.name().to_owned(),
            socket: handle.socket().clone(),
            mac: mac_text(&mac_of(handle.name())),
            attached: handle.call_within(CALL_LIMIT, |adapter| adapter.is_attached()).ok(),
        };
        ServerReport {
            name: self.name.clone(),
            process: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_unix_s: self.started_unix_s,
            strict: self.strict,
            adapters: self.server.adapters.iter().map(adapter).collect(),
        }
    }

    fn stat(&mut self, name: &str, span: Span, zero: bool, queues_from: u32) -> Result<StatReport, Refusal> {
        let counted = self.call(name, move |adapter| count(adapter, span, zero, queues_from))?;
        let begin = match span {
            Span::SinceZero => self.zeros.get(name).cloned().unwrap_or_default(),
            _ => Zero::default(),
        };
        if let Some(queues) = counted.whole {
            let zero = Zero { reading: counted.now.clone(), queues, time_ns: counted.now_ns };
            self.zeros.insert(name.to_owned(), zero);
        }
        let what = if begin.reading == Reading::default() { "start" } else { "zero" };
        let (from, from_ns, until, until_ns, what) = match counted.between {
            Some(Ok([(from, from_ns), (until, until_ns)])) => (from, from_ns, until, until_ns, "mark"),
            Some(Err(missing)) => {
                let message = format!("adapter {name} has no mark {missing:#x} there (see rnic stat --marks)");
                return Err(Refusal::new(Reason::NotFound, message));
            }
            None => (begin.reading, begin.time_ns, counted.now, counted.now_ns, what),
        };
        let marks = match span {
            Span::Between(first, last) => [Some(first), Some(last)],
            _ => [None, None],
        };
        let more_queues_from = (counted.queues.len() > MAX_ENTRIES).then(|| counted.queues[MAX_ENTRIES].0);
        let queues = counted.queues.iter().take(MAX_ENTRIES);
        let queues = queues.map(|(qpn, now)| QueueStat::since(*qpn, now, &begin.queues.queue(*qpn)));
        let ledger = until.ledger.since(&from.ledger);
        Ok(StatReport {
            adapter: name.to_owned(),
            since: Moment { what: what.into(), mark: marks[0], sequence: from.sequence, time_ns: from_ns },
            until: Moment {
                what: if marks[1].is_some() { "mark".into() } else { "now".into() },
                mark: marks[1],
                sequence: until.sequence,
                time_ns: until_ns,
            },
            functions: vec![FunctionStat::new(0, "rdma", counted.link.into(), &ledger)],
            operations: Operations {
                finished_sends: until.finished_sends.saturating_sub(from.finished_sends),
                executed_messages: until.executed_messages.saturating_sub(from.executed_messages),
            },
            queues: queues.filter(|queue| !queue.is_empty()).collect(),
            more_queues_from,
            counters: counted.counters.into_iter().map(|(name, value)| (name.into(), value)).collect(),
        })
    }

    fn trace(&mut self, name: &str, from: Places, limit: usize) -> Result<TraceReport, Refusal> {
        let limit = limit.clamp(1, MAX_ENTRIES);
        let report = self.call(name, move |adapter| trace(adapter, from, limit))?;
        let record = self.records.entry(name.to_owned()).or_insert(Record::ForGood);
        if report.began || matches!(record, Record::Until(_)) {
            *record = Record::Until(Instant::now() + RECORD_LEASE);
        }
        Ok(report)
    }
}

impl Answers for ServerAnswers<'_> {
    fn answer(&mut self, request: Request) -> Result<Value, Refusal> {
        match request {
            Request::Server {} => value(&self.server_report()),
            Request::Stat { adapter, span, zero, queues_from } => {
                value(&self.stat(&adapter, span, zero, queues_from)?)
            }
            Request::Marks { adapter } => value(&self.call(&adapter, marks)?),
            Request::Trace { adapter, crossings_from, packets_from, limit } => {
                let from = Places { crossings: crossings_from, packets: packets_from };
                value(&self.trace(&adapter, from, limit)?)
            }
            Request::StopTrace { adapter } => {
                self.call(&adapter, end_record)?;
                self.records.remove(&adapter);
                Ok(Value::Null)
            }
            Request::Show { adapter } => value(&self.call(&adapter, show)?),
            Request::Objects { adapter, kind, page } => {
                value(&self.call(&adapter, move |adapter| objects(adapter, kind, page))?)
            }
            Request::Events { adapter, page } => value(&self.call(&adapter, move |adapter| events(adapter, page))?),
        }
    }
}

fn value(report: &impl Serialize) -> Result<Value, Refusal> {
    serde_json::to_value(report)
        .map_err(|error| Refusal::new(Reason::Unavailable, format!("the answer has no form: {error}")))
}

// What follows runs in an adapter's thread: it copies, and leaves the rest to the thread that asked.

fn count(adapter: &mut Adapter, span: Span, zero: bool, queues_from: u32) -> Counted {
    adapter.function.tick();
    let function = &adapter.function;
    let between = match span {
        Span::Between(first, last) => Some(
            function
                .marks()
                .between(first, last)
                .map(|(first, last)| [(first.after.clone(), first.time_ns), (last.before.clone(), last.time_ns)]),
        ),
        _ => None,
    };
    // Totals by queue are not part of marks.
    let queues = match between {
        Some(_) => Vec::new(),
        None => function.link.queue_totals().used_from(queues_from).take(MAX_ENTRIES + 1).collect(),
    };
    Counted {
        now: function.reading(),
        now_ns: function.now_ns(),
        between,
        link: function.link.settings(),
        queues,
        whole: zero.then(|| function.link.queue_totals().clone()),
        counters: function.engine.counters().named(),
    }
}

fn show(adapter: &mut Adapter) -> AdapterReport {
    adapter.function.tick();
    AdapterReport::of(adapter)
}

fn marks(adapter: &mut Adapter) -> MarksReport {
    let marks = adapter.function.marks();
    let row = |mark: &crate::function::marks::Mark| MarkRow {
        value: mark.value,
        time_ns: mark.time_ns,
        sequence: mark.after.sequence,
    };
    MarksReport { adapter: adapter.name.clone(), marks: marks.iter().map(row).collect(), lost: marks.lost() }
}

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

fn objects(adapter: &mut Adapter, kind: ObjectKind, page: Page) -> ObjectsReport {
    let engine = &adapter.function.engine;
    let from = u32::try_from(page.from).unwrap_or(u32::MAX);
    // One more than is given tells whether there are more.
    let limit = page.limit().min(MAX_OBJECTS);
    macro_rules! page_of {
        ($views:expr, $number:ident, $rows:path) => {{
            let mut views = $views;
            let next = views.get(limit).map(|view| u64::from(view.$number));
            views.truncate(limit);
            ($rows(views.into_iter().map(Into::into).collect()), next)
        }};
    }
    let (objects, next) = match kind {
        ObjectKind::QueuePairs => {
            page_of!(engine.inspect_queue_pairs(from, limit + 1), qpn, ObjectRows::QueuePairs)
        }
        ObjectKind::CompletionQueues => {
            page_of!(engine.inspect_completion_queues(from, limit + 1), cqn, ObjectRows::CompletionQueues)
        }
        ObjectKind::EventQueues => {
            page_of!(engine.inspect_event_queues(from, limit + 1), eqn, ObjectRows::EventQueues)
        }
        ObjectKind::SharedReceiveQueues => {
            let views = engine.inspect_shared_receive_queues(from, limit + 1);
            page_of!(views, srqn, ObjectRows::SharedReceiveQueues)
        }
        ObjectKind::Keys => page_of!(engine.inspect_keys(from, limit + 1), index, ObjectRows::Keys),
    };
    ObjectsReport { adapter: adapter.name.clone(), objects, next }
}

fn events(adapter: &mut Adapter, page: Page) -> EventsReport {
    let mut records = Vec::new();
    let reading = adapter.function.engine.read_diagnostics(page.from, page.limit(), &mut records);
    EventsReport {
        adapter: adapter.name.clone(),
        events: records.iter().map(Into::into).collect(),
        lost: reading.lost,
        next: reading.next_sequence,
    }
}
