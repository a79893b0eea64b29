//! Both stations, and the adapters between them.

use super::Failure;
use super::options::Plan;
use super::report::LedgerTotals;
use super::station::Station;
use rnic_device::server::{Server, adapter_options};
use rnic_pcie::ledger::Ledger;
use rnic_switch::SwitchConfig;
use std::collections::BTreeMap;

pub struct Pair {
    pub requester: Station,
    pub responder: Station,
    // Behind the drivers: they close before their adapters end.
    server: Server,
    _folder: tempfile::TempDir,
    runs: u64,
}

impl Pair {
    pub fn start(plan: &Plan, always_seal: bool) -> Result<Self, Failure> {
        let folder = tempfile::Builder::new().prefix("rnic-bench-").tempdir()?;
        let adapters = ["A", "B"].map(|name| {
            let mut options = adapter_options(name, folder.path());
            options.always_seal = always_seal;
            options
        });
        let server = Server::start(adapters.into(), SwitchConfig::default())?;
        let [a, b] = [("A", [10, 0, 0, 1]), ("B", [10, 0, 0, 2])].map(|(name, ip)| {
            let socket = server.adapter(name).map(|adapter| adapter.socket().clone()).unwrap_or_default();
            Station::open(&socket, ip)
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

    fn ledger(&self, name: &str) -> Result<Ledger, Failure> {
        let adapter = self.server.adapter(name).ok_or_else(|| Failure::Environment(format!("no adapter {name}")))?;
        Ok(adapter.call(|adapter| adapter.function.link.ledger().snapshot())?)
    }

    pub fn ledgers(&self) -> Result<[Ledger; 2], Failure> {
        Ok([self.ledger("A")?, self.ledger("B")?])
    }

    /// What crossed since, by adapter and class.
    pub fn crossed(&self, before: &[Ledger; 2]) -> Result<BTreeMap<&'static str, LedgerTotals>, Failure> {
        let now = self.ledgers()?;
        let names = ["A", "B"].into_iter();
        Ok(names.zip(now.iter().zip(before)).map(|(name, (now, before))| (name, totals(&now.since(before)))).collect())
    }
}

fn totals(ledger: &Ledger) -> LedgerTotals {
    let classes = ledger.classes().filter(|(_, totals)| totals.crossings > 0);
    classes.map(|(class, totals)| (class.name(), [totals.crossings, totals.bytes])).collect()
}
