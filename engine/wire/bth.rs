//! The base transport header: 12 bytes.
//!
//! In and out: opcode, flags, partition key, destination queue pair, PSN. The transport version is judged by the parser.

use crate::header::{Header, low_24};
use crate::opcode::Opcode;
use crate::psn::Psn;
use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub const DEFAULT_PARTITION_KEY: u16 = 0xffff;

const SOLICITED_EVENT: u8 = 0x80;
const MIGRATION_REQUEST: u8 = 0x40;
const PAD_SHIFT: u8 = 4;
const TRANSPORT_VERSION: u8 = 0x0f;
const FECN: u32 = 1 << 31;
const BECN: u32 = 1 << 30;
const ACK_REQ: u32 = 1 << 31;

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct Layout {
    pub opcode: u8,
    /// Solicited event 1 bit, migration request 1 bit, pad count 2 bits, transport version 4 bits.
    pub flags: u8,
    pub partition_key: U16,
    /// FECN, BECN, 6 reserved bits, destination QP number 24 bits.
    pub notification_and_dest_qp: U32,
    /// Acknowledge request, 7 reserved bits, PSN 24 bits.
    pub ack_req_and_psn: U32,
}

impl Layout {
    /// Only version 0 is defined.
    #[inline(always)]
    pub fn transport_version(&self) -> u8 {
        self.flags & TRANSPORT_VERSION
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bth {
    pub opcode: Opcode,
    pub solicited_event: bool,
    pub migration_request: bool,
    /// Zero bytes between payload and ICRC, 0 to 3. [`crate::emit`] sets it from the payload's length.
    pub pad_bytes: u8,
    pub partition_key: u16,
    pub fecn: bool,
    pub becn: bool,
    /// 24 bits.
    pub dest_qp: u32,
    pub ack_req: bool,
    pub psn: Psn,
}

impl Bth {
    /// A header with the default partition key and no flag set.
    pub const fn new(opcode: Opcode, dest_qp: u32, psn: Psn) -> Self {
        Self {
            opcode,
            solicited_event: false,
            migration_request: false,
            pad_bytes: 0,
            partition_key: DEFAULT_PARTITION_KEY,
            fecn: false,
            becn: false,
            dest_qp,
            ack_req: false,
            psn,
        }
    }
}

#[inline(always)]
fn flag(set: bool, bit: u32) -> u32 {
    if set { bit } else { 0 }
}

impl Header for Bth {
    type Layout = Layout;

    #[inline(always)]
    fn to_layout(&self) -> Layout {
        let solicited = flag(self.solicited_event, u32::from(SOLICITED_EVENT)) as u8;
        let migration = flag(self.migration_request, u32::from(MIGRATION_REQUEST)) as u8;
        let notification = flag(self.fecn, FECN) | flag(self.becn, BECN);
        Layout {
            opcode: self.opcode.0,
            flags: solicited | migration | (self.pad_bytes & 3) << PAD_SHIFT,
            partition_key: self.partition_key.into(),
            notification_and_dest_qp: (notification | low_24(self.dest_qp)).into(),
            ack_req_and_psn: (flag(self.ack_req, ACK_REQ) | self.psn.get()).into(),
        }
    }

    #[inline(always)]
    fn from_layout(layout: &Layout) -> Self {
        let notification = layout.notification_and_dest_qp.get();
        let ack_req_and_psn = layout.ack_req_and_psn.get();
        Self {
            opcode: Opcode(layout.opcode),
            solicited_event: layout.flags & SOLICITED_EVENT != 0,
            migration_request: layout.flags & MIGRATION_REQUEST != 0,
            pad_bytes: layout.flags >> PAD_SHIFT & 3,
            partition_key: layout.partition_key.get(),
            fecn: notification & FECN != 0,
            becn: notification & BECN != 0,
            dest_qp: low_24(notification),
            ack_req: ack_req_and_psn & ACK_REQ != 0,
            psn: Psn::new(ack_req_and_psn),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::checks::four_header_tests! {
        Bth,
        bytes: [0x04, 0xf0, 0xff, 0xff, 0xc0, 0xab, 0xcd, 0xef, 0x80, 0x12, 0x34, 0x56],
        layout: Layout {
            opcode: 4,
            flags: 0xf0,
            partition_key: U16::new(0xffff),
            notification_and_dest_qp: U32::new(0xc0ab_cdef),
            ack_req_and_psn: U32::new(0x8012_3456),
        },
        value: Bth {
            opcode: Opcode::RC_SEND_ONLY,
            solicited_event: true,
            migration_request: true,
            pad_bytes: 3,
            partition_key: DEFAULT_PARTITION_KEY,
            fecn: true,
            becn: true,
            dest_qp: 0xab_cdef,
            ack_req: true,
            psn: Psn::new(0x12_3456),
        },
    }

    #[test]
    fn reserved_bits_are_ignored_and_wide_values_cut() {
        let noisy = [0x04, 0x0f, 0, 0, 0x3f, 0, 0, 1, 0x7f, 0, 0, 2];
        let (bth, _) = Bth::parse(&noisy).unwrap();
        assert_eq!((bth.dest_qp, bth.psn, bth.ack_req, bth.fecn, bth.becn), (1, Psn::new(2), false, false, false));
        let wide = Bth { dest_qp: u32::MAX, pad_bytes: 0xff, ..Bth::new(Opcode::RC_SEND_ONLY, 0, Psn::new(0)) };
        let layout = wide.to_layout();
        assert_eq!((layout.flags, layout.notification_and_dest_qp.get()), (0x30, 0x00ff_ffff));
    }
}
