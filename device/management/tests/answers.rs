//! What a live server answers, with a driver on the other side that writes registers alone.

use super::super::answers::ServerAnswers;
use super::super::protocol::{ObjectKind, Page, Reason, Request, Span};
use super::super::session::Answers;
use crate::server::{Server, adapter_options};
use crate::vfio_user::Backend;
use rnic_abi::registers::{REG_MAGIC, REG_MARK};
use rnic_switch::SwitchConfig;
use serde_json::Value;

fn server() -> (Server, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let adapters = ["A", "B"].map(|name| adapter_options(name, folder.path())).to_vec();
    (Server::start(adapters, SwitchConfig::default()).expect("a server"), folder)
}

fn write(server: &Server, offset: u32, data: &[u8]) {
    let data = data.to_vec();
    let adapter = server.adapter("A").expect("adapter A");
    let written = adapter.call(move |adapter| {
        let written = adapter.function.region_write(0, offset.into(), &data);
        // As the adapter's own step does behind the accesses that it serves.
        adapter.function.complete_marks(&adapter.ethernet.link);
        written
    });
    written.expect("an answer").expect("written");
}

fn a() -> String {
    "A".to_owned()
}

fn stat(span: Span, zero: bool) -> Request {
    Request::Stat { adapter: a(), span, zero, queues_from: 0 }
}

fn register_writes(report: &Value) -> u64 {
    report["functions"][0]["classes"]["register_write"]["crossings"].as_u64().unwrap_or(0)
}

#[test]
fn totals_since_the_start_since_zero_and_between_marks() {
    let (server, _folder) = server();
    let mut answers = ServerAnswers::new(&server, "main", false);
    let mark = |value: u64| write(&server, REG_MARK, &value.to_le_bytes());
    mark(1);
    (0..5).for_each(|_| write(&server, REG_MAGIC, &[0; 4]));
    mark(2);
    let mut ask = |request| answers.answer(request).expect("an answer");
    let between = ask(stat(Span::Between(1, 2), false));
    assert_eq!((register_writes(&between), between["since"]["mark"].as_u64()), (5, Some(1)));
    assert_eq!(register_writes(&ask(stat(Span::SinceZero, false))), 7);
    assert_eq!(register_writes(&ask(stat(Span::SinceZero, true))), 7, "what was counted before is still shown");
    write(&server, REG_MAGIC, &[0; 4]);
    let since = ask(stat(Span::SinceZero, false));
    assert_eq!((register_writes(&since), since["since"]["what"].as_str()), (1, Some("zero")));
    assert_eq!(register_writes(&ask(stat(Span::SinceStart, false))), 8);
    let marks = ask(Request::Marks { adapter: a() });
    assert_eq!(marks["marks"].as_array().map(Vec::len), Some(2));
    // A half is a mark too.
    write(&server, REG_MARK, &7u32.to_le_bytes());
    assert_eq!(register_writes(&ask(stat(Span::Between(2, 7), false))), 1);
    let missing = answers.answer(stat(Span::Between(1, 0x99), false)).expect_err("no such mark");
    assert!(missing.reason == Reason::NotFound && missing.message.contains("0x99"), "{missing}");
}

/// The Ethernet function's registers, beside marks of the RNIC's driver.
#[test]
fn the_ethernet_function_is_counted_and_shown() {
    let (server, _folder) = server();
    let mut answers = ServerAnswers::new(&server, "main", false);
    let adapter = server.adapter("A").expect("adapter A");
    let status = move |value: u8| {
        let written = adapter.call(move |adapter| adapter.ethernet.region_write(0, 0x14, &[value]));
        written.expect("an answer").expect("written");
    };
    let mark = |value: u64| write(&server, REG_MARK, &value.to_le_bytes());
    let mut ask = |request| answers.answer(request).expect("an answer");
    let stores = |report: &Value| {
        let function = &report["functions"][1];
        assert_eq!((&function["function"], &function["name"]), (&1.into(), &"ethernet".into()));
        let classes = function["classes"].as_object().expect("classes");
        assert!(classes.keys().all(|class| class.starts_with("net_")), "{classes:?}");
        (function["total"]["crossings"].as_u64(), register_writes(report))
    };
    status(1);
    mark(1);
    (0..3).for_each(|_| status(3));
    mark(2);
    status(3);
    assert_eq!(stores(&ask(stat(Span::Between(1, 2), false))), (Some(3), 0));
    assert_eq!(stores(&ask(stat(Span::SinceZero, true))), (Some(5), 2));
    status(3);
    assert_eq!(stores(&ask(stat(Span::SinceZero, false))), (Some(1), 0));
    assert_eq!(stores(&ask(stat(Span::SinceStart, false))), (Some(6), 2));
    let shown = &ask(Request::Show { adapter: a() })["ethernet"];
    assert_eq!(
        (&shown["attached"], &shown["running"], &shown["link_up"]),
        (&false.into(), &false.into(), &true.into())
    );
    let queues: Vec<_> = shown["queues"].as_array().expect("queues").iter().map(|queue| &queue["name"]).collect();
    assert_eq!(queues, ["receive", "transmit", "control"]);
    // A reset of the device by its driver is one.
    status(0);
    assert_eq!(ask(Request::Show { adapter: a() })["ethernet"]["resets"], 1);
    let server = &ask(Request::Server {})["adapters"][0];
    assert_eq!(server["ethernet_attached"], false);
    assert!(server["ethernet_socket"].as_str().is_some_and(|path| path.contains("A")), "{server}");
}

#[test]
fn diagnostics_are_read_by_any_number_of_readers() {
    let (server, _folder) = server();
    let mut answers = ServerAnswers::new(&server, "main", false);
    (0..3).for_each(|_| write(&server, REG_MAGIC, &[0; 4]));
    for _ in 0..2 {
        let events = answers.answer(Request::Events { adapter: a(), page: Page::from(2) }).expect("an answer");
        assert_eq!(events["events"].as_array().map(Vec::len), Some(2));
        assert_eq!((events["events"][0]["number"].as_u64(), events["next"].as_u64()), (Some(101), Some(4)));
        assert_eq!(events["events"][0]["severity"], "warning");
    }
}

#[test]
fn a_record_begins_when_it_is_asked_for_ends_when_told_and_says_what_it_missed() {
    let (server, _folder) = server();
    let mut answers = ServerAnswers::new(&server, "main", false);
    let trace = |from| Request::Trace { adapter: a(), crossings_from: from, packets_from: 1, limit: 2 };
    write(&server, REG_MAGIC, &[0; 4]);
    let begun = answers.answer(trace(1)).expect("an answer");
    assert_eq!((begun["began"].as_bool(), begun["lost"]["crossings"].as_u64()), (Some(true), Some(1)));
    (0..3).for_each(|_| write(&server, REG_MAGIC, &[0; 4]));
    let read = answers.answer(trace(2)).expect("an answer");
    assert_eq!((read["began"].as_bool(), read["more"].as_bool()), (Some(false), Some(true)));
    let sequences: Vec<_> =
        read["entries"].as_array().expect("entries").iter().map(|e| e["sequence"].clone()).collect();
    assert_eq!(sequences, [2, 3]);
    assert_eq!(read["next"]["crossings"], 4);
    answers.answer(Request::StopTrace { adapter: a() }).expect("stopped");
    let is_watched = |adapter: &mut crate::adapter::Adapter| adapter.function.link.trace().is_watched();
    let adapter = server.adapter("A").expect("adapter A");
    assert!(!adapter.call(is_watched).expect("an answer"));
    // A record whose watcher has gone ends by itself.
    answers.answer(trace(1)).expect("an answer");
    answers.end_unwatched(std::time::Instant::now());
    assert!(adapter.call(is_watched).expect("an answer"));
    answers.end_unwatched(std::time::Instant::now() + std::time::Duration::from_secs(3600));
    assert!(!adapter.call(is_watched).expect("an answer"));
}

#[test]
fn names_that_do_not_exist_and_threads_that_do_not_answer_are_errors() {
    let (server, _folder) = server();
    let mut answers = ServerAnswers::new(&server, "main", true);
    let who = answers.answer(Request::Server {}).expect("an answer");
    assert_eq!((who["strict"].as_bool(), who["adapters"][1]["name"].as_str()), (Some(true), Some("B")));
    let refusal = answers.answer(Request::Show { adapter: "C".into() }).expect_err("no adapter C");
    assert!(refusal.reason == Reason::NotFound && refusal.message.contains("A, B"), "{refusal}");
    let show = answers.answer(Request::Show { adapter: a() }).expect("an answer");
    assert_eq!((show["enabled"].as_bool(), show["objects"]["queue_pairs"].as_u64()), (Some(false), Some(0)));
    for kind in [
        ObjectKind::QueuePairs,
        ObjectKind::CompletionQueues,
        ObjectKind::EventQueues,
        ObjectKind::SharedReceiveQueues,
        ObjectKind::Keys,
    ] {
        let page = Page { from: u64::MAX, limit: 0 };
        answers.answer(Request::Objects { adapter: a(), kind, page }).expect("an empty page");
    }
    // A thread that is held up.
    let adapter = server.adapter("A").expect("adapter A");
    let (release, held) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(|| adapter.call(move |_| held.recv()));
        std::thread::sleep(std::time::Duration::from_millis(100));
        let refusal = answers.answer(Request::Show { adapter: a() }).expect_err("it is held up");
        assert!(refusal.reason == Reason::Unavailable && refusal.message.contains("does not answer"), "{refusal}");
        answers.answer(Request::Show { adapter: "B".into() }).expect("the other one answers");
        release.send(()).expect("it waits");
    });
    answers.answer(Request::Show { adapter: a() }).expect("it answers again");
}
