//! What the drivers see: completions and events, each judged against what was posted.

use crate::connection::*;
use crate::message::{Message, pool};
use crate::operations::{Family, Fault, FaultKind};
use crate::run::{Checked, Simulation, explain};
use rnic_abi::{CompletionOpcode, CompletionStatus, EventType};
use rnic_shim::verbs::*;
use std::rc::Rc;

impl Simulation {
    pub(crate) fn poll_some(&mut self, all: bool) -> Checked<bool> {
        let mut any = false;
        for host in 0..self.hosts.len() {
            if all || self.random.one_in(self.plan.poll_one_in) {
                any |= self.poll_host(host)?;
            }
        }
        Ok(any)
    }

    /// Takes all completions and events of a host, and arms queues anew.
    pub(crate) fn poll_host(&mut self, host: usize) -> Checked<bool> {
        let mut any = false;
        let mut completions = [WorkCompletion::default(); 32];
        for queue in 0..self.hosts[host].queues.len() {
            let cqn = self.hosts[host].queues[queue].cqn;
            loop {
                let taken = self.hosts[host]
                    .device
                    .poll(cqn, &mut completions)
                    .map_err(explain("polling a completion queue"))?;
                any |= taken > 0;
                for completion in &completions[..taken] {
                    self.note_due(host, queue, completion);
                    self.judge(host, completion)?;
                }
                if taken < completions.len() {
                    break;
                }
            }
        }
        any |= self.poll_events(host)?;
        self.arm_some(host)?;
        Ok(any)
    }

    /// An armed queue's event must come when an entry of its kind has.
    fn note_due(&mut self, host: usize, queue: usize, completion: &WorkCompletion) {
        let queue = &mut self.hosts[host].queues[queue];
        let failed = completion.status() != CompletionStatus::SUCCESS;
        if let Some(solicited_only) = queue.armed {
            queue.due |= !solicited_only || completion.solicited || failed;
        }
    }

    fn judge(&mut self, host: usize, completion: &WorkCompletion) -> Checked {
        self.hosts[host].counted.completions += 1;
        let numbers = [completion.qpn.into(), completion.wr_id, completion.status.into(), completion.opcode.into()];
        self.enter("completes", host, numbers);
        let place = (host, completion.qpn);
        let receive = completion.opcode & CompletionOpcode::RECV.0 != 0;
        let judged = match (self.places.get(&place).copied(), self.unreliable.places.get(&place).copied()) {
            (Some((number, side)), _) if receive => self.judge_receive(number, 1 - side, completion),
            (Some((number, side)), _) => self.judge_send(number, side, completion),
            (None, Some(station)) => self.judge_station(station, completion),
            (None, None) => Err("which it has not".into()),
        };
        judged.map_err(|what| {
            let kind = if receive { "receive" } else { "send" };
            let (qpn, status) = (completion.qpn, completion.status());
            let rule = completion.rule().map_or("no rule", |rule| rule.name);
            format!("host {host}, {kind} {} of {qpn:#x} completes with {status:?} ({rule}): {what}", completion.wr_id)
        })
    }

    fn judge_send(&mut self, number: usize, side: usize, completion: &WorkCompletion) -> Checked {
        let flow = &mut self.connections[number].flows[side];
        let newest = flow.outstanding.iter().position(|message| message.number == completion.wr_id);
        let Some(place) = newest else { return Err("it is not outstanding".into()) };
        if usize::from(completion.retired) != place + 1 {
            return Err(format!("the driver retires {} requests with it, not {}", completion.retired, place + 1));
        }
        // What was unsignaled before it has succeeded in silence; every failure speaks.
        for _ in 0..place {
            let silent = self.connections[number].flows[side].outstanding.front().cloned();
            let Some(silent) = silent else { break };
            let connection = &self.connections[number];
            if connection.is_excused() && connection.flows[side].failed {
                // A fetch that failed stands for everything it was to bring.
                self.send_ends(number, side, &silent, CompletionStatus::WR_FLUSH_ERR)?;
                continue;
            }
            if silent.signaled {
                return Err(format!("signaled request {} before it has no completion", silent.number));
            }
            self.send_ends(number, side, &silent, CompletionStatus::SUCCESS)?;
        }
        let message = self.connections[number].flows[side].outstanding.front().cloned();
        let Some(message) = message else { return Ok(()) };
        let status = completion.status();
        if status == CompletionStatus::SUCCESS {
            if !message.signaled {
                return Err("it was not signaled, and succeeded".into());
            }
            if completion.opcode != message.operation.opcode.0 {
                return Err(format!("opcode {:#x} is not that of {}", completion.opcode, message.operation.name));
            }
        } else if !message.signaled {
            self.coverage.item(70);
        }
        self.coverage.item(72);
        self.send_ends(number, side, &message, status)
    }

    /// The oldest send of a flow ends.
    fn send_ends(&mut self, number: usize, side: usize, message: &Rc<Message>, status: CompletionStatus) -> Checked {
        self.judge_status(number, side, message, status)?;
        let connection = &mut self.connections[number];
        let receiver = connection.ends[1 - side].host;
        let sender = connection.ends[side].host;
        let mtu = connection.profile.mtu;
        let flow = &mut connection.flows[side];
        flow.outstanding.pop_front();
        if message.placed {
            flow.writes.free();
        }
        if message.operation.is_answered() {
            flow.landings.free();
        }
        if status != CompletionStatus::SUCCESS {
            flow.doubt(message);
            if message.operation.is_answered() {
                flow.remember(message);
            }
            return Ok(());
        }
        if message.operation.is_answered() {
            flow.remember(message);
            return self.check_brought(number, side, message);
        }
        if message.operation.family == Family::Local {
            return self.view_changes(number, side);
        }
        self.hosts[receiver].counted.placed_least += u64::from(message.length.div_ceil(mtu));
        if message.writes_through_view()
            && let Some(view) = &mut self.connections[number].flows[side].view
        {
            message.apply(pool(sender), &mut view.shadow);
        }
        if message.writes() {
            let flow = &mut self.connections[number].flows[side];
            message.apply(pool(sender), &mut flow.shadow);
            if message.alone.get() {
                self.check_written(number, side, message)?;
                // From now on its place may be another's.
                message.alone.set(false);
            }
        }
        Ok(())
    }

    /// What a READ or an atomic brought is where it belongs.
    fn check_brought(&mut self, number: usize, side: usize, message: &Message) -> Checked {
        let connection = &self.connections[number];
        let (sender, receiver) = (connection.ends[side].host, connection.ends[1 - side].host);
        let iova = connection.flows[side].landing.buffer.iova + u64::from(message.landing);
        let counted = &mut self.hosts[sender].counted;
        counted.placed_least += u64::from(message.brought().div_ceil(connection.profile.mtu));
        let peer = &mut self.hosts[receiver].counted;
        match message.operation.family {
            Family::AtomicWrite => {
                peer.atomic_writes_least += 1;
                return Ok(());
            }
            Family::Flush => {
                peer.flushes_least += u64::from(message.length > 0);
                return Ok(());
            }
            _ => {}
        }
        let Some(work) = message.atomic else { return self.check_bytes(receiver, sender, iova, message) };
        self.hosts[receiver].counted.atomics_least += 1;
        let mut bytes = [0; 8];
        self.hosts[sender].read(iova, &mut bytes).map_err(explain("reading what an atomic brought"))?;
        let found = u64::from_le_bytes(bytes);
        if found != work.before {
            return Err(format!("it brought {found:#x} of word {}, which was {:#x}", work.word, work.before));
        }
        Ok(())
    }

    /// The bytes are where they belong, by the time somebody hears of it.
    fn check_written(&mut self, number: usize, side: usize, message: &Message) -> Checked {
        let connection = &self.connections[number];
        let Some(target) = &connection.flows[side].target else { return Ok(()) };
        let (sender, receiver) = (connection.ends[side].host, connection.ends[1 - side].host);
        let iova = target.buffer.iova + u64::from(message.at);
        self.check_bytes(sender, receiver, iova, message)
    }

    /// The message's bytes, from this host's pool.
    fn check_bytes(&mut self, sender: usize, receiver: usize, iova: u64, message: &Message) -> Checked {
        let mut bytes = vec![0; message.length as usize];
        self.hosts[receiver].read(iova, &mut bytes).map_err(explain("reading what was written"))?;
        if !message.carries(pool(sender), 0, &bytes) {
            return Err(format!(
                "the {} bytes at {iova:#x} are not those of message {}",
                message.length, message.number
            ));
        }
        self.coverage.item(40);
        Ok(())
    }

    fn judge_status(&mut self, number: usize, side: usize, message: &Message, status: CompletionStatus) -> Checked {
        let lossy = self.plan.wire.is_lossy();
        let exact = self.plan.memory == crate::plan::Memory::default();
        let connection = &mut self.connections[number];
        let (doom, phase, profile, excused) =
            (connection.doom, connection.phase, connection.profile, connection.is_excused());
        let flow = &mut connection.flows[side];
        let own_fault = message.fault.map(|fault| fault.status);
        match status {
            CompletionStatus::SUCCESS if flow.failed => return Err("an earlier request has failed".into()),
            CompletionStatus::SUCCESS => {
                return match message.fault {
                    Some(fault) if !excused => Err(format!("it must fail: {}", fault.name)),
                    _ => Ok(()),
                };
            }
            CompletionStatus::WR_FLUSH_ERR => {
                let waits = phase == Phase::Running && doom.and_then(|doom| doom.flow()) == Some(side) && !flow.failed;
                if phase == Phase::Running && doom.is_none() && !flow.failed {
                    return Err("nothing has failed".into());
                }
                if waits {
                    return Err("what fails has not failed yet".into());
                }
                flow.flushed = true;
                self.coverage.items(&[73, 74]);
                return Ok(());
            }
            _ if flow.failed => return Err("a request before it has failed already: it must be flushed".into()),
            _ => {}
        }
        flow.failed = true;
        let (tries, rnr_tries) = flow.requester.tries();
        let met_rekey = match doom {
            Some(Doom::Rekey { flow, before, view }) => {
                let used = if view { message.view } else { message.writes() };
                flow == side && message.number < before && used
            }
            _ => false,
        };
        let right = excused
            || own_fault == Some(status)
            || (status == CompletionStatus::RETRY_EXC_ERR && (lossy || doom.is_some()))
            || (status == CompletionStatus::RNR_RETRY_EXC_ERR && profile.rnr_retry < 7)
            || (status == CompletionStatus::REM_ACCESS_ERR && met_rekey);
        if !right {
            return Err(format!("message {} has no reason for it", message.number));
        }
        if own_fault == Some(status) {
            self.coverage.items(message.fault.map_or(&[][..], |fault| fault.items));
        }
        if met_rekey {
            self.coverage.item(91);
        }
        let gone = doom.and_then(|doom| doom.kind()) == Some(FaultKind::PeerGone);
        if status == CompletionStatus::RETRY_EXC_ERR && gone {
            self.coverage.items(&[55, 109]);
        }
        if status == CompletionStatus::RETRY_EXC_ERR && gone && exact && !lossy && tries != u32::from(profile.retry_cnt)
        {
            return Err(format!("after {tries} retries, and retry_cnt is {}", profile.retry_cnt));
        }
        let never = message.fault.is_some_and(|fault| fault.kind == FaultKind::NeverReady);
        let patience = u32::from(profile.rnr_retry);
        if status == CompletionStatus::RNR_RETRY_EXC_ERR
            && (rnr_tries > patience || (never && exact && !lossy && rnr_tries != patience))
        {
            return Err(format!("after {rnr_tries} waits for the receiver, and rnr_retry is {patience}"));
        }
        Ok(())
    }

    fn judge_receive(&mut self, number: usize, side: usize, completion: &WorkCompletion) -> Checked {
        let shared = self.connections[number].ends[1 - side].shared;
        let posted = match shared {
            Some(queue) => self.take_shared(queue, completion.wr_id)?,
            None => self.connections[number].flows[side].take_receive(completion.wr_id)?,
        };
        let connection = &mut self.connections[number];
        let flow = &mut connection.flows[side];
        let message = flow.arriving.front().cloned();
        let status = completion.status();
        if status == CompletionStatus::SUCCESS {
            if flow.receive_failed {
                return Err("an earlier receive has failed".into());
            }
            let Some(message) = message else { return Err("no message is on its way".into()) };
            flow.arriving.pop_front();
            return self.message_arrives(number, side, posted, &message, completion);
        }
        let expected = message.as_ref().and_then(|message| message.fault).and_then(|fault| fault.receive_status);
        let flushed = status == CompletionStatus::WR_FLUSH_ERR;
        let known = flow.receive_failed || connection.doom.is_some() || connection.phase != Phase::Running;
        let flow = &mut connection.flows[side];
        // Whatever fails on this side flushes the receives, too: its own sends may have run out of patience.
        let reverse_failed = self.plan.wire.is_lossy() || connection.profile.rnr_retry < 7;
        if flushed && (known || reverse_failed) {
            flow.receive_failed = true;
            self.coverage.items(&[73, 74]);
            return Ok(());
        }
        if expected == Some(status) && !flow.receive_failed {
            flow.receive_failed = true;
            return Ok(());
        }
        let excused = connection.is_excused();
        connection.flows[side].receive_failed = true;
        if excused { Ok(()) } else { Err("it has no reason for it".into()) }
    }

    fn message_arrives(
        &mut self,
        number: usize,
        side: usize,
        posted: Posted,
        message: &Rc<Message>,
        completion: &WorkCompletion,
    ) -> Checked {
        let connection = &self.connections[number];
        let (sender, receiver) = (connection.ends[side], connection.ends[1 - side]);
        let arena = match receiver.shared {
            Some(queue) => self.shared[queue].arena.buffer.iova,
            None => connection.flows[side].arena.buffer.iova,
        };
        let operation = message.operation;
        let write = operation.family == Family::Write;
        let opcode = if write { CompletionOpcode::RECV_RDMA_WITH_IMM } else { CompletionOpcode::RECV };
        let immediate = operation.immediate.then_some(message.immediate);
        let (length, solicited) = (completion.byte_len, completion.solicited);
        let found =
            (completion.opcode, length, completion.immediate, completion.invalidated, completion.src_qpn, solicited);
        let right = (opcode.0, message.length, immediate, message.invalidates, sender.qpn.0, message.solicited);
        if found != right {
            return Err(format!("it says {found:x?}, and message {} is {right:x?}", message.number));
        }
        if let Some(fault) = message.fault.filter(|_| !connection.is_excused()) {
            return Err(format!("message {} must not arrive: {}", message.number, fault.name));
        }
        let counted = &mut self.hosts[receiver.host].counted;
        counted.receives_least += 1;
        // Of a shared queue its place in the index ring, too.
        counted.receives_most += 1 + u64::from(receiver.shared.is_some());
        if write && message.writes() && message.alone.get() {
            self.check_written(number, side, message)?;
        } else if !write {
            self.check_bytes(sender.host, receiver.host, arena + u64::from(posted.at), message)?;
        }
        self.coverage.items(&[26, 72]);
        if message.invalidates.is_some() {
            self.coverage.item(37);
            self.view_closes(number, side)?;
        }
        Ok(())
    }

    fn poll_events(&mut self, host: usize) -> Checked<bool> {
        let mut any = false;
        while let Some(event) =
            self.hosts[host].device.poll_event(Device::ASYNC_EQN).map_err(explain("polling an event queue"))?
        {
            any = true;
            self.hosts[host].counted.events += 1;
            self.enter("hears", host, [event.event_type.0.into(), event.object.into(), event.data.into(), 0]);
            self.judge_event(host, event)?;
        }
        Ok(any)
    }

    fn judge_event(&mut self, host: usize, event: Event) -> Checked {
        if event.event_type == EventType::COMPLETION {
            let queue = self.hosts[host].queues.iter_mut().find(|queue| queue.cqn.0 == event.object);
            let Some(queue) = queue else { return Err(format!("host {host}: an event of CQ {:#x}", event.object)) };
            if queue.armed.take().is_none() {
                return Err(format!("host {host}: an event of CQ {:#x}, which is not armed", event.object));
            }
            queue.due = false;
            self.coverage.items(&[93, 96, 97]);
            return Ok(());
        }
        if let Some(judged) = self.judge_shared_event(host, event) {
            return judged;
        }
        if let Some(station) = self.unreliable.places.get(&(host, event.object)).copied() {
            return self.judge_station_event(station, event).map_err(|what| format!("host {host}: {what}"));
        }
        let Some((number, side)) = self.places.get(&(host, event.object)).copied() else {
            return Err(format!("host {host}: {event:?}, of nobody; {}", self.occupancy(host)));
        };
        let connection = &mut self.connections[number];
        if event.event_type == EventType::COMM_EST {
            if std::mem::replace(&mut connection.established[side], true) {
                return Err(format!("host {host}: {event:?}, for the second time"));
            }
            self.coverage.item(25);
            return Ok(());
        }
        let lossy = self.plan.wire.is_lossy() || connection.profile.rnr_retry < 7;
        let expected = match connection.doom {
            Some(Doom::Fault { flow, fault: Fault { event: Some(expected), .. } }) if flow == 1 - side => {
                Some(*expected)
            }
            Some(Doom::Rekey { flow, .. }) if flow == 1 - side => Some(EventType::QP_ACCESS_ERR),
            _ => None,
        };
        let fatal = event.event_type == EventType::QP_FATAL;
        if expected == Some(event.event_type) {
            self.coverage.items(&[102, 103]);
            return Ok(());
        }
        let known = fatal && (lossy || connection.doom.is_some() || connection.phase != Phase::Running);
        if known || connection.is_excused() {
            return Ok(());
        }
        Err(format!("host {host}: {event:?} of connection {number}, which has {:?}", connection.doom))
    }

    /// What may still be written to each completion queue of a host.
    fn occupancy(&self, host: usize) -> String {
        let mut text = String::new();
        for queue in &self.hosts[host].queues {
            let mut posted = [0, 0];
            for connection in &self.connections {
                for (side, end) in connection.ends.iter().enumerate().filter(|(_, end)| end.host == host) {
                    posted[0] += if end.send_cq == queue.cqn { connection.flows[side].outstanding.len() } else { 0 };
                    posted[1] +=
                        if end.receive_cq == queue.cqn { connection.flows[1 - side].receives.len() } else { 0 };
                }
            }
            text += &format!("{}: {posted:?} posted; ", queue.cqn);
        }
        text
    }

    fn arm_some(&mut self, host: usize) -> Checked {
        for queue in 0..self.hosts[host].queues.len() {
            let Queue { cqn, armed, .. } = self.hosts[host].queues[queue];
            if armed.is_some() || !self.random.one_in(self.plan.armed_one_in) {
                continue;
            }
            let solicited_only = self.random.one_in(2);
            let host = &mut self.hosts[host];
            host.device.arm(cqn, solicited_only).map_err(explain("arming a completion queue"))?;
            host.queues[queue].armed = Some(solicited_only);
            host.counted.arms += 1;
            if solicited_only {
                self.coverage.item(94);
            }
        }
        Ok(())
    }
}

use crate::host::Queue;
