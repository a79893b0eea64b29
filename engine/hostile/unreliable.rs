//! Any packets and any work requests for an unreliable connection, a datagram queue pair and its group. Whatever a peer
//! sends, it changes no state; only a receive that cannot be used does.

use super::Script;
use super::world::{ATTACKED_BYTES, ATTACKED_KEY, World};
use crate::EngineConfig;
use crate::context::queue_pair::QpState;
use crate::rig::*;
use proptest::prelude::*;
use rnic_abi::command::*;
use rnic_abi::{CommandOpcode, WorkOpcode};
use rnic_wire::{Deth, Frame, Network, Opcode};
use zerocopy::IntoBytes;

/// The attacked queue pairs of both sides.
const CONNECTION: u32 = 0x18;
const DATAGRAM: u32 = 0x19;
const QKEY: u32 = 7;
const GROUP: [u8; 4] = [239, 9, 9, 9];

pub(super) fn body(bytes: &[u8]) -> Result<(), TestCaseError> {
    let mut world = World::new(EngineConfig { parked_frames: 4, ..EngineConfig::default() });
    let mut script = Script(bytes);
    attack(&mut world.fabric);
    let late = script.byte() & 3 == 0;
    world.fabric.b.port.hold = Box::new(move |_, _| late);
    let mut unusable = false;
    while !script.is_empty() {
        match script.byte() & 7 {
            0 | 1 => unusable |= receive(&mut script, &mut world.fabric.b),
            2 | 3 => request(&mut script, &mut world.fabric.a),
            4 => world.fabric.b.settle(),
            _ => {
                let frame = forged(&mut script, &world.fabric.b);
                world.fabric.b.receive(frame);
            }
        }
        world.carry()?;
        world.poll();
    }
    world.finish()?;
    for qpn in [CONNECTION, DATAGRAM] {
        let state = world.fabric.b.engine.queue_pair_state(qpn);
        prop_assert!(unusable || state == Some(QpState::Rts), "a peer has changed the state of {qpn:#x}: {state:?}");
    }
    world.fabric.b.port.hold = Box::new(|_, _| false);
    world.check_canaries()?;
    world.check_witness()
}

/// The queue pairs complete into the attacked completion queue, and both of B are in the group.
fn attack(fabric: &mut Fabric) {
    let with = Attributes::mtu(1);
    for (host, peer) in [(&mut fabric.a, IP_B), (&mut fabric.b, IP_A)] {
        for (qpn, qp_type) in [(CONNECTION, QP_TYPE_UC), (DATAGRAM, QP_TYPE_UD)] {
            let mut qp = host.new_qp(qpn);
            (qp.qp_type, qp.send_cqn, qp.receive_cqn) = (qp_type, 4.into(), 4.into());
            host.must(CommandOpcode::CREATE_QP, qp.as_bytes());
        }
        host.connect_unreliable(CONNECTION, (peer, CONNECTION), &with);
        host.start_datagram(DATAGRAM, QP_TYPE_UD);
    }
    fabric.b.attach(DATAGRAM, gid(GROUP));
}

/// True for one that cannot be used.
fn receive(script: &mut Script, host: &mut Host) -> bool {
    let qpn = script.pick(&[CONNECTION, DATAGRAM]);
    let (length, key) = script.pick(&[
        (0x800, ATTACKED_KEY),
        (300, ATTACKED_KEY),
        (40, ATTACKED_KEY),
        (0, ATTACKED_KEY),
        (0x800, ATTACKED_KEY),
        (0x2_0000, ATTACKED_KEY),
        (64, 0x999),
    ]);
    if host.engine.queue_pair_state(qpn).is_some() {
        host.post_receive_of(qpn, VIRTUAL, length, key);
    }
    key != ATTACKED_KEY || length > 0x800
}

fn request(script: &mut Script, host: &mut Host) {
    let kind = script.byte();
    let length = script.pick(&[0, 8, 256, 257, 700, 4096, 4097]);
    let opcodes = [WorkOpcode::SEND, WorkOpcode::SEND_IMM, WorkOpcode::WRITE, WorkOpcode::WRITE_IMM, WorkOpcode::READ];
    let mut request = if kind & 1 == 0 {
        Request { qpn: Some(CONNECTION), ..Request::new(script.pick(&opcodes), length) }
    } else {
        let (to, dest) = script.pick(&[(IP_B, DATAGRAM), (GROUP, MULTICAST_QPN), (IP_B, CONNECTION), (IP_B, 1)]);
        Request::datagram(DATAGRAM, to, dest, script.pick(&[QKEY, QKEY, 8, 0x8000_0001]), length)
    };
    let edge = VIRTUAL + ATTACKED_BYTES;
    request.elements = vec![(VIRTUAL, length, script.pick(&[ATTACKED_KEY, ATTACKED_KEY, ATTACKED_KEY, 0x999]))];
    request.remote = (script.pick(&[VIRTUAL, edge - 300, edge, u64::MAX - 4]), ATTACKED_KEY);
    let qpn = request.qpn.unwrap_or_default();
    if host.engine.queue_pair_state(qpn) == Some(QpState::Sqe) && kind & 2 != 0 {
        host.modify(&host.attributes(qpn, QP_STATE_RTS, 0));
    }
    host.send(&request);
}

fn forged(script: &mut Script, to: &Host) -> Frame {
    let all: Vec<Opcode> = Opcode::ALL.iter().copied().filter(|opcode| matches!(opcode.0 >> 5, 1 | 3)).collect();
    let opcode = script.pick(&all);
    let psn = PSN.wrapping_add_signed(i32::from(script.byte() as i8) / 16);
    let edge = VIRTUAL + ATTACKED_BYTES;
    let address = script.pick(&[VIRTUAL, edge - 256, edge - 8, VIRTUAL - 1, edge + 0x8_0000, u64::MAX]);
    let length = script.pick(&[8, 256, 264, 0, 600, u32::MAX]);
    let key = script.pick(&[ATTACKED_KEY, ATTACKED_KEY, 0x100, 0x301]);
    let payload = vec![script.byte(); script.pick(&[256, 8, 0, 1, 255, 257, 1024, 4096, 5000])];
    let mut forged = Forged::new(to, IP_A, opcode, psn, &payload).reth(address, key, length);
    forged.headers.bth.dest_qp = script.pick(&[CONNECTION, DATAGRAM, DATAGRAM, MULTICAST_QPN]);
    forged.headers.extension.deth =
        Deth { queue_key: script.pick(&[QKEY, QKEY, 9]), source_qp: script.u32() & 0xff_ffff };
    if script.byte() & 1 == 0
        && let Network::V4 { dest, .. } = &mut forged.headers.network
    {
        *dest = GROUP.into();
    }
    forged.frame()
}
