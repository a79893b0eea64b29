//! Rules of SENDs and WRITEs, of keys, and what the peer answers.

use super::Row;
use super::pair::{Pair, QPNS};
use crate::bench::raw_driver::*;
use rnic_abi::command::*;
use rnic_abi::{CommandOpcode, ControlSegment, Diagnostic, work_request};
use zerocopy::{FromBytes, IntoBytes};

/// Work requests, keys, and what the peer answers.
pub const ROWS: &[Row] = &[
    (Diagnostic::ContextInvalid, |pair| {
        pair.a.flush_caches();
        pair.a.put(QP_TABLE + u64::from(QPNS[0]) * 256, &[0xff; 8]);
        pair.a.send(&Work::write());
    }),
    (Diagnostic::WqeOpcode, |pair| spoil(pair, |control| control.opcode = 0x7f)),
    (Diagnostic::WqeReserved, |pair| spoil(pair, |control| control.reserved = 1.into())),
    (Diagnostic::WqeQpn, |pair| spoil(pair, |control| control.qpn = [9, 0, 0])),
    (Diagnostic::WqeIndex, |pair| spoil(pair, |control| control.slot_index = 9.into())),
    (Diagnostic::WqeLength, |pair| spoil(pair, |control| control.segments = 0)),
    (Diagnostic::WqeInline, |pair| {
        spoil(pair, |control| {
            control.flags |= work_request::WQE_INLINE;
            control.inline_bytes = 225.into();
        });
    }),
    (Diagnostic::MessageTooLong, |pair| {
        let elements = vec![(VIRTUAL, 1 << 31, KEY), (VIRTUAL, 1, KEY)];
        pair.a.send(&Work { elements, ..Work::write() });
    }),
    (Diagnostic::LKeyInvalid, |pair| from(pair, VIRTUAL, 0x900)),
    (Diagnostic::LKeyRange, |pair| from(pair, VIRTUAL - 1, KEY)),
    (Diagnostic::LKeyRight, |pair| {
        let region = pair.b.region(0x200, pair.b.at(BUFFER), 0, 0);
        pair.b.must(CommandOpcode::REGISTER_KEY, region.as_bytes());
        pair.b.receive(VIRTUAL, 64, 0x200);
        pair.b.settle();
        pair.a.send(&Work::send());
    }),
    (Diagnostic::LKeyPd, |pair| {
        foreign(&mut pair.a);
        from(pair, VIRTUAL, 0x200);
    }),
    (Diagnostic::RKeyInvalid, |pair| to(pair, VIRTUAL, 0x900)),
    (Diagnostic::RKeyRange, |pair| to(pair, VIRTUAL - 1, KEY)),
    (Diagnostic::RKeyRight, |pair| {
        let region = pair.b.region(0x200, pair.b.at(BUFFER), 0, ACCESS_LOCAL_WRITE);
        pair.b.must(CommandOpcode::REGISTER_KEY, region.as_bytes());
        to(pair, VIRTUAL, 0x200);
    }),
    (Diagnostic::RKeyPd, |pair| {
        foreign(&mut pair.b);
        to(pair, VIRTUAL, 0x200);
    }),
    (Diagnostic::PayloadFault, |pair| {
        let region = pair.a.region(0x200, NOWHERE, 0, ACCESS_LOCAL_WRITE);
        pair.a.must(CommandOpcode::REGISTER_KEY, region.as_bytes());
        from(pair, VIRTUAL, 0x200);
    }),
    (Diagnostic::ReceiveTooSmall, |pair| {
        pair.b.receive(VIRTUAL, 7, KEY);
        pair.b.settle();
        pair.a.send(&Work::send());
    }),
    (Diagnostic::RemoteAccessError, |pair| to(pair, VIRTUAL, 0x900)),
    (Diagnostic::RemoteOperationalError, |pair| {
        pair.b.receive(VIRTUAL, 64, 0x900);
        pair.b.settle();
        pair.a.send(&Work::send());
    }),
    (Diagnostic::CqOverrun, |pair| {
        for _ in 0..65 {
            pair.a.send(&Work::write());
            pair.a.completion_or_overrun();
        }
    }),
    (Diagnostic::EqOverrun, |pair| {
        for _ in 0..65 {
            let mut slot = [0; 128];
            (slot[0], slot[1]) = (CommandOpcode::QUERY_DEVICE.0, COMMAND_NOTIFY);
            pair.a.start_slot(&slot);
            pair.a.settle();
        }
    }),
];

/// Sends a WRITE whose control segment has been changed.
fn spoil(pair: &mut Pair, change: fn(&mut ControlSegment)) {
    let bytes = pair.a.post(&Work::write());
    let (mut control, _) = ControlSegment::read_from_prefix(&bytes).expect("a control segment");
    change(&mut control);
    pair.a.put(SQ, control.as_bytes());
    pair.a.ring_send();
}

fn from(pair: &mut Pair, address: u64, lkey: u32) {
    pair.a.send(&Work { elements: vec![(address, 8, lkey)], ..Work::write() });
}

fn to(pair: &mut Pair, address: u64, rkey: u32) {
    pair.a.send(&Work { remote: (address, rkey), ..Work::write() });
}

fn foreign(driver: &mut RawDriver) {
    let mut region = driver.region(0x200, driver.at(BUFFER), 0, ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE);
    region.pdn = (PDN + 1).into();
    driver.must(CommandOpcode::REGISTER_KEY, region.as_bytes());
}
