//! Peers over real sockets, with and without manners.

use super::PlainPort;
use rnic_switch::{NeverSleeps, Switch, SwitchConfig};
use rnic_wire::Frame;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(10);

struct Bench {
    switch: Switch,
    ports: Vec<PlainPort>,
    _folder: tempfile::TempDir,
}

fn bench() -> Bench {
    let folder = tempfile::tempdir().expect("a folder");
    let switch = Switch::new(SwitchConfig::default());
    let start = |name| PlainPort::start(name, &folder.path().join(name), &switch).expect("a port");
    Bench { ports: vec![start("p"), start("q")], switch, _folder: folder }
}

fn peer(port: &PlainPort) -> UnixStream {
    let stream = UnixStream::connect(port.socket()).expect("connected");
    stream.set_read_timeout(Some(LIMIT)).expect("a time limit");
    stream
}

fn frame(destination: u8, source: u8, length: usize) -> Vec<u8> {
    [vec![2, 0, 0, 0, 0, destination, 2, 0, 0, 0, 0, source], vec![0x5a; length - 12]].concat()
}

fn send(stream: &mut UnixStream, frame: &[u8]) {
    stream.write_all(&(frame.len() as u32).to_be_bytes()).expect("written");
    stream.write_all(frame).expect("written");
}

fn receive(stream: &mut UnixStream) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut frame)?;
    Ok(frame)
}

/// Until the peer is there, frames for it are lost: the first is sent until it arrives.
fn meet(from: &mut UnixStream, to: &mut UnixStream) {
    let hello = frame(9, 1, 60);
    to.set_read_timeout(Some(Duration::from_millis(50))).expect("a time limit");
    let begin = Instant::now();
    while receive(to).map(|bytes| bytes != hello).unwrap_or(true) {
        assert!(begin.elapsed() < LIMIT, "the peers never meet");
        send(from, &hello);
    }
    while receive(to).is_ok() {}
    to.set_read_timeout(Some(LIMIT)).expect("a time limit");
}

#[test]
fn peers_reach_each_other_and_leave() {
    let bench = bench();
    let (mut p, mut q) = (peer(&bench.ports[0]), peer(&bench.ports[1]));
    meet(&mut p, &mut q);
    for length in [14, 60, 9014, 9216] {
        let sent = frame(9, 1, length);
        send(&mut p, &sent);
        assert!(receive(&mut q).expect("a frame") == sent);
    }
    drop(p);
    let mut p = peer(&bench.ports[0]);
    meet(&mut p, &mut q);
    drop(bench.ports);
    assert_eq!(receive(&mut q).expect_err("the port has gone").kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn a_lost_framing_closes_the_peer_and_the_next_one_is_served() {
    let bench = bench();
    let mut q = peer(&bench.ports[1]);
    for length in [0u32, 9217, u32::MAX] {
        let mut p = peer(&bench.ports[0]);
        meet(&mut p, &mut q);
        p.write_all(&length.to_be_bytes()).expect("written");
        assert_eq!(receive(&mut p).expect_err("closed").kind(), ErrorKind::UnexpectedEof, "{length}");
    }
}

#[test]
fn a_second_peer_is_refused() {
    let bench = bench();
    let (mut p, mut q) = (peer(&bench.ports[0]), peer(&bench.ports[1]));
    meet(&mut p, &mut q);
    let mut second = peer(&bench.ports[0]);
    assert_eq!(receive(&mut second).expect_err("closed").kind(), ErrorKind::UnexpectedEof);
    meet(&mut p, &mut q);
}

#[test]
fn a_peer_that_does_not_read_holds_nobody_up() {
    let bench = bench();
    let (mut p, mut q) = (peer(&bench.ports[0]), peer(&bench.ports[1]));
    meet(&mut p, &mut q);
    // A port of the test's own floods both; one of them never reads.
    let mut flood = bench.switch.port("flood", Arc::new(NeverSleeps)).expect("a port");
    let (mut carrier, begin) = (Frame::new(), Instant::now());
    for _ in 0..2000 {
        while flood.room() == 0 {
            assert!(begin.elapsed() < LIMIT, "the switch is held up");
            std::thread::yield_now();
        }
        assert!(carrier.set_bytes(&frame(7, 3, 9000)));
        flood.transmit(&mut carrier, 0);
    }
    drop(q);
    send(&mut p, &frame(9, 1, 60));
}
