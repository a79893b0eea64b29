//! Building and parsing a packet, with and without its ICRC: `cargo bench -p rnic-measure --bench wire`.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rnic_wire::{Bth, Extension, Frame, IcrcCheck, LinkHeaders, Network, Opcode, Psn, Reth, RoceHeaders, emit, parse};
use std::hint::black_box;
use std::net::Ipv4Addr;

/// An RDMA WRITE of one packet.
fn headers(length: usize) -> RoceHeaders {
    let link = LinkHeaders { source_mac: [2, 0, 0, 0, 0, 1], dest_mac: [2, 0, 0, 0, 0, 2], vlan: None };
    let [source, dest] = [1, 2].map(|host| Ipv4Addr::new(10, 0, 0, host));
    let reth = Reth { virtual_address: 0x7f00_0000_0000, remote_key: 0x100, dma_length: length as u32 };
    RoceHeaders {
        link,
        network: Network::V4 { source, dest, traffic_class: 0, ttl: 64, identification: 0 },
        udp_source_port: 0xc000,
        bth: Bth::new(Opcode::RC_WRITE_ONLY, 0x12, Psn::new(1000)),
        extension: Extension { reth, ..Extension::default() },
    }
}

fn wire(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("wire");
    for length in [64, 4096] {
        let headers = headers(length);
        let mut frame = Frame::new();
        emit(&headers, length, &mut frame);
        group.bench_function(format!("emit/{length}"), |bencher| {
            bencher.iter(|| emit(black_box(&headers), black_box(length), &mut frame));
        });
        frame.seal();
        let packet = parse(frame.bytes(), IcrcCheck::Verify).expect("what was emitted and sealed parses");
        assert_eq!((packet.headers.extension.reth, packet.payload.len()), (headers.extension.reth, length));
        group.bench_function(format!("parse/{length}"), |bencher| {
            bencher.iter(|| parse(black_box(frame.bytes()), IcrcCheck::Trusted).is_ok());
        });
        group.throughput(Throughput::Bytes(length as u64));
        group.bench_function(format!("parse and verify the ICRC/{length}"), |bencher| {
            bencher.iter(|| parse(black_box(frame.bytes()), IcrcCheck::Verify).is_ok());
        });
        let mut emitted = Frame::new();
        group.bench_function(format!("emit and seal with the ICRC/{length}"), |bencher| {
            bencher.iter(|| {
                emit(black_box(&headers), length, &mut emitted);
                emitted.seal();
            });
        });
    }
    group.finish();
}

criterion_group!(benches, wire);
criterion_main!(benches);
