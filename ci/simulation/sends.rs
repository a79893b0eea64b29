//! Completions of sends, each judged against what was posted.

use crate::connection::*;
use crate::message::{Message, pool};
use crate::operations::{Family, FaultKind};
use crate::run::{Checked, Simulation, explain};
use rnic_abi::CompletionStatus;
use rnic_shim::verbs::*;
use std::rc::Rc;

impl Simulation {
    pub(crate) fn judge_send(&mut self, number: usize, side: usize, completion: &WorkCompletion) -> Checked {
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
            if self.connections[number].flows[side].unread.is_silent(silent.number) {
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
        if status != CompletionStatus::SUCCESS {
            self.connections[number].flows[side].unread.failed(message.number, completion.opcode);
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
    pub(crate) fn check_written(&mut self, number: usize, side: usize, message: &Message) -> Checked {
        let connection = &self.connections[number];
        let Some(target) = &connection.flows[side].target else { return Ok(()) };
        let (sender, receiver) = (connection.ends[side].host, connection.ends[1 - side].host);
        let iova = target.buffer.iova + u64::from(message.at);
        self.check_bytes(sender, receiver, iova, message)
    }

    /// The message's bytes, from this host's pool.
    pub(crate) fn check_bytes(&mut self, sender: usize, receiver: usize, iova: u64, message: &Message) -> Checked {
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
        let (lossy, now_ns) = (self.plan.wire.is_lossy(), self.now_ns);
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
            || (status == CompletionStatus::RETRY_EXC_ERR && flow.requester.may_have_given_up(now_ns))
            || (status == CompletionStatus::RNR_RETRY_EXC_ERR
                && flow.requester.may_have_lost_patience(profile.rnr_retry))
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
}
