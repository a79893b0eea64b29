//! The scatter: the payload goes to host memory, in ascending order, ahead of everything that tells of it.

use super::key_check::Authorized;
use crate::blocks::Block;
use crate::engine::Engine;
use crate::host::Host;
use crate::numbers::Qpn;
use rnic_abi::Diagnostic;
use rnic_pcie::{Cause, Class, Origin};

impl Engine {
    pub(crate) fn scatter(&mut self, host: &mut Host, qpn: Qpn, authorized: &Authorized, payload: &[u8], cause: Cause) {
        if payload.is_empty() {
            return;
        }
        self.blocks.touch(host.now_ns, Block::DmaEngine, qpn.0);
        self.blocks.touch(host.now_ns, Block::SystemIommu, qpn.0);
        let origin = Origin::new(Class::PayloadWrite, cause);
        // A posted write is not answered: like hardware, the responder goes on, and the rule is reported.
        if host.port.write(origin, &authorized.0.ranges, payload).is_err() {
            let place = match cause {
                Cause::Packet { psn, .. } => psn,
                Cause::Send { index, .. } => index.into(),
                _ => 0,
            };
            self.diagnose(host.now_ns, Diagnostic::PayloadFault, qpn.0, place.into());
        }
    }
}
