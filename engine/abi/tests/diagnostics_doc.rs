//! `docs/diagnostics.md` is made from the table of rules: `RNIC_WRITE_GOLDEN=1` writes it, otherwise it is compared.

use rnic_abi::diagnostic::{RULES, Rule};
use std::fmt::Write;

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");

const INTRODUCTION: &str = "\
# Diagnostics

Every rule of the [hardware interface](hardware-abi.md) that a driver or a peer can break has a number. The device never
refuses in silence; depending on what broke the rule, its number stands in

| place | who reads it |
|---|---|
| `CompletionHeader.diagnostic` of a refused command | the driver, in its command path |
| `Cqe.vendor_err` of a failed work request | the application, in its completion |
| `Eqe.data` of an asynchronous event | the driver, in its event handler |
| the registers `REG_LAST_DIAGNOSTIC` and `REG_LAST_DIAGNOSTIC_OBJECT` | a driver author, at a prompt |
| the adapter's stream of diagnostics, with time, object and offending value: `rnic events` | tools beside the device |

An *error* fails a command, a work request, a queue or the device, and its driver is told. A *warning* costs the driver what
broke the rule and nothing else; with `rnic serve --strict` it stops the device (see
[Reset and errors](hardware-abi.md#reset-and-errors)).

Numbers never change their meaning. A driver prints the number and, if it likes, the sentence: the C header
`guest-driver-shim/include/rnic_abi.h` has them as `RNIC_DIAGNOSTICS(X)`.

`rnic events` shows two numbers with each: the object, which is that of `REG_LAST_DIAGNOSTIC_OBJECT` (listed in
[Registers](hardware-abi.md#registers)), and the value that broke the rule:

| rules | value |
|---|---|
| 100, 200 | bytes of the access |
| 101, 102, 201; 105 and 106 for a doorbell | what was stored |
| 104; 105 and 106 for the command doorbell; 203, 204, 205 | the index in the doorbell |
| 202, 209 | the doorbell page that was used |
| 206 | offset of the store in its BAR |
| 207 | the arm's sequence |
| 208, 210 | the consumer index |
| 300 to 327 of a command | its slot in the command ring; 302 the driver's index of it |
| 312 | the vector |
| 400 to 449 of a work request | the slot's index in its ring; once packets of it were built, the bytes of its message before |
| 4xx and 5xx of a packet | its PSN |
| 510 | the MSN |
| others | 0 |

This file is generated; `RNIC_WRITE_GOLDEN=1 cargo test -p rnic-abi --test diagnostics_doc` writes it.
";

/// Rules by the hundred.
const GROUPS: &[(u32, &str)] = &[
    (100, "The device and its registers"),
    (200, "Doorbells"),
    (300, "Commands"),
    (400, "Work requests, keys and memory"),
    (500, "Messages, completions and events"),
];

fn document() -> String {
    let mut text = String::from(INTRODUCTION);
    for (first, title) in GROUPS {
        let _ = write!(
            text,
            "\n## {title}\n\n| number | name | severity | rule | section | usual cause |\n|---|---|---|---|---|---|\n"
        );
        RULES.iter().filter(|rule| rule.number / 100 == first / 100).for_each(|rule| row(&mut text, rule));
    }
    text
}

fn row(text: &mut String, rule: &Rule) {
    let Rule { number, name, sentence, section, usual_cause } = rule;
    let severity = rule.severity().name();
    let _ = writeln!(
        text,
        "| {number} | `{name}` | {severity} | {sentence} | [{section}](hardware-abi.md#{}) | {usual_cause} |",
        anchor(section)
    );
}

/// The anchor that Markdown renderers give a heading of plain words.
fn anchor(heading: &str) -> String {
    heading.to_lowercase().replace(' ', "-")
}

#[test]
fn the_document_is_the_table_of_rules() {
    let path = format!("{DOCS}/diagnostics.md");
    let now = document();
    if std::env::var_os("RNIC_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, &now).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == now, "{path} is not what the rules say: run this test with RNIC_WRITE_GOLDEN=1");
}

#[test]
fn every_rule_is_in_a_group() {
    for rule in RULES {
        assert!(GROUPS.iter().any(|(first, _)| rule.number / 100 == first / 100), "{} {}", rule.number, rule.name);
        let cells = [rule.sentence, rule.section, rule.usual_cause];
        assert!(cells.iter().all(|cell| !cell.contains('|') && !cell.is_empty()), "{} {}", rule.number, rule.name);
    }
}

/// The section that a rule names is a heading of the datasheet, and the datasheet explains rules that exist.
#[test]
fn every_rule_leads_to_a_section_of_the_datasheet() {
    let datasheet = std::fs::read_to_string(format!("{DOCS}/hardware-abi.md")).unwrap();
    let headings: Vec<&str> =
        datasheet.lines().filter_map(|line| Some(line.strip_prefix('#')?.trim_start_matches('#').trim())).collect();
    for rule in RULES {
        assert!(headings.contains(&rule.section), "{} {}: no section {:?}", rule.number, rule.name, rule.section);
    }
    let mut seen = 0;
    for (number, name) in datasheet.split('`').filter_map(number_and_name) {
        let rule = rnic_abi::diagnostic::rule(number).unwrap_or_else(|| panic!("the datasheet names rule {number}"));
        assert_eq!(rule.name, name, "the datasheet's name of rule {number}");
        seen += 1;
    }
    assert!(seen > RULES.len() / 2, "the datasheet names {seen} rules only");
}

/// The datasheet names a rule as `205 DoorbellState`, in code marks.
fn number_and_name(code: &str) -> Option<(u32, &str)> {
    let (number, name) = code.split_once(' ')?;
    let is_name = name.len() > 3 && name.chars().all(char::is_alphanumeric) && name.starts_with(char::is_uppercase);
    (number.len() == 3 && is_name).then_some((number.parse().ok()?, name))
}
