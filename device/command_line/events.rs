//! `rnic events`: the diagnostics of live adapters.

use crate::connection::{Connection, Failure, ServerChoice, exit_of, print, print_json, seconds};
use crate::exit::Exit;
use clap::Args;
use rnic_device::management::reports::events::{EventRow, EventsReport};
use rnic_device::management::{Page, Request};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// How often a live adapter is looked at.
const PERIOD: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
#[command(
    long_about = "The diagnostics of a server's adapters: each rule of the hardware interface that was broken, with its \
        number, the object, the value that broke it, the datasheet's section and the usual cause.\n\n\
        An adapter keeps the latest 1,024; what was lost is said. Numbers are explained in docs/diagnostics.md.",
    after_help = "Examples:\n  rnic events\n  rnic events A --follow\n  rnic events --json | jq 'select(.number == 205)'\n\n\
        With --json each line is an object: a diagnostic (`kind`: \"event\"), or what is missing (`kind`: \"lost\").\n\
        Exit: 0; 2 for a name that does not exist; 3 when no server runs or it goes; 4 when it does not answer in time."
)]
pub struct EventsOptions {
    /// The adapter [default: all].
    adapter: Option<String>,
    #[command(flatten)]
    server: ServerChoice,
    /// Go on with what comes.
    #[arg(short, long)]
    follow: bool,
    /// A JSON object a line.
    #[arg(long)]
    json: bool,
}

pub fn run(options: &EventsOptions) -> Exit {
    exit_of("events", events(options))
}

fn events(options: &EventsOptions) -> Result<(), Failure> {
    let mut connection = options.server.connect()?;
    let adapters = connection.adapters(options.adapter.as_deref())?;
    let mut places: BTreeMap<&str, u64> = adapters.iter().map(|name| (name.as_str(), 1)).collect();
    loop {
        for (name, place) in &mut places {
            *place = read(&mut connection, options.json, name, *place)?;
        }
        if !options.follow {
            return Ok(());
        }
        std::thread::sleep(PERIOD);
    }
}

/// Prints what there is from a place on, and gives the next place.
fn read(connection: &mut Connection, as_json: bool, adapter: &str, from: u64) -> Result<u64, Failure> {
    let mut from = from;
    loop {
        let page = Page::from(from);
        let report: EventsReport = connection.ask(&Request::Events { adapter: adapter.to_owned(), page })?;
        if report.lost > 0 {
            let lost = report.lost;
            match as_json {
                true => print_json(&json!({ "kind": "lost", "adapter": adapter, "events": lost }))?,
                false => print(&format!("adapter {adapter}: {lost} diagnostics were not kept\n"))?,
            }
        }
        for event in &report.events {
            match as_json {
                true => print_json(&tagged(adapter, event)?)?,
                false => print(&line(adapter, event))?,
            }
        }
        if report.events.is_empty() {
            return Ok(report.next);
        }
        from = report.next;
    }
}

fn tagged(adapter: &str, event: &EventRow) -> Result<Value, Failure> {
    let mut value = serde_json::to_value(event).map_err(|error| Failure::Environment(error.to_string()))?;
    (value["kind"], value["adapter"]) = ("event".into(), adapter.into());
    Ok(value)
}

fn line(adapter: &str, event: &EventRow) -> String {
    format!(
        "adapter {adapter}  {}  {} {} ({}): {}; object {:#x}, value {:#x}\n    section {:?}; usual cause: {}\n",
        seconds(event.time_ns),
        event.number,
        event.name,
        event.severity,
        event.sentence,
        event.object,
        event.value,
        event.section,
        event.usual_cause
    )
}
