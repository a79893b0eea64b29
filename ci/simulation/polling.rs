//! What the drivers see: completions and events, each judged against what was posted.

use crate::host::Queue;
use crate::run::{Checked, Simulation, explain};
use rnic_abi::{CompletionOpcode, CompletionStatus};
use rnic_shim::verbs::*;

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
        // What came home while a command waited may have been refused.
        self.note_refusals(host);
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

    /// A failure names the rule that explains it, and that is one of its status.
    fn judge_rule(&mut self, completion: &WorkCompletion) -> Checked {
        let status = completion.status();
        if status == CompletionStatus::SUCCESS {
            return if completion.vendor_err == 0 { Ok(()) } else { Err("it has a vendor code".into()) };
        }
        // The table of the datasheet.
        let right = match status {
            CompletionStatus::LOC_LEN_ERR => matches!(completion.vendor_err, 500 | 408 | 413 | 516),
            CompletionStatus::LOC_QP_OP_ERR => {
                matches!(completion.vendor_err, 400..=407 | 409..=412 | 414 | 441 | 442 | 447..=449)
            }
            CompletionStatus::LOC_PROT_ERR => matches!(completion.vendor_err, 420..=423 | 440 | 441),
            CompletionStatus::WR_FLUSH_ERR => completion.vendor_err == 511,
            CompletionStatus::MW_BIND_ERR => matches!(completion.vendor_err, 443..=446),
            CompletionStatus::BAD_RESP_ERR => completion.vendor_err == 515,
            CompletionStatus::REM_INV_REQ_ERR => completion.vendor_err == 502,
            CompletionStatus::REM_ACCESS_ERR => completion.vendor_err == 503,
            CompletionStatus::REM_OP_ERR => completion.vendor_err == 504,
            CompletionStatus::RETRY_EXC_ERR => completion.vendor_err == 505,
            CompletionStatus::RNR_RETRY_EXC_ERR => completion.vendor_err == 506,
            // A queue pair's context is never lost here.
            _ => false,
        };
        if !right {
            return Err(format!("vendor code {} is none of that status", completion.vendor_err));
        }
        self.coverage.item(80);
        Ok(())
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
        let judged = judged.and_then(|()| self.judge_rule(completion));
        judged.map_err(|what| {
            let kind = if receive { "receive" } else { "send" };
            let (qpn, status) = (completion.qpn, completion.status());
            let rule = completion.rule().map_or("no rule", |rule| rule.name);
            format!("host {host}, {kind} {} of {qpn:#x} completes with {status:?} ({rule}): {what}", completion.wr_id)
        })
    }

    fn arm_some(&mut self, host: usize) -> Checked {
        for queue in 0..self.hosts[host].queues.len() {
            let Queue { cqn, armed, .. } = self.hosts[host].queues[queue];
            // One that is armed may be armed once more: for more that counts, for less it does not.
            let again = armed.is_some();
            if (again && !self.random.one_in(8)) || !self.random.one_in(self.plan.armed_one_in) {
                continue;
            }
            let solicited_only = self.random.one_in(2);
            let host = &mut self.hosts[host];
            host.device.arm(cqn, solicited_only).map_err(explain("arming a completion queue"))?;
            host.queues[queue].armed = Some(solicited_only && armed != Some(false));
            host.counted.arms += 1;
            if again && armed != Some(solicited_only) {
                self.coverage.item(95);
            }
            if solicited_only {
                self.coverage.item(94);
            }
        }
        Ok(())
    }
}
