//! The tools beside a live server: `rnic list`, `stat`, `trace`, `show`, `events`, and what becomes of them when the server
//! is wrong, dead, or spoken to by somebody hostile.

use crate::bench::program;
use crate::bench::serving::Serving;
use crate::bench::transaction::{Pair, over_socket};
use rnic_ci::child::{Child, Output};
use rnic_shim::transaction::TransactionSpec;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Runs `rnic COMMAND --folder …` and expects this exit number.
#[track_caller]
fn ask(folder: &Path, command: &str, exit: i32) -> Output {
    let output = program::run(program::command(&format!("{command} --folder {}", folder.display())));
    let said = (&output.standard_output, &output.standard_error);
    assert_eq!(output.status.code(), Some(exit), "rnic {command}: {said:?}");
    output
}

/// The JSON objects that it prints, a line each.
#[track_caller]
fn json(folder: &Path, command: &str) -> Vec<Value> {
    let output = ask(folder, &format!("{command} --json"), 0);
    output.standard_output.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn pair(serving: &Serving) -> Pair {
    let backings = ["A", "B"].map(|name| over_socket(&serving.socket(name)));
    Pair::bring_up(backings, &TransactionSpec { timeout: 18, ..TransactionSpec::default() })
}

fn crossings(shares: &Value) -> Vec<(String, u64)> {
    let shares = shares.as_object().expect("shares by class");
    shares.iter().map(|(class, share)| (class.clone(), share["crossings"].as_u64().expect("a number"))).collect()
}

fn one_each(classes: &[&str]) -> Vec<(String, u64)> {
    classes.iter().map(|class| ((*class).to_owned(), 1)).collect()
}

pub fn totals_between_marks_are_those_of_the_story() {
    let serving = Serving::start("A B");
    let mut pair = pair(&serving);
    for (mark, runs) in [(1, true), (2, false)] {
        pair.requester.device().mark(mark).expect("a mark");
        pair.responder.device().mark(mark).expect("a mark");
        if runs {
            pair.run();
        }
    }
    let reports = json(serving.folder(), "stat --between 1 2");
    let of = |at: usize, role: &str| crossings(&reports[at]["functions"][0]["roles"][role]);
    assert_eq!(of(0, "requester"), one_each(&["cqe_write", "doorbell", "payload_read", "wqe_fetch"]));
    assert_eq!(of(1, "responder"), one_each(&["cqe_write", "payload_write", "recv_wqe_fetch"]));
    assert_eq!((of(0, "responder"), of(1, "requester")), (vec![], vec![]));
    assert_eq!(reports[0]["functions"][0]["total"]["crossings"], 4, "the writes of the marks are not in it");
    assert_eq!(
        (&reports[0]["operations"]["finished_sends"], &reports[1]["operations"]["executed_messages"]),
        (&1.into(), &1.into())
    );
    // By queue pair it is the whole of what the role did, between marks too.
    let spec = TransactionSpec::default();
    for (report, qpn, role, total) in
        [(&reports[0], spec.requester_qpn, "requester", 4), (&reports[1], spec.responder_qpn, "responder", 3)]
    {
        let [queue] = &report["queues"].as_array().expect("queue pairs")[..] else { panic!("one: {report}") };
        assert_eq!((&queue["qpn"], &queue[role]["crossings"]), (&qpn.into(), &total.into()));
        let bytes = |row: &Value| row["bytes"].as_u64().expect("bytes");
        let shares = report["functions"][0]["roles"][role].as_object().expect("shares");
        assert_eq!(bytes(&queue[role]), shares.values().map(bytes).sum::<u64>());
    }
    let text = ask(serving.folder(), "stat A --between 1 2 --per-op", 0).standard_output;
    assert!(text.contains("function 1 (ethernet): no crossings"), "{text}");
    assert!(text.contains("per send as requester (1): 4.000 crossings"), "{text}");
    assert!(ask(serving.folder(), "stat --between 1 77", 2).standard_error.contains("mark 0x4d"));
    // By queue pair, since the start and since zero.
    let queues = &json(serving.folder(), "stat A")[0]["queues"];
    assert_eq!(
        (&queues[0]["qpn"], &queues[0]["requester"]["crossings"]),
        (&TransactionSpec::default().requester_qpn.into(), &4.into())
    );
    ask(serving.folder(), "stat A --zero", 0);
    let zeroed = &json(serving.folder(), "stat A")[0];
    assert_eq!((&zeroed["since"]["what"], &zeroed["functions"][0]["total"]["crossings"]), (&"zero".into(), &0.into()));
    assert_eq!(json(serving.folder(), "stat B")[0]["since"]["what"], "start", "each adapter has its own");
    assert!(
        json(serving.folder(), "stat A --since-start")[0]["functions"][0]["total"]["crossings"].as_u64() > Some(20)
    );
}

pub fn the_trace_tells_crossings_and_packets_in_their_order() {
    let serving = Serving::start("A B");
    let mut pair = pair(&serving);
    let begun = json(serving.folder(), "trace");
    let lost: Vec<_> = begun.iter().filter(|line| line["kind"] == "lost").collect();
    assert_eq!((begun.len(), lost.len()), (2, 2), "what came before is lost, and it is said: {begun:?}");
    pair.run();
    let spec = TransactionSpec::default();
    let what = |line: &Value| match line["kind"].as_str() {
        Some("crossing") => line["class"].as_str().expect("a class").to_owned(),
        Some("packet") => format!(
            "{} {}",
            line["direction"].as_str().unwrap_or(""),
            line["transport"]["opcode"].as_str().unwrap_or("")
        ),
        other => panic!("{other:?}: {line}"),
    };
    let story = |adapter: &str, qpn: u32| -> Vec<String> {
        let lines = json(serving.folder(), &format!("trace {adapter} --qp {qpn:#x}"));
        lines.iter().filter(|line| line["kind"] != "lost").map(what).collect()
    };
    assert_eq!(
        story("A", spec.requester_qpn),
        ["doorbell", "wqe_fetch", "payload_read", "sent RC_WRITE_ONLY_IMM", "received RC_ACKNOWLEDGE", "cqe_write"]
    );
    let responder = story("B", spec.responder_qpn);
    assert_eq!(responder[..2], ["received RC_WRITE_ONLY_IMM", "payload_write"]);
    assert!(responder.contains(&"sent RC_ACKNOWLEDGE".to_owned()) && responder.len() == 5, "{responder:?}");
    let doorbells = json(serving.folder(), "trace A --class doorbell");
    assert_eq!(doorbells.iter().filter(|line| line["kind"] == "crossing").count(), 1);
    assert!(ask(serving.folder(), "trace --class doorbel", 2).standard_error.contains("there is no class"));
    let text = ask(serving.folder(), "trace A", 0).standard_output;
    assert!(text.contains("seen as 8 stores") && text.contains("->") && text.contains("ACK MSN 1"), "{text}");
    ask(serving.folder(), "trace --stop", 0);
    assert!(json(serving.folder(), "show")[0]["recording"] == false);
}

pub fn a_followed_trace_goes_on_until_its_server_goes() {
    let mut serving = Serving::start("A B --record");
    let mut command = program::command(&format!("trace A --follow --json --folder {}", serving.folder().display()));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut follower = Child::start(command).expect("it starts");
    let mut lines = BufReader::new(follower.take_standard_output().expect("its output")).lines();
    let mut until = |class: &str| {
        lines
            .by_ref()
            .map_while(Result::ok)
            .any(|line| serde_json::from_str::<Value>(&line).is_ok_and(|line| line["class"] == class))
    };
    let mut pair = pair(&serving);
    assert!(until("command_completion"), "what was recorded from the start");
    pair.run();
    assert!(until("payload_read"), "what comes while it follows");
    serving.child().kill();
    assert!(!until("no such class"), "its output ends");
    let limit = rnic_ci::deadline::Deadline::new("the follower ends", Duration::from_secs(10));
    assert_eq!(follower.wait(&limit).expect("it ends").code(), Some(3));
}

pub fn live_objects_show_their_state_and_looking_crosses_nothing() {
    let serving = Serving::start("A B");
    let mut pair = pair(&serving);
    pair.run();
    let spec = TransactionSpec::default();
    let before = json(serving.folder(), "stat");
    let [a, b] = &json(serving.folder(), "show")[..] else { panic!("two adapters") };
    assert_eq!((&a["enabled"], &a["attached"], &a["fatal"]), (&true.into(), &true.into(), &false.into()));
    let qp = &a["queue_pairs"][0];
    assert_eq!((&qp["qpn"], &qp["state"]), (&spec.requester_qpn.into(), &"RTS".into()));
    let psns = |qp: &Value, name: &str| qp["context"][name].as_u64().expect("a PSN");
    assert_eq!(psns(qp, "unacked_psn"), psns(qp, "send_psn"), "everything is acknowledged");
    assert_eq!(qp["send_queue"]["producer"], qp["send_queue"]["consumer"]);
    let peer = &b["queue_pairs"][0];
    assert_eq!(psns(peer, "expected_psn"), psns(qp, "send_psn"), "both sides agree");
    assert_eq!(peer["context"]["msn"], 1);
    assert_eq!(b["completion_queues"][0]["context"]["producer"], 1);
    for list in ["event_queues", "keys", "gids"] {
        assert!(a[list].as_array().is_some_and(|rows| !rows.is_empty()), "{list}: {a}");
    }
    assert!(a["caches"]["queue_pairs"]["used"].as_u64() > Some(0));
    assert_eq!(totals(&json(serving.folder(), "stat")), totals(&before), "looking crosses nothing");
    let text = ask(serving.folder(), "show A", 0).standard_output;
    for words in ["adapter A: enabled", "RTS", "GID 0", "cache", "timers", "CQ ", "EQ 0", "key 0x"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    // Contexts that went to host memory show as that.
    pair.flush_caches();
    let flushed = &json(serving.folder(), "show A")[0];
    assert!(flushed["queue_pairs"][0]["context"].is_null() && flushed["queue_pairs"][0]["state"] == "RTS", "{flushed}");
}

fn totals(reports: &[Value]) -> Vec<Value> {
    reports.iter().map(|report| report["functions"].clone()).collect()
}

pub fn servers_are_found_by_name_and_the_dead_are_told_from_the_living() {
    let folder = tempfile::tempdir().expect("a folder");
    let sentence = |output: Output| output.standard_error;
    assert!(sentence(ask(folder.path(), "stat", 3)).contains("no server runs"));
    assert!(ask(folder.path(), "list", 0).standard_output.contains("no server runs"));
    let mut first = Serving::start_in(folder, "A B");
    let shared = first.folder().to_owned();
    let second = program::start(&format!("serve C --name second --folder {}", shared.display()));
    wait_for(|| shared.join("second.management").exists() && UnixStream::connect(shared.join("C.sock")).is_ok());
    let list = &json(&shared, "list")[0];
    let names: Vec<_> =
        list["servers"].as_array().expect("servers").iter().map(|server| server["name"].clone()).collect();
    assert_eq!(names, ["main", "second"]);
    assert_eq!(list["servers"][1]["adapters"][0]["name"], "C");
    assert_eq!(list["servers"][0]["process"], first.id());
    assert!(sentence(ask(&shared, "stat", 2)).contains("choose one with --server"));
    assert_eq!(json(&shared, "stat --server second").len(), 1);
    assert!(sentence(ask(&shared, "stat --server third", 2)).contains("main, second"));
    assert!(sentence(ask(&shared, "show D --server main", 2)).contains("A, B"));
    let same_name = program::run(program::command(&format!("serve D --name second --folder {}", shared.display())));
    assert_eq!(same_name.status.code(), Some(3));
    assert!(same_name.standard_error.contains("second runs already"), "{}", same_name.standard_error);
    // A killed server is dead, the other one is then the only one; nothing is cleaned by hand.
    first.child().kill();
    let list = &json(&shared, "list")[0];
    assert_eq!(
        (list["dead"].clone(), list["servers"].as_array().map(Vec::len)),
        (serde_json::json!(["main"]), Some(1))
    );
    assert!(ask(&shared, "list", 0).standard_output.contains("server main: dead"));
    assert_eq!(json(&shared, "show").len(), 1);
    assert!(sentence(ask(&shared, "events --server main", 3)).contains("dead"));
    let again = Serving::start_in(first.into_folder(), "A B");
    assert_eq!(json(again.folder(), "list")[0]["dead"], serde_json::json!([]));
    pair(&again).run();
    drop(second);
}

#[track_caller]
fn wait_for(condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(10), "it does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn hostile_messages_leave_the_server_unharmed() {
    let mut serving = Serving::start("A B");
    let mut pair = pair(&serving);
    let path = serving.folder().join("main.management");
    let connect = || {
        let stream = UnixStream::connect(&path).expect("a client");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a limit");
        stream
    };
    let mut nested = "[".repeat(60_000).into_bytes();
    nested.push(b'\n');
    let lines: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\n",
        b"\xff\xfe\x00\x01\n",
        b"{\"schema\":\"rnic.management/1\",\"request\":\"stat\",\"adapter\":\"A\",\"queues_from\":-1}\n",
        b"{\"schema\":\"rnic.management/1\",\"request\":\"objects\",\"adapter\":\"A\",\"kind\":\"keys\",\"page\":{\"from\":1e300}}\n",
        b"{\"schema\":\"rnic.management/1\",\"request\":\"trace\",\"adapter\":\"../../A\",\"crossings_from\":0,\"packets_from\":0}\n",
        &nested,
    ];
    for line in lines {
        let stream = connect();
        (&stream).write_all(line).expect("sent");
        let mut reply = String::new();
        BufReader::new(&stream).read_line(&mut reply).expect("a reply");
        let reply: Value = serde_json::from_str(&reply).expect("JSON");
        assert!(
            reply["error"]["message"].is_string(),
            "{}: {reply}",
            String::from_utf8_lossy(&line[..line.len().min(80)])
        );
    }
    // Half a request and silence; a line without an end; many that connect and say nothing.
    let mut half = connect();
    half.write_all(b"{\"schema\":\"rnic.mana").expect("sent");
    let mut endless = connect();
    let _ = endless.write_all(&vec![b' '; 1 << 20]);
    let mut last_words = Vec::new();
    let _ = endless.read_to_end(&mut last_words);
    assert!(String::from_utf8_lossy(&last_words).contains("too_long"), "{last_words:?}");
    let _silent: Vec<_> = (0..40).map(|_| UnixStream::connect(&path)).collect();
    pair.run();
    assert_eq!(json(serving.folder(), "stat").len(), 2);
    assert!(serving.child().ended().is_none(), "the server runs");
}

/// A server whose standard error can be read.
struct Talking {
    child: Child,
    folder: tempfile::TempDir,
    error: std::path::PathBuf,
}

impl Talking {
    fn start() -> Talking {
        let folder = tempfile::Builder::new().prefix("t").tempdir().expect("a folder");
        let error = folder.path().join("error.txt");
        let mut command = program::command(&format!("serve A B --folder {}", folder.path().display()));
        let file = std::fs::File::create(&error).expect("a file");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        let child = Child::start(command).expect("it starts");
        let talking = Talking { child, folder, error };
        wait_for(|| ["A", "B"].iter().all(|name| UnixStream::connect(talking.socket(name)).is_ok()));
        // Those looks were clients that came and went.
        wait_for(|| json(talking.folder.path(), "list")[0]["servers"][0]["adapters"][0]["attached"] == false);
        talking
    }

    fn socket(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(format!("{name}.sock"))
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.child.id() as i32).expect("a process"), signal).expect("the signal is sent");
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.error).expect("its standard error")
    }

    /// It is alive a while later.
    #[track_caller]
    fn stays(&mut self) {
        std::thread::sleep(Duration::from_millis(400));
        assert!(self.child.ended().is_none(), "it has ended: {}", self.said());
    }

    #[track_caller]
    fn ends(&mut self) {
        let limit = rnic_ci::deadline::Deadline::new("rnic serve ends", Duration::from_secs(10));
        let status = self.child.wait(&limit).expect("it ends");
        assert!(status.success(), "{status}: {}", self.said());
    }
}

pub fn an_interrupt_with_a_guest_attached_warns_and_waits() {
    // A second interrupt ends it.
    let mut server = Talking::start();
    let guest = over_socket(&server.socket("B"));
    server.signal(Signal::INT);
    wait_for(|| server.said().contains("interrupt again"));
    for words in ["adapter B", "all ones", "reboot of the guest aborts QEMU"] {
        assert!(server.said().contains(words), "{words}: {}", server.said());
    }
    server.stays();
    server.signal(Signal::INT);
    server.ends();
    drop(guest);
    // The guest's leaving ends it as well.
    let mut server = Talking::start();
    let guest = over_socket(&server.socket("A"));
    server.signal(Signal::INT);
    server.stays();
    drop(guest);
    server.ends();
    // SIGTERM does not ask, and without a guest nor does SIGINT.
    let mut server = Talking::start();
    let guest = over_socket(&server.socket("A"));
    server.signal(Signal::TERM);
    server.ends();
    assert!(!server.said().contains("attached"), "{}", server.said());
    drop(guest);
    let mut server = Talking::start();
    server.signal(Signal::INT);
    server.ends();
    assert_eq!(server.said(), "");
}
