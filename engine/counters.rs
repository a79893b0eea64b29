//! Counters, under the names of Linux rxe where it has them.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What the adapter has counted since it exists: a reset does not set them back.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters { $($(#[$doc])* pub $name: u64,)* }

        impl Counters {
            /// Every counter with its name.
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

counters! {
    sent_pkts,
    rcvd_pkts,
    duplicate_request,
    /// Duplicate READs and atomics that nothing is remembered of any more.
    duplicate_unanswered,
    out_of_seq_request,
    rcvd_rnr_err,
    send_rnr_err,
    rcvd_seq_err,
    send_seq_err,
    retry_exceeded_err,
    retry_rnr_exceeded_err,
    /// Retry timers that expired.
    local_ack_timeout_err,
    /// Packets sent again.
    retransmitted_pkts,
    /// Responses that passed over an unanswered READ or atomic, which was asked for again.
    implied_nak_seq_err,
    /// READs and atomics of peers that were accepted, duplicates apart.
    rx_read_requests,
    rx_atomic_requests,
    /// Acknowledgements outside what is outstanding.
    ghost_acks,
    /// Acknowledgements whose MSN did not agree with their PSN.
    msn_mismatch,
    /// Invalid request, access and operational errors found in the peer's requests.
    resp_local_invalid_request,
    resp_remote_access_errors,
    resp_local_operation_errors,
    /// Frames dropped, by reason.
    rx_dropped_frame,
    rx_icrc_errors,
    rx_dropped_no_qp,
    rx_dropped_state,
    rx_dropped_address,
    rx_dropped_transport,
    rx_bad_pkey,
    /// Datagrams whose Q_Key is not the queue pair's.
    rx_bad_qkey,
    /// Messages of unreliable transports that were dropped: no receive posted, longer than the receive, packets missing or out
    /// of place, refused otherwise.
    rx_dropped_no_receive,
    rx_dropped_too_long,
    rx_dropped_sequence,
    rx_dropped_refused,
    /// Copies of multicast packets that queue pairs were given.
    rx_group_copies,
    /// Key refusals, local and remote.
    lkey_invalid,
    lkey_range,
    lkey_right,
    lkey_pd,
    rkey_invalid,
    rkey_range,
    rkey_right,
    rkey_pd,
    /// Keys taken out of use by LOCAL_INV or by SENDs with invalidate.
    invalidated_keys,
    /// Send work requests that ended, well or not, signaled or not.
    finished_sends,
    /// Messages of the peer that were executed whole.
    executed_messages,
    /// Completions that could not be written because their queue had failed.
    cqe_lost,
    /// Events that found no room.
    eqe_lost,
    diagnostics,
    /// ATOMIC_WRITEs and FLUSHes of peers that were executed.
    rx_atomic_writes,
    rx_flushes,
    /// Congestion, under the names of Mellanox adapters: notifications that were sent, packets that came marked, notifications
    /// of peers that cut a rate, and those that came too soon after another.
    np_cnp_sent,
    np_ecn_marked_roce_packets,
    rp_cnp_handled,
    rp_cnp_ignored,
}
