//! Stock RDMA programs in Debian guests with our kernel module and our rdma-core provider.

use crate::bench::fabric::Fabric;
use crate::bench::laboratory;
use rnic_ci::guest::{Guest, GuestSpec};
use rnic_ci::{Lab, Options, StandardError};
use rnic_device::server::mac_of;
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
/// The TCP port by which ibverbs-utils and perftest exchange addresses, as /proc/net/tcp prints it.
const EXCHANGE_PORT: &str = ":4853";

fn lab() -> Lab {
    Lab::prepare_rdma(&Options::from_environment(), &mut StandardError).expect("the RDMA guest image and its snapshot")
}

/// What every step that follows finds in the cache: packages fetched, module, provider and image built.
pub fn the_rdma_image_is_provided() {
    println!("kernel {}", lab().image().kernel_release);
}

#[track_caller]
fn shell(guest: &mut Guest, command: &str) -> String {
    let (code, output) = guest.shell(command, LIMIT).expect("the guest's shell");
    let text = String::from_utf8_lossy(&output).trim().to_owned();
    assert_eq!(code, 0, "{} in {}: {text}", command, guest.name());
    text
}

/// A guest whose port is up: its address is 10.0.0.`node`.
fn start(lab: &Lab, fabric: &Fabric, name: &str, node: u8, network: &Path) -> Guest {
    let mac = mac_of(name).map(|byte| format!("{byte:02x}")).join(":");
    let role = if node == 1 { "on" } else { "off" };
    let netdev = format!("stream,id=n0,server={role},addr.type=unix,addr.path={}", network.display());
    let arguments = ["-netdev".into(), netdev, "-device".into(), format!("virtio-net-pci,netdev=n0,mac={mac}")];
    let spec = GuestSpec {
        cold_boot: true,
        extra_arguments: arguments.map(Into::into).to_vec(),
        ..GuestSpec::new(name, &fabric.socket(name))
    };
    let mut guest = laboratory::guest(lab, &spec);
    shell(&mut guest, "modprobe virtio_net && modprobe rnic && ip link set lo up");
    let address = format!("ip addr add 10.0.0.{node}/24 dev eth0 && ip link set eth0 mtu 9000 && ip link set eth0 up");
    shell(&mut guest, &format!("until {address}; do usleep 20000; done"));
    shell(&mut guest, "until ibv_devinfo -d rnic0 | grep -q PORT_ACTIVE; do usleep 20000; done");
    guest
}

/// Starts a program that shell commands to come can wait for, or kill.
fn in_background(program: &str) -> String {
    format!("({program} >/tmp/out 2>&1 </dev/null & echo $! >/tmp/pid; wait $!; echo $? >/tmp/code) &")
}

struct Guests {
    server: Guest,
    client: Guest,
    _network: tempfile::TempDir,
}

impl Guests {
    fn start(lab: &Lab, fabric: &Fabric) -> Guests {
        let folder = tempfile::Builder::new().prefix("n").tempdir().expect("a folder for the network's socket");
        let network = folder.path().join("n");
        let server = start(lab, fabric, "A", 1, &network);
        let client = start(lab, fabric, "B", 2, &network);
        Guests { server, client, _network: folder }
    }

    /// Runs a program in both guests, the client with the server's address behind it, and gives exit numbers and output.
    fn run(&mut self, program: &str) -> ([i32; 2], [String; 2]) {
        shell(&mut self.server, &format!("rm -f /tmp/code; {}", in_background(program)));
        let listens = format!("grep -qs '{EXCHANGE_PORT} .* 0A ' /proc/net/tcp /proc/net/tcp6 || [ -e /tmp/code ]");
        shell(&mut self.server, &format!("until {listens}; do usleep 20000; done"));
        let (code, output) = self.client.shell(&format!("{program} 10.0.0.1 2>&1"), LIMIT).expect("the client's shell");
        let ended = shell(&mut self.server, "until [ -s /tmp/code ]; do usleep 20000; done; cat /tmp/code");
        let printed = shell(&mut self.server, "cat /tmp/out");
        let ended = ended.parse().expect("an exit number");
        ([ended, code], [printed, String::from_utf8_lossy(&output).into_owned()])
    }

    /// The same, and both succeed; gives what the client printed.
    #[track_caller]
    fn succeed(&mut self, program: &str) -> String {
        let (codes, [server, client]) = self.run(program);
        assert_eq!(codes, [0, 0], "{program}\nserver:\n{server}\nclient:\n{client}");
        println!("{program}: {}", client.lines().rfind(|line| line.contains(char::is_numeric)).unwrap_or_default());
        client
    }

    #[track_caller]
    fn end(self) {
        for mut guest in [self.server, self.client] {
            check_end(&mut guest);
        }
    }
}

/// Nothing is held, the module goes, and the kernel had nothing to complain of.
#[track_caller]
fn check_end(guest: &mut Guest) {
    let held = shell(guest, "rdma resource show");
    assert!(held.ends_with("rnic0: pd 0 cq 0 qp 0 cm_id 0 mr 0 ctx 0 srq 0"), "{}: {held}", guest.name());
    shell(guest, "rmmod rnic");
    assert_eq!(shell(guest, "ls /sys/class/infiniband"), "");
    check_kernel_log(guest);
}

#[track_caller]
fn check_kernel_log(guest: &mut Guest) {
    let log = shell(guest, "dmesg");
    for word in ["WARNING:", "BUG:", "Oops", "Call Trace", "general protection", "rcu_sched", "unregister_netdevice"] {
        assert!(!log.contains(word), "{} in the kernel log of {}:\n{log}", word, guest.name());
    }
}

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

pub fn the_module_survives_unbinding_resets_and_removal_in_use() {
    let (lab, fabric) = (lab(), Fabric::new());
    let mut guests = Guests::start(&lab, &fabric);
    let device = "0000:01:00.0";
    let held = "ibv_asyncwatch -d rnic0 >/tmp/watch 2>&1 & holder=$!; until grep -q 'event FD' /tmp/watch; do usleep 20000; done";
    let up = "until ibv_devinfo -d rnic0 | grep -q PORT_ACTIVE; do usleep 20000; done";
    for (taken, back) in [
        (
            format!("echo {device} > /sys/bus/pci/drivers/rnic/unbind"),
            format!("echo {device} > /sys/bus/pci/drivers/rnic/bind"),
        ),
        ("rmmod rnic".to_owned(), "modprobe rnic".to_owned()),
        (format!("echo 1 > /sys/bus/pci/devices/{device}/reset"), "rmmod rnic && modprobe rnic".to_owned()),
    ] {
        shell(&mut guests.client, &format!("{held}; {taken} && kill $holder; wait; {back} && {up}"));
    }
    // A program that is killed in the middle leaves nothing, and the other side learns of it.
    let program = "ib_write_bw -F -d rnic0 -D 20";
    shell(&mut guests.server, &format!("rm -f /tmp/code; {}", in_background(program)));
    shell(&mut guests.client, &format!("sleep 1; {program} 10.0.0.1 >/tmp/out 2>&1 & sleep 4; kill -9 $!; wait; true"));
    shell(
        &mut guests.server,
        "for i in $(seq 100); do [ -s /tmp/code ] && exit; usleep 50000; done; kill -9 $(cat /tmp/pid)",
    );
    guests.succeed("ibv_rc_pingpong -d rnic0 -g 1 -n 50 -c");
    guests.end();
}

/// A module that posts, polls and is woken inside the kernel, between two queue pairs of one device.
pub fn users_inside_the_kernel_are_served() {
    let (lab, fabric) = (lab(), Fabric::new());
    let folder = tempfile::tempdir().expect("a folder for the network's socket");
    let mut guest = start(&lab, &fabric, "A", 1, &folder.path().join("n"));
    shell(&mut guest, "modprobe rnic_kernel_user");
    let log = shell(&mut guest, "dmesg");
    assert!(log.contains("rounds were right"), "{log}");
    shell(&mut guest, "rmmod rnic_kernel_user");
    check_end(&mut guest);
}
