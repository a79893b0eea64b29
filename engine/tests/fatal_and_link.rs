//! A device that has stopped for good, and a port whose link goes down and comes back.

mod rig;

use rig::*;
use rnic_abi::doorbell::*;
use rnic_abi::registers::*;
use rnic_abi::{CommandOpcode, CompletionStatus, Diagnostic, EventType, WorkOpcode};
use rnic_engine::EngineConfig;
use rnic_pcie::Class;
use zerocopy::IntoBytes;

fn read(host: &mut Host, register: u32) -> u32 {
    let mut word = [0; 4];
    host.engine.handle_read(host.now_ns, &mut host.port, 0, register.into(), &mut word);
    u32::from_le_bytes(word)
}

/// Takes the commands' ring away, and lets the device notice.
fn stop(host: &mut Host) {
    host.port.fail = Box::new(|origin| origin.class == Class::CommandFetch);
    host.start_command(CommandOpcode::QUERY_DEVICE, &[]);
    host.port.fail = Box::new(|_| false);
}

#[test]
fn a_stopped_device_tells_so_and_takes_no_doorbell_frame_or_time() {
    let mut fabric = Fabric::new(EngineConfig::default(), 1);
    let write = Request::new(WorkOpcode::WRITE, 600);
    // Work of every kind is under way when it happens: a packet in flight, a timer, one that arrives.
    fabric.a.send(&write);
    let in_flight = fabric.a.transmit().expect("a packet");
    fabric.b.receive(in_flight);
    fabric.b.send(&write);
    let arriving = fabric.b.transmit().expect("a packet of the peer");
    assert!(fabric.a.engine.has_output() && fabric.a.engine.poll_timeout().is_some());
    fabric.a.events();
    stop(&mut fabric.a);
    let number = Diagnostic::CommandFetchFault.number();
    let told = [(EventType::DEVICE_FATAL, 0, number), (EventType::QP_FATAL, 0x11, number)];
    assert_eq!(fabric.a.events(), told);
    assert_eq!(fabric.a.completions(), [(0x11, 0, WorkOpcode::WRITE.0, CompletionStatus::GENERAL_ERR.0)]);
    assert_eq!(read(&mut fabric.a, REG_STATUS) & (STATUS_ENABLED | STATUS_FATAL), STATUS_ENABLED | STATUS_FATAL);

    fabric.a.port.log.clear();
    let before = *fabric.a.engine.counters();
    fabric.a.diagnostics();
    fabric.a.send(&write);
    fabric.a.post_receive(VIRTUAL, 64, 0x100);
    fabric.a.ring(DB_CQ_ARM, cq_arm(3, 0, 1, false));
    fabric.a.ring(DB_EQ_UPDATE, eq_update(0, 0, true));
    fabric.a.start_command(CommandOpcode::QUERY_DEVICE, &[]);
    assert_eq!(fabric.a.diagnostics(), ["DeviceFatal"; 5]);
    fabric.a.receive(arriving);
    fabric.a.advance_to(10_000_000_000);
    assert!(fabric.a.transmit().is_none() && !fabric.a.engine.has_output());
    assert_eq!(fabric.a.engine.poll_timeout(), None);
    assert!(fabric.a.engine.can_receive(), "the port does not fill up");
    let classes: Vec<_> = fabric.a.port.log.iter().map(|transfer| transfer.class()).collect();
    assert_eq!(classes, [Class::RegisterWrite; 5], "refused accesses and nothing else");
    let after = *fabric.a.engine.counters();
    assert_eq!((after.sent_pkts, after.rcvd_pkts), (before.sent_pkts, before.rcvd_pkts));
    assert_eq!(fabric.a.completions(), []);
}

#[test]
fn a_read_that_comes_home_to_a_stopped_device_ends_its_work_and_begins_none() {
    let mut fabric = Fabric::new(EngineConfig::default(), 1);
    fabric.a.port.hold = Box::new(|origin, _| origin.class == Class::WqeFetch || origin.class == Class::PayloadRead);
    fabric.a.send(&Request::new(WorkOpcode::WRITE, 600));
    assert_eq!(fabric.a.port.held.len(), 1);
    stop(&mut fabric.a);
    fabric.a.port.log.clear();
    fabric.a.settle();
    assert!(fabric.a.transmit().is_none());
    let classes: Vec<_> = fabric.a.port.log.iter().map(|transfer| transfer.class()).collect();
    assert_eq!(classes, [Class::CqeWrite]);
    assert_eq!(fabric.a.completions(), [(0x11, 0, WorkOpcode::WRITE.0, CompletionStatus::WR_FLUSH_ERR.0)]);
}

#[test]
fn the_event_of_a_stopped_device_waits_for_its_queue_s_page_list() {
    let mut fabric = Fabric::new(EngineConfig::default(), 1);
    let host = &mut fabric.a;
    // Event queue 0 anew, with a list whose line is not in the cache any more.
    for at in 0..8 {
        host.port.put(LISTS + at * 8, &(EQ + at * PAGE).to_le_bytes());
    }
    host.destroy_qp(host.qpn);
    host.must(CommandOpcode::DESTROY_CQ, Host::object(3).as_bytes());
    host.must(CommandOpcode::DESTROY_EQ, Host::object(0).as_bytes());
    let mut eq = rnic_abi::command::CreateEq::zeroed();
    (eq.log_entries, eq.pages) = (6, pages(LISTS, 1));
    host.must(CommandOpcode::CREATE_EQ, eq.as_bytes());
    host.flush_caches();
    host.port.hold = Box::new(|origin, _| origin.class == Class::TranslationFetch);
    stop(host);
    assert_eq!(host.events(), []);
    host.settle();
    assert_eq!(host.events(), [(EventType::DEVICE_FATAL, 0, Diagnostic::CommandFetchFault.number())]);
}

#[test]
fn a_reset_mends_a_stopped_device_and_counters_go_on() {
    let mut fabric = Fabric::new(EngineConfig::default(), 1);
    fabric.a.send(&Request::new(WorkOpcode::WRITE, 600));
    fabric.run();
    stop(&mut fabric.a);
    let before = *fabric.a.engine.counters();
    assert!(before.sent_pkts > 0 && before.diagnostics > 0);
    fabric.a.write(0, REG_CONTROL.into(), &0u32.to_le_bytes());
    assert_eq!(read(&mut fabric.a, REG_STATUS) & (STATUS_ENABLED | STATUS_FATAL), 0);
    assert_eq!(*fabric.a.engine.counters(), before, "a reset sets no counter back");
    assert_eq!(read(&mut fabric.a, REG_LAST_DIAGNOSTIC), Diagnostic::CommandFetchFault.number());
    let Fabric { a, b, .. } = fabric;
    let mut fresh = Host::with_engine(a.engine, IP_A, 0x11);
    fresh.now_ns = a.now_ns;
    fresh.bring_up();
    fresh.create_qp(0x15);
    let mut fabric = Fabric { a: fresh, b, wire: vec![], drop: Box::new(|_, _| false), drop_packet: None };
    fabric.connect_another(6, &Attributes::mtu(1));
    let again = Request { qpn: Some(0x17), ..Request::new(WorkOpcode::WRITE, 600) };
    fabric.a.send(&again);
    fabric.run();
    assert_eq!(fabric.a.completions(), [(0x17, 0, WorkOpcode::WRITE.0, 0)]);
    assert!(fabric.a.engine.counters().sent_pkts > before.sent_pkts);
}

#[test]
fn each_change_of_the_link_is_an_event_and_stands_in_the_status() {
    let mut host = Host::new(EngineConfig::default(), IP_A, 0x11);
    host.engine.handle_link(host.now_ns, &mut host.port, false);
    host.bring_up();
    assert_eq!(host.events(), [], "nobody was there to be told");
    let link = |host: &mut Host, up| host.engine.handle_link(host.now_ns, &mut host.port, up);
    assert_eq!(read(&mut host, REG_STATUS) & STATUS_LINK_UP, 0);
    link(&mut host, false);
    assert_eq!(host.events(), [], "no change, no event");
    link(&mut host, true);
    assert_eq!(host.events(), [(EventType::PORT_ACTIVE, 1, 0)]);
    assert_eq!(read(&mut host, REG_STATUS) & STATUS_LINK_UP, STATUS_LINK_UP);
    link(&mut host, false);
    assert_eq!(host.events(), [(EventType::PORT_ERR, 1, 0)]);
    assert_eq!(read(&mut host, REG_STATUS) & STATUS_LINK_UP, 0);
    host.write(0, REG_CONTROL.into(), &0u32.to_le_bytes());
    assert_eq!(read(&mut host, REG_STATUS) & STATUS_LINK_UP, 0, "a reset plugs no cable in");
}
