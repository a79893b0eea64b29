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
        FLUSH = 0x09,
        CMP_SWAP = 0x0a,
        FETCH_ADD = 0x0b,
        ATOMIC_WRITE = 0x0c,
        LOCAL_INV = 0x10,
        REG_MR = 0x11,
        BIND_MW = 0x12,
        RECV = 0x80,
        RECV_RDMA_WITH_IMM = 0x81,
    }
}

structure! {
    /// A completion. With a status other than SUCCESS only `qpn`, `wqe_index`, `opcode`, `status` and `vendor_err` hold.
    Cqe, 64 {
        qpn: U32,
        /// Send: ring index of the WQE's first slot. Receive: ring index of the WQE, or its slot in the shared queue.
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
        /// Datagram received: index of the P_Key that its packet carried.
        pkey_index: U16,
        /// Datagram received: the 802.1Q VLAN identifier, with CQE_WITH_VLAN.
        vlan_id: U16,
        /// Datagram received: the 802.1p priority, with CQE_WITH_VLAN.
        service_level: u8,
        /// Datagram received: `NETWORK_*`, what stands in the 40 bytes in front of it.
        network_type: u8,
        /// The device's clock when the entry was written.
        time_ns: U64,
        /// Datagram received: the MAC address that its frame came from, with CQE_WITH_SMAC.
        source_mac: [u8; 6],
        reserved0: [u8; 2],
        /// With CQE_SRQ the shared receive queue, whose slot `wqe_index` is.
        srqn: U32,
        reserved1: [u8; 8],
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
    /// The receive buffer begins with 40 bytes of network header.
    CQE_GRH: u16 = 1 << 3;
    CQE_WITH_SMAC: u16 = 1 << 4;
    CQE_WITH_VLAN: u16 = 1 << 5;
    /// `network_type`: the last 20 of the 40 bytes are an IPv4 header, the others zero.
    NETWORK_IPV4: u8 = 4;
    /// `network_type`: the 40 bytes are an IPv6 header.
    NETWORK_IPV6: u8 = 6;
    CQE_SRQ: u16 = 1 << 8;
}
