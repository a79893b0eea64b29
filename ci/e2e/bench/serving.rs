//! `rnic serve` as a process of its own.

use super::program;
use rnic_ci::child::Child;
use rnic_ci::deadline::Deadline;
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub struct Serving {
    child: Child,
    folder: TempDir,
    /// From the start of the process to the first client that was taken.
    pub listening_after: Duration,
}

impl Serving {
    /// Serves adapters, in a folder of their own, and waits until all listen. More options may follow the names.
    pub fn start(arguments: &str) -> Serving {
        Serving::start_in(tempfile::Builder::new().prefix("s").tempdir().expect("a folder for the sockets"), arguments)
    }

    pub fn start_in(folder: TempDir, arguments: &str) -> Serving {
        Serving::launch(folder, arguments, Stdio::null())
    }

    /// The same with its standard error in a file.
    pub fn start_logged(arguments: &str, log: &Path) -> Serving {
        let folder = tempfile::Builder::new().prefix("s").tempdir().expect("a folder for the sockets");
        Serving::launch(folder, arguments, File::create(log).expect("a file for the log").into())
    }

    fn launch(folder: TempDir, arguments: &str, standard_error: Stdio) -> Serving {
        let start = Instant::now();
        let command = program::command(&format!("serve {arguments} --folder {}", folder.path().display()));
        let child = program::start_command(command, standard_error);
        let mut serving = Serving { child, folder, listening_after: Duration::ZERO };
        let names = arguments.split_whitespace().take_while(|word| !word.starts_with('-'));
        for name in names {
            while UnixStream::connect(serving.socket(name)).is_err() {
                assert!(start.elapsed() < Duration::from_secs(10), "adapter {name} does not listen");
                assert!(serving.child.ended().is_none(), "rnic serve {arguments} has ended");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        serving.listening_after = start.elapsed();
        serving
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn socket(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.sock"))
    }

    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    pub fn wait(&mut self) -> ExitStatus {
        self.child.wait(&Deadline::new("rnic serve ends", Duration::from_secs(5))).expect("it ends")
    }

    /// The folder with what is left in it; the process is killed.
    pub fn into_folder(self) -> TempDir {
        self.folder
    }
}
