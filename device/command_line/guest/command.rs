//! One command in the guest: its output here, its exit status ours.

use super::{Failure, await_ready};
use crate::exit::Exit;
use crate::signals::Signals;
use rnic_ci::guest::workbench::Workbench;
use rustix::net::{RecvFlags, recv};
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub fn run(
    bench: &mut Workbench,
    files: &[PathBuf],
    line: &str,
    boot_limit: Duration,
    signals: &Signals,
) -> Result<Exit, Failure> {
    let begin = Instant::now();
    await_ready(bench, files, |bench| {
        pass(bench.console(), &mut io::stderr())?;
        if signals.asked() {
            return Err(Failure::Signal);
        }
        if begin.elapsed() > boot_limit {
            return Err(Failure::TimeLimit(format!("the guest did not take commands within {boot_limit:?}")));
        }
        Ok(())
    })?;
    // Its standard error is the console, which adds no carriage returns for it.
    bench.run(&format!("stty -F /dev/ttyS0 -opost; exec sh -c {} </dev/null", quoted(line)))?;
    loop {
        let status = bench.exit_status(Duration::from_millis(5))?;
        // What was printed before the end is here when the status is.
        pass(bench.exchange().stream(), &mut io::stdout())?;
        pass(bench.console(), &mut io::stderr())?;
        if let Some(status) = status {
            return Ok(Exit::Commands(u8::try_from(status).unwrap_or(u8::MAX)));
        }
        if signals.asked() {
            return Err(Failure::Signal);
        }
    }
}

/// One word for the guest's shell.
fn quoted(line: &str) -> String {
    format!("'{}'", line.replace('\'', r"'\''"))
}

/// Takes what is there, without waiting for more.
fn pass(from: &UnixStream, to: &mut dyn Write) -> Result<(), Failure> {
    let mut bytes = [0u8; 16 << 10];
    // Bounded, so that a guest that never stops printing does not keep us from its status and from signals.
    for _ in 0..64 {
        match recv(from, &mut bytes[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) | Err(_) => break,
            Ok((count, _)) => {
                let written = to.write_all(&bytes[..count]).and_then(|()| to.flush());
                written.map_err(|error| Failure::Environment(format!("the command's output: {error}")))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_shell_gets_the_line_as_it_is() {
        for line in ["echo a  b", "echo \"it's\" # not $this `or` that", "'", ""] {
            let script = format!("printf %s {}", quoted(line));
            let output = std::process::Command::new("sh").args(["-c", &script]).output().expect("a shell");
            assert_eq!(String::from_utf8_lossy(&output.stdout), line);
        }
    }
}
