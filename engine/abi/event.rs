//! Event queue entries.

use zerocopy::little_endian::{U16, U32};

open_code! {
    /// What happened. Asynchronous events are 0x10 plus the number of `enum ibv_event_type`.
    EventType {
        /// An armed completion queue has an entry. Object: CQN; data: the consumer index of the arm.
        COMPLETION = 0x00,
        /// A command that asked for it has completed. Object: slot.
        COMMAND = 0x01,
        CQ_ERR = 0x10,
        QP_FATAL = 0x11,
        QP_REQ_ERR = 0x12,
        QP_ACCESS_ERR = 0x13,
        COMM_EST = 0x14,
        SQ_DRAINED = 0x15,
        DEVICE_FATAL = 0x18,
        PORT_ACTIVE = 0x19,
        PORT_ERR = 0x1a,
        SRQ_ERR = 0x1e,
        SRQ_LIMIT_REACHED = 0x1f,
        QP_LAST_WQE_REACHED = 0x20,
    }
}

structure! {
    /// An event.
    Eqe, 16 {
        event_type: u8,
        reserved0: u8,
        reserved1: U16,
        /// QPN, CQN, SRQN or slot, by type.
        object: U32,
        /// A consumer index or the number of a diagnostic, by type.
        data: U32,
        /// Bit 0 is the phase: 1 in the first pass over the ring, then alternating.
        phase: U32,
    }
}

constants! {
    EQE_BYTES: u32 = 16;
    EQE_PHASE: u32 = 1;
}
