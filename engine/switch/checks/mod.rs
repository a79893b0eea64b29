//! Checks of the crate as a whole, and what they share: frames built by hand or by rnic-wire, and small switches.

mod capturing;
mod faults;
mod forwarding;
mod fuzz;
mod impairing;
mod marking;
mod membership;
mod two_threads;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use rnic_wire::{Bth, Extension, Frame, LinkHeaders, Network, Opcode, Psn, RoceHeaders};

use crate::{NeverSleeps, Port, Switch, SwitchConfig};

/// A switch whose ports `p0`, `p1`… are driven by the test.
pub fn switch_of(ports: usize) -> (Switch, Vec<Port>) {
    switch_with(SwitchConfig::default(), ports)
}

pub fn switch_with(config: SwitchConfig, ports: usize) -> (Switch, Vec<Port>) {
    let switch = Switch::new(config);
    let ports = (0..ports).map(|port| switch.port(&format!("p{port}"), Arc::new(NeverSleeps)).unwrap()).collect();
    (switch, ports)
}

/// The address of a station, by its number.
pub fn mac(station: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, station]
}

pub const BROADCAST: [u8; 6] = [0xff; 6];

pub fn frame_of(bytes: &[u8]) -> Frame {
    let mut frame = Frame::new();
    assert!(frame.set_bytes(bytes));
    frame
}

/// A frame that is not IP.
pub fn ethernet(source: [u8; 6], destination: [u8; 6], payload: &[u8]) -> Vec<u8> {
    [&destination[..], &source, &[0x88, 0xb5], payload].concat()
}

/// An IPv4 frame with nothing in it; forwarding must not care for its checksum.
pub fn ipv4(source_mac: [u8; 6], destination_mac: [u8; 6], source: [u8; 4], destination: [u8; 4]) -> Vec<u8> {
    let header = [0x45, 0, 0, 20, 0, 0, 0x40, 0, 64, 17, 0, 0];
    [&destination_mac[..], &source_mac, &[8, 0], &header, &source, &destination].concat()
}

/// An IPv6 frame with nothing in it.
pub fn ipv6(source_mac: [u8; 6], destination_mac: [u8; 6], source: Ipv6Addr, destination: Ipv6Addr) -> Vec<u8> {
    let header = [0x60, 0, 0, 0, 0, 0, 59, 64];
    [&destination_mac[..], &source_mac, &[0x86, 0xdd], &header, &source.octets(), &destination.octets()].concat()
}

/// The frame with a VLAN tag.
pub fn tagged(frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &[0x81, 0, 0x20, 7], &frame[12..]].concat()
}

/// A RoCE packet from 10.0.0.1 to 10.0.0.2, queue pair 0x11, its ICRC deferred; stations 1 and 2 are its ends.
pub fn roce(opcode: Opcode, psn: u32, payload: &[u8]) -> Frame {
    let network = Network::V4 {
        source: Ipv4Addr::new(10, 0, 0, 1),
        dest: Ipv4Addr::new(10, 0, 0, 2),
        traffic_class: 2,
        ttl: 64,
        identification: 1,
    };
    roce_over(network, opcode, psn, payload)
}

pub fn roce_over(network: Network, opcode: Opcode, psn: u32, payload: &[u8]) -> Frame {
    let headers = RoceHeaders {
        link: LinkHeaders { source_mac: mac(1), dest_mac: mac(2), vlan: None },
        network,
        udp_source_port: 0xc0de,
        bth: Bth::new(opcode, 0x11, Psn::new(psn)),
        extension: Extension::default(),
    };
    let mut frame = Frame::new();
    let place = rnic_wire::emit(&headers, payload.len(), &mut frame);
    frame.bytes_mut()[place].copy_from_slice(payload);
    frame
}

/// All that waits at a port now.
pub fn received(port: &mut Port, now_ns: u64) -> Vec<Vec<u8>> {
    let mut frame = Frame::new();
    std::iter::from_fn(|| port.receive(&mut frame, now_ns).then(|| frame.bytes().to_vec())).collect()
}

/// Transmits from one port and says which others got the frame unchanged.
pub fn reaches(ports: &mut [Port], from: usize, bytes: &[u8], now_ns: u64) -> Vec<usize> {
    ports[from].transmit(&mut frame_of(bytes), now_ns);
    let mut reached = Vec::new();
    for (place, port) in ports.iter_mut().enumerate() {
        let frames = received(port, now_ns);
        assert!(frames.iter().all(|frame| frame == bytes), "p{place} got another frame");
        reached.extend(frames.iter().map(|_| place));
    }
    reached
}
