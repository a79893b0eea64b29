//! `rnic doctor`: what this machine has and lacks for the main job, and the cure.

use crate::exit::Exit;
use clap::Args;
use rnic_ci::doctor::{Finding, Level, examine};
use rnic_ci::{Options, StandardError};
use serde_json::json;

#[derive(Debug, Args)]
#[command(after_help = "\
It looks at QEMU (version, vfio-user-pci, known bugs), KVM (proved by a boot, once), memory, disk, open files, the Debian
archive, the cache, and the folders for sockets. It changes nothing and downloads nothing.

Examples:
  rnic doctor
  rnic doctor --offline
  rnic doctor --json | jq '.findings[] | select(.level == \"stops\")'

Exit: 0 the main job can be done; 3 something stops it.")]
pub struct DoctorOptions {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Ask no network.
    #[arg(long)]
    offline: bool,
}

pub fn run(options: &DoctorOptions) -> Exit {
    let laboratory = Options { offline: options.offline, ..Options::from_environment() };
    let findings = examine(&laboratory, &mut StandardError);
    let healthy = findings.iter().all(|finding| finding.level != Level::Stops);
    let text = if options.json { in_json(&findings, healthy) } else { in_words(&findings, healthy) };
    match crate::output::print("doctor", &text) {
        Exit::Success if !healthy => Exit::Environment,
        exit => exit,
    }
}

fn in_words(findings: &[Finding], healthy: bool) -> String {
    let mut text = String::new();
    for Finding { check, level, found, cure } in findings {
        text += &format!("{:<8}{check}: {found}\n", level.name());
        if let Some(cure) = cure {
            text += &format!("        -> {cure}\n");
        }
    }
    text + match healthy {
        true => "The main job can be done: rnic demo\n",
        false => "Something stops the main job; see the lines that begin with \"stops\".\n",
    }
}

fn in_json(findings: &[Finding], healthy: bool) -> String {
    let rows: Vec<_> = findings
        .iter()
        .map(|Finding { check, level, found, cure }| {
            json!({ "check": check, "level": level.name(), "found": found, "cure": cure })
        })
        .collect();
    format!("{}\n", json!({ "schema": "rnic.doctor/1", "healthy": healthy, "findings": rows }))
}
