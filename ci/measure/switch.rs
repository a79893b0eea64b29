//! A frame from port to port through the ring between them, in one thread: `cargo bench -p rnic-measure --bench switch`.

use criterion::{Criterion, criterion_group, criterion_main};
use rnic_switch::{Forwarded, NeverSleeps, Switch, SwitchConfig};
use rnic_wire::Frame;
use std::sync::Arc;

/// An IPv4 frame between two stations; only its addresses matter.
fn frame(source: u8, destination: u8) -> Frame {
    let mut bytes = [0; 64];
    (bytes[5], bytes[11]) = (destination, source);
    (bytes[12], bytes[14]) = (8, 0x45);
    bytes[26..30].copy_from_slice(&[10, 0, 0, source]);
    bytes[30..34].copy_from_slice(&[10, 0, 0, destination]);
    let mut frame = Frame::new();
    assert!(frame.set_bytes(&bytes));
    frame
}

fn switch(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("switch");
    let switch = Switch::new(SwitchConfig::default());
    let [mut a, mut b] = ["a", "b"].map(|name| switch.port(name, Arc::new(NeverSleeps)).expect("a free port"));
    // Both addresses are learned.
    a.transmit(&mut frame(1, 2), 0);
    b.transmit(&mut frame(2, 1), 0);
    let mut taken = Frame::new();
    while a.receive(&mut taken, 0) || b.receive(&mut taken, 0) {}
    let mut sent = frame(1, 2);
    let mut carry = |batch: usize| {
        for _ in 0..batch {
            // The ring gives back a buffer with whatever was in it.
            sent.copy_from(&taken);
            let forwarded = a.transmit(&mut sent, 0);
            debug_assert!(matches!(forwarded, Forwarded::Unicast { .. }));
        }
        for _ in 0..batch {
            assert!(b.receive(&mut taken, 0));
        }
    };
    for batch in [1, 16] {
        group.throughput(criterion::Throughput::Elements(batch as u64));
        group.bench_function(format!("from port to port/{batch}"), |bencher| bencher.iter(|| carry(batch)));
    }
    group.finish();
}

criterion_group!(benches, switch);
criterion_main!(benches);
