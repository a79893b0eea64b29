//! `rnic show`: the objects of a live adapter.

mod text;

use crate::connection::{Connection, Failure, ServerChoice, exit_of, print, print_json};
use crate::exit::Exit;
use clap::Args;
use rnic_device::management::reports::adapter::AdapterReport;
use rnic_device::management::reports::objects::{
    CompletionQueueRow, EventQueueRow, KeyRow, ObjectRows, ObjectsReport, QueuePairRow, SharedReceiveQueueRow,
};
use rnic_device::management::{MAX_ENTRIES, ObjectKind, Page, Request};
use serde::Serialize;

#[derive(Debug, Args)]
#[command(
    long_about = "What lives in a server's adapters now: queue pairs with state and PSNs, completion and event queues, \
        memory keys, GIDs, rings with their indices, caches, timers, the command queue.\n\n\
        Looking changes nothing and crosses nothing: of a context that is in host memory alone, and not in the adapter's \
        cache, the resident part is shown. Indices are free-running, as in the doorbells.",
    after_help = "Examples:\n  rnic show\n  rnic show A\n  rnic show A --json | jq '.queue_pairs[] | {qpn, state}'\n\n\
        With --json one object an adapter and line, schema rnic.show/1; sizes in bytes, times in nanoseconds of the \
        adapter's own clock.\n\
        Exit: 0; 2 for a name that does not exist; 3 when no server runs or it goes; 4 when it does not answer in time."
)]
pub struct ShowOptions {
    /// The adapter [default: all].
    adapter: Option<String>,
    #[command(flatten)]
    server: ServerChoice,
    /// JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// Everything of one adapter.
#[derive(Debug, Serialize)]
struct Whole {
    schema: &'static str,
    #[serde(flatten)]
    adapter: AdapterReport,
    queue_pairs: Vec<QueuePairRow>,
    completion_queues: Vec<CompletionQueueRow>,
    event_queues: Vec<EventQueueRow>,
    shared_receive_queues: Vec<SharedReceiveQueueRow>,
    keys: Vec<KeyRow>,
}

pub fn run(options: &ShowOptions) -> Exit {
    exit_of("show", show(options))
}

fn show(options: &ShowOptions) -> Result<(), Failure> {
    let mut connection = options.server.connect()?;
    for name in connection.adapters(options.adapter.as_deref())? {
        let whole = read(&mut connection, &name)?;
        match options.json {
            true => print_json(&whole)?,
            false => print(&text::of(&whole))?,
        }
    }
    Ok(())
}

const KINDS: [ObjectKind; 5] = [
    ObjectKind::QueuePairs,
    ObjectKind::CompletionQueues,
    ObjectKind::EventQueues,
    ObjectKind::SharedReceiveQueues,
    ObjectKind::Keys,
];

fn read(connection: &mut Connection, name: &str) -> Result<Whole, Failure> {
    let adapter = connection.ask(&Request::Show { adapter: name.to_owned() })?;
    let mut whole = Whole {
        schema: "rnic.show/1",
        adapter,
        queue_pairs: Vec::new(),
        completion_queues: Vec::new(),
        event_queues: Vec::new(),
        shared_receive_queues: Vec::new(),
        keys: Vec::new(),
    };
    for kind in KINDS {
        let mut from = Some(0);
        while let Some(place) = from {
            let page = Page { from: place, limit: MAX_ENTRIES };
            let report: ObjectsReport = connection.ask(&Request::Objects { adapter: name.to_owned(), kind, page })?;
            match report.objects {
                ObjectRows::QueuePairs(rows) => whole.queue_pairs.extend(rows),
                ObjectRows::CompletionQueues(rows) => whole.completion_queues.extend(rows),
                ObjectRows::EventQueues(rows) => whole.event_queues.extend(rows),
                ObjectRows::SharedReceiveQueues(rows) => whole.shared_receive_queues.extend(rows),
                ObjectRows::Keys(rows) => whole.keys.extend(rows),
            }
            from = report.next.filter(|next| *next > place);
        }
    }
    Ok(whole)
}
