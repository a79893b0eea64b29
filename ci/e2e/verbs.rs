//! The shim's verbs over the vfio-user socket: what a transaction between two sides has no step for.

use crate::bench::fabric::Fabric;
use crate::bench::station::{Retries, Station};
use crate::bench::transaction::over_socket;
use rnic_abi::command::{ACCESS_INVALIDATE, ACCESS_LOCAL_WRITE, ACCESS_MW_BIND, ACCESS_REMOTE_WRITE};
use rnic_abi::{CompletionStatus, Diagnostic, WorkOpcode};
use rnic_shim::exchange::Endpoint;
use rnic_shim::transaction::{ipv4_gid, payload};
use rnic_shim::verbs::*;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(10);
const OK: u8 = CompletionStatus::SUCCESS.0;
const REFUSED: u8 = CompletionStatus::REM_ACCESS_ERR.0;

/// Two adapters with a driver each.
struct Two {
    a: Station,
    b: Station,
    fabric: Fabric,
}

impl Two {
    fn open() -> Two {
        let fabric = Fabric::new();
        let a = Station::open(over_socket(&fabric.socket("A")), ipv4_gid([10, 0, 0, 1]));
        let b = Station::open(over_socket(&fabric.socket("B")), ipv4_gid([10, 0, 0, 2]));
        Two { a, b, fabric }
    }

    /// A reliable connection; B's half is privileged.
    fn connect(&mut self) -> (Endpoint, Endpoint) {
        let spec = QpSpec { privileged: true, ..self.b.spec() };
        let qpn = self.b.device.create_queue_pair(spec).expect("a queue pair");
        let (own, peer) = (self.a.create_queue_pair(), self.b.initialize(qpn));
        self.a.connect(&own, &peer, Retries::default());
        self.b.connect(&peer, &own, Retries::default());
        (own, peer)
    }

    /// B's work on one of its keys, to its end.
    fn work_on_key(&mut self, peer: &Endpoint, opcode: WorkOpcode, payload: Payload<'_>, key: u32) -> u8 {
        post(&mut self.b, peer, &request(opcode, payload, None, key));
        self.b.completion(LIMIT).status
    }

    /// A writes eight bytes to B, under a key of B's; the status is the answer.
    fn write(&mut self, own: &Endpoint, address: u64, rkey: u32, value: u64) -> u8 {
        let bytes = value.to_le_bytes();
        let remote = Some(Remote { address, rkey });
        post(&mut self.a, own, &request(WorkOpcode::WRITE, Payload::Inline(&bytes), remote, 0));
        self.a.completion(LIMIT).status
    }
}

fn request<'a>(opcode: WorkOpcode, payload: Payload<'a>, remote: Option<Remote>, immediate: u32) -> SendRequest<'a> {
    SendRequest {
        wr_id: 1,
        opcode,
        payload,
        remote,
        datagram: None,
        srqn: None,
        immediate,
        signaled: true,
        solicited: false,
        fence: false,
    }
}

fn post(station: &mut Station, own: &Endpoint, request: &SendRequest<'_>) {
    station.device.post_send(Qpn(own.qpn), std::slice::from_ref(request), DoorbellForm::Word).expect("posted");
}

fn word(station: &mut Station, iova: u64) -> u64 {
    let mut bytes = [0; 8];
    station.device.backing().copy_out(iova, &mut bytes).expect("read");
    u64::from_le_bytes(bytes)
}

fn rule(completion: &WorkCompletion) -> &'static str {
    completion.rule().map_or("none", |rule| rule.name)
}

/// Two processes' queues behind one connection, each with its own completion queue.
pub fn an_extended_connection_reaches_the_queue_that_each_request_names() {
    const DOMAIN: u32 = 0x5001;
    let mut two = Two::open();
    let spec = two.a.spec();
    let initiator = two.a.device.create_xrc_initiator(spec).expect("an initiator");
    let target = two.b.device.create_xrc_target(None, DOMAIN).expect("a target");
    let (own, peer) = (two.a.initialize(initiator), two.b.initialize(target));
    two.a.connect_as(&own, &peer, Retries::default(), xrc_initiator);
    two.b.connect_as(&peer, &own, Retries::default(), xrc_target);
    let second = CqSpec { cqn: None, log_entries: 4, eqn: None, doorbell_page: 1 };
    let cqns = [two.b.cqn, two.b.device.create_completion_queue(second).expect("a completion queue")];
    let queues = cqns.map(|cqn| {
        let spec = SrqSpec { srqn: None, pd: two.b.pd, log_slots: 3, log_stride: 0, limit: 0, doorbell_page: 1 };
        two.b.device.create_xrc_shared_receive_queue(spec, DOMAIN, cqn).expect("a shared receive queue")
    });
    for (at, srqn) in queues.into_iter().enumerate() {
        let elements = [two.b.region.sge(at as u64 * 0x1000, 0x1000)];
        let receive = ReceiveRequest { wr_id: 10 + at as u64, elements: &elements };
        two.b.device.post_shared_receive(srqn, &[receive]).expect("posted");
    }
    // The doorbell is posted: a read behind it says that the device has it.
    two.b.device.status().expect("a register");
    let messages = [payload(1, 700), payload(2, 3000)];
    for at in [1, 0] {
        two.a.fill(&messages[at]);
        let elements = [two.a.region.sge(0, messages[at].len() as u32)];
        let send = request(WorkOpcode::SEND_IMM, Payload::Elements(&elements), None, at as u32);
        post(&mut two.a, &own, &SendRequest { srqn: Some(queues[at]), ..send });
        assert_eq!(two.a.completion(LIMIT).status, OK);
        let mut found = [WorkCompletion::default()];
        while two.b.device.poll(cqns[at], &mut found).expect("polled") == 0 {
            two.b.device.backing().pause().expect("a pause");
        }
        let done = (found[0].status, found[0].qpn, found[0].wr_id, found[0].immediate, found[0].byte_len as usize);
        assert_eq!(done, (OK, target.0, 10 + at as u64, Some(at as u32), messages[at].len()));
    }
    assert!(two.b.holds(700) == messages[0]);
    assert!(two.b.holds(0x1000 + 3000)[0x1000..] == messages[1]);
    // A queue that is gone is refused, on both sides with the same rule.
    two.b.device.destroy_shared_receive_queue(queues[1]).expect("destroyed");
    let send = request(WorkOpcode::SEND, Payload::Inline(b"late"), None, 0);
    post(&mut two.a, &own, &SendRequest { srqn: Some(queues[1]), ..send });
    let refused = two.a.completion(LIMIT);
    assert_eq!(refused.status, CompletionStatus::REM_INV_REQ_ERR.0);
    let event = two.b.device.wait_event(Device::ASYNC_EQN, LIMIT).expect("an event").event;
    assert_eq!((event.object, event.data), (target.0, Diagnostic::XrcTarget.number()));
    two.b.device.destroy_queue_pair(target).expect("destroyed");
    two.b.device.destroy_shared_receive_queue(queues[0]).expect("destroyed");
    two.b.device.destroy_completion_queue(cqns[1]).expect("destroyed");
}

pub fn a_window_shows_a_part_of_its_region_until_it_is_invalidated() {
    let mut two = Two::open();
    let buffer = two.b.buffer;
    let access = ACCESS_LOCAL_WRITE | ACCESS_MW_BIND;
    let spec = RegionSpec::of_buffer(buffer, access, MrLayout::Contiguous);
    let region = two.b.device.register_memory(two.b.pd, spec).expect("a region");
    for window_type in [WindowType::One, WindowType::TwoA, WindowType::TwoB] {
        let (own, peer) = two.connect();
        let mut window = two.b.device.allocate_window(two.b.pd, window_type).expect("a window");
        let address = buffer.iova + 0x800;
        let bind = Bind { access: ACCESS_REMOTE_WRITE, lkey: region.key, address, length_bytes: 64 };
        let rkey = window.next_number();
        assert_eq!(two.work_on_key(&peer, WorkOpcode::BIND_MW, Payload::Bind(bind), rkey), OK, "{window_type:?}");
        assert_eq!(two.write(&own, address + 56, rkey, 0x1122), OK);
        assert_eq!(word(&mut two.b, address + 56), 0x1122);
        if window_type == WindowType::One {
            // Bound to nothing it shows nothing.
            let nothing = Bind { length_bytes: 0, ..bind };
            assert_eq!(two.work_on_key(&peer, WorkOpcode::BIND_MW, Payload::Bind(nothing), window.next_number()), OK);
        } else {
            assert_eq!(two.work_on_key(&peer, WorkOpcode::LOCAL_INV, Payload::Elements(&[]), rkey), OK);
        }
        assert_eq!(two.write(&own, address, rkey, 0x3344), REFUSED, "{window_type:?}");
        assert_eq!(word(&mut two.b, address), 0);
        two.b.device.destroy_queue_pair(Qpn(peer.qpn)).expect("destroyed");
        two.a.device.destroy_queue_pair(Qpn(own.qpn)).expect("destroyed");
        two.b.device.release_key(&window).expect("released");
    }
    two.b.device.deregister_memory(region).expect("without windows");
}

pub fn a_fast_region_gets_its_memory_from_a_work_request_and_the_peer_takes_it_back() {
    let mut two = Two::open();
    let (own, peer) = two.connect();
    let buffer = two.b.buffer;
    let mut key = two.b.device.allocate_fast_region(two.b.pd, 8).expect("a fast region");
    let access = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE | ACCESS_INVALIDATE;
    // Its pages in reverse, named from an address of their own.
    let spec = RegionSpec {
        start: 0x7000_0000,
        length_bytes: 2 * 4096,
        access,
        layout: MrLayout::List,
        page_shift: 12,
        pages: vec![buffer.iova + 4096, buffer.iova],
    };
    let registration = two.b.device.prepare_registration(&spec).expect("a page list");
    for round in 1..=3 {
        let rkey = key.next_number();
        assert_eq!(two.work_on_key(&peer, WorkOpcode::REG_MR, Payload::Register(&registration), rkey), OK);
        assert_eq!(two.write(&own, 0x7000_0008, rkey, round), OK);
        assert_eq!(word(&mut two.b, buffer.iova + 4096 + 8), round);
        let elements = [two.b.region.sge(0x8000, 64)];
        let receive = ReceiveRequest { wr_id: 5, elements: &elements };
        two.b.device.post_receive(Qpn(peer.qpn), &[receive]).expect("posted");
        two.b.device.status().expect("a register");
        post(&mut two.a, &own, &request(WorkOpcode::SEND_INV, Payload::Inline(b"done"), None, rkey));
        assert_eq!(two.a.completion(LIMIT).status, OK);
        let arrived = two.b.completion(LIMIT);
        assert_eq!((arrived.status, arrived.invalidated), (OK, Some(rkey)));
    }
    let stale = key.key;
    assert_eq!(two.write(&own, 0x7000_0008, stale, 9), REFUSED);
    two.b.device.release_registration(registration);
    two.b.device.destroy_queue_pair(Qpn(peer.qpn)).expect("destroyed");
    two.b.device.release_key(&key).expect("released");
    // A process may not: its queue pair goes to its error state with the rule.
    let (plain, _) = two.connect();
    let registration = two.a.device.prepare_registration(&spec_at(two.a.buffer.iova)).expect("a page list");
    let mut key = two.a.device.allocate_fast_region(two.a.pd, 1).expect("a fast region");
    post(&mut two.a, &plain, &request(WorkOpcode::REG_MR, Payload::Register(&registration), None, key.next_number()));
    assert_eq!(rule(&two.a.completion(LIMIT)), "NotPrivileged");
}

fn spec_at(iova: u64) -> RegionSpec {
    let (start, access, pages) = (iova, ACCESS_LOCAL_WRITE, vec![iova]);
    RegionSpec { start, length_bytes: 4096, access, layout: MrLayout::Contiguous, page_shift: 12, pages }
}

pub fn a_region_changes_in_place_and_a_refused_change_changes_nothing() {
    let mut two = Two::open();
    let (own, _) = two.connect();
    let iova = two.b.buffer.iova;
    let spec = RegionSpec { access: ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE, ..spec_at(iova) };
    let mut region = two.b.device.register_memory(two.b.pd, spec.clone()).expect("a region");
    assert_eq!(two.write(&own, iova, region.key, 1), OK);
    // The same address, other memory.
    let moved = RegionSpec { pages: vec![iova + 8192], ..spec };
    let old = region.key;
    let change = RegionChange { translation: Some(moved), ..RegionChange::default() };
    two.b.device.reregister_memory(&mut region, change).expect("changed");
    assert_ne!(region.key, old);
    assert_eq!(two.write(&own, iova, region.key, 2), OK);
    assert_eq!((word(&mut two.b, iova), word(&mut two.b, iova + 8192)), (1, 2));
    let wrong = RegionChange { access: Some(ACCESS_REMOTE_WRITE), ..RegionChange::default() };
    let error = two.b.device.reregister_memory(&mut region, wrong).expect_err("remote write needs local write");
    assert!(error.to_string().contains("AccessNeedsLocalWrite"), "{error}");
    let nothing = two.b.device.reregister_memory(&mut region, RegionChange::default()).expect_err("no change");
    assert!(nothing.to_string().contains("ParameterRange"), "{nothing}");
    assert_eq!(two.write(&own, iova, region.key, 3), OK, "nothing has changed");
    let less = RegionChange { access: Some(ACCESS_LOCAL_WRITE), ..RegionChange::default() };
    two.b.device.reregister_memory(&mut region, less).expect("changed");
    assert_eq!(two.write(&own, iova, region.key, 4), REFUSED);
    assert_eq!(word(&mut two.b, iova + 8192), 3);
}

/// From 256 entries to 4 and to 1024, entries unpolled at each change; every completion once, in order.
pub fn a_completion_queue_is_resized_under_traffic() {
    let mut two = Two::open();
    let (own, peer) = two.connect();
    let mut next = 0;
    let mut posted = 0;
    for (log_entries, ahead) in [(2, 3), (10, 3), (3, 6), (8, 0)] {
        for _ in 0..ahead {
            two.a.write(&Endpoint { ..own }, &peer, 8, None).expect("posted");
            posted += 1;
        }
        two.a.device.resize_completion_queue(two.a.cqn, log_entries).expect("resized");
        for _ in 0..3 {
            two.a.write(&own, &peer, 8, None).expect("posted");
            posted += 1;
        }
        while next < posted {
            let done = two.a.completion(LIMIT);
            assert_eq!((done.status, done.retired), (OK, 1), "completion {next}");
            next += 1;
        }
    }
    let mut found = [WorkCompletion::default()];
    assert_eq!(two.a.device.poll(two.a.cqn, &mut found).expect("polled"), 0, "none twice");
    let refused = two.a.device.resize_completion_queue(Cqn(77), 4).expect_err("no such queue");
    assert!(refused.to_string().contains("0x4d"), "{refused}");
}

/// An event that waits for four entries comes with the fourth; one that waits for a time comes with it.
pub fn events_are_held_back_as_moderation_says() {
    let mut two = Two::open();
    let (own, peer) = two.connect();
    let waits = Duration::from_millis(300);
    two.a.device.moderate_completion_queue(two.a.cqn, 4, 60_000).expect("moderated");
    two.a.device.arm(two.a.cqn, false).expect("armed");
    for number in 1..=4 {
        two.a.write(&own, &peer, 8, None).expect("posted");
        assert_eq!(two.a.completion(LIMIT).status, OK);
        if number == 1 {
            let early = two.a.device.wait_completion_event(two.a.cqn, Duration::from_millis(20));
            assert!(early.is_err(), "an event with the first of four");
        }
    }
    two.a.device.wait_completion_event(two.a.cqn, LIMIT).expect("with the fourth");
    two.a.device.moderate_completion_queue(two.a.cqn, 100, 50_000).expect("moderated");
    two.a.device.arm(two.a.cqn, false).expect("armed");
    let start = std::time::Instant::now();
    two.a.write(&own, &peer, 8, None).expect("posted");
    two.a.device.wait_completion_event(two.a.cqn, LIMIT).expect("after its time");
    assert!(start.elapsed() >= Duration::from_millis(50), "{:?}", start.elapsed());
    two.a.device.moderate_completion_queue(two.a.cqn, 0, 0).expect("no more");
    assert_eq!(two.a.completion(LIMIT).status, OK);
    two.a.device.arm(two.a.cqn, false).expect("armed");
    two.a.write(&own, &peer, 8, None).expect("posted");
    two.a.device.wait_completion_event(two.a.cqn, waits).expect("at once");
}

/// Requests and answers of one adapter to itself turn round in its port, and never reach the switch.
pub fn two_queue_pairs_of_one_adapter_reach_each_other() {
    let mut two = Two::open();
    let station = &mut two.a;
    let (own, peer) = (station.create_queue_pair(), station.create_queue_pair());
    station.connect(&own, &peer, Retries::default());
    station.connect(&peer, &own, Retries::default());
    let message = payload(3, 5000);
    station.fill(&message);
    station.receive(&peer);
    let elements = [station.region.sge(0, 5000)];
    let remote = Some(Remote { address: station.region.start() + 0x4000, rkey: station.region.key });
    post(station, &own, &request(WorkOpcode::WRITE_IMM, Payload::Elements(&elements), remote, 0x77));
    // Both complete into one queue, in whichever order.
    let mut done: Vec<_> = (0..2).map(|_| station.completion(LIMIT)).collect();
    done.sort_by_key(|completion| completion.immediate);
    let seen: Vec<_> = done.iter().map(|done| (done.status, done.qpn, done.immediate)).collect();
    assert_eq!(seen, [(OK, own.qpn, None), (OK, peer.qpn, Some(0x77))]);
    assert!(station.holds(0x4000 + 5000)[0x4000..] == message);
    let forwarded = two.fabric.counters("B").rcvd_pkts;
    assert_eq!(forwarded, 0, "nothing came to the other adapter");
}
