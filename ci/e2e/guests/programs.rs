//! The programs that RDMA people use every day, unchanged.

use super::pair::Guests;
use super::{lab, shell};
use crate::bench::fabric::Fabric;

pub fn stock_programs_run_between_two_guests() {
    let (lab, fabric) = (lab(), Fabric::new());
    let mut guests = Guests::start(&lab, &fabric);
    let told = shell(&mut guests.client, "ibv_devinfo -v -d rnic0");
    for sentence in
        ["vendor_id:\t\t\t0x1234", "PORT_ACTIVE", "active_mtu:\t\t4096", "link_layer:\t\tEthernet", "GID[  1]"]
    {
        assert!(told.contains(sentence), "no {sentence:?} in\n{told}");
    }
    // With -c the receivers look at every byte.
    guests.succeed("ibv_rc_pingpong -d rnic0 -g 1 -n 200 -c");
    guests.succeed("ibv_rc_pingpong -d rnic0 -g 1 -n 200 -c -e");
    for program in [
        "ib_write_bw -n 500",
        "ib_write_bw -a -n 20",
        "ib_write_lat -n 100",
        "ib_write_lat -n 50 -I 128 -s 100",
        "ib_write_bw -n 100 -b -q 8 -s 4096",
        "ib_read_bw -n 200",
        "ib_read_bw -n 100 -b -q 4 -s 8192",
        "ib_read_lat -n 100",
        "ib_atomic_bw -A FETCH_AND_ADD -n 100",
        "ib_atomic_lat -A CMP_AND_SWAP -n 100",
        "ib_send_bw -n 300",
        "ib_send_bw -a -n 10",
        "ib_send_bw -n 200 -b -q 4",
        "ib_send_bw -n 200 -e",
        "ib_send_lat -n 100",
        "ib_send_lat -n 100 -e",
    ] {
        guests.succeed(&format!("{program} -F -d rnic0"));
    }
    guests.end();
}

/// Whether a limit that `ibv_devinfo -v` prints is more than zero: the device has what it limits.
#[track_caller]
fn has(told: &str, limit: &str) -> bool {
    let line =
        told.lines().find_map(|line| line.trim().strip_prefix(limit)).unwrap_or_else(|| panic!("{limit}: {told}"));
    line.trim().parse::<u64>().expect("a number") > 0
}

/// What the device says that it has works; what it has not is refused before anything is sent.
pub fn other_kinds_of_queues_run_or_are_refused_cleanly() {
    let (lab, fabric) = (lab(), Fabric::new());
    let mut guests = Guests::start(&lab, &fabric);
    let told = shell(&mut guests.client, "ibv_devinfo -v -d rnic0");
    for (program, limit, refusal) in [
        ("ibv_uc_pingpong -d rnic0 -g 1 -n 100 -c", "max_ah:", "Couldn't create QP"),
        ("ibv_ud_pingpong -d rnic0 -g 1 -n 100 -c", "max_ah:", "Couldn't create QP"),
        ("ibv_srq_pingpong -d rnic0 -g 1 -n 100 -q 4 -c", "max_srq:", "Couldn't create SRQ"),
        ("ibv_xsrq_pingpong -d rnic0 -g 1 -n 100", "max_srq:", "Couldn't create"),
        ("ibv_xsrq_pingpong -d rnic0 -g 1 -n 100 -e", "max_srq:", "Couldn't create"),
    ] {
        if has(&told, limit) {
            guests.succeed(program);
            continue;
        }
        let (codes, printed) = guests.run(program);
        assert_eq!(codes, [1, 1], "{program}: {printed:?}");
        assert!(printed[1].contains(refusal), "{program}: {printed:?}");
    }
    if has(&told, "max_srq:") {
        assert_eq!(shell(&mut guests.client, "rnic_verbs_user -d rnic0 -o 2>&1"), "a target was opened twice");
        for program in [
            "ib_send_bw -c XRC -n 200",
            "ib_send_bw -c XRC -n 50 -q 4 -b -s 4096",
            "ib_send_lat -c XRC -n 100 -e",
            "ib_write_bw -c XRC -n 200",
            "ib_read_bw -c XRC -n 100",
            "ib_atomic_bw -c XRC -A CMP_AND_SWAP -n 100",
            "ib_write_lat -c XRC -n 100 -I 128 -s 100",
        ] {
            guests.succeed(&format!("{program} -F -d rnic0"));
        }
    }
    if has(&told, "max_ah:") {
        for program in ["ib_send_bw -c UD -n 100", "ib_send_lat -c UD -n 50", "ib_write_bw -c UC -n 100"] {
            guests.succeed(&format!("{program} -F -d rnic0"));
        }
        // Management datagrams are there, and with them connections by address.
        guests.connect("rping -s -a 10.0.0.1 -C 5 -v", "rping -c -a 10.0.0.1 -C 5 -v");
        guests.connect("ucmatose", "ucmatose -s 10.0.0.1");
        guests.connect("udaddy", "udaddy -s 10.0.0.1");
        guests.connect("ib_write_bw -R -F -n 100 -d rnic0", "ib_write_bw -R -F -n 100 -d rnic0 10.0.0.1");
    }
    guests.end();
}
