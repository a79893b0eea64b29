//! REG_MR and BIND_MW: work requests that give a key its memory. In: the key and what it is to name. Out: the key is
//! valid for everything behind it, or the rule that it breaks; nothing has changed then.

use crate::context::key::{FLUSH_RIGHTS, KeyContext, KeyKind, WindowType};
use crate::engine::Engine;
use crate::front_end::{Binding, Registration};
use crate::host::Host;
use crate::numbers::{Key, Qpn};
use crate::pending::{Stop, Waiter};
use crate::planted::planted;
use rnic_abi::Diagnostic;
use rnic_abi::command::*;
use rnic_pcie::{Cause, DmaTag};

const REMOTE: u32 = ACCESS_REMOTE_WRITE | ACCESS_REMOTE_READ | ACCESS_REMOTE_ATOMIC | FLUSH_RIGHTS;

const fn broken<T>(diagnostic: Diagnostic) -> Result<T, Stop> {
    Err(Stop::Broken(diagnostic))
}

impl Engine {
    /// A key that exists; what does not is named by the rule given.
    fn key_of_work(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        key: Key,
        cause: Cause,
        otherwise: Diagnostic,
    ) -> Result<KeyContext, Stop> {
        match self.load_key(host, key, cause, Waiter::Transmit(qpn)) {
            Err(Stop::Refused(_)) => broken(otherwise),
            loaded => loaded,
        }
    }

    pub(crate) fn register_fast(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        key: Key,
        new: &Registration,
        cause: Cause,
    ) -> Result<Option<DmaTag>, Stop> {
        let qp = self.queue_pairs.get(qpn).ok_or(Stop::Broken(Diagnostic::RegisterState))?;
        let pdn = qp.pdn;
        if !qp.privileged && !planted("registration_for_everybody") {
            return broken(Diagnostic::NotPrivileged);
        }
        let old = self.key_of_work(host, qpn, key, cause, Diagnostic::RegisterState)?;
        let KeyKind::FastRegion { max_pages } = old.kind else { return broken(Diagnostic::RegisterState) };
        if (old.valid && !planted("registered_while_valid")) || old.pdn != pdn {
            return broken(Diagnostic::RegisterState);
        }
        let Some(pages) = new.pages else { return broken(Diagnostic::RegisterShape) };
        let region = KeyContext {
            variant: key.0 as u8,
            valid: true,
            access: new.access,
            start: new.start,
            length_bytes: new.length_bytes,
            pages,
            lead: KeyContext::lead_of(new.start, &pages),
            ..old
        };
        let list_pages =
            (u128::from(region.lead) + u128::from(region.length_bytes)).div_ceil(pages.page_bytes().into());
        let too_long = pages.levels > 0 && list_pages > max_pages.into() && !planted("registration_of_any_length");
        if too_long || region.fault().is_some() {
            return broken(Diagnostic::RegisterShape);
        }
        self.replace_key(host, key.table_index(), region);
        Ok(None)
    }

    pub(crate) fn bind_window(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        key: Key,
        new: &Binding,
        cause: Cause,
    ) -> Result<Option<DmaTag>, Stop> {
        let qp = self.queue_pairs.get(qpn).ok_or(Stop::Broken(Diagnostic::BindWindow))?;
        let (pdn, serial, index) = (qp.pdn, qp.serial, key.table_index());
        let old = self.key_of_work(host, qpn, key, cause, Diagnostic::BindWindow)?;
        let KeyKind::Window { window, region: old_region, .. } = old.kind else {
            return broken(Diagnostic::BindWindow);
        };
        let bound = old.valid && window != WindowType::One && !planted("bound_windows_bound_again");
        if bound || (old.pdn != pdn && window != WindowType::TwoA) {
            return broken(Diagnostic::BindWindow);
        }
        let allowed = if window == WindowType::One { REMOTE } else { REMOTE | ACCESS_ZERO_BASED };
        if new.access & !allowed != 0 {
            return broken(Diagnostic::BindAccess);
        }
        let closes = window == WindowType::One && new.length_bytes == 0;
        let context = if closes {
            KeyContext { valid: false, ..old }
        } else {
            let region = self.key_of_work(host, qpn, new.region, cause, Diagnostic::BindRegion)?;
            check_region(&region, new, pdn)?;
            let offset = place(&region, new)?;
            let region_index = new.region.table_index();
            KeyContext {
                variant: key.0 as u8,
                valid: true,
                kind: KeyKind::Window { window, region: region_index, queue_pair: serial },
                pdn: if window == WindowType::TwoA { pdn } else { old.pdn },
                access: new.access,
                start: new.address,
                length_bytes: new.length_bytes,
                pages: region.pages,
                lead: region.lead + offset,
            }
        };
        self.contexts.windows.remove(&(old_region, index));
        if let (KeyKind::Window { region, .. }, true) = (context.kind, context.valid) {
            self.contexts.windows.insert((region, index));
        }
        self.replace_key(host, index, context);
        Ok(self.pending.newest().filter(|_| old.valid))
    }
}

/// The region lets a window be bound.
fn check_region(region: &KeyContext, new: &Binding, pdn: crate::numbers::Pdn) -> Result<(), Stop> {
    let is_region = matches!(region.kind, KeyKind::Region | KeyKind::FastRegion { .. });
    let named = is_region && region.valid && region.variant == new.region.0 as u8 && region.pdn == pdn;
    let granted = region.access & ACCESS_MW_BIND != 0 || planted("windows_on_any_region");
    let writes = new.access & (ACCESS_REMOTE_WRITE | ACCESS_REMOTE_ATOMIC) != 0;
    let writable = !writes || region.access & ACCESS_LOCAL_WRITE != 0 || planted("windows_write_anywhere");
    // How long memory keeps what was written is its region's matter.
    let flushable = new.access & FLUSH_RIGHTS & !region.access == 0;
    if named && granted && writable && flushable && region.access & ACCESS_ZERO_BASED == 0 {
        Ok(())
    } else {
        broken(Diagnostic::BindRegion)
    }
}

/// Where in the region the window begins.
fn place(region: &KeyContext, new: &Binding) -> Result<u64, Stop> {
    let offset = new.address.checked_sub(region.base()).ok_or(Stop::Broken(Diagnostic::BindRange))?;
    let end = offset.checked_add(new.length_bytes);
    let inside = end.is_some_and(|end| end <= region.length_bytes) || planted("windows_beyond_their_region");
    if inside && new.length_bytes > 0 { Ok(offset) } else { broken(Diagnostic::BindRange) }
}
