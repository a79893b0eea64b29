//! `rnic bench` as its users run it: what it tells, that the data was right, and that the ledgers hold what the messages
//! must have cost. No speed is asserted: the machine may be busy.

use crate::bench::program::{command, run};
use serde_json::Value;

fn bench(arguments: &str) -> Value {
    let output = run(command(&format!("bench {arguments} --json")));
    let (text, errors) = (&output.standard_output, &output.standard_error);
    assert_eq!(output.status.code(), Some(0), "rnic bench {arguments}\n{text}\n{errors}");
    assert_eq!(text.lines().count(), 1, "one object and nothing else: {text}");
    let report: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(report["schema"], "rnic.bench/1");
    assert_eq!(report["data_verified"], true);
    report
}

fn number(row: &Value, field: &str) -> u64 {
    row[field].as_u64().unwrap_or_else(|| panic!("{field} of {row}"))
}

/// Crossings and bytes of a class at an adapter.
fn crossed(row: &Value, adapter: &str, class: &str) -> [u64; 2] {
    let cell = &row["ledger"][adapter][class];
    [0, 1].map(|at| cell[at].as_u64().unwrap_or(0))
}

fn rows<'a>(report: &'a Value, field: &str) -> &'a Vec<Value> {
    report[field].as_array().unwrap_or_else(|| panic!("{field} of {report}"))
}

/// What a run of messages costs, sent again or not: requests may cross the requester's link twice, never the responder's.
fn check_flow(row: &Value, mtu: u64) {
    let (messages, length) = (number(row, "messages"), number(row, "length_bytes"));
    let packets = messages * length.div_ceil(mtu);
    let batches = messages.div_ceil(number(row, "batch"));
    let [read, read_bytes] = crossed(row, "A", "payload_read");
    assert!(read >= packets && read_bytes >= messages * length, "{row}");
    assert_eq!(crossed(row, "B", "payload_write"), [packets, messages * length], "{row}");
    assert_eq!(crossed(row, "A", "doorbell"), [batches, batches * 8], "{row}");
    assert_eq!(crossed(row, "A", "cqe_write"), [batches, batches * 64], "one signaled request a batch: {row}");
    let arrived = if row["operation"] == "SEND" { messages } else { 0 };
    assert_eq!(crossed(row, "B", "recv_wqe_fetch"), [arrived, arrived * 16], "{row}");
    assert_eq!(crossed(row, "B", "cqe_write"), [arrived, arrived * 64], "{row}");
    assert_eq!(crossed(row, "A", "context_fetch")[0] + crossed(row, "B", "key_fetch")[0], 0, "caches are warm: {row}");
}

pub fn the_bench_verifies_its_data_and_its_ledgers_add_up() {
    let report = bench("--quick --runs 3 --length 8 4096 1048576 --only throughput --only rate --only latency");
    for limit in ["memcpy_bytes_per_second", "crc_bytes_per_second", "far_load_ns", "socket_round_trip_p50_ns"] {
        assert!(report["limits"][limit].as_f64().is_some_and(|value| value > 0.0), "{limit}: {report}");
    }
    let throughput = rows(&report, "throughput");
    let named: Vec<_> = throughput
        .iter()
        .map(|row| (row["operation"].clone(), number(row, "length_bytes"), row["icrc"].clone()))
        .collect();
    let expected: Vec<(Value, u64, Value)> =
        [("WRITE", 8), ("WRITE", 4096), ("WRITE", 1 << 20), ("SEND", 8), ("SEND", 4096), ("SEND", 1 << 20)]
            .iter()
            .map(|(operation, length)| ((*operation).into(), *length, "deferred".into()))
            .chain(["WRITE", "SEND"].map(|operation| (operation.into(), 1 << 20, "always".into())))
            .collect();
    assert_eq!(named, expected);
    for row in throughput {
        assert!(row["bytes_per_second"].as_f64().is_some_and(|rate| rate > 0.0), "{row}");
        assert_eq!(row["runs_bytes_per_second"].as_array().map(Vec::len), Some(3), "{row}");
        check_flow(row, 4096);
    }
    assert!(report["busy_poll"].is_null() && report["scale"].is_null(), "only where asked for: {report}");
    let rate = &report["message_rate"];
    assert_eq!((number(rate, "length_bytes"), number(rate, "depth")), (64, 128));
    check_flow(rate, 4096);
    let latency = rows(&report, "latency");
    assert_eq!(latency.iter().map(|row| row["completion"].clone()).collect::<Vec<_>>(), ["polled", "event"]);
    for row in latency {
        let messages = number(row, "messages");
        assert!(number(row, "p50_ns") > 0 && number(row, "p50_ns") <= number(row, "p99_ns"), "{row}");
        for class in ["doorbell", "wqe_fetch", "payload_read", "cqe_write"] {
            assert_eq!(crossed(row, "A", class)[0], messages, "{class}: {row}");
        }
        let events = if row["completion"] == "event" { messages } else { 0 };
        assert_eq!((crossed(row, "A", "event")[0], crossed(row, "A", "cq_arm")[0]), (events, events), "{row}");
    }
}

/// A tenth of the goal's numbers. Each message has its doorbell, and all contexts and keys are in the caches.
pub fn the_bench_tells_the_cost_among_many_objects_beside_the_cost_among_few() {
    let report = bench("--quick --runs 1 --only scale");
    let scale = &report["scale"];
    let sizes = [&scale["few"], &scale["many"]];
    let size = |row| (number(row, "queue_pairs"), number(row, "regions"));
    assert_eq!(sizes.map(size), [(10, 10), (1_000, 10_000)]);
    let messages = number(scale, "messages");
    for row in sizes {
        for (adapter, class) in [("A", "doorbell"), ("A", "payload_read"), ("A", "cqe_write"), ("B", "payload_write")] {
            assert_eq!(crossed(row, adapter, class)[0], messages, "{adapter} {class}: {row}");
        }
        for (adapter, class) in [("A", "context_fetch"), ("A", "key_fetch"), ("B", "context_fetch"), ("B", "key_fetch")]
        {
            assert_eq!(crossed(row, adapter, class)[0], 0, "{adapter} {class}: {row}");
        }
    }
    let cost = |row: &Value| row["ns_per_message"].as_f64().expect("a cost");
    let processor = |row: &Value| {
        let of = |adapter| row["processor_ns_per_message"][adapter].as_f64().expect("a cost");
        assert!(of("A") > 0.0 && of("B") > 0.0, "{row}");
        of("A") + of("B")
    };
    for (ratio, [few, many]) in [("many_to_few", sizes.map(cost)), ("processor_many_to_few", sizes.map(processor))] {
        let told = scale[ratio].as_f64().expect("a ratio");
        assert!(few > 0.0 && (told - many / few).abs() < 1e-6, "{ratio}: {scale}");
    }
}

/// Threads that spin do the same work: the same crossings, and rows of their own.
pub fn the_bench_measures_busy_polling_beside_the_usual_way() {
    let report = bench("--quick --runs 1 --only rate --only latency --busy-poll 50");
    let busy = &report["busy_poll"];
    assert_eq!(number(busy, "busy_poll_us"), 50);
    for way in [&report, busy] {
        check_flow(&way["message_rate"], 4096);
        let latency = rows(way, "latency");
        assert_eq!(latency.iter().map(|row| row["completion"].clone()).collect::<Vec<_>>(), ["polled", "event"]);
        for row in latency {
            assert_eq!(crossed(row, "A", "cqe_write")[0], number(row, "messages"), "{row}");
        }
    }
}

pub fn the_bench_measures_what_it_is_asked_for_and_refuses_the_rest() {
    let report =
        bench("--quick --runs 1 --only throughput --operation write --length 10000 --mtu 1024 --icrc deferred");
    let throughput = rows(&report, "throughput");
    assert_eq!(throughput.len(), 1);
    check_flow(&throughput[0], 1024);
    assert!(report["message_rate"].is_null() && rows(&report, "latency").is_empty());
    for wrong in [
        "--mtu 1000",
        "--length 0",
        "--length 1048577",
        "--only nothing",
        "--runs 0",
        "--busy-poll 0",
        "--busy-poll soon",
    ] {
        let output = run(command(&format!("bench {wrong}")));
        assert_eq!(output.status.code(), Some(2), "{wrong}: {}", output.standard_error);
    }
    let output = run(command("bench --quick --runs 1 --length 64"));
    for words in
        ["data verified", "memcpy", "message rate", "post to completion", "1000 queue pairs,  10000 regions", "ratio"]
    {
        assert!(output.standard_output.contains(words), "{words}: {}", output.standard_output);
    }
}
