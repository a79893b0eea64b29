//! Splitting a transfer into TLPs, and carrying it out with the ledger: `cargo bench -p rnic-measure --bench link`.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rnic_pcie::dma_window::{Backing, Permissions};
use rnic_pcie::guest_region::GuestRegion;
use rnic_pcie::tlp::Splitter;
use rnic_pcie::{Cause, Class, DmaPort, DmaRange, Iova, Link, LinkSettings, Origin};
use std::hint::black_box;
use std::sync::Arc;

const BASE: u64 = 1 << 32;
const MEMORY_BYTES: usize = 1 << 20;

fn split(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("TLPs");
    let splitter = Splitter::new(LinkSettings::MODEL_HOST);
    for length in [64, 4096, 65_536] {
        let range = DmaRange::new(Iova(BASE), length);
        group.bench_function(format!("of a write/{length}"), |bencher| {
            bencher.iter(|| splitter.device_write(black_box(range)));
        });
        group.bench_function(format!("of a read/{length}"), |bencher| {
            bencher.iter(|| splitter.device_read(black_box(range)));
        });
    }
    group.finish();
}

/// Copy, TLPs, ledger and totals by queue; nobody watches the trace.
fn transfer(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("link");
    let region = Arc::new(GuestRegion::anonymous(MEMORY_BYTES).expect("memory"));
    let mut link = Link::new(LinkSettings::MODEL_HOST, 4);
    link.map(BASE, MEMORY_BYTES as u64, Permissions::READ_WRITE, Backing::Mapped { region, offset: 0 }).expect("a map");
    link.set_bus_master(true);
    let read = Origin::new(Class::PayloadRead, Cause::Send { qpn: 0x11, index: 0, count: 1, attempt: 0 });
    let write = Origin::new(Class::PayloadWrite, Cause::Packet { qpn: 0x12, psn: 1000, attempt: 0 });
    for length in [8_usize, 64, 4096] {
        let mut buffer = vec![1; length];
        let mut rounds = 0_u64;
        let mut next = || {
            rounds += 1;
            [DmaRange::new(Iova(BASE + rounds % 64 * 4096), length as u32)]
        };
        group.throughput(Throughput::Bytes(length as u64));
        group.bench_function(format!("read/{length}"), |bencher| {
            bencher.iter(|| link.read(read, &next(), black_box(&mut buffer)).expect("read"));
        });
        group.bench_function(format!("post/{length}"), |bencher| {
            bencher.iter(|| link.write(write, &next(), black_box(&buffer)).expect("written"));
        });
    }
    group.finish();
    assert!(link.ledger().class(Class::PayloadWrite).crossings > 0, "what was measured was counted");
}

criterion_group!(benches, split, transfer);
criterion_main!(benches);
