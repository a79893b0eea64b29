//! Rules of READs, atomics and invalidation.

use super::Row;
use super::pair::Pair;
use crate::bench::raw_driver::*;
use rnic_abi::{Diagnostic, WorkOpcode, work_request};

/// On connected queue pairs, which may have one READ or atomic outstanding.
pub const ROWS: &[Row] = &[
    (Diagnostic::AtomicLength, |pair| pair.a.send(&Work::new(WorkOpcode::FETCH_ADD, 4))),
    (Diagnostic::WqeInlineRead, |pair| pair.a.send(&Work { flags: work_request::WQE_INLINE, ..Work::read(8) })),
    (Diagnostic::ReadNotEnabled, |pair| {
        again(pair, Making { max_rd_atomic: 0, ..Making::default() }, Making::default());
        pair.a.send(&Work::read(8));
    }),
    (Diagnostic::ReadTooLong, |pair| {
        again(pair, Making { mtu: 1, ..Making::default() }, Making::default());
        pair.a.send(&Work::read(1 << 31));
    }),
    // The region was registered without the right to invalidate it.
    (Diagnostic::InvalidateRefused, |pair| pair.a.send(&Work::invalidate(KEY))),
    (Diagnostic::RdAtomicLimit, |pair| {
        again(pair, Making::default(), Making { max_dest_rd_atomic: 0, ..Making::default() });
        pair.a.send(&Work::read(8));
    }),
    (Diagnostic::AtomicAlignment, |pair| pair.a.send(&Work { remote: (VIRTUAL + 4, KEY), ..Work::fetch_add() })),
    // One packet is the whole answer of a peer with a larger path MTU, where two are expected; and the first of two is
    // longer than the first of four.
    (Diagnostic::BadResponse, |pair| answered_otherwise(pair, 512)),
    (Diagnostic::ReadResponseLength, |pair| answered_otherwise(pair, 1024)),
];

/// Both anew, made otherwise.
fn again(pair: &mut Pair, a: Making, b: Making) {
    pair.reset();
    pair.up_both(a, b);
}

/// A READ at a path MTU of 256, answered at 512.
fn answered_otherwise(pair: &mut Pair, length_bytes: u32) {
    again(pair, Making { mtu: 1, ..Making::default() }, Making { mtu: 2, ..Making::default() });
    pair.a.send(&Work::read(length_bytes));
}
