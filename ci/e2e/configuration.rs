//! What `rnic serve` can be told: options and TOML file, each other's equal, and what becomes of mistakes and full disks.

use crate::bench::program::{command, run};
use crate::bench::serving::Serving;
use crate::bench::station::{Retries, Station};
use crate::bench::transaction::{Pair, over_socket};
use rnic_abi::CompletionStatus;
use rnic_abi::command::AddressVector;
use rnic_abi::registers::{BAR_REGISTERS, REG_DOORBELL_PAGES, REG_PORT_MTU, REG_VECTORS};
use rnic_ci::child::Output;
use rnic_shim::transaction::{TransactionSpec, ipv4_gid};
use rnic_shim::verbs::{Device, OpenOptions, Qpn, RtrAttributes, rtr_attributes};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::time::Duration;

fn print_config(arguments: &str) -> Output {
    run(command(&format!("serve {arguments} --print-config")))
}

fn write(path: &Path, text: &str) -> String {
    std::fs::write(path, text).expect("written");
    path.display().to_string()
}

pub fn what_it_prints_it_reads_back_as_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = "A C --mtu C=1024 --link-gen 5 --link-width A=8 --qp-cache 7 --gid A=10.0.0.1 --gid A=fe80::1 --loss 0.25 \
        --rate C=1000000 --queue-bytes C=9000 --seed 3 --capture w.pcapng --ring-frames 64 --mac C=02:00:00:00:00:0c --busy-poll A=20";
    for arguments in ["", options] {
        let first = print_config(arguments);
        assert!(first.status.success(), "{}", first.standard_error);
        let file = write(&folder.path().join("c.toml"), &first.standard_output);
        let second = print_config(&format!("--config {file}"));
        assert_eq!(second.standard_output, first.standard_output, "{arguments}\n{}", second.standard_error);
        // An option on top changes that and nothing else.
        let third = print_config(&format!("--config {file} --mtu 256"));
        let changed =
            |text: &str| text.lines().filter(|line| !line.starts_with("mtu")).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(changed(&third.standard_output), changed(&first.standard_output));
        assert!(third.standard_output.contains("mtu = 256") && !third.standard_output.contains("mtu = 1024"));
    }
}

pub fn the_adapters_are_as_they_are_described() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = write(
        &folder.path().join("c.toml"),
        "[[adapter]]\nname = \"A\"\nmac = \"02:00:00:00:00:0a\"\nmtu = 1024\nvectors = 3\ndoorbell_pages = 16\n\
         link = { generation = 4, width = 2 }\ngids = [\"10.0.0.1\"]\n",
    );
    let serving = Serving::start(&format!("A B --config {file}"));
    let mut device = Device::open(over_socket(&serving.socket("A")), OpenOptions::default()).expect("the device opens");
    let mut register = |offset: u32| device.backing().read32(BAR_REGISTERS, offset.into()).expect("read");
    assert_eq!([REG_PORT_MTU, REG_VECTORS, REG_DOORBELL_PAGES].map(&mut register), [1024, 3, 16]);
    assert_eq!(device.mac().expect("a MAC address"), [2, 0, 0, 0, 0, 0x0a]);
    // Link Status is the upper half of the word at 0x70: the PCI Express capability is at 0x60.
    let link = device.backing().config_read32(0x70).expect("read") >> 16;
    assert_eq!((link & 0xf, link >> 4 & 0x3f), (4, 2), "{link:#x}");

    // The driver of A sets no GID: index 0 holds what was configured. B has none until its driver sets one.
    let mut a = Station::of(device, ipv4_gid([10, 0, 0, 1]));
    let mut b = Station::open(over_socket(&serving.socket("B")), ipv4_gid([10, 0, 0, 2]));
    let (own, peer) = (a.create_queue_pair(), b.create_queue_pair());
    for (path_mtu_bytes, sgid_index) in [(2048, 0), (1024, 1)] {
        let av = AddressVector { dest_gid: peer.gid, sgid_index: sgid_index.into(), ..AddressVector::zeroed() };
        let dest_qpn = peer.qpn;
        let rtr = RtrAttributes { path_mtu_bytes, dest_qpn, rq_psn: 0, max_dest_rd_atomic: 1, min_rnr_timer: 12, av };
        let refused = a.device.modify_queue_pair(Qpn(own.qpn), rtr_attributes(rtr)).expect_err("beyond the port");
        assert!(refused.to_string().contains("324"), "MTU {path_mtu_bytes}, GID {sgid_index}: {refused}");
    }
    a.connect(&own, &peer, Retries::default());
    b.connect(&peer, &own, Retries::default());
    a.write(&own, &peer, 5000, None).expect("posted");
    assert_eq!(a.completion(Duration::from_secs(20)).status(), CompletionStatus::SUCCESS);
}

pub fn the_switch_loses_what_it_is_told_to_lose() {
    let serving = Serving::start("A B --loss B=1.0");
    let mut a = Station::open(over_socket(&serving.socket("A")), ipv4_gid([10, 0, 0, 1]));
    let mut b = Station::open(over_socket(&serving.socket("B")), ipv4_gid([10, 0, 0, 2]));
    let (own, peer) = (a.create_queue_pair(), b.create_queue_pair());
    let retries = Retries { timeout: 10, retry_cnt: 2 };
    a.connect(&own, &peer, retries);
    b.connect(&peer, &own, retries);
    a.write(&own, &peer, 100, None).expect("posted");
    assert_eq!(a.completion(Duration::from_secs(20)).status(), CompletionStatus::RETRY_EXC_ERR);
}

/// Threads that look for work so long that they never sleep look at their clients too, and at each other.
pub fn a_thread_that_never_sleeps_serves_its_clients() {
    let serving = Serving::start("A B --busy-poll 10000000");
    let sockets = ["A", "B"].map(|name| over_socket(&serving.socket(name)));
    Pair::bring_up(sockets, &TransactionSpec::default()).run();
}

/// Exit 2 and one sentence, which names the file and the line.
pub fn a_mistake_is_told_with_its_line_and_its_cure() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("c.toml");
    for (text, arguments, words) in [
        ("[switch]\nring_frame = 4\n", "", &["c.toml:2:", "ring_frames"][..]),
        ("\n\n[[adapter]]\nname = \"A\"\nmtu = 1500\n", "", &["c.toml:5:", "2048 or 4096"]),
        ("[[adapter]]\nname = \"A\"\n[[adapter]]\nname = \"A\"\n", "", &["c.toml:4:", "line 2"]),
        ("[[adapter]\n", "", &["c.toml:1:"]),
        ("adapter = []\n", "", &["[[adapter]]"]),
        ("", "--mtu C=256", &["there is no adapter C, but A, B"]),
        ("", "--gid 10.0.0.1", &["--gid NAME=10.0.0.1"]),
        ("", "A A", &["two adapters"]),
    ] {
        let file = write(&path, text);
        let output = run(command(&format!("serve --config {file} {arguments}")));
        assert_eq!(output.status.code(), Some(2), "{text}: {}", output.standard_error);
        assert_eq!(output.standard_error.trim_end().lines().count(), 1, "{}", output.standard_error);
        assert!(words.iter().all(|word| output.standard_error.contains(word)), "{text}: {}", output.standard_error);
    }
    for arguments in ["--config /nowhere/c.toml", "--loss 2", "--link-width 3"] {
        let output = run(command(&format!("serve {arguments}")));
        assert_eq!(output.status.code(), Some(2), "{arguments}: {}", output.standard_error);
    }
}

/// The adapters go on; the end says what happened and where.
pub fn a_full_disk_ends_the_capture_and_nothing_else() {
    for (length_bytes, what) in [(1 << 20, "in its middle"), (64, "at its end")] {
        let log = tempfile::NamedTempFile::new().expect("a file for the log");
        let mut serving = Serving::start_logged("A B --capture /dev/full", log.path());
        for seed in [1, 2] {
            let spec = TransactionSpec { length_bytes, seed, timeout: 18, ..TransactionSpec::default() };
            let pair = ["A", "B"].map(|name| over_socket(&serving.socket(name)));
            Pair::bring_up(pair, &spec).run();
        }
        kill_process(Pid::from_raw(serving.id() as i32).expect("a process id"), Signal::TERM)
            .expect("the signal is sent");
        let status = serving.wait();
        let said = std::fs::read_to_string(log.path()).expect("the log");
        assert_eq!(status.code(), Some(3), "{what}: {said}");
        assert!(said.contains("/dev/full") && said.contains("No space left"), "{what}: {said}");
    }
}
