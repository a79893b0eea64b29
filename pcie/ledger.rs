//! The totals of all crossings by class, since the function came up: never reset, compared by difference.
//!
//! A crossing is entered when it is submitted. A read whose completion brings a fault instead of data is amended:
//! its packets with data are taken out again; the crossing and the bytes it asked for stay.

use crate::crossing::Role;
use crate::tlp::Traffic;
use crate::{Class, Crossing, Observed};
use std::ops::AddAssign;

/// What the crossings of a class, of a queue, or all amount to. Host accesses also say how they were seen to arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub crossings: u64,
    pub bytes: u64,
    pub mrd: u64,
    pub mwr: u64,
    pub cpld: u64,
    pub wire_down_bytes: u64,
    pub wire_up_bytes: u64,
    pub observed_messages: u64,
    pub observed_bytes: u64,
    /// Crossings that failed.
    pub faults: u64,
}

macro_rules! each_field {
    ($self:ident, $other:ident, |$a:ident, $b:ident| $body:expr) => {{
        each_field!(@ $self, $other, $a, $b, $body;
            crossings, bytes, mrd, mwr, cpld, wire_down_bytes, wire_up_bytes, observed_messages, observed_bytes, faults)
    }};
    (@ $self:ident, $other:ident, $a:ident, $b:ident, $body:expr; $($field:ident),*) => {
        Totals { $($field: { let ($a, $b) = ($self.$field, $other.$field); $body }),* }
    };
}

impl Totals {
    #[inline]
    pub(crate) fn enter(&mut self, crossing: &Crossing) {
        let Observed { messages, bytes } = crossing.observed.unwrap_or_default();
        self.crossings += 1;
        self.bytes += u64::from(crossing.bytes);
        self.mrd += u64::from(crossing.tlps.mrd);
        self.mwr += u64::from(crossing.tlps.mwr);
        self.cpld += u64::from(crossing.tlps.cpld);
        self.wire_down_bytes += crossing.wire_bytes.down;
        self.wire_up_bytes += crossing.wire_bytes.up;
        self.observed_messages += u64::from(messages);
        self.observed_bytes += u64::from(bytes);
        self.faults += u64::from(crossing.fault.is_some());
    }

    /// Corrects a crossing entered earlier, which failed: `was` becomes `is`.
    pub(crate) fn amend(&mut self, was: &Traffic, is: &Traffic) {
        let correct = |total: &mut u64, was: u64, is: u64| *total = total.saturating_sub(was).saturating_add(is);
        correct(&mut self.mrd, was.tlps.mrd.into(), is.tlps.mrd.into());
        correct(&mut self.mwr, was.tlps.mwr.into(), is.tlps.mwr.into());
        correct(&mut self.cpld, was.tlps.cpld.into(), is.tlps.cpld.into());
        correct(&mut self.wire_down_bytes, was.wire_bytes.down, is.wire_bytes.down);
        correct(&mut self.wire_up_bytes, was.wire_bytes.up, is.wire_bytes.up);
        self.faults += 1;
    }

    /// What came after `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        each_field!(self, earlier, |a, b| a.saturating_sub(b))
    }
}

impl AddAssign<&Totals> for Totals {
    fn add_assign(&mut self, other: &Totals) {
        *self = each_field!(self, other, |a, b| a.saturating_add(b));
    }
}

const CLASSES: usize = Class::ALL.len();

/// What of a class one role's operations caused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    pub crossings: u64,
    pub bytes: u64,
}

/// Totals by class; a copy of it is a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    totals: [Totals; CLASSES],
    /// Of each class, what operations caused; the rest is housekeeping.
    shares: [[Share; CLASSES]; Role::ALL.len()],
}

impl Default for Ledger {
    fn default() -> Self {
        Self { totals: [Totals::default(); CLASSES], shares: [[Share::default(); CLASSES]; Role::ALL.len()] }
    }
}

impl Ledger {
    /// Enters one crossing.
    pub(crate) fn enter(&mut self, crossing: &Crossing) {
        self.totals[crossing.origin.class as usize].enter(crossing);
        if let Some((_, role)) = crossing.origin.cause.operation() {
            let share = &mut self.shares[role as usize][crossing.origin.class as usize];
            share.crossings += 1;
            share.bytes += u64::from(crossing.bytes);
        }
    }

    /// Corrects a crossing entered earlier, which failed: `was` becomes `is`.
    pub(crate) fn amend(&mut self, class: Class, was: &Traffic, is: &Traffic) {
        self.totals[class as usize].amend(was, is);
    }

    pub fn class(&self, class: Class) -> &Totals {
        &self.totals[class as usize]
    }

    /// Every class, in the order of the reports.
    pub fn classes(&self) -> impl Iterator<Item = (Class, &Totals)> {
        Class::ALL.iter().map(|&class| (class, &self.totals[class as usize]))
    }

    /// What of a class this role's operations caused.
    pub fn share(&self, role: Role, class: Class) -> &Share {
        &self.shares[role as usize][class as usize]
    }

    /// The sum over all classes.
    pub fn total(&self) -> Totals {
        let mut sum = Totals::default();
        self.totals.iter().for_each(|totals| sum += totals);
        sum
    }

    pub fn snapshot(&self) -> Self {
        self.clone()
    }

    /// What came after the snapshot `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let share = |role: usize, class: usize| {
            let (now, then) = (&self.shares[role][class], &earlier.shares[role][class]);
            Share {
                crossings: now.crossings.saturating_sub(then.crossings),
                bytes: now.bytes.saturating_sub(then.bytes),
            }
        };
        Self {
            totals: std::array::from_fn(|class| self.totals[class].since(&earlier.totals[class])),
            shares: std::array::from_fn(|role| std::array::from_fn(|class| share(role, class))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cause, DmaFault, Origin, Tlps, WireBytes};

    fn crossing(class: Class) -> Crossing {
        Crossing {
            sequence: 1,
            time_ns: 0,
            origin: Origin::new(class, Cause::Maintenance),
            bytes: 64,
            ranges: 1,
            tlps: Tlps { mrd: 1, mwr: 0, cpld: 1 },
            wire_bytes: WireBytes { down: 84, up: 24 },
            observed: None,
            fault: None,
        }
    }

    #[test]
    fn classes_are_in_their_place() {
        // The totals are indexed by discriminant.
        assert!(Class::ALL.iter().enumerate().all(|(index, &class)| class as usize == index));
    }

    #[test]
    fn the_difference_of_two_snapshots_is_what_happened_between() {
        let mut ledger = Ledger::default();
        ledger.enter(&crossing(Class::WqeFetch));
        let before = ledger.snapshot();
        ledger.enter(&crossing(Class::WqeFetch));
        ledger.enter(&crossing(Class::PayloadRead));
        let between = ledger.since(&before);
        assert_eq!(between.class(Class::WqeFetch).crossings, 1);
        assert_eq!(between.total().wire_down_bytes, 168);
        assert_eq!(between.classes().filter(|(_, totals)| totals.crossings > 0).count(), 2);
    }

    #[test]
    fn operations_are_charged_by_their_role_and_housekeeping_is_not() {
        let mut ledger = Ledger::default();
        let causes = [
            Cause::Send { qpn: 1, index: 0, count: 1, attempt: 0 },
            Cause::Receive { qpn_or_srqn: 1, index: 0 },
            Cause::Packet { qpn: 1, psn: 0, attempt: 0 },
            Cause::Command { slot: 0 },
        ];
        for cause in causes {
            ledger.enter(&Crossing { origin: Origin::new(Class::CqeWrite, cause), ..crossing(Class::CqeWrite) });
        }
        let before = Ledger::default();
        let since = ledger.since(&before);
        let shares = Role::ALL.map(|role| since.share(role, Class::CqeWrite).crossings);
        assert_eq!((since.class(Class::CqeWrite).crossings, shares), (4, [1, 2]));
        assert_eq!(since.share(Role::Responder, Class::CqeWrite).bytes, 128);
    }

    #[test]
    fn an_amended_read_keeps_its_request() {
        let mut ledger = Ledger::default();
        let failed = Crossing { fault: Some(DmaFault::Revoked), ..crossing(Class::KeyFetch) };
        ledger.enter(&crossing(Class::KeyFetch));
        let was = Traffic { tlps: failed.tlps, wire_bytes: failed.wire_bytes };
        let is = Traffic { tlps: Tlps { mrd: 1, mwr: 0, cpld: 0 }, wire_bytes: WireBytes { down: 0, up: 24 } };
        ledger.amend(Class::KeyFetch, &was, &is);
        let totals = ledger.class(Class::KeyFetch);
        assert_eq!((totals.crossings, totals.mrd, totals.cpld, totals.faults), (1, 1, 0, 1));
        assert_eq!((totals.wire_down_bytes, totals.wire_up_bytes), (0, 24));
    }
}
