//! The capture: what passes the switch, as a pcapng stream.
//!
//! In: frames with their port, direction and time. Out: one interface block a port, in nanoseconds, and one record a
//! frame, its ICRC computed. Off, it costs one atomic load. On, the ports take turns at a lock. A writer that fails
//! ends the capture with one sentence in the log; the frames go on. A writer that blocks blocks the port that captures:
//! what cannot be waited for (a pipe with a slow reader) answers `WouldBlock` to a record, which is then missing and counted.

use std::borrow::Cow;
use std::fmt;
use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use pcap_file::{DataLink, PcapError, PcapResult};
use rnic_wire::{Frame, IcrcState};
use thiserror::Error;

/// What is written, and how times are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureOptions {
    pub points: CapturePoints,
    /// The time of 0 ns on the ports' clock, in nanoseconds since 1970, so that records carry the time of day.
    pub epoch_ns: u64,
}

/// Where frames are recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CapturePoints {
    /// Once, as a port gives it to the switch: every frame, and before any impairment.
    #[default]
    Transmitted,
    /// As a port takes it from the switch: every copy, and behind the impairments.
    Received,
    /// Both; the record's direction tells which.
    Both,
}

/// A record's direction as the switch sees it, in the numbers of pcapng's `epb_flags`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Direction {
    /// From the port into the switch.
    Inbound = 1,
    /// From the switch out to the port.
    Outbound = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CaptureState {
    Off,
    Running,
    /// Stopped by an error of its writer.
    Failed,
}

/// Why a capture could not be started, flushed or stopped in order.
#[derive(Debug, Error)]
pub enum CaptureError {
    #[error("a capture is running already")]
    Running,
    #[error("the capture cannot be written: {reason}")]
    Write { reason: String },
}

/// A switch's capture.
pub struct Capture {
    state: AtomicU8,
    recorder: Mutex<Option<Recorder>>,
    /// What ended the last one that failed.
    failure: Mutex<Option<String>>,
    /// Records that the writer did not take.
    lost: AtomicU64,
}

struct Recorder {
    /// One block at a time, so that none is ever written in part.
    block: PcapNgWriter<Vec<u8>>,
    sink: Box<dyn Write + Send>,
    options: CaptureOptions,
    /// The serial number of each port that has an interface block, in the order of the blocks.
    interfaces: Vec<u64>,
    /// Where a frame whose ICRC is deferred gets one.
    sealed: Frame,
    /// The time of the last record; none is before it.
    latest_ns: u64,
}

/// The port that a record names: its serial number is never used again, its name may be.
#[derive(Clone, Copy, Debug)]
pub struct CapturedPort<'a> {
    pub serial: u64,
    pub name: &'a str,
}

const NANOSECOND_RESOLUTION: u8 = 9;
const NO_LENGTH_LIMIT: u32 = 0;

impl Capture {
    pub(crate) fn new() -> Self {
        let state = AtomicU8::new(CaptureState::Off as u8);
        Self { state, recorder: Mutex::new(None), failure: Mutex::new(None), lost: AtomicU64::new(0) }
    }

    /// Starts to write to a file, a pipe or the standard output.
    pub fn start(&self, sink: Box<dyn Write + Send>, options: CaptureOptions) -> Result<(), CaptureError> {
        let mut recorder = self.lock();
        if recorder.is_some() {
            return Err(CaptureError::Running);
        }
        let block = PcapNgWriter::new(Vec::new()).map_err(write_error)?;
        let mut started = Recorder { block, sink, options, interfaces: Vec::new(), sealed: Frame::new(), latest_ns: 0 };
        // The section's header is in the block already.
        started.write_block().map_err(write_error)?;
        *recorder = Some(started);
        self.lost.store(0, Ordering::Relaxed);
        self.set_state(CaptureState::Running);
        Ok(())
    }

    /// Writes out what is buffered.
    pub fn flush(&self) -> Result<(), CaptureError> {
        match self.lock().as_mut() {
            Some(recorder) => recorder.flush(),
            None => Ok(()),
        }
    }

    /// Ends the capture; what was buffered is written out.
    pub fn stop(&self) -> Result<(), CaptureError> {
        let Some(mut recorder) = self.lock().take() else { return Ok(()) };
        self.set_state(CaptureState::Off);
        recorder.flush()
    }

    pub fn state(&self) -> CaptureState {
        match self.state.load(Ordering::Relaxed) {
            state if state == CaptureState::Running as u8 => CaptureState::Running,
            state if state == CaptureState::Failed as u8 => CaptureState::Failed,
            _ => CaptureState::Off,
        }
    }

    /// Why the capture ended, if an error of its writer ended it.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Frames of the capture that its writer did not take in time.
    pub fn lost_frames(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn is_running(&self) -> bool {
        self.state.load(Ordering::Relaxed) == CaptureState::Running as u8
    }

    #[cold]
    pub(crate) fn record(&self, port: CapturedPort<'_>, direction: Direction, frame: &Frame, now_ns: u64) {
        let mut guard = self.lock();
        let Some(recorder) = guard.as_mut() else { return };
        if let Err(error) = recorder.record(port, direction, frame, now_ns) {
            if would_block(&error) {
                self.lost.fetch_add(1, Ordering::Relaxed);
                return;
            }
            let reason = reason(&error);
            log::error!("the capture ends here, its writer failed: {reason}");
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
            *guard = None;
            self.set_state(CaptureState::Failed);
        }
    }

    fn set_state(&self, state: CaptureState) {
        self.state.store(state as u8, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Recorder>> {
        // At worst the stream ends in the middle of a record, as after a crash.
        self.recorder.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Recorder {
    fn record(&mut self, port: CapturedPort<'_>, direction: Direction, frame: &Frame, now_ns: u64) -> PcapResult<()> {
        let wanted = match self.options.points {
            CapturePoints::Transmitted => direction == Direction::Inbound,
            CapturePoints::Received => direction == Direction::Outbound,
            CapturePoints::Both => true,
        };
        if !wanted {
            return Ok(());
        }
        // Each port's thread read the clock at the beginning of its step: behind one another, as frames are, steps overlap.
        self.latest_ns = self.latest_ns.max(self.options.epoch_ns.saturating_add(now_ns));
        let interface_id = self.interface(port)?;
        let frame = match frame.icrc {
            IcrcState::Deferred => {
                self.sealed.copy_from(frame);
                self.sealed.seal();
                &self.sealed
            }
            IcrcState::Present | IcrcState::NotRoce => frame,
        };
        let block = EnhancedPacketBlock {
            interface_id,
            timestamp: Duration::from_nanos(self.latest_ns),
            original_len: frame.length() as u32,
            data: Cow::Borrowed(frame.bytes()),
            options: vec![EnhancedPacketOption::Flags(direction as u32)],
        };
        self.block.write_pcapng_block(block)?;
        self.write_block()
    }

    /// Hands the block on as a whole.
    fn write_block(&mut self) -> PcapResult<()> {
        let block = self.block.get_mut();
        let written = self.sink.write_all(block);
        block.clear();
        written.map_err(PcapError::IoError)
    }

    /// The number of the port's interface block, written when the port is first met.
    fn interface(&mut self, port: CapturedPort<'_>) -> PcapResult<u32> {
        if let Some(known) = self.interfaces.iter().position(|&serial| serial == port.serial) {
            return Ok(known as u32);
        }
        let options = vec![
            InterfaceDescriptionOption::IfName(Cow::Borrowed(port.name)),
            InterfaceDescriptionOption::IfTsResol(NANOSECOND_RESOLUTION),
        ];
        let block = InterfaceDescriptionBlock { linktype: DataLink::ETHERNET, snaplen: NO_LENGTH_LIMIT, options };
        self.block.write_pcapng_block(block)?;
        self.write_block()?;
        self.interfaces.push(port.serial);
        Ok(self.interfaces.len() as u32 - 1)
    }

    fn flush(&mut self) -> Result<(), CaptureError> {
        self.sink.flush().map_err(|error| CaptureError::Write { reason: error.to_string() })
    }
}

fn would_block(error: &PcapError) -> bool {
    matches!(error, PcapError::IoError(error) if error.kind() == ErrorKind::WouldBlock)
}

fn write_error(error: PcapError) -> CaptureError {
    CaptureError::Write { reason: reason(&error) }
}

/// The crate's own text for an error of the writer leaves out what the error was.
fn reason(error: &PcapError) -> String {
    match error {
        PcapError::IoError(error) => error.to_string(),
        other => other.to_string(),
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            log::error!("the capture is incomplete: {error}");
        }
    }
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").field("state", &self.state()).finish_non_exhaustive()
    }
}
