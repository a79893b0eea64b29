//! An adapter with nothing to do.

use crate::bench::agent::{self, Agent};
use crate::bench::laboratory;
use crate::bench::processes::processor_time;
use crate::bench::serving::Serving;
use rnic_ci::guest::GuestSpec;
use rnic_shim::transaction::TransactionSpec;
use std::time::{Duration, Instant};

const WATCHED: Duration = Duration::from_secs(5);

#[track_caller]
fn assert_idle(serving: &Serving, what: &str) {
    // What was still under way is over.
    std::thread::sleep(Duration::from_secs(1));
    let (start, before) = (Instant::now(), processor_time(serving.id()));
    std::thread::sleep(WATCHED);
    let share = (processor_time(serving.id()) - before).as_secs_f64() / start.elapsed().as_secs_f64();
    println!("{what}: {:.2} % of a core", 100.0 * share);
    assert!(share < 0.01, "{what}: {:.2} % of a core", 100.0 * share);
}

/// Two adapters under `rnic serve`, whose process does nothing else: guests booted, then with queues that are up.
pub fn an_idle_adapter_takes_less_than_a_hundredth_of_a_core() {
    let lab = laboratory::lab();
    let serving = Serving::start("A B");
    let [a, b] = ["A", "B"].map(|name| laboratory::guest(&lab, &GuestSpec::new(name, &serving.socket(name))));
    assert_idle(&serving, "two booted guests");
    let (a, b) = (Agent::run_in(a), Agent::run_in(b));
    agent::bring_up(&a, &b, &TransactionSpec { timeout: 18, ..TransactionSpec::default() });
    agent::operate(&a, &b);
    assert_idle(&serving, "connected queue pairs");
}
