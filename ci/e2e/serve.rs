//! `rnic serve` as its users run it: it listens soon, ends cleanly, takes over stale sockets, and captures.

use crate::bench::judges::{scapy_verify, tshark_fields};
use crate::bench::laboratory;
use crate::bench::serving::Serving;
use crate::bench::transaction::{Pair, over_socket};
use crate::tally;
use rnic_shim::transaction::TransactionSpec;
use rustix::process::{Pid, Signal, kill_process};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

fn signal(serving: &Serving, signal: Signal) {
    let id = Pid::from_raw(serving.id() as i32).expect("a process id");
    kill_process(id, signal).expect("the signal is sent");
}

fn operate(serving: &Serving) {
    let backings = ["A", "B"].map(|name| over_socket(&serving.socket(name)));
    Pair::bring_up(backings, &TransactionSpec { timeout: 18, ..TransactionSpec::default() }).run();
}

pub fn it_listens_soon_and_a_signal_ends_it_cleanly() {
    for ending in [Signal::INT, Signal::TERM] {
        let mut serving = Serving::start("A B");
        println!("listening after {:?}", serving.listening_after);
        // The goal is 50 ms; a busy machine is given more.
        assert!(serving.listening_after < Duration::from_millis(500), "{:?}", serving.listening_after);
        operate(&serving);
        signal(&serving, ending);
        assert!(serving.wait().success(), "{ending:?}");
        let left: Vec<_> = std::fs::read_dir(serving.folder()).expect("the folder").flatten().collect();
        assert!(left.is_empty(), "{ending:?} leaves {left:?}");
    }
}

pub fn a_killed_server_leaves_sockets_that_the_next_one_takes_over() {
    let mut serving = Serving::start("A B");
    serving.child().kill();
    let folder = serving.into_folder();
    assert!(folder.path().join("A.sock").exists());
    let serving = Serving::start_in(folder, "A B");
    operate(&serving);
}

pub fn its_capture_holds_every_packet_and_their_icrc_is_right() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("capture.pcapng");
    let time_of_day = || SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64();
    let begin = time_of_day();
    let mut serving = Serving::start(&format!("A B --capture {}", path.display()));
    operate(&serving);
    signal(&serving, Signal::TERM);
    assert!(serving.wait().success());
    // Both adapters' packets by one clock, in their order.
    let times = tshark_fields(&laboratory::tools(), &path, &["frame.time_epoch"]);
    let mut times: Vec<f64> = times.iter().map(|row| row[0].parse().expect("seconds")).collect();
    times.insert(0, begin);
    times.push(time_of_day());
    assert!(times.is_sorted(), "{times:?}");
    let packets = scapy_verify(&laboratory::tools(), &path);
    let opcodes: Vec<_> = packets.iter().map(|packet| packet["opcode_name"].clone()).collect();
    assert_eq!(opcodes, ["RC_WRITE_ONLY_IMM", "RC_ACKNOWLEDGE"]);
    tally::packets_judged(packets.len());
}
