//! Why a verb failed.

use super::command::CommandRefused;
use crate::backing::BackingError;
use std::time::Duration;

pub type Result<T> = std::result::Result<T, VerbsError>;

#[derive(Debug, thiserror::Error)]
pub enum VerbsError {
    #[error(transparent)]
    Backing(#[from] BackingError),
    #[error(transparent)]
    Command(#[from] CommandRefused),
    #[error("BAR 0 holds {found:#010x} where the magic number stands: not an rnic, or memory decoding is off")]
    Magic { found: u32 },
    #[error("the device speaks version {major}.{minor}, this driver {}.x", rnic_abi::VERSION_MAJOR)]
    Version { major: u16, minor: u16 },
    #[error("{what} took longer than {limit:?}; the device's last diagnostic is {}", explain(*.diagnostic))]
    Timeout { what: String, limit: Duration, diagnostic: u32 },
    #[error("the command queue's answer makes no sense: {what}")]
    CommandAnswer { what: String },
    #[error("{what} of {wanted} is more than {most}")]
    Limit { what: &'static str, wanted: u64, most: u64 },
    #[error("there is no {what}")]
    Missing { what: String },
    #[error("{what} exists already")]
    Exists { what: String },
    #[error("{what} is still used: {by}")]
    Busy { what: String, by: String },
    #[error("the {ring} ring of {slots} slots has {free} free and the request needs {needed}")]
    RingFull { ring: &'static str, slots: u32, free: u32, needed: u32 },
    #[error("the work request is not valid: {what}")]
    WorkRequest { what: String },
    #[error("the device reports {what}")]
    Device { what: String },
    #[error("offset {offset} and length {length_bytes} lie outside the region's {region_bytes} bytes")]
    RegionRange { offset: u64, length_bytes: u64, region_bytes: u64 },
}

/// A diagnostic's number with the sentence of its rule.
pub(crate) fn explain(diagnostic: u32) -> String {
    match (diagnostic, rnic_abi::diagnostic::rule(diagnostic)) {
        (0, _) => "none".into(),
        (_, Some(rule)) => format!("{} {}: {}", rule.number, rule.name, rule.sentence),
        (_, None) => format!("{diagnostic}, which this driver does not know"),
    }
}

pub(crate) fn check_limit(what: &'static str, wanted: u64, most: u64) -> Result<()> {
    if wanted > most { Err(VerbsError::Limit { what, wanted, most }) } else { Ok(()) }
}
