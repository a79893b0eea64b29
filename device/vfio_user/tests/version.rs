//! VERSION.

use super::super::message::Command;
use super::super::negotiate::ClientCapabilities;
use super::rig::{Rig, message, qemu_version};
use rustix::io::Errno;

fn version(major: u16, minor: u16, data: &[u8]) -> Vec<u8> {
    let body = [&major.to_ne_bytes(), &minor.to_ne_bytes(), data].concat();
    message(3, Command::VERSION, 0, &body)
}

#[test]
fn qemu_is_answered_with_version_0_0_and_three_capabilities() {
    let mut rig = Rig::connected();
    let body = rig.succeed(&qemu_version());
    assert_eq!(&body[..4], &[0, 0, 0, 0]);
    assert_eq!(body.last(), Some(&0), "the JSON ends in a NUL");
    let json: serde_json::Value = serde_json::from_slice(&body[4..body.len() - 1]).unwrap();
    let expected = r#"{"capabilities":{"max_msg_fds":16,"max_data_xfer_size":1048576,"write_multiple":true}}"#;
    assert_eq!(json, serde_json::from_str::<serde_json::Value>(expected).unwrap());
    let kept = rig.server.client().unwrap();
    assert_eq!((kept.max_msg_fds, kept.max_dma_maps, kept.write_multiple), (16, 65535, true));
}

#[test]
fn capabilities_left_out_have_the_protocols_defaults() {
    for data in [&b""[..], b"{}\0", b"{\"capabilities\":{}}\0", b"{\"other\":[1],\"capabilities\":{\"x\":{}}}\0"] {
        let mut rig = Rig::connected();
        // The public crate's client proposes 0.1; the answer is 0.0 all the same.
        assert_eq!(&rig.succeed(&version(0, 1, data))[..4], &[0, 0, 0, 0]);
        assert_eq!(rig.server.client(), Some(&ClientCapabilities::default()));
        assert_eq!(rig.server.client().unwrap().max_msg_fds, 1);
    }
}

#[test]
fn what_is_not_a_version_is_refused_and_may_be_tried_again() {
    let long = [&vec![b' '; 20_000][..], b"{}\0"].concat();
    let deep = [&vec![b'['; 10_000][..], b"\0"].concat();
    let malformed: Vec<Vec<u8>> = vec![
        message(1, Command::VERSION, 0, &[]),
        message(1, Command::VERSION, 0, &[0, 0, 0]),
        version(1, 0, b"{}\0"),
        version(0xffff, 0, b"{}\0"),
        version(0, 0, b"{}"),
        version(0, 0, b"{"),
        version(0, 0, b"\0"),
        version(0, 0, b"{}\0\0"),
        version(0, 0, b"{}\0{}\0"),
        version(0, 0, b"null\0"),
        version(0, 0, b"7\0"),
        version(0, 0, b"{\"capabilities\":7}\0"),
        version(0, 0, b"{\"capabilities\":{\"max_msg_fds\":-1}}\0"),
        version(0, 0, b"{\"capabilities\":{\"max_msg_fds\":\"16\"}}\0"),
        version(0, 0, b"{\"capabilities\":{\"max_data_xfer_size\":0}}\0"),
        version(0, 0, b"{\"capabilities\":{\"max_data_xfer_size\":1e400}}\0"),
        version(0, 0, b"\xff\xfe\0"),
        version(0, 0, &long),
        version(0, 0, &deep),
    ];
    for request in malformed {
        let mut rig = Rig::connected();
        rig.refuse(&request, Errno::INVAL);
        assert_eq!(rig.server.client(), None);
        rig.succeed(&qemu_version());
    }
}

#[test]
fn nothing_goes_before_it_and_it_goes_once() {
    let mut rig = Rig::connected();
    for command in (0..=20).filter(|&command| command != Command::VERSION.0) {
        rig.refuse(&message(9, Command(command), 0, &[0; 16]), Errno::INVAL);
    }
    rig.succeed(&qemu_version());
    rig.refuse(&qemu_version(), Errno::INVAL);
}
