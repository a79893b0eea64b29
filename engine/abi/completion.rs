//! Completion queue entries and the consumer record.

use zerocopy::little_endian::{U16, U32, U64};

open_code! {
    /// How a work request ended; the numbers are those of `enum ibv_wc_status`.
    CompletionStatus {
        SUCCESS = 0,
        LOC_LEN_ERR = 1,
        LOC_QP_OP_ERR = 2,
        LOC_PROT_ERR = 4,
        WR_FLUSH_ERR = 5,
        MW_BIND_ERR = 6,
        BAD_RESP_ERR = 7,
        LOC_ACCESS_ERR = 8,
        REM_INV_REQ_ERR = 9,
        REM_ACCESS_ERR = 10,
        REM_OP_ERR = 11,
        RETRY_EXC_ERR = 12,
        RNR_RETRY_EXC_ERR = 13,
        REM_ABORT_ERR = 16,
        FATAL_ERR = 18,
        GENERAL_ERR = 21,
    }
}

open_code! {
    /// What completed: a send work request carries its `WorkOpcode`, a receive one of the others.
    CompletionOpcode {
        SEND = 0x01,
        SEND_IMM = 0x02,
        SEND_INV = 0x03,
        WRITE = 0x04,
        WRITE_IMM = 0x05,
        READ = 0x08,
        CMP_SWAP = 0x0a,
        FETCH_ADD = 0x0b,
        LOCAL_INV = 0x10,
        RECV = 0x80,
        RECV_RDMA_WITH_IMM = 0x81,
    }
}

structure! {
    /// A completion. With a status other than SUCCESS only `qpn`, `wqe_index`, `opcode`, `status` and `vendor_err` hold.
    Cqe, 64 {
        qpn: U32,
        /// Send: ring index of the WQE's first slot. Receive: ring index of the WQE.
        wqe_index: U16,
        opcode: u8,
        status: u8,
        /// Bytes of the message that arrived; for WRITE_IMM the length of the RDMA.
        byte_len: U32,
        /// Immediate data with CQE_WITH_IMM, the key that was invalidated with CQE_WITH_INV.
        immediate: U32,
        src_qpn: U32,
        /// Number of the diagnostic that explains a failure.
        vendor_err: U32,
        /// `CQE_*` flags.
        flags: U16,
        reserved0: U16,
        reserved1: U32,
        /// The device's clock when the entry was written.
        time_ns: U64,
        reserved2: [u8; 20],
        /// Bit 0 is the phase: 1 in the first pass over the ring, then alternating. Written last.
        phase: U32,
    }
}

structure! {
    /// Written by the driver as it polls, read by the device only when the queue looks full.
    ConsumerRecord, 8 {
        consumer_index: U32,
        reserved: U32,
    }
}

constants! {
    CQE_BYTES: u32 = 64;
    CQE_PHASE: u32 = 1;
    CQE_WITH_IMM: u16 = 1 << 0;
    CQE_WITH_INV: u16 = 1 << 1;
    CQE_SOLICITED: u16 = 1 << 2;
}
