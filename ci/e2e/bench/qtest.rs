//! Unmodified QEMU with an adapter and no running guest, driven over qtest.

use rnic_ci::Lab;
use rnic_ci::guest::machine::adapter_device;
use rnic_ci::guest::{AdapterFunction, GuestMemory};
use rnic_ci::qemu::qtest::QtestMachine;
use rnic_ci::qemu::trace::{EVENTS, Trace};
use rnic_shim::backing::Backing;
use rnic_shim::backings::qtest::{Qtest, QtestOptions};
use std::ffi::OsString;

/// RAM of the machine: what [`QtestOptions`] takes lies below.
const MEMORY: &str = "128M";

/// A machine with one adapter behind its root port.
pub struct Machine {
    pub qemu: QtestMachine,
    pub trace: Trace,
}

/// How a machine is started: [`start`] waits until it runs.
pub fn arguments(function: &AdapterFunction, memory: GuestMemory) -> Vec<OsString> {
    let backend = match memory {
        GuestMemory::Shared => format!("memory-backend-memfd,id=m0,size={MEMORY},share=on"),
        GuestMemory::PrivateDescriptor => format!("memory-backend-memfd,id=m0,size={MEMORY},share=off"),
        GuestMemory::Messages => format!("memory-backend-ram,id=m0,size={MEMORY}"),
    };
    let device = adapter_device(0, function, 1).to_string();
    [
        "-machine",
        "q35,memory-backend=m0",
        "-m",
        MEMORY,
        "-object",
        &backend,
        "-device",
        "pcie-root-port,id=rp0,bus=pcie.0,addr=0x4,chassis=1,slot=1",
        "-device",
        &device,
    ]
    .map(OsString::from)
    .to_vec()
}

pub fn start(lab: &Lab, name: &str, function: &AdapterFunction, memory: GuestMemory) -> Machine {
    try_start(lab, name, function, memory).expect("a machine under qtest")
}

pub fn try_start(lab: &Lab, name: &str, function: &AdapterFunction, memory: GuestMemory) -> rnic_ci::Result<Machine> {
    let trace = Trace::prepare(lab.run_folder().logs(), name, EVENTS)?;
    let mut arguments = arguments(function, memory);
    arguments.extend(trace.arguments().iter().map(OsString::from));
    let qemu = lab.qemu().start_qtest(name, lab.run_folder(), &arguments)?;
    Ok(Machine { qemu, trace })
}

impl Machine {
    /// Enumerates the machine's buses and gives a driver's way to the adapter.
    pub fn backing(&self) -> Box<dyn Backing> {
        let stream = self.qemu.stream().expect("a second handle on qtest");
        Box::new(Qtest::open(stream, QtestOptions::default()).expect("the adapter behind its root port"))
    }
}
