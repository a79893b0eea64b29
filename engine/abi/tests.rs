//! The interface against its golden file, and what the tables promise.

use super::*;
use std::fmt::Write;

fn describe() -> String {
    let mut text = format!("version {VERSION_MAJOR}.{VERSION_MINOR}\n");
    for s in structures() {
        writeln!(text, "\nstruct {} {} bytes", s.name, s.size_bytes).unwrap();
        for f in s.fields {
            writeln!(text, "  {:3} {:3} {} {}", f.offset_bytes, f.size_bytes, f.c_type, f.name).unwrap();
        }
    }
    text.push('\n');
    for c in constants() {
        writeln!(text, "{} {:#x}", c.name, c.value).unwrap();
    }
    for (set, names) in [
        ("WorkOpcode", WorkOpcode::NAMES),
        ("CompletionStatus", CompletionStatus::NAMES),
        ("CompletionOpcode", CompletionOpcode::NAMES),
        ("EventType", EventType::NAMES),
        ("CommandOpcode", CommandOpcode::NAMES),
        ("CommandStatus", CommandStatus::NAMES),
    ] {
        for (name, value) in names {
            writeln!(text, "{set}.{name} {value:#x}").unwrap();
        }
    }
    text
}

/// A layout that changes without a new version breaks every driver in the field.
#[test]
fn layouts_equal_the_golden_file_of_their_version() {
    let path = format!("{}/golden/abi-{VERSION_MAJOR}.{VERSION_MINOR}.txt", env!("CARGO_MANIFEST_DIR"));
    let now = describe();
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    if golden != now && std::env::var_os("RNIC_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, &now).unwrap();
        return;
    }
    assert!(
        golden == now,
        "the interface differs from {path}: bump VERSION_MINOR or VERSION_MAJOR, then write its golden file"
    );
}

#[test]
fn fields_follow_each_other_without_gaps() {
    for s in structures() {
        let mut next = 0;
        for f in s.fields {
            assert_eq!(f.offset_bytes, next, "{}.{}", s.name, f.name);
            next += f.size_bytes;
        }
        assert_eq!(next, s.size_bytes, "{}", s.name);
    }
}

#[test]
fn diagnostics_are_ordered_and_found_by_number() {
    for pair in diagnostic::RULES.windows(2) {
        assert!(pair[0].number < pair[1].number, "{} {}", pair[0].name, pair[1].name);
    }
    assert_eq!(Diagnostic::RKeyRight.rule().name, "RKeyRight");
    assert_eq!(diagnostic::rule(1), None);
}

#[test]
fn doorbell_values_have_the_shape_of_a_control_segment() {
    use zerocopy::FromBytes;
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&doorbell::queue_doorbell(0x12_3456, 0xabcd).to_le_bytes());
    let segment = ControlSegment::read_from_bytes(&bytes).unwrap();
    assert_eq!((segment.opcode, segment.qpn, segment.slot_index.get()), (0, [0x56, 0x34, 0x12], 0xabcd));
}
