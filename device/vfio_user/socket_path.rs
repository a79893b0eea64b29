//! A listening Unix socket and its file: made for its owner alone, a stale one replaced, a living one respected,
//! removed in the end if it is still ours.

use rustix::fs::{FlockOperation, Mode, OFlags, fchmod, flock, lstat, open};
use rustix::io::Errno;
use rustix::net::socket_with;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind as bind_socket, connect, listen};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Clients that may wait to be accepted.
const BACKLOG: i32 = 16;
/// How long another process may hold the folder while it binds its own socket.
const FOLDER_WAIT: Duration = Duration::from_millis(1000);

/// Why a path cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("another server is alive on {path}: stop it, or choose another path")]
    Alive { path: PathBuf },
    #[error("{path} exists and is not a socket: it is left alone; choose another path")]
    NotASocket { path: PathBuf },
    #[error("the path {path} is too long for a Unix socket (at most 107 bytes)")]
    TooLong { path: PathBuf },
    #[error("the folder of {path} is locked by another process")]
    FolderLocked { path: PathBuf },
    #[error("{path} cannot be listened on: {step} failed: {error}")]
    Io { path: PathBuf, step: &'static str, error: io::Error },
}

/// A bound, listening, non-blocking socket and its file.
#[derive(Debug)]
pub struct BoundPath {
    socket: OwnedFd,
    path: PathBuf,
    /// Device and inode of the file, by which it is known again.
    file: (u64, u64),
}

impl BoundPath {
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for BoundPath {
    fn drop(&mut self) {
        if file_identity(&self.path).is_ok_and(|file| file == self.file) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Binds and listens. A folder that is missing is made, for its owner alone.
pub fn bind(path: &Path) -> Result<BoundPath, BindError> {
    let failed = |step: &'static str| move |error: io::Error| BindError::Io { path: path.into(), step, error };
    let address = SocketAddrUnix::new(path).map_err(|_| BindError::TooLong { path: path.into() })?;
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let make_folder = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    make_folder.map_err(failed("making its folder"))?;
    // Held until the end of this function, so that two servers cannot both find the same file stale.
    let _lock = lock_folder(folder, path)?;
    remove_stale(path, &address)?;

    let socket = new_socket().map_err(failed("making a socket"))?;
    // The file gets the mode of the socket's own inode: no moment in which others could connect.
    fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(io::Error::from).map_err(failed("setting the mode"))?;
    bind_socket(&socket, &address).map_err(io::Error::from).map_err(failed("binding"))?;
    let file = file_identity(path).map_err(failed("looking at its file"))?;
    let bound = BoundPath { socket, path: path.into(), file };
    listen(&bound.socket, BACKLOG).map_err(io::Error::from).map_err(failed("listening"))?;
    Ok(bound)
}

fn new_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

fn file_identity(path: &Path) -> io::Result<(u64, u64)> {
    let stat = lstat(path)?;
    Ok((stat.st_dev, stat.st_ino))
}

fn lock_folder(folder: &Path, path: &Path) -> Result<OwnedFd, BindError> {
    let failed = |error: Errno| BindError::Io { path: path.into(), step: "locking its folder", error: error.into() };
    let opened = open(folder, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
    let step = Duration::from_millis(20);
    let mut waited = Duration::ZERO;
    loop {
        match flock(&opened, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(opened),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if waited >= FOLDER_WAIT => {
                return Err(BindError::FolderLocked { path: path.into() });
            }
            Err(Errno::WOULDBLOCK) => {
                std::thread::sleep(step);
                waited += step;
            }
            Err(errno) => return Err(failed(errno)),
        }
    }
}

/// Removes the file if it is a socket that nobody listens on.
fn remove_stale(path: &Path, address: &SocketAddrUnix) -> Result<(), BindError> {
    let failed = |error: io::Error| BindError::Io { path: path.into(), step: "replacing a stale socket", error };
    match lstat(path) {
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(failed(errno.into())),
        Ok(stat) if stat.st_mode & libc::S_IFMT != libc::S_IFSOCK => {
            return Err(BindError::NotASocket { path: path.into() });
        }
        Ok(_) => {}
    }
    let probe = new_socket().map_err(failed)?;
    match connect(&probe, address) {
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path).map_err(failed),
        Err(Errno::NOENT) => Ok(()),
        // A full backlog is a server too.
        Ok(()) | Err(Errno::AGAIN) => Err(BindError::Alive { path: path.into() }),
        Err(errno) => Err(failed(errno.into())),
    }
}
