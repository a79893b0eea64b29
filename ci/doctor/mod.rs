//! Whether this machine can do the main job, two guests and one operation, and what to do where it cannot.
//!
//! In: the options of a run. Out: [`Finding`]s, each with its cure. [`host`] looks at the machine, [`laboratory`] at
//! QEMU, the guest's image, KVM, the archive and the cache. Nothing is downloaded; what is in the cache is tried.

mod host;
mod laboratory;

use crate::{Options, Progress};

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Fine,
    /// Worth knowing.
    Note,
    /// It works, but badly, or it may not.
    Warning,
    /// The main job cannot be done.
    Stops,
}

impl Level {
    pub const fn name(self) -> &'static str {
        match self {
            Level::Fine => "ok",
            Level::Note => "note",
            Level::Warning => "warning",
            Level::Stops => "stops",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub check: &'static str,
    pub level: Level,
    /// What was found.
    pub found: String,
    /// What to do about it; none where nothing is wrong.
    pub cure: Option<String>,
}

impl Finding {
    fn fine(check: &'static str, found: impl Into<String>) -> Finding {
        Finding { check, level: Level::Fine, found: found.into(), cure: None }
    }

    fn new(check: &'static str, level: Level, found: impl Into<String>, cure: impl Into<String>) -> Finding {
        Finding { check, level, found: found.into(), cure: Some(cure.into()) }
    }
}

/// Looks at everything. A proof of KVM that the cache does not hold takes some seconds, once.
pub fn examine(options: &Options, progress: &mut dyn Progress) -> Vec<Finding> {
    let mut findings = laboratory::examine(options, progress);
    findings.extend(host::examine());
    findings
}
