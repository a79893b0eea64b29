//! Reading a demo's report.

use serde_json::Value;
use std::collections::BTreeMap;

pub fn totals(report: &Value) -> [u64; 2] {
    [0, 1].map(|host| report["hosts"][host]["total"].as_u64().expect("a total"))
}

pub fn rows(report: &Value, host: usize) -> &Vec<Value> {
    report["hosts"][host]["crossings"].as_array().expect("crossings")
}

pub fn classes(report: &Value, host: usize) -> Vec<&str> {
    rows(report, host).iter().map(class).collect()
}

pub fn class(row: &Value) -> &str {
    row["class"].as_str().expect("a class")
}

/// A row's attempt; 0 is left out of the report.
pub fn attempt(row: &Value) -> u64 {
    row["attempt"].as_u64().unwrap_or(0)
}

/// Link bytes of a host's operation: from host to device, from device to host.
pub fn wire_bytes(report: &Value, host: usize) -> (u64, u64) {
    let sum = |way: &str| rows(report, host).iter().map(|row| row["wire_bytes"][way].as_u64().expect("bytes")).sum();
    (sum("down"), sum("up"))
}

/// Both lists together are the ledger's difference, class by class, and nothing remains.
#[track_caller]
pub fn assert_whole(report: &Value) {
    for host in report["hosts"].as_array().expect("hosts") {
        let mut listed = BTreeMap::<&str, u64>::new();
        for list in ["crossings", "housekeeping"] {
            for row in host[list].as_array().expect("a list") {
                *listed.entry(class(row)).or_default() += 1;
            }
        }
        let delta = host["ledger_delta"].as_object().expect("a ledger");
        let counted: BTreeMap<&str, u64> =
            delta.iter().map(|(class, count)| (class.as_str(), count.as_u64().expect("a count"))).collect();
        assert_eq!(listed, counted, "host {}", host["name"]);
        assert_eq!(host["remainder"], 0, "host {}", host["name"]);
        assert_eq!(host["total"], host["crossings"].as_array().map_or(0, Vec::len), "host {}", host["name"]);
    }
}

/// Data, immediate and counts as they should be.
#[track_caller]
pub fn assert_right(report: &Value) {
    for what in ["data_verified", "matches_story"] {
        assert_eq!(report[what], true, "{what}: {report}");
    }
    let has_immediate = report["operation"].as_str().is_some_and(|operation| operation.ends_with("IMM"));
    let immediate = if has_immediate { Value::Bool(true) } else { Value::Null };
    assert_eq!(report["imm_verified"], immediate, "{report}");
    assert_whole(report);
}
