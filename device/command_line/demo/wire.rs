//! A tap on the wire: the frames of a refused operation, to find the refusal among them.
//!
//! In: the switch's capture, as it is written. Out: the NAK, read from its packet by nothing but the wire format.

use super::report::NakRow;
use pcap_file::pcapng::PcapNgReader;
use rnic_device::server::Server;
use rnic_wire::{IcrcCheck, NakCode, Syndrome, parse};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

/// What was captured so far.
#[derive(Clone, Debug, Default)]
pub struct Tap(Arc<Mutex<Vec<u8>>>);

/// The capture's sink: the tap, and the user's own where there is one.
pub struct Beside {
    tap: Tap,
    file: Option<Box<dyn Write + Send>>,
}

impl Tap {
    pub fn beside(&self, file: Option<Box<dyn Write + Send>>) -> Beside {
        Beside { tap: self.clone(), file }
    }

    /// The first NAK, once the capture has written out what it holds.
    pub fn refusal(&self, server: &Server) -> Option<NakRow> {
        // What the user's own file makes of it has been told already.
        let _ = server.switch.capture().flush();
        first_nak(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn first_nak(capture: &[u8]) -> Option<NakRow> {
    let mut reader = PcapNgReader::new(capture).ok()?;
    while let Some(Ok(block)) = reader.next_block() {
        let Some(packet) = block.into_enhanced_packet() else { continue };
        let Ok(packet) = parse(&packet.data, IcrcCheck::Verify) else { continue };
        if let Some(aeth) =
            packet.description.headers.contains(rnic_wire::Headers::AETH).then_some(packet.headers.extension.aeth)
            && let Syndrome::Nak { code } = aeth.syndrome
        {
            return Some(NakRow {
                syndrome: aeth.syndrome.to_byte(),
                meaning: meaning(code),
                psn: packet.headers.bth.psn.get(),
                msn: aeth.msn.get(),
                dest_qp: packet.headers.bth.dest_qp,
            });
        }
    }
    None
}

fn meaning(code: NakCode) -> &'static str {
    match code {
        NakCode::PSN_SEQUENCE_ERROR => "PSN sequence error",
        NakCode::INVALID_REQUEST => "invalid request",
        NakCode::REMOTE_ACCESS_ERROR => "remote access error",
        NakCode::REMOTE_OPERATIONAL_ERROR => "remote operational error",
        _ => "another code",
    }
}

impl Write for Beside {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.tap.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        self.file.as_mut().map_or(Ok(bytes.len()), |file| file.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), Write::flush)
    }
}
