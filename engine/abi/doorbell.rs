//! BAR 2: doorbell pages of 4096 bytes. Page 0 is the kernel's; every queue names its page at creation and a
//! doorbell counts only there. All doorbells are aligned 8-byte stores of one little-endian value, or 64-byte lines.

constants! {
    DOORBELL_PAGE_BYTES: u32 = 4096;
    /// Send queue, 8-byte form: QPN in bits 31:8, new producer index in 47:32, the rest zero.
    DB_SEND: u32 = 0x000;
    /// Receive queue: the same layout.
    DB_RECEIVE: u32 = 0x008;
    /// Completion queue arm: sequence in bits 1:0, solicited only in bit 2, CQN in 31:8, consumer index in 63:32.
    DB_CQ_ARM: u32 = 0x010;
    /// Event queue update, on page 0 only: arm in bit 0, EQN in 31:8, consumer index in 63:32.
    DB_EQ_UPDATE: u32 = 0x018;
    /// Shared receive queue: SRQN in bits 31:8, new producer index of the index ring in 47:32, the rest zero.
    DB_SRQ: u32 = 0x020;
    /// Send queue, 64-byte line: the value of the 8-byte form, then zeros. Two lines, used alternately.
    DB_SEND_LINE_0: u32 = 0x400;
    DB_SEND_LINE_1: u32 = 0x440;
    /// Send queue, WQE-carrying line: the first slot of the newest WQE. Two lines, used alternately.
    DB_SEND_WQE_0: u32 = 0x800;
    DB_SEND_WQE_1: u32 = 0x840;
    DOORBELL_LINE_BYTES: u32 = 64;
    /// `DB_CQ_ARM`: only a solicited or failed completion fires.
    CQ_ARM_SOLICITED: u64 = 1 << 2;
    /// `DB_EQ_UPDATE`: raise the vector for the next entry.
    EQ_UPDATE_ARM: u64 = 1 << 0;
}

/// The value of a send or receive doorbell.
pub const fn queue_doorbell(qpn: u32, producer_index: u16) -> u64 {
    ((qpn & 0xff_ffff) as u64) << 8 | (producer_index as u64) << 32
}

/// The value of a completion queue arm.
pub const fn cq_arm(cqn: u32, consumer_index: u32, sequence: u8, solicited_only: bool) -> u64 {
    let solicited = if solicited_only { CQ_ARM_SOLICITED } else { 0 };
    (sequence & 3) as u64 | solicited | ((cqn & 0xff_ffff) as u64) << 8 | (consumer_index as u64) << 32
}

/// The value of an event queue update.
pub const fn eq_update(eqn: u32, consumer_index: u32, arm: bool) -> u64 {
    let arm = if arm { EQ_UPDATE_ARM } else { 0 };
    arm | ((eqn & 0xff_ffff) as u64) << 8 | (consumer_index as u64) << 32
}
