//! BAR 0: registers. Accesses are aligned, of 4 or 8 bytes; an 8-byte register may be written as two halves, low first.

constants! {
    /// The BAR that holds the registers.
    BAR_REGISTERS: u8 = 0;
    /// The BAR that holds the doorbell pages (64-bit, prefetchable).
    BAR_DOORBELLS: u8 = 2;
    /// The BAR that holds the MSI-X table and pending bits.
    BAR_MSIX: u8 = 4;
    /// Size of BAR 0.
    REGISTERS_BYTES: u32 = 0x1_0000;
    /// "RNIC" in ASCII, little-endian. Read-only.
    REG_MAGIC: u32 = 0x000;
    /// Major version in bits 31:16, minor in 15:0. Read-only.
    REG_VERSION: u32 = 0x004;
    /// Feature bits, `FEATURE_*`. Read-only, 8 bytes.
    REG_FEATURES: u32 = 0x008;
    /// `STATUS_*` bits. Read-only.
    REG_STATUS: u32 = 0x010;
    /// `CONTROL_*` bits.
    REG_CONTROL: u32 = 0x014;
    /// The port's MAC address, first byte in bits 7:0. Read-only, 8 bytes.
    REG_MAC: u32 = 0x018;
    /// Number of doorbell pages in BAR 2. Read-only.
    REG_DOORBELL_PAGES: u32 = 0x020;
    /// Number of MSI-X vectors. Read-only.
    REG_VECTORS: u32 = 0x024;
    /// The port's path MTU in bytes. Read-only.
    REG_PORT_MTU: u32 = 0x028;
    /// IOVA of the command ring, aligned to 4096. 8 bytes. Written while the device is disabled.
    REG_COMMAND_RING: u32 = 0x040;
    /// IOVA of the command completion ring, aligned to 4096. 8 bytes. Written while the device is disabled.
    REG_COMMAND_COMPLETION_RING: u32 = 0x048;
    /// log2 of the slots of both rings, 0 to 8. Written while the device is disabled.
    REG_COMMAND_RING_LOG_SLOTS: u32 = 0x050;
    /// Producer index of the command ring, free-running modulo 2^16.
    REG_COMMAND_DOORBELL: u32 = 0x054;
    /// Number of the last diagnostic; 0 is none. Writing anything clears it.
    REG_LAST_DIAGNOSTIC: u32 = 0x060;
    /// The object (QPN, CQN, key, slot…) of the last diagnostic. Read-only.
    REG_LAST_DIAGNOSTIC_OBJECT: u32 = 0x064;
    /// A value for the driver's own use; a write is visible to the tools that watch the device. 8 bytes.
    REG_MARK: u32 = 0x068;
    /// The device's clock in nanoseconds. Read-only, 8 bytes.
    REG_TIME: u32 = 0x070;
    MAGIC: u32 = 0x4349_4e52;
    /// The device answers commands.
    STATUS_ENABLED: u32 = 1 << 0;
    /// The device has stopped after an error that it cannot work around; reset it.
    STATUS_FATAL: u32 = 1 << 1;
    /// The port has its link.
    STATUS_LINK_UP: u32 = 1 << 2;
    /// 0 → 1 latches the command ring and starts the device; 1 → 0 resets it.
    CONTROL_ENABLE: u32 = 1 << 0;
    /// RoCEv2 over IPv4 and IPv6.
    FEATURE_ROCE_V2: u64 = 1 << 0;
    /// The 64-byte doorbell forms exist.
    FEATURE_DOORBELL_LINE: u64 = 1 << 1;
    /// The WQE-carrying doorbell form exists.
    FEATURE_DOORBELL_WQE: u64 = 1 << 2;
    /// RDMA READ.
    FEATURE_READ: u64 = 1 << 3;
    /// CMP_SWAP and FETCH_ADD.
    FEATURE_ATOMIC: u64 = 1 << 4;
    /// SEND_INV and LOCAL_INV.
    FEATURE_INVALIDATE: u64 = 1 << 5;
    /// Queue pairs of type UC.
    FEATURE_UC: u64 = 1 << 6;
    /// Queue pairs of types UD and GSI.
    FEATURE_UD: u64 = 1 << 7;
    /// ATTACH_MULTICAST and DETACH_MULTICAST.
    FEATURE_MULTICAST: u64 = 1 << 8;
    /// ATOMIC_WRITE.
    FEATURE_ATOMIC_WRITE: u64 = 1 << 9;
    /// FLUSH.
    FEATURE_FLUSH: u64 = 1 << 10;
    /// Queue pairs of types XRC_INI and XRC_TGT, and shared receive queues with SRQ_XRC.
    FEATURE_XRC: u64 = 1 << 11;
    /// QP_SELECTIVE: only lost packets are sent again.
    FEATURE_SELECTIVE: u64 = 1 << 12;
    /// Shared receive queues.
    FEATURE_SRQ: u64 = 1 << 16;
    /// RESIZE_CQ.
    FEATURE_CQ_RESIZE: u64 = 1 << 17;
    /// MODIFY_CQ.
    FEATURE_CQ_MODERATION: u64 = 1 << 18;
    /// KEY_FAST_REGION and REG_MR.
    FEATURE_FAST_REGISTER: u64 = 1 << 19;
    /// ACCESS_ZERO_BASED.
    FEATURE_ZERO_BASED: u64 = 1 << 20;
    /// REREGISTER_KEY.
    FEATURE_REREGISTER: u64 = 1 << 21;
    /// The local DMA key.
    FEATURE_LOCAL_DMA_KEY: u64 = 1 << 22;
    /// Memory windows of types 1, 2A and 2B.
    FEATURE_WINDOW: u64 = 1 << 23;
    /// QUERY_COUNTERS.
    FEATURE_COUNTERS: u64 = 1 << 24;
}
