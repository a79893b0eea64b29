//! QUERY_COUNTERS: what the adapter counts, a dozen an answer.

use super::Halt;
use crate::engine::Engine;
use crate::front_end::{Answer, COUNTERS_AN_ANSWER, CommandError, CounterGroup};
use crate::host::Host;
use rnic_pcie::Class;

impl Engine {
    /// The numbers of a group are places in lists that only ever grow: [`Counters`](crate::Counters) and [`Class::ALL`].
    pub(super) fn query_counters(&self, host: &Host, group: CounterGroup, first: u16) -> Result<Answer, Halt> {
        let all: Vec<u64> = match group {
            CounterGroup::Port => self.counters().named().into_iter().map(|(_, value)| value).collect(),
            // The others are the Ethernet function's, which has a link and books of its own.
            CounterGroup::Crossings => {
                let classes = Class::ALL.iter().filter(|class| !class.name().starts_with("net_"));
                classes.map(|class| host.port.crossings(*class)).collect()
            }
        };
        let asked = all.get(usize::from(first)..).filter(|asked| !asked.is_empty());
        let asked = asked.ok_or(CommandError::range(first.into()))?;
        let mut values = [0; COUNTERS_AN_ANSWER];
        let count = asked.len().min(values.len());
        values[..count].copy_from_slice(&asked[..count]);
        Ok(Answer::Counters { total: all.len() as u16, count: count as u16, values })
    }
}
