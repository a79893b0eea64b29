//! The acknowledge extended transport header: 4 bytes, a syndrome and the message sequence number.
//!
//! In: the syndrome byte. Out: what it says, as a type; and the tables behind its codes: credits and RNR timers.
//! Every byte has a meaning here (undefined ones are `Reserved` or an unknown NAK code), so that none is lost.

use crate::header::Header;
use crate::psn::Msn;
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const CODE: u8 = 0x1f;

/// Receive requests that credit codes 0 to 30 promise.
const CREDITS: [u16; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144,
    8192, 12288, 16384, 24576, 32768,
];

/// Delays of RNR timer codes 0 to 31, in units of 10 microseconds.
const RNR_DELAY_10_US: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
    6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// How many receive requests the responder has posted, 5 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditCode(u8);

impl Default for CreditCode {
    fn default() -> Self {
        Self::NONE
    }
}

impl CreditCode {
    /// No credit information: always sent by a responder that takes its receives from a shared queue.
    pub const NONE: Self = Self(0x1f);

    /// The low 5 bits of `code`.
    pub const fn new(code: u8) -> Self {
        Self(code & CODE)
    }

    pub const fn code(self) -> u8 {
        self.0
    }

    /// The largest code that promises no more than `posted` receive requests.
    pub fn at_most(posted: u32) -> Self {
        let codes = CREDITS.partition_point(|&credits| u32::from(credits) <= posted);
        // Code 0 promises nothing, so there is always one.
        Self(codes as u8 - 1)
    }

    /// The receive requests promised, or `None` without credit information.
    pub fn credits(self) -> Option<u32> {
        CREDITS.get(usize::from(self.0)).map(|&credits| u32::from(credits))
    }
}

/// How long a requester waits before it tries again after an RNR NAK, 5 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RnrTimer(u8);

impl RnrTimer {
    /// The low 5 bits of `code`.
    pub const fn new(code: u8) -> Self {
        Self(code & CODE)
    }

    pub const fn code(self) -> u8 {
        self.0
    }

    /// The shortest delay the code allows. Code 0 is the longest of all: 655.36 ms.
    pub const fn delay_ns(self) -> u64 {
        RNR_DELAY_10_US[(self.0 & CODE) as usize] as u64 * 10_000
    }
}

/// Why a request was refused, 5 bits; codes that are not named here are kept as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NakCode(u8);

impl NakCode {
    pub const PSN_SEQUENCE_ERROR: Self = Self(0);
    pub const INVALID_REQUEST: Self = Self(1);
    pub const REMOTE_ACCESS_ERROR: Self = Self(2);
    pub const REMOTE_OPERATIONAL_ERROR: Self = Self(3);
    pub const INVALID_RD_REQUEST: Self = Self(4);

    /// The low 5 bits of `code`.
    pub const fn new(code: u8) -> Self {
        Self(code & CODE)
    }

    pub const fn code(self) -> u8 {
        self.0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    Ack {
        credits: CreditCode,
    },
    RnrNak {
        timer: RnrTimer,
    },
    Nak {
        code: NakCode,
    },
    /// A byte whose top three bits have no meaning yet.
    Reserved(u8),
}

impl Syndrome {
    #[inline(always)]
    pub const fn from_byte(byte: u8) -> Self {
        match byte >> 5 {
            0b000 => Self::Ack { credits: CreditCode::new(byte) },
            0b001 => Self::RnrNak { timer: RnrTimer::new(byte) },
            0b011 => Self::Nak { code: NakCode::new(byte) },
            _ => Self::Reserved(byte),
        }
    }

    #[inline(always)]
    pub const fn to_byte(self) -> u8 {
        match self {
            Self::Ack { credits } => credits.0,
            Self::RnrNak { timer } => 0b001 << 5 | timer.0,
            Self::Nak { code } => 0b011 << 5 | code.0,
            Self::Reserved(byte) => byte,
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
pub struct Layout {
    /// Syndrome 8 bits, MSN 24 bits.
    pub syndrome_and_msn: U32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    pub syndrome: Syndrome,
    pub msn: Msn,
}

impl Default for Aeth {
    fn default() -> Self {
        Self { syndrome: Syndrome::Ack { credits: CreditCode::NONE }, msn: Msn::new(0) }
    }
}

impl Header for Aeth {
    type Layout = Layout;

    #[inline(always)]
    fn to_layout(&self) -> Layout {
        Layout { syndrome_and_msn: (u32::from(self.syndrome.to_byte()) << 24 | self.msn.get()).into() }
    }

    #[inline(always)]
    fn from_layout(layout: &Layout) -> Self {
        let word = layout.syndrome_and_msn.get();
        Self { syndrome: Syndrome::from_byte((word >> 24) as u8), msn: Msn::new(word) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::checks::four_header_tests! {
        Aeth,
        bytes: [0x60, 0x12, 0x34, 0x56],
        layout: Layout { syndrome_and_msn: U32::new(0x6012_3456) },
        value: Aeth { syndrome: Syndrome::Nak { code: NakCode::PSN_SEQUENCE_ERROR }, msn: Msn::new(0x12_3456) },
    }

    #[test]
    fn every_syndrome_byte_comes_back() {
        for byte in 0..=255 {
            assert_eq!(Syndrome::from_byte(byte).to_byte(), byte);
        }
        assert_eq!(Syndrome::from_byte(0x2c), Syndrome::RnrNak { timer: RnrTimer::new(12) });
        assert_eq!(Syndrome::from_byte(0x62), Syndrome::Nak { code: NakCode::REMOTE_ACCESS_ERROR });
        assert_eq!(Syndrome::from_byte(0x1f), Syndrome::Ack { credits: CreditCode::NONE });
        assert_eq!(Syndrome::from_byte(0x45), Syndrome::Reserved(0x45));
    }

    #[test]
    fn credits_never_promise_more_than_is_posted() {
        for posted in 0..=40_000 {
            let code = CreditCode::at_most(posted);
            assert!(code.credits().unwrap() <= posted);
            let more = CreditCode::new(code.code() + 1);
            assert!(more.credits().is_none_or(|credits| credits > posted), "{posted} posted, code {code:?}");
        }
        assert_eq!(CreditCode::at_most(u32::MAX).credits(), Some(32768));
        assert_eq!((CreditCode::at_most(5).code(), CreditCode::at_most(6).code()), (4, 5));
        assert_eq!(CreditCode::NONE.credits(), None);
    }

    #[test]
    fn rnr_delays_as_the_enumeration_names_them() {
        let milliseconds = [(0, 655.36), (1, 0.01), (12, 0.64), (15, 1.92), (25, 61.44), (31, 491.52)];
        for (code, expected) in milliseconds {
            assert_eq!(RnrTimer::new(code).delay_ns(), (expected * 1e6f64).round() as u64, "code {code}");
        }
        for code in 1..31 {
            assert!(RnrTimer::new(code).delay_ns() < RnrTimer::new(code + 1).delay_ns());
        }
    }
}
