//! Linux' own software device, rdma_rxe, on a guest's Ethernet function: as the other end, and as the measure.

use super::pair::Guests;
use super::{lab, shell};
use crate::bench::fabric::Fabric;
use rnic_ci::guest::Guest;

/// How many times the bandwidth, and what part of the latency, the best of five has to be: far from what an idle machine shows,
/// since on a busy one both wait for processors, and that is what is measured then; a median of five may be a wait for a
/// processor on one side and none on the other. docs/guests.md has numbers, which are medians.
const BANDWIDTH_RATIO: f64 = 3.0;
const LATENCY_RATIO: f64 = 1.0;

/// Our driver goes, and Linux' device takes its place: the Ethernet function is the guest's only way to the switch.
pub fn take_rxe(guest: &mut Guest) {
    // The kernel would load the checksum by a program that it looks for elsewhere; newer ones have it built in.
    shell(
        guest,
        "rmmod rnic; for part in crc32-pclmul crc32_generic; do modprobe $part 2>/dev/null; done; modprobe rdma_rxe",
    );
    shell(guest, "rdma link add rxe0 type rxe netdev eth0");
    shell(guest, "until grep -q :0a00:00 /sys/class/infiniband/rxe0/ports/1/gids/1; do usleep 20000; done");
}

fn take_rnic(guest: &mut Guest) {
    shell(guest, "rdma link delete rxe0 && rmmod rdma_rxe && modprobe rnic");
}

pub fn linux_rxe_is_the_other_end_both_ways() {
    let (lab, fabric) = (lab(), Fabric::new());
    let mut guests = Guests::start(&lab, &fabric);
    take_rxe(&mut guests.client);
    for (server, client, address) in [("rnic0", "rxe0", "10.0.0.1"), ("rxe0", "rnic0", "10.0.0.2")] {
        // With -c the receivers look at every byte. perftest asks for as many outstanding READs as the server can, which is
        // more than we can: -o.
        for program in [
            "ibv_rc_pingpong -g 1 -n 50 -c",
            "ibv_rc_pingpong -g 1 -n 20 -c -m 4096 -s 20000",
            "ibv_uc_pingpong -g 1 -n 50 -c",
            "ibv_ud_pingpong -g 1 -n 50 -c",
            "ibv_srq_pingpong -g 1 -n 50 -c",
            "ib_write_bw -F -n 50",
            "ib_read_bw -F -n 50 -o 16",
            "ib_send_bw -F -n 50",
            "ib_atomic_bw -F -A FETCH_AND_ADD -n 50 -o 16",
            "ib_write_lat -F -n 50",
        ] {
            guests.succeed_with(&format!("{program} -d {server}"), &format!("{program} -d {client} {address}"));
        }
        guests.connect(&format!("rping -s -a {address} -C 5 -v"), &format!("rping -c -a {address} -C 5 -v"));
        crate::tally::rxe_peer();
        std::mem::swap(&mut guests.server, &mut guests.client);
    }
    take_rnic(&mut guests.client);
    guests.end();
}

/// A column of perftest's last line.
fn column(output: &str, number: usize) -> f64 {
    let line = output.lines().rfind(|line| line.trim_start().starts_with(|letter: char| letter.is_ascii_digit()));
    let value = line.and_then(|line| line.split_whitespace().nth(number)?.parse().ok());
    value.unwrap_or_else(|| panic!("no column {number} in\n{output}"))
}

/// Of five values, sorted.
struct Measured {
    /// Of 64 KiB writes, in MiB/s.
    bandwidth: [f64; 5],
    /// Typical ones of 2 bytes, in microseconds.
    latency: [f64; 5],
}

fn measure(guests: &mut Guests, device: &str) -> Measured {
    let mut five = |program: &str, number: usize| {
        let program = format!("{program} -F -d {device}");
        let mut values = [(); 5].map(|()| column(&guests.succeed(&program), number));
        values.sort_by(f64::total_cmp);
        values
    };
    Measured { bandwidth: five("ib_write_bw -s 65536 -n 200", 3), latency: five("ib_write_lat -s 2 -n 200", 4) }
}

pub fn it_is_many_times_as_fast_as_linux_rxe() {
    let (lab, fabric) = (lab(), Fabric::new());
    let mut guests = Guests::start(&lab, &fabric);
    let ours = measure(&mut guests, "rnic0");
    [&mut guests.server, &mut guests.client].into_iter().for_each(take_rxe);
    let theirs = measure(&mut guests, "rxe0");
    [&mut guests.server, &mut guests.client].into_iter().for_each(take_rnic);
    guests.end();
    let (our, their) = (ours.bandwidth[2], theirs.bandwidth[2]);
    println!("ib_write_bw {our:.0} and {their:.0} MiB/s, {:.0} times", our / their);
    let (our, their) = (ours.latency[2], theirs.latency[2]);
    println!("ib_write_lat {our:.0} and {their:.0} us, 1/{:.1}", their / our);
    let (bandwidth, latency) = (ours.bandwidth[4] / theirs.bandwidth[4], ours.latency[0] / theirs.latency[0]);
    assert!(
        bandwidth >= BANDWIDTH_RATIO && latency <= LATENCY_RATIO,
        "{bandwidth} times the bandwidth, {latency} of the latency"
    );
}
