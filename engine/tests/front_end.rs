//! Another hardware interface on the same engine: what the trait says is all that it takes.

mod rig;
mod toy;

use rig::*;
use rnic_abi::Diagnostic;
use rnic_abi::command::*;
use rnic_engine::context::gid::GidEntry;
use rnic_engine::context::page_list::PageList;
use rnic_engine::context::queue_pair::{AddressVector, QpState, Service};
use rnic_engine::front_end::commands::*;
use rnic_engine::numbers::*;
use rnic_engine::{Engine, EngineConfig};
use rnic_pcie::Class;
use toy::*;

/// A host whose driver speaks the toy's interface.
struct ToyHost {
    host: Host,
    commands: Commands,
    issued: u16,
}

fn run(root: u64) -> PageList {
    PageList { root, page_shift: 12, levels: 0 }
}

impl ToyHost {
    fn new(ip: [u8; 4], qpn: u32) -> Self {
        let commands = Commands::default();
        let toy = Toy { commands: commands.clone(), rings: (COMMANDS, ANSWERS) };
        let engine = Engine::with_front_end(EngineConfig::default(), Box::new(toy));
        let mut host = Self { host: Host::with_engine(engine, ip, qpn), commands, issued: 0 };
        host.host.write(2, START, &1u64.to_be_bytes());
        host
    }

    fn bell(&mut self, bell: u64, object: u32, index: u32) {
        let value = u64::from(object) << 32 | u64::from(index);
        self.host.write(4, bell, &value.to_be_bytes());
    }

    /// Issues a command; the number of the rule that it breaks is the answer.
    fn command(&mut self, command: Command) -> u32 {
        let number = {
            let mut commands = self.commands.lock().unwrap();
            commands.push(command);
            commands.len() as u32 - 1
        };
        let mut slot = [0; COMMAND];
        slot[4..8].copy_from_slice(&number.to_be_bytes());
        slot[15] = 1;
        let at = u64::from(self.issued & 7) * COMMAND as u64;
        self.host.port.put(COMMANDS + at, &slot);
        let phase = if self.issued >> 3 & 1 == 0 { 0x80 } else { 0 };
        self.issued += 1;
        self.host.write(2, COMMAND_BELL, &u64::from(self.issued).to_be_bytes());
        let answer = self.host.port.slice(ANSWERS + at, COMMAND);
        assert_eq!(answer[0], phase);
        u32::from_be_bytes(answer[4..8].try_into().unwrap())
    }

    fn bring_up(&mut self, peer: ([u8; 4], u32)) {
        let tables =
            [(TableKind::QueuePair, QP_TABLE), (TableKind::CompletionQueue, CQ_TABLE), (TableKind::Key, KEY_TABLE)];
        let mut script: Vec<_> =
            tables.into_iter().map(|(kind, at)| Command::SetTable { kind, log_entries: 6, pages: run(at) }).collect();
        let own = GidEntry { gid: gid(self.host.ip), mac: [2; 6], vlan_id: None };
        let qpn = Qpn(self.host.qpn);
        script.push(Command::SetGid { index: 0, entry: Some(own) });
        script.push(Command::CreateEq(NewEq { eqn: Eqn(0), vector: Some(0), log_entries: 6, pages: run(EQ) }));
        script.push(Command::CreateCq(NewCq {
            cqn: Cqn(3),
            eqn: Some(Eqn(0)),
            doorbell_page: 0,
            log_entries: 2,
            pages: run(CQ),
            consumer_record: RECORD,
        }));
        script.push(Command::CreateQp(NewQp {
            qpn,
            service: Service::Rc,
            signal_all: false,
            privileged: false,
            selective: false,
            srqn: None,
            xrc_domain: None,
            log_sq_slots: 3,
            log_rq_entries: 2,
            rq_stride_bytes: RECEIVE,
            pdn: Pdn(1),
            send_cqn: Cqn(3),
            receive_cqn: Cqn(3),
            doorbell_page: 0,
            sq_pages: run(SQ),
            rq_pages: run(RQ),
        }));
        script.push(Command::RegisterKey(NewKey {
            key: Key(0x500),
            pdn: Pdn(1),
            access: all_rights(),
            start: VIRTUAL,
            length_bytes: BUFFER_BYTES,
            pages: run(BUFFER),
        }));
        let change = |state, mask| QpChange { qpn, mask: mask | ATTR_STATE, state: Some(state), ..QpChange::default() };
        let init = change(QpState::Init, ATTR_PKEY_INDEX | ATTR_PORT | ATTR_ACCESS_FLAGS);
        script.push(Command::ModifyQp(QpChange { port: 1, access: all_rights(), ..init }));
        let rtr = ATTR_AV | ATTR_PATH_MTU | ATTR_DEST_QPN | ATTR_RQ_PSN | ATTR_MAX_DEST_RD_ATOMIC | ATTR_MIN_RNR_TIMER;
        let av = AddressVector { dest_gid: gid(peer.0), dest_mac: [2; 6], ..AddressVector::default() };
        let rtr = change(QpState::Rtr, rtr);
        script.push(Command::ModifyQp(QpChange { path_mtu: 3, dest_qpn: peer.1, rq_psn: PSN, av, ..rtr }));
        let rts = ATTR_TIMEOUT | ATTR_RETRY_CNT | ATTR_RNR_RETRY | ATTR_SQ_PSN | ATTR_MAX_QP_RD_ATOMIC;
        let rts = change(QpState::Rts, rts);
        script.push(Command::ModifyQp(QpChange { timeout: 14, retry_cnt: 3, sq_psn: PSN, ..rts }));
        for command in script {
            assert_eq!(self.command(command), 0, "{command:?}");
        }
        self.host.port.log.clear();
    }

    /// A WRITE with immediate of these elements, at ring index `index`.
    fn write_imm(&mut self, index: u16, remote: u64, elements: &[(u64, u32)]) -> u16 {
        let mut bytes = vec![0; SLOT * (1 + elements.len())];
        (bytes[0], bytes[1], bytes[2]) = (b'i', elements.len() as u8, 1);
        bytes[4..8].copy_from_slice(&0x0102_0304u32.to_be_bytes());
        bytes[8..16].copy_from_slice(&remote.to_be_bytes());
        bytes[16..20].copy_from_slice(&0x500u32.to_be_bytes());
        for (at, (address, length)) in elements.iter().enumerate() {
            element(&mut bytes[SLOT * (1 + at)..], *address, *length);
        }
        for (at, slot) in bytes.chunks(SLOT).enumerate() {
            let place = u64::from(index.wrapping_add(at as u16) & 7) * SLOT as u64;
            self.host.port.put(SQ + place, slot);
        }
        index + 1 + elements.len() as u16
    }

    fn completion(&self, index: u32) -> Option<&[u8]> {
        let cqe = self.host.port.slice(CQ + u64::from(index & 3) * CQE as u64, CQE);
        ((cqe[0] & 0x80 != 0) == (index >> 2 & 1 == 0)).then_some(cqe)
    }
}

fn element(slot: &mut [u8], address: u64, length: u32) {
    slot[..4].copy_from_slice(&length.to_be_bytes());
    slot[4..8].copy_from_slice(&0x500u32.to_be_bytes());
    slot[8..16].copy_from_slice(&address.to_be_bytes());
}

fn carry(a: &mut ToyHost, b: &mut ToyHost) {
    for _ in 0..100 {
        while let Some(frame) = a.host.transmit() {
            b.host.receive(frame);
        }
        while let Some(frame) = b.host.transmit() {
            a.host.receive(frame);
        }
    }
}

#[test]
fn a_write_with_immediate_goes_through_another_interface() {
    let (mut a, mut b) = (ToyHost::new(IP_A, 0x11), ToyHost::new(IP_B, 0x12));
    a.bring_up((IP_B, 0x12));
    b.bring_up((IP_A, 0x11));
    a.host.port.put(BUFFER, &pattern(3000, 4));
    let mut index = 0;
    // Round both rings: three slots a request in a ring of eight, completion queues of four.
    for round in 0..10u32 {
        let mut receive = [0; RECEIVE as usize];
        element(&mut receive, VIRTUAL, 64);
        b.host.port.put(RQ + u64::from(round & 3) * u64::from(RECEIVE), &receive);
        b.bell(BELL_RECEIVE, 0x12, round + 1);
        b.bell(BELL_ARM, ((round + 1) & 3) << 24 | 3, round);
        index = a.write_imm(index, VIRTUAL + 0x8_0000, &[(VIRTUAL, 1000), (VIRTUAL + 1000, 2000)]);
        a.host.port.log.clear();
        b.host.port.log.clear();
        a.bell(BELL_SEND, 0x11, index.into());
        carry(&mut a, &mut b);
        let record = usize::from(round >= 4 && round % 4 == 0);
        assert_eq!(a.host.count(Class::RecordFetch), record, "round {round}");
        assert_eq!(b.host.port.slice(BUFFER + 0x8_0000, 3000), pattern(3000, 4));
        let sent = a.completion(round).expect("a send completion");
        assert_eq!((sent[1], &sent[2..4]), (0, &(index - 3).to_be_bytes()[..]));
        let received = b.completion(round).expect("a receive completion");
        assert_eq!((received[1], &received[8..16]), (0, &[0, 0, 0x0b, 0xb8, 1, 2, 3, 4][..]));
        assert!(a.completion(round + 1).is_none() && b.completion(round + 1).is_none());
        let events = b.host.port.log.iter().filter(|transfer| transfer.class() == Class::Event).count();
        assert_eq!(events, 1, "one of 8 bytes");
        b.host.port.put(BUFFER + 0x8_0000, &[0; 3000]);
        for host in [&mut a.host, &mut b.host] {
            host.port.put(RECORD + 4, &(round + 1).to_be_bytes());
            assert_eq!(host.diagnostics(), [""; 0]);
        }
    }
}

#[test]
fn its_refusals_carry_the_same_numbers() {
    let mut a = ToyHost::new(IP_A, 0x11);
    assert_eq!(a.command(Command::DestroyQp(Qpn(5))), Diagnostic::ObjectMissing.number());
    a.bell(BELL_SEND, 0x77, 1);
    assert_eq!(a.host.diagnostics(), ["ObjectMissing", "DoorbellNoQueue"]);
    a.host.write(2, START, &0u64.to_be_bytes());
    a.bell(BELL_SEND, 0x11, 1);
    assert_eq!(a.host.diagnostics(), ["DeviceDisabled"]);
}
