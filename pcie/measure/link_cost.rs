//! What a transfer through the link costs beside the copy it makes: nanoseconds a transfer, and of a bare copy of
//! the same bytes. `cargo run --release -p rnic-pcie --example link_cost`

use rnic_pcie::dma_window::{Backing, Permissions};
use rnic_pcie::guest_region::GuestRegion;
use rnic_pcie::{Cause, Class, DmaPort, DmaRange, Iova, Link, LinkSettings, Origin};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

const BASE: u64 = 1 << 32;
const MEMORY_BYTES: usize = 1 << 20;
const ROUNDS: u32 = 500_000;

/// The best of several runs: the machine is shared.
fn nanoseconds(mut run: impl FnMut(u64)) -> f64 {
    let once = |run: &mut dyn FnMut(u64)| {
        let start = Instant::now();
        for round in 0..ROUNDS {
            run(u64::from(round) % 64 * 4096);
        }
        start.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
    };
    (0..7).map(|_| once(&mut run)).fold(f64::INFINITY, f64::min)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let region = Arc::new(GuestRegion::anonymous(MEMORY_BYTES)?);
    let mut link = Link::new(LinkSettings::MODEL_HOST, 4);
    let backing = Backing::Mapped { region, offset: 0 };
    link.map(BASE, MEMORY_BYTES as u64, Permissions::READ_WRITE, backing)?;
    link.set_bus_master(true);
    let read = Origin::new(Class::PayloadRead, Cause::Maintenance);
    let write = Origin::new(Class::PayloadWrite, Cause::Maintenance);
    let mut bare = vec![1u8; MEMORY_BYTES];
    println!("{:>6} {:>10} {:>10} {:>10} {:>10}", "bytes", "read ns", "write ns", "copy in", "copy out");
    for length in [8usize, 64, 256, 1024, 4096, 65_536] {
        let mut buffer = vec![0u8; length];
        let range = |at: u64| [DmaRange::new(Iova(BASE + at), length as u32)];
        let reads = nanoseconds(|at| {
            black_box(link.read(read, &range(at), black_box(&mut buffer)).is_ok());
        });
        let writes = nanoseconds(|at| {
            black_box(link.write(write, &range(at), black_box(&buffer)).is_ok());
        });
        let copies_in = nanoseconds(|at| black_box(&mut buffer).copy_from_slice(&bare[at as usize..][..length]));
        let copies_out = nanoseconds(|at| bare[at as usize..][..length].copy_from_slice(black_box(&buffer)));
        println!("{length:>6} {reads:>10.1} {writes:>10.1} {copies_in:>10.1} {copies_out:>10.1}");
    }
    Ok(())
}
