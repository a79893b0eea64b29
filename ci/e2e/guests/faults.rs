//! What a kernel that looks for faults has found: nothing in our driver, and what is planted.

use super::{lab, pair, shell};
use crate::bench::fabric::Fabric;
use rnic_ci::guest::Guest;

/// The guests run the kernel that looks for faults.
fn are_looked_for() -> bool {
    super::options().kernel == rnic_ci::GuestKernel::Debug
}

/// Everything takes longer in it.
pub fn patience() -> u32 {
    if are_looked_for() { 8 } else { 1 }
}

const FILES: &str = "/sys/kernel/debug";
/// Memory that nothing points to: what is younger than five seconds is not looked at, and the second look forgives what moved
/// during the first.
const LOOK_FOR_LEAKS: &str =
    "sleep 6; for i in 1 2; do echo scan >/sys/kernel/debug/kmemleak; done; cat /sys/kernel/debug/kmemleak";

/// Nothing, by all that looks: the kernel's log is looked at for every kernel.
#[track_caller]
pub fn none(guest: &mut Guest) {
    if !are_looked_for() {
        return;
    }
    shell(guest, &format!("mount -t debugfs none {FILES}"));
    // Whoever has found something, or has run out of memory for its books, does not look any more.
    assert_eq!(shell(guest, "awk '/debug_locks:/ { print $2 }' /proc/lockdep_stats"), "1", "locks are looked at");
    let dma = format!("cd {FILES}/dma-api && cat disabled error_count");
    assert_eq!(shell(guest, &dma), "N\n0", "DMA is looked at, and nothing is wrong with it");
    assert_eq!(shell(guest, LOOK_FOR_LEAKS), "", "memory that nothing points to in {}", guest.name());
}

/// A module does on purpose what must not be done.
pub fn planted_faults_are_found() {
    let (lab, fabric) = (lab(), Fabric::new());
    println!("table\tkernel\t{}\t", lab.image().kernel_release);
    for (fault, where_told, sentence) in [
        ("memory", "dmesg", "BUG: KASAN: slab-use-after-free in kernel_faults_init"),
        ("locks", "dmesg", "WARNING: possible circular locking dependency detected"),
        ("leak", LOOK_FOR_LEAKS, "unreferenced object"),
        ("dma", "dmesg", "device driver frees DMA memory with different size"),
    ] {
        let mut guest = pair::start(&lab, "A", 1, fabric.functions("A"));
        shell(&mut guest, &format!("mount -t debugfs none {FILES}"));
        shell(&mut guest, &format!("modprobe rnic_kernel_faults fault={fault}"));
        let told = shell(&mut guest, where_told);
        assert!(told.contains(sentence), "{fault}: {told}");
        println!("{fault}: {sentence}");
    }
}
