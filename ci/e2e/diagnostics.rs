//! Every diagnostic of the table, provoked over a live server's sockets and seen by `rnic events --json`.
//!
//! Each rule is broken by a driver that writes what no driver should, on adapters that are brought up anew; or stands in
//! the list of those that no driver can break, with the reason. A new number needs one or the other.

use crate::bench::program;
use crate::bench::raw_driver::*;
use crate::bench::serving::Serving;
use crate::bench::transaction::over_socket;
use rnic_abi::command::*;
use rnic_abi::diagnostic::RULES;
use rnic_abi::doorbell::*;
use rnic_abi::registers::*;
use rnic_abi::{CommandOpcode, ControlSegment, Diagnostic, WorkOpcode, work_request};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, IntoBytes};

const IPS: [[u8; 4]; 2] = [[10, 0, 0, 1], [10, 0, 0, 2]];
const QPNS: [u32; 2] = [0x11, 0x12];

/// Two drivers on two adapters.
struct Pair {
    a: RawDriver,
    b: RawDriver,
}

impl Pair {
    fn reset(&mut self) {
        self.a.reset();
        self.b.reset();
    }

    /// Both up, A's objects made as said.
    fn up(&mut self, making: Making) {
        self.up_both(making, Making::default());
    }

    fn up_both(&mut self, a: Making, b: Making) {
        for (driver, making) in [(&mut self.a, &a), (&mut self.b, &b)] {
            driver.enable(making);
            driver.create(making);
        }
        self.a.connect(QPNS[1], IPS[1], &a);
        self.b.connect(QPNS[0], IPS[0], &b);
    }
}

type Break = fn(&mut Pair);

/// On adapters after a reset.
const DISABLED: &[(Diagnostic, Break)] = &[
    (Diagnostic::CommandRingInvalid, |pair| pair.a.write32(REG_CONTROL, CONTROL_ENABLE)),
    (Diagnostic::DeviceDisabled, |pair| pair.a.ring(DB_SEND, queue_doorbell(QPNS[0], 1))),
    (Diagnostic::CommandFetchFault, |pair| {
        pair.a.enable(&Making { command_ring: Some(NOWHERE), ..Making::default() });
        pair.a.start_slot(&[0; 128]);
    }),
    (Diagnostic::DeviceFatal, |pair| {
        pair.a.enable(&Making { command_ring: Some(NOWHERE), ..Making::default() });
        (0..2).for_each(|_| pair.a.start_slot(&[0; 128]));
    }),
    (Diagnostic::WqeFetchFault, |pair| {
        pair.up(Making { send_ring: Some(NOWHERE), ..Making::default() });
        pair.a.send(&Work::write());
    }),
    (Diagnostic::ReceiveFetchFault, |pair| {
        pair.up_both(Making::default(), Making { receive_ring: Some(NOWHERE), ..Making::default() });
        pair.b.receive(VIRTUAL, 64, KEY);
        pair.b.settle();
        pair.a.send(&Work::send());
    }),
    (Diagnostic::CqRingFault, |pair| {
        pair.up(Making { completion_ring: Some(NOWHERE), ..Making::default() });
        pair.a.send(&Work::write());
    }),
    (Diagnostic::EventRingFault, |pair| {
        pair.up(Making { event_ring: Some(NOWHERE), ..Making::default() });
        pair.a.ring(DB_CQ_ARM, cq_arm(CQN, 0, 1, false));
        pair.a.send(&Work::write());
    }),
    (Diagnostic::ContextFault, |pair| {
        pair.up(Making { qp_table: Some(NOWHERE), ..Making::default() });
        pair.a.flush_caches();
    }),
    (Diagnostic::InvalidRequest, short_mtu),
    (Diagnostic::RemoteInvalidRequest, short_mtu),
    (Diagnostic::RetryExceeded, |pair| {
        pair.up(Making { retry_cnt: 0, ..Making::default() });
        pair.b.must(CommandOpcode::DESTROY_QP, object(QPNS[1]).as_bytes());
        pair.a.send(&Work::write());
    }),
    (Diagnostic::RnrRetryExceeded, |pair| {
        pair.up(Making { rnr_retry: 0, ..Making::default() });
        pair.a.send(&Work::send());
    }),
];

/// A's packets are longer than B's path MTU.
fn short_mtu(pair: &mut Pair) {
    pair.up_both(Making::default(), Making { mtu: 1, ..Making::default() });
    pair.a.send(&Work::new(WorkOpcode::WRITE, 512));
}

/// On connected queue pairs: registers and doorbells.
const HOST: &[(Diagnostic, Break)] = &[
    (Diagnostic::RegisterAccess, |pair| pair.a.write32(0x2000, 0)),
    (Diagnostic::RegisterReadOnly, |pair| pair.a.write32(REG_MAGIC, 0)),
    (Diagnostic::RegisterWhileEnabled, |pair| pair.a.write64(REG_COMMAND_RING, 0)),
    (Diagnostic::CommandDoorbellRange, |pair| pair.a.write32(REG_COMMAND_DOORBELL, 0xfff0)),
    (Diagnostic::DoorbellAccess, |pair| {
        pair.a.backing.write32(BAR_DOORBELLS, DB_SEND.into(), 0).expect("written");
    }),
    (Diagnostic::DoorbellReserved, |pair| pair.a.ring(DB_SEND, 1)),
    (Diagnostic::DoorbellForeignPage, |pair| {
        pair.a.ring(DOORBELL_PAGE_BYTES + DB_SEND, queue_doorbell(QPNS[0], 1));
    }),
    (Diagnostic::DoorbellNoQueue, |pair| pair.a.ring(DB_SEND, queue_doorbell(0x3f, 1))),
    (Diagnostic::DoorbellBeyondRing, |pair| pair.a.ring(DB_SEND, queue_doorbell(QPNS[0], 65))),
    (Diagnostic::DoorbellState, |pair| {
        let qp = pair.a.new_qp(0x15);
        pair.a.must(CommandOpcode::CREATE_QP, qp.as_bytes());
        pair.a.ring(DB_SEND, queue_doorbell(0x15, 1));
    }),
    (Diagnostic::DoorbellTornLine, |pair| {
        pair.a.post(&Work::write());
        pair.a.ring(DB_SEND_LINE_0, queue_doorbell(QPNS[0], 1));
    }),
    (Diagnostic::ArmStale, |pair| {
        pair.a.ring(DB_CQ_ARM, cq_arm(CQN, 0, 1, false));
        pair.a.ring(DB_CQ_ARM, cq_arm(CQN, 0, 0, false));
    }),
    (Diagnostic::ArmConsumerAhead, |pair| pair.a.ring(DB_CQ_ARM, cq_arm(CQN, 1, 1, false))),
    (Diagnostic::EqUpdateForeign, |pair| pair.a.ring(DOORBELL_PAGE_BYTES + DB_EQ_UPDATE, eq_update(0, 0, true))),
    (Diagnostic::EqConsumerAhead, |pair| pair.a.ring(DB_EQ_UPDATE, eq_update(0, 1, true))),
    (Diagnostic::VectorUnusable, |pair| {
        pair.a.ring(DB_EQ_UPDATE, eq_update(0, 0, true));
        pair.a.ring(DB_CQ_ARM, cq_arm(CQN, 0, 1, false));
        pair.a.send(&Work::write());
    }),
];

/// Commands that are refused, with the number in their answer.
const COMMANDS_REFUSED: &[(Diagnostic, Break)] = &[
    (Diagnostic::CommandOpcodeUnknown, |pair| refused(pair, CommandOpcode(0xee), &[])),
    (Diagnostic::CommandReserved, |pair| refused(pair, CommandOpcode::QUERY_QP, &[0x11, 0, 0, 0, 1])),
    (Diagnostic::ParameterRange, |pair| refused(pair, CommandOpcode::SET_TABLE, &[9])),
    (Diagnostic::ObjectMissing, |pair| refused(pair, CommandOpcode::DESTROY_CQ, object(9).as_bytes())),
    (Diagnostic::ObjectExists, |pair| create_qp(pair, |qp| qp.qpn = QPNS[0].into())),
    (Diagnostic::TableMissing, |pair| create_qp(pair, |qp| qp.qpn = 64.into())),
    (Diagnostic::TableInUse, |pair| {
        let mut table = SetTable::zeroed();
        (table.kind, table.pages) = (TABLE_QP, pages(pair.a.at(QP_TABLE), 0));
        refused(pair, CommandOpcode::SET_TABLE, table.as_bytes());
    }),
    (Diagnostic::ObjectBusy, |pair| refused(pair, CommandOpcode::DESTROY_CQ, object(CQN).as_bytes())),
    (Diagnostic::PageListInvalid, |pair| {
        let ring = pair.a.at(EQ) + 8;
        create_eq(pair, |eq| eq.pages = pages(ring, 0));
    }),
    (Diagnostic::DoorbellPageRange, |pair| create_qp(pair, |qp| qp.doorbell_page = 1024.into())),
    (Diagnostic::VectorRange, |pair| create_eq(pair, |eq| eq.vector = 0x100.into())),
    (Diagnostic::QpTypeUnsupported, |pair| create_qp(pair, |qp| qp.qp_type = 0x7f)),
    (Diagnostic::ModifyTransition, |pair| modify(pair, QP_STATE_INIT, 0, |_| {})),
    (Diagnostic::ModifyMissing, |pair| {
        let qp = pair.a.new_qp(0x15);
        pair.a.must(CommandOpcode::CREATE_QP, qp.as_bytes());
        modify(pair, QP_STATE_INIT, 0, |change| change.qpn = 0x15.into());
    }),
    (Diagnostic::ModifyIllegal, |pair| modify(pair, QP_STATE_RTS, ATTR_PATH_MTU, |_| {})),
    (Diagnostic::ModifyCurrentState, |pair| {
        modify(pair, QP_STATE_RTS, ATTR_CUR_STATE, |change| change.current_state = QP_STATE_SQD);
    }),
    (Diagnostic::ModifyValue, |pair| {
        modify(pair, QP_STATE_RTS, ATTR_ACCESS_FLAGS, |change| change.access = 0x80.into())
    }),
    (Diagnostic::ModifyUnsupported, |pair| modify(pair, QP_STATE_RTS, ATTR_ALT_PATH, |_| {})),
    (Diagnostic::GidExists, |pair| {
        let mut entry = SetGid::zeroed();
        (entry.index, entry.valid, entry.vlan_id, entry.gid) = (7.into(), 1, NO_VLAN.into(), gid(IPS[0]));
        refused(pair, CommandOpcode::SET_GID, entry.as_bytes());
    }),
    (Diagnostic::AccessNeedsLocalWrite, |pair| {
        let region = pair.a.region(0x200, pair.a.at(BUFFER), 0, ACCESS_REMOTE_WRITE);
        refused(pair, CommandOpcode::REGISTER_KEY, region.as_bytes());
    }),
    (Diagnostic::RegionWraps, |pair| {
        let mut region = pair.a.region(0x200, pair.a.at(BUFFER), 0, 0);
        region.start = (u64::MAX - 8).into();
        refused(pair, CommandOpcode::REGISTER_KEY, region.as_bytes());
    }),
    (Diagnostic::TranslationFault, |pair| {
        let region = pair.a.region(0x200, NOWHERE, 1, 0);
        refused(pair, CommandOpcode::REGISTER_KEY, region.as_bytes());
    }),
];

/// Work requests, keys, and what the peer answers.
const WORK: &[(Diagnostic, Break)] = &[
    (Diagnostic::ContextInvalid, |pair| {
        pair.a.flush_caches();
        pair.a.put(QP_TABLE + u64::from(QPNS[0]) * 256, &[0xff; 8]);
        pair.a.send(&Work::write());
    }),
    (Diagnostic::WqeOpcode, |pair| spoil(pair, |control| control.opcode = 0x7f)),
    (Diagnostic::WqeReserved, |pair| spoil(pair, |control| control.reserved = 1.into())),
    (Diagnostic::WqeQpn, |pair| spoil(pair, |control| control.qpn = [9, 0, 0])),
    (Diagnostic::WqeIndex, |pair| spoil(pair, |control| control.slot_index = 9.into())),
    (Diagnostic::WqeLength, |pair| spoil(pair, |control| control.segments = 0)),
    (Diagnostic::WqeInline, |pair| {
        spoil(pair, |control| {
            control.flags |= work_request::WQE_INLINE;
            control.inline_bytes = 225.into();
        });
    }),
    (Diagnostic::MessageTooLong, |pair| {
        let elements = vec![(VIRTUAL, 1 << 31, KEY), (VIRTUAL, 1, KEY)];
        pair.a.send(&Work { elements, ..Work::write() });
    }),
    (Diagnostic::LKeyInvalid, |pair| from(pair, VIRTUAL, 0x900)),
    (Diagnostic::LKeyRange, |pair| from(pair, VIRTUAL - 1, KEY)),
    (Diagnostic::LKeyRight, |pair| {
        let region = pair.b.region(0x200, pair.b.at(BUFFER), 0, 0);
        pair.b.must(CommandOpcode::REGISTER_KEY, region.as_bytes());
        pair.b.receive(VIRTUAL, 64, 0x200);
        pair.b.settle();
        pair.a.send(&Work::send());
    }),
    (Diagnostic::LKeyPd, |pair| {
        foreign(&mut pair.a);
        from(pair, VIRTUAL, 0x200);
    }),
    (Diagnostic::RKeyInvalid, |pair| to(pair, VIRTUAL, 0x900)),
    (Diagnostic::RKeyRange, |pair| to(pair, VIRTUAL - 1, KEY)),
    (Diagnostic::RKeyRight, |pair| {
        let region = pair.b.region(0x200, pair.b.at(BUFFER), 0, ACCESS_LOCAL_WRITE);
        pair.b.must(CommandOpcode::REGISTER_KEY, region.as_bytes());
        to(pair, VIRTUAL, 0x200);
    }),
    (Diagnostic::RKeyPd, |pair| {
        foreign(&mut pair.b);
        to(pair, VIRTUAL, 0x200);
    }),
    (Diagnostic::PayloadFault, |pair| {
        let region = pair.a.region(0x200, NOWHERE, 0, ACCESS_LOCAL_WRITE);
        pair.a.must(CommandOpcode::REGISTER_KEY, region.as_bytes());
        from(pair, VIRTUAL, 0x200);
    }),
    (Diagnostic::ReceiveTooSmall, |pair| {
        pair.b.receive(VIRTUAL, 7, KEY);
        pair.b.settle();
        pair.a.send(&Work::send());
    }),
    (Diagnostic::RemoteAccessError, |pair| to(pair, VIRTUAL, 0x900)),
    (Diagnostic::RemoteOperationalError, |pair| {
        pair.b.receive(VIRTUAL, 64, 0x900);
        pair.b.settle();
        pair.a.send(&Work::send());
    }),
    (Diagnostic::CqOverrun, |pair| {
        for _ in 0..65 {
            pair.a.send(&Work::write());
            pair.a.completion_or_overrun();
        }
    }),
    (Diagnostic::EqOverrun, |pair| {
        for _ in 0..65 {
            let mut slot = [0; 128];
            (slot[0], slot[1]) = (CommandOpcode::QUERY_DEVICE.0, COMMAND_NOTIFY);
            pair.a.start_slot(&slot);
            pair.a.settle();
        }
    }),
];

/// Rules of READs, atomics, invalidation, shared receives and key work, which the raw driver does not send yet.
const NOT_HERE: &str = "the raw driver sends no READ, atomic or work on keys and shares no receives yet: engine/tests/diagnostics.rs breaks it";

/// What no driver can provoke, what is never in the stream, or what the raw driver cannot do.
const NOT_IN_THE_STREAM: &[(Diagnostic, &str)] = &[
    (
        Diagnostic::MsnDisagrees,
        "only a peer's adapter that counts messages otherwise provokes it: engine/tests/diagnostics.rs forges its answer",
    ),
    (Diagnostic::AtomicLength, NOT_HERE),
    (Diagnostic::WqeInlineRead, NOT_HERE),
    (Diagnostic::ReadNotEnabled, NOT_HERE),
    (Diagnostic::ReadTooLong, NOT_HERE),
    (Diagnostic::InvalidateRefused, NOT_HERE),
    (Diagnostic::SrqIndex, NOT_HERE),
    (Diagnostic::SrqFetchFault, NOT_HERE),
    (Diagnostic::BindWindow, NOT_HERE),
    (Diagnostic::BindRegion, NOT_HERE),
    (Diagnostic::BindRange, NOT_HERE),
    (Diagnostic::BindAccess, NOT_HERE),
    (Diagnostic::RegisterState, NOT_HERE),
    (Diagnostic::RegisterShape, NOT_HERE),
    (Diagnostic::NotPrivileged, NOT_HERE),
    (Diagnostic::RdAtomicLimit, NOT_HERE),
    (Diagnostic::AtomicAlignment, NOT_HERE),
    (Diagnostic::BadResponse, NOT_HERE),
    (Diagnostic::ReadResponseLength, NOT_HERE),
    (Diagnostic::MulticastGid, NOT_HERE),
    (Diagnostic::MulticastQueuePair, NOT_HERE),
    (Diagnostic::MulticastFull, NOT_HERE),
    (Diagnostic::DatagramTooLong, NOT_HERE),
    (Diagnostic::DatagramAddress, NOT_HERE),
    (Diagnostic::Flushed, "it explains completions and is no event: seen in vendor_err by the step after this one"),
];

fn refused(pair: &mut Pair, opcode: CommandOpcode, body: &[u8]) {
    let (status, diagnostic) = pair.a.command(opcode, body);
    assert_ne!(status, 0, "{opcode:?}");
    assert_eq!(pair.a.register(REG_LAST_DIAGNOSTIC), diagnostic, "the answer and the register say the same");
}

fn create_qp(pair: &mut Pair, change: fn(&mut CreateQp)) {
    let mut qp = pair.a.new_qp(0x15);
    change(&mut qp);
    refused(pair, CommandOpcode::CREATE_QP, qp.as_bytes());
}

fn create_eq(pair: &mut Pair, change: impl FnOnce(&mut CreateEq)) {
    let mut eq = CreateEq::zeroed();
    (eq.eqn, eq.pages) = (1.into(), pages(pair.a.at(EQ) + PAGE, 0));
    change(&mut eq);
    refused(pair, CommandOpcode::CREATE_EQ, eq.as_bytes());
}

fn modify(pair: &mut Pair, state: u8, mask: u32, change: fn(&mut QpAttributes)) {
    let mut attributes = pair.a.attributes(state, mask);
    change(&mut attributes);
    refused(pair, CommandOpcode::MODIFY_QP, attributes.as_bytes());
}

/// Sends a WRITE whose control segment has been changed.
fn spoil(pair: &mut Pair, change: fn(&mut ControlSegment)) {
    let bytes = pair.a.post(&Work::write());
    let (mut control, _) = ControlSegment::read_from_prefix(&bytes).expect("a control segment");
    change(&mut control);
    pair.a.put(SQ, control.as_bytes());
    pair.a.ring_send();
}

fn from(pair: &mut Pair, address: u64, lkey: u32) {
    pair.a.send(&Work { elements: vec![(address, 8, lkey)], ..Work::write() });
}

fn to(pair: &mut Pair, address: u64, rkey: u32) {
    pair.a.send(&Work { remote: (address, rkey), ..Work::write() });
}

fn foreign(driver: &mut RawDriver) {
    let mut region = driver.region(0x200, driver.at(BUFFER), 0, ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE);
    region.pdn = (PDN + 1).into();
    driver.must(CommandOpcode::REGISTER_KEY, region.as_bytes());
}

/// What `rnic events --json` says beyond the places, which move on.
fn events(serving: &Serving, places: &mut BTreeMap<String, u64>) -> Vec<Value> {
    let output = program::run(program::command(&format!("events --json --folder {}", serving.folder().display())));
    assert!(output.status.success(), "{}", output.standard_error);
    let lines = output.standard_output.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let mut fresh = Vec::new();
    for event in lines.filter(|line| line["kind"] == "event") {
        let place = places.entry(event["adapter"].as_str().expect("an adapter").to_owned()).or_default();
        let sequence = event["sequence"].as_u64().expect("a number");
        if sequence > *place {
            *place = sequence;
            fresh.push(event);
        }
    }
    fresh
}

#[track_caller]
fn assert_seen(serving: &Serving, places: &mut BTreeMap<String, u64>, diagnostic: Diagnostic) {
    let rule = diagnostic.rule();
    let start = Instant::now();
    let mut seen = Vec::new();
    while start.elapsed() < Duration::from_secs(10) {
        seen.extend(events(serving, places));
        if let Some(event) = seen.iter().find(|event| event["number"] == rule.number) {
            assert_eq!(event["name"], rule.name);
            assert_eq!(event["severity"], rule.severity().name());
            assert_eq!((&event["sentence"], &event["section"]), (&rule.sentence.into(), &rule.section.into()));
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{} {} was not seen: {seen:?}", rule.number, rule.name);
}

fn pair(serving: &Serving) -> Pair {
    let [a, b] = ["A", "B"].map(|name| over_socket(&serving.socket(name)));
    Pair { a: RawDriver::new(a, QPNS[0], IPS[0]), b: RawDriver::new(b, QPNS[1], IPS[1]) }
}

pub fn every_rule_that_is_broken_over_a_live_socket_is_an_event() {
    let serving = Serving::start("A B");
    let mut pair = pair(&serving);
    let mut places = BTreeMap::new();
    let mut provoked = BTreeSet::new();
    for (diagnostic, break_it) in DISABLED {
        pair.reset();
        break_it(&mut pair);
        assert_seen(&serving, &mut places, *diagnostic);
        provoked.insert(diagnostic.number());
    }
    for (diagnostic, break_it) in [HOST, COMMANDS_REFUSED, WORK].concat() {
        pair.reset();
        pair.up(Making::default());
        events(&serving, &mut places);
        break_it(&mut pair);
        pair.a.settle();
        assert_seen(&serving, &mut places, diagnostic);
        provoked.insert(diagnostic.number());
    }
    for (diagnostic, reason) in NOT_IN_THE_STREAM {
        assert!(!reason.is_empty() && provoked.insert(diagnostic.number()), "{diagnostic:?} is provoked after all");
    }
    let missing: Vec<_> = RULES.iter().filter(|rule| !provoked.contains(&rule.number)).map(|rule| rule.name).collect();
    assert_eq!(missing, [""; 0], "no driver breaks these, and no reason is given");
    println!("{} rules, {} of them not in the stream", provoked.len(), NOT_IN_THE_STREAM.len());
}

/// The number of a broken rule wherever a driver looks: the completion of a command, `vendor_err`, the event, the register.
pub fn the_number_stands_everywhere_a_driver_looks() {
    let serving = Serving::start("A B");
    let mut pair = pair(&serving);
    pair.reset();
    pair.up(Making::default());
    let (_, answered) = pair.a.command(CommandOpcode::DESTROY_CQ, object(CQN).as_bytes());
    assert_eq!(answered, Diagnostic::ObjectBusy.number());
    assert_eq!(pair.a.register(REG_LAST_DIAGNOSTIC), answered);
    assert_eq!(pair.a.register(REG_LAST_DIAGNOSTIC_OBJECT), CQN);
    // A refused key, and a request behind it that is flushed.
    pair.a.post(&Work { elements: vec![(VIRTUAL, 8, 0x900)], ..Work::write() });
    pair.a.send(&Work::write());
    let [failed, flushed] = [pair.a.completion(), pair.a.completion()];
    assert_eq!(failed.vendor_err.get(), Diagnostic::LKeyInvalid.number());
    assert_eq!(flushed.vendor_err.get(), Diagnostic::Flushed.number());
    assert_eq!(pair.a.register(REG_LAST_DIAGNOSTIC), Diagnostic::LKeyInvalid.number());
    let event = pair.a.event(0);
    assert_eq!((event.object.get(), event.data.get()), (QPNS[0], Diagnostic::LKeyInvalid.number()));
}

/// A strict server's adapter stops at a warning, tells its driver, and comes back by a reset.
pub fn a_strict_server_stops_its_adapter_at_a_warning() {
    let serving = Serving::start("A B --strict");
    let mut pair = pair(&serving);
    pair.reset();
    pair.up(Making::default());
    pair.a.ring(DB_SEND, queue_doorbell(0x3f, 1));
    let number = Diagnostic::DoorbellNoQueue.number();
    assert_eq!(pair.a.register(REG_STATUS) & STATUS_FATAL, STATUS_FATAL);
    assert_eq!(pair.a.register(REG_LAST_DIAGNOSTIC), number);
    let event = pair.a.event(0);
    assert_eq!((event.event_type, event.data.get()), (rnic_abi::EventType::DEVICE_FATAL.0, number));
    assert_eq!(pair.b.register(REG_STATUS) & STATUS_FATAL, 0, "the other adapter goes on");
    pair.reset();
    pair.up(Making::default());
    pair.a.send(&Work::write());
    assert_eq!(pair.a.completion().status, 0);
}
