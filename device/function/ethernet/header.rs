//! The header in front of each frame in a buffer of the driver's.

use std::mem::offset_of;
use virtio_bindings::virtio_net::{VIRTIO_NET_HDR_F_DATA_VALID, VIRTIO_NET_HDR_F_NEEDS_CSUM, virtio_net_hdr_v1};

/// Its size, whatever was negotiated: the interface is a modern one.
pub const HEADER_BYTES: usize = size_of::<virtio_net_hdr_v1>();

/// Where the checksum's start and offset are: they begin the header's union.
const CSUM_START: usize = offset_of!(virtio_net_hdr_v1, __bindgen_anon_1);
const CSUM_OFFSET: usize = CSUM_START + 2;

/// What the driver asks for a frame that it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentHeader {
    /// Where the checksum's bytes begin, and where from there it goes.
    pub checksum: Option<(usize, usize)>,
    /// The frame is to be cut into several. Never offered, so never right.
    pub is_segmented: bool,
}

impl SentHeader {
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Self {
        let word = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        let needs = u32::from(bytes[offset_of!(virtio_net_hdr_v1, flags)]) & VIRTIO_NET_HDR_F_NEEDS_CSUM != 0;
        Self {
            checksum: needs.then(|| (word(CSUM_START), word(CSUM_OFFSET))),
            is_segmented: bytes[offset_of!(virtio_net_hdr_v1, gso_type)] != 0,
        }
    }
}

/// The header of a frame that the driver gets.
pub fn received(checksum_is_right: bool, buffers: u16) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    if checksum_is_right {
        bytes[offset_of!(virtio_net_hdr_v1, flags)] = VIRTIO_NET_HDR_F_DATA_VALID as u8;
    }
    let at = offset_of!(virtio_net_hdr_v1, num_buffers);
    bytes[at..at + 2].copy_from_slice(&buffers.to_le_bytes());
    bytes
}
