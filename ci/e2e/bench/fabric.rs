//! Adapters in this process, on one switch, and what their links have counted.

use rnic_ci::guest::AdapterFunction;
use rnic_device::adapter::{AdapterHandle, AdapterOptions};
use rnic_device::plain_port::PlainPort;
use rnic_device::server::{Server, adapter_options};
use rnic_engine::Counters;
use rnic_pcie::ledger::Ledger;
use rnic_pcie::{Cause, Class, Crossing};
use rnic_switch::{CaptureOptions, SwitchConfig};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Crossings that a trace keeps.
const KEPT: usize = 1 << 17;

/// Adapters A and B.
pub struct Fabric {
    pub server: Server,
    folder: TempDir,
}

impl Fabric {
    pub fn new() -> Fabric {
        Fabric::with(|_| {})
    }

    /// The same with adapters that are not as usual.
    pub fn with(change: impl Fn(&mut AdapterOptions)) -> Fabric {
        let folder = tempfile::Builder::new().prefix("f").tempdir().expect("a folder for the sockets");
        let options = ["A", "B"].map(|name| {
            let mut options = adapter_options(name, folder.path());
            change(&mut options);
            options
        });
        let server = Server::start(options.into(), SwitchConfig::default()).expect("two adapters");
        Fabric { server, folder }
    }

    pub fn adapter(&self, name: &str) -> &AdapterHandle {
        self.server.adapter(name).expect("an adapter of this name")
    }

    pub fn socket(&self, name: &str) -> PathBuf {
        self.adapter(name).socket().clone()
    }

    /// A port that a machine without an adapter joins; its socket.
    pub fn plain_port(&mut self, name: &str) -> PathBuf {
        let socket = self.folder.path().join(format!("{name}.port.sock"));
        self.server.add_plain_port(name, &socket).expect("a plain port");
        socket
    }

    /// A port that was added.
    pub fn plain_port_of(&self, name: &str) -> &PlainPort {
        self.server.plain_ports.iter().find(|port| port.name() == name).expect("a port of this name")
    }

    /// What a machine gets to attach to this adapter.
    pub fn function(&self, name: &str) -> AdapterFunction {
        AdapterFunction::new(self.socket(name))
    }

    /// Both of its functions, for a machine that gets the whole adapter.
    pub fn functions(&self, name: &str) -> Vec<AdapterFunction> {
        vec![self.function(name), AdapterFunction::new(self.adapter(name).ethernet_socket())]
    }

    pub fn counters(&self, name: &str) -> Counters {
        self.adapter(name).call(|adapter| *adapter.function.engine.counters()).expect("an answer")
    }

    pub fn resets(&self, name: &str) -> u64 {
        self.adapter(name).call(|adapter| adapter.function.resets()).expect("an answer")
    }

    pub fn is_attached(&self, name: &str) -> bool {
        self.adapter(name).call(|adapter| adapter.is_attached()).expect("an answer")
    }

    /// Records every frame from now on.
    pub fn capture(&self, path: &Path) {
        let file = std::fs::File::create(path).expect("a file for the capture");
        self.server.switch.capture().start(Box::new(file), CaptureOptions::default()).expect("a capture");
    }

    pub fn end_capture(&self) {
        self.server.switch.capture().stop().expect("a whole capture");
    }

    /// Begins to record what crosses an adapter's link.
    pub fn watch(&self, name: &str) -> Watch<'_> {
        let adapter = self.adapter(name);
        let begin = adapter.call(|adapter| {
            let link = &mut adapter.function.link;
            link.trace_mut().watch(KEPT);
            (link.ledger().snapshot(), link.last_sequence())
        });
        let (ledger, sequence) = begin.expect("an answer");
        Watch { adapter, ledger, sequence }
    }
}

/// A moment from which crossings are recorded.
pub struct Watch<'a> {
    adapter: &'a AdapterHandle,
    ledger: Ledger,
    sequence: u64,
}

impl Watch<'_> {
    /// Every crossing since, in order; their number by class is the ledger's difference.
    #[track_caller]
    pub fn crossings(&self) -> Vec<Crossing> {
        let (sequence, earlier) = (self.sequence, self.ledger.snapshot());
        let answer = self.adapter.call(move |adapter| {
            let link = &adapter.function.link;
            let mut crossings = Vec::new();
            let reading = link.read_trace(sequence + 1, KEPT, &mut crossings);
            (crossings, reading.lost, link.ledger().since(&earlier))
        });
        let (crossings, lost, delta) = answer.expect("an answer");
        assert_eq!(lost, 0, "crossings that the trace did not keep");
        let counted: BTreeMap<Class, u64> = delta
            .classes()
            .map(|(class, totals)| (class, totals.crossings))
            .filter(|(_, crossings)| *crossings > 0)
            .collect();
        assert_eq!(by_class(&crossings), counted, "the trace and the ledger of adapter {}", self.adapter.name());
        crossings
    }
}

pub fn by_class(crossings: &[Crossing]) -> BTreeMap<Class, u64> {
    let mut counts = BTreeMap::new();
    crossings.iter().for_each(|crossing| *counts.entry(crossing.origin.class).or_default() += 1);
    counts
}

/// Crossings of these queue pairs' operations, in order.
pub fn of_operations(crossings: &[Crossing], qpns: &[u32]) -> Vec<Crossing> {
    let belongs = |crossing: &&Crossing| match crossing.origin.cause {
        Cause::Send { qpn, .. } | Cause::Packet { qpn, .. } => qpns.contains(&qpn),
        Cause::Receive { qpn_or_srqn, .. } => qpns.contains(&qpn_or_srqn),
        _ => false,
    };
    crossings.iter().filter(belongs).copied().collect()
}

pub fn class_names(crossings: &[Crossing]) -> Vec<&'static str> {
    crossings.iter().map(|crossing| crossing.origin.class.name()).collect()
}
