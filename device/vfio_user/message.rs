//! The bytes of the protocol: header, commands and the fixed part of every body.
//!
//! All fields are in the byte order of the host, as the protocol says. Each struct is the part of a message that
//! follows the 16-byte header, both ways unless its doc says otherwise; what is variable follows the struct.

use std::fmt;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Every message begins with a header of this size.
pub const HEADER_BYTES: usize = size_of::<Header>();
/// The most data one read or write may carry; offered to the client as `max_data_xfer_size`.
pub const MAX_DATA_BYTES: usize = 1 << 20;
/// The largest message either side may send: the data, a header and the fixed part of an access.
pub const MAX_MESSAGE_BYTES: usize = MAX_DATA_BYTES + HEADER_BYTES + size_of::<RegionAccess>();
/// The most file descriptors one message may bring; offered to the client as `max_msg_fds`.
pub const MAX_MESSAGE_FDS: usize = 16;

/// Bits of [`Header::flags`].
pub mod header_flags {
    /// The four bits that tell commands from replies.
    pub const TYPE: u32 = 0xf;
    pub const COMMAND: u32 = 0;
    pub const REPLY: u32 = 1;
    /// The sender of this command does not want to be answered, not even with an error.
    pub const NO_REPLY: u32 = 1 << 4;
    /// This reply says that the command failed; `error` holds the errno.
    pub const ERROR: u32 = 1 << 5;
}

/// What a message asks for. Open: a number from outside may have no name.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Command(pub u16);

macro_rules! commands {
    ($($name:ident = $number:literal;)*) => {
        impl Command {
            $(pub const $name: Self = Self($number);)*

            /// The name in the specification.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 { $($number => Some(stringify!($name)),)* _ => None }
            }
        }
    };
}

commands! {
    VERSION = 1;
    DMA_MAP = 2;
    DMA_UNMAP = 3;
    DEVICE_GET_INFO = 4;
    DEVICE_GET_REGION_INFO = 5;
    DEVICE_GET_REGION_IO_FDS = 6;
    DEVICE_GET_IRQ_INFO = 7;
    DEVICE_SET_IRQS = 8;
    REGION_READ = 9;
    REGION_WRITE = 10;
    DMA_READ = 11;
    DMA_WRITE = 12;
    DEVICE_RESET = 13;
    DIRTY_PAGES = 14;
    REGION_WRITE_MULTI = 15;
    DEVICE_FEATURE = 16;
    MIG_DATA_READ = 17;
    MIG_DATA_WRITE = 18;
}

impl Command {
    /// File descriptors may come with this command.
    pub const fn takes_fds(self) -> bool {
        matches!(self, Self::DMA_MAP | Self::DEVICE_SET_IRQS)
    }

    /// The command has an effect besides its reply, so sending it with NO_REPLY makes sense.
    pub const fn may_be_posted(self) -> bool {
        matches!(
            self,
            Self::DMA_MAP
                | Self::DMA_UNMAP
                | Self::DEVICE_SET_IRQS
                | Self::REGION_WRITE
                | Self::REGION_WRITE_MULTI
                | Self::DEVICE_RESET
        )
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "command {}", self.0),
        }
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What every message begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    /// The sender's, echoed in the reply; the receiver must not expect it to be unique.
    pub message_id: u16,
    pub command: u16,
    /// Of the whole message, this header included.
    pub size_bytes: u32,
    pub flags: u32,
    pub error: u32,
}

impl Header {
    pub const fn command(&self) -> Command {
        Command(self.command)
    }

    pub const fn is_reply(&self) -> bool {
        self.flags & header_flags::TYPE == header_flags::REPLY
    }

    pub const fn is_command(&self) -> bool {
        self.flags & header_flags::TYPE == header_flags::COMMAND
    }

    pub const fn no_reply(&self) -> bool {
        self.flags & header_flags::NO_REPLY != 0
    }
}

/// VERSION; NUL-terminated JSON follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Version {
    pub major: u16,
    pub minor: u16,
}

/// DMA_MAP. The reply is a header alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DmaMap {
    pub argsz: u32,
    pub flags: u32,
    /// In the file that came with the message.
    pub offset: u64,
    pub address: u64,
    pub size: u64,
}

/// DMA_UNMAP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DmaUnmap {
    pub argsz: u32,
    pub flags: u32,
    pub address: u64,
    pub size: u64,
}

/// Bits of [`DmaUnmap::flags`], as the kernel and QEMU number them (the public crate shifts both by one).
pub mod dma_unmap_flags {
    pub const GET_DIRTY_BITMAP: u32 = 1 << 0;
    pub const UNMAP_ALL: u32 = 1 << 1;
}

/// DEVICE_GET_INFO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DeviceInfo {
    pub argsz: u32,
    pub flags: u32,
    pub num_regions: u32,
    pub num_irqs: u32,
}

/// DEVICE_GET_REGION_INFO; capabilities may follow in the reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RegionInfo {
    pub argsz: u32,
    pub flags: u32,
    pub index: u32,
    pub cap_offset: u32,
    pub size: u64,
    pub offset: u64,
}

/// The capability that lists the mappable areas of a region; the areas follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SparseMmapCapability {
    pub id: u16,
    pub version: u16,
    pub next: u32,
    pub nr_areas: u32,
    pub reserved: u32,
}

/// One mappable area of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SparseMmapArea {
    pub offset: u64,
    pub size: u64,
}

/// DEVICE_GET_IRQ_INFO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct IrqInfoMessage {
    pub argsz: u32,
    pub flags: u32,
    pub index: u32,
    pub count: u32,
}

/// DEVICE_SET_IRQS; one byte per interrupt follows with DATA_BOOL. The reply is a header alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SetIrqs {
    pub argsz: u32,
    pub flags: u32,
    pub index: u32,
    pub start: u32,
    pub count: u32,
}

/// REGION_READ, whose reply carries the data, and REGION_WRITE, whose request does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RegionAccess {
    pub offset: u64,
    pub region: u32,
    pub count: u32,
}

/// REGION_WRITE_MULTI: this many [`MultiWrite`]s follow in the request, none in the reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct WriteMulti {
    pub write_count: u64,
}

/// One write of at most 8 bytes in a REGION_WRITE_MULTI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct MultiWrite {
    pub access: RegionAccess,
    pub data: [u8; 8],
}

/// DMA_READ, whose reply carries the data, and DMA_WRITE, whose request does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DmaAccess {
    pub address: u64,
    pub count: u64,
}

const _: () = {
    assert!(size_of::<Header>() == 16);
    assert!(size_of::<DmaMap>() == 32);
    assert!(size_of::<DmaUnmap>() == 24);
    assert!(size_of::<DeviceInfo>() == 16);
    assert!(size_of::<RegionInfo>() == 32);
    assert!(size_of::<SparseMmapCapability>() == 16);
    assert!(size_of::<IrqInfoMessage>() == 16);
    assert!(size_of::<SetIrqs>() == 20);
    assert!(size_of::<RegionAccess>() == 16);
    assert!(size_of::<MultiWrite>() == 24);
    assert!(size_of::<DmaAccess>() == 16);
};
