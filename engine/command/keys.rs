//! Memory keys: registration and its end.

use super::objects::{busy, exists};
use super::tables::{Extent, has_entry};
use super::{Halt, Progress, halt, missing};
use crate::context::key::{KeyContext, KeyKind, RegionFault};
use crate::context::page_list::PageList;
use crate::context::translation::Owner;
use crate::engine::Engine;
use crate::front_end::commands::{KeyChanges, NewKey, TableKind};
use crate::front_end::{Answer, CommandError};
use crate::host::Host;
use crate::numbers::{Key, Pdn};
use crate::pending::{Stop, Waiter};
use crate::planted::planted;
use rnic_abi::{CommandStatus, Diagnostic};
use rnic_pcie::Cause;

/// The page size of a list that is not there yet.
const SMALLEST_PAGE_SHIFT: u8 = 12;

/// Rights and extent of a region, as it is registered or changed.
fn check_region(context: &KeyContext, number: u32) -> Result<(), CommandError> {
    let refuse = |diagnostic| Err(CommandError::new(CommandStatus::BAD_PARAMETER, diagnostic, number));
    match context.fault() {
        None => Ok(()),
        Some(RegionFault::UnknownRight) => Err(CommandError::range(number)),
        Some(RegionFault::NeedsLocalWrite) => refuse(Diagnostic::AccessNeedsLocalWrite),
        Some(RegionFault::Wraps) => refuse(Diagnostic::RegionWraps),
    }
}

impl Engine {
    pub(super) fn register_key(
        &mut self,
        host: &mut Host,
        new: &NewKey,
        cause: Cause,
        progress: &mut Progress,
    ) -> Result<Answer, Halt> {
        let (number, index) = (new.key.0, new.key.table_index());
        has_entry(&self.contexts.key_table, index)?;
        if self.key_exists(index) {
            return Err(exists(number));
        }
        let context = KeyContext {
            variant: number as u8,
            valid: true,
            kind: KeyKind::Region,
            pdn: new.pdn,
            access: new.access,
            start: new.start,
            length_bytes: new.length_bytes,
            pages: new.pages,
            lead: KeyContext::lead_of(new.start, &new.pages),
        };
        check_region(&context, number)?;
        let bytes = context.lead + new.length_bytes;
        self.warm(host, &[Extent { owner: Owner::Key(index), pages: new.pages, bytes }], cause, progress)?;
        if let Some(evicted) = self.contexts.keys.insert(index, context, true) {
            self.write_back(host, TableKind::Key, evicted.index, &evicted.value);
        }
        self.set_key_exists(index, true);
        Ok(Answer::Done)
    }

    /// A key that work requests give its memory.
    pub(super) fn allocate_key(&mut self, host: &mut Host, key: Key, pdn: Pdn, kind: KeyKind) -> Result<Answer, Halt> {
        let index = key.table_index();
        has_entry(&self.contexts.key_table, index)?;
        if self.key_exists(index) {
            return Err(exists(key.0));
        }
        let pages = PageList { root: 0, page_shift: SMALLEST_PAGE_SHIFT, levels: 0 };
        let context =
            KeyContext { variant: 0, valid: false, kind, pdn, access: 0, start: 0, length_bytes: 0, pages, lead: 0 };
        self.replace_key(host, index, context);
        self.set_key_exists(index, true);
        Ok(Answer::Done)
    }

    /// The region is another one at once; the answer waits until no read that the old one allowed is in flight.
    pub(super) fn reregister_key(
        &mut self,
        host: &mut Host,
        new: &NewKey,
        changes: KeyChanges,
        cause: Cause,
        progress: &mut Progress,
    ) -> Result<Answer, Halt> {
        let (number, index) = (new.key.0, new.key.table_index());
        let barrier = match progress.barrier {
            Some(barrier) => barrier,
            None => {
                let loaded = self.load_key(host, new.key, cause, Waiter::Command);
                let old = loaded.map_err(|stop| halt(stop, number))?;
                if old.kind != KeyKind::Region {
                    return Err(missing(number));
                }
                if self.contexts.has_windows(index) {
                    return Err(busy(number));
                }
                let changed = changed_region(&old, new, changes);
                check_region(&changed, number)?;
                self.replace_key(host, index, changed);
                *progress.barrier.insert(self.pending.newest())
            }
        };
        if barrier.is_some_and(|newest| self.pending.payload_reads_until(newest)) && !planted("rereg_does_not_wait") {
            return Err(Halt::Blocked);
        }
        // A fill that was in flight may have brought a line of the old list back.
        self.contexts.forget_lines(Owner::Key(index));
        Ok(Answer::Done)
    }

    /// The key is invalid at once; the answer waits until no read that it allowed is in flight.
    pub(super) fn deregister_key(
        &mut self,
        host: &mut Host,
        key: Key,
        cause: Cause,
        progress: &mut Progress,
    ) -> Result<Answer, Halt> {
        let index = key.table_index();
        let barrier = match progress.barrier {
            Some(barrier) => barrier,
            None => {
                if self.contexts.has_windows(index) && !planted("regions_end_under_windows") {
                    return Err(busy(key.0));
                }
                match self.load_key(host, key, cause, Waiter::Command) {
                    // The byte of a key that work requests give is theirs: the driver need not know it.
                    Ok(context) if context.kind != KeyKind::Region || context.variant == key.0 as u8 => {}
                    Ok(_) => return Err(missing(key.0)),
                    // A key whose context is lost allows nothing: it can go.
                    Err(Stop::Broken(diagnostic)) => self.diagnose(host.now_ns, diagnostic, key.0, 0),
                    Err(stop) => return Err(halt(stop, key.0)),
                }
                self.contexts.windows.retain(|(_, window)| *window != index);
                self.contexts.keys.remove(index);
                self.contexts.in_hand.forget_key(index);
                self.set_key_exists(index, false);
                self.contexts.keys_epoch += 1;
                let newest = self.pending.newest();
                progress.barrier = Some(newest);
                newest
            }
        };
        let in_flight = barrier.is_some_and(|newest| self.pending.payload_reads_until(newest));
        if in_flight || self.pending.reads_of_key(index) {
            return Err(Halt::Blocked);
        }
        // A fill that was in flight may have brought it back.
        self.contexts.keys.remove(index);
        self.contexts.in_hand.forget_key(index);
        self.contexts.forget_lines(Owner::Key(index));
        self.pending.forget_key_faults(index);
        Ok(Answer::Done)
    }
}

fn changed_region(old: &KeyContext, new: &NewKey, changes: KeyChanges) -> KeyContext {
    let mut changed = KeyContext { variant: new.key.0 as u8, valid: true, ..*old };
    if changes.translation {
        (changed.start, changed.length_bytes, changed.pages) = (new.start, new.length_bytes, new.pages);
        changed.lead = KeyContext::lead_of(new.start, &new.pages);
    }
    if changes.pd {
        changed.pdn = new.pdn;
    }
    if changes.access {
        changed.access = new.access;
    }
    changed
}
