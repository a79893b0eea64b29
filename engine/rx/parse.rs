//! RX parser: from a frame to a packet of a queue pair.
//!
//! In: a frame that the port gave to the RNIC. Out: a parsed packet for a queue pair that may take it; everything
//! else is dropped and counted.

use crate::blocks::Block;
use crate::context::queue_pair::{QpContext, QpState, Service};
use crate::engine::Engine;
use crate::host::Host;
use crate::numbers::Qpn;
use crate::pending::{Stop, Waiter};
use crate::planted::planted;
use crate::queues::AtomicRead;
use rnic_abi::command::MULTICAST_QPN;
use rnic_pcie::Cause;
use rnic_wire::bth::DEFAULT_PARTITION_KEY;
use rnic_wire::{Drop, Frame, IcrcCheck, IcrcState, Operation, ParsedPacket, parse};

/// Asked when a packet comes, and again when its turn comes: the state may be another one by then.
fn takes_packets(state: QpState) -> bool {
    state.receives() || planted("packets_in_any_state")
}

impl Engine {
    /// A frame from the wire. Its buffer is taken when the packet has to wait.
    pub(crate) fn receive_frame(&mut self, host: &mut Host, frame: &mut Frame) {
        self.counters.rcvd_pkts += 1;
        let check = if frame.icrc == IcrcState::Deferred { IcrcCheck::Trusted } else { IcrcCheck::Verify };
        let qpn = match parse(frame.bytes(), check) {
            Ok(packet) if packet.headers.bth.dest_qp == MULTICAST_QPN => {
                let group = packet.headers.network.dest_gid().0;
                return self.receive_for_group(host, group, frame);
            }
            Ok(packet) => match self.admit(host, Qpn(packet.headers.bth.dest_qp), &packet) {
                Some(qpn) => qpn,
                None => return,
            },
            Err(Drop::BadIcrc { .. }) => {
                self.counters.rx_icrc_errors += 1;
                return;
            }
            Err(_) => {
                self.counters.rx_dropped_frame += 1;
                return;
            }
        };
        let flags = self.queue_pairs.get(qpn).map(|qp| (qp.inbound_blocked, qp.selective.is_some()));
        let (blocked, is_selective) = flags.unwrap_or_default();
        if blocked {
            self.line_up(qpn, || std::mem::take(frame));
        } else if self.run_packet(host, qpn, frame) == Err(Stop::Blocked) {
            self.park(qpn, std::mem::take(frame));
        } else if is_selective && !self.keep_ahead(host, qpn, || std::mem::take(frame)) {
            self.run_kept(host, qpn);
        }
    }

    /// Those that came before their turn; they wait like any other for what they miss.
    fn run_kept(&mut self, host: &mut Host, qpn: Qpn) {
        let blocked = self.run_ahead(host, qpn) == Err(Stop::Blocked);
        if let Some(qp) = self.queue_pairs.get_mut(qpn).filter(|_| blocked) {
            qp.inbound_blocked = true;
        }
    }

    /// Behind the packets of the queue pair that wait, if there is room.
    pub(crate) fn line_up(&mut self, qpn: Qpn, frame: impl FnOnce() -> Frame) {
        if self.parked_frames >= self.config.parked_frames {
            self.counters.rx_dropped_frame += 1;
            return;
        }
        let Some(qp) = self.queue_pairs.get_mut(qpn) else { return };
        qp.inbound.push_back(frame());
        self.parked_frames += 1;
    }

    pub(crate) fn park(&mut self, qpn: Qpn, frame: Frame) {
        if let Some(qp) = self.queue_pairs.get_mut(qpn) {
            qp.inbound.push_front(frame);
            qp.inbound_blocked = true;
            self.parked_frames += 1;
        }
    }

    /// The head of the inbound list has what it waited for.
    pub(crate) fn resume_inbound(&mut self, host: &mut Host, qpn: Qpn) {
        loop {
            let Some(qp) = self.queue_pairs.get_mut(qpn) else { return };
            qp.inbound_blocked = false;
            let is_selective = qp.selective.is_some();
            let Some(frame) = qp.inbound.pop_front() else { break };
            self.parked_frames -= 1;
            if self.run_packet(host, qpn, &frame) == Err(Stop::Blocked) {
                return self.park(qpn, frame);
            }
            if is_selective && !self.keep_ahead(host, qpn, || frame) {
                self.run_kept(host, qpn);
                if self.queue_pairs.get(qpn).is_some_and(|qp| qp.inbound_blocked) {
                    return;
                }
            }
        }
        self.run_kept(host, qpn);
    }

    /// Drops that need no context.
    pub(crate) fn admit(&mut self, host: &mut Host, qpn: Qpn, packet: &ParsedPacket<'_>) -> Option<Qpn> {
        let bth = &packet.headers.bth;
        self.blocks.touch(host.now_ns, Block::RxParser, qpn.0);
        let Some(qp) = self.queue_pairs.get(qpn).filter(|qp| !qp.leaving) else {
            self.counters.rx_dropped_no_qp += 1;
            return None;
        };
        if !takes_packets(qp.state) {
            self.counters.rx_dropped_state += 1;
            return None;
        }
        if !qp.service.takes(packet.description) {
            self.counters.rx_dropped_transport += 1;
            return None;
        }
        // Bit 15 is membership; a full member talks to anybody of the partition.
        if bth.partition_key & 0x7fff != DEFAULT_PARTITION_KEY & 0x7fff && !planted("partition_key_unchecked") {
            self.counters.rx_bad_pkey += 1;
            return None;
        }
        Some(qpn)
    }

    /// Runs one packet through the path. What was resolved for it is of no use to the next one.
    pub(crate) fn run_packet(&mut self, host: &mut Host, qpn: Qpn, frame: &Frame) -> Result<(), Stop> {
        let ran = self.run_through(host, qpn, frame);
        if ran != Err(Stop::Blocked)
            && let Some(qp) = self.queue_pairs.get_mut(qpn)
        {
            qp.receive_plan = None;
            if qp.atomic != AtomicRead::Idle {
                self.end_atomic(qpn);
            }
        }
        ran
    }

    fn run_through(&mut self, host: &mut Host, qpn: Qpn, frame: &Frame) -> Result<(), Stop> {
        // What is left of a queue pair in error takes nothing more.
        if !self.queue_pairs.get(qpn).is_some_and(|qp| takes_packets(qp.state) && !qp.leaving) {
            self.counters.rx_dropped_state += 1;
            return Ok(());
        }
        let Ok(packet) = parse(frame.bytes(), IcrcCheck::Trusted) else { return Ok(()) };
        let psn = packet.headers.bth.psn.get();
        let cause = Cause::Packet { qpn: qpn.0, psn, attempt: 0 };
        let mut context = match self.load_qp(host, qpn, cause, Waiter::Inbound(qpn)) {
            Ok(context) => context,
            Err(Stop::Blocked) => return Err(Stop::Blocked),
            Err(stop) => {
                self.queue_pair_broken(host, qpn, stop);
                return Ok(());
            }
        };
        if !self.addressed(qpn, &context, &packet) && !planted("packets_from_anybody") {
            self.counters.rx_dropped_address += 1;
            return Ok(());
        }
        if packet.description.operation == Operation::CongestionNotification {
            self.congestion_told(host, qpn);
            return Ok(());
        }
        let ran = match context.service {
            Service::Rc | Service::XrcInitiator | Service::XrcTarget if packet.description.operation.is_response() => {
                self.response(host, qpn, &mut context, &packet)
            }
            Service::Rc | Service::XrcInitiator | Service::XrcTarget => self.request(host, qpn, &mut context, &packet),
            Service::Uc => self.unreliable_request(host, qpn, &mut context, &packet),
            Service::Ud | Service::Gsi => self.datagram(host, qpn, &mut context, &packet, frame.bytes()),
        };
        if ran != Err(Stop::Blocked) {
            self.store_qp(host, qpn, context);
            self.note_congestion(host, qpn, &packet);
        }
        ran
    }

    /// A connected queue pair takes packets from its peer's address to its own only; datagrams come from anybody to any
    /// address of the port, or to a group that the queue pair is attached to.
    fn addressed(&self, qpn: Qpn, context: &QpContext, packet: &ParsedPacket<'_>) -> bool {
        let network = &packet.headers.network;
        if context.service.is_datagram() {
            let to = network.dest_gid().0;
            return if packet.headers.bth.dest_qp == MULTICAST_QPN {
                self.multicast.is_attached(&to, qpn)
            } else {
                self.owns_gid(&to)
            };
        }
        let Some(own) = self.contexts.gids.get(context.av.sgid_index) else { return false };
        network.source_gid().0 == context.av.dest_gid && network.dest_gid().0 == own.gid
    }
}
