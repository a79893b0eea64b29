//! The command line of rnic.
//!
//! Each subcommand is a module; what they have in common stands in `sockets` (where adapters listen), `connection` (how
//! tools reach a live server), `supervise` and `signals` (how a server lives and ends), `capture`, `logging`, and `exit` (what the
//! number at the end says).

// First: its macro is everybody's.
#[macro_use]
mod output;

mod agent;
mod bench;
mod cache;
mod capture;
mod connection;
mod demo;
mod doctor;
mod events;
mod exit;
mod explain_error;
mod guest;
mod list;
mod logging;
mod nearest;
mod qemu_args;
mod serve;
mod show;
mod signals;
mod sockets;
mod stat;
mod supervise;
mod trace;

use clap::{Parser, Subcommand};
use exit::Exit;
use std::io::IsTerminal as _;

const AFTER_HELP: &str = "\
Examples:
  rnic demo                        two guests, one RDMA write, every PCIe crossing counted
  rnic serve                       adapters A and B for your own guests or drivers
  rnic guest A                     a guest with adapter A, its console here
  mapfile -t ARGS < <(rnic qemu-args A); qemu-system-x86_64 \"${ARGS[@]}\" -nographic ...
  rnic explain-error 430           what the device meant
  rnic doctor                      what this machine lacks

Environment:
  RNIC_CACHE         where packages, images and snapshots are kept [default: ~/.cache/rnic]
  RNIC_QEMU          the QEMU to use [default: one on PATH that will do, else Debian's package]
  RNIC_MIRROR        address of a Debian archive [default: the machine's own]
  RNIC_RUN_FOLDER    where logs of guests go and stay
  XDG_RUNTIME_DIR    the sockets of `rnic serve` are in its folder rnic
  RUST_LOG           what is logged, instead of -v and -q

Exit, unless a command says otherwise: 0 it is as it should be; 1 it is not; 2 the command line or a file was not
understood; 3 something is missing (QEMU, network, disk, a server); 4 a time limit.";

/// An emulated PCIe RDMA NIC (RoCEv2) for unmodified QEMU.
#[derive(Debug, Parser)]
#[command(name = "rnic", version, max_term_width = 100, after_help = AFTER_HELP)]
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
    Serve(Box<serve::ServeOptions>),
    /// The servers that run, with their adapters.
    List(list::ListOptions),
    /// Print what attaches an adapter to a QEMU, one argument a line.
    QemuArgs(qemu_args::QemuArgsOptions),
    /// Start a guest with a served adapter: a console, or one command.
    Guest(Box<guest::GuestOptions>),
    /// What has crossed the PCIe link of live adapters: totals by class and queue pair.
    Stat(stat::StatOptions),
    /// The latest crossings and packets of live adapters, each with its cause.
    Trace(trace::TraceOptions),
    /// The objects of live adapters: queues, keys, GIDs, caches, timers.
    Show(show::ShowOptions),
    /// The diagnostics of live adapters: rules that were broken.
    Events(events::EventsOptions),
    /// Say what a diagnostic number means.
    ExplainError(explain_error::ExplainOptions),
    /// List or clean what was fetched and built.
    Cache(cache::CacheOptions),
    /// Look at this machine, and say what to do where it lacks something.
    Doctor(doctor::DoctorOptions),
    /// Measure throughput, message rate and latency between two adapters, beside what the machine can do.
    Bench(bench::BenchOptions),
    /// A driver that takes orders on standard input, inside a guest.
    #[command(hide = true)]
    GuestAgent,
}

fn main() -> std::process::ExitCode {
    let line = match CommandLine::try_parse() {
        Ok(line) => line,
        Err(error) if error.use_stderr() => {
            let _ = error.print();
            return Exit::Usage.code();
        }
        // Help, or the version: with colours where a terminal reads it.
        Err(error) => {
            let text = error.render();
            let coloured = std::io::stdout().is_terminal();
            let text = if coloured { text.ansi().to_string() } else { text.to_string() };
            return output::print("--help", &text).code();
        }
    };
    logging::start(line.louder, line.quiet);
    let exit = match line.command {
        Command::Demo(options) => demo::run(&options),
        Command::Serve(options) => serve::run(&options),
        Command::List(options) => list::run(&options),
        Command::QemuArgs(options) => qemu_args::run(&options),
        Command::Guest(options) => guest::run(&options),
        Command::Stat(options) => stat::run(&options),
        Command::Trace(options) => trace::run(&options),
        Command::Show(options) => show::run(&options),
        Command::Events(options) => events::run(&options),
        Command::ExplainError(options) => explain_error::run(&options),
        Command::Cache(options) => cache::run(&options),
        Command::Doctor(options) => doctor::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::GuestAgent => agent::run_in_guest(),
    };
    exit.code()
}
