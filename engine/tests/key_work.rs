//! Keys that work requests give their memory: fast regions and windows; and regions that change: zero-based ones, those
//! that are registered again, and the local DMA key.

mod rig;

use rig::*;
use rnic_abi::command::*;
use rnic_abi::{BindSegment, CommandOpcode, ControlSegment, RegisterSegment, WorkOpcode, work_request};
use rnic_engine::EngineConfig;
use zerocopy::IntoBytes;

const FAST: u32 = 0x500;
const WINDOW: u32 = 0x600;
const REGION: u32 = 0x700;
const PLACE: u64 = VIRTUAL + 0x8_0000;

/// A work request without packets: its segment behind the control segment.
fn post_local(host: &mut Host, opcode: WorkOpcode, key: u32, segment: &[u8]) {
    let (qpn, producer) = (host.qpn, host.of(host.qpn).send);
    let mut control = ControlSegment::zeroed();
    (control.opcode, control.slot_index) = (opcode.0, producer.into());
    control.qpn.copy_from_slice(&qpn.to_le_bytes()[..3]);
    control.segments = 1 + (segment.len() / 16) as u8;
    (control.flags, control.immediate) = (work_request::WQE_SIGNALED, key.into());
    let mut bytes = control.as_bytes().to_vec();
    bytes.extend(segment);
    bytes.resize(64, 0);
    host.port.put(SQ + u64::from(producer & 63) * 64, &bytes);
    host.of(qpn).send = producer.wrapping_add(1);
    host.ring_send();
}

fn allocate(host: &mut Host, key: u32, kind: u8, max_pages: u32) {
    let mut body = AllocateKey::zeroed();
    (body.key, body.pdn, body.kind, body.max_pages) = (key.into(), PDN.into(), kind, max_pages.into());
    host.must(CommandOpcode::ALLOCATE_KEY, body.as_bytes());
}

fn registration(region: &RegisterKey) -> RegisterSegment {
    let mut segment = RegisterSegment::zeroed();
    (segment.access, segment.start, segment.length_bytes) = (region.access, region.start, region.length_bytes);
    segment.pages = region.pages;
    segment
}

fn binding(access: u32, address: u64, length: u64) -> BindSegment {
    let mut segment = BindSegment::zeroed();
    (segment.access, segment.lkey) = (access.into(), REGION.into());
    (segment.address, segment.length_bytes) = (address.into(), length.into());
    segment
}

/// The status of the newest completion of b, and the diagnostics since.
fn outcome(fabric: &mut Fabric) -> (u8, Vec<&'static str>) {
    fabric.run();
    let status = fabric.b.completions().last().map_or(0xff, |completion| completion.3);
    (status, fabric.b.diagnostics())
}

/// A write by a through a key of b: its status, and the rule that b names.
fn write(fabric: &mut Fabric, address: u64, length: u32, key: u32) -> (u8, Vec<&'static str>) {
    fabric.a.send(&Request { remote: (address, key), ..Request::new(WorkOpcode::WRITE, length) });
    fabric.run();
    let status = fabric.a.completions().last().map_or(0xff, |completion| completion.3);
    (status, fabric.b.diagnostics())
}

/// Queue pair 0x12 of b may do what a kernel may.
fn privileged() -> Fabric {
    let mut fabric = Fabric::unconnected(EngineConfig::default());
    fabric.a.bring_up();
    fabric.b.bring_up();
    let qpn = fabric.b.qpn;
    fabric.b.destroy_qp(qpn);
    let qp = CreateQp { flags: QP_PRIVILEGED, ..fabric.b.new_qp(qpn) };
    fabric.b.must(CommandOpcode::CREATE_QP, qp.as_bytes());
    fabric.connect(&Attributes::mtu(1));
    fabric
}

#[test]
fn a_fast_region_is_registered_freed_and_registered_again_with_other_memory() {
    let mut fabric = privileged();
    allocate(&mut fabric.b, FAST, KEY_FAST_REGION, 4);
    assert_eq!(write(&mut fabric, PLACE, 8, FAST), (10, vec!["RKeyInvalid"]), "free");
    for (round, at) in [(1u32, 0x8_0010u64), (2, 0xa_0010)] {
        let mut fabric = privileged();
        allocate(&mut fabric.b, FAST, KEY_FAST_REGION, 4);
        let key = FAST | round;
        let first = fabric.b.region(FAST, PLACE + 0x10, 0x1800, BUFFER + 0x8_0010, 1, all_rights());
        post_local(&mut fabric.b, WorkOpcode::REG_MR, FAST, registration(&first).as_bytes());
        assert_eq!(outcome(&mut fabric), (0, vec![]));
        fabric.a.port.put(BUFFER, &[round as u8; 64]);
        assert_eq!(write(&mut fabric, PLACE + 0x10, 8, FAST), (0, vec![]));
        assert_eq!(fabric.b.port.slice(BUFFER + 0x8_0010, 8), [round as u8; 8]);
        post_local(&mut fabric.b, WorkOpcode::LOCAL_INV, FAST, &[]);
        assert_eq!(outcome(&mut fabric), (0, vec![]));
        // The same list holds other pages now.
        let again = fabric.b.region(FAST, PLACE + 0x10, 0x1800, BUFFER + at, 1, all_rights());
        post_local(&mut fabric.b, WorkOpcode::REG_MR, key, registration(&again).as_bytes());
        assert_eq!(outcome(&mut fabric), (0, vec![]));
        assert_eq!(write(&mut fabric, PLACE + 0x18, 8, key), (0, vec![]));
        assert_eq!(fabric.b.port.slice(BUFFER + at + 8, 8), [round as u8; 8]);
        assert_eq!(write(&mut fabric, PLACE + 0x10, 8, FAST), (10, vec!["RKeyInvalid"]), "the old byte");
    }
}

#[test]
fn the_peer_frees_a_fast_region_and_a_valid_one_is_not_registered() {
    let mut fabric = privileged();
    allocate(&mut fabric.b, FAST, KEY_FAST_REGION, 4);
    let region = fabric.b.region(FAST, PLACE, 0x1000, BUFFER + 0x8_0000, 0, all_rights());
    post_local(&mut fabric.b, WorkOpcode::REG_MR, FAST, registration(&region).as_bytes());
    assert_eq!(outcome(&mut fabric), (0, vec![]));
    fabric.b.post_receive(VIRTUAL + 0x9_0000, 0x1000, 0x100);
    fabric.a.send(&Request { immediate: FAST, ..Request::new(WorkOpcode::SEND_INV, 8) });
    assert_eq!(outcome(&mut fabric), (0, vec![]), "no right to be invalidated is needed");
    post_local(&mut fabric.b, WorkOpcode::REG_MR, FAST + 1, registration(&region).as_bytes());
    assert_eq!(outcome(&mut fabric), (0, vec![]));
    post_local(&mut fabric.b, WorkOpcode::REG_MR, FAST + 2, registration(&region).as_bytes());
    assert_eq!(outcome(&mut fabric), (2, vec!["RegisterState"]));
    fabric.b.deregister(FAST + 7);
}

#[test]
fn a_fast_registration_that_is_wrong_is_refused_by_its_rule() {
    type Change = fn(&mut RegisterSegment);
    let refused: [(Change, &str); 5] = [
        (|segment| segment.access = ACCESS_REMOTE_WRITE.into(), "RegisterShape"),
        (|segment| segment.access = (1 << 20).into(), "RegisterShape"),
        (|segment| segment.length_bytes = 0x5000.into(), "RegisterShape"),
        (|segment| segment.pages.page_shift = 11, "RegisterShape"),
        (|segment| segment.start = u64::MAX.into(), "RegisterShape"),
    ];
    for (change, name) in refused {
        let mut fabric = privileged();
        allocate(&mut fabric.b, FAST, KEY_FAST_REGION, 4);
        let region = fabric.b.region(FAST, PLACE, 0x4000, BUFFER + 0x8_0000, 1, all_rights());
        let mut segment = registration(&region);
        change(&mut segment);
        post_local(&mut fabric.b, WorkOpcode::REG_MR, FAST, segment.as_bytes());
        assert_eq!(outcome(&mut fabric), (2, vec![name]));
    }
    let mut fabric = privileged();
    let region = fabric.b.region(0x100, PLACE, 0x1000, BUFFER + 0x8_0000, 0, all_rights());
    post_local(&mut fabric.b, WorkOpcode::REG_MR, 0x100, registration(&region).as_bytes());
    assert_eq!(outcome(&mut fabric), (2, vec!["RegisterState"]), "a region of a command");
    let mut fabric = Fabric::new(EngineConfig::default(), 1);
    allocate(&mut fabric.b, FAST, KEY_FAST_REGION, 4);
    post_local(&mut fabric.b, WorkOpcode::REG_MR, FAST, registration(&region).as_bytes());
    assert_eq!(outcome(&mut fabric), (2, vec!["NotPrivileged"]));
}

#[test]
fn the_local_dma_key_names_iovas_for_those_who_may() {
    for may in [true, false] {
        let mut fabric = if may { privileged() } else { Fabric::new(EngineConfig::default(), 1) };
        fabric.b.port.put(BUFFER + 0x123, &[9; 16]);
        let elements = vec![(BUFFER + 0x123, 16, LOCAL_DMA_KEY)];
        fabric.b.send(&Request { elements, ..Request::new(WorkOpcode::WRITE, 16) });
        let expected = if may { (0, vec![]) } else { (4, vec!["LKeyInvalid"]) };
        assert_eq!(outcome(&mut fabric), expected);
        if may {
            assert_eq!(fabric.a.port.slice(BUFFER + 0x8_0000, 16), [9; 16]);
            assert_eq!(write(&mut fabric, BUFFER, 8, LOCAL_DMA_KEY), (10, vec!["RKeyInvalid"]), "it is no rkey");
        }
    }
}

#[test]
fn a_zero_based_region_counts_from_zero() {
    let mut fabric = Fabric::new(EngineConfig::default(), 1);
    let access = all_rights() | ACCESS_ZERO_BASED;
    fabric.b.register(REGION, PLACE + 0x30, 0x1800, BUFFER + 0x8_0030, 1, access);
    fabric.a.port.put(BUFFER, &[5; 64]);
    assert_eq!(write(&mut fabric, 0x1000, 8, REGION), (0, vec![]));
    assert_eq!(fabric.b.port.slice(BUFFER + 0x8_1030, 8), [5; 8]);
    assert_eq!(write(&mut fabric, 0x17f9, 8, REGION), (10, vec!["RKeyRange"]));
}

#[test]
fn a_region_that_is_registered_again_is_another_one_at_once() {
    let mut fabric = Fabric::new(EngineConfig::default(), 1);
    fabric.b.register(REGION, PLACE, 0x1000, BUFFER + 0x8_0000, 1, all_rights());
    fabric.a.port.put(BUFFER, &[6; 64]);
    assert_eq!(write(&mut fabric, PLACE, 8, REGION), (0, vec![]));
    let again = |fabric: &mut Fabric, key, changes: u32, access| {
        let region = fabric.b.region(0x900, PLACE + 0x2000, 0x800, BUFFER + 0xc_0000, 1, access);
        let body = RegisterKey { key: u32::into(key), pdn: (PDN + 1).into(), changes: changes.into(), ..region };
        fabric.b.try_command(CommandOpcode::REREGISTER_KEY, body.as_bytes())
    };
    let (translation, pd, access) = (REREGISTER_TRANSLATION, REREGISTER_PD, REREGISTER_ACCESS);
    assert_eq!(again(&mut fabric, REGION, 0, 1), (2, "ParameterRange"));
    assert_eq!(again(&mut fabric, REGION, 8, 1), (2, "ParameterRange"));
    assert_eq!(again(&mut fabric, 0xa00, pd, 1), (3, "ObjectMissing"));
    assert_eq!(again(&mut fabric, REGION, access, ACCESS_REMOTE_WRITE), (2, "AccessNeedsLocalWrite"));
    fabric.b.diagnostics();
    assert_eq!(write(&mut fabric, PLACE, 8, REGION), (0, vec![]), "refused commands have changed nothing");
    assert_eq!(again(&mut fabric, REGION + 1, translation, all_rights()), (0, ""));
    assert_eq!(write(&mut fabric, PLACE + 0x2000, 8, REGION + 1), (0, vec![]));
    assert_eq!(fabric.b.port.slice(BUFFER + 0xc_0000, 8), [6; 8]);
    assert_eq!(again(&mut fabric, REGION + 1, pd, all_rights()), (0, ""));
    assert_eq!(write(&mut fabric, PLACE + 0x2000, 8, REGION + 1), (10, vec!["RKeyPd"]));
}

/// The payload of a send is being read when its region changes: the command waits for it.
#[test]
fn a_region_changes_when_no_read_of_the_old_one_is_under_way() {
    let mut fabric = Fabric::new(EngineConfig::default(), 1);
    fabric.b.register(REGION, PLACE, 0x1000, BUFFER + 0x8_0000, 0, all_rights());
    fabric.b.port.hold = Box::new(|origin, _| origin.class == rnic_pcie::Class::PayloadRead);
    let elements = vec![(PLACE, 8, REGION)];
    fabric.b.send(&Request { elements, ..Request::new(WorkOpcode::WRITE, 8) });
    fabric.run();
    let region = fabric.b.region(REGION, PLACE, 0x1000, BUFFER + 0xc_0000, 0, all_rights());
    let body = RegisterKey { changes: REREGISTER_TRANSLATION.into(), ..region };
    fabric.b.start_command(CommandOpcode::REREGISTER_KEY, body.as_bytes());
    assert!(!fabric.b.is_answered());
    fabric.b.release(0);
    assert!(fabric.b.is_answered());
}

/// b has a region for windows and a window of this type.
fn windows(kind: u8, region_access: u32) -> Fabric {
    let mut fabric = Fabric::new(EngineConfig::default(), 1);
    fabric.b.register(REGION, PLACE, 0x2000, BUFFER + 0x8_0000, 1, region_access);
    allocate(&mut fabric.b, WINDOW, kind, 0);
    fabric.a.port.put(BUFFER, &[8; 64]);
    fabric
}

const BINDABLE: u32 = ACCESS_LOCAL_WRITE | ACCESS_MW_BIND;

#[test]
fn a_window_shows_its_part_of_the_region_and_no_more() {
    for kind in [KEY_WINDOW_1, KEY_WINDOW_2A, KEY_WINDOW_2B] {
        let reached = |address, length| {
            let mut fabric = windows(kind, BINDABLE);
            let segment = binding(ACCESS_REMOTE_WRITE, PLACE + 0xff0, 0x20);
            post_local(&mut fabric.b, WorkOpcode::BIND_MW, WINDOW + 3, segment.as_bytes());
            assert_eq!(outcome(&mut fabric), (0, vec![]));
            let written = write(&mut fabric, address, length, WINDOW + 3);
            (written, fabric.b.port.slice(BUFFER + 0x8_0ff0, 0x20).to_vec())
        };
        assert_eq!(reached(PLACE + 0xff0, 0x20), ((0, vec![]), vec![8; 0x20]), "over a page break");
        for (address, length) in [(PLACE + 0xfef, 8), (PLACE + 0x1009, 8)] {
            assert_eq!(reached(address, length).0, (10, vec!["RKeyRange"]), "kind {kind}");
        }
    }
    let mut fabric = windows(KEY_WINDOW_2B, BINDABLE);
    let segment = binding(ACCESS_REMOTE_WRITE | ACCESS_ZERO_BASED, PLACE + 0xff0, 0x20);
    post_local(&mut fabric.b, WorkOpcode::BIND_MW, WINDOW, segment.as_bytes());
    assert_eq!(outcome(&mut fabric), (0, vec![]));
    assert_eq!(write(&mut fabric, 0x8, 0x18, WINDOW), (0, vec![]));
    assert_eq!(fabric.b.port.slice(BUFFER + 0x8_0ff7, 2), [0, 8]);
    // Its right is WRITE alone, and it is no lkey.
    fabric.a.send(&Request { remote: (0, WINDOW), ..Request::new(WorkOpcode::READ, 8) });
    fabric.run();
    assert_eq!(fabric.b.diagnostics(), ["RKeyRight"]);
}

#[test]
fn what_cannot_be_bound_is_refused_by_its_rule() {
    let bind = |kind, region_access, segment: BindSegment, key| {
        let mut fabric = windows(kind, region_access);
        post_local(&mut fabric.b, WorkOpcode::BIND_MW, key, segment.as_bytes());
        outcome(&mut fabric)
    };
    let good = binding(ACCESS_REMOTE_WRITE, PLACE, 0x1000);
    let refused = |name| (6, vec![name]);
    assert_eq!(bind(KEY_WINDOW_1, BINDABLE, good, REGION), refused("BindWindow"));
    assert_eq!(bind(KEY_WINDOW_1, BINDABLE, good, 0x900), refused("BindWindow"));
    assert_eq!(bind(KEY_WINDOW_1, ACCESS_LOCAL_WRITE, good, WINDOW), refused("BindRegion"));
    assert_eq!(bind(KEY_WINDOW_1, ACCESS_MW_BIND, good, WINDOW), refused("BindRegion"));
    assert_eq!(bind(KEY_WINDOW_2B, BINDABLE | ACCESS_ZERO_BASED, good, WINDOW), refused("BindRegion"));
    let stale = BindSegment { lkey: (REGION + 1).into(), ..good };
    assert_eq!(bind(KEY_WINDOW_2A, BINDABLE, stale, WINDOW), refused("BindRegion"));
    let itself = BindSegment { lkey: WINDOW.into(), ..good };
    assert_eq!(bind(KEY_WINDOW_2A, BINDABLE, itself, WINDOW), refused("BindRegion"));
    for (address, length) in [(PLACE - 1, 8), (PLACE + 0x1ff9, 8), (PLACE + 1, u64::MAX)] {
        let outside = binding(ACCESS_REMOTE_READ, address, length);
        assert_eq!(bind(KEY_WINDOW_2B, BINDABLE, outside, WINDOW), refused("BindRange"));
    }
    assert_eq!(bind(KEY_WINDOW_2B, BINDABLE, binding(0, PLACE, 0), WINDOW), refused("BindRange"));
    let local = binding(ACCESS_LOCAL_WRITE, PLACE, 8);
    assert_eq!(bind(KEY_WINDOW_2B, BINDABLE, local, WINDOW), refused("BindAccess"));
    let zero_based = binding(ACCESS_ZERO_BASED, PLACE, 8);
    assert_eq!(bind(KEY_WINDOW_1, BINDABLE, zero_based, WINDOW), refused("BindAccess"));
}

#[test]
fn windows_end_as_their_type_says_and_keep_their_region() {
    for kind in [KEY_WINDOW_1, KEY_WINDOW_2A, KEY_WINDOW_2B] {
        let type_1 = kind == KEY_WINDOW_1;
        let bound = || {
            let mut fabric = windows(kind, BINDABLE | ACCESS_INVALIDATE);
            let segment = binding(ACCESS_REMOTE_WRITE, PLACE, 0x1000);
            post_local(&mut fabric.b, WorkOpcode::BIND_MW, WINDOW + 1, segment.as_bytes());
            assert_eq!(outcome(&mut fabric), (0, vec![]));
            fabric
        };
        let mut fabric = bound();
        let segment = binding(ACCESS_REMOTE_WRITE, PLACE + 0x1000, 0x1000);
        post_local(&mut fabric.b, WorkOpcode::BIND_MW, WINDOW + 2, segment.as_bytes());
        let expected = if type_1 { (0, vec![]) } else { (6, vec!["BindWindow"]) };
        assert_eq!(outcome(&mut fabric), expected, "bound again");
        if type_1 {
            assert_eq!(write(&mut fabric, PLACE + 0x1000, 8, WINDOW + 2), (0, vec![]));
            assert_eq!(write(&mut fabric, PLACE, 8, WINDOW + 1), (10, vec!["RKeyInvalid"]));
        }
        let mut fabric = bound();
        let region = Host::object(REGION);
        assert_eq!(fabric.b.try_command(CommandOpcode::DEREGISTER_KEY, region.as_bytes()), (5, "ObjectBusy"));
        fabric.b.diagnostics();
        let (opcode, segment) = if type_1 {
            (WorkOpcode::BIND_MW, binding(0, 0, 0).as_bytes().to_vec())
        } else {
            (WorkOpcode::LOCAL_INV, vec![])
        };
        post_local(&mut fabric.b, opcode, WINDOW + 1, &segment);
        assert_eq!(outcome(&mut fabric), (0, vec![]), "closed");
        fabric.b.deregister(REGION);
        assert_eq!(write(&mut fabric, PLACE, 8, WINDOW + 1), (10, vec!["RKeyInvalid"]));
        let mut fabric = bound();
        let named = if type_1 { WINDOW + 1 } else { REGION };
        post_local(&mut fabric.b, WorkOpcode::LOCAL_INV, named, &[]);
        assert_eq!(outcome(&mut fabric), (2, vec!["InvalidateRefused"]), "a type 1 window, or a region with windows");
        fabric.b.deregister(WINDOW);
        fabric.b.deregister(REGION);
    }
}

#[test]
fn a_type_2_window_is_its_queue_pairs_alone() {
    for (kind, status) in [(KEY_WINDOW_1, 0), (KEY_WINDOW_2A, 10), (KEY_WINDOW_2B, 10)] {
        let mut fabric = windows(kind, BINDABLE);
        fabric.connect_another(1, &Attributes::mtu(1));
        let segment = binding(ACCESS_REMOTE_WRITE, PLACE, 0x1000);
        post_local(&mut fabric.b, WorkOpcode::BIND_MW, WINDOW, segment.as_bytes());
        assert_eq!(outcome(&mut fabric), (0, vec![]));
        let other = Request { qpn: Some(0x12), remote: (PLACE, WINDOW), ..Request::new(WorkOpcode::WRITE, 8) };
        fabric.a.send(&other);
        fabric.run();
        assert_eq!(fabric.a.completions(), [(0x12, 0, 4, status)]);
        // Not even a later queue pair of the same number has it.
        let (a, b) = (fabric.a.qpn, fabric.b.qpn);
        fabric.a.destroy_qp(a);
        fabric.b.destroy_qp(b);
        fabric.a.create_qp(a);
        fabric.b.create_qp(b);
        fabric.connect(&Attributes::mtu(1));
        fabric.b.diagnostics();
        assert_eq!(write(&mut fabric, PLACE, 8, WINDOW).0, status);
    }
}

#[test]
fn a_type_2_window_is_closed_through_its_own_queue_pair_alone() {
    for kind in [KEY_WINDOW_2A, KEY_WINDOW_2B] {
        let mut fabric = windows(kind, BINDABLE);
        fabric.connect_another(1, &Attributes::mtu(1));
        let segment = binding(ACCESS_REMOTE_WRITE, PLACE, 0x1000);
        post_local(&mut fabric.b, WorkOpcode::BIND_MW, WINDOW, segment.as_bytes());
        assert_eq!(outcome(&mut fabric), (0, vec![]));
        let close = Request { immediate: WINDOW, elements: vec![], ..Request::new(WorkOpcode::LOCAL_INV, 0) };
        fabric.b.send(&Request { qpn: Some(0x13), ..close });
        assert_eq!(outcome(&mut fabric), (2, vec!["InvalidateRefused"]));
        assert_eq!(write(&mut fabric, PLACE, 8, WINDOW), (0, vec![]), "it is open still");
    }
}

#[test]
fn a_type_1_window_is_not_invalidated_by_the_peer() {
    let mut fabric = windows(KEY_WINDOW_1, BINDABLE);
    let segment = binding(ACCESS_REMOTE_WRITE, PLACE, 0x1000);
    post_local(&mut fabric.b, WorkOpcode::BIND_MW, WINDOW, segment.as_bytes());
    assert_eq!(outcome(&mut fabric), (0, vec![]));
    fabric.b.post_receive(VIRTUAL + 0x9_0000, 0x1000, 0x100);
    fabric.a.send(&Request { immediate: WINDOW, ..Request::new(WorkOpcode::SEND_INV, 8) });
    assert_eq!(outcome(&mut fabric), (2, vec!["InvalidateRefused"]));
}

/// Both keys of a bind come late, into a cache of one entry.
#[test]
fn a_bind_gets_both_its_keys_whatever_the_cache() {
    let config = EngineConfig { key_cache_entries: 1, translation_cache_lines: 1, ..EngineConfig::default() };
    let mut fabric = Fabric::new(config, 1);
    fabric.b.register(REGION, PLACE, 0x2000, BUFFER + 0x8_0000, 1, BINDABLE);
    allocate(&mut fabric.b, WINDOW, KEY_WINDOW_2B, 0);
    fabric.b.flush_caches();
    fabric.b.port.hold = Box::new(|_, _| true);
    post_local(&mut fabric.b, WorkOpcode::BIND_MW, WINDOW, binding(ACCESS_REMOTE_READ, PLACE, 8).as_bytes());
    for _ in 0..100 {
        fabric.run();
        if fabric.b.port.held.is_empty() {
            break;
        }
        fabric.b.release(0);
    }
    assert_eq!(outcome(&mut fabric), (0, vec![]));
}
