//! Doorbell lines that do not arrive whole, over the vfio-user socket: a driver whose stores go astray.

use crate::bench::fabric::{Fabric, class_names, of_operations};
use crate::bench::tampered::Tampered;
use crate::bench::transaction::{Pair, over_socket};
use rnic_abi::doorbell::*;
use rnic_abi::registers::{BAR_DOORBELLS, BAR_REGISTERS, REG_MARK};
use rnic_pcie::{Class, Crossing};
use rnic_shim::backing::{Backing, Result};
use rnic_shim::transaction::TransactionSpec;
use rnic_shim::verbs::DoorbellForm;

type WriteLine = fn(&mut dyn Backing, u8, u64, &[u8; 64]) -> Result<()>;

fn store(backing: &mut dyn Backing, bar: u8, offset: u64, line: &[u8; 64], word: usize) -> Result<()> {
    let bytes = line[word * 8..][..8].try_into().expect("eight bytes");
    backing.write64(bar, offset + word as u64 * 8, u64::from_le_bytes(bytes))
}

fn seven_of_eight(backing: &mut dyn Backing, bar: u8, offset: u64, line: &[u8; 64]) -> Result<()> {
    (0..7).try_for_each(|word| store(backing, bar, offset, line, word))
}

fn the_fourth_left_out(backing: &mut dyn Backing, bar: u8, offset: u64, line: &[u8; 64]) -> Result<()> {
    (0..8).filter(|word| *word != 3).try_for_each(|word| store(backing, bar, offset, line, word))
}

fn descending(backing: &mut dyn Backing, bar: u8, offset: u64, line: &[u8; 64]) -> Result<()> {
    (0..8).rev().try_for_each(|word| store(backing, bar, offset, line, word))
}

fn a_register_between(backing: &mut dyn Backing, bar: u8, offset: u64, line: &[u8; 64]) -> Result<()> {
    (0..8).try_for_each(|word| {
        if word == 4 {
            backing.write64(BAR_REGISTERS, REG_MARK.into(), 0xfeed)?;
        }
        store(backing, bar, offset, line, word)
    })
}

/// An arm of event queue 0 that changes nothing: the doorbell of another driver on page 0.
fn another_doorbell_between(backing: &mut dyn Backing, bar: u8, offset: u64, line: &[u8; 64]) -> Result<()> {
    (0..8).try_for_each(|word| {
        if word == 4 {
            backing.write64(BAR_DOORBELLS, DB_EQ_UPDATE.into(), eq_update(0, 0, true))?;
        }
        store(backing, bar, offset, line, word)
    })
}

/// Runs one WRITE_IMM whose doorbell is rung that way, and gives the crossings of the requester: its operation's, and
/// all of them.
fn run(form: DoorbellForm, write_line: WriteLine) -> [Vec<Crossing>; 2] {
    let fabric = Fabric::new();
    let a = Tampered { inner: over_socket(&fabric.socket("A")), write_line };
    let spec = TransactionSpec { doorbell: form, timeout: 17, ..TransactionSpec::default() };
    let mut pair = Pair::bring_up([Box::new(a), over_socket(&fabric.socket("B"))], &spec);
    let watch = fabric.watch("A");
    pair.run();
    let all = watch.crossings();
    [of_operations(&all, &[spec.requester_qpn]), all]
}

/// Stores to the doorbell lines as they were counted: bytes, TLPs, stores seen.
fn stores(crossings: &[Crossing]) -> Vec<(u32, u32, u32)> {
    let stores = crossings.iter().filter(|crossing| crossing.origin.class == Class::Doorbell);
    stores.map(|store| (store.bytes, store.tlps.mwr, store.observed.map_or(0, |seen| seen.messages))).collect()
}

pub fn a_torn_line_counts_as_single_stores_and_the_work_is_done() {
    let whole = run(DoorbellForm::Line, |backing, bar, offset, line| backing.write_line(bar, offset, line));
    assert_eq!(stores(&whole[1]), [(64, 1, 8)], "a line that arrives whole");
    let ways: [(&str, WriteLine, usize); 5] = [
        ("seven of eight", seven_of_eight, 7),
        ("the fourth left out", the_fourth_left_out, 7),
        ("descending", descending, 8),
        ("a register between", a_register_between, 8),
        ("another doorbell between", another_doorbell_between, 8),
    ];
    for (name, way, expected) in ways {
        for form in [DoorbellForm::Line, DoorbellForm::Wqe] {
            let [operation, all] = run(form, way);
            let what = format!("{form:?}, {name}");
            assert_eq!(stores(&all), vec![(8, 1, 1); expected], "{what}: no line was put together");
            let registers = all.iter().filter(|crossing| crossing.origin.class == Class::RegisterWrite).count();
            assert_eq!(
                registers,
                usize::from(name == "a register between"),
                "{what}: no store counts as another thing"
            );
            // One of them rang the bell; what the line would have carried is read from the ring after all.
            let mut classes = class_names(&operation);
            classes.dedup();
            assert_eq!(classes, ["doorbell", "wqe_fetch", "payload_read", "cqe_write"], "{what}");
            assert_eq!(operation.len(), classes.len(), "{what}");
        }
    }
}
