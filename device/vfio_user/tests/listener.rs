//! The socket file, and clients that come when the device is taken.

use super::super::listener::Listener;
use super::super::message::{Command, Header, header_flags};
use super::super::refusal::REFUSAL_DEADLINE;
use super::super::socket_path::BindError;
use super::rig::{message, qemu_version};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};
use zerocopy::FromBytes;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn mode(path: &std::path::Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

/// Waits for the listener as its owner's epoll does.
fn is_ready(listener: &Listener, wait: Duration) -> bool {
    let mut fds = [rustix::event::PollFd::new(listener, rustix::event::PollFlags::IN)];
    let wait = rustix::time::Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
    rustix::event::poll(&mut fds, Some(&wait)).unwrap() == 1
}

#[test]
fn file_and_folder_are_the_owners_alone_and_the_file_goes() {
    let base = folder();
    let path = base.path().join("new/deeper/rnic.sock");
    let listener = Listener::bind(&path).unwrap();
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    assert_eq!(listener.path(), path);
    drop(listener);
    assert!(!path.exists());
}

#[test]
fn a_stale_file_is_replaced_and_a_living_server_respected() {
    let base = folder();
    let path = base.path().join("s");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "std leaves the file: it is stale");
    let first = Listener::bind(&path).unwrap();
    let refused = Listener::bind(&path).unwrap_err();
    assert!(matches!(refused, BindError::Alive { .. }));
    let sentence = format!("another server is alive on {}: stop it, or choose another path", path.display());
    assert_eq!(refused.to_string(), sentence);
    drop(first);
    drop(Listener::bind(&path).unwrap());
}

#[test]
fn what_is_no_socket_is_left_alone() {
    let base = folder();
    let path = base.path().join("precious");
    std::fs::write(&path, "data").unwrap();
    assert!(matches!(Listener::bind(&path).unwrap_err(), BindError::NotASocket { .. }));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "data");
    let long = base.path().join("x".repeat(108));
    assert!(matches!(Listener::bind(&long).unwrap_err(), BindError::TooLong { .. }));
    assert!(matches!(Listener::bind(&path.join("below/a/file")).unwrap_err(), BindError::Io { .. }));
}

#[test]
fn a_file_that_is_no_longer_ours_stays() {
    let base = folder();
    let path = base.path().join("s");
    let listener = Listener::bind(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let other = UnixListener::bind(&path).unwrap();
    drop(listener);
    assert!(path.exists());
    drop(other);
}

#[test]
fn a_second_client_is_told_busy_at_once() {
    let base = folder();
    let path = base.path().join("s");
    let mut listener = Listener::bind(&path).unwrap();
    assert!(!is_ready(&listener, Duration::ZERO));
    assert!(listener.on_readable(false).unwrap().is_none());

    let _first = UnixStream::connect(&path).unwrap();
    let mut second = UnixStream::connect(&path).unwrap();
    assert!(is_ready(&listener, Duration::ZERO));
    let taken = listener.on_readable(false).unwrap();
    assert!(taken.is_some(), "the first client is handed out");

    // VERSION comes in two parts, after the connection.
    let version = qemu_version();
    second.write_all(&version[..9]).unwrap();
    assert!(listener.on_readable(true).unwrap().is_none());
    assert_eq!(listener.refusals(), 1);
    second.write_all(&version[9..]).unwrap();
    assert!(is_ready(&listener, Duration::ZERO));
    listener.on_readable(true).unwrap();
    assert_eq!(listener.refusals(), 0);
    let mut reply = vec![];
    second.read_to_end(&mut reply).unwrap();
    let header = Header::read_from_bytes(&reply).unwrap();
    assert_eq!((header.command(), header.size_bytes), (Command::VERSION, 16));
    assert_eq!(header.flags, header_flags::REPLY | header_flags::ERROR);
    assert_eq!(header.error, libc::EBUSY as u32);
}

#[test]
fn a_second_client_that_says_nothing_is_cut_off_in_time() {
    let base = folder();
    let path = base.path().join("s");
    let mut listener = Listener::bind(&path).unwrap();
    let mut silent = UnixStream::connect(&path).unwrap();
    listener.on_readable(true).unwrap();
    assert_eq!(listener.refusals(), 1);
    let start = Instant::now();
    while listener.refusals() > 0 {
        assert!(is_ready(&listener, Duration::from_secs(5)), "the timer wakes the owner");
        listener.on_readable(true).unwrap();
        assert!(start.elapsed() < 3 * REFUSAL_DEADLINE);
    }
    assert!(start.elapsed() >= REFUSAL_DEADLINE);
    assert_eq!(silent.read(&mut [0; 1]).unwrap(), 0);
    // And it is quiet again.
    listener.on_readable(true).unwrap();
    assert!(!is_ready(&listener, Duration::from_millis(250)));
}

#[test]
fn a_crowd_of_silent_clients_is_bounded() {
    let base = folder();
    let path = base.path().join("s");
    let mut listener = Listener::bind(&path).unwrap();
    let mut crowd = vec![];
    for _ in 0..50 {
        crowd.push(UnixStream::connect(&path).unwrap());
        listener.on_readable(true).unwrap();
        assert!(listener.refusals() <= 8);
    }
}

#[test]
fn a_second_client_that_talks_nonsense_is_dropped() {
    let base = folder();
    let path = base.path().join("s");
    let mut listener = Listener::bind(&path).unwrap();
    for nonsense in [vec![0; 16], vec![0xff; 64], message(1, Command::VERSION, 1, &[]), message(1, Command(0), 16, &[])]
    {
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(&nonsense).unwrap();
        listener.on_readable(true).unwrap();
        assert_eq!(listener.refusals(), 0);
        let mut reply = vec![];
        let _ = client.read_to_end(&mut reply);
        assert!(reply.is_empty());
    }
}
