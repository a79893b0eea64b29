//! Programs that ordinary runs leave out: `rnic-ci matrix` runs them on both kernels and writes the table of docs/guests.md.
//!
//! A row that fails does not end its step: the others are run and told of, one line each, and the step fails at its end.

use super::pair::Guests;
use super::{lab, shell};
use crate::bench::fabric::Fabric;
use std::time::Instant;

/// Shell conditions by which the client's half knows that the server's is there.
const ON_SOCKET: &str = "grep -qs ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6";
const BY_MANAGER: &str = "rdma resource show cm_id | grep -q LISTEN";
const QPERF: &str = "grep -qs ':4D35 .* 0A ' /proc/net/tcp /proc/net/tcp6";
/// Nothing shows that it is there.
const AFTER_A_MOMENT: &str = "sleep 2";

struct Row {
    title: String,
    server: String,
    client: String,
    listens: &'static str,
}

/// perftest: the same words on both sides, and the server's address behind the client's.
fn perftest(program: &str) -> Row {
    let line = format!("{program} -F -d rnic0");
    let client = format!("{line} 10.0.0.1");
    let listens = if program.contains(" -R") { BY_MANAGER } else { ON_SOCKET };
    Row { title: program.to_owned(), server: line, client, listens }
}

fn managed(server: &str, client: &str) -> Row {
    Row { title: client.to_owned(), server: server.to_owned(), client: client.to_owned(), listens: BY_MANAGER }
}

/// The server of qperf serves until it is told to end. It listens a moment after it has told where, on any device (rdma_rxe is
/// refused as often): a client that was sooner tries again.
fn qperf(test: &str) -> Row {
    let once = format!("qperf -cm 1 -t 1 10.0.0.1 {test}");
    let client =
        format!("code=1; for i in 1 2 3 4 5 6; do {once} && code=0 && break; done; qperf 10.0.0.1 quit; exit $code");
    Row { title: format!("qperf -cm 1 {test}"), server: "qperf".into(), client, listens: QPERF }
}

/// Runs the rows one after the other. `table` is what `rnic-ci matrix` reads.
fn run(rows: &[Row]) {
    let (lab, fabric) = (lab(), Fabric::new());
    let mut guests = Guests::start(&lab, &fabric);
    let release = shell(&mut guests.client, "uname -r");
    let version = shell(&mut guests.client, "ib_write_bw --version; true");
    println!("table\tkernel\t{release}\t{}", version.trim_start_matches("Version: "));
    for guest in [&mut guests.server, &mut guests.client] {
        shell(guest, "ip route add 224.0.0.0/4 dev eth0");
    }
    let mut failed = Vec::new();
    for row in rows {
        let begin = Instant::now();
        let (codes, printed) = guests.attempt(&row.server, row.listens, &row.client);
        let result = if codes == [0, 0] { "ok".to_owned() } else { format!("exit {} and {}", codes[0], codes[1]) };
        println!("table\trow\t{}\t{result}\t{:.1}", row.title, begin.elapsed().as_secs_f64());
        if codes != [0, 0] {
            println!("server:\n{}\nclient:\n{}", printed[0], printed[1]);
            failed.push(row.title.as_str());
        }
    }
    guests.end();
    assert_eq!(failed, [""; 0], "these failed");
}

pub fn perftest_in_all_sizes() {
    let programs = [
        "ib_send_bw -a -n 10",
        "ib_write_bw -a -n 10",
        "ib_read_bw -a -n 10",
        "ib_send_lat -a -n 10",
        "ib_write_lat -a -n 10",
        "ib_read_lat -a -n 10",
        "ib_send_bw -c UC -a -n 10",
        "ib_write_bw -c UC -a -n 10",
        "ib_send_bw -c UD -a -n 10",
        "ib_send_bw -c XRC -a -n 10",
        "ib_write_bw -c XRC -a -n 10",
    ];
    run(&programs.map(perftest));
}

pub fn perftest_with_other_queues() {
    let programs = [
        "ib_write_bw -q 64 -n 100 -s 4096",
        "ib_read_bw -q 16 -n 50 -s 4096",
        "ib_send_bw -q 16 -b -n 50 -s 4096",
        "ib_atomic_bw -q 8 -n 50",
        "ib_atomic_lat -A FETCH_AND_ADD -n 100",
        "ib_send_bw --use-srq -n 100",
        "ib_send_bw --use-srq -q 8 -n 100 -s 1024",
        "ib_send_lat --use-srq -n 100",
        "ib_send_bw -c UD -q 8 -n 100",
        "ib_send_bw -c UD -b -n 100",
        "ib_send_bw -c UC -b -n 100",
        "ib_send_lat -c UC -n 100",
        "ib_write_lat -c UC -n 100",
        "ib_read_bw -b -n 100",
        "ib_atomic_bw -b -n 100",
        "ib_write_lat -I 220 -s 220 -n 100",
        "ib_send_lat -I 200 -s 200 -n 100",
        "ib_send_lat -c UD -I 128 -s 128 -n 100",
        "ib_atomic_bw -e -n 100",
        "ib_read_bw -e -n 100",
        "ib_send_bw -c UD -e -n 100",
        "ib_send_bw -b -e -n 100",
        "ib_write_bw -m 256 -n 100",
        "ib_write_bw -m 1024 -n 100",
        "ib_send_bw -l 4 -n 100",
    ];
    run(&programs.map(perftest));
}

pub fn connections_by_address() {
    let mut rows: Vec<Row> = [
        "ib_write_bw -R -n 100",
        "ib_read_bw -R -n 100",
        "ib_send_bw -R -n 100",
        "ib_send_lat -R -n 100",
        "ib_write_lat -R -n 100",
        "ib_atomic_bw -R -n 100",
        "ib_send_bw -R -c UD -n 100",
        "ib_send_bw -R -q 4 -n 100",
    ]
    .iter()
    .map(|program| perftest(program))
    .collect();
    rows.extend([
        managed("rping -s -a 10.0.0.1 -C 100 -S 4000 -v", "rping -c -a 10.0.0.1 -C 100 -S 4000 -v"),
        managed("ucmatose -c 10 -C 20 -S 2000", "ucmatose -s 10.0.0.1 -c 10 -C 20 -S 2000"),
        managed("udaddy -c 4 -C 20 -S 1000", "udaddy -s 10.0.0.1 -c 4 -C 20 -S 1000"),
        managed("rstream -S 65536 -I 20", "rstream -s 10.0.0.1 -S 65536 -I 20"),
        managed("rstream -T b -S 65536 -I 20", "rstream -s 10.0.0.1 -T b -S 65536 -I 20"),
        managed("riostream -S 65536 -I 20", "riostream -s 10.0.0.1 -S 65536 -I 20"),
        managed("cmtime -c 20", "cmtime -s 10.0.0.1 -c 20"),
        Row {
            title: "mckey -m 239.1.2.3".into(),
            server: "mckey -m 239.1.2.3 -b 10.0.0.1".into(),
            client: "mckey -m 239.1.2.3 -b 10.0.0.2 -s".into(),
            listens: AFTER_A_MOMENT,
        },
    ]);
    run(&rows);
}

/// Those of reliable connections: the others address by LID, which RoCE has not, and fail on rdma_rxe alike.
pub fn qperf_s_rdma_tests() {
    let tests = [
        "rc_bw",
        "rc_lat",
        "rc_bi_bw",
        "rc_rdma_read_bw",
        "rc_rdma_read_lat",
        "rc_rdma_write_bw",
        "rc_rdma_write_lat",
        "rc_rdma_write_poll_lat",
        "rc_compare_swap_mr",
        "rc_fetch_add_mr",
        "ver_rc_compare_swap",
        "ver_rc_fetch_add",
    ];
    run(&tests.map(qperf));
}
