//! Reading a capture: the frames of a pcapng file.

use pcap_file::pcapng::PcapNgReader;
use std::fs::File;
use std::path::Path;

pub fn frames(path: &Path) -> Vec<Vec<u8>> {
    let mut reader = PcapNgReader::new(File::open(path).expect("a capture")).expect("pcapng");
    let mut frames = Vec::new();
    while let Some(block) = reader.next_block() {
        if let Some(packet) = block.expect("a whole block").into_enhanced_packet() {
            frames.push(packet.data.into_owned());
        }
    }
    frames
}
