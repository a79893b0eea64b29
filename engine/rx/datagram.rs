//! The receiver of datagrams: one packet, one message, from anybody who knows the Q_Key. In front of it in its buffer
//! stands the network header that it came with.

use super::key_check::{Authorized, Refused};
use super::opcode_check::{Arrival, Message};
use super::unreliable::{Lost, lost_by};
use crate::context::queue_pair::QpContext;
use crate::engine::Engine;
use crate::front_end::DatagramSource;
use crate::host::Host;
use crate::numbers::Qpn;
use crate::pending::Stop;
use crate::planted::planted;
use arrayvec::ArrayVec;
use rnic_abi::work_request::GRH_BYTES;
use rnic_pcie::Cause;
use rnic_wire::{Headers, Network, ParsedPacket};

const HEADER: usize = GRH_BYTES as usize;
/// The largest path MTU.
const PAYLOAD: usize = 4096;

/// What goes into the receive buffer.
type Delivery = ArrayVec<u8, { HEADER + PAYLOAD }>;

impl Engine {
    /// Blocked means that nothing has changed and the packet runs again.
    pub(crate) fn datagram(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &mut QpContext,
        packet: &ParsedPacket<'_>,
        frame: &[u8],
    ) -> Result<(), Stop> {
        if packet.headers.extension.deth.queue_key != context.qkey && !planted("qkey_unchecked") {
            self.counters.rx_bad_qkey += 1;
            return Ok(());
        }
        let longest = context.path_mtu_bytes() as usize;
        let Some(delivery) = delivery(packet, frame).filter(|_| packet.payload.len() <= longest) else {
            self.count_lost(Lost::TooLong);
            return Ok(());
        };
        let psn = packet.headers.bth.psn;
        let cause = Cause::Packet { qpn: qpn.0, psn: psn.get(), attempt: 0 };
        if !self.receive_ready(host, qpn, cause)? {
            self.count_lost(Lost::NoReceive);
            return Ok(());
        }
        if !self.take_unreliably(host, qpn, context, psn)? {
            return Ok(());
        }
        self.read_next_receive(host, qpn)?;
        let arrival = arrival(packet, delivery.len() as u32);
        match self.authorize(host, qpn, context, &arrival, psn.get()) {
            Ok(authorized) => self.hand_over(host, qpn, context, packet, &arrival, &authorized, &delivery),
            Err(Refused::Blocked) => return Err(Stop::Blocked),
            Err(Refused::Fault(fault)) => match lost_by(fault) {
                Some(lost) => self.count_lost(lost),
                None => self.receive_fails(host, qpn, context, psn, fault, true),
            },
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    fn hand_over(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &QpContext,
        packet: &ParsedPacket<'_>,
        arrival: &Arrival,
        authorized: &Authorized,
        delivery: &Delivery,
    ) {
        let cause = Cause::Packet { qpn: qpn.0, psn: packet.headers.bth.psn.get(), attempt: 0 };
        self.scatter(host, qpn, authorized, delivery, cause);
        self.counters.executed_messages += 1;
        self.message_arrived(host, qpn, context, arrival, None, Some(source(packet)));
    }
}

/// The network header as it stands in the frame, behind 20 bytes of zeros if it is IPv4's, and the payload. None where
/// they are longer than any message.
fn delivery(packet: &ParsedPacket<'_>, frame: &[u8]) -> Option<Delivery> {
    const LINK: usize = 14;
    const TAG: usize = 4;
    const IPV4: usize = 20;
    let at = if packet.headers.link.vlan.is_some() { LINK + TAG } else { LINK };
    let mut delivery = Delivery::new();
    let header = match packet.headers.network {
        Network::V4 { .. } => {
            let gap = if planted("header_in_front") { 0 } else { HEADER - IPV4 };
            delivery.try_extend_from_slice(&[0; HEADER][..gap]).ok()?;
            frame.get(at..at + IPV4)?
        }
        Network::V6 { .. } => frame.get(at..at + HEADER)?,
    };
    delivery.try_extend_from_slice(header).ok()?;
    delivery.try_extend_from_slice(packet.payload).ok()?;
    Some(delivery)
}

fn arrival(packet: &ParsedPacket<'_>, length_bytes: u32) -> Arrival {
    let with_immediate = packet.description.headers.contains(Headers::IMMDT);
    Arrival {
        length_bytes,
        immediate: with_immediate.then(|| u32::from_be_bytes(packet.headers.extension.immdt.immediate)),
        solicited: packet.headers.bth.solicited_event,
        ..Arrival::whole(Message::Send)
    }
}

fn source(packet: &ParsedPacket<'_>) -> DatagramSource {
    let link = &packet.headers.link;
    DatagramSource {
        qpn: Qpn(packet.headers.extension.deth.source_qp),
        mac: link.source_mac,
        vlan: link.vlan.map(|vlan| (vlan.vlan_id(), vlan.priority())),
        is_ipv6: matches!(packet.headers.network, Network::V6 { .. }),
        pkey_index: 0,
    }
}
