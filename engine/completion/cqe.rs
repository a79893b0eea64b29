//! CQE generation. In: a completion. Out: its place in the line before its completion queue.

use crate::blocks::Block;
use crate::engine::Engine;
use crate::front_end::Completion;
use crate::host::Host;
use crate::numbers::Cqn;
use rnic_abi::Diagnostic;
use rnic_pcie::Cause;

impl Engine {
    pub(crate) fn complete(&mut self, host: &mut Host, cqn: Cqn, completion: Completion, cause: Cause) {
        self.blocks.touch(host.now_ns, Block::CqeGeneration, completion.qpn.0);
        let Some(cq) = self.completion_queues.get_mut(cqn).filter(|cq| !cq.failed) else {
            self.counters.cqe_lost += 1;
            return self.doom(completion.qpn, Diagnostic::CqOverrun, None);
        };
        cq.waiting.push_back((completion, cause));
        if cq.blocked {
            self.waiting_completions += 1;
        } else {
            self.drain_completions(host, cqn);
        }
    }
}
