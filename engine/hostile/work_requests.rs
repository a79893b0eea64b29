//! Any bytes in the send and receive rings of the attacked queue pairs.

use super::Script;
use super::world::{ATTACKED_BYTES, ATTACKED_KEY, World};
use crate::EngineConfig;
use crate::numbers::Qpn;
use crate::rig::*;
use proptest::prelude::*;
use rnic_abi::{WorkOpcode, doorbell};

const OPCODES: [WorkOpcode; 7] = [
    WorkOpcode::SEND,
    WorkOpcode::SEND_IMM,
    WorkOpcode::WRITE,
    WorkOpcode::WRITE_IMM,
    WorkOpcode::READ,
    WorkOpcode::CMP_SWAP,
    WorkOpcode::FETCH_ADD,
];

pub(super) fn body(bytes: &[u8]) -> Result<(), TestCaseError> {
    let mut world = World::new(EngineConfig { fetched_wqes: 64, ..EngineConfig::default() });
    let mut script = Script(bytes);
    while !script.is_empty() {
        match script.byte() & 3 {
            0 => receive(&mut script, &mut world.fabric.b),
            1 => noise(&mut script, &mut world.fabric.a),
            _ => request(&mut script, &mut world.fabric.a),
        }
        world.carry()?;
        world.poll();
    }
    world.finish()?;
    world.check_attacked_idle()?;
    world.check_canaries()?;
    world.check_witness()
}

/// Around the edges of the region, and anywhere.
fn element(script: &mut Script) -> (u64, u32, u32) {
    let edge = VIRTUAL + ATTACKED_BYTES;
    let bases = [VIRTUAL, edge - 256, edge, VIRTUAL - 8, edge + 0x8_0000, 0, u64::MAX - 8];
    let address = script.pick(&bases).wrapping_add(u64::from(script.byte()));
    let length = script.pick(&[0, 1, 8, 256, 257, 600, 4096, 0x1_0000, u32::MAX]);
    let key = script.pick(&[ATTACKED_KEY, ATTACKED_KEY, ATTACKED_KEY, 0x100, 0x301, 0]);
    (address, length, key)
}

fn request(script: &mut Script, host: &mut Host) {
    let mut request = Request::new(script.pick(&OPCODES), 0);
    request.elements = (0..script.byte() % 6).map(|_| element(script)).collect();
    let flags = script.byte();
    request.flags = flags & 7;
    if flags >= 0xfc {
        // A key that other scripts go on to use is given away.
        request.opcode = if flags & 1 == 0 { WorkOpcode::SEND_INV } else { WorkOpcode::LOCAL_INV };
        (request.immediate, request.elements) = (ATTACKED_KEY, vec![]);
    }
    let (address, _, key) = element(script);
    request.remote = (address, key);
    if matches!(request.opcode, WorkOpcode::CMP_SWAP | WorkOpcode::FETCH_ADD) && script.byte() & 3 != 0 {
        // Mostly one that the device takes.
        request.elements.truncate(1);
        request.elements.iter_mut().for_each(|element| element.1 = 8);
        request.remote.0 &= !7;
    }
    if script.byte() & 7 == 0 {
        request.inline = Some(script.bytes(60));
    }
    let first = host.of(host.qpn).send;
    host.post(&request);
    if script.byte() & 3 == 0 {
        let at = SQ + u64::from(first & 63) * 64 + u64::from(script.byte() & 63);
        host.port.put(at, &[script.byte()]);
    }
    host.ring_send();
}

fn noise(script: &mut Script, host: &mut Host) {
    let at = SQ + u64::from(script.byte() & 63) * 64;
    let bytes = script.bytes(64);
    host.port.put(at, &bytes);
    let producer = host.of(host.qpn).send.wrapping_add(script.byte().into());
    if script.byte() & 1 == 0 {
        host.ring(doorbell::DB_SEND, doorbell::queue_doorbell(host.qpn, producer));
    } else {
        let mut line = bytes;
        line.resize(64, 0);
        line[1..4].copy_from_slice(&host.qpn.to_le_bytes()[..3]);
        host.write(2, doorbell::DB_SEND_WQE_0.into(), &line);
    }
    // The driver goes on where the device is.
    let device = host.engine.queue_pairs.get(Qpn(host.qpn)).map_or(0, |qp| qp.sq_producer);
    host.of(host.qpn).send = device;
}

fn receive(script: &mut Script, host: &mut Host) {
    let (address, length, key) = element(script);
    if script.byte() & 7 == 0 {
        let at = RQ + u64::from(script.byte() & 63) * 16;
        let bytes = script.bytes(16);
        host.port.put(at, &bytes);
    }
    host.post_receive(address, length, key);
}
