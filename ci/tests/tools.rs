//! The outside judges work on a packet that nobody of us wrote: scapy builds it, tshark reads it.

mod laboratory;

use std::time::Duration;

use laboratory::{options, progress, provided};
use rnic_ci::tools::Tools;

const LIMIT: Duration = Duration::from_secs(120);

/// An RC SEND Only to QP 0x123456 with PSN 0xabcdef, its ICRC computed by scapy.
const BUILD: &str = "
import sys
from scapy.all import Ether, IP, UDP, Raw, wrpcap
from scapy.contrib.roce import *
packet = Ether(src='02:00:00:00:00:01', dst='02:00:00:00:00:02') / IP(src='10.0.0.1', dst='10.0.0.2', ttl=64)
packet = packet / UDP(sport=0xc000, dport=4791) / BTH(opcode=opcode('RC', 'SEND_ONLY')[0], dqpn=0x123456, psn=0xabcdef, ackreq=1) / Raw(b'payload!')
wrpcap(sys.argv[1], [packet])
print('built', len(bytes(packet)))
";

#[test]
fn scapy_builds_what_tshark_reads() {
    let Some(tools) = provided(Tools::provide(&options(), &mut progress())) else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let capture = folder.path().join("one.pcap");
    let capture = capture.to_str().expect("text");
    let built =
        tools.python().run(&["-c", BUILD, capture], LIMIT).and_then(|output| output.success("python")).expect("built");
    // Ethernet, IPv4, UDP, BTH, payload, ICRC.
    assert_eq!(built.standard_output, format!("built {}\n", 14 + 20 + 8 + 12 + 8 + 4));

    let mut arguments = vec!["-r", capture, "-T", "fields", "-E", "separator=/s"];
    for field in ["infiniband.bth.opcode", "infiniband.bth.destqp", "infiniband.bth.psn", "infiniband.bth.a"] {
        arguments.extend(["-e", field]);
    }
    let read = tools.tshark().run(&arguments, LIMIT).and_then(|output| output.success("tshark")).expect("read");
    let words: Vec<&str> = read.standard_output.split_whitespace().collect();
    assert_eq!(words, ["4", "0x123456", "11259375", "True"], "{}", read.standard_error);
}
