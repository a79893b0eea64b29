//! The command client and the bring-up sequence.

use super::model::{LIMIT, Script, backing, device};
use crate::verbs::*;
use rnic_abi::command::*;
use rnic_abi::{CommandOpcode, CommandStatus, Diagnostic};
use zerocopy::FromBytes;

#[test]
fn bring_up_hands_over_tables_in_order_and_creates_the_asynchronous_event_queue() {
    let (_device, state) = device();
    let state = state.borrow();
    let opcodes: Vec<CommandOpcode> = state.commands.iter().map(|(opcode, _)| *opcode).collect();
    use CommandOpcode as Op;
    assert_eq!(opcodes, [Op::QUERY_DEVICE, Op::SET_TABLE, Op::SET_TABLE, Op::SET_TABLE, Op::SET_TABLE, Op::CREATE_EQ]);
    for (kind, (_, body)) in [TABLE_QP, TABLE_CQ, TABLE_KEY, TABLE_RD_ATOMIC].into_iter().zip(&state.commands[1..5]) {
        let (table, _) = SetTable::read_from_prefix(body).unwrap();
        assert_eq!((table.kind, table.log_entries, table.pages.levels, table.pages.page_shift), (kind, 8, 0, 12));
        assert_eq!(table.pages.root.get() % 4096, 0);
    }
    let (eq, _) = CreateEq::read_from_prefix(&state.commands[5].1).unwrap();
    assert_eq!((eq.eqn.get(), eq.vector.get()), (0, 0));
}

/// Two slots and hundreds of commands: index and phase wrap many times, and 2^16 is passed.
#[test]
fn commands_keep_their_order_over_every_wrap() {
    let (mut device, state) = device();
    for index in 0..70_000u32 {
        device.flush_caches(index).unwrap();
    }
    let state = state.borrow();
    let last: Vec<u32> =
        state.commands[6..].iter().map(|(_, body)| FlushCaches::read_from_prefix(body).unwrap().0.mask.get()).collect();
    assert!(last.iter().copied().eq(0..70_000));
}

#[test]
fn a_refusal_carries_status_diagnostic_and_the_rule_s_sentence() {
    let (mut device, state) = device();
    let refuse = Script::Refuse(CommandStatus::BAD_PARAMETER, Diagnostic::ModifyValue.number());
    state.borrow_mut().script.insert(CommandOpcode::MODIFY_QP.0, refuse);
    let error = device.modify_queue_pair(Qpn(5), init_attributes(0)).unwrap_err();
    assert!(matches!(&error, VerbsError::Command(refused)
        if refused.opcode == CommandOpcode::MODIFY_QP
        && refused.status == CommandStatus::BAD_PARAMETER
        && refused.diagnostic == 324));
    assert_eq!(
        error.to_string(),
        "MODIFY_QP was refused with BAD_PARAMETER: 324 ModifyValue: the value of an attribute is outside its range"
    );
    // The queue still works.
    device.flush_caches(1).unwrap();
}

#[test]
fn a_device_that_does_not_answer_is_an_error_that_names_its_last_diagnostic() {
    let (mut device, state) = device();
    state.borrow_mut().script.insert(CommandOpcode::FLUSH_CACHES.0, Script::Ignore);
    state.borrow_mut().last_diagnostic = 302;
    let error = device.flush_caches(1).unwrap_err();
    assert!(matches!(&error, VerbsError::Timeout { limit, diagnostic: 302, .. } if *limit == LIMIT));
    assert!(error.to_string().contains("the command could not be read from host memory"), "{error}");
}

#[test]
fn an_answer_to_another_command_is_an_error() {
    let (mut device, state) = device();
    state.borrow_mut().script.insert(CommandOpcode::FLUSH_CACHES.0, Script::WrongToken);
    assert!(matches!(device.flush_caches(1), Err(VerbsError::CommandAnswer { .. })));
}

/// A refused creation gives its number and memory back.
#[test]
fn a_refused_creation_leaves_nothing_behind() {
    let (mut device, state) = device();
    let spec = CqSpec { cqn: Some(3), log_entries: 10, eqn: None, doorbell_page: 1 };
    let refuse = Script::Refuse(CommandStatus::NO_RESOURCES, 306);
    state.borrow_mut().script.insert(CommandOpcode::CREATE_CQ.0, refuse);
    for _ in 0..1000 {
        assert!(matches!(device.create_completion_queue(spec), Err(VerbsError::Command(_))));
    }
    state.borrow_mut().script.clear();
    assert_eq!(device.create_completion_queue(spec).unwrap(), Cqn(3));
    assert!(matches!(device.create_completion_queue(spec), Err(VerbsError::Exists { .. })));
}

#[test]
fn closing_returns_all_memory() {
    let (mut backing, _state) = backing();
    for _ in 0..100 {
        let mut device = Device::open(backing, OpenOptions { command_limit: LIMIT, ..OpenOptions::default() }).unwrap();
        device.create_completion_queue(CqSpec { cqn: None, log_entries: 10, eqn: None, doorbell_page: 1 }).unwrap();
        backing = device.close().unwrap();
    }
}

#[test]
fn a_restart_begins_with_free_numbers_and_all_memory() {
    let (mut device, state) = device();
    let buffer = device.backing().allocate(600 * 4096, 4096).unwrap();
    let spec = CqSpec { cqn: Some(3), log_entries: 10, eqn: None, doorbell_page: 1 };
    for _ in 0..1000 {
        let pd = device.allocate_pd().unwrap();
        let spec_of_region = RegionSpec::of_buffer(buffer, ACCESS_LOCAL_WRITE, MrLayout::TwoLevel);
        let region = device.register_memory(pd, spec_of_region).unwrap();
        assert_eq!(device.create_completion_queue(spec).unwrap(), Cqn(3));
        state.borrow_mut().commands.clear();
        device.restart().unwrap();
        device.forget_memory(region);
        let opcodes: Vec<_> = state.borrow().commands.iter().map(|(opcode, _)| *opcode).collect();
        assert!(opcodes.contains(&CommandOpcode::SET_TABLE) && opcodes.ends_with(&[CommandOpcode::CREATE_EQ]));
        assert!(matches!(device.resize_completion_queue(Cqn(3), 4), Err(VerbsError::Missing { .. })));
    }
}

#[test]
fn regions_are_described_as_run_list_and_list_of_lists() {
    let (mut device, state) = device();
    let pd = device.allocate_pd().unwrap();
    let buffer = device.backing().allocate(600 * 4096, 4096).unwrap();
    for (layout, levels) in [(MrLayout::Contiguous, 0), (MrLayout::List, 1), (MrLayout::TwoLevel, 2)] {
        let region = device.register_memory(pd, RegionSpec::of_buffer(buffer, ACCESS_LOCAL_WRITE, layout)).unwrap();
        let state = state.borrow();
        let (body, _) = RegisterKey::read_from_prefix(&state.commands.last().unwrap().1).unwrap();
        assert_eq!((body.key.get(), body.start.get(), body.pages.levels), (region.key, buffer.iova, levels));
        let root = body.pages.root.get();
        let word = |iova: u64| state.memory().load64(iova).unwrap();
        for page in [0, 1, 511, 512, 599u64] {
            let address = match levels {
                0 => root + page * 4096,
                1 => word(root + page * 8),
                _ => word(word(root + page / 512 * 8) + page % 512 * 8),
            };
            assert_eq!(address, buffer.iova + page * 4096, "{layout:?} page {page}");
        }
        drop(state);
        device.deregister_memory(region).unwrap();
    }
}
