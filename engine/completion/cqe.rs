//! CQE generation. In: a completion. Out: its place in the line before its completion queue.

use crate::blocks::Block;
use crate::engine::Engine;
use crate::front_end::Completion;
use crate::host::Host;
use crate::numbers::Cqn;
use rnic_pcie::Cause;

impl Engine {
    pub(crate) fn complete(&mut self, host: &mut Host, cqn: Cqn, completion: Completion, cause: Cause) {
        self.blocks.touch(host.now_ns, Block::CqeGeneration, completion.qpn.0);
        let Some(cq) = self.completion_queues.get_mut_at(cqn.index()) else {
            self.counters.cqe_lost += 1;
            return;
        };
        cq.waiting.push_back((completion, cause));
        if !cq.blocked {
            self.drain_completions(host, cqn);
        } else {
            self.waiting_completions += 1;
        }
    }
}
