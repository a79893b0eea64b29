//! Send and receive work queue entries.
//!
//! A send WQE is 16-byte segments in 64-byte slots, at most `MAX_WQE_SLOTS`: a control segment, a remote segment
//! for whatever names memory of the peer, an atomic segment for CMP_SWAP and FETCH_ADD, a flush segment for FLUSH, on a datagram queue pair a datagram segment instead of
//! both, on an XRC initiator an XRC segment in front of them, then either data segments or, with `WQE_INLINE`, the bytes themselves. A receive WQE is data segments only; its
//! stride is given at creation, a data segment of length 0 ends it early.

use crate::PageListFields;
use crate::command::AddressVector;
use zerocopy::little_endian::{U16, U32, U64};

open_code! {
    /// What a send work request asks for. Zero is never an opcode: it marks a plain doorbell.
    WorkOpcode {
        SEND = 0x01,
        SEND_IMM = 0x02,
        SEND_INV = 0x03,
        WRITE = 0x04,
        WRITE_IMM = 0x05,
        READ = 0x08,
        /// Ends when what was written before is where it asks for.
        FLUSH = 0x09,
        CMP_SWAP = 0x0a,
        FETCH_ADD = 0x0b,
        /// Eight bytes that appear at once.
        ATOMIC_WRITE = 0x0c,
        /// Without packets: takes a key of this side out of use.
        LOCAL_INV = 0x10,
        /// Without packets: gives a fast region its memory.
        REG_MR = 0x11,
        /// Without packets: opens a window on a region.
        BIND_MW = 0x12,
    }
}

structure! {
    /// The first segment. Its first 8 bytes have the shape of a doorbell, so that a torn line still names its work.
    ControlSegment, 16 {
        /// `WorkOpcode`.
        opcode: u8,
        /// The queue's own number, 24 bits.
        qpn: [u8; 3],
        /// Ring index of the WQE's first slot, free-running modulo 2^16.
        slot_index: U16,
        /// Length of the WQE in 16-byte segments, this one included; inline bytes are rounded up.
        segments: u8,
        /// `WQE_*` flags.
        flags: u8,
        /// Immediate data, as a number; on the wire it is big-endian. Of SEND_INV the peer's key, of LOCAL_INV the own
        /// key that is invalidated, of REG_MR and BIND_MW the key from now on.
        immediate: U32,
        /// Bytes of inline data; zero without `WQE_INLINE`.
        inline_bytes: U16,
        reserved: U16,
    }
}

structure! {
    /// Where an RDMA operation acts on the remote side.
    RemoteSegment, 16 {
        address: U64,
        rkey: U32,
        reserved: U32,
    }
}

structure! {
    /// The operands of an atomic, as numbers; on the wire they are big-endian.
    AtomicSegment, 16 {
        /// CMP_SWAP: what is stored where the comparison holds. FETCH_ADD: what is added.
        swap_or_add: U64,
        /// CMP_SWAP: what must be there. FETCH_ADD: zero.
        compare: U64,
    }
}

structure! {
    /// What a FLUSH makes sure of: a segment behind the remote one.
    FlushSegment, 16 {
        /// Bytes of the range; with FLUSH_REGION the key's memory as a whole, and zero here.
        length_bytes: U32,
        /// `FLUSH_*`.
        placement: U32,
        reserved: U64,
    }
}

structure! {
    /// Where a datagram goes: three segments behind the control segment of every send on a datagram queue pair.
    DatagramSegment, 48 {
        av: AddressVector,
        /// 24 bits; `MULTICAST_QPN` to a group.
        dest_qpn: U32,
        /// With `QKEY_PRIVILEGED` the queue pair's own is sent.
        qkey: U32,
        /// GSI: index of the packet's P_Key. UD: zero, the queue pair's own is used.
        pkey_index: U16,
        reserved: U16,
    }
}

structure! {
    /// Whose receives and memory a request on an XRC initiator is for: a segment behind the control segment of every
    /// work request that sends packets.
    XrcSegment, 16 {
        /// The peer's XRC shared receive queue, 24 bits.
        srqn: U32,
        reserved0: U32,
        reserved1: U64,
    }
}

structure! {
    /// REG_MR: what the region is from now on; its key, low byte included, stands in the control segment.
    RegisterSegment, 48 {
        /// `ACCESS_*` rights.
        access: U32,
        reserved0: U32,
        reserved1: U64,
        /// As in REGISTER_KEY.
        start: U64,
        length_bytes: U64,
        pages: PageListFields,
    }
}

structure! {
    /// BIND_MW: what the window shows; its new key, low byte included, stands in the control segment.
    BindSegment, 32 {
        /// `ACCESS_*` rights of the remote side, and ACCESS_ZERO_BASED.
        access: U32,
        /// The region's key.
        lkey: U32,
        /// Local address of the first byte.
        address: U64,
        /// Type 1: 0 closes the window.
        length_bytes: U64,
        reserved: U64,
    }
}

structure! {
    /// One scatter-gather element. A length of zero means zero bytes.
    DataSegment, 16 {
        address: U64,
        length_bytes: U32,
        lkey: U32,
    }
}

constants! {
    WQE_SLOT_BYTES: u32 = 64;
    WQE_SEGMENT_BYTES: u32 = 16;
    /// Slots of the longest send WQE.
    MAX_WQE_SLOTS: u32 = 4;
    /// Post a completion when it is done.
    WQE_SIGNALED: u8 = 1 << 0;
    /// Set the solicited event bit in the message's last packet.
    WQE_SOLICITED: u8 = 1 << 1;
    /// Wait for earlier READs and atomics of this queue.
    WQE_FENCE: u8 = 1 << 2;
    /// The payload follows in the WQE itself.
    WQE_INLINE: u8 = 1 << 3;
    /// FLUSH: whoever reads the memory finds what was written.
    FLUSH_GLOBAL: u32 = 1 << 0;
    /// FLUSH: what was written survives a loss of power, where the memory does.
    FLUSH_PERSISTENT: u32 = 1 << 1;
    /// FLUSH: all of the key's memory.
    FLUSH_REGION: u32 = 1 << 4;
    /// Bytes that an atomic or an ATOMIC_WRITE works on.
    ATOMIC_BYTES: u32 = 8;
    /// What stands in front of a datagram in its receive buffer: the packet's network header.
    GRH_BYTES: u32 = 40;
}
