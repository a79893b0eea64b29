//! QEMU, the guest image and the judges, provided once by the first step and found in the cache by all others.

use crate::tally;
use rnic_ci::guest::{Guest, GuestSpec};
use rnic_ci::tools::Tools;
use rnic_ci::{Lab, Options, StandardError};

pub fn lab() -> Lab {
    Lab::prepare(&Options::from_environment(), &mut StandardError).expect("QEMU, the guest's image and its snapshot")
}

pub fn tools() -> Tools {
    Tools::provide(&Options::from_environment(), &mut StandardError).expect("tshark, scapy and lspci")
}

/// The first step: everything that has to be fetched or built.
pub fn is_provided() {
    let lab = lab();
    println!("{}, kernel {}, {:?}", lab.qemu().identity(), lab.image().kernel_release, lab.acceleration());
    tools();
}

/// A guest with the adapter behind a socket, counted.
pub fn guest(lab: &Lab, spec: &GuestSpec) -> Guest {
    let guest = lab.guest(spec).expect("a guest");
    tally::guests_booted(1);
    guest
}
