//! Queue pair contexts: all that the next packet of a queue pair needs.

use super::image::{Image, Reader, Writer};
use crate::numbers::{Key, Pdn, Qpn};
use crate::planted::planted;
use rnic_abi::command::*;
use rnic_abi::limits::QP_CONTEXT_BYTES;
use rnic_wire::{CreditCode, Msn, OpcodeDescription, Psn, Transport};

/// A queue pair's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum QpState {
    #[default]
    Reset,
    Init,
    Rtr,
    Rts,
    Sqd,
    Sqe,
    Err,
}

impl QpState {
    pub const ALL: [Self; 7] = [Self::Reset, Self::Init, Self::Rtr, Self::Rts, Self::Sqd, Self::Sqe, Self::Err];

    pub const fn code(self) -> u8 {
        match self {
            Self::Reset => QP_STATE_RESET,
            Self::Init => QP_STATE_INIT,
            Self::Rtr => QP_STATE_RTR,
            Self::Rts => QP_STATE_RTS,
            Self::Sqd => QP_STATE_SQD,
            Self::Sqe => QP_STATE_SQE,
            Self::Err => QP_STATE_ERR,
        }
    }

    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.code() == code)
    }

    /// Packets from the peer are taken in this state.
    pub const fn receives(self) -> bool {
        matches!(self, Self::Rtr | Self::Rts | Self::Sqd | Self::Sqe)
    }

    /// Send work is begun in this state.
    pub fn sends(self) -> bool {
        self == Self::Rts || (self == Self::Sqd && planted("drained_queue_begins_messages"))
    }

    /// Acknowledgements for what was sent are taken in this state.
    pub const fn requests_outstanding(self) -> bool {
        matches!(self, Self::Rts | Self::Sqd)
    }
}

/// The transport service of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Service {
    /// Reliable connection.
    #[default]
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagrams.
    Ud,
    /// General services interface: the datagrams of management, queue pair 1.
    Gsi,
    /// Extended reliable connection, the half that sends.
    XrcInitiator,
    /// The half that receives: into the shared receive queue that each request names.
    XrcTarget,
}

impl Service {
    pub const ALL: [Self; 6] = [Self::Rc, Self::Uc, Self::Ud, Self::Gsi, Self::XrcInitiator, Self::XrcTarget];

    pub const fn code(self) -> u8 {
        match self {
            Self::Rc => QP_TYPE_RC,
            Self::Uc => QP_TYPE_UC,
            Self::Ud => QP_TYPE_UD,
            Self::Gsi => QP_TYPE_GSI,
            Self::XrcInitiator => QP_TYPE_XRC_INI,
            Self::XrcTarget => QP_TYPE_XRC_TGT,
        }
    }

    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|service| service.code() == code)
    }

    /// The name of the type.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
            Self::Gsi => "GSI",
            Self::XrcInitiator => "XRC_INI",
            Self::XrcTarget => "XRC_TGT",
        }
    }

    /// What is sent is acknowledged, or sent again.
    pub const fn is_reliable(self) -> bool {
        matches!(self, Self::Rc | Self::XrcInitiator | Self::XrcTarget)
    }

    /// It has a send queue.
    pub const fn has_send_queue(self) -> bool {
        !matches!(self, Self::XrcTarget)
    }

    /// It has receives, of its own or of the shared receive queue that it was created with.
    pub const fn has_receive_queue(self) -> bool {
        !matches!(self, Self::XrcInitiator | Self::XrcTarget)
    }

    /// A packet of this kind has something to look for here. The halves of an extended connection take either requests
    /// or responses.
    pub fn takes(self, packet: &OpcodeDescription) -> bool {
        if packet.transport == Transport::Cnp {
            return !self.is_datagram();
        }
        packet.transport == self.transport()
            && match self {
                Self::XrcInitiator => packet.operation.is_response(),
                Self::XrcTarget => !packet.operation.is_response(),
                _ => true,
            }
    }

    /// Each work request names where it goes.
    pub const fn is_datagram(self) -> bool {
        matches!(self, Self::Ud | Self::Gsi)
    }

    /// The transport of its packets.
    pub const fn transport(self) -> Transport {
        match self {
            Self::Rc => Transport::Rc,
            Self::Uc => Transport::Uc,
            Self::Ud | Self::Gsi => Transport::Ud,
            Self::XrcInitiator | Self::XrcTarget => Transport::Xrc,
        }
    }
}

/// Where packets go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressVector {
    pub dest_gid: [u8; 16],
    pub dest_mac: [u8; 6],
    pub sgid_index: u16,
    pub flow_label: u32,
    pub traffic_class: u8,
    pub hop_limit: u8,
    pub service_level: u8,
}

/// The message that is arriving.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Inbound {
    #[default]
    None,
    Send {
        received_bytes: u64,
    },
    Write {
        address: u64,
        rkey: Key,
        length_bytes: u32,
        received_bytes: u32,
    },
}

/// The requester's half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requester {
    /// Oldest PSN that is not acknowledged.
    pub unacked_psn: Psn,
    /// PSN of the next packet to leave, new or again.
    pub send_psn: Psn,
    /// First PSN that has never left.
    pub fresh_psn: Psn,
    /// Messages begun, modulo 2^24: what the peer's MSN will count.
    pub message_count: Msn,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub retries_left: u8,
    pub rnr_retry: u8,
    pub rnr_retries_left: u8,
    /// How often the packets from `unacked_psn` on have been sent again.
    pub attempt: u16,
    pub max_rd_atomic: u8,
    /// What the peer's newest acknowledgement promised.
    pub credits: CreditCode,
    /// A response that was passed over has been asked for again, and none has come since.
    pub response_gap: bool,
}

/// The responder's half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Responder {
    pub expected_psn: Psn,
    /// Messages completed, modulo 2^24.
    pub msn: Msn,
    /// A sequence-error NAK has gone out and nothing in order has come since.
    pub nak_outstanding: bool,
    pub min_rnr_timer: u8,
    pub max_dest_rd_atomic: u8,
    pub communication_established: bool,
    pub inbound: Inbound,
}

impl Responder {
    /// A message is complete that took so many PSNs from the expected one on, or a READ is accepted.
    pub fn message_arrived(&mut self, packets: u32) {
        self.expected_psn = self.expected_psn.add(packets);
        self.nak_outstanding = false;
        self.msn = self.msn.add(1);
        self.inbound = Inbound::None;
    }
}

/// A queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpContext {
    pub state: QpState,
    pub service: Service,
    pub pdn: Pdn,
    pub access: u32,
    pub pkey_index: u16,
    /// Datagrams: what a packet must carry.
    pub qkey: u32,
    /// 1 is 256 bytes, 5 is 4096.
    pub path_mtu: u8,
    pub dest_qpn: Qpn,
    pub av: AddressVector,
    pub requester: Requester,
    pub responder: Responder,
}

impl QpContext {
    /// A context in RESET. A datagram may be as long as the port allows.
    pub fn new(service: Service, pdn: Pdn, port_mtu_bytes: u32) -> Self {
        let longest = (1..=5).rev().find(|code| 128 << code <= port_mtu_bytes).unwrap_or(1);
        Self {
            state: QpState::Reset,
            service,
            pdn,
            access: 0,
            pkey_index: 0,
            qkey: 0,
            path_mtu: if service.is_datagram() { longest } else { 1 },
            dest_qpn: Qpn(0),
            av: AddressVector::default(),
            requester: Requester::default(),
            responder: Responder::default(),
        }
    }

    pub const fn path_mtu_bytes(&self) -> u32 {
        128 << self.path_mtu
    }

    /// Packets of a message; one for an empty message.
    pub const fn packets_of(&self, length_bytes: u32) -> u32 {
        let packets = length_bytes.div_ceil(self.path_mtu_bytes());
        if packets == 0 { 1 } else { packets }
    }
}

const INBOUND_NONE: u8 = 0;
const INBOUND_SEND: u8 = 1;
const INBOUND_WRITE: u8 = 2;

impl Image for QpContext {
    const BYTES: usize = QP_CONTEXT_BYTES as usize;

    fn encode(&self, out: &mut Writer<'_>) {
        out.u8(self.state.code());
        out.u8(self.service.code());
        out.u8(self.path_mtu);
        out.u32(self.pdn.0);
        out.u32(self.access);
        out.u16(self.pkey_index);
        out.u32(self.qkey);
        out.u32(self.dest_qpn.0);
        encode_path(&self.av, out);
        encode_requester(&self.requester, out);
        encode_responder(&self.responder, out);
    }

    fn decode(bytes: &mut Reader<'_>) -> Option<Self> {
        let (state, service) = (QpState::from_code(bytes.u8()?)?, Service::from_code(bytes.u8()?)?);
        let (path_mtu, pdn) = (bytes.u8()?, Pdn(bytes.u32()?));
        let (access, pkey_index, qkey, dest_qpn) = (bytes.u32()?, bytes.u16()?, bytes.u32()?, Qpn(number24(bytes)?));
        let av = decode_path(bytes)?;
        let requester = decode_requester(bytes)?;
        let responder = decode_responder(bytes)?;
        (1..=5).contains(&path_mtu).then_some(Self {
            state,
            service,
            pdn,
            access,
            pkey_index,
            qkey,
            path_mtu,
            dest_qpn,
            av,
            requester,
            responder,
        })
    }
}

fn number24(bytes: &mut Reader<'_>) -> Option<u32> {
    bytes.u32().filter(|number| *number <= 0xff_ffff)
}

fn psn(bytes: &mut Reader<'_>) -> Option<Psn> {
    number24(bytes).map(Psn::new)
}

fn encode_path(av: &AddressVector, out: &mut Writer<'_>) {
    out.put(&av.dest_gid);
    out.put(&av.dest_mac);
    out.u16(av.sgid_index);
    out.u32(av.flow_label);
    out.u8(av.traffic_class);
    out.u8(av.hop_limit);
    out.u8(av.service_level);
}

fn decode_path(bytes: &mut Reader<'_>) -> Option<AddressVector> {
    Some(AddressVector {
        dest_gid: bytes.take()?,
        dest_mac: bytes.take()?,
        sgid_index: bytes.u16()?,
        flow_label: bytes.u32().filter(|label| *label <= 0xf_ffff)?,
        traffic_class: bytes.u8()?,
        hop_limit: bytes.u8()?,
        service_level: bytes.u8().filter(|level| *level <= 7)?,
    })
}

fn encode_requester(half: &Requester, out: &mut Writer<'_>) {
    out.u32(half.unacked_psn.get());
    out.u32(half.send_psn.get());
    out.u32(half.fresh_psn.get());
    out.u32(half.message_count.get());
    out.u8(half.timeout);
    out.u8(half.retry_cnt);
    out.u8(half.retries_left);
    out.u8(half.rnr_retry);
    out.u8(half.rnr_retries_left);
    out.u16(half.attempt);
    out.u8(half.max_rd_atomic);
    out.u8(half.credits.code());
    out.u8(half.response_gap.into());
}

fn decode_requester(bytes: &mut Reader<'_>) -> Option<Requester> {
    let (unacked_psn, send_psn, fresh_psn) = (psn(bytes)?, psn(bytes)?, psn(bytes)?);
    Some(Requester {
        unacked_psn,
        send_psn,
        fresh_psn,
        message_count: number24(bytes).map(Msn::new)?,
        timeout: bytes.u8().filter(|timeout| *timeout < 32)?,
        retry_cnt: bytes.u8().filter(|count| *count < 8)?,
        retries_left: bytes.u8().filter(|count| *count < 8)?,
        rnr_retry: bytes.u8().filter(|count| *count < 8)?,
        rnr_retries_left: bytes.u8().filter(|count| *count < 8)?,
        attempt: bytes.u16()?,
        max_rd_atomic: bytes.u8()?,
        credits: bytes.u8().filter(|code| *code < 32).map(CreditCode::new)?,
        response_gap: bytes.flag()?,
    })
}

fn encode_responder(half: &Responder, out: &mut Writer<'_>) {
    out.u32(half.expected_psn.get());
    out.u32(half.msn.get());
    out.u8(half.nak_outstanding.into());
    out.u8(half.min_rnr_timer);
    out.u8(half.max_dest_rd_atomic);
    out.u8(half.communication_established.into());
    let (kind, address, rkey, length, received) = match half.inbound {
        Inbound::None => (INBOUND_NONE, 0, Key(0), 0, 0),
        Inbound::Send { received_bytes } => (INBOUND_SEND, 0, Key(0), 0, received_bytes),
        Inbound::Write { address, rkey, length_bytes, received_bytes } => {
            (INBOUND_WRITE, address, rkey, length_bytes, received_bytes.into())
        }
    };
    out.u8(kind);
    out.u64(address);
    out.u32(rkey.0);
    out.u32(length);
    out.u64(received);
}

fn decode_responder(bytes: &mut Reader<'_>) -> Option<Responder> {
    let (expected_psn, msn) = (psn(bytes)?, number24(bytes).map(Msn::new)?);
    let (nak_outstanding, min_rnr_timer) = (bytes.flag()?, bytes.u8().filter(|code| *code < 32)?);
    let (max_dest_rd_atomic, communication_established) = (bytes.u8()?, bytes.flag()?);
    let (kind, address, rkey) = (bytes.u8()?, bytes.u64()?, Key(bytes.u32()?));
    let (length_bytes, received_bytes) = (bytes.u32()?, bytes.u64()?);
    let inbound = match kind {
        INBOUND_NONE => Inbound::None,
        INBOUND_SEND => Inbound::Send { received_bytes: Some(received_bytes).filter(|bytes| *bytes <= 1 << 31)? },
        INBOUND_WRITE => {
            let received_bytes = u32::try_from(received_bytes).ok().filter(|received| *received <= length_bytes)?;
            Inbound::Write { address, rkey, length_bytes, received_bytes }
        }
        _ => return None,
    };
    Some(Responder {
        expected_psn,
        msn,
        nak_outstanding,
        min_rnr_timer,
        max_dest_rd_atomic,
        communication_established,
        inbound,
    })
}
