//! A client that connects and does not negotiate holds the device for a time only.

use super::super::connection::{CloseReason, NEGOTIATION_LIMIT};
use super::recorder::Call;
use super::rig::{Rig, qemu_version};
use std::time::{Duration, Instant};

#[test]
fn silence_and_half_a_message_end_at_the_limit_and_not_before() {
    for said in [0, 1, 15, 16, 20, qemu_version().len() - 1] {
        let mut rig = Rig::connected();
        let until = rig.server.negotiates_until().expect("it has not negotiated");
        assert!(until <= Instant::now() + NEGOTIATION_LIMIT);
        rig.send(&qemu_version()[..said]);
        rig.pump().unwrap();
        let device = &mut rig.device;
        assert_eq!(rig.server.expire(until - Duration::from_nanos(1), device), Ok(()), "{said} bytes");
        let closed = rig.server.expire(until, device).unwrap_err();
        assert_eq!(closed.reason, CloseReason::Silent, "{said} bytes");
        assert!(closed.to_string().contains("negotiated no version within 10 s"), "{closed}");
        assert_eq!(rig.device.take(), Vec::<Call>::new(), "it has changed nothing that would have to be reset");
        assert_eq!((rig.server.negotiates_until(), rig.server.wants_read()), (None, false));
    }
}

#[test]
fn a_version_that_is_refused_does_not_buy_time() {
    let mut rig = Rig::connected();
    let until = rig.server.negotiates_until();
    let mut other = qemu_version();
    other[16] = 9;
    let reply = rig.ask(&other);
    assert_ne!(reply.header.error, 0);
    assert_eq!(rig.server.negotiates_until(), until);
    rig.server.expire(until.unwrap(), &mut rig.device).unwrap_err();
}

#[test]
fn who_has_negotiated_may_be_silent_for_ever() {
    let mut rig = Rig::negotiated();
    assert_eq!(rig.server.negotiates_until(), None);
    let late = Instant::now() + 1000 * NEGOTIATION_LIMIT;
    assert_eq!(rig.server.expire(late, &mut rig.device), Ok(()));
    rig.still_in_step();
}
