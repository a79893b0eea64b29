//! The opcode table: what each BTH opcode means, and which headers follow.
//!
//! In: the opcode byte. Out: its description, or `None` for a byte that is not (or not yet) an opcode. One row an
//! opcode; parser and builder both read the headers from here and know no opcode themselves.
//!
//! The headers of a packet stand in one order, that of the bits of [`Headers`]. XRC requests carry an XRCETH in front
//! of what RC carries; XRC responses have the headers of RC. Reliable datagrams are not in the table.

use crate::{aeth, atomic, cnp, deth, feth, ieth, immdt, reth, xrceth};

/// An opcode byte, known or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Opcode(pub u8);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    Rc,
    Uc,
    Ud,
    Cnp,
    Xrc,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    Send,
    SendImmediate,
    SendInvalidate,
    Write,
    WriteImmediate,
    ReadRequest,
    ReadResponse,
    Acknowledge,
    AtomicAcknowledge,
    CompareSwap,
    FetchAdd,
    Flush,
    AtomicWrite,
    CongestionNotification,
}

impl Operation {
    /// Whether the packet goes from responder to requester.
    pub const fn is_response(self) -> bool {
        matches!(self, Self::ReadResponse | Self::Acknowledge | Self::AtomicAcknowledge)
    }

    /// Whether bytes of a message (of an ATOMIC WRITE: its 8 bytes) follow the headers.
    pub const fn carries_payload(self) -> bool {
        use Operation::*;
        matches!(self, Send | SendImmediate | SendInvalidate | Write | WriteImmediate | ReadResponse | AtomicWrite)
    }
}

/// The packet's place in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    First,
    Middle,
    Last,
    Only,
}

impl Position {
    pub const fn starts_message(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    pub const fn ends_message(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

/// A set of headers behind the BTH; the lowest bit stands first on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers(u16);

impl Headers {
    pub const NONE: Self = Self(0);
    pub const XRCETH: Self = Self(1 << 0);
    pub const DETH: Self = Self(1 << 1);
    pub const FETH: Self = Self(1 << 2);
    pub const RETH: Self = Self(1 << 3);
    pub const AETH: Self = Self(1 << 4);
    pub const ATOMIC_ETH: Self = Self(1 << 5);
    pub const ATOMIC_ACK_ETH: Self = Self(1 << 6);
    pub const IMMDT: Self = Self(1 << 7);
    pub const IETH: Self = Self(1 << 8);
    pub const CNP_RESERVED: Self = Self(1 << 9);

    const LENGTHS: [usize; 10] = [
        size_of::<xrceth::Layout>(),
        size_of::<deth::Layout>(),
        size_of::<feth::Layout>(),
        size_of::<reth::Layout>(),
        size_of::<aeth::Layout>(),
        size_of::<atomic::Layout>(),
        size_of::<atomic::AckLayout>(),
        size_of::<immdt::Layout>(),
        size_of::<ieth::Layout>(),
        size_of::<cnp::Layout>(),
    ];

    #[inline(always)]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn length(self) -> usize {
        let (mut length, mut bit) = (0, 0);
        while bit < Self::LENGTHS.len() {
            if self.0 >> bit & 1 != 0 {
                length += Self::LENGTHS[bit];
            }
            bit += 1;
        }
        length
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpcodeDescription {
    pub opcode: Opcode,
    pub name: &'static str,
    pub transport: Transport,
    pub operation: Operation,
    pub position: Position,
    pub headers: Headers,
    /// Bytes of the headers behind the BTH.
    pub extension_length: usize,
}

impl OpcodeDescription {
    /// Bytes of the BTH and the headers behind it.
    #[inline(always)]
    pub const fn header_length(&self) -> usize {
        size_of::<crate::bth::Layout>() + self.extension_length
    }
}

macro_rules! opcodes {
    ($($name:ident = $code:literal, $transport:ident, $operation:ident, $position:ident, [$($header:ident)*];)*) => {
        impl Opcode {
            $(pub const $name: Self = Self($code);)*

            /// Every opcode of the table, in the table's order.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];
        }

        static TABLE: [Option<OpcodeDescription>; 256] = {
            let mut table = [None; 256];
            $({
                let headers = Headers::NONE$(.with(Headers::$header))*;
                table[$code] = Some(OpcodeDescription {
                    opcode: Opcode($code),
                    name: stringify!($name),
                    transport: Transport::$transport,
                    operation: Operation::$operation,
                    position: Position::$position,
                    headers,
                    extension_length: headers.length(),
                });
            })*
            table
        };
    };
}

opcodes! {
    RC_SEND_FIRST = 0x00, Rc, Send, First, [];
    RC_SEND_MIDDLE = 0x01, Rc, Send, Middle, [];
    RC_SEND_LAST = 0x02, Rc, Send, Last, [];
    RC_SEND_LAST_IMM = 0x03, Rc, SendImmediate, Last, [IMMDT];
    RC_SEND_ONLY = 0x04, Rc, Send, Only, [];
    RC_SEND_ONLY_IMM = 0x05, Rc, SendImmediate, Only, [IMMDT];
    RC_WRITE_FIRST = 0x06, Rc, Write, First, [RETH];
    RC_WRITE_MIDDLE = 0x07, Rc, Write, Middle, [];
    RC_WRITE_LAST = 0x08, Rc, Write, Last, [];
    RC_WRITE_LAST_IMM = 0x09, Rc, WriteImmediate, Last, [IMMDT];
    RC_WRITE_ONLY = 0x0a, Rc, Write, Only, [RETH];
    RC_WRITE_ONLY_IMM = 0x0b, Rc, WriteImmediate, Only, [RETH IMMDT];
    RC_READ_REQUEST = 0x0c, Rc, ReadRequest, Only, [RETH];
    RC_READ_RESPONSE_FIRST = 0x0d, Rc, ReadResponse, First, [AETH];
    RC_READ_RESPONSE_MIDDLE = 0x0e, Rc, ReadResponse, Middle, [];
    RC_READ_RESPONSE_LAST = 0x0f, Rc, ReadResponse, Last, [AETH];
    RC_READ_RESPONSE_ONLY = 0x10, Rc, ReadResponse, Only, [AETH];
    RC_ACKNOWLEDGE = 0x11, Rc, Acknowledge, Only, [AETH];
    RC_ATOMIC_ACKNOWLEDGE = 0x12, Rc, AtomicAcknowledge, Only, [AETH ATOMIC_ACK_ETH];
    RC_COMPARE_SWAP = 0x13, Rc, CompareSwap, Only, [ATOMIC_ETH];
    RC_FETCH_ADD = 0x14, Rc, FetchAdd, Only, [ATOMIC_ETH];
    RC_SEND_LAST_INVALIDATE = 0x16, Rc, SendInvalidate, Last, [IETH];
    RC_SEND_ONLY_INVALIDATE = 0x17, Rc, SendInvalidate, Only, [IETH];
    RC_FLUSH = 0x1c, Rc, Flush, Only, [FETH RETH];
    RC_ATOMIC_WRITE = 0x1d, Rc, AtomicWrite, Only, [RETH];

    UC_SEND_FIRST = 0x20, Uc, Send, First, [];
    UC_SEND_MIDDLE = 0x21, Uc, Send, Middle, [];
    UC_SEND_LAST = 0x22, Uc, Send, Last, [];
    UC_SEND_LAST_IMM = 0x23, Uc, SendImmediate, Last, [IMMDT];
    UC_SEND_ONLY = 0x24, Uc, Send, Only, [];
    UC_SEND_ONLY_IMM = 0x25, Uc, SendImmediate, Only, [IMMDT];
    UC_WRITE_FIRST = 0x26, Uc, Write, First, [RETH];
    UC_WRITE_MIDDLE = 0x27, Uc, Write, Middle, [];
    UC_WRITE_LAST = 0x28, Uc, Write, Last, [];
    UC_WRITE_LAST_IMM = 0x29, Uc, WriteImmediate, Last, [IMMDT];
    UC_WRITE_ONLY = 0x2a, Uc, Write, Only, [RETH];
    UC_WRITE_ONLY_IMM = 0x2b, Uc, WriteImmediate, Only, [RETH IMMDT];

    UD_SEND_ONLY = 0x64, Ud, Send, Only, [DETH];
    UD_SEND_ONLY_IMM = 0x65, Ud, SendImmediate, Only, [DETH IMMDT];

    CNP = 0x81, Cnp, CongestionNotification, Only, [CNP_RESERVED];

    XRC_SEND_FIRST = 0xa0, Xrc, Send, First, [XRCETH];
    XRC_SEND_MIDDLE = 0xa1, Xrc, Send, Middle, [XRCETH];
    XRC_SEND_LAST = 0xa2, Xrc, Send, Last, [XRCETH];
    XRC_SEND_LAST_IMM = 0xa3, Xrc, SendImmediate, Last, [XRCETH IMMDT];
    XRC_SEND_ONLY = 0xa4, Xrc, Send, Only, [XRCETH];
    XRC_SEND_ONLY_IMM = 0xa5, Xrc, SendImmediate, Only, [XRCETH IMMDT];
    XRC_WRITE_FIRST = 0xa6, Xrc, Write, First, [XRCETH RETH];
    XRC_WRITE_MIDDLE = 0xa7, Xrc, Write, Middle, [XRCETH];
    XRC_WRITE_LAST = 0xa8, Xrc, Write, Last, [XRCETH];
    XRC_WRITE_LAST_IMM = 0xa9, Xrc, WriteImmediate, Last, [XRCETH IMMDT];
    XRC_WRITE_ONLY = 0xaa, Xrc, Write, Only, [XRCETH RETH];
    XRC_WRITE_ONLY_IMM = 0xab, Xrc, WriteImmediate, Only, [XRCETH RETH IMMDT];
    XRC_READ_REQUEST = 0xac, Xrc, ReadRequest, Only, [XRCETH RETH];
    XRC_READ_RESPONSE_FIRST = 0xad, Xrc, ReadResponse, First, [AETH];
    XRC_READ_RESPONSE_MIDDLE = 0xae, Xrc, ReadResponse, Middle, [];
    XRC_READ_RESPONSE_LAST = 0xaf, Xrc, ReadResponse, Last, [AETH];
    XRC_READ_RESPONSE_ONLY = 0xb0, Xrc, ReadResponse, Only, [AETH];
    XRC_ACKNOWLEDGE = 0xb1, Xrc, Acknowledge, Only, [AETH];
    XRC_ATOMIC_ACKNOWLEDGE = 0xb2, Xrc, AtomicAcknowledge, Only, [AETH ATOMIC_ACK_ETH];
    XRC_COMPARE_SWAP = 0xb3, Xrc, CompareSwap, Only, [XRCETH ATOMIC_ETH];
    XRC_FETCH_ADD = 0xb4, Xrc, FetchAdd, Only, [XRCETH ATOMIC_ETH];
    XRC_SEND_LAST_INVALIDATE = 0xb6, Xrc, SendInvalidate, Last, [XRCETH IETH];
    XRC_SEND_ONLY_INVALIDATE = 0xb7, Xrc, SendInvalidate, Only, [XRCETH IETH];
}

impl Opcode {
    #[inline(always)]
    pub fn description(self) -> Option<&'static OpcodeDescription> {
        TABLE[usize::from(self.0)].as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_transports_base_and_the_operation() {
        for opcode in Opcode::ALL {
            let description = opcode.description().unwrap();
            let base = match description.transport {
                Transport::Rc => 0x00,
                Transport::Uc => 0x20,
                Transport::Ud => 0x60,
                Transport::Cnp => 0x80,
                Transport::Xrc => 0xa0,
            };
            assert_eq!(opcode.0 & 0xe0, base, "{}", description.name);
            assert_eq!(description.opcode, *opcode);
        }
        assert_eq!(Opcode::ALL.len(), 25 + 12 + 2 + 1 + 23);
        assert_eq!((0..=255).filter(|&code| Opcode(code).description().is_some()).count(), Opcode::ALL.len());
        assert_eq!(Opcode(0x15).description(), None);
    }

    #[test]
    fn the_same_operation_of_another_transport_has_the_same_headers() {
        for opcode in Opcode::ALL {
            let description = opcode.description().unwrap();
            let Some(rc) = Opcode(opcode.0 & 0x1f).description() else { continue };
            let added = match (description.transport, rc.operation.is_response()) {
                (Transport::Cnp, _) => continue,
                (Transport::Ud, _) => Headers::DETH,
                (Transport::Xrc, false) => Headers::XRCETH,
                _ => Headers::NONE,
            };
            assert_eq!(description.headers, rc.headers.with(added), "{}", description.name);
            assert_eq!((description.operation, description.position), (rc.operation, rc.position));
        }
    }

    #[test]
    fn header_lengths_as_on_the_wire() {
        let lengths = [
            (Opcode::RC_SEND_MIDDLE, 12),
            (Opcode::RC_WRITE_ONLY_IMM, 12 + 16 + 4),
            (Opcode::RC_ATOMIC_ACKNOWLEDGE, 12 + 4 + 8),
            (Opcode::RC_FETCH_ADD, 12 + 28),
            (Opcode::RC_FLUSH, 12 + 4 + 16),
            (Opcode::UD_SEND_ONLY_IMM, 12 + 8 + 4),
            (Opcode::XRC_COMPARE_SWAP, 12 + 4 + 28),
            (Opcode::CNP, 12 + 16),
        ];
        for (opcode, length) in lengths {
            assert_eq!(opcode.description().unwrap().header_length(), length, "{opcode:?}");
        }
    }
}
