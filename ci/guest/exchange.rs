//! The connection that is kept for the program inside the guest: its standard input and output.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::deadline::Deadline;
use crate::qemu::qmp::is_try_again;
use crate::{Error, Result};

/// The port `rnic.exchange`. Each call names its step and limit, so a program that hangs is reported as such.
#[derive(Debug)]
pub struct Exchange {
    stream: UnixStream,
}

impl Exchange {
    pub fn new(stream: UnixStream) -> Exchange {
        Exchange { stream }
    }

    /// The socket itself, for a protocol that brings its own time limits.
    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// A second handle on the same connection.
    pub fn try_clone(&self) -> Result<Exchange> {
        let stream =
            self.stream.try_clone().map_err(|error| broken(&Deadline::new("duplicating", Duration::ZERO), &error))?;
        Ok(Exchange { stream })
    }

    /// Sends all of `bytes`.
    pub fn send(&self, bytes: &[u8], deadline: &Deadline) -> Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            self.stream.set_write_timeout(Some(deadline.remaining()?)).map_err(|error| broken(deadline, &error))?;
            match (&self.stream).write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if is_try_again(&error) => {}
                Err(error) => return Err(broken(deadline, &error)),
            }
        }
        Ok(())
    }

    /// Fills all of `bytes`.
    pub fn receive(&self, bytes: &mut [u8], deadline: &Deadline) -> Result<()> {
        let mut filled = 0;
        while filled < bytes.len() {
            filled += self.receive_some(&mut bytes[filled..], deadline)?;
        }
        Ok(())
    }

    /// Waits for at least one byte and returns how many came.
    pub fn receive_some(&self, bytes: &mut [u8], deadline: &Deadline) -> Result<usize> {
        loop {
            self.stream.set_read_timeout(Some(deadline.remaining()?)).map_err(|error| broken(deadline, &error))?;
            match (&self.stream).read(bytes) {
                Ok(0) if !bytes.is_empty() => return Err(broken(deadline, &std::io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => return Ok(count),
                Err(error) if is_try_again(&error) => {}
                Err(error) => return Err(broken(deadline, &error)),
            }
        }
    }

    /// Receives up to and including the next newline, at most `limit_bytes`.
    pub fn receive_line(&self, limit_bytes: usize, deadline: &Deadline) -> Result<String> {
        let mut line = Vec::new();
        let mut byte = [0u8];
        while line.last() != Some(&b'\n') && line.len() < limit_bytes {
            self.receive(&mut byte, deadline)?;
            line.extend_from_slice(&byte);
        }
        Ok(String::from_utf8_lossy(&line).into_owned())
    }
}

fn broken(deadline: &Deadline, error: &std::io::Error) -> Error {
    Error::Connection { step: deadline.step().to_owned(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_pass_both_ways_and_silence_is_a_named_timeout() {
        let (ours, theirs) = UnixStream::pair().expect("a socket pair");
        let (ours, theirs) = (Exchange::new(ours), Exchange::new(theirs));
        let deadline = Deadline::new("talking", Duration::from_secs(5));
        ours.send(b"hello\nrest", &deadline).expect("sent");
        assert_eq!(theirs.receive_line(100, &deadline).expect("a line"), "hello\n");
        assert_eq!(theirs.receive_line(2, &deadline).expect("a part"), "re");
        let mut bytes = [0u8; 4];
        let short = Deadline::new("waiting for the answer", Duration::from_millis(20));
        let late = theirs.receive(&mut bytes, &short);
        assert!(matches!(late, Err(Error::Timeout { step, .. }) if step == "waiting for the answer"));
        drop(ours);
        assert!(matches!(theirs.receive(&mut bytes, &deadline), Err(Error::Connection { .. })));
    }
}
