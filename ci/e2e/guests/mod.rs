//! Stock RDMA programs in Debian guests with our kernel module and our rdma-core provider.
//!
//! Each step restores its guests from a snapshot that has the module loaded, and plugs in both functions of their
//! adapters: the RNIC, and the Ethernet function, which is the network device of its port. [`pair`] has the guests,
//! [`programs`] runs programs between them, [`peers`] does so with Linux' rdma_rxe at one end, [`pyverbs`] rdma-core's own tests in one, [`matrix`] is what ordinary runs leave out, [`endings`] takes the device away
//! from them, [`held`] looks at what device and kernel hold then, and [`faults`] at what
//! a kernel has found that looks for faults.

mod counters;
mod endings;
mod faults;
mod held;
pub mod matrix;
mod pair;
mod peers;
mod programs;
mod pyverbs;
mod reload;

use crate::bench::fabric::Fabric;
use rnic_ci::guest::Guest;
use rnic_ci::{GuestKernel, Lab, Options, StandardError};
use std::time::Duration;

pub use counters::{
    a_thousand_writes_cross_as_the_model_says_and_rdma_statistic_agrees,
    atomic_writes_and_flushes_reach_the_other_guest,
};
pub use endings::{
    a_guest_that_reboots_under_load_harms_nobody_else, a_killed_program_leaves_nothing,
    a_machine_that_is_killed_under_load_harms_nobody_else, the_module_survives_unbinding_resets_and_removal_in_use,
    wrong_keys_sizes_states_and_flags_are_refused_by_every_verb,
};
pub use faults::{patience, planted_faults_are_found};
pub use peers::take_rxe;
pub use peers::{it_is_many_times_as_fast_as_linux_rxe, linux_rxe_is_the_other_end_both_ways};
pub use programs::{other_kinds_of_queues_run_or_are_refused_cleanly, stock_programs_run_between_two_guests};
pub use pyverbs::{lab as pyverbs_lab, rdma_cores_own_tests_pass, the_provider_for_the_newer_rdma_core_works};
pub use reload::a_changed_module_soon_has_a_fresh_adapter;

/// What a command takes at most.
fn limit() -> Duration {
    Duration::from_secs(60) * patience()
}

fn lab() -> Lab {
    Lab::prepare_rdma(&options(), &mut StandardError).expect("the RDMA guest image and its snapshot")
}

/// Other kernels run the same steps: `RNIC_GUEST_KERNEL=7.3`, or `6.12-debug`.
fn options() -> Options {
    let kernel = std::env::var("RNIC_GUEST_KERNEL").ok();
    let kernel = kernel.map_or_else(GuestKernel::default, |text| text.parse().expect("RNIC_GUEST_KERNEL"));
    Options { kernel, ..Options::from_environment() }
}

/// What every step that follows finds in the cache: packages fetched, module, provider and image built.
pub fn the_rdma_image_is_provided() {
    println!("kernel {}", lab().image().kernel_release);
}

/// The same with rdma-core's tests in it.
pub fn the_image_with_rdma_cores_tests_is_provided() {
    println!("memory {} MiB", pyverbs::lab().image().memory_mib);
}

/// A module that posts, polls and is woken inside the kernel, between two queue pairs of one device: messages, memory that
/// work requests register, events that are held back.
pub fn users_inside_the_kernel_are_served() {
    let (lab, fabric) = (lab(), Fabric::new());
    let mut guest = pair::start(&lab, "A", 1, fabric.functions("A"));
    shell(&mut guest, "modprobe rnic_kernel_user || { dmesg | tail -n 30; false; }");
    let log = shell(&mut guest, "dmesg");
    for sentence in [
        "rounds of messages were right",
        "rounds of fast registration were right",
        "events of a moderated queue were right",
    ] {
        assert!(log.contains(sentence), "{sentence}: {log}");
    }
    shell(&mut guest, "rmmod rnic_kernel_user");
    endings::check(&fabric, &mut guest);
}

/// Runs a command that succeeds, and gives what it printed.
#[track_caller]
fn shell(guest: &mut Guest, command: &str) -> String {
    let (code, output) = guest.shell(command, limit()).unwrap_or_else(|error| panic!("{command}: {error}"));
    let text = String::from_utf8_lossy(&output).trim().to_owned();
    assert_eq!(code, 0, "{} in {}: {text}", command, guest.name());
    text
}
