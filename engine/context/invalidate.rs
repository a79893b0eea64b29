//! Invalidation of a key by a work request or by a peer. A region stays registered, allows nothing any more, and is
//! deregistered like any other; a fast region or a type 2 window is free for the next work request.

use super::key::{KeyContext, KeyKind, WindowType};
use super::translation::Owner;
use crate::engine::Engine;
use crate::front_end::commands::TableKind;
use crate::host::Host;
use crate::numbers::{Key, Qpn};
use crate::pending::{Fill, Stop, Waiter};
use crate::planted::planted;
use rnic_abi::Diagnostic;
use rnic_abi::command::ACCESS_INVALIDATE;
use rnic_pcie::{Cause, DmaTag};

impl Engine {
    /// The key, if it may be invalidated on behalf of this queue pair. Nothing has changed.
    pub(crate) fn invalidatable(
        &mut self,
        host: &mut Host,
        key: Key,
        qpn: Qpn,
        cause: Cause,
        waiter: Waiter,
    ) -> Result<KeyContext, Stop> {
        const REFUSED: Stop = Stop::Broken(Diagnostic::InvalidateRefused);
        match self.load_key(host, key, cause, waiter) {
            Ok(context) => {
                let named = context.valid && context.variant == key.0 as u8;
                let allowed = named && self.may_invalidate(qpn, key.table_index(), &context);
                if allowed { Ok(context) } else { Err(REFUSED) }
            }
            Err(Stop::Refused(_)) => Err(REFUSED),
            Err(stop) => Err(stop),
        }
    }

    fn may_invalidate(&self, qpn: Qpn, index: u32, context: &KeyContext) -> bool {
        let Some(qp) = self.queue_pairs.get(qpn) else { return false };
        let shown = self.contexts.has_windows(index) && !planted("regions_freed_under_windows");
        match context.kind {
            KeyKind::Region => context.pdn == qp.pdn && context.access & ACCESS_INVALIDATE != 0 && !shown,
            KeyKind::FastRegion { .. } => context.pdn == qp.pdn && !shown,
            KeyKind::Window { window: WindowType::One, .. } => planted("type_1_windows_invalidated"),
            KeyKind::Window { queue_pair, .. } => {
                queue_pair == qp.serial || planted("windows_closed_through_any_queue_pair")
            }
        }
    }

    /// Takes the key out of use. The newest read that it may have allowed is the answer.
    pub(crate) fn invalidate(&mut self, host: &mut Host, key: Key, context: KeyContext) -> Option<DmaTag> {
        let index = key.table_index();
        if let KeyKind::Window { region, .. } = context.kind {
            self.contexts.windows.remove(&(region, index));
        }
        self.replace_key(host, index, KeyContext { valid: false, ..context });
        self.counters.invalidated_keys += 1;
        self.pending.newest()
    }

    /// A key is another one from here on: nothing that was resolved by it holds.
    pub(crate) fn replace_key(&mut self, host: &mut Host, index: u32, context: KeyContext) {
        if let Some(evicted) = self.contexts.keys.insert(index, context, true) {
            self.write_back(host, TableKind::Key, evicted.index, &evicted.value);
        }
        self.contexts.in_hand.forget_key(index);
        // What another one has asked for meanwhile is the key of before.
        self.pending.outdate(Fill::Key(index));
        self.contexts.forget_lines(Owner::Key(index));
        self.contexts.keys_epoch += 1;
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
            // A message may wait behind those that have ended now.
            self.resume_inbound(host, qpn);
        }
    }
}
