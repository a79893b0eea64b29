//! The guest's console on this terminal.
//!
//! Two threads carry the bytes, one each way, and end with the process; the main one waits for what ends the guest: its
//! shell, its QEMU, the escape key, or a signal.

use super::terminal::RawTerminal;
use super::{Failure, await_ready};
use crate::exit::Exit;
use crate::signals::Signals;
use rnic_ci::guest::workbench::{Workbench, WorkbenchSpec};
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Ctrl-].
const ESCAPE: u8 = 0x1d;
/// What leaves a shell of ours, and Ctrl-D, which most others take for the end of their input.
const LEAVE: &[u8] = b"exit\n";
const END_OF_INPUT: &[u8] = &[0x04];
const MOMENT: Duration = Duration::from_millis(20);

pub fn run(bench: &mut Workbench, files: &[PathBuf], spec: &WorkbenchSpec, signals: &Signals) -> Result<Exit, Failure> {
    let is_terminal = io::stdin().is_terminal();
    tell!("rnic: the console of {}; Ctrl-] ends it", spec.name);
    let raw = is_terminal.then(RawTerminal::enter).transpose();
    let _raw = raw.map_err(|error| Failure::Environment(format!("the terminal cannot be made raw: {error}")))?;
    let escaped = Arc::new(AtomicBool::new(false));
    let output = carry_out(clone(bench)?);
    let mut input = None;
    // What is typed before anybody reads it would be lost, unless a person sees that.
    if is_terminal || !spec.takes_commands() {
        input = Some(carry_in(clone(bench)?, END_OF_INPUT, &escaped));
    }
    let mut shell = false;
    if spec.takes_commands() {
        match await_ready(bench, files, |bench| leave(bench, &escaped, signals)) {
            Ok(()) => {
                bench.run(&shell_command(&spec.name))?;
                shell = true;
            }
            Err(Failure::Environment(message)) if bench.ended().is_none_or(|status| !status.success()) => {
                return Err(Failure::Environment(message));
            }
            Err(Failure::Environment(_)) => return finish(output),
            Err(failure) => return if escaped.load(Ordering::SeqCst) { Ok(Exit::Success) } else { Err(failure) },
        }
        input.get_or_insert_with(|| carry_in_later(bench, &escaped));
    }
    loop {
        if shell && matches!(bench.exit_status(MOMENT), Ok(Some(_))) {
            // What was printed has left the guest; the thread that carries it gets a moment.
            std::thread::sleep(5 * MOMENT);
            return Ok(Exit::Success);
        }
        if !shell {
            std::thread::sleep(MOMENT);
        }
        if let Some(status) = bench.ended() {
            if status.success() {
                return finish(output);
            }
            let printed = std::fs::read_to_string(bench.standard_error()).unwrap_or_default();
            return Err(Failure::Environment(format!("QEMU ended with {status}: {}", printed.trim_end())));
        }
        match leave(bench, &escaped, signals) {
            Ok(()) => {}
            Err(_) if escaped.load(Ordering::SeqCst) => return Ok(Exit::Success),
            Err(failure) => return Err(failure),
        }
    }
}

fn leave(_bench: &mut Workbench, escaped: &AtomicBool, signals: &Signals) -> Result<(), Failure> {
    if escaped.load(Ordering::SeqCst) || signals.asked() { Err(Failure::Signal) } else { Ok(()) }
}

/// What the guest printed before its end is on its way still.
fn finish(output: JoinHandle<()>) -> Result<Exit, Failure> {
    let deadline = Instant::now() + Duration::from_secs(2);
    while !output.is_finished() && Instant::now() < deadline {
        std::thread::sleep(MOMENT);
    }
    Ok(Exit::Success)
}

/// A shell on the serial line, which becomes its controlling terminal; it knows the size of ours.
fn shell_command(name: &str) -> String {
    let size = rustix::termios::tcgetwinsize(io::stdin()).ok();
    let size = size.filter(|size| size.ws_row > 0 && size.ws_col > 0);
    let size =
        size.map_or(String::new(), |size| format!("stty -F /dev/ttyS0 rows {} cols {}; ", size.ws_row, size.ws_col));
    let name: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || "._-".contains(*c)).collect();
    // The last command waits until the line has sent everything.
    format!(
        "{size}export PS1='{name}# '; setsid busybox cttyhack sh -i </dev/ttyS0 >/dev/ttyS0 2>&1; stty -F /dev/ttyS0 sane"
    )
}

fn clone(bench: &Workbench) -> Result<UnixStream, Failure> {
    bench.console().try_clone().map_err(|error| Failure::Environment(format!("the console: {error}")))
}

/// From the guest to the terminal, until QEMU closes the console.
fn carry_out(mut console: UnixStream) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut bytes = [0u8; 4096];
        let mut out = io::stdout();
        while let Ok(count @ 1..) = console.read(&mut bytes) {
            if out.write_all(&bytes[..count]).and_then(|()| out.flush()).is_err() {
                return;
            }
        }
    })
}

fn carry_in_later(bench: &Workbench, escaped: &Arc<AtomicBool>) -> JoinHandle<()> {
    match bench.console().try_clone() {
        Ok(console) => carry_in(console, LEAVE, escaped),
        Err(_) => std::thread::spawn(|| {}),
    }
}

/// From the terminal to the guest, until the escape key or the end of the input.
fn carry_in(mut console: UnixStream, end_of_input: &'static [u8], escaped: &Arc<AtomicBool>) -> JoinHandle<()> {
    let escaped = Arc::clone(escaped);
    std::thread::spawn(move || {
        let is_terminal = io::stdin().is_terminal();
        let mut bytes = [0u8; 256];
        let mut input = io::stdin();
        loop {
            let count = match input.read(&mut bytes) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            // A file may hold that byte; a person who types it means it.
            let end = bytes[..count].iter().position(|&byte| is_terminal && byte == ESCAPE);
            if console.write_all(&bytes[..end.unwrap_or(count)]).is_err() {
                return;
            }
            if end.is_some() {
                escaped.store(true, Ordering::SeqCst);
                return;
            }
        }
        let _ = console.write_all(end_of_input);
    })
}
