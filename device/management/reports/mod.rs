//! The form of what a server tells: plain rows in JSON, the same for the tools' `--json` and for their text.

pub mod adapter;
pub mod crossing;
pub mod ethernet;
pub mod events;
pub mod objects;
pub mod server;
pub mod stat;
pub mod trace;

use std::borrow::Cow;

/// A name from one of the tables of this program, or of another program's reply.
pub type Name = Cow<'static, str>;
