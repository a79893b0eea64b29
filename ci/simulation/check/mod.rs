//! The checkers: what must hold of every run, judged outside the engine from the program and from captured frames.
//!
//! [`packet`] reads frames on its own; [`requester`] and [`responder`] follow a direction's sequence numbers;
//! [`standing`] says where a receiver may be; [`resends`] what a selective sender may send again;
//! [`credits`] counts what is promised; [`content`] compares each packet with the message it belongs to; [`row`] says what is left of a message on an unreliable
//! connection.

pub mod content;
pub mod credits;
pub mod packet;
pub mod requester;
pub mod resends;
pub mod responder;
pub mod row;
pub mod standing;
