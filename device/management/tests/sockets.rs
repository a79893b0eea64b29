//! The socket with clients that behave, and with clients that do not.

use super::super::client::{ClientError, ManagementClient};
use super::super::protocol::{MAX_REQUEST_BYTES, Reason, Refusal, Request, SCHEMA};
use super::super::server::ManagementServer;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

fn uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A server in a thread of its own, whose answers count the questions.
struct Rig {
    path: PathBuf,
    asked: Arc<AtomicU64>,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<usize>>,
    _folder: tempfile::TempDir,
}

impl Rig {
    fn new(owner_uid: u32) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("main.management");
        let (asked, end) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let mut server = ManagementServer::bind(&path, owner_uid).expect("a socket");
        let (count, ends) = (Arc::clone(&asked), Arc::clone(&end));
        let thread = std::thread::spawn(move || {
            let (wake, _other) = UnixStream::pair().expect("a pair");
            let mut answers = |request: Request| match request {
                Request::Server {} => Ok(json!(count.fetch_add(1, Ordering::SeqCst) + 1)),
                Request::Show { .. } => Ok(json!("x".repeat(1 << 20))),
                _ => Err(Refusal::new(Reason::NotFound, "no adapter")),
            };
            while !ends.load(Ordering::SeqCst) {
                server.turn(&mut answers, &[wake.as_fd()], Duration::from_millis(20)).expect("a turn");
            }
            server.clients()
        });
        Self { path, asked, end, thread: Some(thread), _folder: folder }
    }

    fn client(&self) -> ManagementClient {
        ManagementClient::connect(&self.path, uid()).expect("a client")
    }

    fn raw(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.path).expect("a client");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a time limit");
        stream
    }

    /// Ends the server; the answer is how many clients it still held.
    fn end(mut self) -> usize {
        self.end.store(true, Ordering::SeqCst);
        self.thread.take().map_or(0, |thread| thread.join().expect("the server has not panicked"))
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.end.store(true, Ordering::SeqCst);
    }
}

fn ask(client: &mut ManagementClient) -> u64 {
    client.ask(&Request::Server {}).expect("an answer")
}

fn line(stream: &UnixStream) -> Value {
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("a reply");
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
}

#[test]
fn several_clients_are_answered_in_their_order_and_leave_nothing() {
    let rig = Rig::new(uid());
    let mut clients: Vec<_> = (0..8).map(|_| rig.client()).collect();
    let answers: Vec<u64> = (0..24).map(|turn| ask(&mut clients[turn % 8])).collect();
    assert_eq!(answers, (1..=24).collect::<Vec<_>>());
    drop(clients);
    let mut last = rig.client();
    let start = Instant::now();
    ask(&mut last);
    while start.elapsed() < Duration::from_millis(200) {
        ask(&mut last);
    }
    assert_eq!(rig.end(), 1, "those that left are forgotten");
}

#[test]
fn truncated_wrong_and_endless_lines_harm_nobody() {
    let rig = Rig::new(uid());
    let mut witness = rig.client();
    let begin = ask(&mut witness);
    // A line that never ends, then a client that vanishes in the middle of another one.
    let mut endless = rig.raw();
    let sent = endless.write_all(&vec![b'x'; MAX_REQUEST_BYTES + 1000]);
    let reply = line(&endless);
    assert_eq!(reply["error"]["reason"], "too_long", "{sent:?}");
    let mut rest = Vec::new();
    let end = endless.read_to_end(&mut rest);
    assert!(rest.is_empty(), "the connection ends: {end:?}");
    rig.raw().write_all(br#"{"schema":"rnic.management/1","request":"ser"#).expect("half a line");
    // Wrong lines have an error each, and the connection goes on.
    let wrong = rig.raw();
    for (text, reason) in [
        ("\n", "bad_request"),
        ("{}\n", "bad_schema"),
        ("\u{0}\n", "bad_request"),
        ("{\"schema\":\"rnic.management/9\",\"request\":\"server\"}\n", "bad_schema"),
        ("{\"schema\":\"rnic.management/1\",\"request\":\"format_disk\"}\n", "bad_request"),
        ("{\"schema\":\"rnic.management/1\",\"request\":\"stop_trace\",\"adapter\":\"Z\"}\n", "not_found"),
    ] {
        (&wrong).write_all(text.as_bytes()).expect("sent");
        let reply = line(&wrong);
        assert_eq!(
            (reply["schema"].as_str(), reply["error"]["reason"].as_str()),
            (Some(SCHEMA), Some(reason)),
            "{text}"
        );
        assert!(reply["error"]["message"].as_str().is_some_and(|message| message.len() > 5), "{reply}");
    }
    assert_eq!(ask(&mut witness), begin + 1, "none of that was a question");
    assert_eq!(rig.asked.load(Ordering::SeqCst), begin + 1);
}

#[test]
fn a_client_that_asks_and_does_not_read_stalls_itself_alone() {
    let rig = Rig::new(uid());
    let request = format!("{{\"schema\":\"{SCHEMA}\",\"request\":\"show\",\"adapter\":\"A\"}}\n");
    let greedy = rig.raw();
    greedy.set_nonblocking(true).expect("non-blocking");
    let mut sent = 0;
    // Far more replies than any socket buffers: the server stops reading instead of keeping them.
    while sent < 1000 && (&greedy).write_all(request.as_bytes()).is_ok() {
        sent += 1;
    }
    let mut other = rig.client();
    let start = Instant::now();
    ask(&mut other);
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    // What it was promised it gets when it reads.
    greedy.set_nonblocking(false).expect("blocking");
    let reply = line(&greedy);
    assert_eq!(reply["ok"].as_str().map(str::len), Some(1 << 20));
}

#[test]
fn another_user_is_refused_with_a_sentence() {
    let rig = Rig::new(uid() + 1);
    let stream = rig.raw();
    let reply = line(&stream);
    assert_eq!(reply["error"]["reason"], "not_yours", "{reply}");
    assert_eq!((&stream).read(&mut [0]).expect("the end"), 0);
    assert_eq!(rig.asked.load(Ordering::SeqCst), 0);
}

#[test]
fn a_client_beyond_the_last_place_takes_that_of_the_most_silent() {
    let rig = Rig::new(uid());
    let mut early = rig.client();
    ask(&mut early);
    let mut others: Vec<_> = (0..16)
        .map(|_| {
            let mut client = rig.client();
            ask(&mut client);
            client
        })
        .collect();
    let end = early.ask::<u64>(&Request::Server {}).expect_err("its place is taken");
    assert!(
        matches!(&end, ClientError::Refused(refusal) if refusal.reason == Reason::Busy)
            || matches!(end, ClientError::Gone { .. }),
        "{end}"
    );
    others.iter_mut().for_each(|client| assert!(ask(client) > 0));
}

#[test]
fn a_dead_socket_is_told_from_none_and_is_taken_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("main.management");
    let connect = |path: &Path| ManagementClient::connect(path, uid()).expect_err("nobody is there");
    assert!(matches!(connect(&path), ClientError::NoServer { .. }));
    drop(std::os::unix::net::UnixListener::bind(&path).expect("a socket"));
    assert!(path.exists());
    assert!(matches!(connect(&path), ClientError::Dead { .. }));
    let server = ManagementServer::bind(&path, uid()).expect("it takes over");
    assert!(ManagementServer::bind(&path, uid()).is_err(), "one server a name");
    drop(server);
    assert!(!path.exists(), "nothing is left");
}

/// A server that is none: what it says is an error of the client, in time.
#[test]
fn a_server_that_talks_nonsense_is_not_believed() {
    let folder = tempfile::tempdir().expect("a folder");
    let cases: [(&[u8], &str); 5] = [
        (b"hello\n", "not JSON"),
        (b"{\"schema\":\"rnic.management/7\",\"ok\":1}\n", "rnic.management/7"),
        (b"{\"schema\":\"rnic.management/1\",\"ok\":\"no number\"}\n", "its answer"),
        (b"{\"schema\":\"rnic.manag", "has no end"),
        (b"", "has gone"),
    ];
    for (at, (bytes, words)) in cases.into_iter().enumerate() {
        let path = folder.path().join(format!("{at}.management"));
        let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).expect("a request");
            stream.write_all(bytes).expect("sent");
        });
        let mut client = ManagementClient::connect(&path, uid()).expect("connected");
        let error = client.ask::<u64>(&Request::Server {}).expect_err("nonsense").to_string();
        assert!(error.contains(words), "{error}");
        thread.join().expect("the other side");
    }
    let foreign = ManagementClient::connect(&folder.path().join("4.management"), uid() + 1);
    assert!(foreign.is_err());
}
