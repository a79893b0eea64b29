//! The hardware interface as a C header, from the same tables as the Rust structures.
//!
//! In: `rnic_abi`'s structures, constants, codes and rules. Out: the text of `include/rnic_abi.h`, with a static
//! assertion for every size and every offset.

use rnic_abi::{
    CommandOpcode, CommandStatus, CompletionOpcode, CompletionStatus, EventType, FieldLayout, StructLayout, WorkOpcode,
};
use std::fmt::Write;

const HEAD: &str = "\
/* SPDX-License-Identifier: (Apache-2.0 OR MIT) OR (GPL-2.0 WITH Linux-syscall-note) */
/*
 * The hardware interface of rnic: registers, doorbells, rings, commands.
 * Generated from the Rust crate rnic-abi by its driver shim; do not edit.
 * All structures are little-endian and have no padding.
 */
#ifndef RNIC_ABI_H
#define RNIC_ABI_H

#include <linux/types.h>
#ifdef __KERNEL__
#include <linux/build_bug.h>
#include <linux/stddef.h>
#define RNIC_ASSERT(condition, text) static_assert(condition, text)
#else
#include <stddef.h>
#ifdef __cplusplus
#define RNIC_ASSERT(condition, text) static_assert(condition, text)
#else
#define RNIC_ASSERT(condition, text) _Static_assert(condition, text)
#endif
#endif
";

/// The whole header.
pub fn header() -> String {
    let mut text = String::from(HEAD);
    let _ = writeln!(text, "\n#define RNIC_ABI_VERSION_MAJOR {}", rnic_abi::VERSION_MAJOR);
    let _ = writeln!(text, "#define RNIC_ABI_VERSION_MINOR {}", rnic_abi::VERSION_MINOR);
    let _ = writeln!(text, "#define RNIC_PCI_VENDOR_ID {:#06x}", rnic_abi::PCI_VENDOR_ID);
    let _ = writeln!(text, "#define RNIC_PCI_DEVICE_ID {:#06x}\n", rnic_abi::PCI_DEVICE_ID);
    for constant in rnic_abi::constants() {
        let suffix = if constant.value > u64::from(u32::MAX) { "ULL" } else { "U" };
        let _ = writeln!(text, "#define RNIC_{} {:#x}{suffix}", constant.name, constant.value);
    }
    for (prefix, names) in [
        ("WORK", WorkOpcode::NAMES),
        ("COMPLETION", CompletionOpcode::NAMES),
        ("STATUS_OF_COMPLETION", CompletionStatus::NAMES),
        ("EVENT", EventType::NAMES),
        ("COMMAND_OPCODE", CommandOpcode::NAMES),
        ("COMMAND_STATUS", CommandStatus::NAMES),
    ] {
        text.push('\n');
        for (name, value) in names {
            let _ = writeln!(text, "#define RNIC_{prefix}_{name} {value:#x}U");
        }
    }
    for layout in rnic_abi::structures() {
        write_structure(&mut text, &layout);
    }
    write_rules(&mut text);
    text.push_str("\n#undef RNIC_ASSERT\n#endif /* RNIC_ABI_H */\n");
    text
}

fn write_structure(text: &mut String, layout: &StructLayout) {
    let name = c_name(layout.name);
    let _ = writeln!(text, "\nstruct {name} {{");
    for field in layout.fields {
        let _ = writeln!(text, "\t{};", declaration(field));
    }
    let _ = writeln!(text, "}} __attribute__((packed));");
    let _ = writeln!(text, "RNIC_ASSERT(sizeof(struct {name}) == {}, \"{name}\");", layout.size_bytes);
    for field in layout.fields {
        let _ = writeln!(
            text,
            "RNIC_ASSERT(offsetof(struct {name}, {field}) == {}, \"{name}.{field}\");",
            field.offset_bytes,
            field = field.name
        );
    }
}

/// A field as C declares it: arrays behind the name, structures by their C names.
fn declaration(field: &FieldLayout) -> String {
    match (field.c_type.split_once('['), field.c_type.strip_prefix("struct ")) {
        (Some((element, count)), _) => format!("{element} {}[{count}", field.name),
        (None, Some(name)) => format!("struct {} {}", c_name(name), field.name),
        (None, None) => format!("{} {}", field.c_type, field.name),
    }
}

/// `CreateQp` is `rnic_create_qp`.
fn c_name(name: &str) -> String {
    let mut out = String::from("rnic");
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

/// The diagnostics as a list to expand: drivers print the sentence of a number.
fn write_rules(text: &mut String) {
    text.push_str("\n/* X(number, name, sentence): every rule, by number. */\n#define RNIC_DIAGNOSTICS(X)");
    for rule in rnic_abi::diagnostic::RULES {
        let _ = write!(text, " \\\n\tX({}, {}, \"{}\")", rule.number, c_name(rule.name).to_uppercase(), rule.sentence);
    }
    text.push('\n');
}

#[cfg(test)]
mod tests;
