//! Where a receiver may stand, read from the frames alone: a packet that comes in order is taken, unless it needs a receive
//! and there may have been none. Then the receiver has it, or still waits for it, and both are followed until an answer
//! tells. A packet ahead of where it stands is a gap, of which it tells once.

use super::packet::{ahead, step};

/// Gaps that are remembered; older ones are forgotten, since answers are never so late.
const GAPS: usize = 64;
/// More are never in doubt at a time than a window has packets.
const STANDS: usize = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stand {
    expected: u32,
    /// It has told that something is missing, or that it was not ready: it is silent until the next packet in order.
    silent: bool,
}

#[derive(Clone, Debug)]
pub struct Standing {
    stands: Vec<Stand>,
    /// Expected PSNs at which a later packet came, and at which a receive may have been missing.
    gaps: Vec<u32>,
    unready: Vec<u32>,
}

/// Whether the receiver has what a packet needs beside itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receive {
    /// It needs no receive, or one is there for it.
    Sure,
    /// All that are posted may be others'.
    Doubtful,
}

fn note(list: &mut Vec<u32>, psn: u32) {
    if !list.contains(&psn) {
        if list.len() == GAPS {
            list.remove(0);
        }
        list.push(psn);
    }
}

impl Standing {
    pub fn new(psn: u32) -> Self {
        Self { stands: vec![Stand { expected: psn, silent: false }], gaps: Vec::new(), unready: Vec::new() }
    }

    /// A request packet that takes so many PSNs came.
    pub fn on_received(&mut self, psn: u32, packets: u32, receive: Receive) {
        let mut next = Vec::with_capacity(self.stands.len() + 1);
        for stand in std::mem::take(&mut self.stands) {
            match ahead(psn, stand.expected) {
                0 => {
                    next.push(Stand { expected: step(psn, packets), silent: false });
                    if receive == Receive::Doubtful {
                        note(&mut self.unready, psn);
                        next.push(Stand { silent: true, ..stand });
                    }
                }
                1.. => {
                    if !stand.silent {
                        note(&mut self.gaps, stand.expected);
                    }
                    next.push(Stand { silent: true, ..stand });
                }
                _ => next.push(stand),
            }
        }
        // One that may still tell can do all that a silent one can.
        next.sort_by_key(|stand| stand.silent);
        for stand in next {
            if self.stands.len() < STANDS && !self.stands.iter().any(|known| known.expected == stand.expected) {
                self.stands.push(stand);
            }
        }
    }

    /// A packet came that is kept until its turn.
    pub fn note_receive(&mut self, psn: u32, receive: Receive) {
        if receive == Receive::Doubtful {
            note(&mut self.unready, psn);
        }
    }

    /// It has told that everything before this PSN came.
    pub fn has_reached(&mut self, unacked: u32) {
        let reached = |psn: &u32| ahead(*psn, unacked) >= 0;
        if self.stands.iter().any(|stand| reached(&stand.expected)) {
            self.stands.retain(|stand| reached(&stand.expected));
        }
        self.gaps.retain(reached);
        self.unready.retain(reached);
    }

    /// A later packet came while it waited for this one, and it had not told of it.
    pub fn may_miss(&self, psn: u32) -> bool {
        self.gaps.contains(&psn)
    }

    /// This packet may have found no receive.
    pub fn may_be_unready(&self, psn: u32) -> bool {
        self.unready.contains(&psn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_missing_where_a_later_one_came_before_it() {
        let mut standing = Standing::new(0xff_fffe);
        standing.on_received(0xff_fffe, 1, Receive::Sure);
        standing.on_received(1, 1, Receive::Sure);
        assert!(standing.may_miss(0xff_ffff) && !standing.may_miss(0) && !standing.may_be_unready(0xff_ffff));
        standing.on_received(0xff_ffff, 2, Receive::Sure);
        assert!(standing.may_miss(0xff_ffff), "its answer may be late");
        standing.has_reached(1);
        assert!(!standing.may_miss(0xff_ffff));
    }

    #[test]
    fn who_may_not_have_been_ready_may_miss_a_packet_of_the_repetition() {
        let mut standing = Standing::new(0);
        (0..3).for_each(|psn| standing.on_received(psn, 1, Receive::Sure));
        let mut sure = standing.clone();
        standing.on_received(3, 1, Receive::Doubtful);
        sure.on_received(3, 1, Receive::Sure);
        for check in [&mut standing, &mut sure] {
            (4..7).for_each(|psn| check.on_received(psn, 1, Receive::Sure));
            // Packet 4 of the repetition is lost.
            [2, 3, 5].into_iter().for_each(|psn| check.on_received(psn, 1, Receive::Sure));
        }
        assert!(standing.may_be_unready(3) && !sure.may_be_unready(3));
        assert!(standing.may_miss(4) && !standing.may_miss(3), "it said that it was not ready, and no more");
        assert!(!sure.may_miss(4));
        standing.has_reached(7);
        standing.on_received(6, 1, Receive::Sure);
        standing.on_received(8, 1, Receive::Sure);
        assert!(standing.may_miss(7) && !standing.may_miss(4));
    }
}
