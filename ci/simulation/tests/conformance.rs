//! `docs/conformance.md` against what it names: a row an item, files and tests that exist, items that the simulation
//! must exercise, and the mutants of each rule.

use rnic_simulation::coverage::ITEMS;
use rnic_simulation::{checklist, mutants};
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Item, rule, where, shown by, mutants, notes.
fn rows() -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(root().join("docs/conformance.md")).expect("the table is there");
    let rows = text
        .lines()
        .filter(|line| line.starts_with("| ") && line[2..].starts_with(|first: char| first.is_ascii_digit()));
    rows.map(|row| row.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()).collect()
}

fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[test]
fn every_item_has_a_row_and_what_it_names_exists() {
    let rows = rows();
    let numbers: Vec<usize> = rows.iter().map(|row| row[0].parse().expect("a number")).collect();
    assert_eq!(numbers, (1..=ITEMS).collect::<Vec<_>>());
    for row in &rows {
        let [item, rule, place, shown, _, notes] = &row[..] else { panic!("six cells: {row:?}") };
        if place == "-" {
            let reason = notes.contains("not there yet");
            assert!(shown == "-" && reason, "item {item}, {rule}: neither a place nor a reason");
            continue;
        }
        let [path] = quoted(place)[..] else { panic!("item {item}: one place in {place}") };
        assert!(root().join(path).is_file(), "item {item}: {path} does not exist");
        let simulated = shown.contains("simulation");
        assert!(simulated || !quoted(shown).is_empty(), "item {item}: nothing shows it");
        for test in quoted(shown) {
            let (file, name) = test.split_once("::").expect("file::test");
            let source = std::fs::read_to_string(root().join(format!("engine/tests/{file}.rs"))).expect(test);
            assert!(source.contains(&format!("fn {name}(")), "item {item}: there is no test {test}");
        }
    }
}

#[test]
fn what_the_simulation_shows_is_what_it_must_exercise() {
    for row in rows() {
        let item: usize = row[0].parse().expect("a number");
        let excused = checklist::excuse(item);
        assert_eq!(row[3].contains("simulation"), excused.is_none(), "item {item}: {excused:?}");
    }
}

#[test]
fn the_mutants_of_each_rule_are_those_of_the_table() {
    let table = mutants::read(mutants::TABLE).expect("a table");
    for row in rows() {
        let item: usize = row[0].parse().expect("a number");
        let own = table.iter().filter(|mutant| mutant.items.contains(&item));
        let numbers: Vec<String> = own.map(|mutant| mutant.number.to_string()).collect();
        let cell = &row[4];
        if numbers.is_empty() {
            let reason = cell.strip_prefix("none: ").is_some_and(|reason| reason.len() > 5);
            assert!(reason || (cell == "-" && row[2] == "-"), "item {item} has no mutant and says not why: {cell}");
        } else {
            assert_eq!(*cell, numbers.join(", "), "item {item}");
        }
    }
}
