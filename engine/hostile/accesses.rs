//! Any access of any size to any BAR.

use super::Script;
use super::world::{World, check_reset};
use crate::EngineConfig;
use proptest::prelude::*;
use rnic_abi::doorbell::*;
use rnic_abi::registers::*;

const REGISTERS: [u32; 12] = [
    REG_MAGIC,
    REG_STATUS,
    REG_CONTROL,
    REG_MAC,
    REG_COMMAND_RING,
    REG_COMMAND_COMPLETION_RING,
    REG_COMMAND_RING_LOG_SLOTS,
    REG_COMMAND_DOORBELL,
    REG_LAST_DIAGNOSTIC,
    REG_MARK,
    REG_TIME,
    0xfffc,
];
const DOORBELLS: [u32; 8] =
    [DB_SEND, DB_RECEIVE, DB_CQ_ARM, DB_EQ_UPDATE, DB_SEND_LINE_0, DB_SEND_LINE_1, DB_SEND_WQE_0, DB_SEND_WQE_1];
const SIZES: [usize; 9] = [8, 8, 8, 64, 4, 1, 0, 16, 65];

pub(super) fn body(bytes: &[u8]) -> Result<(), TestCaseError> {
    let mut world = World::new(EngineConfig::default());
    let mut script = Script(bytes);
    while !script.is_empty() {
        let kind = script.byte();
        let (bar, offset) = match kind & 7 {
            0 => (script.byte(), script.u64()),
            1 => (script.byte() & 7, script.u16().into()),
            2 | 3 => (0, script.pick(&REGISTERS).into()),
            // The attacked queue pair's page is the witness' as well: numbers decide.
            _ => (2, u64::from(script.pick(&DOORBELLS)) + u64::from(kind & 0x40) * 64),
        };
        let length = script.pick(&SIZES);
        let mut data = match kind >> 3 & 3 {
            0 => script.bytes(length),
            1 => (u64::from(script.u16()) << 32 | 0x11 << 8).to_le_bytes().to_vec(),
            2 => (script.u64() & 0x00ff_ffff_0000_0007 | 0x400).to_le_bytes().to_vec(),
            _ => script.byte().to_le_bytes().to_vec(),
        };
        data.resize(length, 0);
        let host = &mut world.fabric.a;
        if kind & 0x80 != 0 {
            host.engine.handle_read(host.now_ns, &mut host.port, bar, offset, &mut data);
        } else if bar != 0 || offset != u64::from(REG_CONTROL) || kind & 0x20 != 0 {
            host.write_as(bar, offset, &data, kind & 0x40 != 0);
        }
        world.carry()?;
        world.poll();
    }
    world.finish()?;
    world.check_canaries()?;
    check_reset(world.fabric.a)
}
