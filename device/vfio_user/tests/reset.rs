//! DEVICE_RESET.

use super::super::message::Command;
use super::recorder::Call;
use super::rig::{POSTED, Rig, assert_refused, message};
use rustix::io::Errno;

#[test]
fn it_resets_and_is_answered_by_a_header() {
    let mut rig = Rig::negotiated();
    assert!(rig.succeed(&message(1, Command::DEVICE_RESET, 0, &[])).is_empty());
    assert_eq!(rig.device.take(), vec![Call::Reset]);
    rig.post(&message(1, Command::DEVICE_RESET, POSTED, &[]));
    assert_eq!(rig.device.take(), vec![Call::Reset]);
}

#[test]
fn a_body_is_refused_and_a_failure_told() {
    let mut rig = Rig::negotiated();
    for length in [1, 4, 1000] {
        rig.refuse(&message(1, Command::DEVICE_RESET, 0, &vec![0; length]), Errno::INVAL);
    }
    rig.device.fails_with = Some(Errno::IO);
    assert_refused(&rig.ask(&message(1, Command::DEVICE_RESET, 0, &[])), Errno::IO);
}
