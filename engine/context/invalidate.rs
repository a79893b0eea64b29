//! Invalidation of a key by a work request or by a peer. The key stays registered, allows nothing any more, and is
//! deregistered like any other.

use super::key::KeyContext;
use crate::engine::Engine;
use crate::front_end::commands::TableKind;
use crate::host::Host;
use crate::numbers::{Key, Pdn, Qpn};
use crate::pending::{Stop, Waiter};
use rnic_abi::Diagnostic;
use rnic_abi::command::ACCESS_INVALIDATE;
use rnic_pcie::{Cause, DmaTag};

impl Engine {
    /// The key, if it may be invalidated on behalf of this protection domain. Nothing has changed.
    pub(crate) fn invalidatable(
        &mut self,
        host: &mut Host,
        key: Key,
        pdn: Pdn,
        cause: Cause,
        waiter: Waiter,
    ) -> Result<KeyContext, Stop> {
        const REFUSED: Stop = Stop::Broken(Diagnostic::InvalidateRefused);
        match self.load_key(host, key, cause, waiter) {
            Ok(context) => {
                let named = context.valid && context.variant == key.0 as u8 && context.pdn == pdn;
                if named && context.access & ACCESS_INVALIDATE != 0 { Ok(context) } else { Err(REFUSED) }
            }
            Err(Stop::Refused(_)) => Err(REFUSED),
            Err(stop) => Err(stop),
        }
    }

    /// Takes the key out of use. The newest read that it may have allowed is the answer.
    pub(crate) fn invalidate(&mut self, host: &mut Host, key: Key, context: KeyContext) -> Option<DmaTag> {
        let index = key.table_index();
        let invalid = KeyContext { valid: false, ..context };
        if let Some(evicted) = self.contexts.keys.insert(index, invalid, true) {
            self.write_back(host, TableKind::Key, evicted.index, &evicted.value);
        }
        self.contexts.in_hand.forget_key(index);
        self.contexts.keys_epoch += 1;
        self.counters.invalidated_keys += 1;
        self.pending.newest()
    }

    /// Payload reads up to this one are in flight: the queue pair is told when one of them comes home.
    pub(crate) fn waits_for_reads(&mut self, qpn: Qpn, newest: Option<DmaTag>) -> bool {
        let waits = newest.is_some_and(|newest| self.pending.payload_reads_until(newest));
        if waits && !self.invalidating.contains(&qpn) {
            self.invalidating.push(qpn);
        }
        waits
    }

    /// A read has come home.
    pub(crate) fn resume_invalidations(&mut self, host: &mut Host) {
        for qpn in std::mem::take(&mut self.invalidating) {
            self.schedule(qpn);
            self.finish_arrived(host, qpn);
        }
    }
}
