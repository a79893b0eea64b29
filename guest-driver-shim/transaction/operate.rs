//! The operation itself: arm, post, wait, verify.

use super::buffer::{CANARY, payload};
use super::report::{EventReport, Verdict};
use super::side::{Objects, QKEY, Result, Side, TransactionError, way_to};
use super::spec::{Fault, Operation, Role, Transport};
use crate::verbs::*;
use rnic_abi::CompletionStatus;
use std::time::Instant;

/// What the requester's work request is called.
const SEND_WR_ID: u64 = 0x5e4d;
const RECEIVE_WR_ID: u64 = 0x4ecf;
/// The most completions and events beyond the expected that are taken.
const MOST_EXTRAS: usize = 256;

/// Splits a message into elements of nearly equal length; an empty message has none.
fn split(region: &MemoryRegion, length_bytes: u32, elements: u8) -> Vec<Sge> {
    let count = u32::from(elements).clamp(1, length_bytes.max(1));
    let start_of = |part: u32| (u64::from(length_bytes) * u64::from(part) / u64::from(count)) as u32;
    (0..count)
        .map(|part| region.sge(start_of(part).into(), start_of(part + 1) - start_of(part)))
        .filter(|element| element.length_bytes > 0)
        .collect()
}

impl Side {
    fn objects(&self, step: &'static str) -> Result<&Objects> {
        self.objects.as_ref().ok_or(TransactionError::Order { step, needed: "bring_up" })
    }

    pub(super) fn post_receive(&mut self) -> Result<()> {
        let objects = self.objects("post_receive")?;
        let length_bytes = self.spec.length_bytes + self.spec.header_bytes(self.role);
        let elements = split(&objects.region, length_bytes, self.spec.elements);
        let requests = [ReceiveRequest { wr_id: RECEIVE_WR_ID, elements: &elements }];
        Ok(self.device.post_receive(objects.qpn, &requests)?)
    }

    /// Arms this side's completion queue, if its spec says so.
    pub fn arm(&mut self) -> Result<()> {
        let cqn = self.objects("arm")?.cqn;
        if self.spec.armed {
            // Only what arrives can be solicited; a send completion never is.
            self.device.arm(cqn, self.spec.solicited && self.role == Role::Responder)?;
        }
        Ok(())
    }

    /// Posts the operation; the requester's step.
    pub fn post(&mut self) -> Result<()> {
        let objects = self.objects("post")?;
        let peer = self.report.peer.ok_or(TransactionError::Order { step: "post", needed: "connect" })?;
        if self.role != Role::Requester {
            return Err(TransactionError::Spec("the responder posts no operation".into()));
        }
        let remote = match self.spec.fault {
            _ if !self.spec.operation.names_remote() => None,
            Some(Fault::BadRkey) => Some(Remote { address: peer.address, rkey: peer.rkey ^ 0xff }),
            Some(Fault::OutOfBounds) => {
                let beyond = if self.spec.operation.is_atomic() { 8 } else { 1 };
                Some(Remote { address: peer.address.wrapping_add(beyond), rkey: peer.rkey })
            }
            _ => Some(Remote { address: peer.address, rkey: peer.rkey }),
        };
        let message = payload(self.spec.seed, if self.spec.inline { self.spec.length_bytes } else { 0 });
        let elements = split(&objects.region, self.spec.length_bytes, self.spec.elements);
        let request = SendRequest {
            wr_id: SEND_WR_ID,
            opcode: self.spec.operation.opcode(),
            payload: match (self.spec.inline, self.spec.operation.is_atomic()) {
                (true, _) => Payload::Inline(&message),
                (false, true) => Payload::Atomic(self.spec.operands(), &elements),
                (false, false) => Payload::Elements(&elements),
            },
            remote,
            datagram: (self.spec.transport == Transport::Ud).then(|| Datagram {
                av: way_to(&peer),
                dest_qpn: peer.qpn,
                qkey: QKEY,
                pkey_index: 0,
            }),
            srqn: None,
            immediate: match self.spec.operation {
                Operation::SendInv => peer.rkey,
                operation if operation.has_immediate() => self.spec.immediate,
                _ => 0,
            },
            signaled: self.spec.signaled,
            solicited: self.spec.solicited,
            fence: false,
        };
        self.device.post_send(objects.qpn, &[request], self.spec.doorbell)?;
        if let Some(objects) = self.objects.as_mut() {
            objects.posted = true;
        }
        Ok(())
    }

    /// Waits for this side's completion, if it gets one: its event first when the queue is armed. Who gets none and is
    /// brought something waits for the bytes.
    pub fn wait(&mut self) -> Result<()> {
        let (cqn, posted) = self.objects("wait").map(|objects| (objects.cqn, objects.posted))?;
        if self.role == Role::Requester && !posted {
            return Err(TransactionError::Order { step: "wait", needed: "post" });
        }
        if self.expects_completion() {
            if self.spec.armed {
                let (awaited, others) = self.device.wait_completion_event(cqn, self.spec.limit())?;
                self.report.event = Some(awaited.into());
                self.report.other_events.extend(others.into_iter().map(|event| EventReport::new(event, true)));
            }
            let completion = self.device.wait_completion(cqn, self.spec.limit())?;
            self.report.completion = Some(completion.into());
        } else if self.spec.fault.is_none() {
            self.wait_for_bytes()?;
        }
        Ok(())
    }

    fn expects_completion(&self) -> bool {
        match self.role {
            // A failure always completes.
            Role::Requester => self.spec.signaled || self.spec.fault.is_some(),
            Role::Responder => self.spec.operation.consumes_receive() && self.spec.fault.is_none(),
        }
    }

    fn wait_for_bytes(&mut self) -> Result<()> {
        let expected = self.spec.expected(self.role);
        let start = Instant::now();
        while self.received()?.0 != expected {
            if start.elapsed() >= self.spec.limit() {
                let what = format!("{} bytes of {:?}", expected.len(), self.spec.operation);
                return Ok(self.device.timed_out(what, self.spec.limit())?);
            }
            self.device.backing().pause().map_err(VerbsError::from)?;
        }
        Ok(())
    }

    /// The message as it stands in this side's buffer, and everything around it.
    pub fn received(&mut self) -> Result<(Vec<u8>, Vec<u8>)> {
        let objects = self.objects.as_ref().ok_or(TransactionError::Order { step: "read", needed: "bring_up" })?;
        let (mut message, around) = objects.buffer.read(self.device.backing())?;
        message.drain(..self.spec.header_bytes(self.role) as usize);
        message.truncate(self.spec.length_bytes as usize);
        Ok((message, around))
    }

    /// The network header that stands in front of a datagram: it names both sides.
    fn verify_header(&mut self, faults: &mut Vec<String>) -> Result<()> {
        let (own, peer) = (self.report.own.gid, self.report.peer.unwrap_or_default().gid);
        let objects = self.objects.as_ref().ok_or(TransactionError::Order { step: "read", needed: "bring_up" })?;
        let (message, _) = objects.buffer.read(self.device.backing())?;
        let header = &message[..self.spec.header_bytes(self.role) as usize];
        let is_ipv4 = |gid: &[u8; 16]| gid[..12] == super::ipv4_gid([0; 4])[..12];
        let (found, expected) = if is_ipv4(&own) {
            (&header[32..40], [&peer[12..], &own[12..]].concat())
        } else {
            (&header[8..40], [peer, own].concat())
        };
        if found != expected {
            faults.push(format!("the datagram's network header names {found:02x?} instead of {expected:02x?}"));
        }
        Ok(())
    }

    /// Compares everything with what should be.
    pub fn verify(&mut self) -> Result<Verdict> {
        let mut faults = Vec::new();
        self.verify_memory(&mut faults)?;
        self.verify_completion(&mut faults);
        let cqn = self.objects("verify")?.cqn;
        let mut one_more = [WorkCompletion::default()];
        // Bounded: a device that never stops is a fault as well.
        for _ in 0..MOST_EXTRAS {
            if self.device.poll(cqn, &mut one_more)? == 0 {
                break;
            }
            let completion = one_more[0];
            if !self.is_flushed_receive(&completion) {
                faults.push(format!("a completion that nobody asked for: {completion:?}"));
            }
            self.report.flushed.push(completion.into());
        }
        for _ in 0..MOST_EXTRAS {
            let Some(event) = self.device.poll_event(Device::ASYNC_EQN)? else { break };
            self.report.other_events.push(EventReport::new(event, false));
        }
        let verdict = Verdict { faults };
        self.report.verdict = Some(verdict.clone());
        Ok(verdict)
    }

    /// After a fault the responder's queue pair is in error, and its unused receive is flushed.
    fn is_flushed_receive(&self, completion: &WorkCompletion) -> bool {
        self.role == Role::Responder
            && self.spec.fault.is_some()
            && (completion.wr_id, completion.status()) == (RECEIVE_WR_ID, CompletionStatus::WR_FLUSH_ERR)
    }

    fn verify_memory(&mut self, faults: &mut Vec<String>) -> Result<()> {
        let (message, around) = self.received()?;
        let expected = self.spec.expected(self.role);
        if let Some(at) = message.iter().zip(&expected).position(|(found, expected)| found != expected) {
            let bytes = (message[at], expected[at]);
            faults.push(format!("byte {at} of the message is {:#04x} instead of {:#04x}", bytes.0, bytes.1));
        }
        if let Some(at) = around.iter().position(|byte| *byte != CANARY) {
            faults.push(format!("canary {at} is {:#04x}", around[at]));
        }
        if self.spec.header_bytes(self.role) > 0 { self.verify_header(faults) } else { Ok(()) }
    }

    fn verify_completion(&self, faults: &mut Vec<String>) {
        let completion = self.report.completion.as_ref().map(|report| report.completion);
        let Some(completion) = completion else {
            if self.expects_completion() {
                faults.push("there was no completion".into());
            }
            return;
        };
        let mut expect = |what: &str, found: String, expected: String| {
            if found != expected {
                faults.push(format!("the completion's {what} is {found} instead of {expected}"));
            }
        };
        let is_requester = self.role == Role::Requester;
        let failed = self.spec.fault.is_some();
        let status = if failed { CompletionStatus::REM_ACCESS_ERR } else { CompletionStatus::SUCCESS };
        expect("status", format!("{:?}", completion.status()), format!("{status:?}"));
        let wr_id = if is_requester { SEND_WR_ID } else { RECEIVE_WR_ID };
        expect("wr_id", format!("{:#x}", completion.wr_id), format!("{wr_id:#x}"));
        expect("queue", format!("{:#x}", completion.qpn), format!("{:#x}", self.report.own.qpn));
        if !is_requester {
            let immediate = self.spec.operation.has_immediate().then_some(self.spec.immediate);
            expect("immediate", format!("{:x?}", completion.immediate), format!("{immediate:x?}"));
            let invalidated = (self.spec.operation == Operation::SendInv).then_some(self.report.own.rkey);
            expect("invalidated key", format!("{:x?}", completion.invalidated), format!("{invalidated:x?}"));
            let length_bytes = self.spec.length_bytes + self.spec.header_bytes(self.role);
            expect("length", completion.byte_len.to_string(), length_bytes.to_string());
        }
        if self.spec.armed && self.report.event.is_none() {
            faults.push("the queue was armed and there was no event".into());
        }
    }
}
