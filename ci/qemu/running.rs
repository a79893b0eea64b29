//! A running QEMU: its process, its control connection, the sockets it opens to us, and its log files.
//!
//! Sockets are listened on by us and connected by QEMU while it starts, so nobody polls for a path to appear, and a
//! QEMU that ends early is noticed at once, with what it printed.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Qemu;
use super::qmp::Qmp;
use super::run_folder::RunFolder;
use crate::child::Child;
use crate::deadline::Deadline;
use crate::error::{file, tail};
use crate::{Error, Result};

/// How long QEMU may take from its start to its greeting; it is far below a second on an idle machine.
const START_LIMIT: Duration = Duration::from_secs(30);

/// A running QEMU, killed when dropped.
#[derive(Debug)]
pub struct Running {
    name: String,
    child: Child,
    qmp: Qmp,
    standard_error: PathBuf,
    run_folder: Arc<RunFolder>,
}

/// A socket that QEMU will connect to: `-chardev socket,id=<name>,path=<path>`.
#[derive(Debug)]
pub struct Awaited {
    listener: UnixListener,
    path: PathBuf,
}

impl Awaited {
    pub fn listen(run_folder: &RunFolder, name: &str) -> Result<Awaited> {
        let path = run_folder.socket_path(name);
        let listener = UnixListener::bind(&path).map_err(file("listening on", &path))?;
        listener.set_nonblocking(true).map_err(file("listening on", &path))?;
        Ok(Awaited { listener, path })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Qemu {
    /// Starts QEMU with `arguments` and a control connection. `name` names the log files.
    pub fn start(&self, name: &str, run_folder: &Arc<RunFolder>, arguments: &[OsString]) -> Result<Running> {
        let control = Awaited::listen(run_folder, "qmp")?;
        let standard_error = run_folder.log_path(name, "stderr");
        let errors = File::create(&standard_error).map_err(file("creation", &standard_error))?;
        let mut command = self.command();
        command.arg("-qmp").arg(format!("unix:{}", control.path().display()));
        command.args(arguments);
        log::debug!("starting {name}: {command:?}");
        command
            .stdin(Stdio::null())
            .stdout(errors.try_clone().map_err(file("opening", &standard_error))?)
            .stderr(errors);
        let mut child = Child::start(command)?;
        let deadline = Deadline::new(format!("QEMU of guest {name} starts"), START_LIMIT);
        let stream = accept(&control, &mut child, name, &standard_error, run_folder, &deadline)?;
        let qmp = Qmp::start(stream, &deadline).map_err(|error| {
            run_folder.keep_logs();
            explain(error, &mut child, name, deadline.step(), &standard_error)
        })?;
        Ok(Running { name: name.to_owned(), child, qmp, standard_error, run_folder: Arc::clone(run_folder) })
    }
}

impl Running {
    pub fn qmp(&mut self) -> &mut Qmp {
        &mut self.qmp
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn process_id(&self) -> u32 {
        self.child.id()
    }

    pub fn run_folder(&self) -> &Arc<RunFolder> {
        &self.run_folder
    }

    /// Waits until QEMU has connected to a socket that was named on its command line.
    pub fn accept(&mut self, awaited: &Awaited, deadline: &Deadline) -> Result<UnixStream> {
        accept(awaited, &mut self.child, &self.name, &self.standard_error, &self.run_folder, deadline)
    }

    /// How QEMU ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.ended()
    }

    /// The error to report for a step that failed: QEMU's end, if that is what happened, else `error`.
    pub fn explain(&mut self, error: Error) -> Error {
        self.run_folder.keep_logs();
        let step = error.to_string();
        explain(error, &mut self.child, &self.name, &step, &self.standard_error)
    }

    /// What QEMU printed to its standard error so far.
    pub fn standard_error(&self) -> &Path {
        &self.standard_error
    }

    pub fn wait(&mut self, deadline: &Deadline) -> Result<ExitStatus> {
        self.child.wait(deadline)
    }

    pub fn kill(&mut self) {
        self.child.kill();
    }
}

fn accept(
    awaited: &Awaited,
    child: &mut Child,
    name: &str,
    standard_error: &Path,
    run_folder: &RunFolder,
    deadline: &Deadline,
) -> Result<UnixStream> {
    loop {
        match awaited.listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).map_err(file("accepting on", &awaited.path))?;
                return Ok(stream);
            }
            Err(error) if super::qmp::is_try_again(&error) => {}
            Err(error) => return Err(file("accepting on", &awaited.path)(error)),
        }
        if let Some(end) = ended(child, name, deadline.step(), standard_error) {
            run_folder.keep_logs();
            return Err(end);
        }
        // Wakes when QEMU connects, and often enough to notice its end.
        let pause = deadline.remaining()?.min(Duration::from_millis(20));
        let pause = Timespec { tv_sec: 0, tv_nsec: i64::from(pause.subsec_nanos()) };
        let _ = poll(&mut [PollFd::new(&awaited.listener, PollFlags::IN)], Some(&pause));
    }
}

/// A connection breaks a moment before the process that held it can be reaped.
fn explain(error: Error, child: &mut Child, name: &str, step: &str, standard_error: &Path) -> Error {
    if matches!(error, Error::Connection { .. }) {
        let _ = child.wait(&Deadline::new("QEMU ends", Duration::from_millis(500)));
    }
    ended(child, name, step, standard_error).unwrap_or(error)
}

fn ended(child: &mut Child, name: &str, step: &str, standard_error: &Path) -> Option<Error> {
    let status = child.ended()?;
    let printed = fs::read(standard_error).unwrap_or_default();
    let printed = tail(&String::from_utf8_lossy(&printed));
    let detail = if printed.is_empty() { status.to_string() } else { format!("{status}: {printed}") };
    Some(Error::GuestEnded { name: name.to_owned(), step: step.to_owned(), detail })
}
