//! TX packet build: BTH and what follows it, inside UDP, IP and Ethernet. Requests and answers alike.

use super::segment::{Segment, of_service};
use crate::blocks::Block;
use crate::context::gid::GidEntry;
use crate::context::queue_pair::{AddressVector, QpContext};
use crate::engine::Engine;
use crate::front_end::{Body, Destination, Operation, Placement, SendWork};
use crate::host::Host;
use crate::numbers::Qpn;
use crate::pending::Stop;
use crate::planted::planted;
use crate::queues::QueuePair;
use crate::reliability::ResponseDue;
use crate::reliability::reply::ReplyPacket;
use rnic_abi::Diagnostic;
use rnic_abi::command::QKEY_PRIVILEGED;
use rnic_wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, CreditCode, Deth, Extension, Feth, Frame, Gid, Ieth, ImmDt, LinkHeaders, Msn,
    Network, Opcode, Operation as Carried, Psn, Reth, RoceHeaders, Syndrome, Transport, Vlan, XrcEth, cnp, emit, feth,
    udp,
};
use std::ops::Range;

/// An acknowledgement is asked for at least so often inside a message.
const ACK_REQUEST_PACKETS: u32 = 32;

impl Engine {
    /// Lays a request's headers out in the frame; the payload's place in it is the answer.
    pub(crate) fn build_request(
        &mut self,
        qpn: Qpn,
        context: &QpContext,
        segment: &Segment,
        frame: &mut Frame,
    ) -> Result<Range<usize>, Stop> {
        let work = self.wqes.get(segment.wqe).and_then(|wqe| wqe.work.as_ref().ok());
        let work = work.ok_or(Stop::Broken(Diagnostic::WqeLength))?;
        let mut extension = Extension::default();
        if work.operation.is_write() && segment.first || work.operation == Operation::AtomicWrite {
            extension.reth =
                Reth { virtual_address: work.remote_address, remote_key: work.rkey.0, dma_length: work.length_bytes };
        } else if work.operation == Operation::Read {
            // What is missing: everything, or the rest after a loss.
            extension.reth = Reth {
                virtual_address: work.remote_address.wrapping_add(segment.offset),
                remote_key: work.rkey.0,
                dma_length: (u64::from(work.length_bytes) - segment.offset) as u32,
            };
        } else if work.operation.is_atomic() {
            extension.atomic_eth = AtomicEth {
                virtual_address: work.remote_address,
                remote_key: work.rkey.0,
                swap_or_add: work.swap_or_add,
                compare: work.compare,
            };
        }
        if let Body::Flush(placement) = &work.body {
            (extension.feth, extension.reth) = flush(work, placement);
        }
        if work.operation.has_immediate() && segment.last {
            extension.immdt = ImmDt { immediate: work.immediate.to_be_bytes() };
        }
        if work.operation == Operation::SendInv && segment.last {
            extension.ieth = Ieth { remote_key: work.rkey.0 };
        }
        if let Some(srqn) = work.srqn {
            extension.xrceth = XrcEth { srq_number: srqn.0 };
        }
        let (av, dest_qpn) = match &work.destination {
            Some(to) => {
                extension.deth = deth(qpn, context, to);
                (&to.av, to.qpn)
            }
            None => (&context.av, context.dest_qpn),
        };
        let solicits = work.operation != Operation::Write && !work.operation.awaits_response();
        let in_message = segment.psn.compare(segment.first_psn) as u32 + 1;
        let bth = Bth {
            solicited_event: (segment.last || planted("solicited_in_every_packet")) && work.solicited && solicits,
            ack_req: context.service.is_reliable()
                && (self.goes_again_selectively(qpn, segment)
                    || (segment.first && segment.question)
                    || (segment.last && !planted("last_packet_asks_for_nothing"))
                    || in_message.is_multiple_of(ACK_REQUEST_PACKETS)),
            ..bth(segment.opcode, dest_qpn, segment.psn)
        };
        let headers = self.headers(qpn, av, bth, extension)?;
        Ok(emit(&headers, segment.length_bytes as usize, frame))
    }

    /// A repetition of its own: nothing behind it would ask for its acknowledgement.
    fn goes_again_selectively(&self, qpn: Qpn, segment: &Segment) -> bool {
        segment.attempt > 0 && self.is_selective(qpn)
    }

    /// Builds an acknowledgement.
    pub(crate) fn build_response(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &QpContext,
        due: &ResponseDue,
        frame: &mut Frame,
    ) -> Result<(), Stop> {
        self.blocks.touch(host.now_ns, Block::TxPacketBuild, qpn.0);
        let bth = bth(of_service(context.service, Opcode::RC_ACKNOWLEDGE), context.dest_qpn, due.psn);
        let aeth = match due.syndrome {
            Syndrome::Ack { .. } => self.acknowledging(qpn, due.msn),
            syndrome => Aeth { syndrome, msn: due.msn },
        };
        let extension = Extension { aeth, ..Extension::default() };
        let headers = self.headers(qpn, &context.av, bth, extension)?;
        emit(&headers, 0, frame);
        Ok(())
    }

    /// Builds a congestion notification.
    pub(crate) fn build_cnp(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &QpContext,
        frame: &mut Frame,
    ) -> Result<(), Stop> {
        self.blocks.touch(host.now_ns, Block::TxPacketBuild, qpn.0);
        let av = AddressVector { traffic_class: cnp::TRAFFIC_CLASS, ..context.av };
        let headers = self.headers(qpn, &av, cnp::bth(context.dest_qpn.0), Extension::default())?;
        emit(&headers, 0, frame);
        Ok(())
    }

    /// Lays out one packet of a READ's answer; the payload's place in it is the result.
    pub(crate) fn build_read_response(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &QpContext,
        msn: Msn,
        packet: &ReplyPacket,
        frame: &mut Frame,
    ) -> Result<Range<usize>, Stop> {
        self.blocks.touch(host.now_ns, Block::TxPacketBuild, qpn.0);
        let opcode = match (packet.first, packet.last) {
            (true, true) => Opcode::RC_READ_RESPONSE_ONLY,
            (true, false) => Opcode::RC_READ_RESPONSE_FIRST,
            (false, false) => Opcode::RC_READ_RESPONSE_MIDDLE,
            (false, true) => Opcode::RC_READ_RESPONSE_LAST,
        };
        let extension = Extension { aeth: self.acknowledging(qpn, msn), ..Extension::default() };
        let bth = bth(of_service(context.service, opcode), context.dest_qpn, packet.psn);
        let headers = self.headers(qpn, &context.av, bth, extension)?;
        Ok(emit(&headers, packet.length_bytes as usize, frame))
    }

    /// Builds the answer of an atomic.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn build_atomic_response(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        context: &QpContext,
        psn: Psn,
        msn: Msn,
        original: u64,
        frame: &mut Frame,
    ) -> Result<(), Stop> {
        self.blocks.touch(host.now_ns, Block::TxPacketBuild, qpn.0);
        let atomic_ack = AtomicAckEth { original };
        let extension = Extension { aeth: self.acknowledging(qpn, msn), atomic_ack, ..Extension::default() };
        let bth = bth(of_service(context.service, Opcode::RC_ATOMIC_ACKNOWLEDGE), context.dest_qpn, psn);
        let headers = self.headers(qpn, &context.av, bth, extension)?;
        emit(&headers, 0, frame);
        Ok(())
    }

    /// It promises the receives that are there when the packet is built.
    fn acknowledging(&self, qpn: Qpn, msn: Msn) -> Aeth {
        let credits = self.queue_pairs.get(qpn).map_or(CreditCode::NONE, QueuePair::credits);
        Aeth { syndrome: Syndrome::Ack { credits }, msn }
    }

    /// Packets that there are many of: those of connections but for acknowledgements.
    fn may_be_marked(&self, bth: &Bth) -> bool {
        self.config.congestion.ecn
            && bth.opcode.description().is_some_and(|packet| {
                !matches!(packet.transport, Transport::Ud | Transport::Cnp) && packet.operation != Carried::Acknowledge
            })
    }

    fn headers(&self, qpn: Qpn, av: &AddressVector, bth: Bth, extension: Extension) -> Result<RoceHeaders, Stop> {
        let source = self.contexts.gids.get(av.sgid_index).ok_or(Stop::Broken(Diagnostic::ModifyValue))?;
        let flow_label = match av.flow_label {
            0 => udp::flow_label_from_qpns(qpn.0, bth.dest_qp),
            label => label,
        };
        Ok(RoceHeaders {
            link: LinkHeaders {
                source_mac: source.mac,
                dest_mac: av.dest_mac,
                vlan: source.vlan_id.map(|id| Vlan::new(av.service_level, id)),
            },
            network: network(source, av, self.may_be_marked(&bth)),
            udp_source_port: udp::source_port(flow_label),
            bth,
            extension,
        })
    }
}

/// MigReq is 1: the path is the migrated one, as hardware says it.
fn bth(opcode: Opcode, dest_qpn: Qpn, psn: Psn) -> Bth {
    Bth { migration_request: true, ..Bth::new(opcode, dest_qpn.0, psn) }
}

/// Only whoever may set a queue pair's Q_Key can send a privileged one: a work request that asks for one sends that.
fn deth(qpn: Qpn, context: &QpContext, to: &Destination) -> Deth {
    let privileged = to.qkey & QKEY_PRIVILEGED != 0 && !planted("privileged_qkey_for_everybody");
    Deth { queue_key: if privileged { context.qkey } else { to.qkey }, source_qp: qpn.0 }
}

fn flush(work: &SendWork, placement: &Placement) -> (Feth, Reth) {
    let feth = Feth {
        placement_type: (u8::from(placement.global) * feth::GLOBAL)
            | (u8::from(placement.persistent) * feth::PERSISTENT),
        selectivity: if placement.region { feth::REGION } else { feth::RANGE },
    };
    let dma_length = placement.length_bytes;
    (feth, Reth { virtual_address: work.remote_address, remote_key: work.rkey.0, dma_length })
}

/// In the traffic class: capable of being marked, ECT(0).
const ECT_0: u8 = 0b10;
const ECN_BITS: u8 = 0b11;

fn network(source: &GidEntry, av: &AddressVector, may_be_marked: bool) -> Network {
    let ect = if may_be_marked && av.traffic_class & ECN_BITS == 0 { ECT_0 } else { 0 };
    let traffic_class = av.traffic_class | ect;
    let (source, dest) = (Gid(source.gid), Gid(av.dest_gid));
    let hop_limit = if av.hop_limit == 0 { 64 } else { av.hop_limit };
    match (source.to_ipv4(), dest.to_ipv4()) {
        (Some(source), Some(dest)) => Network::V4 { source, dest, traffic_class, ttl: hop_limit, identification: 0 },
        _ => Network::V6 {
            source: source.to_ipv6(),
            dest: dest.to_ipv6(),
            traffic_class,
            flow_label: av.flow_label,
            hop_limit,
        },
    }
}
