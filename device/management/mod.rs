//! Management: how tools see a running server, and what they may ask of it.
//!
//! In: requests of programs of the same user, on a Unix socket. Out: what the adapters have counted, recorded and
//! diagnosed, as JSON. `server` polls the socket and its clients in the main thread; `session` is one conversation; what it
//! understands (`protocol`) goes to `answers`, which asks the engine threads between two of their steps, with a time limit;
//! `reports` gives the answers their form. `client` is the other end, `folder` where both meet.

mod answers;
mod client;
pub mod folder;
mod protocol;
pub mod reports;
mod server;
mod session;
#[cfg(test)]
mod tests;

pub use answers::ServerAnswers;
pub use client::{ClientError, ManagementClient};
pub use protocol::{MAX_ENTRIES, MAX_REQUEST_BYTES, ObjectKind, Page, Reason, Refusal, Request, SCHEMA, Span};
pub use server::ManagementServer;
pub use session::{Answers, Session};
