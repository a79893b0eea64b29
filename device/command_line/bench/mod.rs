//! `rnic bench`: two adapters in this process, a driver for each over its vfio-user socket, each host with memory of
//! its own; and in the same run the peers that set the limits: memcpy, CRC, a round trip over a Unix socket.
//!
//! In path order: [`options`] what is asked for, [`limits`] the peers, [`station`] a driver, [`pair`] both and the
//! adapters between them, [`throughput`], [`latency`] and [`scale`] what is measured, [`report`] what is told.

mod latency;
mod limits;
mod options;
mod pair;
mod report;
mod scale;
mod station;
mod throughput;

pub use options::BenchOptions;

use crate::exit::Exit;
use crate::output;
use options::{Icrc, Part, Plan};
use pair::Pair;
use report::Report;
use std::time::Duration;

/// Why a benchmark has no result.
#[derive(Debug)]
pub enum Failure {
    /// What arrived is not what was sent, or was not counted.
    Wrong(String),
    /// A device, a socket, or memory is not there.
    Environment(String),
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Environment(error.to_string())
    }
}

pub fn run(options: &BenchOptions) -> Exit {
    let told = measure(options).and_then(|report| if options.json { report.json() } else { Ok(report.text()) });
    match told {
        Ok(text) => output::print("bench", &text),
        Err(Failure::Wrong(sentence)) => {
            tell!("rnic bench: {sentence}");
            Exit::Mismatch
        }
        Err(Failure::Environment(sentence)) => {
            tell!("rnic bench: {sentence}");
            Exit::Environment
        }
    }
}

fn measure(options: &BenchOptions) -> Result<Report, Failure> {
    let plan = options.plan();
    let mut report = Report::new(&plan);
    report.limits = Some(limits::measure(&plan)?);
    let icrcs: &[Icrc] = match options.icrc {
        Icrc::Both => &[Icrc::Deferred, Icrc::Always],
        Icrc::Deferred => &[Icrc::Deferred],
        Icrc::Always => &[Icrc::Always],
    };
    for icrc in icrcs {
        let mut pair = Pair::start(&plan, *icrc == Icrc::Always, Duration::ZERO)?;
        // Beside the usual mode, the other one is shown where it costs most.
        let beside = *icrc == Icrc::Always && options.icrc == Icrc::Both;
        let lengths = if beside { &plan.lengths[plan.lengths.len() - 1..] } else { &plan.lengths[..] };
        if options.has(Part::Throughput) {
            for operation in &plan.operations {
                for length in lengths {
                    let measured = throughput::measure(&mut pair, &plan, *operation, *length)?;
                    report.throughput.push(report::Throughput::new(measured, *icrc, report.limits.as_ref()));
                }
            }
        }
        if !beside {
            report.usual = measure_hops(options, &plan, &mut pair, report.limits.as_ref())?;
        }
    }
    if let Some(busy_poll) = plan.busy_poll {
        let mut pair = Pair::start(&plan, options.icrc == Icrc::Always, busy_poll)?;
        let hops = measure_hops(options, &plan, &mut pair, report.limits.as_ref())?;
        report.busy_poll = Some(report::BusyPoll::new(busy_poll, hops));
    }
    if options.has(Part::Scale) {
        report.scale = Some(report::Scale::new(scale::measure(&plan)?));
    }
    Ok(report)
}

fn measure_hops(
    options: &BenchOptions,
    plan: &Plan,
    pair: &mut Pair,
    limits: Option<&report::Limits>,
) -> Result<report::Hops, Failure> {
    let mut hops = report::Hops::default();
    if options.has(Part::Rate) {
        hops.message_rate = Some(throughput::message_rate(pair, plan)?.into());
    }
    if options.has(Part::Latency) {
        for by_event in [false, true] {
            hops.latency.push(report::Latency::new(latency::measure(pair, plan, by_event)?, limits));
        }
    }
    Ok(hops)
}
