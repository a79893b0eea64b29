//! What QUERY_DEVICE tells, field by field as the datasheet has it.

mod rig;

use rig::*;
use rnic_abi::CommandOpcode;
use rnic_engine::EngineConfig;
use std::collections::{BTreeMap, BTreeSet};

fn cells(line: &str) -> Vec<String> {
    line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).collect()
}

fn number(text: &str) -> Option<u64> {
    text.strip_prefix("0x").map_or_else(|| text.parse().ok(), |digits| u64::from_str_radix(digits, 16).ok())
}

/// A field: offset, size, name and meaning.
type Field = (usize, usize, String, String);

/// The fields of the answer, and every constant, from the datasheet's own tables.
fn datasheet() -> (Vec<Field>, BTreeMap<String, u64>) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/hardware-abi.md");
    let text = std::fs::read_to_string(path).expect("the datasheet");
    let (_, from_caption) = text.split_once("**Structure `DeviceLimits`").expect("the answer's table");
    let table = from_caption.lines().skip_while(|line| !line.starts_with("|--")).skip(1);
    let fields = table.take_while(|line| line.starts_with('|')).map(cells).map(|row| {
        let [offset, size, name, meaning] = &row[..] else { panic!("four columns: {row:?}") };
        let place = |text: &str| number(text).expect("a number") as usize;
        (place(offset), place(size), name.clone(), meaning.clone())
    });
    let rows = text.lines().filter(|line| line.starts_with('|')).map(cells);
    let constants = rows.filter_map(|row| Some((row.first()?.clone(), number(row.get(1)?)?)));
    (fields.collect(), constants.collect())
}

/// What a field is to say: what the device was made with; or the constant of its name, as it is or behind MAX_; or the
/// number that its meaning begins with.
fn expected(name: &str, meaning: &str, config: &EngineConfig, constants: &BTreeMap<String, u64>) -> Option<u64> {
    let own = match name {
        "vectors" => Some(config.vectors.into()),
        "doorbell_pages" => Some(config.doorbell_pages.into()),
        "qp_cache_entries" => Some(config.qp_cache_entries as u64),
        "cq_cache_entries" => Some(config.cq_cache_entries as u64),
        "key_cache_entries" => Some(config.key_cache_entries as u64),
        "rd_atomic_cache_entries" => Some(config.rd_atomic_cache_entries as u64),
        _ => None,
    };
    let upper = name.to_uppercase();
    let constant = || constants.get(&upper).or_else(|| constants.get(&format!("MAX_{upper}"))).copied();
    let said = || if meaning == "zero" { Some(0) } else { number(meaning.split([':', ' ']).next()?) };
    own.or_else(constant).or_else(said)
}

/// What a device without such objects leaves at zero.
const OPTIONAL: [&str; 6] =
    ["srq_context_bytes", "log_srqs", "log_srq_slots", "srq_cache_entries", "local_dma_key", "max_fast_register_pages"];

#[test]
fn query_device_answers_what_the_datasheet_says_and_nothing_beside_it() {
    // Nothing as usual, so that no field can pass for another.
    let config = EngineConfig {
        vectors: 23,
        doorbell_pages: 77,
        qp_cache_entries: 101,
        cq_cache_entries: 102,
        key_cache_entries: 103,
        rd_atomic_cache_entries: 104,
        ..EngineConfig::default()
    };
    let mut host = Host::new(config.clone(), IP_A, 0x11);
    host.enable();
    let answer = host.must(CommandOpcode::QUERY_DEVICE, &[]);
    let (fields, constants) = datasheet();
    let mut read = BTreeSet::new();
    for (offset, size, name, meaning) in &fields {
        let mut value = [0; 8];
        value[..*size].copy_from_slice(&answer[*offset..*offset + *size]);
        let value = u64::from_le_bytes(value);
        let (expected, optional) = (expected(name, meaning, &config, &constants), OPTIONAL.contains(&name.as_str()));
        assert!(expected.is_some() || optional, "neither the datasheet nor this test knows what {name} is to be");
        if !(optional && (value == 0 || expected.is_none())) {
            assert_eq!(Some(value), expected, "{name}: {meaning}");
        }
        read.extend(*offset..*offset + *size);
    }
    let length = read.len();
    assert_eq!(read, (0..length).collect(), "no byte of the structure is left out");
    // The rest of the completion's body, up to its phase.
    let rest = &answer[length..answer.len() - 4];
    assert!(rest.iter().all(|byte| *byte == 0), "{rest:?}");
}
