//! The vfio-user messages this client sends and takes, as bytes. Host byte order, as the protocol says.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub const VERSION: u16 = 1;
pub const DMA_MAP: u16 = 2;
pub const DEVICE_GET_INFO: u16 = 4;
pub const DEVICE_GET_REGION_INFO: u16 = 5;
pub const DEVICE_GET_IRQ_INFO: u16 = 7;
pub const DEVICE_SET_IRQS: u16 = 8;
pub const REGION_READ: u16 = 9;
pub const REGION_WRITE: u16 = 10;
pub const DMA_READ: u16 = 11;
pub const DMA_WRITE: u16 = 12;
pub const DEVICE_RESET: u16 = 13;

pub const FLAGS_TYPE: u32 = 0xf;
pub const FLAGS_REPLY: u32 = 1;
pub const FLAGS_NO_REPLY: u32 = 1 << 4;
pub const FLAGS_ERROR: u32 = 1 << 5;

pub const HEADER_BYTES: usize = size_of::<Header>();
/// The most data of one access, as offered in VERSION.
pub const MAX_DATA_BYTES: usize = 1 << 20;
/// A message longer than this loses the stream.
pub const MAX_MESSAGE_BYTES: usize = MAX_DATA_BYTES + 64;

pub const REGION_CONFIG: u32 = 7;
pub const IRQ_MSIX: u32 = 2;
pub const DMA_MAP_READ_WRITE: u32 = 3;
/// SET_IRQS: eventfds come along and are the action's triggers.
pub const SET_IRQS_EVENTFD_TRIGGER: u32 = 0x24;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    pub message_id: u16,
    pub command: u16,
    /// Of the whole message.
    pub size_bytes: u32,
    pub flags: u32,
    pub errno: u32,
}

#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DmaMap {
    pub argsz: u32,
    pub flags: u32,
    pub file_offset: u64,
    pub iova: u64,
    pub length_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DeviceInfo {
    pub argsz: u32,
    pub flags: u32,
    pub regions: u32,
    pub irqs: u32,
}

#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RegionInfo {
    pub argsz: u32,
    pub flags: u32,
    pub index: u32,
    pub capability_offset: u32,
    pub size_bytes: u64,
    pub file_offset: u64,
}

#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct IrqInfo {
    pub argsz: u32,
    pub flags: u32,
    pub index: u32,
    pub count: u32,
}

#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SetIrqs {
    pub argsz: u32,
    pub flags: u32,
    pub index: u32,
    pub start: u32,
    pub count: u32,
}

/// REGION_READ and REGION_WRITE; data follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RegionAccess {
    pub offset: u64,
    pub region: u32,
    pub count: u32,
}

/// DMA_READ and DMA_WRITE; data follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DmaAccess {
    pub iova: u64,
    pub count: u64,
}

/// VERSION 0.0 with what this client offers.
pub fn version_body() -> Vec<u8> {
    let capabilities = serde_json::json!({
        "capabilities": { "max_msg_fds": 16, "max_data_xfer_size": MAX_DATA_BYTES, "pgsizes": 4096 }
    });
    let mut body = vec![0; 4];
    body.extend_from_slice(capabilities.to_string().as_bytes());
    body.push(0);
    body
}
