//! Any frames from the wire: noise, packets of every opcode with any fields, good packets spoilt.

use super::Script;
use super::world::{ATTACKED_BYTES, ATTACKED_KEY, World};
use crate::EngineConfig;
use crate::rig::*;
use proptest::prelude::*;
use rnic_abi::command::*;
use rnic_abi::doorbell::{DB_SRQ, queue_doorbell};
use rnic_abi::{CommandOpcode, WorkOpcode};
use rnic_wire::{Frame, IcrcState, Opcode};
use zerocopy::IntoBytes;

/// The XRC target, and the queue that it may reach; the next one is of another domain.
const TARGET: u32 = 0x1a;
const XRC_QUEUE: u32 = 5;

pub(super) fn body(bytes: &[u8]) -> Result<(), TestCaseError> {
    let mut world = World::new(EngineConfig::default());
    let mut script = Script(bytes);
    let first = script.byte();
    if first & 0x80 != 0 {
        world.make_selective();
    }
    for _ in 0..first % 4 {
        world.fabric.b.post_receive(VIRTUAL, 0x800, ATTACKED_KEY);
    }
    extend(&mut world.fabric.b, u16::from(first >> 2) % 4);
    while !script.is_empty() {
        let kind = script.byte();
        if kind & 0x40 != 0 {
            outstanding(&mut script, &mut world.fabric.a);
        }
        let to_a = kind & 0x80 != 0;
        let frame = match kind & 3 {
            0 => noise(&mut script),
            _ => forged(&mut script, if to_a { &world.fabric.a } else { &world.fabric.b }, kind),
        };
        if to_a {
            world.fabric.a.receive(frame)
        } else {
            world.fabric.b.receive(frame)
        }
        if kind & 0x20 != 0 {
            world.carry()?;
        }
        world.poll();
    }
    world.finish()?;
    world.check_attacked_idle()?;
    world.check_canaries()?;
    world.check_witness()
}

/// An XRC target of B, with a queue of its domain that has some receives, and one of another domain.
fn extend(host: &mut Host, receives: u16) {
    let mut table = SetTable::zeroed();
    (table.kind, table.log_entries, table.pages) = (TABLE_SRQ, 4, pages(RECORD + PAGE, 0));
    host.must(CommandOpcode::SET_TABLE, table.as_bytes());
    for (srqn, domain) in [(XRC_QUEUE, 1), (XRC_QUEUE + 1, 2)] {
        let mut srq = CreateSrq::zeroed();
        (srq.srqn, srq.flags, srq.log_slots, srq.pdn) = (srqn.into(), SRQ_XRC, 4, PDN.into());
        (srq.cqn, srq.xrc_domain) = (4.into(), domain.into());
        (srq.wqe_pages, srq.index_pages) = (pages(RECORD + 2 * PAGE, 0), pages(RECORD + 3 * PAGE, 0));
        host.must(CommandOpcode::CREATE_SRQ, srq.as_bytes());
    }
    for slot in 0..receives {
        let element = data_segment(VIRTUAL, 0x800, ATTACKED_KEY);
        host.port.put(RECORD + 2 * PAGE + u64::from(slot) * 16, element.as_bytes());
        host.port.put(RECORD + 3 * PAGE + u64::from(slot) * 2, &slot.to_le_bytes());
    }
    host.ring(DB_SRQ, queue_doorbell(XRC_QUEUE, receives));
    let target = CreateQp { qpn: TARGET.into(), qp_type: QP_TYPE_XRC_TGT, pdn: 1.into(), ..CreateQp::zeroed() };
    host.must(CommandOpcode::CREATE_QP, target.as_bytes());
    let rtr = host.rtr_attributes(TARGET, (IP_A, TARGET), &Attributes::mtu(1));
    [host.init_attributes(TARGET), rtr].iter().for_each(|step| host.modify(step));
}

/// Something for answers to match: a request whose packets are lost.
fn outstanding(script: &mut Script, host: &mut Host) {
    let opcode = script.pick(&[WorkOpcode::WRITE, WorkOpcode::READ, WorkOpcode::FETCH_ADD]);
    let mut request = Request::new(opcode, 0);
    let length = if opcode == WorkOpcode::FETCH_ADD { 8 } else { script.pick(&[0, 8, 600]) };
    request.elements = vec![(VIRTUAL, length, ATTACKED_KEY)];
    request.remote = (VIRTUAL, ATTACKED_KEY);
    host.send(&request);
    for _ in 0..script.byte() & 3 {
        let _lost = host.transmit();
    }
}

fn noise(script: &mut Script) -> Frame {
    let length = usize::from(script.byte());
    let mut frame = Frame::new();
    let bytes = script.bytes(length);
    assert!(frame.set_bytes(&bytes), "255 bytes fit");
    frame
}

fn forged(script: &mut Script, to: &Host, kind: u8) -> Frame {
    let from = if to.ip == IP_A { IP_B } else { IP_A };
    let opcodes: Vec<Opcode> = Opcode::ALL.to_vec();
    let usual = [
        Opcode::RC_SEND_FIRST,
        Opcode::RC_SEND_LAST,
        Opcode::RC_SEND_ONLY_IMM,
        Opcode::RC_WRITE_FIRST,
        Opcode::RC_WRITE_MIDDLE,
        Opcode::RC_WRITE_LAST_IMM,
        Opcode::RC_WRITE_ONLY,
        Opcode::RC_ACKNOWLEDGE,
        Opcode::RC_ACKNOWLEDGE,
        Opcode::RC_READ_REQUEST,
        Opcode::RC_READ_RESPONSE_FIRST,
        Opcode::RC_READ_RESPONSE_MIDDLE,
        Opcode::RC_READ_RESPONSE_LAST,
        Opcode::RC_READ_RESPONSE_ONLY,
        Opcode::RC_COMPARE_SWAP,
        Opcode::RC_FETCH_ADD,
        Opcode::RC_ATOMIC_ACKNOWLEDGE,
        Opcode::XRC_SEND_ONLY,
        Opcode::XRC_SEND_FIRST,
        Opcode::XRC_SEND_LAST_IMM,
        Opcode::XRC_WRITE_ONLY_IMM,
        Opcode::XRC_READ_REQUEST,
    ];
    let opcode = if kind & 4 != 0 { script.pick(&opcodes) } else { script.pick(&usual) };
    let psn = PSN.wrapping_add_signed(i32::from(script.byte() as i8) / 16);
    let psn = if kind & 0x18 == 0x18 { script.u32() & 0xff_ffff } else { psn };
    let edge = VIRTUAL + ATTACKED_BYTES;
    let address = script.pick(&[VIRTUAL, edge - 256, edge - 8, VIRTUAL - 1, edge + 0x8_0000, u64::MAX]);
    let length = script.pick(&[8, 256, 264, 0, 600, u32::MAX]);
    let key = script.pick(&[ATTACKED_KEY, ATTACKED_KEY, 0x100, 0x301]);
    let payload = vec![script.byte(); script.pick(&[256, 8, 0, 1, 255, 257, 1024])];
    let bytes = if matches!(opcode, Opcode::RC_READ_REQUEST | Opcode::RC_COMPARE_SWAP | Opcode::RC_FETCH_ADD) {
        0
    } else {
        payload.len()
    };
    let mut forged = Forged::new(to, from, opcode, psn, &payload[..bytes])
        .reth(address, key, length)
        .atomic(address, key, 1, 0xa5a5_a5a5_a5a5_a5a5)
        .aeth(script.pick(&[0x1f, 0x00, 0x60, 0x2c, 0x61, 0x62, 0x63, 0x40, 0x41, 0x64]), script.byte().into());
    forged.headers.bth.ack_req = kind & 8 != 0;
    if opcode.0 >> 5 == Opcode::XRC_SEND_FIRST.0 >> 5 {
        forged.headers.bth.dest_qp = TARGET;
        forged = forged.srqn(script.pick(&[XRC_QUEUE, XRC_QUEUE, XRC_QUEUE, XRC_QUEUE + 1, 9]));
    }
    let mut frame = forged.frame();
    if script.byte() & 7 == 0 {
        let at = usize::from(script.u16()) % frame.length();
        frame.bytes_mut()[at] ^= script.byte();
        frame.icrc = if script.byte() & 1 == 0 { IcrcState::Deferred } else { IcrcState::Present };
        frame.seal();
    }
    frame
}
