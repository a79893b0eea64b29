//! What can be wrong with a request, and what follows: one table.

use crate::front_end::{EventRecord, Status};
use crate::numbers::Qpn;
use crate::planted::planted;
use rnic_abi::Diagnostic;
use rnic_wire::NakCode;

/// What was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Opcode sequence, length, alignment, a right that the queue pair does not have, or one request too many.
    InvalidRequest(Diagnostic),
    /// The message is longer than its receive work request.
    ReceiveTooSmall,
    /// The rkey does not allow it.
    RemoteAccess(Diagnostic),
    /// The key that the peer wants to take out of use may not be. The peer is told nothing: its message has arrived.
    Invalidate(Diagnostic),
    /// A receive element's key does not allow it.
    LocalProtection(Diagnostic),
    /// Host memory did not answer, or held what it must not.
    LocalOperation(Diagnostic),
}

/// Which asynchronous event tells the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tells {
    RequestError,
    AccessError,
    Fatal,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Consequence {
    pub nak: Option<NakCode>,
    /// Status of the receive work request in use, where one is.
    pub receive_status: Option<Status>,
    pub tells: Tells,
    pub diagnostic: Diagnostic,
}

impl Fault {
    pub fn consequence(self) -> Consequence {
        let (invalid, access, operational) =
            (NakCode::INVALID_REQUEST, NakCode::REMOTE_ACCESS_ERROR, NakCode::REMOTE_OPERATIONAL_ERROR);
        let (nak, receive_status, tells, diagnostic) = match self {
            Self::InvalidRequest(rule) => (Some(invalid), None, Tells::RequestError, rule),
            Self::ReceiveTooSmall => {
                (Some(invalid), Some(Status::LocalLength), Tells::RequestError, Diagnostic::ReceiveTooSmall)
            }
            Self::RemoteAccess(rule) => (Some(access), None, Tells::AccessError, rule),
            Self::Invalidate(rule) => (None, Some(Status::LocalQpOperation), Tells::AccessError, rule),
            Self::LocalProtection(rule) => (Some(operational), Some(Status::LocalProtection), Tells::Fatal, rule),
            Self::LocalOperation(rule) => (Some(operational), Some(Status::LocalQpOperation), Tells::Fatal, rule),
        };
        let nak = nak.map(|nak| if planted("every_refusal_is_an_access_error") { access } else { nak });
        let receive_status = receive_status.filter(|_| !planted("failed_receive_in_silence"));
        let tells = if planted("every_refusal_is_fatal") { Tells::Fatal } else { tells };
        Consequence { nak, receive_status, tells, diagnostic }
    }
}

impl Consequence {
    pub fn event(&self, qpn: Qpn) -> EventRecord {
        let (qpn, diagnostic) = (qpn.0, self.diagnostic);
        match self.tells {
            Tells::RequestError => EventRecord::QpRequestError { qpn, diagnostic },
            Tells::AccessError => EventRecord::QpAccessError { qpn, diagnostic },
            Tells::Fatal => EventRecord::QpFatal { qpn, diagnostic },
        }
    }
}
