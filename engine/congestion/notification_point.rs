//! The notification point: when a packet that was marked on its way leads to a CNP.
//!
//! Adapters differ in what they pace: the queue pair, everything to one address, or the whole port. Addresses share a
//! table of fixed size by their hash, as in hardware: two of the same place share their pace, and none is ever forgotten.

/// What has at most one CNP in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CnpScope {
    #[default]
    QueuePair,
    /// The address that the packets come from.
    Destination,
    Port,
}

const DESTINATIONS: usize = 1024;

/// When the next CNP may leave.
#[derive(Debug)]
pub(crate) struct NotificationPoint {
    port_ns: u64,
    destinations_ns: Box<[u64; DESTINATIONS]>,
}

impl Default for NotificationPoint {
    fn default() -> Self {
        Self { port_ns: 0, destinations_ns: Box::new([0; DESTINATIONS]) }
    }
}

impl NotificationPoint {
    /// A marked packet came from `gid`, for a queue pair whose own pace is `queue_pair_ns`. True when it is told of.
    pub fn tells(
        &mut self,
        scope: CnpScope,
        gid: &[u8; 16],
        queue_pair_ns: &mut u64,
        now_ns: u64,
        interval_ns: u64,
    ) -> bool {
        let next_ns = match scope {
            CnpScope::QueuePair => queue_pair_ns,
            CnpScope::Destination => &mut self.destinations_ns[place(gid)],
            CnpScope::Port => &mut self.port_ns,
        };
        if *next_ns > now_ns {
            return false;
        }
        *next_ns = now_ns.saturating_add(interval_ns);
        true
    }
}

/// FNV-1a.
fn place(gid: &[u8; 16]) -> usize {
    let hash = gid.iter().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    hash as usize % DESTINATIONS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scope_has_its_own_pace() {
        // Two queue pairs, two addresses: who may tell at 10, and again at 59 and 60, 50 apart.
        let cases = [
            (CnpScope::QueuePair, [true, true, true]),
            (CnpScope::Destination, [true, false, true]),
            (CnpScope::Port, [true, false, false]),
        ];
        for (scope, at_once) in cases {
            let mut point = NotificationPoint::default();
            let mut paces = [0; 3];
            let gids = [[1; 16], [1; 16], [2; 16]];
            let mut all = |now_ns: u64| -> Vec<bool> {
                let tells = |at: usize| point.tells(scope, &gids[at], &mut paces[at], now_ns, 50);
                (0..3).map(tells).collect()
            };
            assert_eq!(all(10), at_once, "{scope:?}");
            assert_eq!(all(59), [false; 3], "{scope:?}");
            assert_eq!(all(60), at_once, "{scope:?}");
        }
    }
}
