//! What a server answers: it asks the adapters' threads, between two of their steps and with a time limit, and keeps what
//! belongs to the watching alone: zero points (`totals`), and until when a record is kept (`record`).

mod objects;
mod record;
mod totals;

use super::protocol::{Page, Reason, Refusal, Request};
use super::reports::adapter::{AdapterReport, mac_text};
use super::reports::events::EventsReport;
use super::reports::server::{AdapterRow, ServerReport};
use super::reports::stat::{MarkRow, MarksReport};
use super::reports::trace::Places;
use super::session::Answers;
use crate::adapter::{Adapter, AdapterHandle};
use crate::server::{Server, mac_of};
use record::Record;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use totals::Zero;

/// How long an adapter's thread may take to come round to a question.
const CALL_LIMIT: Duration = Duration::from_secs(2);

/// The answers of one server.
pub struct ServerAnswers<'a> {
    server: &'a Server,
    name: String,
    started_unix_s: u64,
    strict: bool,
    zeros: BTreeMap<String, Zero>,
    records: BTreeMap<String, Record>,
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
            ethernet_socket: handle.ethernet_socket().clone(),
            ethernet_attached: handle.call_within(CALL_LIMIT, |adapter| adapter.is_ethernet_attached()).ok(),
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
                self.stop_trace(&adapter)?;
                Ok(Value::Null)
            }
            Request::Show { adapter } => value(&self.call(&adapter, show)?),
            Request::Objects { adapter, kind, page } => {
                value(&self.call(&adapter, move |adapter| objects::page_of(adapter, kind, page))?)
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
