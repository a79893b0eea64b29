//! The committed header is the one the tables give, and a C compiler agrees with it.

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

/// Compiles a C program with the header and returns whether the compiler accepts it, and what it says.
fn compile(name: &str, header: &str, source: &str) -> (bool, String) {
    let folder = std::env::temp_dir().join(format!("rnic-c-header-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("rnic_abi.h"), header).unwrap();
    std::fs::write(folder.join("main.c"), source).unwrap();
    let output = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-c", "main.c", "-o", "main.o"])
        .current_dir(&folder)
        .output()
        .expect("a C compiler");
    std::fs::remove_dir_all(&folder).unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_c_compiler_accepts_it_and_its_assertions() {
    let source = r#"
        #include "rnic_abi.h"
        #include "rnic_abi.h"
        #define RULE(number, name, sentence) { number, sentence },
        static const struct { int number; const char *sentence; } rules[] = { RNIC_DIAGNOSTICS(RULE) };
        int main(void)
        {
            struct rnic_cqe cqe = { .status = RNIC_STATUS_OF_COMPLETION_REM_ACCESS_ERR };
            struct rnic_create_cq create = { .pages = { .page_shift = 12 } };
            _Static_assert(RNIC_MAGIC == 0x43494e52, "magic");
            return cqe.status + create.pages.page_shift + rules[0].number == 0 || !rules[0].sentence;
        }
    "#;
    let (accepted, said) = compile("good", &header(), source);
    assert!(accepted, "{said}");
}

#[test]
fn the_assertions_can_fail() {
    let wrong = header().replace("\t__le32 byte_len;", "\t__le16 byte_len;");
    assert_ne!(wrong, header());
    let (accepted, said) = compile("wrong", &wrong, "#include \"rnic_abi.h\"\nint main(void) { return 0; }\n");
    assert!(!accepted && said.contains("rnic_cqe"), "{said}");
}
