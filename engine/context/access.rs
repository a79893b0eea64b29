//! Key check and translation: from elements named by key and address to ranges of DMA space.
//!
//! In: elements, the part of them that is wanted, the right. Out: a [`Plan`] of ranges. A plan that is blocked
//! keeps what it has resolved, so that it needs no two things in a small cache at once; it starts again when a
//! key was invalidated meanwhile.

use super::key::{Refusal, Right, User};
use super::translation::Owner;
use crate::engine::Engine;
use crate::front_end::Element;
use crate::host::Host;
use crate::numbers::{Key, Pdn, Qpn};
use crate::pending::{Stop, Waiter};
use crate::planted::planted;
use crate::queues::push_piece;
use arrayvec::ArrayVec;
use rnic_abi::Diagnostic;
use rnic_abi::command::LOCAL_DMA_KEY;
use rnic_pcie::{Cause, DmaRange, Iova};

/// Pieces of one packet: every element, and a page break in each.
const MAX_RANGES: usize = 32;

/// Ranges resolved so far.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    epoch: u64,
    checked_elements: usize,
    resolved_bytes: u64,
    pub ranges: ArrayVec<DmaRange, MAX_RANGES>,
}

/// For whom and for what memory is resolved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accessor {
    pub user: User,
    /// It may name the local DMA key.
    pub privileged: bool,
    pub right: Right,
    pub cause: Cause,
    pub waiter: Waiter,
}

impl Accessor {
    /// The key names all of DMA space, and may.
    fn names_dma_space(&self, key: Key) -> bool {
        let local = matches!(self.right, Right::LocalRead | Right::LocalWrite);
        let allowed = self.privileged || planted("local_dma_key_for_everybody");
        key.0 == LOCAL_DMA_KEY && local && allowed
    }
}

impl Engine {
    /// A queue pair that uses keys of this protection domain.
    pub(crate) fn accessor(&self, qpn: Qpn, pdn: Pdn, right: Right, cause: Cause, waiter: Waiter) -> Accessor {
        let qp = self.queue_pairs.get(qpn);
        let queue_pair = qp.map_or(0, |qp| qp.serial);
        Accessor {
            user: User { pdn, queue_pair },
            privileged: qp.is_some_and(|qp| qp.privileged),
            right,
            cause,
            waiter,
        }
    }

    fn refresh(&self, plan: &mut Plan) {
        if plan.epoch != self.contexts.keys_epoch {
            *plan = Plan { epoch: self.contexts.keys_epoch, ..Plan::default() };
        }
    }

    /// Checks every element over its whole length, before the first byte of a message is used.
    pub(crate) fn check_elements(
        &mut self,
        host: &mut Host,
        elements: &[Element],
        accessor: &Accessor,
        plan: &mut Plan,
    ) -> Result<(), Stop> {
        self.refresh(plan);
        while let Some(element) = elements.get(plan.checked_elements) {
            if element.length_bytes > 0 {
                let checked = self.check_element(host, element, accessor);
                self.end_with_key(accessor, checked)?;
            }
            plan.checked_elements += 1;
        }
        Ok(())
    }

    fn check_element(&mut self, host: &mut Host, element: &Element, accessor: &Accessor) -> Result<(), Stop> {
        if accessor.names_dma_space(element.key) {
            let end = element.address.checked_add(element.length_bytes.into());
            return end.map(|_| ()).ok_or(Stop::Refused(Refusal::Range));
        }
        let context = self.load_key(host, element.key, accessor.cause, accessor.waiter)?;
        let length = element.length_bytes.into();
        let variant = element.key.0 as u8;
        context.check(variant, accessor.user, element.address, length, accessor.right).map_err(Stop::Refused)?;
        Ok(())
    }

    /// A key that came late is used once, however its use ends.
    fn end_with_key<T>(&mut self, accessor: &Accessor, ended: Result<T, Stop>) -> Result<T, Stop> {
        if !matches!(ended, Err(Stop::Blocked)) {
            self.contexts.in_hand.drop_key(accessor.waiter);
        }
        ended
    }

    /// Resolves `length` bytes that start `skip` bytes into the elements.
    pub(crate) fn resolve(
        &mut self,
        host: &mut Host,
        elements: &[Element],
        skip: u64,
        length: u64,
        accessor: &Accessor,
        plan: &mut Plan,
    ) -> Result<(), Stop> {
        self.refresh(plan);
        while plan.resolved_bytes < length {
            let at = skip + plan.resolved_bytes;
            let left = length - plan.resolved_bytes;
            // The caller has checked that the elements are long enough.
            let piece = piece_at(elements, at).ok_or(Stop::Broken(Diagnostic::PayloadFault))?;
            let wanted = left.min(piece.length_bytes.into());
            let resolved = self.resolve_piece(host, &piece, wanted, accessor, plan);
            let taken = self.end_with_key(accessor, resolved)?;
            plan.resolved_bytes += taken;
        }
        Ok(())
    }

    /// Resolves as much of a piece as stands in one page.
    fn resolve_piece(
        &mut self,
        host: &mut Host,
        piece: &Element,
        wanted: u64,
        accessor: &Accessor,
        plan: &mut Plan,
    ) -> Result<u64, Stop> {
        if accessor.names_dma_space(piece.key) {
            let end = piece.address.checked_add(wanted);
            end.ok_or(Stop::Refused(Refusal::Range))?;
            let fits = push_piece(&mut plan.ranges, Iova(piece.address), wanted as u32);
            return if fits { Ok(wanted) } else { Err(Stop::Broken(Diagnostic::PayloadFault)) };
        }
        let context = self.load_key(host, piece.key, accessor.cause, accessor.waiter)?;
        let variant = piece.key.0 as u8;
        let offset =
            context.check(variant, accessor.user, piece.address, wanted, accessor.right).map_err(Stop::Refused)?;
        let owner = Owner::Key(context.list_owner(piece.key.table_index()));
        let (iova, in_page) = self.translate(host, owner, &context.pages, offset, accessor.cause, accessor.waiter)?;
        let taken = wanted.min(in_page);
        if !push_piece(&mut plan.ranges, iova, taken as u32) {
            return Err(Stop::Broken(Diagnostic::PayloadFault));
        }
        Ok(taken)
    }
}

/// What of the elements begins at byte `at`.
fn piece_at(elements: &[Element], mut at: u64) -> Option<Element> {
    for element in elements {
        let length = u64::from(element.length_bytes);
        if at < length {
            return Some(Element {
                address: element.address.wrapping_add(at),
                length_bytes: (length - at) as u32,
                key: element.key,
            });
        }
        at -= length;
    }
    None
}
