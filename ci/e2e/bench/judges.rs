//! Judges that are not ours: scapy and tshark about frames, lspci about a configuration space.

use rnic_ci::tools::Tools;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
const SCAPY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/ci/judges/scapy_roce.py");

/// Random valid frames that scapy has built, each with its fields and with one flipped bit.
pub fn scapy_make(tools: &Tools, count: u32, seed: u64) -> Vec<Value> {
    let (count, seed) = (count.to_string(), seed.to_string());
    let made = tools.python().run(&[SCAPY, "make", &count, &seed], LIMIT).expect("scapy runs");
    lines(&made.success("scapy").expect("scapy makes frames").standard_output)
}

/// scapy's view of every RoCEv2 packet of a capture; all of them are right.
pub fn scapy_verify(tools: &Tools, capture: &Path) -> Vec<Value> {
    let path = capture.to_str().expect("a path in text");
    let verified = tools.python().run(&[SCAPY, "verify", "--payload", path], LIMIT).expect("scapy runs");
    assert!(verified.status.success(), "{}\n{}", verified.standard_output, verified.standard_error);
    lines(&verified.standard_output)
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// tshark's view: a row a frame, a text a field, empty where the frame has no such field.
pub fn tshark_fields(tools: &Tools, capture: &Path, fields: &[&str]) -> Vec<Vec<String>> {
    let path = capture.to_str().expect("a path in text");
    // A field may occur twice in its tree; the first is that of the header.
    let mut arguments = vec!["-r", path, "-T", "fields", "-E", "separator=|", "-E", "occurrence=f"];
    fields.iter().for_each(|field| arguments.extend(["-e", field]));
    let read = tools.tshark().run(&arguments, LIMIT).expect("tshark runs").success("tshark").expect("tshark reads");
    read.standard_output.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect()
}

/// What lspci says about a configuration space, given as `lspci -xxxx` prints it.
pub fn lspci(tools: &Tools, dump: &Path) -> String {
    let path = dump.to_str().expect("a path in text");
    let read = tools.lspci().run(&["-vv", "-nn", "-F", path], LIMIT).expect("lspci runs");
    read.success("lspci").expect("lspci reads").standard_output
}
