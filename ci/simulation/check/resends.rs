//! Which packets a sender that retransmits selectively may send again: those that an answer names, once for each time; when
//! its time is over the oldest, and with it the newest. Nothing else is ever sent twice.

use super::packet::ahead;
use super::requester::Jump;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub struct Resends {
    /// How often answers have named a packet that was not sent again for it.
    named: BTreeMap<u32, u32>,
    /// When a packet left first, or was sent again by the timer: its time runs from there at the earliest.
    since_ns: BTreeMap<u32, u64>,
    /// The newest packet when the oldest was sent again by the timer.
    probe: Option<u32>,
    /// A receiver that could not keep what came early has named this packet: everything from there on goes again.
    nak: Option<u32>,
}

impl Resends {
    /// An answer asks for this packet.
    pub fn name(&mut self, psn: u32) {
        *self.named.entry(psn).or_default() += 1;
    }

    /// The receiver keeps nothing of what is behind this packet.
    pub fn refuse(&mut self, psn: u32) {
        self.nak = Some(psn);
    }

    /// A packet leaves for the first time.
    pub fn leaves(&mut self, psn: u32, now_ns: u64) {
        self.since_ns.insert(psn, now_ns);
    }

    /// Everything before `psn` is acknowledged.
    pub fn forget(&mut self, psn: u32, window: u32) {
        // A sender may know less than what was on its way to it; and of a READ the request's packet is far behind.
        let begun = self.since_ns.keys().map(|left| ahead(*left, psn)).filter(|left| *left <= 0).max().unwrap_or(0);
        self.since_ns.retain(|left, _| ahead(*left, psn) >= begun - 2 * window as i32);
        self.named.retain(|named, _| ahead(*named, psn) >= -(2 * window as i32));
    }

    /// Why a packet is sent again.
    pub fn justify(&mut self, psn: u32, fresh: u32, timeout_ns: u64, now_ns: u64) -> Result<Jump, String> {
        // What is missing of a READ was never sent itself: its request was, before.
        let before = self.since_ns.iter().filter(|(left, _)| ahead(**left, psn) <= 0);
        let since_ns = before.max_by_key(|(left, _)| ahead(**left, psn)).map(|(_, since_ns)| *since_ns);
        let overdue = timeout_ns > 0 && since_ns.is_some_and(|since_ns| now_ns >= since_ns + timeout_ns);
        let probes = self.probe == Some(psn);
        if let Some(since_ns) = since_ns.filter(|_| overdue) {
            self.probe = Some(fresh.wrapping_sub(1) & 0xff_ffff);
            // The timer starts anew when it expires; the packet may have left later.
            self.since_ns.insert(psn, since_ns + timeout_ns);
        }
        // An answer that names it may have led to nothing, because it was to be sent again already.
        if let Some(times) = self.named.get_mut(&psn) {
            *times -= 1;
            if *times == 0 {
                self.named.remove(&psn);
            }
            return Ok(Jump::Nak);
        }
        if probes && !overdue {
            self.probe = None;
        }
        // The oldest may be acknowledged in the moment between its timer and its turn.
        let newest = psn == fresh.wrapping_sub(1) & 0xff_ffff;
        if newest && timeout_ns > 0 && self.since_ns.values().any(|since_ns| now_ns >= since_ns + timeout_ns) {
            return Ok(Jump::Timeout);
        }
        // When the sender hears of that, and what has left by then, is not known.
        if self.nak.is_some_and(|nak| (0..256).contains(&ahead(psn, nak))) {
            return Ok(Jump::Nak);
        }
        if overdue || probes {
            return Ok(Jump::Timeout);
        }
        Err(format!(
            "PSN {psn:#x} is sent again at {now_ns}: no answer names it, and its time runs from {since_ns:?} on"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_goes_again_when_it_is_named_or_overdue_and_the_newest_with_the_oldest() {
        let mut resends = Resends::default();
        (0xff_fffe..0x100_0002).for_each(|psn| resends.leaves(psn & 0xff_ffff, 10));
        resends.leaves(2, 60);
        assert!(resends.justify(0, 3, 100, 20).unwrap_err().contains("no answer names it"));
        resends.name(0);
        assert_eq!(resends.justify(0, 3, 100, 20), Ok(Jump::Nak));
        assert!(resends.justify(0, 3, 100, 20).is_err(), "once for each time");
        assert!(resends.justify(2, 3, 100, 20).is_err(), "the newest needs the oldest before it");
        assert_eq!(resends.justify(0xff_fffe, 3, 100, 110), Ok(Jump::Timeout));
        assert_eq!(resends.justify(2, 3, 100, 111), Ok(Jump::Timeout));
        let mut late = resends.clone();
        late.leaves(3, 111);
        assert!(late.justify(2, 4, 100, 112).is_err(), "it is not the newest any more");
        assert!(resends.clone().justify(1, 3, 0, 1_000_000).is_err(), "there is no timer");
    }
}
