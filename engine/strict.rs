//! A device that stops for good: because its command rings are out of reach, or because it is strict, so that what is a
//! warning elsewhere is not overlooked.

use crate::engine::Engine;
use crate::front_end::{EventRecord, Status};
use crate::host::Host;
use crate::numbers::Qpn;
use rnic_abi::Diagnostic;
use rnic_pcie::Cause;

impl Engine {
    pub(crate) fn stop_if_strict(&mut self, host: &mut Host) {
        if let Some(diagnostic) = self.strict_stop.take() {
            self.stop_for_good(host, diagnostic);
        }
    }

    /// Stops until a reset: commands are not answered and doorbells not taken any more, no packet comes or goes, a
    /// DEVICE_FATAL event says why, and every queue pair goes to the error state, its oldest send with the number of the
    /// broken rule.
    pub(crate) fn stop_for_good(&mut self, host: &mut Host, diagnostic: Diagnostic) {
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
