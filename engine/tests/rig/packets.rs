//! Packets: those that were carried, read back; and those that a peer of ours would never send.

use super::Host;
use super::driver::gid;
use rnic_wire::*;

/// A packet as it was on the wire.
#[derive(Clone, Debug, PartialEq)]
pub struct Carried {
    pub from: char,
    pub opcode: Opcode,
    pub dest_qp: u32,
    /// Of its XRCETH, zero without one.
    pub srqn: u32,
    pub psn: u32,
    pub ack_req: bool,
    pub solicited: bool,
    /// An acknowledgement's is 0x1f, whatever it promises.
    pub syndrome: u8,
    /// Receives that it promises.
    pub credits: Option<u32>,
    pub msn: u32,
    /// Address, key and length of its RETH, zero without one.
    pub range: (u64, u32, u32),
    /// What an atomic's response carries.
    pub original: u64,
    pub payload: Vec<u8>,
    /// It was lost on its way.
    pub lost: bool,
}

impl Carried {
    pub fn new(from: char, bytes: &[u8], lost: bool) -> Self {
        let packet = parse(bytes, IcrcCheck::Verify).expect("the engine sends packets that can be parsed");
        let bth = &packet.headers.bth;
        let reth = &packet.headers.extension.reth;
        let (syndrome, credits) = match packet.headers.extension.aeth.syndrome {
            Syndrome::Ack { credits } => (0x1f, credits.credits()),
            refusal => (refusal.to_byte(), None),
        };
        Self {
            from,
            opcode: bth.opcode,
            dest_qp: bth.dest_qp,
            srqn: packet.headers.extension.xrceth.srq_number,
            psn: bth.psn.get(),
            ack_req: bth.ack_req,
            solicited: bth.solicited_event,
            syndrome,
            credits,
            msn: packet.headers.extension.aeth.msn.get(),
            range: (reth.virtual_address, reth.remote_key, reth.dma_length),
            original: packet.headers.extension.atomic_ack.original,
            payload: packet.payload.to_vec(),
            lost,
        }
    }

    pub fn is_ack(&self) -> bool {
        matches!(self.opcode, Opcode::RC_ACKNOWLEDGE | Opcode::XRC_ACKNOWLEDGE)
    }
}

/// A packet of the test's own, to `to`'s first queue pair.
#[derive(Clone, Debug)]
pub struct Forged {
    pub headers: RoceHeaders,
    pub payload: Vec<u8>,
}

impl Forged {
    /// As if from the peer at `from`.
    pub fn new(to: &Host, from: [u8; 4], opcode: Opcode, psn: u32, payload: &[u8]) -> Self {
        let network =
            Network::V4 { source: from.into(), dest: to.ip.into(), traffic_class: 0, ttl: 64, identification: 0 };
        assert_eq!(network.dest_gid().0, gid(to.ip));
        let link = LinkHeaders { source_mac: [2; 6], dest_mac: [2, 0, 0, 0, 0, to.ip[3]], vlan: None };
        let bth = Bth { ack_req: true, ..Bth::new(opcode, to.qpn, Psn::new(psn)) };
        let headers = RoceHeaders { link, network, udp_source_port: 0xc000, bth, extension: Extension::default() };
        Self { headers, payload: payload.to_vec() }
    }

    pub fn reth(mut self, address: u64, key: u32, length: u32) -> Self {
        self.headers.extension.reth = Reth { virtual_address: address, remote_key: key, dma_length: length };
        self
    }

    pub fn atomic(mut self, address: u64, key: u32, swap_or_add: u64, compare: u64) -> Self {
        let (virtual_address, remote_key) = (address, key);
        self.headers.extension.atomic_eth = AtomicEth { virtual_address, remote_key, swap_or_add, compare };
        self
    }

    pub fn flush(mut self, placement_type: u8, selectivity: u8) -> Self {
        self.headers.extension.feth = Feth { placement_type, selectivity };
        self
    }

    pub fn srqn(mut self, srq_number: u32) -> Self {
        self.headers.extension.xrceth = XrcEth { srq_number };
        self
    }

    pub fn original(mut self, original: u64) -> Self {
        self.headers.extension.atomic_ack = AtomicAckEth { original };
        self
    }

    pub fn aeth(mut self, syndrome: u8, msn: u32) -> Self {
        self.headers.extension.aeth = Aeth { syndrome: Syndrome::from_byte(syndrome), msn: Msn::new(msn) };
        self
    }

    pub fn frame(&self) -> Frame {
        let mut frame = Frame::new();
        let at = emit(&self.headers, self.payload.len(), &mut frame);
        frame.bytes_mut()[at].copy_from_slice(&self.payload);
        frame.seal();
        frame
    }
}
