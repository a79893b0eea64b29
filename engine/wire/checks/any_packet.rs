//! Any packet of any opcode comes back from the wire as it was sent.

use crate::frame::CAPACITY;
use crate::opcode::Headers;
use crate::*;
use proptest::prelude::*;

fn network() -> impl Strategy<Value = Network> {
    let v4 = any::<([u8; 4], [u8; 4], u8, u8, u16)>().prop_map(|(source, dest, traffic_class, ttl, identification)| {
        Network::V4 { source: source.into(), dest: dest.into(), traffic_class, ttl, identification }
    });
    let v6 = any::<([u8; 16], [u8; 16], u8, u32, u8)>().prop_map(|(source, dest, traffic_class, label, hop_limit)| {
        Network::V6 {
            source: source.into(),
            dest: dest.into(),
            traffic_class,
            flow_label: label & ipv6::FLOW_LABEL_MASK,
            hop_limit,
        }
    });
    prop_oneof![v4, v6]
}

fn link() -> impl Strategy<Value = LinkHeaders> {
    any::<([u8; 6], [u8; 6], Option<u16>)>().prop_map(|(source_mac, dest_mac, tci)| LinkHeaders {
        source_mac,
        dest_mac,
        vlan: tci.map(|tci| Vlan { tci }),
    })
}

fn bth(opcode: Opcode) -> impl Strategy<Value = Bth> {
    any::<(bool, bool, u16, bool, bool, u32, bool, u32)>().prop_map(move |values| {
        let (solicited_event, migration_request, partition_key, fecn, becn, dest_qp, ack_req, psn) = values;
        Bth {
            opcode,
            solicited_event,
            migration_request,
            pad_bytes: 0,
            partition_key,
            fecn,
            becn,
            dest_qp: dest_qp & 0xff_ffff,
            ack_req,
            psn: Psn::new(psn),
        }
    })
}

/// Values in every header, whether the opcode carries it or not.
fn extension() -> impl Strategy<Value = Extension> {
    any::<(u64, u32, u32, u8, u32, u64, u64, u64, [u8; 4])>().prop_map(|values| {
        let (virtual_address, remote_key, word, byte, sequence, swap_or_add, compare, original, immediate) = values;
        Extension {
            xrceth: XrcEth { srq_number: word & 0xff_ffff },
            deth: Deth { queue_key: remote_key, source_qp: sequence & 0xff_ffff },
            feth: Feth { placement_type: byte & 0xf, selectivity: byte >> 4 & 3 },
            reth: Reth { virtual_address, remote_key, dma_length: word },
            aeth: Aeth { syndrome: Syndrome::from_byte(byte), msn: Msn::new(sequence) },
            atomic_eth: AtomicEth { virtual_address, remote_key, swap_or_add, compare },
            atomic_ack: AtomicAckEth { original },
            immdt: ImmDt { immediate },
            ieth: Ieth { remote_key: word },
        }
    })
}

fn headers(opcode: Opcode) -> impl Strategy<Value = RoceHeaders> {
    (link(), network(), any::<u16>(), bth(opcode), extension()).prop_map(
        |(link, network, udp_source_port, bth, extension)| RoceHeaders {
            link,
            network,
            udp_source_port,
            bth,
            extension,
        },
    )
}

/// What the receiver sees of the extension: headers that are not on the wire have their defaults.
fn on_the_wire(extension: &Extension, present: Headers) -> Extension {
    let sent = extension;
    let mut seen = Extension::default();
    let has = |header| present.contains(header);
    if has(Headers::XRCETH) {
        seen.xrceth = sent.xrceth
    }
    if has(Headers::DETH) {
        seen.deth = sent.deth
    }
    if has(Headers::FETH) {
        seen.feth = sent.feth
    }
    if has(Headers::RETH) {
        seen.reth = sent.reth
    }
    if has(Headers::AETH) {
        seen.aeth = sent.aeth
    }
    if has(Headers::ATOMIC_ETH) {
        seen.atomic_eth = sent.atomic_eth
    }
    if has(Headers::ATOMIC_ACK_ETH) {
        seen.atomic_ack = sent.atomic_ack
    }
    if has(Headers::IMMDT) {
        seen.immdt = sent.immdt
    }
    if has(Headers::IETH) {
        seen.ieth = sent.ieth
    }
    seen
}

fn round_trip(sent: &RoceHeaders, payload: &[u8]) -> Result<(), TestCaseError> {
    let mut frame = Frame::new();
    frame.buffer_mut().fill(0xa5);
    let range = emit(sent, payload.len(), &mut frame);
    prop_assert_eq!(range.len(), payload.len());
    prop_assert_eq!(frame.length(), frame_length(sent, payload.len()));
    frame.bytes_mut()[range].copy_from_slice(payload);
    let description = sent.bth.opcode.description().unwrap();
    let mut expected = *sent;
    expected.bth.pad_bytes = ((4 - payload.len() % 4) % 4) as u8;
    expected.extension = on_the_wire(&sent.extension, description.headers);

    prop_assert!(is_roce(frame.bytes()));
    for check in [IcrcCheck::Trusted, IcrcCheck::Verify] {
        let seen = parse(frame.bytes(), check).map_err(|reason| TestCaseError::fail(reason.to_string()))?;
        prop_assert_eq!(seen.headers, expected);
        prop_assert_eq!(seen.payload, payload);
        prop_assert_eq!(seen.description, description);
        frame.seal();
    }
    Ok(())
}

#[test]
fn every_opcode_round_trips() {
    for opcode in Opcode::ALL {
        let mut runner =
            proptest::test_runner::TestRunner::new(ProptestConfig { cases: 200, ..ProptestConfig::default() });
        let packets = (headers(*opcode), proptest::collection::vec(any::<u8>(), 0..70));
        runner.run(&packets, |(sent, payload)| round_trip(&sent, &payload)).unwrap_or_else(|fault| {
            panic!("{}: {fault}", opcode.description().unwrap().name);
        });
    }
}

/// Headers of a WRITE, for the tests of length.
fn write_headers() -> RoceHeaders {
    RoceHeaders {
        link: LinkHeaders { vlan: Some(Vlan::new(3, 7)), ..LinkHeaders::default() },
        network: Network::V6 {
            source: [1; 16].into(),
            dest: [2; 16].into(),
            traffic_class: 2,
            flow_label: 5,
            hop_limit: 64,
        },
        udp_source_port: 0xc000,
        bth: Bth::new(Opcode::RC_WRITE_ONLY_IMM, 0x11, Psn::new(1)),
        extension: Extension::default(),
    }
}

#[test]
fn the_largest_payload_fits_with_every_opcode() {
    for opcode in Opcode::ALL {
        let mut sent = write_headers();
        sent.bth.opcode = *opcode;
        let room = payload_room(&sent);
        assert!((9000..CAPACITY).contains(&room), "{opcode:?}: {room}");
        round_trip(&sent, &vec![0x5a; room]).unwrap();
    }
}

#[test]
#[should_panic(expected = "do not fit")]
fn a_payload_beyond_the_room_is_a_programming_error() {
    let sent = write_headers();
    emit(&sent, payload_room(&sent) + 1, &mut Frame::new());
}

#[test]
#[should_panic(expected = "opcode 0x15 is not in the table")]
fn an_unknown_opcode_is_a_programming_error() {
    let mut sent = write_headers();
    sent.bth.opcode = Opcode(0x15);
    emit(&sent, 0, &mut Frame::new());
}
