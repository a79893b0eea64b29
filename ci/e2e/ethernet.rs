//! The Ethernet function under a stock kernel: virtio_net binds it, and guests reach each other over the switch.

use crate::bench::fabric::Fabric;
use crate::bench::laboratory;
use crate::tally;
use rnic_ci::Lab;
use rnic_ci::deadline::Deadline;
use rnic_ci::guest::{AdapterFunction, Guest, GuestMemory, GuestSpec};
use rnic_device::function::ethernet::EthernetCounters;
use rnic_device::server::mac_of;
use rnic_pcie::Class;
use serde_json::json;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(30);
const TRANSFER_LIMIT: Duration = Duration::from_secs(90);
/// Where function 1 of the adapter is, and where a function that is alone.
const SECOND: &str = "0000:01:00.1";
const ALONE: &str = "0000:01:00.0";

#[track_caller]
fn shell_within(guest: &mut Guest, command: &str, limit: Duration) -> String {
    let (code, output) = guest.shell(command, limit).unwrap_or_else(|error| panic!("{command}: {error}"));
    let text = String::from_utf8_lossy(&output).trim().to_owned();
    assert_eq!(code, 0, "{}: {command}: {text}", guest.name());
    text
}

#[track_caller]
fn shell(guest: &mut Guest, command: &str) -> String {
    shell_within(guest, command, LIMIT)
}

fn ethernet(fabric: &Fabric, adapter: &str) -> AdapterFunction {
    AdapterFunction::new(fabric.adapter(adapter).ethernet_socket())
}

/// A guest with both functions of an adapter.
fn both(fabric: &Fabric, adapter: &str) -> GuestSpec {
    GuestSpec { adapter: fabric.functions(adapter), ..GuestSpec::without_adapter(adapter) }
}

/// A guest whose adapter has only the Ethernet function.
fn alone(fabric: &Fabric, adapter: &str) -> GuestSpec {
    GuestSpec { adapter: vec![ethernet(fabric, adapter)], ..GuestSpec::without_adapter(adapter) }
}

/// The name of the network interface that the kernel has made of a PCI function.
#[track_caller]
fn interface(guest: &mut Guest, function: &str) -> String {
    let folder = format!("/sys/bus/pci/devices/{function}");
    let wait =
        format!("for i in $(seq 500); do set -- {folder}/virtio*/net/*; [ -e $1/mtu ] && break; sleep 0.01; done");
    shell(guest, &format!("{wait}; basename $1"))
}

/// Gives the interface an address and brings it up.
#[track_caller]
fn up(guest: &mut Guest, function: &str, address: &str) -> String {
    let name = interface(guest, function);
    shell(guest, &format!("ip addr add {address}/24 dev {name} && ip link set {name} up"));
    name
}

/// Two guests with addresses 10.0.0.1 and 10.0.0.2.
struct Two {
    fabric: Fabric,
    a: Guest,
    b: Guest,
}

impl Two {
    fn start(lab: &Lab, memory: GuestMemory) -> Two {
        let fabric = Fabric::new();
        let mut a = laboratory::guest(lab, &GuestSpec { memory, ..both(&fabric, "A") });
        let mut b = laboratory::guest(lab, &GuestSpec { memory, ..both(&fabric, "B") });
        up(&mut a, SECOND, "10.0.0.1");
        up(&mut b, SECOND, "10.0.0.2");
        Two { fabric, a, b }
    }
}

#[track_caller]
fn counters(fabric: &Fabric, name: &str) -> EthernetCounters {
    fabric.adapter(name).call(|adapter| *adapter.ethernet.device.counters()).expect("an answer")
}

/// Nothing but the Ethernet function's classes crossed its link, and nothing failed.
#[track_caller]
fn assert_only_net(fabric: &Fabric, name: &str) {
    let ledger = fabric.adapter(name).call(|adapter| adapter.ethernet.link.ledger().snapshot()).expect("an answer");
    for (class, totals) in ledger.classes().filter(|(_, totals)| totals.crossings > 0) {
        assert!(class.name().starts_with("net_"), "{name}: {} {totals:?}", class.name());
        assert_eq!(totals.faults, 0, "{name}: {}", class.name());
    }
    let counters = counters(fabric, name);
    assert_eq!((counters.faults, counters.refused_accesses, counters.transmit_dropped), (0, 0, 0), "{counters:?}");
    let payload = ledger.class(Class::NetPayloadWrite).crossings;
    assert_eq!(payload, counters.received_frames + counters.commands, "{name}: a crossing a frame and an answer");
}

/// Sends so many random bytes over TCP, and compares what the two guests make of them.
#[track_caller]
fn transfer(from: &mut Guest, to: &mut Guest, address: &str, mebibytes: u32) {
    let make = format!("dd if=/dev/urandom of=/tmp/data bs=1M count={mebibytes} status=none; sha256sum </tmp/data");
    let sent = shell_within(from, &make, TRANSFER_LIMIT);
    to.run("nc -l -p 5000 | sha256sum").expect("a listener");
    let begin = Instant::now();
    // The listener may not be there at once.
    let send = format!("for i in $(seq 50); do nc {address} 5000 </tmp/data && exit 0; sleep 0.1; done; exit 1");
    shell_within(from, &send, TRANSFER_LIMIT);
    let deadline = Deadline::new(format!("{} has received everything", to.name()), TRANSFER_LIMIT);
    let received = to.exchange().receive_line(200, &deadline).expect("a checksum");
    println!("{mebibytes} MiB from {} to {} in {:.1?}", from.name(), to.name(), begin.elapsed());
    assert_eq!(to.wait_exit(LIMIT).expect("the listener ends"), 0);
    assert_eq!(received.trim(), sent);
}

pub fn two_guests_reach_each_other() {
    let lab = laboratory::lab();
    let Two { fabric, mut a, mut b } = Two::start(&lab, GuestMemory::Shared);
    let name = interface(&mut a, SECOND);
    let mac = |adapter: &str| mac_of(adapter).map(|byte| format!("{byte:02x}")).join(":");
    let attributes = shell(&mut a, &format!("cd /sys/class/net/{name}; cat address mtu carrier operstate"));
    assert_eq!(attributes, format!("{}\n9000\n1\nup", mac("A")));
    println!("{}", shell(&mut a, "ping -c 3 -i 0.2 10.0.0.2"));
    assert!(shell(&mut a, "arp -n 10.0.0.2").contains(&mac("B")), "ARP has found the peer");
    shell(&mut b, "ping -c 3 -i 0.2 10.0.0.1");
    // As much as a frame holds: Ethernet, IP and ICMP headers and 8972 bytes, in one piece each way.
    let before = ["A", "B"].map(|name| counters(&fabric, name));
    shell(&mut a, "ping -c 5 -i 0.2 -s 8972 10.0.0.2");
    let after = ["A", "B"].map(|name| counters(&fabric, name));
    for (before, after) in before.iter().zip(&after) {
        let frames = after.transmitted_frames - before.transmitted_frames;
        let bytes = after.transmitted_bytes - before.transmitted_bytes;
        assert!((5..=9).contains(&frames) && bytes >= 5 * 9014, "{frames} frames, {bytes} bytes");
        assert!(bytes < 5 * 9014 + 4 * 100, "{bytes} bytes: only ARP beside the five");
    }
    // The driver's own choice of addresses reached the device.
    assert!(counters(&fabric, "A").commands > 0);
    for name in ["A", "B"] {
        assert_only_net(&fabric, name);
    }
    let errors = shell(&mut a, "dmesg | grep -ciE 'warn|bug:|oops|virtio_net.*(fail|error)' || true");
    assert_eq!(errors, "0", "{}", shell(&mut a, "dmesg"));
}

pub fn tcp_carries_data_whole_both_ways() {
    let lab = laboratory::lab();
    let Two { fabric, mut a, mut b } = Two::start(&lab, GuestMemory::Shared);
    transfer(&mut a, &mut b, "10.0.0.2", 16);
    transfer(&mut b, &mut a, "10.0.0.1", 16);
    println!("{:?}", counters(&fabric, "A"));
    for name in ["A", "B"] {
        assert_only_net(&fabric, name);
    }
}

pub fn it_works_when_every_dma_is_a_message() {
    let lab = laboratory::lab();
    let Two { fabric, mut a, mut b } = Two::start(&lab, GuestMemory::Messages);
    shell(&mut a, "ping -c 3 -i 0.2 -s 8972 10.0.0.2");
    transfer(&mut a, &mut b, "10.0.0.2", 1);
    for name in ["A", "B"] {
        assert_only_net(&fabric, name);
    }
}

pub fn an_adapter_may_have_only_its_ethernet_function() {
    let lab = laboratory::lab();
    let fabric = Fabric::new();
    let mut a = laboratory::guest(&lab, &alone(&fabric, "A"));
    let mut b = laboratory::guest(&lab, &both(&fabric, "B"));
    let name = up(&mut a, ALONE, "10.0.0.1");
    up(&mut b, SECOND, "10.0.0.2");
    shell(&mut a, "ping -c 3 -i 0.2 10.0.0.2");
    assert!(!fabric.is_attached("A") && fabric.is_attached("B"));
    // The cable.
    let set_link = |up| fabric.adapter("A").set_link(up).expect("an answer");
    let carrier = |guest: &mut Guest, is: u8| {
        let wait = format!(
            "for i in $(seq 200); do read c </sys/class/net/{name}/carrier; [ $c = {is} ] && exit; sleep 0.02; done; exit 1"
        );
        shell(guest, &wait);
    };
    set_link(false);
    carrier(&mut a, 0);
    set_link(true);
    carrier(&mut a, 1);
    shell(&mut a, "ping -c 3 -i 0.2 10.0.0.2");
    assert_only_net(&fabric, "A");
}

pub fn the_driver_comes_and_goes_and_the_guest_reboots() {
    let lab = laboratory::lab();
    let fabric = Fabric::new();
    let mut a = laboratory::guest(&lab, &GuestSpec { cold_boot: true, ..both(&fabric, "A") });
    let mut b = laboratory::guest(&lab, &both(&fabric, "B"));
    up(&mut a, SECOND, "10.0.0.1");
    up(&mut b, SECOND, "10.0.0.2");
    let ping = |a: &mut Guest| shell(a, "ping -c 3 -i 0.2 10.0.0.2");
    ping(&mut a);
    let resets = || fabric.adapter("A").call(|adapter| adapter.ethernet.resets()).expect("an answer");
    let before = resets();
    let device = format!("/sys/bus/pci/devices/{SECOND}");
    shell(&mut a, &format!("echo {SECOND} >/sys/bus/pci/drivers/virtio-pci/unbind; ! ls {device}/virtio* 2>/dev/null"));
    assert!(shell(&mut a, &format!("cat {device}/reset_method")).contains("flr"));
    shell(&mut a, &format!("echo 1 >{device}/reset"));
    assert!(resets() > before, "the driver's reset and the function's have arrived");
    shell(&mut a, &format!("echo {SECOND} >/sys/bus/pci/drivers/virtio-pci/bind"));
    up(&mut a, SECOND, "10.0.0.1");
    ping(&mut a);
    let before = resets();
    a.reboot(Duration::from_secs(60)).expect("the guest comes back");
    tally::guests_booted(1);
    assert!(resets() > before, "the machine's reset has arrived");
    up(&mut a, SECOND, "10.0.0.1");
    ping(&mut a);
    assert_only_net(&fabric, "A");
}

/// A guest that has no adapter joins the switch with QEMU's own network card.
pub fn a_plain_qemu_joins_the_switch() {
    let lab = laboratory::lab();
    let mut fabric = Fabric::new();
    let socket = fabric.plain_port("P");
    let mut plain = laboratory::guest(&lab, &GuestSpec::without_adapter("plain"));
    let backend = json!({ "type": "stream", "id": "n0", "server": false, "addr": { "type": "unix", "path": socket } });
    plain.qmp().execute("netdev_add", backend).expect("QEMU joins the port");
    let card = json!({
        "driver": "virtio-net-pci", "id": "card", "bus": "rp0", "netdev": "n0", "host_mtu": 9000, "romfile": "",
        "mac": "02:00:00:00:00:03",
    });
    plain.qmp().execute("device_add", card).expect("QEMU's own card");
    let mut a = laboratory::guest(&lab, &both(&fabric, "A"));
    up(&mut plain, ALONE, "10.0.0.3");
    up(&mut a, SECOND, "10.0.0.1");
    shell(&mut plain, "ping -c 3 -i 0.2 -s 8972 10.0.0.1");
    shell(&mut a, "ping -c 3 -i 0.2 -s 8972 10.0.0.3");
    transfer(&mut plain, &mut a, "10.0.0.1", 4);
    transfer(&mut a, &mut plain, "10.0.0.3", 4);
    assert_only_net(&fabric, "A");
}
