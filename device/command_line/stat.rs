//! `rnic stat`: what has crossed the link, by function, class, role and queue pair.

use crate::connection::{Connection, Failure, ServerChoice, exit_of, parse_number, print, print_json, seconds};
use crate::exit::Exit;
use clap::Args;
use rnic_device::management::reports::stat::{FunctionStat, MarksReport, Moment, StatReport, TotalsRow};
use rnic_device::management::{Request, Span};
use std::time::Duration;

#[derive(Debug, Args)]
#[command(
    long_about = "What has crossed the PCIe link of a server's adapters: totals by class and function, and by queue pair.\n\n\
        A crossing is one transfer for one purpose; docs/hardware-abi.md, section Counting, lists the classes. Totals are \
        never reset in the adapter: --zero sets the point from which they are shown. --between shows what lies between two \
        values that a driver wrote to its MARK register, without the two writes.\n\n\
        Columns: crossings, bytes of payload, TLPs by kind (MRd, MWr, CplD), bytes on the link with headers and framing \
        (down: host to device, up: device to host), stores and loads as they were seen to arrive, and faults.",
    after_help = "Examples:\n  rnic stat\n  rnic stat A --per-op\n  rnic stat A --zero\n  rnic stat A --between 1 2 --json\n  \
        rnic stat --watch 2\n\n\
        With --json one object an adapter and line, schema rnic.stat/1; sizes in bytes, times in nanoseconds of the \
        adapter's own clock.\n\
        Exit: 0; 2 for a name or mark that does not exist; 3 when no server runs or it goes; 4 when it does not answer in time."
)]
pub struct StatOptions {
    /// The adapter [default: all].
    adapter: Option<String>,
    #[command(flatten)]
    server: ServerChoice,
    /// Add crossings per operation, as requester and as responder.
    #[arg(long)]
    per_op: bool,
    /// Add the functions' counters.
    #[arg(long)]
    counters: bool,
    /// Show what was counted, and count from zero from now on.
    #[arg(long, conflicts_with_all = ["watch", "between", "marks"])]
    zero: bool,
    /// Count from the adapter's start, whatever was zeroed.
    #[arg(long, conflicts_with_all = ["between", "marks", "watch"])]
    since_start: bool,
    /// Count between the newest mark M2 and the nearest mark M1 before it.
    #[arg(long, num_args = 2, value_names = ["M1", "M2"], value_parser = parse_number, conflicts_with = "watch")]
    between: Vec<u64>,
    /// List the marks that the driver wrote.
    #[arg(long, conflicts_with = "between")]
    marks: bool,
    /// Show what each period adds, until interrupted.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", value_parser = period)]
    watch: Option<Duration>,
    /// JSON instead of text.
    #[arg(long)]
    json: bool,
}

fn period(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is no number of seconds"))?;
    match seconds {
        seconds if (0.1..=86_400.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!("{text} s: a period is 0.1 s to a day")),
    }
}

pub fn run(options: &StatOptions) -> Exit {
    exit_of("stat", stat(options))
}

fn stat(options: &StatOptions) -> Result<(), Failure> {
    let mut connection = options.server.connect()?;
    let adapters = connection.adapters(options.adapter.as_deref())?;
    if options.marks {
        return adapters.iter().try_for_each(|name| marks(&mut connection, options.json, name));
    }
    let span = match options.between[..] {
        [first, last] => Span::Between(first, last),
        _ if options.since_start => Span::SinceStart,
        _ => Span::SinceZero,
    };
    let mut earlier = None;
    loop {
        let mut reports = Vec::new();
        let mut without_marks = Vec::new();
        for name in &adapters {
            match read(&mut connection, name, span, options.zero) {
                // Of several adapters, those that have the marks are shown.
                Err(Failure::Usage(sentence)) if adapters.len() > 1 && matches!(span, Span::Between(..)) => {
                    without_marks.push(sentence);
                }
                report => reports.push(report?),
            }
        }
        if reports.is_empty() && !without_marks.is_empty() {
            return Err(Failure::Usage(without_marks.join("; ")));
        }
        without_marks.iter().for_each(|sentence| tell!("rnic stat: {sentence}"));
        let Some(period) = options.watch else { return show(options, &reports) };
        if let Some(earlier) = earlier.replace(reports.clone()) {
            let changes: Vec<_> = reports.iter().zip(&earlier).map(|(now, then)| change(now, then)).collect();
            show(options, &changes)?;
        }
        std::thread::sleep(period);
    }
}

/// A report with all queue pairs: they come in pages.
fn read(connection: &mut Connection, adapter: &str, span: Span, zero: bool) -> Result<StatReport, Failure> {
    let request = |span, zero, queues_from| Request::Stat { adapter: adapter.to_owned(), span, zero, queues_from };
    let mut report: StatReport = connection.ask(&request(span, zero, 0))?;
    while let Some(from) = report.more_queues_from {
        let more: StatReport = connection.ask(&request(span, false, from))?;
        report.queues.extend(more.queues);
        report.more_queues_from = more.more_queues_from.filter(|next| *next > from);
    }
    Ok(report)
}

fn show(options: &StatOptions, reports: &[StatReport]) -> Result<(), Failure> {
    for report in reports {
        if options.json {
            let mut value = serde_json::to_value(report).map_err(|error| Failure::Environment(error.to_string()))?;
            value["schema"] = "rnic.stat/1".into();
            print_json(&value)?;
        } else {
            print(&text(options, report))?;
        }
    }
    Ok(())
}

fn marks(connection: &mut Connection, as_json: bool, adapter: &str) -> Result<(), Failure> {
    let report: MarksReport = connection.ask(&Request::Marks { adapter: adapter.to_owned() })?;
    if as_json {
        return print_json(&report);
    }
    let mut text = format!("adapter {adapter}: {} marks, {} older ones not kept\n", report.marks.len(), report.lost);
    for mark in &report.marks {
        text +=
            &format!("  {:<20}  {}  crossing {}\n", format!("{:#x}", mark.value), seconds(mark.time_ns), mark.sequence);
    }
    print(&text)
}

fn moment(moment: &Moment) -> String {
    let place = format!("{}, crossing {}", seconds(moment.time_ns), moment.sequence);
    match moment.mark {
        Some(mark) => format!("mark {mark:#x} ({place})"),
        None => format!("{} ({place})", moment.what),
    }
}

fn text(options: &StatOptions, report: &StatReport) -> String {
    let mut text = String::new();
    for function in &report.functions {
        text += &of_function(options, report, function);
        // Operations are the RNIC's.
        if function.function == 0 {
            text += &operations(report);
        }
    }
    if options.counters {
        for (name, value) in report.counters.iter().chain(&report.ethernet_counters).filter(|(_, value)| **value > 0) {
            text += &format!("  {name:<28}{value:>12}\n");
        }
    }
    text
}

fn of_function(options: &StatOptions, report: &StatReport, function: &FunctionStat) -> String {
    let (adapter, number, link) = (&report.adapter, function.function, &function.link);
    // An Ethernet function that nobody uses.
    if number > 0 && function.total.crossings == 0 {
        return format!("adapter {adapter}, function {number} ({}): no crossings\n", function.name);
    }
    let mut text = format!(
        "adapter {adapter}, function {number} ({}), PCIe gen {} x{}, MPS {} MRRS {} RCB {}\nfrom {} to {}\n",
        function.name,
        link.generation,
        link.width,
        link.mps,
        link.mrrs,
        link.rcb,
        moment(&report.since),
        moment(&report.until)
    );
    text += &heading("class");
    for (class, totals) in &function.classes {
        text += &row(class, totals);
    }
    text += &row("total", &function.total);
    if options.per_op {
        text += &per_op(function, report);
    }
    text
}

fn operations(report: &StatReport) -> String {
    let mut text = format!(
        "operations: {} sends ended, {} messages of peers executed\n",
        report.operations.finished_sends, report.operations.executed_messages
    );
    if !report.queues.is_empty() {
        text += &heading("queue pair");
        for queue in &report.queues {
            for (role, totals) in [("requester", &queue.requester), ("responder", &queue.responder)] {
                if totals.crossings > 0 {
                    text += &row(&format!("{:#x} {role}", queue.qpn), totals);
                }
            }
        }
    }
    if report.queues_missing {
        text += "queue pairs: not kept any more for these marks; mark more often, or sooner\n";
    }
    text
}

fn heading(what: &str) -> String {
    format!(
        "  {what:<20}{:>10}{:>14}{:>10}{:>10}{:>10}{:>14}{:>14}{:>10}{:>7}\n",
        "crossings", "bytes", "MRd", "MWr", "CplD", "wire down", "wire up", "observed", "faults"
    )
}

fn row(name: &str, totals: &TotalsRow) -> String {
    format!(
        "  {name:<20}{:>10}{:>14}{:>10}{:>10}{:>10}{:>14}{:>14}{:>10}{:>7}\n",
        totals.crossings,
        totals.bytes,
        totals.mrd,
        totals.mwr,
        totals.cpld,
        totals.wire_down_bytes,
        totals.wire_up_bytes,
        totals.observed_messages,
        totals.faults
    )
}

/// Each role's crossings, divided by its operations.
fn per_op(function: &FunctionStat, report: &StatReport) -> String {
    let operations = &report.operations;
    let mut text = String::new();
    for (role, count, what) in
        [("requester", operations.finished_sends, "send"), ("responder", operations.executed_messages, "message")]
    {
        let Some(shares) = function.roles.get(role).filter(|shares| !shares.is_empty()) else { continue };
        if count == 0 {
            text += &format!("per {what} as {role}: none has ended, {} crossings so far\n", crossings(shares.values()));
            continue;
        }
        let each = |value: u64| value as f64 / count as f64;
        text += &format!("per {what} as {role} ({count}): {:.3} crossings\n", each(crossings(shares.values())));
        for (class, share) in shares {
            text += &format!("  {class:<20}{:>10.3}{:>14.1} bytes\n", each(share.crossings), each(share.bytes));
        }
    }
    text
}

fn crossings<'a>(shares: impl Iterator<Item = &'a rnic_device::management::reports::stat::ShareRow>) -> u64 {
    shares.map(|share| share.crossings).sum()
}

/// What came between two reports of one adapter.
fn change(now: &StatReport, then: &StatReport) -> StatReport {
    let mut change = now.clone();
    change.since = Moment { what: "then".into(), ..then.until.clone() };
    change.operations.finished_sends -= then.operations.finished_sends.min(now.operations.finished_sends);
    change.operations.executed_messages -= then.operations.executed_messages.min(now.operations.executed_messages);
    for (function, earlier) in change.functions.iter_mut().zip(&then.functions) {
        function.total = function.total.since(&earlier.total);
        for (class, totals) in &mut function.classes {
            earlier.classes.get(class).into_iter().for_each(|earlier| *totals = totals.since(earlier));
        }
        function.classes.retain(|_, totals| totals.crossings > 0);
        for (role, shares) in &mut function.roles {
            for (class, share) in shares.iter_mut() {
                if let Some(earlier) = earlier.roles.get(role).and_then(|shares| shares.get(class)) {
                    share.crossings = share.crossings.saturating_sub(earlier.crossings);
                    share.bytes = share.bytes.saturating_sub(earlier.bytes);
                }
            }
            shares.retain(|_, share| share.crossings > 0);
        }
    }
    for queue in &mut change.queues {
        if let Some(earlier) = then.queues.iter().find(|earlier| earlier.qpn == queue.qpn) {
            queue.requester = queue.requester.since(&earlier.requester);
            queue.responder = queue.responder.since(&earlier.responder);
        }
    }
    change.queues.retain(|queue| !queue.is_empty());
    for (name, value) in &mut change.counters {
        *value = value.saturating_sub(then.counters.get(name).copied().unwrap_or(0));
    }
    for (name, value) in &mut change.ethernet_counters {
        *value = value.saturating_sub(then.ethernet_counters.get(name).copied().unwrap_or(0));
    }
    change
}
