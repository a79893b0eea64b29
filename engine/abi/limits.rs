//! Upper bounds of the interface; a device may offer less and says so in QUERY_DEVICE.

constants! {
    MAX_LOG_QPS: u8 = 17;
    MAX_LOG_CQS: u8 = 17;
    MAX_LOG_KEYS: u8 = 20;
    MAX_EQS: u32 = 64;
    MAX_LOG_SRQS: u8 = 16;
    MAX_LOG_SRQ_SLOTS: u8 = 15;
    /// Pages of a fast registration.
    MAX_FAST_REGISTER_PAGES: u32 = 1 << 16;
    MAX_LOG_SQ_SLOTS: u8 = 15;
    MAX_LOG_RQ_ENTRIES: u8 = 15;
    /// A receive WQE is `16 << stride`.
    MAX_LOG_RQ_STRIDE: u8 = 3;
    MAX_LOG_CQ_ENTRIES: u8 = 22;
    MAX_LOG_EQ_ENTRIES: u8 = 16;
    MAX_LOG_COMMAND_SLOTS: u8 = 8;
    /// Scatter-gather elements of a send with a remote segment (one more without).
    MAX_SEND_SGE: u8 = 14;
    MAX_RECEIVE_SGE: u8 = 8;
    MAX_INLINE_BYTES: u16 = 224;
    MAX_MESSAGE_BYTES: u32 = 1 << 31;
    MAX_GIDS: u16 = 256;
    /// Scatter-gather elements of a send on a datagram queue pair.
    MAX_DATAGRAM_SGE: u8 = 12;
    /// Inline bytes of a send on a datagram queue pair.
    MAX_DATAGRAM_INLINE_BYTES: u16 = 192;
    /// Scatter-gather elements of a send with a remote segment on an XRC initiator (one more without).
    MAX_XRC_SGE: u8 = 13;
    /// Inline bytes of a send on an XRC initiator.
    MAX_XRC_INLINE_BYTES: u16 = 208;
    /// Multicast groups that have queue pairs.
    MAX_MULTICAST_GROUPS: u16 = 256;
    /// Queue pairs attached to one multicast group.
    MAX_GROUP_QPS: u8 = 64;
    NO_OBJECT: u32 = 0xffff_ffff;
    QP_CONTEXT_BYTES: u16 = 256;
    CQ_CONTEXT_BYTES: u16 = 64;
    SRQ_CONTEXT_BYTES: u16 = 64;
    KEY_CONTEXT_BYTES: u16 = 64;
    RD_ATOMIC_CONTEXT_BYTES: u16 = 512;
    /// READs and atomics of one queue pair that may be outstanding, on either side.
    MAX_RD_ATOMIC: u8 = 16;
}
