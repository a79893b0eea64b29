//! Two senders and one line: with congestion control each gets its half, whoever was first, and little stands in the queue.

use rnic_engine::CongestionConfig;
use rnic_simulation::incast::{Case, Incast, LINE_BITS_PER_SECOND, measure};

const MS: u64 = 1_000_000;

fn two_senders(ecn: bool) -> Incast {
    let line_bits_per_second = LINE_BITS_PER_SECOND;
    let congestion = CongestionConfig { ecn, line_bits_per_second, ..CongestionConfig::default() };
    // The second one comes when the first has the line to itself.
    let case = Case { congestion, starts_ns: vec![0, 5 * MS], from_ns: 40 * MS, until_ns: 80 * MS };
    let found = measure(&case).expect("a measurement");
    println!("ECN {ecn}: {found:?}");
    found
}

#[test]
fn two_senders_share_a_line_and_its_queue_stays_short() {
    let (with, without) = (two_senders(true), two_senders(false));
    let sum: f64 = with.shares.iter().sum();
    assert!(with.shares.iter().all(|share| (0.35..=0.65).contains(share)), "{:?}", with.shares);
    assert!(sum > 0.85, "{sum} of the line are used");
    assert!(with.notified > 0 && with.notified <= with.marked);
    assert!(with.queue_bytes < without.queue_bytes / 4.0, "{} and {}", with.queue_bytes, without.queue_bytes);
    assert_eq!((without.marked, without.notified), (0, 0), "what may not be marked is not");
}
