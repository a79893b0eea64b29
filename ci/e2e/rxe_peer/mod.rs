//! Linux' rdma_rxe as the peer of an adapter that a driver of ours holds.
//!
//! A QEMU without an adapter joins the switch by a plain port; in its guest rdma_rxe, of the stock kernel, runs on QEMU's
//! own network card, and the program in `peer.py` does there what it is told line by line. The other end is the shim on
//! the model host. [`sides`] has both ends under one trait, so that every case runs in both directions.
//!
//! What rdma_rxe does in its own way and may: it gives no credits, and calls a receive's bad key an operation error.

mod sides;

use crate::bench::fabric::Fabric;
use crate::bench::laboratory;
use crate::bench::station::Station;
use crate::bench::transaction::over_socket;
use crate::guests::pyverbs_lab;
use crate::tally;
use rnic_abi::{CompletionStatus, WorkOpcode};
use rnic_ci::guest::{Guest, GuestSpec};
use rnic_shim::transaction::{ipv4_gid, payload};
use rnic_switch::{DropReason, FaultScript};
use serde_json::json;
use sides::{Done, LIMIT, Model, Rxe, SOURCE, Side, TARGET, Work};
use std::io::Write as _;

const PROGRAM: &str = include_str!("peer.py");
const MODEL: &str = "10.0.0.1";
const RXE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 3];
const PORT: &str = "P";
/// 67 ms: the guest's kernel is emulated, and slow; a busy machine may take a timeout for a loss, which harms nothing.
const RXE_TIMEOUT: u8 = 14;

/// Which end begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Model,
    Rxe,
}

const BOTH_WAYS: [From; 2] = [From::Model, From::Rxe];

/// Both ends, connected.
struct Ends {
    fabric: Fabric,
    model: Model,
    rxe: Rxe,
}

impl Ends {
    fn meet() -> Ends {
        let lab = pyverbs_lab();
        let mut fabric = Fabric::new();
        let socket = fabric.plain_port(PORT);
        let mut guest = laboratory::guest(&lab, &GuestSpec::without_adapter("rxe"));
        plug(&mut guest, &socket);
        let mut station = Station::open(over_socket(&fabric.socket("A")), ipv4_gid([10, 0, 0, 1]));
        let mac = station.device.mac().expect("a MAC address").map(|byte| format!("{byte:02x}")).join(":");
        // Nobody answers ARP for the model host: its address is told.
        shell(&mut guest, "until ip addr add 10.0.0.3/24 dev eth0; do usleep 20000; done; ip link set eth0 up");
        shell(&mut guest, &format!("arp -s {MODEL} {mac}"));
        crate::guests::take_rxe(&mut guest);
        let program = tempfile::Builder::new().suffix(".py").tempfile().expect("a file");
        program.as_file().write_all(PROGRAM.as_bytes()).expect("written");
        let path = guest.send_payload(program.path()).expect("the peer's program");
        guest.run(&format!("python3 -W ignore {path}")).expect("it starts");
        let rxe = Rxe::open(guest, ipv4_gid([10, 0, 0, 3]), RXE_MAC);
        let mut ends = Ends { fabric, model: Model::open(station), rxe };
        ends.connect();
        ends
    }

    fn connect(&mut self) {
        let (model, rxe) = (self.model.endpoint(), self.rxe.endpoint());
        self.model.connect(&rxe);
        self.rxe.connect(&model, RXE_TIMEOUT);
        tally::rxe_peer();
    }

    /// New queue pairs on both sides.
    fn connect_anew(&mut self) {
        self.model.connect_anew();
        self.rxe.open_anew();
        self.connect();
    }

    /// Whoever begins, and the other one.
    fn sides(&mut self, from: From) -> (&mut dyn Side, &mut dyn Side) {
        match from {
            From::Model => (&mut self.model, &mut self.rxe),
            From::Rxe => (&mut self.rxe, &mut self.model),
        }
    }

    /// One operation, its bytes and both completions looked at. The receive is posted before, or when the first packet has
    /// been refused.
    fn operate(&mut self, from: From, work: &Work, late_receive: bool) {
        let seed = u64::from(work.length_bytes) + u64::from(work.immediate);
        let (sent, there) = (payload(seed, work.length_bytes), payload(seed + 1, work.length_bytes));
        let refused = |fabric: &Fabric| match from {
            From::Model => fabric.counters("A").rcvd_rnr_err,
            From::Rxe => fabric.counters("A").send_rnr_err,
        };
        let refused_before = refused(&self.fabric);
        let takes_receive = work.name.starts_with("send") || work.name == "write_imm";
        let (own, other) = self.sides(from);
        let peer = other.endpoint();
        let what = format!("{} of {} bytes from {from:?}", work.name, work.length_bytes);
        own.fill(SOURCE, &sent);
        own.fill(TARGET, &vec![0xee; work.length_bytes as usize]);
        other.fill(SOURCE, &there);
        other.fill(TARGET, &if is_atomic(work) { 5u64.to_le_bytes().to_vec() } else { vec![0xdd; sent.len()] });
        if takes_receive && !late_receive {
            other.receive();
        }
        own.post(work, &peer);
        if takes_receive && late_receive {
            let start = std::time::Instant::now();
            while refused(&self.fabric) == refused_before {
                assert!(start.elapsed() < LIMIT, "{what}: not refused without a receive");
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            self.sides(from).1.receive();
        }
        let (own, other) = self.sides(from);
        assert_eq!(own.complete().status, 0, "{what}");
        if takes_receive {
            let done = Done { status: 0, length_bytes: work.length_bytes, immediate: work.immediate };
            assert_eq!(other.complete(), done, "{what}");
        }
        match work.name {
            "read" => assert!(own.holds(TARGET, work.length_bytes) == there, "{what}"),
            "cmp_swap" | "fetch_add" => {
                let after = if work.name == "cmp_swap" { work.operands.1 } else { 5 + work.operands.0 };
                assert_eq!(own.holds(TARGET, 8), 5u64.to_le_bytes(), "{what}: what was there");
                assert_eq!(other.holds(TARGET, 8), after.to_le_bytes(), "{what}: what is there");
            }
            _ => assert!(other.holds(TARGET, work.length_bytes) == sent, "{what}"),
        }
    }

    /// What the switch does to the next frames on their way to one end.
    fn on_the_way_to(&self, end: From, script: FaultScript) {
        match end {
            From::Rxe => self.fabric.plain_port_of(PORT).set_fault_script(script),
            From::Model => {
                let adapter = self.fabric.adapter("A");
                adapter.call(move |adapter| adapter.port.switch.set_fault_script(script)).expect("an answer");
            }
        }
    }

    /// Frames that the script has dropped, corrupted or doubled on their way to one end.
    fn touched(&self, end: From) -> u64 {
        let name = if end == From::Model { "A" } else { PORT };
        let all = self.fabric.server.switch.statistics();
        let port = &all.iter().find(|(port, _)| port == name).expect("the port").1;
        port.dropped(DropReason::Fault) + port.corrupted_frames + port.duplicated_frames
    }

    /// Rules that the adapter has seen broken.
    fn diagnostics(&self) -> Vec<&'static str> {
        let read = self.fabric.adapter("A").call(|adapter| {
            let mut records = Vec::new();
            adapter.function.engine.read_diagnostics(1, 1024, &mut records);
            records
        });
        read.expect("an answer").iter().map(|record| record.diagnostic.rule().name).collect()
    }
}

/// QEMU's own card, on the switch.
fn plug(guest: &mut Guest, socket: &std::path::Path) {
    let backend = json!({ "type": "stream", "id": "n0", "server": false, "addr": { "type": "unix", "path": socket } });
    guest.qmp().execute("netdev_add", backend).expect("QEMU joins the port");
    let card = json!({
        "driver": "virtio-net-pci", "id": "card", "bus": "rp0", "netdev": "n0", "host_mtu": 9000, "romfile": "",
        "mac": RXE_MAC.map(|byte| format!("{byte:02x}")).join(":"),
    });
    guest.qmp().execute("device_add", card).expect("QEMU's own card");
}

#[track_caller]
fn shell(guest: &mut Guest, command: &str) {
    let (code, output) = guest.shell(command, LIMIT).unwrap_or_else(|error| panic!("{command}: {error}"));
    assert_eq!(code, 0, "{command}: {}", String::from_utf8_lossy(&output));
}

fn is_atomic(work: &Work) -> bool {
    matches!(work.name, "cmp_swap" | "fetch_add")
}

fn work(name: &'static str, length_bytes: u32) -> Work {
    let opcode = match name {
        "send" => WorkOpcode::SEND,
        "send_imm" => WorkOpcode::SEND_IMM,
        "write" => WorkOpcode::WRITE,
        "write_imm" => WorkOpcode::WRITE_IMM,
        "read" => WorkOpcode::READ,
        "cmp_swap" => WorkOpcode::CMP_SWAP,
        _ => WorkOpcode::FETCH_ADD,
    };
    let immediate = if name.ends_with("_imm") { 0x0102_0304 } else { 0 };
    let operands = if name == "cmp_swap" { (5, 0x1122_3344_5566_7788) } else { (1 << 40, 0) };
    Work { name, opcode, length_bytes, immediate, operands, key: None }
}

pub fn every_operation_carries_its_bytes_both_ways() {
    let mut ends = Ends::meet();
    for from in BOTH_WAYS {
        for name in ["send", "send_imm", "write", "write_imm", "read"] {
            for length in [1, 1024, 5000] {
                ends.operate(from, &work(name, length), false);
            }
        }
        for name in ["cmp_swap", "fetch_add"] {
            ends.operate(from, &work(name, 8), false);
        }
        for name in ["send", "write_imm"] {
            ends.operate(from, &work(name, 3000), true);
        }
    }
    assert_eq!(ends.diagnostics(), [""; 0]);
}

pub fn what_is_lost_or_repeated_either_way_arrives_once() {
    let mut ends = Ends::meet();
    for from in BOTH_WAYS {
        let to = if from == From::Model { From::Rxe } else { From::Model };
        for (name, length, towards, script) in [
            ("send", 5000, to, "drop:request:1"),
            ("send", 5000, to, "drop:request:3"),
            ("write", 5000, to, "drop:request:5"),
            ("write_imm", 5000, to, "corrupt:request:2"),
            ("write_imm", 5000, to, "duplicate:request:1-5"),
            ("send", 100, from, "drop:ack:1"),
            ("read", 5000, to, "drop:request:1"),
            ("read", 5000, from, "drop:response:1"),
            ("read", 5000, from, "drop:response:3"),
            ("read", 5000, from, "drop:response:5"),
            ("fetch_add", 8, to, "drop:request:1"),
            ("fetch_add", 8, from, "drop:response:1"),
            ("cmp_swap", 8, from, "drop:response:1"),
        ] {
            let before = ends.touched(towards);
            ends.on_the_way_to(towards, script.parse().expect("a script"));
            ends.operate(from, &work(name, length), false);
            assert!(ends.touched(towards) > before, "{script} met nothing: {name} from {from:?}");
            ends.on_the_way_to(towards, FaultScript::default());
        }
    }
    assert_eq!(ends.diagnostics(), [""; 0]);
    let counters = ends.fabric.counters("A");
    assert!(counters.retransmitted_pkts > 0 && counters.duplicate_request > 0 && counters.rx_icrc_errors > 0);
}

pub fn what_is_refused_ends_both_sides_and_nothing_else() {
    const WRONG: u32 = 0x00de_adbe;
    let mut ends = Ends::meet();
    for from in BOTH_WAYS {
        for (name, length) in [("write", 3000), ("read", 3000), ("fetch_add", 8)] {
            let (own, other) = ends.sides(from);
            let peer = other.endpoint();
            other.fill(TARGET, &[0xdd; 64]);
            own.post(&Work { key: Some(WRONG), ..work(name, length) }, &peer);
            let status = own.complete().status;
            assert_eq!(status, CompletionStatus::REM_ACCESS_ERR.0, "{name} from {from:?} under a key that nobody has");
            assert_eq!(other.holds(TARGET, 64), [0xdd; 64], "nothing was written");
            ends.connect_anew();
            ends.operate(from, &work("send", 2000), false);
        }
    }
    let told = ends.diagnostics();
    assert_eq!(told, [["RemoteAccessError"; 3], ["RKeyInvalid"; 3]].concat());
}
