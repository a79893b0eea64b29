//! The command queue: a ring of 128-byte commands and a ring of 128-byte completions in host memory.
//!
//! Command slot: `CommandHeader`, then the opcode's body. Completion slot: `CompletionHeader`, then the answer's
//! body; the slot's last 4 bytes hold the phase in bit 0. Commands complete in order. Object numbers are chosen
//! by the driver.

use crate::PageListFields;
use zerocopy::little_endian::{U16, U32, U64};

open_code! {
    CommandOpcode {
        QUERY_DEVICE = 0x01,
        SET_TABLE = 0x02,
        FLUSH_CACHES = 0x03,
        SET_GID = 0x04,
        QUERY_COUNTERS = 0x05,
        CREATE_EQ = 0x08,
        DESTROY_EQ = 0x09,
        CREATE_CQ = 0x10,
        DESTROY_CQ = 0x11,
        MODIFY_CQ = 0x12,
        RESIZE_CQ = 0x13,
        CREATE_QP = 0x18,
        MODIFY_QP = 0x19,
        QUERY_QP = 0x1a,
        DESTROY_QP = 0x1b,
        ATTACH_MULTICAST = 0x1c,
        DETACH_MULTICAST = 0x1d,
        REGISTER_KEY = 0x20,
        DEREGISTER_KEY = 0x21,
        REREGISTER_KEY = 0x22,
        ALLOCATE_KEY = 0x23,
        CREATE_SRQ = 0x28,
        MODIFY_SRQ = 0x29,
        QUERY_SRQ = 0x2a,
        DESTROY_SRQ = 0x2b,
    }
}

open_code! {
    /// How a command ended. The diagnostic beside it says which rule.
    CommandStatus {
        OK = 0,
        /// No such opcode.
        BAD_OPCODE = 1,
        /// A field is out of its range, or a reserved one is not zero.
        BAD_PARAMETER = 2,
        /// The object does not exist.
        NO_SUCH_OBJECT = 3,
        /// The object's number is taken.
        EXISTS = 4,
        /// The object's state or its users forbid it.
        BAD_STATE = 5,
        /// A table is missing or too small, or a limit is reached.
        NO_RESOURCES = 6,
        /// Host memory did not answer.
        DMA_FAULT = 7,
    }
}

structure! {
    CommandHeader, 16 {
        /// `CommandOpcode`.
        opcode: u8,
        /// `COMMAND_*` flags.
        flags: u8,
        reserved0: U16,
        /// Comes back in the completion.
        token: U32,
        reserved1: U64,
    }
}

structure! {
    CompletionHeader, 16 {
        token: U32,
        opcode: u8,
        /// `CommandStatus`.
        status: u8,
        slot: U16,
        /// Number of the diagnostic that explains a refusal.
        diagnostic: U32,
        reserved: U32,
    }
}

structure! {
    /// SET_TABLE: host memory for contexts, before the first object of the kind.
    SetTable, 24 {
        /// `TABLE_*`.
        kind: u8,
        log_entries: u8,
        reserved0: U16,
        reserved1: U32,
        pages: PageListFields,
    }
}

structure! {
    /// FLUSH_CACHES: writes back and forgets. Nothing is lost; the next use fetches again.
    FlushCaches, 8 {
        /// `FLUSH_*` bits.
        mask: U32,
        reserved: U32,
    }
}

structure! {
    /// SET_GID: one entry of the port's GID table.
    SetGid, 32 {
        index: U16,
        /// 1: the entry holds; 0: it is removed.
        valid: u8,
        reserved0: u8,
        /// 802.1Q VLAN identifier, or 0xffff for none.
        vlan_id: U16,
        mac: [u8; 6],
        gid: [u8; 16],
        reserved1: U32,
    }
}

structure! {
    CreateEq, 32 {
        eqn: U32,
        /// MSI-X vector, or 0xffff for none.
        vector: U16,
        log_entries: u8,
        reserved0: u8,
        reserved1: U64,
        pages: PageListFields,
    }
}

structure! {
    CreateCq, 48 {
        cqn: U32,
        /// Event queue, or `NO_OBJECT`.
        eqn: U32,
        doorbell_page: U32,
        log_entries: u8,
        reserved0: u8,
        reserved1: U16,
        pages: PageListFields,
        /// IOVA of the `ConsumerRecord`, aligned to 8.
        consumer_record: U64,
        reserved2: U64,
    }
}

structure! {
    /// MODIFY_CQ: how long events are held back.
    ModifyCq, 16 {
        cqn: U32,
        /// An event that is due waits for so many entries beyond the arm's consumer index; 0 and 1: it does not wait.
        count: U16,
        /// But no longer than so many microseconds; 0: it does not wait.
        period_us: U16,
        reserved: U64,
    }
}

structure! {
    /// RESIZE_CQ: another ring for the entries to come.
    ResizeCq, 32 {
        cqn: U32,
        log_entries: u8,
        reserved0: u8,
        reserved1: U16,
        pages: PageListFields,
        reserved2: U64,
    }
}

structure! {
    /// RESIZE_CQ's answer.
    CqPosition, 8 {
        /// Index of the first entry that stands in the new ring, at its start and with phase 1.
        first_index: U32,
        reserved: U32,
    }
}

structure! {
    /// CREATE_SRQ: receive WQEs that queue pairs share.
    CreateSrq, 64 {
        srqn: U32,
        /// `SRQ_*` flags.
        flags: u8,
        /// log2 of the WQE slots, and of the entries of the index ring.
        log_slots: u8,
        /// A receive WQE is `16 << log_stride` bytes.
        log_stride: u8,
        reserved0: u8,
        pdn: U32,
        doorbell_page: U32,
        /// SRQ_LIMIT_REACHED once, when fewer receives than this are posted; 0: never.
        limit: U16,
        reserved1: U16,
        /// With SRQ_XRC the completion queue of its receives; else zero.
        cqn: U32,
        /// With SRQ_XRC its XRC domain; else zero.
        xrc_domain: U32,
        reserved2: U32,
        /// The WQE slots.
        wqe_pages: PageListFields,
        /// The ring of 16-bit slot indices.
        index_pages: PageListFields,
    }
}

structure! {
    /// MODIFY_SRQ: arms the limit anew.
    ModifySrq, 8 {
        srqn: U32,
        limit: U16,
        reserved: U16,
    }
}

structure! {
    /// QUERY_SRQ's answer.
    SrqState, 16 {
        /// The limit while it is armed, else 0.
        limit: U16,
        /// Receives that are posted and not taken.
        available: U16,
        /// Position in the index ring of the next one to be taken.
        consumer: U16,
        reserved0: U16,
        reserved1: U64,
    }
}

structure! {
    CreateQp, 64 {
        qpn: U32,
        /// `QP_TYPE_*`.
        qp_type: u8,
        /// `QP_*` flags.
        flags: u8,
        log_sq_slots: u8,
        log_rq_entries: u8,
        /// A receive WQE is `16 << log_rq_stride` bytes.
        log_rq_stride: u8,
        reserved0: u8,
        reserved1: U16,
        /// Protection domain; of XRC_TGT its XRC domain.
        pdn: U32,
        send_cqn: U32,
        receive_cqn: U32,
        doorbell_page: U32,
        /// With QP_SRQ the shared receive queue; else zero.
        srqn: U32,
        sq_pages: PageListFields,
        rq_pages: PageListFields,
    }
}

structure! {
    /// Where the packets of a connected queue pair, or of one datagram, go.
    AddressVector, 36 {
        dest_gid: [u8; 16],
        dest_mac: [u8; 6],
        sgid_index: U16,
        flow_label: U32,
        traffic_class: u8,
        hop_limit: u8,
        /// 802.1p priority, used with a VLAN.
        service_level: u8,
        reserved0: u8,
        reserved1: U32,
    }
}

structure! {
    /// MODIFY_QP's body, and QUERY_QP's answer.
    QpAttributes, 96 {
        qpn: U32,
        /// `ATTR_*` bits: which of the fields below are given.
        mask: U32,
        /// `QP_STATE_*`: with ATTR_STATE the next state.
        state: u8,
        current_state: u8,
        /// Path MTU: 1 is 256 bytes, 5 is 4096.
        path_mtu: u8,
        port: u8,
        /// `ACCESS_*` rights of the remote side.
        access: U32,
        pkey_index: U16,
        max_rd_atomic: u8,
        max_dest_rd_atomic: u8,
        min_rnr_timer: u8,
        /// Local ACK timeout, 4.096 us << timeout; 0 is none.
        timeout: u8,
        retry_cnt: u8,
        rnr_retry: u8,
        rq_psn: U32,
        sq_psn: U32,
        dest_qpn: U32,
        qkey: U32,
        av: AddressVector,
        /// RTS to SQD: raise SQ_DRAINED when it is.
        sqd_notify: u8,
        reserved0: u8,
        reserved1: U16,
        reserved2: [u8; 16],
    }
}

structure! {
    /// ATTACH_MULTICAST and DETACH_MULTICAST: a datagram queue pair takes the packets of a group, or no more.
    MulticastGroup, 24 {
        qpn: U32,
        reserved: U32,
        /// A multicast address; an IPv4 address as `::ffff:a.b.c.d`.
        gid: [u8; 16],
    }
}

structure! {
    /// REGISTER_KEY: a memory region. REREGISTER_KEY: what of it changes.
    RegisterKey, 48 {
        /// Index in bits 31:8, the driver's own byte in 7:0; lkey and rkey are this number.
        key: U32,
        pdn: U32,
        /// `ACCESS_*` rights.
        access: U32,
        /// REREGISTER_KEY: `REREGISTER_*` bits. REGISTER_KEY: zero.
        changes: U32,
        /// Address of the first byte as work requests and peers name it.
        start: U64,
        length_bytes: U64,
        /// With levels 0 `root` is the IOVA of the first byte; else the first byte stands in the first page at
        /// `start` modulo the page size.
        pages: PageListFields,
    }
}

structure! {
    /// ALLOCATE_KEY: a key that work requests give its memory.
    AllocateKey, 24 {
        /// Index in bits 31:8; the byte in 7:0 comes with the work request.
        key: U32,
        pdn: U32,
        /// `KEY_*`.
        kind: u8,
        reserved0: u8,
        reserved1: U16,
        /// KEY_FAST_REGION: most pages of a registration. Windows: zero.
        max_pages: U32,
        reserved2: U64,
    }
}

structure! {
    /// DESTROY_*, QUERY_* and DEREGISTER_KEY.
    ObjectNumber, 8 {
        number: U32,
        reserved: U32,
    }
}

structure! {
    /// QUERY_DEVICE's answer.
    DeviceLimits, 72 {
        log_qps: u8,
        log_cqs: u8,
        log_keys: u8,
        log_sq_slots: u8,
        log_rq_entries: u8,
        log_cq_entries: u8,
        log_eq_entries: u8,
        max_send_sge: u8,
        max_receive_sge: u8,
        ports: u8,
        max_inline_bytes: U16,
        max_eqs: U16,
        gids: U16,
        pkeys: U16,
        vectors: U16,
        qp_context_bytes: U16,
        cq_context_bytes: U16,
        key_context_bytes: U16,
        /// 0 where the device knows neither READ nor atomics.
        rd_atomic_context_bytes: U16,
        max_message_bytes: U32,
        doorbell_pages: U32,
        qp_cache_entries: U32,
        cq_cache_entries: U32,
        key_cache_entries: U32,
        rd_atomic_cache_entries: U32,
        max_rd_atomic: u8,
        /// Queue pairs that may be attached to one multicast group.
        max_group_qps: u8,
        /// Multicast groups that queue pairs may be attached to.
        max_multicast_groups: U16,
        /// 0 where the device knows no shared receive queues.
        srq_context_bytes: U16,
        log_srqs: u8,
        log_srq_slots: u8,
        srq_cache_entries: U32,
        /// The lkey that names all of DMA space to privileged queue pairs; 0: there is none.
        local_dma_key: U32,
        /// Most pages of a fast registration; 0: there is none.
        max_fast_register_pages: U32,
    }
}

structure! {
    /// QUERY_COUNTERS: which counters.
    QueryCounters, 8 {
        /// `COUNTERS_*`.
        group: u8,
        reserved0: u8,
        /// The number of the first counter that is answered.
        first: U16,
        reserved1: U32,
    }
}

structure! {
    /// QUERY_COUNTERS' answer: counters from `first` on.
    CounterValues, 104 {
        /// Counters of the group.
        total: U16,
        /// Values that follow.
        count: U16,
        reserved: U32,
        values: [U64; 12],
    }
}

structure! {
    /// QUERY_QP's answer after its `QpAttributes`.
    QueueState, 8 {
        /// Ring index of the oldest send WQE that is not finished.
        sq_consumer: U16,
        /// Ring index of the next receive WQE to be used.
        rq_consumer: U16,
        reserved: U32,
    }
}

constants! {
    COMMAND_BYTES: u32 = 128;
    COMMAND_PHASE: u32 = 1;
    /// Raise a COMMAND event on event queue 0 when the command completes.
    COMMAND_NOTIFY: u8 = 1 << 0;
    TABLE_QP: u8 = 1;
    TABLE_CQ: u8 = 2;
    TABLE_SRQ: u8 = 3;
    TABLE_KEY: u8 = 4;
    /// What responders remember of READs and atomics; by QPN.
    TABLE_RD_ATOMIC: u8 = 6;
    FLUSH_QP: u32 = 1 << 0;
    FLUSH_CQ: u32 = 1 << 1;
    FLUSH_SRQ: u32 = 1 << 2;
    FLUSH_KEY: u32 = 1 << 3;
    FLUSH_TRANSLATION: u32 = 1 << 4;
    FLUSH_RD_ATOMIC: u32 = 1 << 5;
    /// Packets, retries and errors of the port.
    COUNTERS_PORT: u8 = 0;
    /// Crossings of the function's link, by class.
    COUNTERS_CROSSINGS: u8 = 1;
    NO_VLAN: u16 = 0xffff;
    NO_VECTOR: u16 = 0xffff;
    /// Reliable connection.
    QP_TYPE_RC: u8 = 0;
    /// Unreliable connection.
    QP_TYPE_UC: u8 = 1;
    /// Unreliable datagrams.
    QP_TYPE_UD: u8 = 2;
    /// General services interface: the datagram queue pair of management, QPN 1.
    QP_TYPE_GSI: u8 = 3;
    /// The sending half of an extended reliable connection.
    QP_TYPE_XRC_INI: u8 = 4;
    /// Its receiving half: requests name the shared receive queue they are for.
    QP_TYPE_XRC_TGT: u8 = 5;
    /// The number of the general services interface.
    GSI_QPN: u32 = 1;
    /// The Q_Key of the general services interface.
    GSI_QKEY: u32 = 0x8001_0000;
    /// Bit of a Q_Key in a work request: the queue pair's own is sent.
    QKEY_PRIVILEGED: u32 = 0x8000_0000;
    /// The destination of packets for a multicast group.
    MULTICAST_QPN: u32 = 0xff_ffff;
    /// Every send work request is signaled.
    QP_SIGNAL_ALL: u8 = 1 << 0;
    /// Receives come from the shared receive queue `srqn`.
    QP_SRQ: u8 = 1 << 1;
    /// Only lost packets are sent again; both ends must have it.
    QP_SELECTIVE: u8 = 1 << 3;
    /// The kernel's own: REG_MR and the local DMA key are allowed.
    QP_PRIVILEGED: u8 = 1 << 2;
    /// The kernel's own: receives may name the local DMA key.
    SRQ_PRIVILEGED: u8 = 1 << 0;
    /// For the requests that XRC targets of its domain get.
    SRQ_XRC: u8 = 1 << 1;
    QP_STATE_RESET: u8 = 0;
    QP_STATE_INIT: u8 = 1;
    QP_STATE_RTR: u8 = 2;
    QP_STATE_RTS: u8 = 3;
    QP_STATE_SQD: u8 = 4;
    QP_STATE_SQE: u8 = 5;
    QP_STATE_ERR: u8 = 6;
    ATTR_STATE: u32 = 1 << 0;
    ATTR_CUR_STATE: u32 = 1 << 1;
    ATTR_EN_SQD_ASYNC_NOTIFY: u32 = 1 << 2;
    ATTR_ACCESS_FLAGS: u32 = 1 << 3;
    ATTR_PKEY_INDEX: u32 = 1 << 4;
    ATTR_PORT: u32 = 1 << 5;
    ATTR_QKEY: u32 = 1 << 6;
    ATTR_AV: u32 = 1 << 7;
    ATTR_PATH_MTU: u32 = 1 << 8;
    ATTR_TIMEOUT: u32 = 1 << 9;
    ATTR_RETRY_CNT: u32 = 1 << 10;
    ATTR_RNR_RETRY: u32 = 1 << 11;
    ATTR_RQ_PSN: u32 = 1 << 12;
    ATTR_MAX_QP_RD_ATOMIC: u32 = 1 << 13;
    ATTR_ALT_PATH: u32 = 1 << 14;
    ATTR_MIN_RNR_TIMER: u32 = 1 << 15;
    ATTR_SQ_PSN: u32 = 1 << 16;
    ATTR_MAX_DEST_RD_ATOMIC: u32 = 1 << 17;
    ATTR_PATH_MIG_STATE: u32 = 1 << 18;
    ATTR_DEST_QPN: u32 = 1 << 20;
    ACCESS_LOCAL_WRITE: u32 = 1 << 0;
    ACCESS_REMOTE_WRITE: u32 = 1 << 1;
    ACCESS_REMOTE_READ: u32 = 1 << 2;
    ACCESS_REMOTE_ATOMIC: u32 = 1 << 3;
    /// Of a key: LOCAL_INV and the peers' SEND_INV may take it out of use.
    ACCESS_INVALIDATE: u32 = 1 << 4;
    /// Of a key: memory windows may be bound to it.
    ACCESS_MW_BIND: u32 = 1 << 5;
    /// Of a key: addresses count from zero, whatever `start` is.
    ACCESS_ZERO_BASED: u32 = 1 << 6;
    /// FLUSH with FLUSH_GLOBAL.
    ACCESS_FLUSH_GLOBAL: u32 = 1 << 7;
    /// FLUSH with FLUSH_PERSISTENT.
    ACCESS_FLUSH_PERSISTENT: u32 = 1 << 8;
    /// A region that REG_MR registers and LOCAL_INV or SEND_INV frees.
    KEY_FAST_REGION: u8 = 1;
    /// A type 1 memory window: bound anew at will, used through any queue pair of its domain.
    KEY_WINDOW_1: u8 = 2;
    /// A type 2A memory window: used through the queue pair that bound it.
    KEY_WINDOW_2A: u8 = 3;
    /// A type 2B memory window: as 2A, and of the queue pair's protection domain.
    KEY_WINDOW_2B: u8 = 4;
    /// `start`, `length_bytes` and `pages` are new.
    REREGISTER_TRANSLATION: u32 = 1 << 0;
    /// `pdn` is new.
    REREGISTER_PD: u32 = 1 << 1;
    /// `access` is new.
    REREGISTER_ACCESS: u32 = 1 << 2;
    /// The lkey by which privileged queue pairs name all of DMA space: addresses are IOVAs.
    LOCAL_DMA_KEY: u32 = 0xffff_ff00;
}
