//! The strict device: what is a warning elsewhere stops it, so that no broken rule is overlooked.

use crate::engine::Engine;
use crate::front_end::{EventRecord, Status};
use crate::host::Host;
use crate::numbers::Qpn;
use rnic_pcie::Cause;

impl Engine {
    /// Stops for good, until a reset: commands are not answered any more, a DEVICE_FATAL event says why, and every queue
    /// pair goes to the error state, its oldest send with the number of the broken rule.
    pub(crate) fn stop_if_strict(&mut self, host: &mut Host) {
        let Some(diagnostic) = self.strict_stop.take() else { return };
        if std::mem::replace(&mut self.fatal, true) {
            return;
        }
        self.async_event(host, EventRecord::DeviceFatal { diagnostic }, Cause::Maintenance);
        let queue_pairs: Vec<_> = self.queue_pairs.iter().map(|(qpn, _)| Qpn(qpn)).collect();
        for qpn in queue_pairs {
            self.doom(qpn, diagnostic, Some(Status::General));
        }
    }
}
