//! What a device and a guest's kernel hold for programs: nothing, when these have ended, however they did.

use super::shell;
use crate::bench::fabric::Fabric;
use rnic_ci::guest::Guest;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The doorbell page of the kernel's own objects.
const KERNEL_PAGE: u32 = 0;
const PAGE_BYTES: u64 = 4096;
const LIMIT: Duration = Duration::from_secs(20);

/// The device's own objects, of every kind, that are not the kernel's: it has no regions where the device has a local DMA key.
/// Of domains the device knows the numbers that others carry; pages are those of regions.
fn by_device(fabric: &Fabric, name: &str) -> BTreeMap<&'static str, usize> {
    let look = fabric.adapter(name).call(|adapter| {
        let engine = &adapter.function.engine;
        let all = engine.inspect();
        let queue_pairs = engine.inspect_queue_pairs(0, usize::MAX).into_iter();
        let queue_pairs: Vec<_> = queue_pairs.filter(|view| view.doorbell_page != KERNEL_PAGE).collect();
        let shared = engine.inspect_shared_receive_queues(0, usize::MAX).into_iter();
        let shared: Vec<_> = shared.filter(|view| view.doorbell_page != KERNEL_PAGE).collect();
        let queues = engine.inspect_completion_queues(0, usize::MAX).into_iter();
        let keys = engine.inspect_keys(0, usize::MAX);
        let contexts = keys.iter().filter_map(|view| view.context);
        let mut domains: BTreeSet<u32> = contexts.clone().map(|context| context.pdn.0).collect();
        domains.extend(queue_pairs.iter().map(|view| view.pdn));
        domains.extend(shared.iter().map(|view| view.pdn));
        BTreeMap::from([
            ("queue pairs", queue_pairs.len()),
            ("completion queues", queues.filter(|view| view.doorbell_page != KERNEL_PAGE).count()),
            ("shared receive queues", shared.len()),
            ("regions and windows", keys.len()),
            ("domains", domains.len()),
            ("pages", contexts.map(|context| context.length_bytes.div_ceil(PAGE_BYTES) as usize).sum()),
            ("attachments to groups", all.groups.iter().map(|(_, members)| members.len()).sum()),
            ("queue pairs with work", all.scheduled.iter().sum()),
            ("parked frames", all.parked_frames),
            ("waiting completions", all.waiting_completions),
        ])
    });
    look.expect("an answer")
}

/// Pages that the guest's kernel has pinned, and has let go, ever. The first word adds up what processors count apart.
#[track_caller]
fn pins(guest: &mut Guest) -> [u64; 2] {
    let counts = "echo 1 >/proc/sys/vm/stat_refresh; awk '/^nr_foll_pin_/ { print $2 }' /proc/vmstat";
    let counts = shell(guest, counts);
    let counts: Vec<u64> = counts.lines().map(|line| line.parse().expect("a count")).collect();
    counts.try_into().expect("pages acquired and released")
}

/// A program runs: so the counts count.
#[track_caller]
pub fn something(fabric: &Fabric, guest: &mut Guest) {
    let device = by_device(fabric, guest.name());
    for kind in ["queue pairs", "completion queues", "regions and windows", "domains", "pages"] {
        assert!(device[kind] > 0, "{kind}: adapter {} holds {device:?}", guest.name());
    }
    let [acquired, released] = pins(guest);
    assert!(acquired > released, "{acquired} pages pinned, {released} let go in {}", guest.name());
}

/// Nothing is held for a program, by the device or by the guest's kernel.
#[track_caller]
pub fn nothing(fabric: &Fabric, guest: &mut Guest) {
    // What the kernel holds for itself, such as the queue pair of management, stands in brackets.
    let held = "for kind in pd cq qp cm_id mr ctx srq; do rdma resource show $kind; done | grep -v 'comm \\['";
    assert_eq!(shell(guest, &format!("{held} || true")), "", "{}", guest.name());
    let device = by_device(fabric, guest.name());
    assert!(device.values().all(|count| *count == 0), "adapter {} holds {device:?}", guest.name());
    let [acquired, released] = pins(guest);
    assert_eq!(acquired, released, "pages are still pinned in {}", guest.name());
}

/// What an adapter has of a machine: maps of its memory, files, objects of any kind, a client.
fn of_a_machine(fabric: &Fabric, name: &str) -> (usize, usize, [usize; 5], bool) {
    let look = fabric.adapter(name).call(|adapter| {
        let window = adapter.function.link.window();
        let objects = adapter.function.engine.inspect().object_counts;
        (window.map_count(), window.file_count(), objects, adapter.is_attached())
    });
    look.expect("an answer")
}

/// The adapter of a machine that is gone.
pub fn wait_until_nothing_is_left(fabric: &Fabric, name: &str) {
    let until = Instant::now() + LIMIT * super::patience();
    while of_a_machine(fabric, name) != (0, 0, [0; 5], false) {
        assert!(Instant::now() < until, "adapter {name}: {:?} is left", of_a_machine(fabric, name));
        std::thread::sleep(Duration::from_millis(2));
    }
}
