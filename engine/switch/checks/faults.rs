//! Fault scripts: what they choose, what they do, and what they refuse.

use super::*;
use crate::{DropReason, FaultScript, FaultScriptError};

/// PSNs that pass a port with the script, of packets with PSN 1 and up, all requests.
fn passing(script: &str, packets: u32) -> Vec<u32> {
    let (_, mut ports) = switch_of(2);
    ports[1].set_fault_script(script.parse().unwrap());
    for psn in 1..=packets {
        ports[0].transmit(&mut roce(Opcode::RC_SEND_ONLY, psn, b"data"), 0);
    }
    let psn = |frame: &Vec<u8>| rnic_wire::parse(frame, rnic_wire::IcrcCheck::Trusted).unwrap().headers.bth.psn.get();
    received(&mut ports[1], 0).iter().map(psn).collect()
}

#[test]
fn the_chosen_request_is_dropped() {
    assert_eq!(passing("drop:3", 5), [1, 2, 4, 5]);
    assert_eq!(passing("drop:2-4", 5), [1, 5]);
    assert_eq!(passing("drop:1,drop:request:3", 5), [2, 4, 5]);
    assert_eq!(passing("drop:psn:4", 5), [1, 2, 3, 5]);
    assert_eq!(passing("drop:any:0x5", 5), [1, 2, 3, 4]);
    assert_eq!(passing("duplicate:2", 3), [1, 2, 2, 3]);
    assert_eq!(passing("drop:1-3@0x12", 3), [1, 2, 3], "another queue pair's");
    assert_eq!(passing("drop:1-3@17", 3), []);
    assert_eq!(passing("drop:ack:1,drop:response:1,drop:cnp:1", 2), [1, 2]);
}

#[test]
fn a_psn_is_dropped_once() {
    let (_, mut ports) = switch_of(2);
    ports[1].set_fault_script("drop:psn:7".parse().unwrap());
    for _ in 0..3 {
        ports[0].transmit(&mut roce(Opcode::RC_SEND_ONLY, 7, b"data"), 0);
    }
    assert_eq!(received(&mut ports[1], 0).len(), 2);
    assert_eq!(ports[1].statistics().dropped(DropReason::Fault), 1);
}

#[test]
fn kinds_are_counted_apart() {
    let opcodes = [
        Opcode::RC_SEND_ONLY,
        Opcode::RC_ACKNOWLEDGE,
        Opcode::RC_READ_RESPONSE_ONLY,
        Opcode::RC_ATOMIC_ACKNOWLEDGE,
        Opcode::CNP,
        Opcode::RC_READ_REQUEST,
    ];
    for (script, dropped) in [
        ("drop:1", vec![0]),
        ("drop:2", vec![5]),
        ("drop:ack:1", vec![1]),
        ("drop:response:1", vec![2]),
        ("drop:response:2", vec![3]),
        ("drop:cnp:1", vec![4]),
        ("drop:any:4", vec![3]),
        ("drop:ack:psn:1", vec![1]),
        ("drop:response:2,drop:2", vec![3, 5]),
    ] {
        let (_, mut ports) = switch_of(2);
        ports[1].set_fault_script(script.parse().unwrap());
        let mut gone = Vec::new();
        for (place, opcode) in opcodes.into_iter().enumerate() {
            let mut frame = roce(opcode, place as u32, b"");
            ports[0].transmit(&mut frame, 0);
            ports[0].transmit(&mut frame_of(&ethernet(mac(1), mac(2), b"not RoCE")), 0);
            if received(&mut ports[1], 0).len() == 1 {
                gone.push(place);
            }
        }
        assert_eq!(gone, dropped, "{script}");
    }
}

#[test]
fn a_corrupted_packet_never_passes_its_icrc() {
    for seed in 0..200 {
        let (_, mut ports) = switch_of(2);
        ports[1].set_impairment(crate::Impairment { seed, ..Default::default() });
        ports[1].set_fault_script("corrupt:1".parse().unwrap());
        ports[0].transmit(&mut roce(Opcode::RC_SEND_ONLY, 1, b"data"), 0);
        let frames = received(&mut ports[1], 0);
        let verdict = rnic_wire::parse(&frames[0], rnic_wire::IcrcCheck::Verify);
        assert!(matches!(verdict, Err(rnic_wire::Drop::BadIcrc { .. })), "seed {seed}: {verdict:?}");
    }
}

#[test]
fn a_marked_packet_carries_the_mark() {
    let (_, mut ports) = switch_of(2);
    ports[1].set_fault_script("mark:2".parse().unwrap());
    for psn in 1..=2 {
        ports[0].transmit(&mut roce(Opcode::RC_SEND_ONLY, psn, b""), 0);
    }
    let ecn: Vec<u8> = received(&mut ports[1], 0).iter().map(|frame| frame[15] & 3).collect();
    assert_eq!((ecn, ports[1].statistics().marked_frames), (vec![2, 3], 1));
}

#[test]
fn errors_say_what_is_wrong() {
    use FaultScriptError::*;
    let max_24_bits = 0xff_ffff;
    for (text, error) in [
        ("", Shape { fault: "".into() }),
        ("drop", Shape { fault: "drop".into() }),
        ("drop:request:psn:1:2", Shape { fault: "drop:request:psn:1:2".into() }),
        ("lose:3", UnknownAction { action: "lose".into() }),
        ("drop:nak:3", UnknownKind { kind: "nak".into() }),
        ("drop:psn:ack:1", Shape { fault: "drop:psn:ack:1".into() }),
        ("drop:0", EmptyRange { first: 0, last: 0 }),
        ("drop:5-3", EmptyRange { first: 5, last: 3 }),
        ("drop:three", Number { text: "three".into(), max: u64::MAX }),
        ("drop:+3", Number { text: "+3".into(), max: u64::MAX }),
        ("drop:psn:0x1000000", Number { text: "0x1000000".into(), max: max_24_bits }),
        ("drop:3@", Number { text: "".into(), max: max_24_bits }),
        ("drop:3,,", Shape { fault: "".into() }),
    ] {
        let refused = text.parse::<FaultScript>().unwrap_err();
        assert_eq!(refused, error, "{text:?}");
    }
    let many = vec!["drop:1"; 65].join(",");
    assert_eq!(many.parse::<FaultScript>(), Err(TooMany { max: 64 }));
    assert!(many[7..].parse::<FaultScript>().is_ok());
    let shown = "lose:3".parse::<FaultScript>().unwrap_err().to_string();
    assert_eq!(shown, "fault script: \"lose\" is not an action; they are drop, corrupt, duplicate, mark");
}
