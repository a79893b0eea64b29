//! The congestion notification packet: a BTH with BECN set, then 16 reserved bytes, then the ICRC.
//!
//! In: the queue pair whose sender is to slow down. Out: the BTH; the reserved bytes are a header without a value.
//! The packet stands outside the PSN space and is never answered.

use crate::bth::Bth;
use crate::header::Header;
use crate::opcode::Opcode;
use crate::psn::Psn;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Traffic class that Mellanox adapters send it with: DSCP 48, ECT(0).
pub const TRAFFIC_CLASS: u8 = 0xc2;

/// The BTH of the notification that tells the peer's `dest_qp` about congestion on its way here.
pub const fn bth(dest_qp: u32) -> Bth {
    let mut bth = Bth::new(Opcode::CNP, dest_qp, Psn::new(0));
    bth.becn = true;
    bth
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct Layout {
    pub reserved: [u8; 16],
}

/// The reserved bytes: written as zeros, ignored when received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CnpReserved;

impl Header for CnpReserved {
    type Layout = Layout;

    #[inline(always)]
    fn to_layout(&self) -> Layout {
        Layout { reserved: [0; 16] }
    }

    #[inline(always)]
    fn from_layout(_: &Layout) -> Self {
        Self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::checks::four_header_tests! {
        CnpReserved,
        bytes: [0; 16],
        layout: Layout { reserved: [0; 16] },
        value: CnpReserved,
    }

    #[test]
    fn the_bth_is_that_of_a_hardware_capture() {
        let bytes = [0x81, 0x00, 0xff, 0xff, 0x40, 0x00, 0x01, 0x18, 0, 0, 0, 0];
        assert_eq!(Bth::parse(&bytes).unwrap().0, bth(0x118));
    }
}
