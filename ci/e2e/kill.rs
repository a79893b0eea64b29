//! Sudden death: QEMU is killed in the middle of a transfer, and nothing but its own guest is the worse for it.

use crate::bench::agent::{self, Agent};
use crate::bench::fabric::Fabric;
use crate::bench::laboratory;
use crate::bench::processes::{Holdings, own_holdings};
use crate::bench::qtest;
use crate::bench::station::{Retries, Station};
use crate::bench::transaction::{Pair, over_socket};
use rnic_abi::CompletionStatus;
use rnic_ci::Lab;
use rnic_ci::guest::{GuestMemory, GuestSpec};
use rnic_pcie::Class;
use rnic_shim::transaction::{TransactionSpec, ipv4_gid};
use serde_json::json;
use std::time::{Duration, Instant};

/// 4.2 ms a timeout and three repeats: 17 ms, and at most four times that by the specification.
const RETRIES: Retries = Retries { timeout: 10, retry_cnt: 3 };
const RETRY_TIME: Duration = Duration::from_micros(4096 * 4 * 4);
/// What a busy machine may add to it.
const SLACK: Duration = Duration::from_millis(1000);
const LIMIT: Duration = Duration::from_secs(20);
const ROUNDS: usize = 20;
/// Memory that the allocator may keep, of what the first rounds have needed.
const SLACK_KIB: u64 = 4096;

/// Maps, files and clients of an adapter whose client has died.
fn left_behind(fabric: &Fabric, name: &str) -> (usize, usize, bool) {
    let look = fabric.adapter(name).call(|adapter| {
        let window = adapter.function.link.window();
        (window.map_count(), window.file_count(), adapter.is_attached())
    });
    look.expect("an answer")
}

fn wait_until_nothing_is_left(fabric: &Fabric, name: &str) {
    let until = Instant::now() + LIMIT;
    while left_behind(fabric, name) != (0, 0, false) {
        assert!(Instant::now() < until, "adapter {name}: {:?} is left", left_behind(fabric, name));
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn placed(fabric: &Fabric, name: &str) -> u64 {
    let count =
        fabric.adapter(name).call(|adapter| adapter.function.link.ledger().class(Class::PayloadWrite).crossings);
    count.expect("an answer")
}

/// Streams WRITEs at a machine that is killed meanwhile, and waits for the survivor's end.
fn kill_in_a_stream(lab: &Lab, fabric: &Fabric, round: usize) {
    let mut survivor = Station::open(over_socket(&fabric.socket("A")), ipv4_gid([10, 0, 0, 1]));
    let mut machine = qtest::start(lab, &format!("victim{round}"), &fabric.function("B"), GuestMemory::Shared);
    let mut victim = Station::open(machine.backing(), ipv4_gid([10, 0, 0, 2]));
    let (own, peer) = (survivor.create_queue_pair(), victim.create_queue_pair());
    survivor.connect(&own, &peer, RETRIES);
    victim.connect(&peer, &own, RETRIES);
    let before = placed(fabric, "B");
    let mut outstanding = 0;
    let mut killed = None;
    loop {
        while outstanding < 16 && survivor.write(&own, &peer, 1 << 20, None).is_ok() {
            outstanding += 1;
        }
        if killed.is_none() && placed(fabric, "B") > before + 2000 {
            machine.qemu.running().kill();
            killed = Some(Instant::now());
        }
        let done = survivor.completion(LIMIT);
        outstanding -= 1;
        if done.status() != CompletionStatus::SUCCESS {
            assert_eq!(done.status(), CompletionStatus::RETRY_EXC_ERR, "round {round}: {done:?}");
            break;
        }
        assert!(killed.is_none_or(|killed| killed.elapsed() < RETRY_TIME + SLACK), "round {round}: it goes on");
    }
    let elapsed = killed.expect("the stream ends because of the kill").elapsed();
    assert!(elapsed < RETRY_TIME + SLACK, "round {round}: the survivor ended after {elapsed:?}");
    // What was behind the failed request is flushed, each once.
    while outstanding > 0 {
        assert_eq!(survivor.completion(LIMIT).status(), CompletionStatus::WR_FLUSH_ERR, "round {round}");
        outstanding -= 1;
    }
    wait_until_nothing_is_left(fabric, "B");
}

/// A new machine on the freed socket, and one operation with the survivor's host.
fn a_new_machine_passes(lab: &Lab, fabric: &Fabric, round: usize) {
    let heir = qtest::start(lab, &format!("heir{round}"), &fabric.function("B"), GuestMemory::Shared);
    let spec = TransactionSpec { timeout: 18, seed: round as u64, ..TransactionSpec::default() };
    Pair::bring_up([over_socket(&fabric.socket("A")), heir.backing()], &spec).run();
}

fn holdings(fabric: &Fabric) -> Holdings {
    wait_until_nothing_is_left(fabric, "A");
    wait_until_nothing_is_left(fabric, "B");
    own_holdings()
}

pub fn a_killed_machine_takes_nothing_with_it_twenty_times() {
    let lab = laboratory::lab();
    let fabric = Fabric::new();
    let round = |round| {
        kill_in_a_stream(&lab, &fabric, round);
        a_new_machine_passes(&lab, &fabric, round);
        holdings(&fabric)
    };
    // The first rounds load what later ones find.
    let before = [round(0), round(1)][1];
    let mut after = before;
    for number in 2..2 + ROUNDS {
        after = round(number);
        assert_eq!(
            (after.descriptors, after.file_mappings),
            (before.descriptors, before.file_mappings),
            "round {number}: {before:?} before, {after:?} after"
        );
    }
    assert!(after.resident_kib < before.resident_kib + SLACK_KIB, "{before:?} before, {after:?} after");
    println!("{before:?} before, {after:?} after {ROUNDS} rounds");
}

/// The same with guests: one writes 8 MiB in small packets while the other's QEMU dies, then to a third in its place.
pub fn a_killed_guest_takes_nothing_with_it() {
    const ROUNDS: usize = 3;
    const BYTES_PER_SECOND: u64 = 40_000_000;
    let lab = laboratory::lab();
    let fabric = Fabric::new();
    let survivor = Agent::start(&lab, &GuestSpec::new("survivor", &fabric.socket("A")));
    let story = TransactionSpec { timeout: 18, ..TransactionSpec::default() };
    let long = TransactionSpec {
        length_bytes: 8 << 20,
        path_mtu_bytes: 256,
        timeout: RETRIES.timeout,
        retry_cnt: RETRIES.retry_cnt,
        ..story.clone()
    };
    for round in 0..ROUNDS {
        let mut victim = Agent::start(&lab, &GuestSpec::new("victim", &fabric.socket("B")));
        agent::bring_up(&survivor, &victim, &long);
        // Held to a rate, so that 8 MiB are on their way for a while.
        let requester_qpn = long.requester_qpn;
        let limited = fabric.adapter("A").call(move |adapter| {
            adapter.function.engine.set_rate_limit(requester_qpn, Some(BYTES_PER_SECOND));
        });
        limited.expect("an answer");
        let before = placed(&fabric, "B");
        let post = json!({ "order": "post" });
        survivor.say(&post);
        while placed(&fabric, "B") < before + 100 {
            std::thread::yield_now();
        }
        victim.guest.kill();
        let killed = Instant::now();
        survivor.hear(&post);
        survivor.step("wait");
        assert!(killed.elapsed() < RETRY_TIME + SLACK, "round {round}: {:?}", killed.elapsed());
        assert!(placed(&fabric, "B") < before + 32768, "round {round}: the message was whole before the kill");
        let status = &survivor.step("report")["completion"]["status_name"];
        assert_eq!(status, "RETRY_EXC_ERR", "round {round}");
        wait_until_nothing_is_left(&fabric, "B");
        drop(victim);
        let heir = Agent::start(&lab, &GuestSpec::new("heir", &fabric.socket("B")));
        agent::bring_up(&survivor, &heir, &story);
        agent::operate(&survivor, &heir);
        drop(heir);
        wait_until_nothing_is_left(&fabric, "B");
    }
}
