//! Memory keys: registration and its end.

use super::objects::exists;
use super::tables::{Extent, has_entry};
use super::{Halt, Progress, halt, missing};
use crate::context::key::KeyContext;
use crate::context::translation::Owner;
use crate::engine::Engine;
use crate::front_end::commands::{NewKey, TableKind};
use crate::front_end::{Answer, CommandError};
use crate::host::Host;
use crate::numbers::Key;
use crate::pending::{Stop, Waiter};
use rnic_abi::command::*;
use rnic_abi::{CommandStatus, Diagnostic};
use rnic_pcie::Cause;

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
        let known = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_ATOMIC;
        let known = known | ACCESS_INVALIDATE;
        if new.access & !known != 0 {
            return Err(CommandError::range(number).into());
        }
        let needs_local = new.access & (ACCESS_REMOTE_WRITE | ACCESS_REMOTE_ATOMIC) != 0;
        let refuse = |diagnostic| CommandError::new(CommandStatus::BAD_PARAMETER, diagnostic, number);
        if needs_local && new.access & ACCESS_LOCAL_WRITE == 0 {
            return Err(refuse(Diagnostic::AccessNeedsLocalWrite).into());
        }
        let context = KeyContext {
            variant: number as u8,
            valid: true,
            pdn: new.pdn,
            access: new.access,
            start: new.start,
            length_bytes: new.length_bytes,
            pages: new.pages,
        };
        if !context.sound() {
            return Err(refuse(Diagnostic::RegionWraps).into());
        }
        let bytes = context.lead() + new.length_bytes;
        self.warm(host, &[Extent { owner: Owner::Key(index), pages: new.pages, bytes }], cause, progress)?;
        if let Some(evicted) = self.contexts.keys.insert(index, context, true) {
            self.write_back(host, TableKind::Key, evicted.index, &evicted.value);
        }
        self.set_key_exists(index, true);
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
                match self.load_key(host, key, cause, Waiter::Command) {
                    Ok(context) if context.variant == key.0 as u8 => {}
                    Ok(_) => return Err(missing(key.0)),
                    // A key whose context is lost allows nothing: it can go.
                    Err(Stop::Broken(diagnostic)) => self.diagnose(host.now_ns, diagnostic, key.0, 0),
                    Err(stop) => return Err(halt(stop, key.0)),
                }
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
