//! The device, or a program, goes in the middle; and what has to be left behind then: nothing.

use super::pair::{Guests, is_up};
use super::{lab, shell};
use crate::bench::fabric::Fabric;
use rnic_ci::guest::Guest;

/// Nothing is held, the module goes, and the kernel had nothing to complain of.
#[track_caller]
pub fn check(guest: &mut Guest) {
    // What the kernel holds for itself, such as the queue pair of management, stands in brackets.
    let held = "for kind in pd cq qp cm_id mr ctx srq; do rdma resource show $kind; done | grep -v 'comm \\['";
    assert_eq!(shell(guest, &format!("{held} || true")), "", "{}", guest.name());
    shell(guest, "rmmod rnic");
    assert_eq!(shell(guest, "ls /sys/class/infiniband"), "");
    let log = shell(guest, "dmesg");
    for word in ["WARNING:", "BUG:", "Oops", "Call Trace", "general protection", "rcu_sched", "unregister_netdevice"] {
        assert!(!log.contains(word), "{} in the kernel log of {}:\n{log}", word, guest.name());
    }
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
    guests.succeed("ibv_rc_pingpong -d rnic0 -g 1 -n 50 -c");
    guests.end();
}
