//! Any command: known opcodes with sound and spoilt fields, page lists that point anywhere, and plain noise.

use super::Script;
use super::world::{World, check_reset};
use crate::EngineConfig;
use crate::rig::*;
use proptest::prelude::*;
use rnic_abi::command::*;
use rnic_abi::{CommandOpcode, PageListFields};
use zerocopy::IntoBytes;

pub(super) fn body(bytes: &[u8]) -> Result<(), TestCaseError> {
    let mut world = World::new(EngineConfig::default());
    let mut script = Script(bytes);
    // Lists of pages that lead into memory, beside it, and astray.
    for at in 0..512u64 {
        let entry = match at & 3 {
            0 | 1 => BUFFER + at * PAGE,
            2 => 0xffff_ffff_ffff_f000 - at * PAGE,
            _ => BUFFER + at,
        };
        world.fabric.a.port.put(LISTS + 0x2_0000 + at * 8, &entry.to_le_bytes());
    }
    for _ in 0..24 {
        if script.is_empty() {
            break;
        }
        let slot = command(&mut script, &world.fabric.a);
        world.fabric.a.diagnostics();
        let (status, diagnostic, name) = issue(&mut world.fabric.a, &slot)?;
        if status != 0 {
            prop_assert!(!name.is_empty(), "diagnostic {diagnostic} has a name");
            let seen = world.fabric.a.diagnostics();
            prop_assert!(seen.contains(&name), "{}: {:?}", name, seen);
        }
        world.carry()?;
    }
    world.finish()?;
    check_reset(world.fabric.a)
}

/// Issues a slot; status, diagnostic and its name.
fn issue(host: &mut Host, slot: &[u8; 128]) -> Result<(u8, u32, &'static str), TestCaseError> {
    host.start_slot(slot);
    host.settle();
    prop_assert!(host.is_answered(), "a command without an answer");
    let answer = host.newest_answer();
    let diagnostic = u32::from_le_bytes(answer[8..12].try_into().unwrap());
    prop_assert_eq!(answer[4], slot[0], "the opcode comes back");
    Ok((answer[5], diagnostic, rnic_abi::diagnostic::rule(diagnostic).map_or("", |rule| rule.name)))
}

fn page_list(script: &mut Script) -> PageListFields {
    let roots =
        [BUFFER, LISTS + 0x2_0000, LISTS + 0x2_0008, 0, u64::MAX - 63, port::BASE + port::SIZE as u64 - 64, 0x1000];
    let mut fields = pages(script.pick(&roots), script.byte() % 4);
    fields.page_shift = script.pick(&[12, 12, 12, 13, 30, 11, 31, 0]);
    fields
}

fn command(script: &mut Script, host: &Host) -> [u8; 128] {
    let mut slot = [0; 128];
    let kind = script.byte();
    let opcodes: Vec<u8> = CommandOpcode::NAMES.iter().map(|(_, value)| *value).collect();
    slot[0] = script.pick(&opcodes);
    slot[1] = kind >> 7;
    let number = script.pick(&[0, 1, 3, 4, 5, 0x11, 0x12, 0x15, 0x100, 0x300, 63, 64, u32::MAX]);
    let body: Vec<u8> = match CommandOpcode(slot[0]) {
        CommandOpcode::SET_TABLE => {
            let mut table = SetTable::zeroed();
            (table.kind, table.log_entries, table.pages) = (1 << (kind & 3), script.byte() % 24, page_list(script));
            table.as_bytes().to_vec()
        }
        CommandOpcode::CREATE_EQ => {
            let mut eq = CreateEq::zeroed();
            (eq.eqn, eq.vector, eq.log_entries) = (number.into(), u16::from(kind & 63).into(), script.byte() % 20);
            eq.pages = page_list(script);
            eq.as_bytes().to_vec()
        }
        CommandOpcode::CREATE_CQ => {
            let mut cq = CreateCq::zeroed();
            (cq.cqn, cq.eqn, cq.log_entries) =
                (number.into(), script.pick(&[0, 1, u32::MAX]).into(), script.byte() % 25);
            (cq.pages, cq.consumer_record) = (page_list(script), script.pick(&[RECORD, 0, 4, u64::MAX - 7]).into());
            cq.as_bytes().to_vec()
        }
        CommandOpcode::CREATE_QP => {
            let mut qp = host.new_qp(0x11);
            (qp.qpn, qp.log_sq_slots) = (number.into(), script.byte() % 18);
            (qp.log_rq_entries, qp.log_rq_stride) = (script.byte() % 18, kind & 3);
            (qp.send_cqn, qp.receive_cqn) = (script.pick(&[3, 4, 5]).into(), 4.into());
            (qp.sq_pages, qp.rq_pages) = (page_list(script), page_list(script));
            qp.as_bytes().to_vec()
        }
        CommandOpcode::MODIFY_QP => modify(script, host, number).as_bytes().to_vec(),
        CommandOpcode::REGISTER_KEY => {
            let mut key = RegisterKey::zeroed();
            (key.key, key.pdn, key.access) = (number.into(), PDN.into(), u32::from(kind & 31).into());
            key.start = script.pick(&[0, VIRTUAL, VIRTUAL + 5, u64::MAX - 4096]).into();
            (key.length_bytes, key.pages) =
                (script.u64().checked_shr(script.byte().into()).unwrap_or(0).into(), page_list(script));
            key.as_bytes().to_vec()
        }
        CommandOpcode::QUERY_DEVICE => vec![],
        CommandOpcode::FLUSH_CACHES => vec![script.byte() & 0x1f],
        CommandOpcode::SET_GID => script.bytes(32),
        _ => Host::object(number).as_bytes().to_vec(),
    };
    slot[16..16 + body.len()].copy_from_slice(&body);
    for _ in 0..(kind & 1) + (kind >> 1 & 1) {
        slot[usize::from(script.byte() & 127)] = script.byte();
    }
    slot
}

fn modify(script: &mut Script, host: &Host, number: u32) -> QpAttributes {
    let with = Attributes::mtu(script.byte() % 8);
    let mut change = match script.byte() & 3 {
        0 => host.init_attributes(number),
        1 => host.rtr_attributes(number, (IP_B, 0x12), &with),
        2 => host.rts_attributes(number, &with),
        _ => host.attributes(number, script.byte() & 7, script.u32()),
    };
    if script.byte() & 7 == 0 {
        change.mask = (change.mask.get() ^ 1 << (script.byte() & 31)).into();
    }
    change
}
