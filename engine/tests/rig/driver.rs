//! The driver's commands: bring-up, objects, queue pair states.

use super::host::*;
use super::request::all_rights;
use super::{Attributes, PDN};
use rnic_abi::CommandOpcode;
use rnic_abi::command::*;
use rnic_abi::registers::*;
use zerocopy::IntoBytes;

pub fn gid(ip: [u8; 4]) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[10..12].fill(0xff);
    gid[12..].copy_from_slice(&ip);
    gid
}

pub fn pages(root: u64, levels: u8) -> rnic_abi::PageListFields {
    let mut fields = rnic_abi::PageListFields::zeroed();
    fields.root = root.into();
    fields.page_shift = 12;
    fields.levels = levels;
    fields
}

impl Host {
    /// Sends a command and gives the answer's status, diagnostic and body.
    pub fn command(&mut self, opcode: CommandOpcode, body: &[u8]) -> (u8, u32, Vec<u8>) {
        let slot = u64::from(self.command_producer & 15);
        self.start_command(opcode, body);
        self.settle();
        let answer = self.port.slice(ANSWERS + slot * 128, 128).to_vec();
        (answer[5], u32::from_le_bytes(answer[8..12].try_into().unwrap()), answer[16..].to_vec())
    }

    /// Sends a command and gives its status and the name of its diagnostic.
    pub fn try_command(&mut self, opcode: CommandOpcode, body: &[u8]) -> (u8, &'static str) {
        let (status, diagnostic, _) = self.command(opcode, body);
        (status, rnic_abi::diagnostic::rule(diagnostic).map_or("", |rule| rule.name))
    }

    pub fn start_command(&mut self, opcode: CommandOpcode, body: &[u8]) {
        let mut bytes = [0; 128];
        bytes[0] = opcode.0;
        bytes[16..16 + body.len()].copy_from_slice(body);
        self.start_slot(&bytes);
    }

    /// Puts a whole command slot and rings.
    pub fn start_slot(&mut self, bytes: &[u8; 128]) {
        let slot = u64::from(self.command_producer & 15);
        self.port.put(COMMANDS + slot * 128, bytes);
        self.command_producer = self.command_producer.wrapping_add(1);
        self.write(0, REG_COMMAND_DOORBELL.into(), &u32::from(self.command_producer).to_le_bytes());
    }

    /// Whether the newest command has been answered.
    pub fn is_answered(&self) -> bool {
        let newest = self.command_producer.wrapping_sub(1);
        let phase = self.port.slice(ANSWERS + u64::from(newest & 15) * 128 + 124, 1)[0] & 1 == 1;
        phase == (newest >> 4 & 1 == 0)
    }

    /// The newest command's completion slot.
    pub fn newest_answer(&self) -> [u8; 128] {
        let newest = self.command_producer.wrapping_sub(1);
        self.port.slice(ANSWERS + u64::from(newest & 15) * 128, 128).try_into().unwrap()
    }

    pub fn must(&mut self, opcode: CommandOpcode, body: &[u8]) -> Vec<u8> {
        let (status, diagnostic, body) = self.command(opcode, body);
        assert_eq!(status, 0, "{opcode:?} refused: {:?}", rnic_abi::diagnostic::rule(diagnostic));
        body
    }

    pub fn enable(&mut self) {
        self.write(0, REG_COMMAND_RING.into(), &COMMANDS.to_le_bytes());
        self.write(0, REG_COMMAND_COMPLETION_RING.into(), &ANSWERS.to_le_bytes());
        self.write(0, REG_COMMAND_RING_LOG_SLOTS.into(), &4u32.to_le_bytes());
        self.write(0, REG_CONTROL.into(), &CONTROL_ENABLE.to_le_bytes());
    }

    /// Rings, tables, a GID, an event queue, a completion queue, a queue pair and a region.
    pub fn bring_up(&mut self) {
        self.enable();
        let tables =
            [(TABLE_QP, QP_TABLE), (TABLE_CQ, CQ_TABLE), (TABLE_KEY, KEY_TABLE), (TABLE_RD_ATOMIC, RD_ATOMIC_TABLE)];
        for (kind, at) in tables {
            if kind == TABLE_RD_ATOMIC && self.without_rd_atomic {
                continue;
            }
            let mut table = SetTable::zeroed();
            (table.kind, table.log_entries, table.pages) = (kind, 6, pages(at, 0));
            self.must(CommandOpcode::SET_TABLE, table.as_bytes());
        }
        self.set_gid(true);
        let mut eq = CreateEq::zeroed();
        (eq.log_entries, eq.pages) = (self.log_eq, pages(EQ, 0));
        self.must(CommandOpcode::CREATE_EQ, eq.as_bytes());
        self.create_cq(3, CQ, RECORD);
        self.create_qp(self.qpn);
        self.register(0x100, VIRTUAL, BUFFER_BYTES, BUFFER, 1, all_rights());
    }

    pub fn set_gid(&mut self, valid: bool) {
        let mut entry = SetGid::zeroed();
        (entry.valid, entry.vlan_id, entry.mac, entry.gid) =
            (valid.into(), NO_VLAN.into(), [2, 0, 0, 0, 0, self.ip[3]], gid(self.ip));
        self.must(CommandOpcode::SET_GID, entry.as_bytes());
    }

    pub fn create_cq(&mut self, cqn: u32, at: u64, record: u64) {
        let mut cq = CreateCq::zeroed();
        (cq.cqn, cq.log_entries, cq.pages) = (cqn.into(), self.log_cq, pages(at, 0));
        cq.consumer_record = record.into();
        self.must(CommandOpcode::CREATE_CQ, cq.as_bytes());
    }

    pub fn new_qp(&self, qpn: u32) -> CreateQp {
        let mut qp = CreateQp::zeroed();
        (qp.qpn, qp.pdn) = (qpn.into(), PDN.into());
        (qp.log_sq_slots, qp.log_rq_entries) = (6, 6);
        (qp.send_cqn, qp.receive_cqn) = (3.into(), 3.into());
        (qp.sq_pages, qp.rq_pages) = (pages(SQ + self.own(qpn), 0), pages(RQ + self.own(qpn), 0));
        qp
    }

    pub fn create_qp(&mut self, qpn: u32) {
        let qp = self.new_qp(qpn);
        self.must(CommandOpcode::CREATE_QP, qp.as_bytes());
        self.indices.insert(qpn, Indices::default());
    }

    pub fn create_qp_of(&mut self, qpn: u32, qp_type: u8) {
        let qp = CreateQp { qp_type, ..self.new_qp(qpn) };
        self.must(CommandOpcode::CREATE_QP, qp.as_bytes());
        self.indices.insert(qpn, Indices::default());
    }

    /// A queue pair of unreliable datagrams in RTS; its Q_Key is 7, or that of management.
    pub fn create_datagram(&mut self, qpn: u32, qp_type: u8) {
        self.create_qp_of(qpn, qp_type);
        self.start_datagram(qpn, qp_type);
    }

    /// RESET to RTS of a datagram queue pair.
    pub fn start_datagram(&mut self, qpn: u32, qp_type: u8) {
        let is_gsi = qp_type == QP_TYPE_GSI;
        let mask = ATTR_PKEY_INDEX | ATTR_QKEY | if is_gsi { 0 } else { ATTR_PORT };
        let mut init = self.attributes(qpn, QP_STATE_INIT, mask);
        (init.port, init.qkey) = (1, if is_gsi { GSI_QKEY } else { 7 }.into());
        let mut rts = self.attributes(qpn, QP_STATE_RTS, ATTR_SQ_PSN);
        rts.sq_psn = super::PSN.into();
        [init, self.attributes(qpn, QP_STATE_RTR, 0), rts].iter().for_each(|step| self.modify(step));
    }

    /// An unreliable connection in RTS.
    pub fn create_unreliable(&mut self, qpn: u32, peer: ([u8; 4], u32), with: &Attributes) {
        self.create_qp_of(qpn, QP_TYPE_UC);
        self.connect_unreliable(qpn, peer, with);
    }

    /// RESET to RTS of an unreliable connection.
    pub fn connect_unreliable(&mut self, qpn: u32, peer: ([u8; 4], u32), with: &Attributes) {
        let mut rtr = self.rtr_attributes(qpn, peer, with);
        rtr.mask = (ATTR_STATE | ATTR_AV | ATTR_PATH_MTU | ATTR_DEST_QPN | ATTR_RQ_PSN).into();
        let mut rts = self.rts_attributes(qpn, with);
        rts.mask = (ATTR_STATE | ATTR_SQ_PSN).into();
        [self.init_attributes(qpn), rtr, rts].iter().for_each(|step| self.modify(step));
    }

    pub fn attach(&mut self, qpn: u32, gid: [u8; 16]) {
        let group = MulticastGroup { qpn: qpn.into(), reserved: 0.into(), gid };
        self.must(CommandOpcode::ATTACH_MULTICAST, group.as_bytes());
    }

    pub fn object(number: u32) -> ObjectNumber {
        ObjectNumber { number: number.into(), reserved: 0.into() }
    }

    pub fn destroy_qp(&mut self, qpn: u32) {
        self.must(CommandOpcode::DESTROY_QP, Self::object(qpn).as_bytes());
    }

    pub fn deregister(&mut self, key: u32) {
        self.must(CommandOpcode::DEREGISTER_KEY, Self::object(key).as_bytes());
    }

    pub fn flush_caches(&mut self) {
        let mask = (FLUSH_QP | FLUSH_CQ | FLUSH_KEY | FLUSH_TRANSLATION | FLUSH_RD_ATOMIC).into();
        let flush = FlushCaches { mask, reserved: 0.into() };
        self.must(CommandOpcode::FLUSH_CACHES, flush.as_bytes());
    }

    /// A region; `levels` 1 or 2 builds its list in memory.
    pub fn register(&mut self, key: u32, start: u64, length: u64, at: u64, levels: u8, access: u32) {
        let body = self.region(key, start, length, at, levels, access);
        self.must(CommandOpcode::REGISTER_KEY, body.as_bytes());
    }

    pub fn region(&mut self, key: u32, start: u64, length: u64, at: u64, levels: u8, access: u32) -> RegisterKey {
        let list = LISTS + u64::from(key >> 8) * 0x4000;
        let count = (start % PAGE + length).div_ceil(PAGE);
        let first = at - start % PAGE;
        let inner = if levels == 2 { list + PAGE } else { list };
        for page in 0..count {
            self.port.put(inner + page * 8, &(first + page * PAGE).to_le_bytes());
        }
        for block in 0..count.div_ceil(512) {
            if levels == 2 {
                self.port.put(list + block * 8, &(inner + block * PAGE).to_le_bytes());
            }
        }
        let mut body = RegisterKey::zeroed();
        (body.key, body.pdn, body.access) = (key.into(), PDN.into(), access.into());
        (body.start, body.length_bytes) = (start.into(), length.into());
        body.pages = pages(if levels == 0 { at } else { list }, levels);
        body
    }

    pub fn attributes(&self, qpn: u32, state: u8, mask: u32) -> QpAttributes {
        let mut attributes = QpAttributes::zeroed();
        (attributes.qpn, attributes.state) = (qpn.into(), state);
        attributes.mask = (mask | ATTR_STATE).into();
        attributes
    }

    pub fn modify(&mut self, attributes: &QpAttributes) {
        self.must(CommandOpcode::MODIFY_QP, attributes.as_bytes());
    }

    pub fn init_attributes(&self, qpn: u32) -> QpAttributes {
        let mut init = self.attributes(qpn, QP_STATE_INIT, ATTR_PKEY_INDEX | ATTR_PORT | ATTR_ACCESS_FLAGS);
        (init.port, init.access) = (1, all_rights().into());
        init
    }

    pub fn rtr_attributes(&self, qpn: u32, peer: ([u8; 4], u32), with: &Attributes) -> QpAttributes {
        let mask = ATTR_AV | ATTR_PATH_MTU | ATTR_DEST_QPN | ATTR_RQ_PSN | ATTR_MAX_DEST_RD_ATOMIC | ATTR_MIN_RNR_TIMER;
        let mut rtr = self.attributes(qpn, QP_STATE_RTR, mask);
        (rtr.path_mtu, rtr.dest_qpn, rtr.rq_psn) = (with.mtu, peer.1.into(), with.psn.into());
        (rtr.min_rnr_timer, rtr.max_dest_rd_atomic) = (with.min_rnr_timer, with.max_dest_rd_atomic);
        (rtr.av.dest_gid, rtr.av.dest_mac) = (gid(peer.0), [2, 0, 0, 0, 0, peer.0[3]]);
        rtr
    }

    pub fn rts_attributes(&self, qpn: u32, with: &Attributes) -> QpAttributes {
        let mask = ATTR_TIMEOUT | ATTR_RETRY_CNT | ATTR_RNR_RETRY | ATTR_SQ_PSN | ATTR_MAX_QP_RD_ATOMIC;
        let mut rts = self.attributes(qpn, QP_STATE_RTS, mask);
        (rts.timeout, rts.retry_cnt, rts.rnr_retry) = (with.timeout, with.retry_cnt, with.rnr_retry);
        (rts.sq_psn, rts.max_rd_atomic) = (with.psn.into(), with.max_rd_atomic);
        rts
    }

    /// RESET to RTS.
    pub fn connect(&mut self, qpn: u32, peer: ([u8; 4], u32), with: &Attributes) {
        let steps = [self.init_attributes(qpn), self.rtr_attributes(qpn, peer, with), self.rts_attributes(qpn, with)];
        steps.iter().for_each(|step| self.modify(step));
    }
}
