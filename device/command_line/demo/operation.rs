//! The operation: both hosts brought up, the request posted, and what was counted for it put together.

use super::Failure;
use super::hosts::Host;
use super::options::{DemoOptions, Fault, HostsKind};
use super::report::{HostReport, Report};
use super::{Steps, crossings, story};
use crate::agent::{Opened, Order, Verified};
use rnic_ci::Progress;
use rnic_device::server::Server;
use rnic_shim::transaction::{self, Role, TransactionSpec};
use rnic_shim::verbs::{DoorbellForm, MrLayout};
use serde_json::Value;
use std::time::Instant;

fn spec(options: &DemoOptions, role: Role) -> TransactionSpec {
    use super::options::{Doorbell, Op, Transport};
    let lossy = matches!(options.fault, Some(Fault::Drop(_)));
    TransactionSpec {
        transport: match options.transport {
            Transport::Rc => transaction::Transport::Rc,
            Transport::Uc => transaction::Transport::Uc,
            Transport::Ud => transaction::Transport::Ud,
        },
        operation: match options.op {
            Op::Write => transaction::Operation::Write,
            Op::WriteImm => transaction::Operation::WriteImm,
            Op::Send => transaction::Operation::Send,
            Op::SendImm => transaction::Operation::SendImm,
            Op::SendInv => transaction::Operation::SendInv,
            Op::Read => transaction::Operation::Read,
            Op::CompareSwap => transaction::Operation::CompareSwap,
            Op::FetchAdd => transaction::Operation::FetchAdd,
        },
        length_bytes: options.length(),
        path_mtu_bytes: options.mtu_bytes(),
        armed: options.armed && role == Role::Responder,
        signaled: !options.unsignaled,
        inline: options.inline,
        doorbell: match options.doorbell {
            Doorbell::Value => DoorbellForm::Word,
            Doorbell::Line => DoorbellForm::Line,
            Doorbell::Wqe => DoorbellForm::Wqe,
        },
        layout: MrLayout::List,
        fault: match options.fault {
            Some(Fault::BadRkey) => Some(transaction::Fault::BadRkey),
            Some(Fault::Bounds) => Some(transaction::Fault::OutOfBounds),
            Some(Fault::Permission) => Some(transaction::Fault::NoRemoteRight),
            Some(Fault::Drop(_)) | None => None,
        },
        seed: options.seed,
        // 67 ms where a packet is lost on purpose; half a second where a busy machine must not look like a loss.
        timeout: if lossy { 14 } else { 17 },
        limit_ms: options.time_limit.clamp(1, 60) * 1000,
        ..TransactionSpec::default()
    }
}

/// Every step of the operation, with the ledgers read right before and right after.
pub fn operate(
    options: &DemoOptions,
    server: &Server,
    hosts: &[Host; 2],
    until: Instant,
    steps: &mut Steps,
) -> Result<Report, Failure> {
    let [a, b] = hosts;
    let opened = bring_up(options, hosts, until)?;
    let flush = options.cold;
    b.order::<Value>(&Order::Ready { flush }, until)?;
    a.order::<Value>(&Order::Ready { flush }, until)?;
    let adapters = ["A", "B"].map(|name| server.adapter(name));
    let [Some(adapter_a), Some(adapter_b)] = adapters else {
        return Err(Failure::Environment("the adapters are gone".to_owned()));
    };
    steps.step("posting the operation");
    let marks = (crossings::mark(adapter_a)?, crossings::mark(adapter_b)?);
    b.say(&Order::Wait, until)?;
    a.order::<Value>(&Order::Post, until)?;
    a.order::<Value>(&Order::Wait, until)?;
    b.hear::<Value>(&Order::Wait, until)?;
    let [opened_a, opened_b] = &opened;
    let kernel = |opened: &Opened| opened.kernel.clone().filter(|_| options.hosts == HostsKind::Qemu);
    let (qpn_a, qpn_b) = (opened_a.endpoint.qpn, opened_b.endpoint.qpn);
    let mut host_a = crossings::read(adapter_a, marks.0, "requester", qpn_a, kernel(opened_a))?;
    let mut host_b = crossings::read(adapter_b, marks.1, "responder", qpn_b, kernel(opened_b))?;
    let verified_a: Verified = a.order(&Order::Verify, until)?;
    let mut verified_b: Verified = b.order(&Order::Verify, until)?;
    if options.details {
        host_a.bring_up = Some(a.order(&Order::Report, until)?);
        host_b.bring_up = Some(b.order(&Order::Report, until)?);
    }
    if options.is_refused() {
        for (host, report) in hosts.iter().zip([&mut host_a, &mut host_b]) {
            report.aftermath = Some(host.order(&Order::Aftermath, until)?);
        }
        // The receive that the refused request has not used up ends with the queue pair.
        let flushed = host_b.aftermath.as_ref().and_then(|after| after.completions.first());
        verified_b.status = verified_b.status.or_else(|| flushed.map(|completion| completion.status.clone()));
    }
    Ok(assemble(options, [host_a, host_b], &verified_a, &verified_b))
}

fn bring_up(options: &DemoOptions, hosts: &[Host; 2], until: Instant) -> Result<[Opened; 2], Failure> {
    let [a, b] = hosts;
    let open = |role| Order::Open { spec: Box::new(spec(options, role)), role };
    let (open_a, open_b) = (open(Role::Requester), open(Role::Responder));
    a.say(&open_a, until)?;
    b.say(&open_b, until)?;
    let (opened_a, opened_b): (Opened, Opened) = (a.hear(&open_a, until)?, b.hear(&open_b, until)?);
    b.order::<Value>(&Order::Connect { peer: opened_a.endpoint }, until)?;
    a.order::<Value>(&Order::Connect { peer: opened_b.endpoint }, until)?;
    Ok([opened_a, opened_b])
}

fn assemble(options: &DemoOptions, hosts: [HostReport; 2], a: &Verified, b: &Verified) -> Report {
    let story = story::of(options, hosts[0].torn_lines > 0);
    let matches_story = story.matches(&hosts[0].crossings, &hosts[1].crossings);
    for (name, verified) in [("A", a), ("B", b)] {
        verified.faults.iter().for_each(|fault| tell!("rnic demo: host {name}: {fault}"));
    }
    let delivered = !options.is_refused();
    let expected = (delivered && options.op.has_immediate()).then_some(TransactionSpec::default().immediate);
    let intact = a.faults.is_empty() && b.faults.is_empty();
    let digest = if options.op.fetches() { &a.data_sha256 } else { &b.data_sha256 };
    let repeated = hosts.iter().flat_map(|host| &host.crossings).filter(|row| row.attempt > 0).count();
    Report {
        schema: "rnic.demo/1",
        operation: format!("{}{}", options.transport.prefix(), options.op.name()),
        length_bytes: options.length(),
        mtu: options.mtu_bytes(),
        packets: options.packets(),
        hosts_kind: if options.hosts == HostsKind::Qemu { "qemu" } else { "model" },
        qemu: None,
        accelerator: None,
        fault: options.fault.map(|fault| match fault {
            Fault::BadRkey => "bad-rkey".to_owned(),
            Fault::Bounds => "bounds".to_owned(),
            Fault::Permission => "permission".to_owned(),
            Fault::Drop(number) => format!("drop:{number}"),
        }),
        requester_status: a.status.clone().unwrap_or_else(|| "no completion asked for".to_owned()),
        responder_status: b.status.clone().unwrap_or_else(|| "no completion".to_owned()),
        data_verified: delivered.then_some(intact),
        imm_verified: expected.map(|_| b.immediate == expected),
        target_untouched: (!delivered).then_some(intact),
        stray_immediate: expected.is_none() && b.immediate.is_some(),
        data_sha256: delivered.then(|| digest.clone()),
        repeated,
        nak: None,
        story: [story.requester_total(), story.responder_total()],
        matches_story,
        hosts,
        elapsed_ms: 0,
    }
}
