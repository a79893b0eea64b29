//! Child processes that cannot outlive us.
//!
//! Every child asks the kernel for SIGKILL when the *thread* that started it ends (that is what `PR_SET_PDEATHSIG` looks
//! at), so all children are started by one thread that lives as long as the process. Whether the process returns, is
//! interrupted at the terminal, crashes or is killed by SIGKILL, the children go with it. Each leads a process group of
//! its own, which is killed on drop.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use crate::deadline::Deadline;
use crate::{Error, Result};

/// A running child; killed, with its process group, when dropped.
#[derive(Debug)]
pub struct Child {
    program: String,
    process: std::process::Child,
}

/// What a child that ran to its end left behind.
#[derive(Debug)]
pub struct Output {
    pub status: ExitStatus,
    pub standard_output: String,
    pub standard_error: String,
}

impl Child {
    /// Starts `command` in a process group of its own.
    pub fn start(mut command: Command) -> Result<Child> {
        let program = command.get_program().to_string_lossy().into_owned();
        command.process_group(0);
        let parent = rustix::process::getpid().as_raw_pid();
        // SAFETY: between fork and exec the closure makes two system calls and touches no memory that another thread
        // could have held locked at the fork (no allocation, no lock), as pre_exec demands.
        unsafe { command.pre_exec(move || die_with_parent(parent)) };
        let process =
            start_on_lasting_thread(command).map_err(|source| Error::Start { program: program.clone(), source })?;
        Ok(Child { program, process })
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// The child's standard output, if it was piped and not taken before.
    pub fn take_standard_output(&mut self) -> Option<std::process::ChildStdout> {
        self.process.stdout.take()
    }

    /// How the child ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        // An error means that there is no such child any more.
        self.process.try_wait().unwrap_or_else(|_| Some(ExitStatus::from_raw(0)))
    }

    /// Waits for the child's end.
    pub fn wait(&mut self, deadline: &Deadline) -> Result<ExitStatus> {
        let mut pause = Duration::from_micros(200);
        loop {
            if let Some(status) = self.ended() {
                return Ok(status);
            }
            thread::sleep(deadline.remaining()?.min(pause));
            pause = (pause * 2).min(Duration::from_millis(20));
        }
    }

    /// Kills the child and its process group, and reaps the child.
    pub fn kill(&mut self) {
        // While the child is not reaped its process id, and so its group, cannot belong to somebody else.
        if self.ended().is_none() {
            if let Some(group) = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw) {
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }

    pub fn program(&self) -> &str {
        &self.program
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs `command` to its end within the deadline and returns what it printed. Its output goes through files, so that it
/// can neither block on us nor grow our memory while it runs.
pub fn run(mut command: Command, deadline: &Deadline) -> Result<Output> {
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |source| Error::Start { program: program.clone(), source };
    let (mut output, mut errors) = (printed_into().map_err(failed)?, printed_into().map_err(failed)?);
    command.stdin(Stdio::null());
    command.stdout(output.try_clone().map_err(failed)?).stderr(errors.try_clone().map_err(failed)?);
    let mut child = Child::start(command)?;
    let status = match child.wait(deadline) {
        Ok(status) => status,
        Err(_) => return Err(deadline.passed(&crate::error::tail(&printed(&mut errors).map_err(failed)?))),
    };
    Ok(Output {
        status,
        standard_output: printed(&mut output).map_err(failed)?,
        standard_error: printed(&mut errors).map_err(failed)?,
    })
}

impl Output {
    /// This output if the program succeeded, else an error with the last lines it printed.
    pub fn success(self, program: &str) -> Result<Output> {
        if self.status.success() {
            return Ok(self);
        }
        let detail = crate::error::tail(&format!("{}\n{}", self.standard_output, self.standard_error));
        Err(Error::Program { program: program.to_owned(), status: self.status.to_string(), detail })
    }
}

/// A file for what a program prints. A full disk is found out here, and not by what is missing in its answer.
fn printed_into() -> io::Result<File> {
    const SOME_BYTES: u64 = 64 << 10;
    let file = tempfile::tempfile()?;
    match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::KEEP_SIZE, 0, SOME_BYTES) {
        Err(rustix::io::Errno::NOSPC) => {
            let folder = std::env::temp_dir();
            let sentence = format!("there is no space in the temporary folder {}", folder.display());
            Err(io::Error::new(io::ErrorKind::StorageFull, sentence))
        }
        // Where nothing can be reserved, nothing is known.
        _ => Ok(file),
    }
}

/// The bytes a program printed, up to a bound.
fn printed(file: &mut File) -> io::Result<String> {
    const LIMIT_BYTES: u64 = 64 << 20;
    file.rewind()?;
    let mut bytes = Vec::new();
    file.take(LIMIT_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn die_with_parent(parent: i32) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have died before the request was in place.
    match rustix::process::getppid() {
        Some(now) if now.as_raw_pid() == parent => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::ESRCH)),
    }
}

struct Request {
    command: Command,
    answer: Sender<io::Result<std::process::Child>>,
}

/// The thread that starts all children. It is never joined: it ends when the process does.
fn start_on_lasting_thread(command: Command) -> io::Result<std::process::Child> {
    static STARTER: OnceLock<Mutex<Sender<Request>>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (requests, incoming): (Sender<Request>, Receiver<Request>) = channel();
        thread::spawn(move || {
            for mut request in incoming {
                let _ = request.answer.send(request.command.spawn());
            }
        });
        Mutex::new(requests)
    });
    let (answer, answered) = channel();
    let gone = || io::Error::other("the thread that starts children is gone");
    starter.lock().map_err(|_| gone())?.send(Request { command, answer }).map_err(|_| gone())?;
    answered.recv().map_err(|_| gone())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deadline() -> Deadline {
        Deadline::new("running a test program", Duration::from_secs(10))
    }

    #[test]
    fn output_and_status_come_back() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2; exit 3"]);
        let output = run(command, &deadline()).expect("it runs");
        assert_eq!((output.standard_output.as_str(), output.standard_error.as_str()), ("out\n", "err\n"));
        assert_eq!(output.status.code(), Some(3));
        assert!(matches!(output.success("sh"), Err(Error::Program { .. })));
    }

    #[test]
    fn a_child_outlives_the_thread_that_asked_for_it() {
        let mut command = Command::new("sleep");
        command.arg("30");
        let mut child = thread::spawn(|| Child::start(command).expect("it starts")).join().expect("the thread");
        thread::sleep(Duration::from_millis(200));
        assert!(child.ended().is_none(), "the child died with the thread");
        child.kill();
        assert!(child.ended().is_some());
    }

    #[test]
    fn drop_kills_the_whole_group() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 41.25 & echo $!; wait"]).stdout(Stdio::piped());
        let mut child = Child::start(command).expect("it starts");
        let mut line = [0u8; 16];
        let count = child.take_standard_output().expect("piped").read(&mut line).expect("a line");
        let grandchild: i32 = String::from_utf8_lossy(&line[..count]).trim().parse().expect("a process id");
        drop(child);
        thread::sleep(Duration::from_millis(100));
        let state = std::fs::read_to_string(format!("/proc/{grandchild}/stat")).unwrap_or_default();
        assert!(state.is_empty() || state.contains(") Z "), "the grandchild lives: {state}");
    }

    #[test]
    fn a_slow_program_meets_its_time_limit() {
        let mut command = Command::new("sleep");
        command.arg("30");
        let limit = Deadline::new("sleeping", Duration::from_millis(100));
        assert!(matches!(run(command, &limit), Err(Error::Timeout { step, .. }) if step == "sleeping"));
    }
}
