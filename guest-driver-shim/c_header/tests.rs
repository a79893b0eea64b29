//! The committed header is the one the tables give, and a C compiler agrees with it.

#![allow(clippy::disallowed_macros, reason = "the test harness shows what a failed test has said")]

use super::*;
use std::process::Command;

const COMMITTED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/include/rnic_abi.h");

/// `RNIC_WRITE_HEADER=1` writes it.
#[test]
fn the_committed_header_is_generated() {
    let now = header();
    if std::env::var_os("RNIC_WRITE_HEADER").is_some() {
        std::fs::write(COMMITTED, &now).unwrap();
    }
    let committed = std::fs::read_to_string(COMMITTED).unwrap();
    assert!(committed == now, "include/rnic_abi.h is not what rnic-abi says: run this test with RNIC_WRITE_HEADER=1");
}

const C11: [&str; 3] = ["cc", "-std=c11", "main.c"];
const CXX17: [&str; 3] = ["c++", "-std=c++17", "main.cc"];

/// Compiles a program with the header: whether the compiler accepts it, and what it says. None without the compiler.
fn compile([compiler, standard, source_name]: [&str; 3], header: &str, source: &str) -> Option<(bool, String)> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("rnic_abi.h"), header).unwrap();
    std::fs::write(folder.path().join(source_name), source).unwrap();
    let run = Command::new(compiler)
        .args([standard, "-Wall", "-Wextra", "-pedantic-errors", "-Werror", "-c", source_name, "-o", "main.o"])
        .current_dir(folder.path())
        .output();
    match run {
        Ok(output) => Some((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => panic!("{compiler}: {error}"),
    }
}

const PROGRAM: &str = r#"
    #include "rnic_abi.h"
    #include "rnic_abi.h"
    #define RULE(number, name, sentence) { number, sentence },
    static const struct { int number; const char *sentence; } rules[] = { RNIC_DIAGNOSTICS(RULE) };
    int main(void)
    {
        struct rnic_cqe cqe;
        struct rnic_create_cq create;
        cqe.status = RNIC_STATUS_OF_COMPLETION_REM_ACCESS_ERR;
        create.pages.page_shift = 12;
        return cqe.status + create.pages.page_shift + rules[0].number == 0 || !rules[0].sentence;
    }
"#;

/// The C compiler is a prerequisite of the workspace: Rust links with it.
#[test]
fn a_c11_compiler_accepts_it_and_its_assertions() {
    let (accepted, said) = compile(C11, &header(), PROGRAM).expect("a C compiler");
    assert!(accepted, "{said}");
}

/// A C++ compiler is none: where there is none, this says so.
#[test]
fn a_cxx17_compiler_accepts_it_and_its_assertions() {
    match compile(CXX17, &header(), PROGRAM) {
        Some((accepted, said)) => assert!(accepted, "{said}"),
        None => eprintln!("there is no C++ compiler (c++) here: the header was NOT tried as C++17"),
    }
}

#[test]
fn the_assertions_can_fail_in_both_languages() {
    let wrong = header().replace("\t__le32 byte_len;", "\t__le16 byte_len;");
    assert_ne!(wrong, header());
    let c = compile(C11, &wrong, PROGRAM).expect("a C compiler");
    for (accepted, said) in [Some(c), compile(CXX17, &wrong, PROGRAM)].into_iter().flatten() {
        assert!(!accepted && said.contains("rnic_cqe"), "{said}");
    }
}
