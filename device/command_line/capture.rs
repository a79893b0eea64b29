//! Where a capture goes: a file, a pipe or standard output, written by a thread of its own, so that no adapter waits for a
//! disk or for whoever reads the pipe.
//!
//! In: records of the switch's capture. Out: their bytes, in order. What does not fit into the queue is refused with
//! `WouldBlock`, which the capture counts; so a slow reader loses records and changes nothing else.

use rnic_device::server::Server;
use rnic_switch::{CaptureOptions, CaptureState};
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes that wait for a slow writer; as many may be on their way to it.
const QUEUE_BYTES: usize = 64 << 20;
/// A reader that takes nothing for so long is not waited for any longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Starts the capture of a server.
pub fn start(server: &Server, path: &Path) -> Result<(), String> {
    let started = server.switch.capture().start(open(path)?, by_time_of_day());
    started.map_err(|error| format!("capture to {}: {error}", path.display()))
}

/// Records carry the time of day.
pub fn by_time_of_day() -> CaptureOptions {
    CaptureOptions { epoch_ns: rnic_device::clock::epoch_ns(), ..CaptureOptions::default() }
}

/// The sink of a capture.
pub fn open(path: &Path) -> Result<Box<dyn Write + Send>, String> {
    let opened = match path.to_str() {
        Some("-") => Ok(Box::new(io::stdout()) as Box<dyn Write + Send>),
        _ => open_file(path).map(|file| Box::new(file) as Box<dyn Write + Send>),
    };
    let queued = opened.and_then(QueuedWriter::new);
    queued.map(|sink| Box::new(sink) as _).map_err(|error| format!("capture to {}: {error}", path.display()))
}

/// A named pipe needs a reader, which may come a little later.
fn open_file(path: &Path) -> io::Result<File> {
    let is_pipe = std::fs::metadata(path).is_ok_and(|data| data.file_type().is_fifo());
    if !is_pipe {
        return File::create(path);
    }
    let start = Instant::now();
    loop {
        let nonblocking = OFlags::NONBLOCK.bits() as i32;
        match File::options().write(true).custom_flags(nonblocking).open(path) {
            Ok(file) => {
                rustix::fs::fcntl_setfl(&file, rustix::fs::fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
                return Ok(file);
            }
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => {
                if start.elapsed() > PATIENCE {
                    let what = format!("nobody has opened the pipe for reading within {} s", PATIENCE.as_secs());
                    return Err(io::Error::new(ErrorKind::TimedOut, what));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => return Err(error),
        }
    }
}

/// Writes what is left of a capture. An error names the file, also one that ended the capture long ago.
pub fn finish(server: &Server, path: &Path) -> Result<(), String> {
    let capture = server.switch.capture();
    let incomplete = |reason: String| format!("the capture to {} is incomplete: {reason}", path.display());
    if capture.state() == CaptureState::Failed {
        return Err(incomplete(capture.failure().unwrap_or_else(|| "its writer failed".into())));
    }
    capture.flush().map_err(|error| incomplete(error.to_string()))?;
    match capture.lost_frames() {
        0 => Ok(()),
        lost => Err(incomplete(format!("its reader was too slow, and {lost} frames are missing"))),
    }
}

/// A writer that never waits, in front of one that may.
struct QueuedWriter {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// There is something to write, or nothing will come any more.
    filled: Condvar,
    /// Something was written.
    drained: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<u8>,
    /// The thread has taken bytes and not written them all.
    writing: bool,
    written: u64,
    ended: bool,
    failure: Option<(ErrorKind, String)>,
}

impl QueuedWriter {
    fn new(sink: Box<dyn Write + Send>) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        std::thread::Builder::new().name("capture".into()).spawn(move || of_thread.write_until_end(sink))?;
        Ok(Self { shared })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_until_end(&self, mut sink: Box<dyn Write + Send>) {
        let mut bytes = Vec::new();
        loop {
            let mut queue = self.lock();
            while queue.waiting.is_empty() && !queue.ended {
                queue = self.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            if queue.waiting.is_empty() {
                return;
            }
            std::mem::swap(&mut queue.waiting, &mut bytes);
            queue.writing = true;
            drop(queue);
            let written = self.write(&mut sink, &bytes);
            bytes.clear();
            let mut queue = self.lock();
            queue.writing = false;
            if let Err(error) = written {
                queue.failure = Some((error.kind(), error.to_string()));
                queue.waiting = Vec::new();
            }
            let failed = queue.failure.is_some();
            drop(queue);
            self.drained.notify_all();
            if failed {
                return;
            }
        }
    }

    fn write(&self, sink: &mut Box<dyn Write + Send>, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(1 << 16) {
            sink.write_all(piece)?;
            self.lock().written += piece.len() as u64;
            self.drained.notify_all();
        }
        sink.flush()
    }
}

impl Queue {
    fn check(&self) -> io::Result<()> {
        self.failure.as_ref().map_or(Ok(()), |(kind, what)| Err(io::Error::new(*kind, what.clone())))
    }
}

impl Write for QueuedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut queue = self.shared.lock();
        queue.check()?;
        if queue.waiting.len() + bytes.len() > QUEUE_BYTES {
            return Err(ErrorKind::WouldBlock.into());
        }
        let sleeps = queue.waiting.is_empty() && !queue.writing;
        queue.waiting.extend_from_slice(bytes);
        drop(queue);
        if sleeps {
            self.shared.filled.notify_one();
        }
        Ok(bytes.len())
    }

    /// Waits until all is written, as long as anything is being written.
    fn flush(&mut self) -> io::Result<()> {
        let mut queue = self.shared.lock();
        loop {
            queue.check()?;
            if queue.waiting.is_empty() && !queue.writing {
                return Ok(());
            }
            let before = queue.written;
            let (next, wait) =
                self.shared.drained.wait_timeout(queue, PATIENCE).unwrap_or_else(PoisonError::into_inner);
            queue = next;
            if wait.timed_out() && queue.written == before {
                let what = format!("its reader has taken nothing for {} s", PATIENCE.as_secs());
                return Err(io::Error::new(ErrorKind::TimedOut, what));
            }
        }
    }
}

impl Drop for QueuedWriter {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.filled.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_slow_reader_is_not_waited_for_and_gets_all_that_was_taken() {
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let mut queued = QueuedWriter::new(Box::new(writer)).expect("a thread");
        let (mut taken, mut refused) = (0, 0);
        let start = Instant::now();
        for number in 0..3 * QUEUE_BYTES / (1 << 20) {
            match queued.write(&vec![number as u8; 1 << 20]) {
                Ok(length) => taken += length,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    refused += 1;
                }
            }
        }
        assert!(start.elapsed() < PATIENCE && refused > 0, "{refused} refused");
        let reading = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).map(|_| bytes)
        });
        queued.flush().expect("all is written");
        drop(queued);
        let read = reading.join().expect("no panic").expect("read");
        assert_eq!(read.len(), taken);
        assert!(read.chunks(1 << 20).all(|record| record.iter().all(|byte| *byte == record[0])), "records are whole");
    }

    #[test]
    fn a_reader_that_has_gone_is_told_with_the_next_record() {
        let (reader, writer) = io::pipe().expect("a pipe");
        let mut queued = QueuedWriter::new(Box::new(writer)).expect("a thread");
        drop(reader);
        queued.write_all(b"x").expect("nobody knows yet");
        assert_eq!(queued.flush().expect_err("gone").kind(), ErrorKind::BrokenPipe);
        assert_eq!(queued.write(b"y").expect_err("gone").kind(), ErrorKind::BrokenPipe);
    }
}
