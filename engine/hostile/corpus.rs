//! The corpus: a script for each diagnostic and each counter that a body can reach, named after it.
//!
//! When a body learns a new word the scripts mean other things, and some names may be lost:
//! `RNIC_GROW_CORPUS=60 cargo test -p rnic-engine grown` searches so many seconds a body, and keeps the shortest script
//! for each name that is missing or was lost.

use super::*;
use crate::search;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

thread_local! {
    static REACHED: RefCell<BTreeSet<&'static str>> = const { RefCell::new(BTreeSet::new()) };
}

/// A diagnostic was made, or a counter was found to have counted.
pub(crate) fn reached(name: &'static str) {
    REACHED.with_borrow_mut(|all| all.insert(name));
}

type Body = fn(&[u8]) -> Result<(), TestCaseError>;

const BODIES: &[(&str, Body)] = &[
    ("accesses", accesses::body),
    ("commands", commands::body),
    ("work_requests", work_requests::body),
    ("frames", frames::body),
    ("memory", memory::body),
    ("traffic", traffic::body),
    ("unreliable", unreliable::body),
];

/// What a script reaches beyond what every run reaches.
fn reaches(body: Body, bytes: &[u8]) -> BTreeSet<&'static str> {
    REACHED.take();
    body(bytes).expect("a script that is survived");
    REACHED.take()
}

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name)
}

/// Takes pieces out as long as the name is reached.
fn shorten(body: Body, name: &str, mut bytes: Vec<u8>) -> Vec<u8> {
    let mut piece = bytes.len() / 2;
    while piece > 0 {
        let mut at = 0;
        while at < bytes.len() {
            let mut shorter = bytes.clone();
            shorter.drain(at..(at + piece).min(bytes.len()));
            if reaches(body, &shorter).contains(name) { bytes = shorter } else { at += piece }
        }
        piece /= 2;
    }
    bytes
}

#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the search is limited by time, what it searches is not"
)]
fn grow(body: Body, missing: impl Fn(&str) -> bool, seconds: u64) -> BTreeMap<&'static str, Vec<u8>> {
    let mut found: BTreeMap<&'static str, Vec<u8>> = BTreeMap::new();
    let (mut runner, start) = (TestRunner::default(), std::time::Instant::now());
    while start.elapsed().as_secs() < seconds {
        let bytes = scripts().new_tree(&mut runner).expect("a script").current();
        for name in reaches(body, &bytes).into_iter().filter(|name| missing(name)) {
            let shorter = found.get(name).is_none_or(|best| best.len() > bytes.len());
            if shorter {
                found.insert(name, bytes.clone());
            }
        }
    }
    found.into_iter().map(|(name, bytes)| (name, shorten(body, name, bytes))).collect()
}

#[test]
fn the_corpus_reaches_what_it_is_named_after_and_is_grown_on_request() {
    let seconds = std::env::var("RNIC_GROW_CORPUS").ok().map(|text| text.parse().expect("seconds"));
    for (name, body) in BODIES {
        let always = reaches(*body, &[]);
        let files = search::corpus(env!("CARGO_MANIFEST_DIR"), name);
        let met: BTreeSet<_> = files.iter().flat_map(|(_, bytes)| reaches(*body, bytes)).collect();
        if let Some(seconds) = seconds {
            let missing = |name: &str| !always.contains(name) && !met.contains(name);
            for (reached, bytes) in grow(*body, missing, seconds) {
                std::fs::write(folder(name).join(format!("{reached}.bin")), bytes).expect("writable");
            }
            continue;
        }
        for (file, _) in &files {
            let named = std::path::Path::new(file).file_stem().expect("a name").to_string_lossy().into_owned();
            let is_branch = rnic_abi::diagnostic::RULES.iter().any(|rule| rule.name == named)
                || crate::Counters::default().named().iter().any(|(counter, _)| *counter == named);
            assert!(!is_branch || met.contains(&*named), "{file}: the corpus of {name} does not reach it any more");
        }
    }
}
