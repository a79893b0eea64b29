//! Both stations, and the adapters between them.

use super::Failure;
use super::options::Plan;
use super::report::LedgerTotals;
use super::scale::Size;
use super::station::{Address, Station};
use rnic_device::server::{Server, adapter_options};
use rnic_pcie::ledger::Ledger;
use rnic_switch::SwitchConfig;
use rustix::time::{ClockId, Timespec};
use std::collections::BTreeMap;
use std::time::Duration;

/// The requester's, then the responder's.
pub const ADAPTERS: [&str; 2] = ["A", "B"];

pub struct Pair {
    pub requester: Station,
    pub responder: Station,
    // Behind the drivers: they close before their adapters end.
    server: Server,
    _folder: tempfile::TempDir,
    runs: u64,
}

impl Pair {
    pub fn start(plan: &Plan, always_seal: bool, busy_poll: Duration) -> Result<Self, Failure> {
        Self::between(plan, always_seal, busy_poll, None)
    }

    /// With so many queue pairs, each connected to one of the other side, and regions; and caches that hold them all.
    pub fn of_size(plan: &Plan, size: Size) -> Result<Self, Failure> {
        let mut pair = Self::between(plan, false, Duration::ZERO, Some(size))?;
        pair.requester.grow(size)?;
        pair.responder.grow(size)?;
        let (requester, responder) = (&mut pair.requester, &mut pair.responder);
        for at in 0..requester.queue_pairs.len() {
            let (own, peer) = (requester.queue_pairs[at], responder.queue_pairs[at]);
            let [of_own, of_peer] = [(&requester.address, own), (&responder.address, peer)]
                .map(|(address, qpn)| Address { qpn: qpn.0, ..*address });
            responder.connect_queue_pair(peer, &of_own, plan.mtu)?;
            requester.connect_queue_pair(own, &of_peer, plan.mtu)?;
        }
        Ok(pair)
    }

    fn between(plan: &Plan, always_seal: bool, busy_poll: Duration, size: Option<Size>) -> Result<Self, Failure> {
        let folder = tempfile::Builder::new().prefix("rnic-bench-").tempdir()?;
        let adapters = ADAPTERS.map(|name| {
            let mut options = adapter_options(name, folder.path());
            options.always_seal = always_seal;
            options.busy_poll = busy_poll;
            if let Some(size) = size {
                let engine = &mut options.engine;
                // One of each more: what a station has anyway.
                engine.qp_cache_entries = size.queue_pairs as usize + 1;
                engine.rd_atomic_cache_entries = size.queue_pairs as usize + 1;
                engine.key_cache_entries = size.regions as usize + 1;
            }
            options
        });
        let server = Server::start(adapters.into(), SwitchConfig::default())?;
        let [a, b] = [1, 2].map(|number| {
            let socket = server.adapter(ADAPTERS[number - 1]).map(|adapter| adapter.socket().clone());
            Station::open(&socket.unwrap_or_default(), [10, 0, 0, number as u8], size)
        });
        let (mut requester, mut responder) = (a?, b?);
        responder.connect(&requester.address, plan.mtu)?;
        requester.connect(&responder.address, plan.mtu)?;
        Ok(Self { requester, responder, server, _folder: folder, runs: 0 })
    }

    /// Other bytes for each run, so that none passes with those of an earlier one; the target holds none of them.
    pub fn prepare(&mut self, length: usize) -> Result<Vec<u8>, Failure> {
        self.runs += 1;
        let mut state = self.runs.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut bytes = vec![0; length.next_multiple_of(8)];
        for word in bytes.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        bytes.truncate(length);
        self.requester.fill(&bytes)?;
        self.responder.fill(&vec![0; length])?;
        Ok(bytes)
    }

    /// The target holds what was sent.
    pub fn verify(&mut self, sent: &[u8], what: &str) -> Result<(), Failure> {
        let found = self.responder.contents(sent.len())?;
        match found.iter().zip(sent).position(|(found, sent)| found != sent) {
            None => Ok(()),
            Some(at) => Err(Failure::Wrong(format!("{what}: byte {at} of {} is not what was sent", sent.len()))),
        }
    }

    /// What both adapters have counted and used until now, each read by its own thread.
    pub fn read(&self) -> Result<[Reading; 2], Failure> {
        let of = |name: &str| {
            let adapter =
                self.server.adapter(name).ok_or_else(|| Failure::Environment(format!("no adapter {name}")))?;
            Ok::<_, Failure>(adapter.call(|adapter| Reading {
                ledger: adapter.function.link.ledger().snapshot(),
                processor: rustix::time::clock_gettime(ClockId::ThreadCPUTime),
            })?)
        };
        Ok([of(ADAPTERS[0])?, of(ADAPTERS[1])?])
    }

    /// What came since.
    pub fn since(&self, before: &[Reading; 2]) -> Result<Spent, Failure> {
        let now = self.read()?;
        let each = ADAPTERS.into_iter().zip(now.iter().zip(before));
        let ledger = each.map(|(name, (now, before))| (name, totals(&now.ledger.since(&before.ledger)))).collect();
        let processor_ns = [0, 1].map(|at| nanoseconds(&now[at].processor) - nanoseconds(&before[at].processor));
        Ok(Spent { ledger, processor_ns })
    }
}

/// An adapter at one moment.
pub struct Reading {
    ledger: Ledger,
    /// Of its thread.
    processor: Timespec,
}

/// What a run has cost the adapters.
#[derive(Clone, Debug, Default)]
pub struct Spent {
    pub ledger: BTreeMap<&'static str, LedgerTotals>,
    /// Processor time of each adapter's thread.
    pub processor_ns: [i64; 2],
}

impl Spent {
    /// Crossings of a class at an adapter.
    pub fn crossings(&self, adapter: &str, class: &str) -> u64 {
        self.ledger.get(adapter).and_then(|totals| totals.get(class)).map_or(0, |[crossings, _]| *crossings)
    }
}

fn nanoseconds(time: &Timespec) -> i64 {
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

fn totals(ledger: &Ledger) -> LedgerTotals {
    let classes = ledger.classes().filter(|(_, totals)| totals.crossings > 0);
    classes.map(|(class, totals)| (class.name(), [totals.crossings, totals.bytes])).collect()
}
