//! Properties of everything that reads text or bytes from outside: apt sources, kernel images, QEMU's control
//! messages, QEMU's trace. Each body is run on its committed corpus and then on random bytes, and each has to find the
//! bug that is planted for it.

use proptest::collection::vec;
use proptest::prelude::any;
use proptest::test_runner::TestCaseError;
use proptest::{prop_assert, prop_assert_eq};
use serde_json::{Value, json};

use crate::debian::sources::{main_archive, parse_deb822, parse_one_line};
use crate::image::vmlinux;
use crate::planted::with_planted;
use crate::qemu::qmp::{self, Message};
use crate::qemu::trace;
use crate::search;

type Body = fn(&[u8]) -> Result<(), TestCaseError>;

/// The body holds, and does not hold once its bug is planted.
fn check_with_its_bug(name: &str, body: Body, bug: &'static str) {
    let inputs = vec(any::<u8>(), 0..64);
    search::finds_nothing(env!("CARGO_MANIFEST_DIR"), name, &inputs, body);
    with_planted(bug, || search::finds(bug, &inputs, body));
}

/// Text that is nearly apt sources: a byte a word, so that random bytes reach every rule.
fn sources_text(bytes: &[u8]) -> String {
    const WORDS: &[&str] = &[
        "deb ",
        "deb-src ",
        "[",
        "signed-by=/debian-archive.gpg ",
        "]",
        " ",
        "\n",
        "\n",
        "#",
        "http://a/debian ",
        "file:/b ",
        "cdrom:c ",
        "trixie ",
        "bookworm ",
        "bookworm-security ",
        "main",
        "contrib ",
        "Types: ",
        "URIs: ",
        "Suites: ",
        "Components: ",
        "Signed-By: ",
        "Enabled: no\n",
        "\t",
        ":",
    ];
    bytes
        .iter()
        .map(|&byte| WORDS.get(usize::from(byte) % 32).copied().unwrap_or("deb http://a/debian trixie "))
        .collect()
}

/// Whatever the text, an address that is chosen stands in it, in an entry that has the component main.
fn apt_sources(bytes: &[u8]) -> Result<(), TestCaseError> {
    for text in [sources_text(bytes), String::from_utf8_lossy(bytes).into_owned()] {
        if let Some(address) = main_archive(&parse_one_line(&text)) {
            let line = text.lines().find(|line| line.contains(&address) && line.contains("main"));
            prop_assert!(line.is_some(), "{address} from {text:?}");
        }
        if let Some(address) = main_archive(&parse_deb822(&text)) {
            prop_assert!(text.contains(&address) && text.contains("main"), "{address} from {text:?}");
        }
    }
    Ok(())
}

/// A good image with some bytes changed, three bytes a change: an image that comes out is ELF and has the size that
/// the file's last four bytes state.
fn kernel_image(bytes: &[u8]) -> Result<(), TestCaseError> {
    let mut image = vmlinux::tests::image(&vmlinux::tests::packed(b"\x7fELF, then the rest"));
    for change in bytes.chunks_exact(3) {
        // Counted from the end, where payload and sizes are.
        let back = usize::from(u16::from_le_bytes([change[0], change[1]])) % image.len();
        let at = image.len() - 1 - if change[0] & 1 == 0 { back } else { back % 64 };
        image[at] = change[2];
    }
    for bytes in [&image[..], bytes] {
        if let Ok(elf) = vmlinux::extract(bytes, std::path::Path::new("k")) {
            let size = bytes.last_chunk::<4>().map(|size| u32::from_le_bytes(*size) as usize);
            prop_assert!(elf.starts_with(b"\x7fELF"));
            prop_assert_eq!(Some(elf.len()), size);
        }
    }
    Ok(())
}

/// A message with the fields that the bits of the first byte name: an error is never taken for a result, nor an event
/// for a reply.
fn control_message(bytes: &[u8]) -> Result<(), TestCaseError> {
    let _ = qmp::parse(bytes);
    let (&bits, rest) = bytes.split_first().unwrap_or((&0, &[]));
    let content = Value::from(String::from_utf8_lossy(rest));
    let fields = ["QMP", "event", "return", "error", "id", "data"];
    let mut message = json!({});
    for (bit, field) in fields.iter().enumerate().filter(|(bit, _)| bits & (1 << bit) != 0) {
        message[field] = if bit == 3 { json!({ "class": content, "desc": content }) } else { content.clone() };
    }
    let parsed = qmp::parse(message.to_string().as_bytes());
    let expected = fields.iter().take(4).position(|field| message.get(field).is_some());
    let found = match parsed {
        Ok(Message::Greeting) => Some(0),
        Ok(Message::Event(_)) => Some(1),
        Ok(Message::Reply { result: Ok(_), .. }) => Some(2),
        Ok(Message::Reply { result: Err(_), .. }) => Some(3),
        Err(_) => None,
    };
    prop_assert_eq!(found, expected, "{}", message);
    Ok(())
}

/// Every record comes from a whole line, and none from a line still being written.
fn trace_log(bytes: &[u8]) -> Result<(), TestCaseError> {
    const WORDS: &[&str] = &["vfio_user_recv_hdr", " ", "\n", "size", "0x10", ":", "12@3.4:", "é", "id"];
    let words: String = bytes.iter().filter_map(|&byte| WORDS.get(usize::from(byte) % 12)).copied().collect();
    for text in [words, String::from_utf8_lossy(bytes).into_owned()] {
        let records = trace::parse(&text);
        prop_assert!(records.len() <= text.matches('\n').count(), "{} records from {text:?}", records.len());
        for record in records {
            prop_assert!(!record.event.is_empty() && text.contains(&record.event));
            let _ = record.number("size");
        }
    }
    Ok(())
}

#[test]
fn apt_sources_lead_to_main_or_nowhere() {
    check_with_its_bug("apt_sources", apt_sources, "component_ignored");
}

#[test]
fn kernel_images_come_out_whole_or_not_at_all() {
    check_with_its_bug("kernel_image", kernel_image, "size_unchecked");
}

#[test]
fn control_messages_are_told_apart() {
    check_with_its_bug("control_message", control_message, "error_as_result");
}

#[test]
fn trace_records_are_whole() {
    check_with_its_bug("trace_log", trace_log, "half_line_taken");
}
