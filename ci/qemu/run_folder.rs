//! Where a laboratory's log files and sockets lie.
//!
//! Logs (serial console, QEMU's standard error, trace) go into the folder the caller named and stay there, or into a
//! temporary one that is kept only after a failure. Sockets always lie in a temporary folder of their own, because a
//! socket's path may have no more than 107 bytes.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::error::file;
use crate::{HeldFolder, Options, Result};

/// The folder of a laboratory's logs and the one of its sockets.
#[derive(Debug)]
pub struct RunFolder {
    logs: PathBuf,
    /// Holds the logs if the caller named no folder.
    temporary_logs: Option<HeldFolder>,
    sockets: HeldFolder,
    next_number: AtomicU32,
    keep: AtomicBool,
}

impl RunFolder {
    pub fn create(options: &Options) -> Result<RunFolder> {
        let sockets = HeldFolder::create("rnic-")?;
        let (logs, temporary_logs) = match &options.run_folder {
            Some(folder) => {
                fs::create_dir_all(folder).map_err(file("creation", folder))?;
                (folder.canonicalize().map_err(file("look-up", folder))?, None)
            }
            None => {
                let folder = HeldFolder::create("rnic-run-")?;
                (folder.path().to_path_buf(), Some(folder))
            }
        };
        Ok(RunFolder { logs, temporary_logs, sockets, next_number: AtomicU32::new(0), keep: AtomicBool::new(false) })
    }

    /// The folder with the log files.
    pub fn logs(&self) -> &Path {
        &self.logs
    }

    pub fn log_path(&self, name: &str, kind: &str) -> PathBuf {
        self.logs.join(format!("{}.{kind}", plain(name)))
    }

    /// A fresh path for a socket.
    pub fn socket_path(&self, name: &str) -> PathBuf {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        self.sockets.path().join(format!("{}-{number}", plain(name)))
    }

    /// Keeps the logs after this folder's end, for the person who reads about the failure.
    pub fn keep_logs(&self) {
        self.keep.store(true, Ordering::Relaxed);
    }

    /// Takes [`RunFolder::keep_logs`] back: the failure was expected.
    pub fn drop_logs(&self) {
        self.keep.store(false, Ordering::Relaxed);
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        let keep = self.keep.load(Ordering::Relaxed) || std::thread::panicking();
        if let (true, Some(logs)) = (keep, self.temporary_logs.take()) {
            crate::tell(format_args!("rnic: the logs of this run are in {}", logs.keep().display()));
        }
    }
}

/// A guest's name as part of a file name.
fn plain(name: &str) -> String {
    let plain: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '-' })
        .take(40)
        .collect();
    if plain.is_empty() { "guest".into() } else { plain }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_stay_after_a_failure_only() {
        let paths = [(0, false), (1, true), (2, true)].map(|(index, failed)| {
            let folder = RunFolder::create(&Options::default()).expect("created");
            if failed {
                folder.keep_logs();
            }
            if index == 2 {
                folder.drop_logs();
            }
            folder.logs().to_path_buf()
        });
        assert!(!paths[0].exists());
        assert!(paths[1].exists());
        assert!(!paths[2].exists());
        fs::remove_dir_all(&paths[1]).expect("removed");
    }

    #[test]
    fn names_become_plain_and_socket_paths_short() {
        let folder = RunFolder::create(&Options::default()).expect("created");
        assert!(folder.log_path("../a b", "serial").ends_with("---a-b.serial"));
        let name = "x".repeat(200);
        assert!(folder.socket_path(&name).as_os_str().len() < 107);
        assert_ne!(folder.socket_path("a"), folder.socket_path("a"));
    }
}
