//! What the tests that provision share: a missing network, QEMU or image is a failure, not a skip, unless the caller
//! asks for skips with RNIC_OFFLINE_SKIP=1 outside continuous integration.

#![allow(clippy::disallowed_macros, reason = "the test harness shows what a failed test has said")]
#![allow(dead_code)] // Each test file uses its own part.

use rnic_ci::{Error, Options, Progress, Result, StandardError};

pub fn options() -> Options {
    Options::from_environment()
}

/// The value; or none, said aloud, when what is missing may be skipped; else the test fails with the error's sentence.
pub fn provided<T>(result: Result<T>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) if may_skip() && is_missing(&error) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn may_skip() -> bool {
    let is = |name, value| std::env::var(name).is_ok_and(|found| found == value);
    is("RNIC_OFFLINE_SKIP", "1") && !is("CI", "true")
}

fn is_missing(error: &Error) -> bool {
    matches!(
        error,
        Error::NetworkMissing { .. }
            | Error::AptMissing { .. }
            | Error::KeyringMissing { .. }
            | Error::DiskSpace { .. }
            | Error::MirrorUnknown { .. }
            | Error::Offline { .. }
    )
}

pub fn progress() -> impl Progress {
    StandardError
}
