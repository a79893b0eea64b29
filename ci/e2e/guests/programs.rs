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
        "ib_read_bw -n 200",
        "ib_read_lat -n 100",
        "ib_atomic_bw -A FETCH_AND_ADD -n 100",
        "ib_atomic_lat -A CMP_AND_SWAP -n 100",
        "ib_send_bw -n 300",
        "ib_send_bw -n 200 -b -q 4",
        "ib_send_bw -n 200 -e",
        "ib_send_lat -n 100",
        "ib_send_lat -n 100 -e",
    ] {
        guests.succeed(&format!("{program} -F -d rnic0"));
    }
    guests.end();
}

pub fn what_the_device_lacks_is_refused_cleanly() {
    let (lab, fabric) = (lab(), Fabric::new());
    let mut guests = Guests::start(&lab, &fabric);
    for (program, sentence) in [
        ("ibv_uc_pingpong -d rnic0 -g 1", "Couldn't create QP"),
        ("ibv_ud_pingpong -d rnic0 -g 1", "Couldn't create QP"),
        ("ibv_srq_pingpong -d rnic0 -g 1", "Couldn't create SRQ"),
    ] {
        let (codes, printed) = guests.run(program);
        assert_ne!(codes[1], 0, "{program}");
        assert!(printed.iter().all(|text| text.contains(sentence)), "{program}: {printed:?}");
    }
    guests.end();
}
