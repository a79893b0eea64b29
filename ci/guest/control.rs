//! The connection to the guest's first program, which serves one command a line (see `image/init`).

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::deadline::Deadline;
use crate::error::file;
use crate::qemu::qmp::is_try_again;
use crate::{Error, Result};

const LINE_LIMIT_BYTES: usize = 4096;
const CHUNK_BYTES: usize = 64 << 10;

/// The port `rnic.control`.
#[derive(Debug)]
pub struct Control {
    stream: UnixStream,
    received: Vec<u8>,
}

/// The guest keeps it in its temporary file system, half of its memory, beside what runs.
const LARGEST_PAYLOAD_BYTES: u64 = 100 << 20;

impl Control {
    pub fn new(stream: UnixStream) -> Control {
        Control { stream, received: Vec::new() }
    }

    /// Waits until the guest has booted so far that it takes commands.
    pub fn await_ready(&mut self, deadline: &Deadline) -> Result<()> {
        match self.receive(deadline)?.as_str() {
            "ready" => Ok(()),
            answer => Err(unexpected(deadline, answer)),
        }
    }

    /// Stores the file `path` as the executable `guest_path`.
    pub fn send_payload(&mut self, path: &Path, guest_path: &str, deadline: &Deadline) -> Result<()> {
        let mut input = File::open(path).map_err(file("opening", path))?;
        let size_bytes = input.metadata().map_err(file("look-up", path))?.len();
        if size_bytes > LARGEST_PAYLOAD_BYTES {
            return Err(Error::Image {
                path: path.display().to_string(),
                reason: format!(
                    "it has {size_bytes} bytes, and a guest has room for {LARGEST_PAYLOAD_BYTES}: strip it"
                ),
            });
        }
        self.send(format!("payload {size_bytes} {guest_path}\n").as_bytes(), deadline)?;
        let mut left_bytes = size_bytes;
        let mut chunk = vec![0u8; CHUNK_BYTES];
        while left_bytes > 0 {
            let count = usize::try_from(left_bytes).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
            input.read_exact(&mut chunk[..count]).map_err(file("reading", path))?;
            self.send(&chunk[..count], deadline)?;
            left_bytes -= count as u64;
        }
        match self.receive(deadline)?.as_str() {
            "stored 0" => Ok(()),
            answer => Err(unexpected(deadline, answer)),
        }
    }

    /// Starts a command; its end is reported to [`Control::await_exit`].
    pub fn run(&mut self, command: &str, deadline: &Deadline) -> Result<()> {
        if command.contains('\n') {
            return Err(Error::GuestAnswer {
                step: "a command was given".into(),
                answer: "it has more than one line".into(),
            });
        }
        self.send(format!("run {command}\n").as_bytes(), deadline)
    }

    /// The exit status of the command that runs.
    pub fn await_exit(&mut self, deadline: &Deadline) -> Result<i32> {
        let answer = self.receive(deadline)?;
        let status = answer.strip_prefix("exit ").and_then(|status| status.parse().ok());
        status.ok_or_else(|| unexpected(deadline, &answer))
    }

    pub fn power_off(&mut self, deadline: &Deadline) -> Result<()> {
        self.send(b"poweroff\n", deadline)
    }

    fn send(&mut self, mut bytes: &[u8], deadline: &Deadline) -> Result<()> {
        while !bytes.is_empty() {
            self.stream.set_write_timeout(Some(deadline.remaining()?)).map_err(|error| broken(deadline, error))?;
            match self.stream.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if is_try_again(&error) => {}
                Err(error) => return Err(broken(deadline, error)),
            }
        }
        Ok(())
    }

    fn receive(&mut self, deadline: &Deadline) -> Result<String> {
        loop {
            if let Some(end) = self.received.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            if self.received.len() > LINE_LIMIT_BYTES {
                return Err(unexpected(deadline, "a line without end"));
            }
            self.stream.set_read_timeout(Some(deadline.remaining()?)).map_err(|error| broken(deadline, error))?;
            let mut bytes = [0u8; 512];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(broken(deadline, std::io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => self.received.extend_from_slice(&bytes[..count]),
                Err(error) if is_try_again(&error) => {}
                Err(error) => return Err(broken(deadline, error)),
            }
        }
    }
}

fn unexpected(deadline: &Deadline, answer: &str) -> Error {
    Error::GuestAnswer { step: deadline.step().to_owned(), answer: answer.to_owned() }
}

fn broken(deadline: &Deadline, error: std::io::Error) -> Error {
    Error::Connection { step: deadline.step().to_owned(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::thread;
    use std::time::Duration;

    fn deadline() -> Deadline {
        Deadline::new("testing", Duration::from_secs(5))
    }

    #[test]
    fn a_payload_is_announced_sent_and_acknowledged() {
        let (ours, theirs) = UnixStream::pair().expect("a socket pair");
        let guest = thread::spawn(move || {
            let mut reader = BufReader::new(theirs);
            let mut line = String::new();
            reader.read_line(&mut line).expect("a line");
            let mut content = vec![0u8; 200_000];
            reader.read_exact(&mut content).expect("the payload");
            reader.get_mut().write_all(b"stored 0\nexit 7\n").expect("answered");
            (line, content)
        });
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("program");
        let content: Vec<u8> = (0..200_000u32).map(|index| index as u8).collect();
        std::fs::write(&path, &content).expect("written");
        let mut control = Control::new(ours);
        control.send_payload(&path, "/payload/program", &deadline()).expect("stored");
        assert_eq!(control.await_exit(&deadline()).expect("a status"), 7);
        assert_eq!(guest.join().expect("the guest"), ("payload 200000 /payload/program\n".to_owned(), content));
    }

    #[test]
    fn odd_answers_silence_and_an_end_are_told_apart() {
        let (ours, mut theirs) = UnixStream::pair().expect("a socket pair");
        let mut control = Control::new(ours);
        theirs.write_all(b"unknown x\n").expect("written");
        assert!(
            matches!(control.await_exit(&deadline()), Err(Error::GuestAnswer { answer, .. }) if answer == "unknown x")
        );
        let short = Deadline::new("waiting", Duration::from_millis(20));
        assert!(matches!(control.await_exit(&short), Err(Error::Timeout { step, .. }) if step == "waiting"));
        theirs.write_all(&[b'x'; 10_000]).expect("written");
        assert!(matches!(control.await_ready(&deadline()), Err(Error::GuestAnswer { .. })));
        assert!(matches!(control.run("a\nb", &deadline()), Err(Error::GuestAnswer { .. })));
        let (ours, theirs) = UnixStream::pair().expect("a socket pair");
        drop(theirs);
        assert!(matches!(Control::new(ours).await_ready(&deadline()), Err(Error::Connection { .. })));
    }
}
