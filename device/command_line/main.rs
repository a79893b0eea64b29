//! The command line of rnic.
//!
//! Each subcommand is a module; what they have in common stands in `sockets` (where adapters listen), `signals`
//! (how a run ends) and `exit` (what its number says).

mod agent;
mod demo;
mod exit;
mod serve;
mod signals;
mod sockets;

use clap::{Parser, Subcommand};
use exit::Exit;

/// An emulated PCIe RDMA NIC (RoCEv2) for unmodified QEMU.
#[derive(Debug, Parser)]
#[command(name = "rnic", version, max_term_width = 100)]
struct CommandLine {
    /// Say more on standard error (repeat for more).
    #[arg(short = 'v', action = clap::ArgAction::Count, global = true)]
    louder: u8,
    /// Say nothing on standard error but errors.
    #[arg(short, long, global = true)]
    quiet: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The main job: two hosts, one RDMA operation, every PCIe crossing counted.
    Demo(Box<demo::DemoOptions>),
    /// Serve adapters on a switch, for QEMU guests to attach to.
    Serve(serve::ServeOptions),
    /// A driver that takes orders on standard input, inside a guest.
    #[command(hide = true)]
    GuestAgent,
}

fn main() -> std::process::ExitCode {
    let line = match CommandLine::try_parse() {
        Ok(line) => line,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage.code() } else { Exit::Success.code() };
        }
    };
    start_log(line.louder, line.quiet);
    let exit = match line.command {
        Command::Demo(options) => demo::run(&options),
        Command::Serve(options) => serve::run(&options),
        Command::GuestAgent => agent::run_in_guest(),
    };
    exit.code()
}

/// Warnings by default; `RUST_LOG` decides where it is set.
fn start_log(verbose: u8, quiet: bool) {
    let level = match (quiet, verbose) {
        (true, _) => "error",
        (false, 0) => "warn",
        (false, 1) => "info",
        (false, _) => "debug",
    };
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(level)).format_target(false).init();
}
