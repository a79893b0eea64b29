//! The checkers' own reading of a frame: nothing of the engine's or the wire crate's parsing is used, so that an
//! error there does not hide itself.

/// A RoCEv2 packet with right lengths: RC, UC and UD with their extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    pub dest_mac: [u8; 6],
    pub source: [u8; 16],
    pub dest: [u8; 16],
    pub source_port: u16,
    /// Without the transport, where it is extended.
    pub opcode: u8,
    pub extended: bool,
    /// Of an extended request: the shared receive queue.
    pub queue: Option<u32>,
    pub solicited: bool,
    pub pad_bytes: usize,
    pub version: u8,
    pub pkey: u16,
    pub dest_qp: u32,
    pub ack_req: bool,
    pub psn: u32,
    pub reth: Option<(u64, u32, u32)>,
    /// What a FLUSH asks for.
    pub feth: Option<u32>,
    /// Syndrome and MSN.
    pub aeth: Option<(u8, u32)>,
    pub immediate: Option<u32>,
    /// The key that a SEND takes out of use.
    pub invalidates: Option<u32>,
    /// Of a datagram: its Q_Key and its sender's queue pair.
    pub deth: Option<(u32, u32)>,
    /// Address, rkey, swap or add, compare.
    pub atomic: Option<(u64, u32, u64, u64)>,
    /// What an atomic found.
    pub original: Option<u64>,
    /// Without pad and ICRC.
    pub payload: &'a [u8],
    /// From the IP header on, ICRC included.
    datagram: &'a [u8],
    bth_at: usize,
}

pub const ACKNOWLEDGE: u8 = 0x11;
pub const FLUSH: u8 = 0x1c;
pub const ATOMIC_WRITE: u8 = 0x1d;
/// Bits of an opcode that name the transport; and the transports without acknowledgements.
pub const TRANSPORT: u8 = 0xe0;
pub const UC: u8 = 0x20;
pub const UD: u8 = 0x60;
/// The extended one; its packets are those of a reliable connection, and requests name a queue.
const XRC: u8 = 0xa0;
/// The network header in front of a datagram in its receive buffer.
pub const HEADER_BYTES: usize = 40;
const ROCE_PORT: u16 = 4791;

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn be64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

impl<'a> Packet<'a> {
    /// Reads a frame; `None` for what is no RoCEv2 packet, or has a length that is not its own.
    pub fn read(frame: &'a [u8]) -> Option<Self> {
        let tag = if be16(frame, 12)? == 0x8100 { 4 } else { 0 };
        let ip = frame.get(14 + tag..)?;
        let (source, dest, udp_at, length) = match (be16(frame, 12 + tag)?, ip.first()?) {
            (0x0800, 0x45) => {
                (mapped(ip.get(12..16)?), mapped(ip.get(16..20)?), 20, usize::from(be16(ip, 2)?).checked_sub(20)?)
            }
            (0x86dd, 0x60..=0x6f) => {
                let gid = |at: usize| <[u8; 16]>::try_from(ip.get(at..at + 16)?).ok();
                (gid(8)?, gid(24)?, 40, usize::from(be16(ip, 4)?))
            }
            _ => return None,
        };
        let protocol = if udp_at == 20 { ip[9] } else { ip[6] };
        if protocol != 17 || be16(ip, udp_at + 2)? != ROCE_PORT || usize::from(be16(ip, udp_at + 4)?) != length {
            return None;
        }
        let datagram = ip.get(..udp_at + length)?;
        let mut packet = Self {
            dest_mac: frame.get(..6)?.try_into().ok()?,
            source,
            dest,
            source_port: be16(ip, udp_at)?,
            opcode: 0,
            extended: false,
            queue: None,
            solicited: false,
            pad_bytes: 0,
            version: 0,
            pkey: 0,
            dest_qp: 0,
            ack_req: false,
            psn: 0,
            reth: None,
            feth: None,
            aeth: None,
            immediate: None,
            invalidates: None,
            deth: None,
            atomic: None,
            original: None,
            payload: &[],
            datagram,
            bth_at: udp_at + 8,
        };
        packet.read_transport(datagram.get(udp_at + 8..datagram.len().checked_sub(4)?)?)?;
        Some(packet)
    }

    fn read_transport(&mut self, bth: &'a [u8]) -> Option<()> {
        self.opcode = *bth.first()?;
        self.solicited = bth[1] & 0x80 != 0;
        self.pad_bytes = usize::from(bth[1] >> 4 & 3);
        self.version = bth[1] & 0xf;
        self.pkey = be16(bth, 2)?;
        self.dest_qp = be32(bth, 4)? & 0xff_ffff;
        self.ack_req = *bth.get(8)? & 0x80 != 0;
        self.psn = be32(bth, 8)? & 0xff_ffff;
        let mut at = 12;
        if self.opcode & TRANSPORT == XRC {
            (self.extended, self.opcode) = (true, self.opcode & !TRANSPORT);
            if !self.is_response() {
                self.queue = Some(be32(bth, at)? & 0xff_ffff);
                at += 4;
            }
        }
        let (reth, aeth, immediate) = extensions(self.opcode);
        if self.opcode & TRANSPORT == UD {
            self.deth = Some((be32(bth, at)?, be32(bth, at + 4)? & 0xff_ffff));
            at += 8;
        }
        if self.opcode == FLUSH {
            self.feth = Some(be32(bth, at)?);
            at += 4;
        }
        if reth {
            self.reth = Some((be64(bth, at)?, be32(bth, at + 8)?, be32(bth, at + 12)?));
            at += 16;
        }
        if aeth {
            let word = be32(bth, at)?;
            self.aeth = Some(((word >> 24) as u8, word & 0xff_ffff));
            at += 4;
        }
        if matches!(self.opcode, 0x13 | 0x14) {
            self.atomic = Some((be64(bth, at)?, be32(bth, at + 8)?, be64(bth, at + 12)?, be64(bth, at + 20)?));
            at += 28;
        }
        if self.opcode == 0x12 {
            self.original = Some(be64(bth, at)?);
            at += 8;
        }
        if immediate {
            self.immediate = Some(be32(bth, at)?);
            at += 4;
        }
        if matches!(self.opcode, 0x16 | 0x17) {
            self.invalidates = Some(be32(bth, at)?);
            at += 4;
        }
        self.payload = bth.get(at..bth.len().checked_sub(self.pad_bytes)?)?;
        Some(())
    }

    /// What a receive buffer begins with: an IPv6 header, or 20 bytes of zeros and an IPv4 header.
    pub fn network_header(&self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        let length = self.bth_at - 8;
        header[HEADER_BYTES - length..].copy_from_slice(&self.datagram[..length]);
        header
    }

    /// Nothing answers it.
    pub fn is_unreliable(&self) -> bool {
        matches!(self.opcode & TRANSPORT, UC | UD)
    }

    pub fn is_response(&self) -> bool {
        matches!(self.opcode, 0x0d..=0x12)
    }

    /// Whether the ICRC and, for IPv4, the header checksum fit.
    pub fn is_intact(&self) -> bool {
        let (covered, field) = self.datagram.split_at(self.datagram.len() - 4);
        let mut masked = vec![0xff; 8];
        masked.extend_from_slice(covered);
        let ip = &mut masked[8..];
        if self.bth_at == 28 {
            let sum: u32 = (0..20).step_by(2).map(|at| u32::from(be16(ip, at).unwrap_or(0))).sum();
            if (sum & 0xffff) + (sum >> 16) != 0xffff {
                return false;
            }
            (ip[1], ip[8], ip[10], ip[11]) = (0xff, 0xff, 0xff, 0xff);
        } else {
            ip[0] |= 0x0f;
            (ip[1], ip[2], ip[3], ip[7]) = (0xff, 0xff, 0xff, 0xff);
        }
        (ip[self.bth_at - 2], ip[self.bth_at - 1], ip[self.bth_at + 4]) = (0xff, 0xff, 0xff);
        crc32fast::hash(&masked).to_le_bytes() == *field
    }
}

/// An IPv4 address as a GID.
fn mapped(ip: &[u8]) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[10..12].fill(0xff);
    gid[12..].copy_from_slice(ip);
    gid
}

/// RETH, AETH, immediate data.
fn extensions(opcode: u8) -> (bool, bool, bool) {
    // A transport of its own has SEND and WRITE at the same places.
    let opcode = if matches!(opcode & TRANSPORT, UC | UD) { opcode & !TRANSPORT } else { opcode };
    let reth = matches!(opcode, 0x06 | 0x0a | 0x0b | 0x0c | FLUSH | ATOMIC_WRITE);
    let aeth = matches!(opcode, 0x0d | 0x0f | 0x10 | 0x11 | 0x12);
    (reth, aeth, matches!(opcode, 0x03 | 0x05 | 0x09 | 0x0b))
}

/// How far `a` is ahead of `b` in the space of 24 bits; negative when it is behind.
pub fn ahead(a: u32, b: u32) -> i32 {
    ((a.wrapping_sub(b) << 8) as i32) >> 8
}

/// `psn` and `steps` more.
pub fn step(psn: u32, steps: u32) -> u32 {
    psn.wrapping_add(steps) & 0xff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A WRITE_ONLY of 8 bytes that two other implementations agree on (scapy among them).
    const WRITE_ONLY: &str = "4502004400014000401126a40a0000010a000002c0de12b7003000000a40ffff00000011801234560000\
                              7f001122334400abcd01000000080001020304050607aca89e14";

    fn frame() -> Vec<u8> {
        let hex: Vec<u8> = WRITE_ONLY.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        let ip = hex.chunks(2).map(byte);
        [0; 12].into_iter().chain([8, 0]).chain(ip).collect()
    }

    #[test]
    fn a_known_packet_is_read_and_intact_and_no_flip_of_a_covered_bit_passes() {
        let bytes = frame();
        let packet = Packet::read(&bytes).unwrap();
        assert_eq!((packet.opcode, packet.dest_qp, packet.psn, packet.ack_req), (0x0a, 0x11, 0x12_3456, true));
        assert_eq!(packet.reth, Some((0x7f00_1122_3344, 0x00ab_cd01, 8)));
        assert_eq!((packet.payload, packet.source[15], packet.dest[15]), (&[0, 1, 2, 3, 4, 5, 6, 7][..], 1, 2));
        assert!(packet.is_intact());
        let uncovered = |bit: usize| matches!(bit / 8, 40 | 41 | 46);
        for bit in 14 * 8..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let intact = Packet::read(&flipped).is_some_and(|packet| packet.is_intact());
            assert_eq!(intact, uncovered(bit), "bit {bit}");
        }
    }

    #[test]
    fn psns_compare_in_half_the_space() {
        assert_eq!((ahead(0, 0xff_ffff), ahead(0xff_ffff, 0), ahead(5, 5)), (1, -1, 0));
        assert_eq!((ahead(0x7f_ffff, 0), ahead(0x80_0000, 0)), (0x7f_ffff, -0x80_0000));
        assert_eq!(step(0xff_fffe, 3), 1);
    }
}
