//! The queue pair state machine: every state, every event, what comes of it.

mod rig;

use rig::*;
use rnic_abi::command::*;
use rnic_abi::{CommandOpcode, WorkOpcode, doorbell};
use rnic_engine::EngineConfig;
use rnic_engine::context::queue_pair::QpState::{self, *};
use rnic_wire::Opcode;
use zerocopy::IntoBytes;

/// What happens to a queue pair.
#[derive(Clone, Copy, Debug)]
enum Event {
    SendDoorbell,
    ReceiveDoorbell,
    InOrder,
    Duplicate,
    Ahead,
    Invalid,
    Ack,
    Timer,
    Modify(QpState),
}

use Event::*;

const STATES: [QpState; 6] = [Reset, Init, Rtr, Rts, Sqd, Err];

/// The outcome: the state after it; what leaves (`request`, or an answer's syndrome), what completes (its
/// status), what is diagnosed. The queue pair has one request outstanding in RTS and SQD.
#[rustfmt::skip]
const TABLE: &[(Event, [&str; 6])] = &[
    // state:             Reset                     Init                      Rtr                       Rts                       Sqd                       Err
    (SendDoorbell,      ["Reset DoorbellState",    "Init DoorbellState",     "Rtr DoorbellState",      "Rts request",            "Sqd",                    "Err cqe5"]),
    (ReceiveDoorbell,   ["Reset DoorbellState",    "Init",                   "Rtr",                    "Rts",                    "Sqd",                    "Err cqe5"]),
    (InOrder,           ["Reset",                  "Init",                   "Rtr 1f",                 "Rts 1f",                 "Sqd 1f",                 "Err"]),
    (Duplicate,         ["Reset",                  "Init",                   "Rtr 1f",                 "Rts 1f",                 "Sqd 1f",                 "Err"]),
    (Ahead,             ["Reset",                  "Init",                   "Rtr 60",                 "Rts 60",                 "Sqd 60",                 "Err"]),
    (Invalid,           ["Reset",                  "Init",                   "Err 61 InvalidRequest",  "Err 61 cqe5 InvalidRequest", "Err 61 cqe5 InvalidRequest", "Err"]),
    (Ack,               ["Reset",                  "Init",                   "Rtr",                    "Rts cqe0",               "Sqd cqe0",               "Err"]),
    (Timer,             ["Reset",                  "Init",                   "Rtr",                    "Rts request",            "Sqd request",            "Err"]),
    (Modify(Reset),     ["Reset",                  "Reset",                  "Reset",                  "Reset",                  "Reset",                  "Reset"]),
    (Modify(Init),      ["Init",                   "Init",                   "Rtr ModifyTransition",   "Rts ModifyTransition",   "Sqd ModifyTransition",   "Err ModifyTransition"]),
    (Modify(Rtr),       ["Reset ModifyTransition", "Rtr",                    "Rtr ModifyTransition",   "Rts ModifyTransition",   "Sqd ModifyTransition",   "Err ModifyTransition"]),
    (Modify(Rts),       ["Reset ModifyTransition", "Init ModifyTransition",  "Rts",                    "Rts",                    "Rts",                    "Err ModifyTransition"]),
    (Modify(Sqd),       ["Reset ModifyTransition", "Init ModifyTransition",  "Rtr ModifyTransition",   "Sqd",                    "Sqd",                    "Err ModifyTransition"]),
    (Modify(Sqe),       ["Reset ModifyTransition", "Init ModifyTransition",  "Rtr ModifyTransition",   "Rts ModifyTransition",   "Sqd ModifyTransition",   "Err ModifyTransition"]),
    (Modify(Err),       ["Reset ModifyTransition", "Err",                    "Err",                    "Err cqe5",               "Err cqe5",               "Err"]),
];

/// A host whose queue pair is in this state; in RTS and SQD with a request outstanding.
fn host_in(state: QpState) -> Host {
    let mut host = Host::new(EngineConfig::default(), IP_A, 0x11);
    host.bring_up();
    let with = Attributes::mtu(1);
    let init = host.init_attributes(0x11);
    let rtr = host.rtr_attributes(0x11, (IP_B, 0x12), &with);
    let rts = host.rts_attributes(0x11, &with);
    let steps = match state {
        Reset => 0,
        Init => 1,
        Rtr => 2,
        Rts | Sqd => 3,
        Sqe | Err => 1,
    };
    [init, rtr, rts].iter().take(steps).for_each(|step| host.modify(step));
    if matches!(state, Rts | Sqd) {
        host.send(&Request::new(WorkOpcode::WRITE, 8));
        assert!(host.transmit().is_some());
    }
    if matches!(state, Sqd | Err) {
        let last = host.attributes(0x11, state.code(), 0);
        host.modify(&last);
    }
    assert_eq!(host.state(), state);
    assert_eq!(host.diagnostics(), [""; 0]);
    host
}

fn packet(host: &Host, opcode: Opcode, psn: u32) -> Forged {
    Forged::new(host, IP_B, opcode, psn, &[1; 8]).reth(VIRTUAL, 0x100, 8)
}

fn happen(host: &mut Host, event: Event) {
    match event {
        SendDoorbell => host.send(&Request::new(WorkOpcode::WRITE, 8)),
        ReceiveDoorbell => host.post_receive(VIRTUAL, 64, 0x100),
        InOrder => host.receive(packet(host, Opcode::RC_WRITE_ONLY, PSN).frame()),
        Duplicate => host.receive(packet(host, Opcode::RC_WRITE_ONLY, PSN - 1).frame()),
        Ahead => host.receive(packet(host, Opcode::RC_WRITE_ONLY, PSN + 1).frame()),
        Invalid => host.receive(packet(host, Opcode::RC_SEND_LAST, PSN).frame()),
        Ack => {
            let ack = Forged::new(host, IP_B, Opcode::RC_ACKNOWLEDGE, PSN, &[]).aeth(0x1f, 1);
            host.receive(ack.frame());
        }
        Timer => host.advance_to(1 << 40),
        Modify(next) => {
            let change = change_to(host, next);
            host.command(CommandOpcode::MODIFY_QP, change.as_bytes());
        }
    }
}

/// With everything that the step needs.
fn change_to(host: &Host, next: QpState) -> QpAttributes {
    match (host.state(), next) {
        (Reset, Init) => host.init_attributes(0x11),
        (Init, Rtr) => host.rtr_attributes(0x11, (IP_B, 0x12), &Attributes::mtu(1)),
        (Rtr, Rts) => host.rts_attributes(0x11, &Attributes::mtu(1)),
        _ => host.attributes(0x11, next.code(), 0),
    }
}

fn outcome(host: &mut Host) -> String {
    let mut words = vec![];
    while let Some(mut frame) = host.transmit() {
        frame.seal();
        let packet = Carried::new('a', frame.bytes(), false);
        words.push(if packet.is_ack() { format!("{:02x}", packet.syndrome) } else { "request".to_string() });
    }
    words.extend(host.completions().iter().map(|cqe| format!("cqe{}", cqe.3)));
    words.extend(host.diagnostics().iter().map(|name| name.to_string()));
    words.insert(0, format!("{:?}", host.state()));
    words.join(" ")
}

#[test]
fn every_state_takes_every_event_as_the_table_says() {
    for (event, outcomes) in TABLE {
        for (state, expected) in STATES.into_iter().zip(outcomes) {
            let mut host = host_in(state);
            happen(&mut host, *event);
            assert_eq!(outcome(&mut host), *expected, "{state:?} {event:?}");
            let is_packet = matches!(event, InOrder | Duplicate | Ahead | Invalid | Ack);
            let answers_nothing = matches!(event, Ack) && state == Rtr;
            let dropped = u64::from(is_packet && (matches!(state, Reset | Init | Err) || answers_nothing));
            assert_eq!(host.engine.counters().rx_dropped_state, dropped, "{state:?} {event:?}");
            // The resident state and the context agree.
            let answer = host.must(CommandOpcode::QUERY_QP, Host::object(0x11).as_bytes());
            let attributes: QpAttributes = zerocopy::FromBytes::read_from_prefix(&answer).unwrap().0;
            assert_eq!(attributes.state, host.state().code());
        }
    }
}

#[test]
fn a_step_that_is_refused_changes_nothing() {
    let mut host = host_in(Init);
    let whole = host.rtr_attributes(0x11, (IP_B, 0x12), &Attributes::mtu(1));
    let query = |host: &mut Host| host.must(CommandOpcode::QUERY_QP, Host::object(0x11).as_bytes())[..104].to_vec();
    let before = query(&mut host);
    let mut bad = Vec::new();
    for bit in [ATTR_AV, ATTR_PATH_MTU, ATTR_DEST_QPN, ATTR_RQ_PSN, ATTR_MAX_DEST_RD_ATOMIC, ATTR_MIN_RNR_TIMER] {
        let mut change = whole;
        change.mask = (whole.mask.get() & !bit).into();
        bad.push((change, "ModifyMissing"));
    }
    for bit in [ATTR_QKEY, ATTR_TIMEOUT, ATTR_SQ_PSN, ATTR_PORT] {
        let mut change = whole;
        change.mask = (whole.mask.get() | bit).into();
        bad.push((change, "ModifyIllegal"));
    }
    let mut value = |set: &dyn Fn(&mut QpAttributes)| {
        let mut change = whole;
        set(&mut change);
        bad.push((change, "ModifyValue"));
    };
    value(&|change| change.path_mtu = 0);
    value(&|change| change.path_mtu = 6);
    value(&|change| change.dest_qpn = (1 << 24).into());
    value(&|change| change.rq_psn = (1 << 24).into());
    value(&|change| change.min_rnr_timer = 32);
    value(&|change| change.av.sgid_index = 1.into());
    value(&|change| change.av.flow_label = (1 << 20).into());
    value(&|change| change.av.service_level = 8);
    for (change, name) in bad {
        assert_eq!(host.try_command(CommandOpcode::MODIFY_QP, change.as_bytes()).1, name);
        assert_eq!(query(&mut host), before, "{name}");
    }
    host.modify(&whole);
    assert_eq!(host.state(), Rtr);
}

#[test]
fn the_first_packet_in_rtr_tells_once() {
    let mut fabric = Fabric::unconnected(EngineConfig::default());
    fabric.a.bring_up();
    fabric.b.bring_up();
    let with = Attributes::mtu(1);
    fabric.a.connect(0x11, (IP_B, 0x12), &with);
    fabric.b.modify(&fabric.b.init_attributes(0x12));
    fabric.b.modify(&fabric.b.rtr_attributes(0x12, (IP_A, 0x11), &with));
    // Its key has to be fetched: the packet runs twice, the event is for once.
    fabric.b.flush_caches();
    fabric.b.port.hold = Box::new(|_, _| true);
    for _ in 0..2 {
        fabric.a.send(&Request::new(WorkOpcode::WRITE, 8));
    }
    fabric.run();
    fabric.b.settle();
    fabric.run();
    assert_eq!(fabric.b.events(), [(rnic_abi::EventType::COMM_EST, 0x12, 0)]);
    assert_eq!(fabric.a.completions().len(), 2);
    // In RTS it is no news.
    let mut fabric = Fabric::new(EngineConfig::default(), 1);
    fabric.a.send(&Request::new(WorkOpcode::WRITE, 8));
    fabric.run();
    assert_eq!(fabric.b.events(), []);
}

#[test]
fn receives_may_be_posted_from_init_on_and_are_kept() {
    let mut fabric = Fabric::unconnected(EngineConfig::default());
    fabric.a.bring_up();
    fabric.b.bring_up();
    let with = Attributes::mtu(1);
    fabric.a.connect(0x11, (IP_B, 0x12), &with);
    fabric.b.modify(&fabric.b.init_attributes(0x12));
    fabric.b.post_receive(VIRTUAL + 0x8_0000, 64, 0x100);
    fabric.b.modify(&fabric.b.rtr_attributes(0x12, (IP_A, 0x11), &with));
    fabric.a.send(&Request::new(WorkOpcode::SEND, 8));
    fabric.run();
    assert_eq!(fabric.b.completions(), [(0x12, 0, 0x80, 0)]);
    // A doorbell that goes back, or beyond the ring, is refused and changes nothing.
    for producer in [0, 66, 0x8000] {
        fabric.b.ring(doorbell::DB_RECEIVE, doorbell::queue_doorbell(0x12, producer));
        assert_eq!(fabric.b.diagnostics(), ["DoorbellBeyondRing"], "{producer}");
    }
    fabric.a.send(&Request::new(WorkOpcode::SEND, 8));
    fabric.run();
    assert_eq!(fabric.b.engine.counters().send_rnr_err, 1);
}
