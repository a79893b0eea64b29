//! The datasheet, `docs/hardware-abi.md`, against the interface itself: every structure with its fields, every
//! register, constant and code. Its examples are checked where the engine's codecs are.
//!
//! What is read: the tables behind a caption (`**Structure `Name`, 16 bytes**`, `**Codes `Set`**`), and every table
//! with a column `constant` or `register`.

use rnic_abi::{
    CommandOpcode, CommandStatus, CompletionOpcode, CompletionStatus, EventType, StructLayout, WorkOpcode, constants,
    structures,
};
use std::collections::{BTreeMap, BTreeSet};

fn datasheet() -> String {
    std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/hardware-abi.md")).unwrap()
}

/// A table with what stands above it.
#[derive(Debug, Default)]
struct Table {
    caption: String,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column == name)
    }

    fn cell<'a>(&self, row: &'a [String], name: &str) -> &'a str {
        let at = self.column(name).unwrap_or_else(|| panic!("no column {name} under {:?}", self.caption));
        row.get(at).unwrap_or_else(|| panic!("a short row {row:?} under {:?}", self.caption))
    }
}

fn cells(line: &str) -> Vec<String> {
    line.trim().trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).collect()
}

fn tables(text: &str) -> Vec<Table> {
    let mut tables = Vec::new();
    let mut caption = String::new();
    let mut open: Option<Table> = None;
    for line in text.lines() {
        match (line.starts_with('|'), &mut open) {
            (true, Some(table)) if line.starts_with("|--") => assert!(table.rows.is_empty(), "{line}"),
            (true, Some(table)) => table.rows.push(cells(line)),
            (true, None) => {
                let caption = std::mem::take(&mut caption);
                open = Some(Table { caption, columns: cells(line), rows: Vec::new() });
            }
            (false, _) => {
                tables.extend(open.take());
                if !line.is_empty() {
                    caption = line.to_owned();
                }
            }
        }
    }
    tables.extend(open);
    tables
}

fn number(text: &str) -> u64 {
    let text = text.trim_matches('`').replace('_', "");
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.unwrap_or_else(|_| panic!("{text:?} is not a number"))
}

/// The name in the caption of this kind, and what follows it.
fn captioned<'a>(caption: &'a str, kind: &str) -> Option<(&'a str, &'a str)> {
    caption.strip_prefix("**")?.strip_prefix(kind)?.strip_prefix(" `")?.split_once('`')
}

#[test]
fn every_structure_is_there_field_by_field() {
    let text = datasheet();
    let mut missing: BTreeMap<&str, StructLayout> =
        structures().into_iter().map(|layout| (layout.name, layout)).collect();
    for table in tables(&text) {
        let Some((name, rest)) = captioned(&table.caption, "Structure") else { continue };
        let layout = missing.remove(name).unwrap_or_else(|| panic!("{name} is unknown, or there twice"));
        assert!(rest.starts_with(&format!(", {} bytes**", layout.size_bytes)), "{}", table.caption);
        let told: Vec<_> = table
            .rows
            .iter()
            .map(|row| {
                let [offset, size] = ["offset", "size"].map(|column| number(table.cell(row, column)) as usize);
                (offset, size, table.cell(row, "field").to_owned())
            })
            .collect();
        let fields: Vec<_> =
            layout.fields.iter().map(|field| (field.offset_bytes, field.size_bytes, field.name.to_owned())).collect();
        assert_eq!(told, fields, "{name}");
    }
    assert!(missing.is_empty(), "not in the datasheet: {:?}", missing.keys());
}

#[test]
fn every_register_and_constant_is_there_with_its_value() {
    let text = datasheet();
    let values: BTreeMap<&str, u64> = constants().map(|constant| (constant.name, constant.value)).collect();
    let mut told = BTreeSet::new();
    for table in tables(&text) {
        let (name_column, value_column) = match (table.column("constant"), table.column("register")) {
            (Some(_), _) => ("constant", "value"),
            (_, Some(_)) => ("register", "offset"),
            _ => continue,
        };
        for row in &table.rows {
            let (name, value) = (table.cell(row, name_column), number(table.cell(row, value_column)));
            assert_eq!(values.get(name), Some(&value), "{name} under {:?}", table.caption);
            assert!(told.insert(name.to_owned()), "{name} is there twice");
        }
    }
    let missing: Vec<_> = values.keys().filter(|name| !told.contains(**name)).collect();
    assert!(missing.is_empty(), "not in the datasheet: {missing:?}");
}

#[test]
fn every_code_is_there_with_its_value() {
    let text = datasheet();
    let mut sets = BTreeMap::from([
        ("WorkOpcode", WorkOpcode::NAMES),
        ("CompletionStatus", CompletionStatus::NAMES),
        ("CompletionOpcode", CompletionOpcode::NAMES),
        ("EventType", EventType::NAMES),
        ("CommandOpcode", CommandOpcode::NAMES),
        ("CommandStatus", CommandStatus::NAMES),
    ]);
    for table in tables(&text) {
        let Some((set, _)) = captioned(&table.caption, "Codes") else { continue };
        let names = sets.remove(set).unwrap_or_else(|| panic!("{set} is unknown, or there twice"));
        let told: Vec<_> = table
            .rows
            .iter()
            .map(|row| (table.cell(row, "name").to_owned(), number(table.cell(row, "code")) as u8))
            .collect();
        let names: Vec<_> = names.iter().map(|(name, code)| ((*name).to_owned(), *code)).collect();
        assert_eq!(told, names, "{set}");
    }
    assert!(sets.is_empty(), "not in the datasheet: {:?}", sets.keys());
}

#[test]
fn identity_and_version_are_those_of_the_interface() {
    let text = datasheet();
    let version = format!("version {}.{}", rnic_abi::VERSION_MAJOR, rnic_abi::VERSION_MINOR);
    let identity = format!("`{:04x}:{:04x}`", rnic_abi::PCI_VENDOR_ID, rnic_abi::PCI_DEVICE_ID);
    for words in [version, identity] {
        assert!(text.contains(&words), "{words}");
    }
}
