//! ATTACH_MULTICAST and DETACH_MULTICAST.

use super::{Halt, missing};
use crate::engine::Engine;
use crate::front_end::{Answer, CommandError};
use crate::numbers::Qpn;
use rnic_abi::{CommandStatus, Diagnostic};
use rnic_wire::Gid;

impl Engine {
    pub(super) fn attach_multicast(&mut self, qpn: Qpn, gid: [u8; 16]) -> Result<Answer, Halt> {
        let refuse = |status, diagnostic| Err(CommandError::new(status, diagnostic, qpn.0).into());
        let service = self.queue_pairs.get(qpn).map(|qp| qp.service).ok_or_else(|| missing(qpn.0))?;
        if !service.is_datagram() {
            return refuse(CommandStatus::BAD_STATE, Diagnostic::MulticastQueuePair);
        }
        if !Gid(gid).is_multicast() {
            return refuse(CommandStatus::BAD_PARAMETER, Diagnostic::MulticastGid);
        }
        if !self.multicast.attach(gid, qpn) {
            return refuse(CommandStatus::NO_RESOURCES, Diagnostic::MulticastFull);
        }
        Ok(Answer::Done)
    }

    pub(super) fn detach_multicast(&mut self, qpn: Qpn, gid: [u8; 16]) -> Result<Answer, Halt> {
        if self.multicast.detach(&gid, qpn) { Ok(Answer::Done) } else { Err(missing(qpn.0)) }
    }
}
