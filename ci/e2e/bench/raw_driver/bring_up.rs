//! From an adapter after a reset to a connected queue pair.

use super::*;
use rnic_abi::command::*;
use rnic_abi::{CommandOpcode, PageListFields};
use zerocopy::IntoBytes;

/// Of queue pairs and regions.
const RIGHTS: u32 = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_ATOMIC;

/// How the objects of a bring-up are made, where a test wants them otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Making {
    pub command_ring: Option<u64>,
    pub send_ring: Option<u64>,
    pub receive_ring: Option<u64>,
    pub completion_ring: Option<u64>,
    pub event_ring: Option<u64>,
    pub qp_table: Option<u64>,
    pub mtu: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    /// READs and atomics that may be outstanding, as requester and as responder.
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
}

impl Default for Making {
    fn default() -> Self {
        Making {
            command_ring: None,
            send_ring: None,
            receive_ring: None,
            completion_ring: None,
            event_ring: None,
            qp_table: None,
            mtu: 3,
            retry_cnt: 7,
            rnr_retry: 7,
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
        }
    }
}

pub fn pages(root: u64, levels: u8) -> PageListFields {
    let mut fields = PageListFields::zeroed();
    (fields.root, fields.page_shift, fields.levels) = (root.into(), 12, levels);
    fields
}

pub fn gid(ip: [u8; 4]) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[10..12].fill(0xff);
    gid[12..].copy_from_slice(&ip);
    gid
}

pub fn object(number: u32) -> ObjectNumber {
    ObjectNumber { number: number.into(), reserved: 0.into() }
}

impl RawDriver {
    pub fn enable(&mut self, making: &Making) {
        let commands = making.command_ring.unwrap_or(self.at(COMMANDS));
        self.write64(REG_COMMAND_RING, commands);
        self.write64(REG_COMMAND_COMPLETION_RING, self.base + ANSWERS);
        self.write32(REG_COMMAND_RING_LOG_SLOTS, SLOTS.trailing_zeros());
        self.write32(REG_CONTROL, CONTROL_ENABLE);
    }

    pub fn create(&mut self, making: &Making) {
        let qp_table = making.qp_table.unwrap_or(self.at(QP_TABLE));
        for (kind, at) in [
            (TABLE_QP, qp_table),
            (TABLE_CQ, self.at(CQ_TABLE)),
            (TABLE_KEY, self.at(KEY_TABLE)),
            (TABLE_RD_ATOMIC, self.at(RD_ATOMIC_TABLE)),
        ] {
            let mut table = SetTable::zeroed();
            (table.kind, table.log_entries, table.pages) = (kind, 6, pages(at, 0));
            self.must(CommandOpcode::SET_TABLE, table.as_bytes());
        }
        let mut entry = SetGid::zeroed();
        (entry.valid, entry.vlan_id) = (1, NO_VLAN.into());
        (entry.mac, entry.gid) = (self.mac(self.ip), gid(self.ip));
        self.must(CommandOpcode::SET_GID, entry.as_bytes());
        let mut eq = CreateEq::zeroed();
        (eq.log_entries, eq.pages) = (6, pages(making.event_ring.unwrap_or(self.at(EQ)), 0));
        self.must(CommandOpcode::CREATE_EQ, eq.as_bytes());
        let mut cq = CreateCq::zeroed();
        (cq.cqn, cq.log_entries) = (CQN.into(), 6);
        cq.pages = pages(making.completion_ring.unwrap_or(self.at(CQ)), 0);
        cq.consumer_record = self.at(RECORD).into();
        self.must(CommandOpcode::CREATE_CQ, cq.as_bytes());
        let mut qp = self.new_qp(self.qpn);
        qp.sq_pages = pages(making.send_ring.unwrap_or(self.at(SQ)), 0);
        qp.rq_pages = pages(making.receive_ring.unwrap_or(self.at(RQ)), 0);
        self.must(CommandOpcode::CREATE_QP, qp.as_bytes());
        let region = self.region(KEY, self.at(BUFFER), 0, RIGHTS);
        self.must(CommandOpcode::REGISTER_KEY, region.as_bytes());
    }

    pub fn new_qp(&self, qpn: u32) -> CreateQp {
        let mut qp = CreateQp::zeroed();
        (qp.qpn, qp.pdn) = (qpn.into(), PDN.into());
        (qp.log_sq_slots, qp.log_rq_entries) = (6, 6);
        (qp.send_cqn, qp.receive_cqn) = (CQN.into(), CQN.into());
        (qp.sq_pages, qp.rq_pages) = (pages(self.at(SQ), 0), pages(self.at(RQ), 0));
        qp
    }

    pub fn region(&self, key: u32, root: u64, levels: u8, access: u32) -> RegisterKey {
        let mut region = RegisterKey::zeroed();
        (region.key, region.pdn, region.access) = (key.into(), PDN.into(), access.into());
        (region.start, region.length_bytes) = (VIRTUAL.into(), BUFFER_BYTES.into());
        region.pages = pages(root, levels);
        region
    }

    fn mac(&self, ip: [u8; 4]) -> [u8; 6] {
        [2, 0, 0, 0, 1, ip[3]]
    }

    pub fn attributes(&self, state: u8, mask: u32) -> QpAttributes {
        let mut attributes = QpAttributes::zeroed();
        (attributes.qpn, attributes.state, attributes.mask) = (self.qpn.into(), state, (mask | ATTR_STATE).into());
        attributes
    }

    /// RESET to RTS, towards a peer.
    pub fn connect(&mut self, peer_qpn: u32, peer_ip: [u8; 4], making: &Making) {
        let mut init = self.attributes(QP_STATE_INIT, ATTR_PKEY_INDEX | ATTR_PORT | ATTR_ACCESS_FLAGS);
        (init.port, init.access) = (1, RIGHTS.into());
        let mask = ATTR_AV | ATTR_PATH_MTU | ATTR_DEST_QPN | ATTR_RQ_PSN | ATTR_MAX_DEST_RD_ATOMIC | ATTR_MIN_RNR_TIMER;
        let mut rtr = self.attributes(QP_STATE_RTR, mask);
        (rtr.path_mtu, rtr.dest_qpn, rtr.rq_psn) = (making.mtu, peer_qpn.into(), PSN.into());
        (rtr.min_rnr_timer, rtr.max_dest_rd_atomic) = (1, making.max_dest_rd_atomic);
        (rtr.av.dest_gid, rtr.av.dest_mac) = (gid(peer_ip), self.mac(peer_ip));
        let mask = ATTR_TIMEOUT | ATTR_RETRY_CNT | ATTR_RNR_RETRY | ATTR_SQ_PSN | ATTR_MAX_QP_RD_ATOMIC;
        let mut rts = self.attributes(QP_STATE_RTS, mask);
        // 67 ms a timeout, so that a peer that is gone is soon found out.
        (rts.timeout, rts.retry_cnt, rts.rnr_retry) = (14, making.retry_cnt, making.rnr_retry);
        (rts.sq_psn, rts.max_rd_atomic) = (PSN.into(), making.max_rd_atomic);
        for step in [init, rtr, rts] {
            self.must(CommandOpcode::MODIFY_QP, step.as_bytes());
        }
    }
}
