//! The other end of a management socket: a program that asks, one request at a time, each with a time limit.

use super::protocol::{MAX_REPLY_BYTES, Refusal, Request, SCHEMA, parse_reply, request_line};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a server may take for one reply.
pub const LIMIT: Duration = Duration::from_secs(10);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("there is no server on {path}")]
    NoServer { path: PathBuf },
    #[error("the server on {path} is dead; its socket is left over, and the next server of this name replaces it")]
    Dead { path: PathBuf },
    #[error("{path} belongs to user {uid}, not to you: nothing is asked there")]
    Foreign { path: PathBuf, uid: u32 },
    #[error("{path} cannot be connected to: {error}")]
    Connect { path: PathBuf, error: io::Error },
    #[error("the server on {path} does not answer within {limit:?}")]
    TimeLimit { path: PathBuf, limit: Duration },
    #[error("the server on {path} has gone")]
    Gone { path: PathBuf },
    #[error("talking to the server on {path} failed: {error}")]
    Io { path: PathBuf, error: io::Error },
    #[error("the server on {path} is not understood: {what}")]
    Misunderstood { path: PathBuf, what: String },
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// A connection to one server.
#[derive(Debug)]
pub struct ManagementClient {
    stream: UnixStream,
    path: PathBuf,
    /// Received and not read.
    input: Vec<u8>,
}

impl ManagementClient {
    /// Connects, and makes sure that the server belongs to user `uid`.
    pub fn connect(path: &Path, uid: u32) -> Result<Self, ClientError> {
        let failed = |error: io::Error| ClientError::Connect { path: path.into(), error };
        let address = SocketAddrUnix::new(path).map_err(|errno| failed(errno.into()))?;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let socket = socket.map_err(|errno| failed(errno.into()))?;
        let stream = UnixStream::from(socket);
        // They hold for connecting too, which waits while a server's queue of clients is full.
        stream.set_read_timeout(Some(LIMIT)).map_err(failed)?;
        stream.set_write_timeout(Some(LIMIT)).map_err(failed)?;
        connect(&stream, &address).map_err(|errno| match errno {
            Errno::NOENT => ClientError::NoServer { path: path.into() },
            Errno::CONNREFUSED => ClientError::Dead { path: path.into() },
            Errno::AGAIN => ClientError::TimeLimit { path: path.into(), limit: LIMIT },
            errno => failed(errno.into()),
        })?;
        let peer = rustix::net::sockopt::socket_peercred(&stream).map_err(|errno| failed(errno.into()))?;
        if peer.uid.as_raw() != uid {
            return Err(ClientError::Foreign { path: path.into(), uid: peer.uid.as_raw() });
        }
        Ok(Self { stream, path: path.into(), input: Vec::new() })
    }

    /// Asks, and understands the answer.
    pub fn ask<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, ClientError> {
        let line = request_line(request).map_err(|error| self.misunderstood(error.to_string()))?;
        (&self.stream).write_all(line.as_bytes()).map_err(|error| self.failed(error))?;
        let line = self.receive_line()?;
        let answer = parse_reply(&line).map_err(|what| self.misunderstood(what))??;
        serde_json::from_value(answer)
            .map_err(|error| self.misunderstood(format!("its answer is not that of {SCHEMA:?}: {error}")))
    }

    fn receive_line(&mut self) -> Result<Vec<u8>, ClientError> {
        let mut searched = 0;
        let asked = Instant::now();
        loop {
            if let Some(end) = self.input[searched..].iter().position(|byte| *byte == b'\n') {
                let rest = self.input.split_off(searched + end + 1);
                let mut line = std::mem::replace(&mut self.input, rest);
                line.pop();
                return Ok(line);
            }
            searched = self.input.len();
            if searched > MAX_REPLY_BYTES {
                return Err(self.misunderstood(format!("a reply of more than {MAX_REPLY_BYTES} bytes")));
            }
            // The limit of a read alone would let one that drips take for ever.
            if asked.elapsed() > LIMIT {
                return Err(self.failed(io::ErrorKind::TimedOut.into()));
            }
            let mut piece = [0; 64 << 10];
            match (&self.stream).read(&mut piece) {
                Ok(0) if self.input.is_empty() => return Err(ClientError::Gone { path: self.path.clone() }),
                Ok(0) => return Err(self.misunderstood("its reply has no end".into())),
                Ok(length) => self.input.extend_from_slice(&piece[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
    }

    fn failed(&self, error: io::Error) -> ClientError {
        let path = self.path.clone();
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ClientError::TimeLimit { path, limit: LIMIT },
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => ClientError::Gone { path },
            _ => ClientError::Io { path, error },
        }
    }

    fn misunderstood(&self, what: String) -> ClientError {
        ClientError::Misunderstood { path: self.path.clone(), what }
    }
}
