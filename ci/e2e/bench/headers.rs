//! The same packet in three tongues: our parser's values against scapy's and tshark's fields.

use rnic_wire::{Headers, Network, ParsedPacket, Syndrome};
use serde_json::{Map, Value, json};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}

/// Our values under the names of the scapy judge.
fn as_scapy_names(packet: &ParsedPacket<'_>) -> Map<String, Value> {
    let headers = &packet.headers;
    let bth = &headers.bth;
    let mut fields = json!({
        "source_mac": mac(headers.link.source_mac),
        "dest_mac": mac(headers.link.dest_mac),
        "udp_source_port": headers.udp_source_port,
        "opcode": bth.opcode.0,
        "solicited_event": bth.solicited_event,
        "migration_request": bth.migration_request,
        "pad_bytes": bth.pad_bytes,
        "partition_key": bth.partition_key,
        "fecn": bth.fecn,
        "becn": bth.becn,
        "dest_qp": bth.dest_qp,
        "ack_req": bth.ack_req,
        "psn": bth.psn.get(),
        "payload_length": packet.payload.len(),
        "payload": hex(packet.payload),
    });
    let network = match headers.network {
        Network::V4 { source, dest, traffic_class, ttl, identification } => json!({
            "ip_version": 4, "source": source.to_string(), "dest": dest.to_string(), "traffic_class": traffic_class,
            "ttl": ttl, "identification": identification,
        }),
        Network::V6 { source, dest, traffic_class, flow_label, hop_limit } => json!({
            "ip_version": 6, "source": source.to_string(), "dest": dest.to_string(), "traffic_class": traffic_class,
            "flow_label": flow_label, "hop_limit": hop_limit,
        }),
    };
    let all = fields.as_object_mut().expect("an object");
    all.extend(network.as_object().expect("an object").clone());
    all.extend(extensions(packet));
    std::mem::take(all)
}

/// The headers that the opcode calls for, field by field.
fn extensions(packet: &ParsedPacket<'_>) -> Map<String, Value> {
    let values = &packet.headers.extension;
    let (reth, atomic) = (&values.reth, &values.atomic_eth);
    let all = [
        (
            Headers::RETH,
            "reth",
            json!({ "va": reth.virtual_address, "rkey": reth.remote_key, "dma_length": reth.dma_length }),
        ),
        (
            Headers::ATOMIC_ETH,
            "atomic_eth",
            json!({
                "va": atomic.virtual_address, "rkey": atomic.remote_key, "swap_or_add": atomic.swap_or_add,
                "compare": atomic.compare,
            }),
        ),
        (Headers::ATOMIC_ACK_ETH, "atomic_ack", json!({ "original": values.atomic_ack.original })),
        (Headers::AETH, "aeth", json!({ "syndrome": syndrome_byte(packet), "msn": values.aeth.msn.get() })),
        (Headers::IMMDT, "immdt", json!({ "immediate": hex(&values.immdt.immediate) })),
        (Headers::IETH, "ieth", json!({ "rkey": values.ieth.remote_key })),
        (Headers::DETH, "deth", json!({ "qkey": values.deth.queue_key, "source_qp": values.deth.source_qp })),
        (
            Headers::FETH,
            "feth",
            json!({ "selectivity": values.feth.selectivity, "placement_type": values.feth.placement_type }),
        ),
        (Headers::XRCETH, "xrceth", json!({ "srq_number": values.xrceth.srq_number })),
    ];
    let present = packet.description.headers;
    all.into_iter()
        .filter(|(header, _, _)| present.contains(*header))
        .map(|(_, name, value)| (name.into(), value))
        .collect()
}

/// The AETH's first byte, put together from its meaning.
fn syndrome_byte(packet: &ParsedPacket<'_>) -> u8 {
    match packet.headers.extension.aeth.syndrome {
        Syndrome::Ack { credits } => credits.code(),
        Syndrome::RnrNak { timer } => 0x20 | timer.code(),
        Syndrome::Nak { code } => 0x60 | code.code(),
        Syndrome::Reserved(byte) => byte,
    }
}

/// Each of our fields is scapy's, and scapy found nothing wrong, the ICRC least of all.
#[track_caller]
pub fn assert_as_scapy(what: &str, packet: &ParsedPacket<'_>, scapy: &Value) {
    for check in ["icrc_ok", "ip_checksum_ok", "length_ok", "headers_ok", "pad_ok"] {
        assert_eq!(scapy[check], true, "{what}: {check}: {scapy}");
    }
    for (name, ours) in as_scapy_names(packet) {
        assert_eq!(ours, scapy[&name], "{what}: {name}: {scapy}");
    }
}

/// What tshark is asked for, in the order of [`as_tshark_texts`].
pub const TSHARK: &[&str] = &[
    "frame.len",
    "eth.src",
    "eth.dst",
    "ip.src",
    "ip.dst",
    "ip.ttl",
    "ipv6.src",
    "ipv6.dst",
    "ipv6.hlim",
    "udp.srcport",
    "udp.dstport",
    "infiniband.bth.opcode",
    "infiniband.bth.se",
    "infiniband.bth.m",
    "infiniband.bth.padcnt",
    "infiniband.bth.tver",
    "infiniband.bth.p_key",
    "infiniband.bth.destqp",
    "infiniband.bth.a",
    "infiniband.bth.psn",
    "infiniband.reth.va",
    "infiniband.reth.r_key",
    "infiniband.reth.dmalen",
    "infiniband.atomiceth.swapdt",
    "infiniband.atomiceth.cmpdt",
    "infiniband.atomicacketh.origremdt",
    "infiniband.immdt",
    "infiniband.aeth.syndrome",
    "infiniband.aeth.msn",
    "infiniband.invariant.crc",
];

/// Our values as tshark prints its fields.
fn as_tshark_texts(frame: &[u8], packet: &ParsedPacket<'_>) -> Vec<String> {
    let headers = &packet.headers;
    let bth = &headers.bth;
    let flag = |value: bool| if value { "True" } else { "False" }.to_owned();
    let nothing = || [String::new(), String::new(), String::new()];
    let (v4, v6) = match headers.network {
        Network::V4 { source, dest, ttl, .. } => ([source.to_string(), dest.to_string(), ttl.to_string()], nothing()),
        Network::V6 { source, dest, hop_limit, .. } => {
            (nothing(), [source.to_string(), dest.to_string(), hop_limit.to_string()])
        }
    };
    let extension = |header: Headers, text: String| {
        if packet.description.headers.contains(header) { text } else { String::new() }
    };
    let (reth, atomic) = (&headers.extension.reth, &headers.extension.atomic_eth);
    // It has one name for what RETH and AtomicETH have in common.
    let remote = |of_reth: String, of_atomic: String| {
        let is_atomic = packet.description.headers.contains(Headers::ATOMIC_ETH);
        if is_atomic { of_atomic } else { extension(Headers::RETH, of_reth) }
    };
    let icrc = &frame[frame.len() - 4..];
    let mut texts = vec![frame.len().to_string(), mac(headers.link.source_mac), mac(headers.link.dest_mac)];
    texts.extend(v4);
    texts.extend(v6);
    texts.extend([
        headers.udp_source_port.to_string(),
        "4791".to_owned(),
        bth.opcode.0.to_string(),
        flag(bth.solicited_event),
        flag(bth.migration_request),
        bth.pad_bytes.to_string(),
        "0".to_owned(),
        bth.partition_key.to_string(),
        format!("{:#08x}", bth.dest_qp),
        flag(bth.ack_req),
        bth.psn.get().to_string(),
        remote(format!("{:#018x}", reth.virtual_address), format!("{:#018x}", atomic.virtual_address)),
        remote(format!("{:#010x}", reth.remote_key), format!("{:#010x}", atomic.remote_key)),
        extension(Headers::RETH, reth.dma_length.to_string()),
        extension(Headers::ATOMIC_ETH, atomic.swap_or_add.to_string()),
        extension(Headers::ATOMIC_ETH, atomic.compare.to_string()),
        extension(Headers::ATOMIC_ACK_ETH, headers.extension.atomic_ack.original.to_string()),
        extension(Headers::IMMDT, hex(&headers.extension.immdt.immediate)),
        extension(Headers::AETH, syndrome_byte(packet).to_string()),
        extension(Headers::AETH, headers.extension.aeth.msn.get().to_string()),
        format!("0x{}", hex(icrc)),
    ]);
    texts
}

#[track_caller]
pub fn assert_as_tshark(what: &str, frame: &[u8], packet: &ParsedPacket<'_>, tshark: &[String]) {
    let ours = as_tshark_texts(frame, packet);
    assert_eq!((ours.len(), tshark.len()), (TSHARK.len(), TSHARK.len()), "{what}: {tshark:?}");
    for ((name, ours), theirs) in TSHARK.iter().zip(&ours).zip(tshark) {
        // It takes some payloads for protocols of its own, and then does not come to the ICRC.
        if *name == "infiniband.invariant.crc" && theirs.is_empty() {
            continue;
        }
        assert_eq!(ours, theirs, "{what}: {name} of {}", hex(frame));
    }
}
