//! A connection that only writes: a long send queue, no receives. What [`goodput`](crate::goodput) and
//! [`incast`](crate::incast) measure with.

use crate::host::Host;
use rnic_abi::command::*;
use rnic_shim::verbs::*;

/// How its halves are made and connected.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// Of the send queue and of its completion queue.
    pub log_slots: u8,
    pub path_mtu_bytes: u32,
    /// Code of the retry timer.
    pub timeout: u8,
    pub selective: bool,
}

impl Stream {
    /// A half in RESET, with a completion queue of its own.
    pub fn open(&self, host: &mut Host) -> Result<(Cqn, Qpn)> {
        let log_entries = self.log_slots;
        let spec = CqSpec { cqn: None, log_entries, eqn: Some(Device::ASYNC_EQN), doorbell_page: 1 };
        let cqn = host.device.create_completion_queue(spec)?;
        let qpn = host.device.create_queue_pair(QpSpec {
            qpn: None,
            qp_type: QP_TYPE_RC,
            pd: host.pd,
            send_cq: cqn,
            receive_cq: cqn,
            log_send_slots: self.log_slots,
            log_receive_entries: 0,
            log_receive_stride: 0,
            doorbell_page: 1,
            signal_all: false,
            privileged: false,
            selective: self.selective,
        })?;
        Ok((cqn, qpn))
    }

    /// Connects a half to the one of a host with this GID and MAC address.
    pub fn connect(
        &self,
        host: &mut Host,
        own: Qpn,
        peer: Qpn,
        (dest_gid, dest_mac): ([u8; 16], [u8; 6]),
    ) -> Result<()> {
        let rtr = RtrAttributes {
            path_mtu_bytes: self.path_mtu_bytes,
            dest_qpn: peer.0,
            rq_psn: 0,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 1,
            av: AddressVector { dest_gid, dest_mac, hop_limit: 64, ..AddressVector::zeroed() },
        };
        let rts = RtsAttributes { sq_psn: 0, timeout: self.timeout, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 1 };
        host.device.modify_queue_pair(own, init_attributes(ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE))?;
        host.device.modify_queue_pair(own, rtr_attributes(rtr))?;
        host.device.modify_queue_pair(own, rts_attributes(rts))
    }
}
