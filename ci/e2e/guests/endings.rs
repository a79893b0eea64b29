//! The device, or a program, goes in the middle; and what has to be left behind then: nothing.

use super::pair::{self, Guests, is_up};
use super::{faults, held, lab, patience, shell};
use crate::bench::fabric::Fabric;
use rnic_ci::guest::Guest;
use rnic_pcie::Class;
use std::time::Duration;

/// Words with which a kernel tells that something is wrong.
const COMPLAINTS: &[&str] = &[
    "WARNING:",
    "BUG:",
    "Oops",
    "Call Trace",
    "general protection",
    "rcu_sched",
    "unregister_netdevice",
    "UBSAN:",
    "non-static key",
    "suspected memory leak",
    "blocked for more than",
];

/// Nothing is held, the module goes, and the kernel had nothing to complain of.
#[track_caller]
pub fn check(fabric: &Fabric, guest: &mut Guest) {
    held::nothing(fabric, guest);
    shell(guest, "rmmod rnic");
    assert_eq!(shell(guest, "ls /sys/class/infiniband"), "");
    let log = shell(guest, "dmesg");
    for word in COMPLAINTS {
        assert!(!log.contains(word), "{} in the kernel log of {}:\n{log}", word, guest.name());
    }
    faults::none(guest);
}

pub fn the_module_survives_unbinding_resets_and_removal_in_use() {
    let (lab, fabric) = (lab(), Fabric::new());
    let mut guests = Guests::start(&lab, &fabric);
    let device = "0000:01:00.0";
    let held = "ibv_asyncwatch -d rnic0 >/tmp/watch 2>&1 & holder=$!; until grep -q 'event FD' /tmp/watch; do usleep 20000; done";
    let up = format!("until {}; do usleep 20000; done", is_up());
    for (taken, back) in [
        (
            format!("echo {device} > /sys/bus/pci/drivers/rnic/unbind"),
            format!("echo {device} > /sys/bus/pci/drivers/rnic/bind"),
        ),
        ("rmmod rnic".to_owned(), "modprobe rnic".to_owned()),
        (format!("echo 1 > /sys/bus/pci/devices/{device}/reset"), "rmmod rnic && modprobe rnic".to_owned()),
    ] {
        shell(&mut guests.client, &format!("{held}; {taken} && kill $holder; wait; {back} && {up}"));
        held::nothing(&fabric, &mut guests.client);
        guests.succeed("ibv_rc_pingpong -d rnic0 -g 1 -n 50 -c");
    }
    guests.end();
}

/// The other side learns of it, and both go on.
pub fn a_killed_program_leaves_nothing() {
    let (lab, fabric) = (lab(), Fabric::new());
    let mut guests = Guests::start(&lab, &fabric);
    let program = "ib_write_bw -F -d rnic0 -D 20";
    guests.serve(program);
    shell(&mut guests.client, &format!("{program} 10.0.0.1 >/tmp/out 2>&1 & sleep 3; kill -9 $!; wait; true"));
    shell(
        &mut guests.server,
        "for i in $(seq 100); do [ -s /tmp/code ] && exit; usleep 50000; done; kill -9 $(cat /tmp/pid)",
    );
    held::nothing(&fabric, &mut guests.client);
    held::nothing(&fabric, &mut guests.server);
    guests.succeed("ibv_rc_pingpong -d rnic0 -g 1 -n 50 -c");
    guests.end();
}

/// An application that does everything wrong that it can is given the errors of real hardware, and leaves nothing, though it
/// lets nothing go. The other guest goes on meanwhile.
pub fn wrong_keys_sizes_states_and_flags_are_refused_by_every_verb() {
    let (lab, fabric) = (lab(), Fabric::new());
    let mut guests = Guests::start(&lab, &fabric);
    guests.load("ib_write_bw -F -d rnic0 -D 5");
    println!("{}", shell(&mut guests.client, "rnic_wrong_verbs -d rnic0 -g 1"));
    for guest in [&mut guests.server, &mut guests.client] {
        shell(guest, "until [ -s /tmp/code ]; do usleep 20000; done; cat /tmp/out; [ $(cat /tmp/code) = 0 ]");
    }
    held::nothing(&fabric, &mut guests.client);
    guests.end();
}

/// Bytes have crossed in both guests since.
fn await_traffic(fabric: &Fabric, before: [u64; 2]) {
    while moved(fabric).iter().zip(before).any(|(now, before)| *now < before + 1000) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn moved(fabric: &Fabric) -> [u64; 2] {
    ["A", "B"].map(|name| {
        let look = fabric.adapter(name).call(|adapter| {
            let ledger = adapter.function.link.ledger();
            ledger.class(Class::PayloadRead).crossings + ledger.class(Class::PayloadWrite).crossings
        });
        look.expect("an answer")
    })
}

/// Its peer has gone for good: the requester is told that retries have come to their end, and lets everything go.
#[track_caller]
fn survives(fabric: &Fabric, survivor: &mut Guest) {
    shell(survivor, "until [ -s /tmp/code ]; do usleep 20000; done; [ $(cat /tmp/code) != 0 ]");
    let printed = shell(survivor, "cat /tmp/out");
    assert!(printed.contains("Failed status 12"), "no IBV_WC_RETRY_EXC_ERR: {printed}");
    held::nothing(fabric, survivor);
}

/// Of sends alone, so that the first completion with an error is that of a request, and no flushed receive.
const LOADS: [&str; 2] = ["ib_write_bw -b -F -d rnic0 -D 30", "ib_read_bw -F -d rnic0 -D 30"];

/// Its QEMU dies; another machine takes its place.
pub fn a_machine_that_is_killed_under_load_harms_nobody_else() {
    let (lab, fabric) = (lab(), Fabric::new());
    let mut guests = Guests::start(&lab, &fabric);
    for program in LOADS {
        let before = moved(&fabric);
        guests.load(program);
        await_traffic(&fabric, before);
        held::something(&fabric, &mut guests.client);
        guests.server.kill();
        survives(&fabric, &mut guests.client);
        held::wait_until_nothing_is_left(&fabric, "A");
        guests.server = pair::start(&lab, "A", 1, fabric.functions("A"));
        guests.succeed("ibv_rc_pingpong -d rnic0 -g 1 -n 50 -c");
    }
    guests.end();
}

/// It starts again from its firmware, with the adapter that it had.
pub fn a_guest_that_reboots_under_load_harms_nobody_else() {
    const LIMIT: Duration = Duration::from_secs(60);
    let (lab, fabric) = (lab(), Fabric::new());
    let server = pair::boot(&lab, "A", 1, fabric.functions("A"));
    let client = pair::start(&lab, "B", 2, fabric.functions("B"));
    let mut guests = Guests { fabric: &fabric, server, client };
    for program in LOADS {
        let (before, resets) = (moved(&fabric), fabric.resets("A"));
        guests.load(program);
        await_traffic(&fabric, before);
        guests.server.reboot(LIMIT * patience()).expect("the guest comes back");
        crate::tally::guests_booted(1);
        assert!(fabric.resets("A") > resets, "the machine's reset has arrived");
        survives(&fabric, &mut guests.client);
        pair::bring_up(&mut guests.server, 1);
        held::nothing(&fabric, &mut guests.server);
        guests.succeed("ibv_rc_pingpong -d rnic0 -g 1 -n 50 -c");
    }
    guests.end();
}
