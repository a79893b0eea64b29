//! What a Linux guest sees of the device, judged by lspci; its resets, and its reboot.

use crate::bench::agent::Agent;
use crate::bench::fabric::Fabric;
use crate::bench::transaction::over_socket;
use crate::bench::{judges, laboratory};
use rnic_ci::guest::{Guest, GuestSpec};
use rnic_shim::backing::Backing;
use rnic_shim::transaction::{Role, Side, TransactionSpec};
use serde_json::json;
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(30);
const DEVICE: &str = "/sys/bus/pci/devices/0000:01:00.0";

#[track_caller]
fn shell(guest: &mut Guest, command: &str) -> String {
    let (code, output) = guest.shell(command, LIMIT).expect("the guest's shell");
    let text = String::from_utf8_lossy(&output).trim().to_owned();
    assert_eq!(code, 0, "{command}: {text}");
    text
}

/// Its configuration space, decoded by lspci on this side.
fn lspci(guest: &mut Guest, folder: &Path) -> String {
    // Sixteen bytes a line behind their offset, as `lspci -xxxx` prints them.
    let bytes = shell(guest, &format!("od -An -v -tx1 -w16 {DEVICE}/config"));
    let mut dump = String::from("01:00.0 Network controller\n");
    for (line, offset) in bytes.lines().zip((0..).step_by(16)) {
        dump += &format!("{offset:02x}: {}\n", line.trim());
    }
    let path = folder.join("config");
    std::fs::write(&path, dump + "\n").expect("written");
    judges::lspci(&laboratory::tools(), &path)
}

pub fn lspci_in_a_guest_shows_a_sane_pcie_device() {
    let lab = laboratory::lab();
    let fabric = Fabric::new();
    let folder = tempfile::tempdir().expect("a folder");
    for cold_boot in [false, true] {
        let spec = GuestSpec { cold_boot, ..GuestSpec::new("sane", &fabric.socket("A")) };
        let mut guest = laboratory::guest(&lab, &spec);
        let text = lspci(&mut guest, folder.path());
        println!("{text}");
        for sentence in [
            "[0207]",
            "[1234:12b7]",
            "Memory at ",
            "(64-bit, prefetchable)",
            "Power Management version 3",
            "MSI-X: ",
            "Count=32",
            "Vector table: BAR=4",
            "Express (v2) Endpoint",
            "FLReset+",
            "LnkSta:\tSpeed 8GT/s",
            "Width x16",
            "Device Serial Number",
        ] {
            assert!(text.contains(sentence), "cold boot {cold_boot}: no {sentence:?} in\n{text}");
        }
        for sentence in ["<access denied>", "Capabilities: <", "Unknown header", "!!!"] {
            assert!(!text.contains(sentence), "cold boot {cold_boot}: {sentence:?} in\n{text}");
        }
        let size = |guest: &mut Guest, bar: usize| {
            let resources = shell(guest, &format!("cat {DEVICE}/resource"));
            let line = resources.lines().nth(bar).expect("a BAR").to_owned();
            let numbers: Vec<_> =
                line.split_whitespace().map(|word| u64::from_str_radix(&word[2..], 16).expect("hex")).collect();
            numbers[1] - numbers[0] + 1
        };
        assert_eq!((size(&mut guest, 0), size(&mut guest, 2)), (0x1_0000, 4 << 20));
        let kernel_says = shell(&mut guest, "dmesg");
        assert!(kernel_says.contains("[1234:12b7]"), "the kernel has seen the device:\n{kernel_says}");
        assert!(kernel_says.lines().all(|line| !line.contains("BAR") || !line.contains("failed")), "{kernel_says}");
    }
}

/// One WRITE_IMM from a host beside the guest's to the guest.
fn operate_towards(fabric: &Fabric, guest: Guest) -> Guest {
    let agent = Agent::run_in(guest);
    let spec = TransactionSpec { timeout: 18, ..TransactionSpec::default() };
    let backing: Box<dyn Backing> = over_socket(&fabric.socket("B"));
    let mut peer = Side::open(backing, spec.clone(), Role::Requester).expect("B opens");
    let own = peer.bring_up().expect("B's queues");
    let opened = agent.open(&spec, Role::Responder);
    agent.connect(&json!(own));
    peer.connect(serde_json::from_value(opened).expect("an endpoint")).expect("B connects");
    peer.post().expect("posted");
    peer.wait().expect("B's completion");
    agent.step("wait");
    assert_eq!(agent.step("verify")["faults"], json!([]));
    agent.guest
}

pub fn a_function_level_reset_by_the_guest_resets_the_device() {
    let lab = laboratory::lab();
    let fabric = Fabric::new();
    let mut guest = laboratory::guest(&lab, &GuestSpec::new("reset", &fabric.socket("A")));
    assert!(shell(&mut guest, &format!("cat {DEVICE}/reset_method")).contains("flr"));
    let before = fabric.resets("A");
    let bars = format!("cat {DEVICE}/resource");
    let placed = shell(&mut guest, &bars);
    shell(&mut guest, &format!("echo 1 > {DEVICE}/reset"));
    assert!(fabric.resets("A") > before, "the reset has arrived");
    assert_eq!(shell(&mut guest, &bars), placed);
    operate_towards(&fabric, guest);
}

pub fn a_guest_reboots_with_its_adapter() {
    let lab = laboratory::lab();
    let fabric = Fabric::new();
    let spec = GuestSpec { cold_boot: true, ..GuestSpec::new("reboot", &fabric.socket("A")) };
    let mut guest = laboratory::guest(&lab, &spec);
    let before = fabric.resets("A");
    guest.reboot(Duration::from_secs(60)).expect("the guest comes back");
    crate::tally::guests_booted(1);
    assert!(fabric.resets("A") > before, "the machine's reset has arrived");
    assert_eq!(shell(&mut guest, &format!("cat {DEVICE}/vendor {DEVICE}/device")), "0x1234\n0x12b7");
    assert!(fabric.is_attached("A"));
    operate_towards(&fabric, guest);
}
