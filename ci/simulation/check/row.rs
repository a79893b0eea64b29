//! What a receiver of an unreliable connection takes, read from the frames that reach it (item 23): the packets of a
//! message in their row, from its first one on; after a gap nothing, until a message begins.

use super::packet::step;

/// Where a packet stands in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub first: bool,
    pub last: bool,
}

impl Position {
    /// By the opcode of a SEND or WRITE, without its transport.
    pub fn of(opcode: u8) -> Self {
        Self {
            first: matches!(opcode, 0x00 | 0x04..=0x06 | 0x0a | 0x0b),
            last: !matches!(opcode, 0x00 | 0x01 | 0x06 | 0x07),
        }
    }
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Taken,
    /// Out of its place.
    Dropped,
}

/// One direction, at its receiver.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    expected: u32,
    open: bool,
    /// Messages that were begun and lost a packet.
    pub torn: u64,
}

impl Row {
    pub fn new(psn: u32) -> Self {
        Self { expected: psn, open: false, torn: 0 }
    }

    /// A packet came.
    pub fn on_received(&mut self, psn: u32, position: Position) -> Fate {
        let in_order = psn == self.expected;
        self.expected = step(psn, 1);
        self.torn += u64::from(self.open && (position.first || !in_order));
        let taken = position.first || (in_order && self.open);
        self.open = taken && !position.last;
        if taken { Fate::Taken } else { Fate::Dropped }
    }

    /// The packet that came last was of no use, and so is the rest of its message.
    pub fn refuse(&mut self) {
        self.open = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Position = Position { first: true, last: false };
    const MIDDLE: Position = Position { first: false, last: false };
    const LAST: Position = Position { first: false, last: true };
    const ONLY: Position = Position { first: true, last: true };

    #[test]
    fn a_gap_takes_the_rest_of_its_message_and_no_more() {
        let mut row = Row::new(0xff_fffe);
        let mut fates = |psns: &[(u32, Position)]| -> Vec<bool> {
            psns.iter().map(|(psn, position)| row.on_received(*psn, *position) == Fate::Taken).collect()
        };
        assert_eq!(fates(&[(0xff_fffe, FIRST), (0xff_ffff, MIDDLE), (0, LAST)]), [true; 3]);
        assert_eq!(fates(&[(1, FIRST), (3, MIDDLE), (4, LAST), (5, ONLY)]), [true, false, false, true]);
        assert_eq!(fates(&[(6, FIRST), (7, FIRST), (8, LAST), (9, LAST)]), [true, true, true, false]);
        assert_eq!(fates(&[(9, ONLY), (9, ONLY)]), [true, true], "what comes twice begins twice");
        assert_eq!(row.torn, 2);
    }

    #[test]
    fn what_is_refused_ends_its_message() {
        let mut row = Row::new(0);
        assert_eq!(row.on_received(0, FIRST), Fate::Taken);
        row.refuse();
        assert_eq!((row.on_received(1, MIDDLE), row.on_received(2, LAST)), (Fate::Dropped, Fate::Dropped));
        assert_eq!(row.on_received(3, ONLY), Fate::Taken);
    }

    #[test]
    fn positions_are_those_of_the_opcodes() {
        let at = |opcodes: &[u8], first, last| {
            opcodes.iter().all(|opcode| Position::of(*opcode) == Position { first, last })
        };
        assert!(at(&[0x00, 0x06], true, false) && at(&[0x01, 0x07], false, false));
        assert!(at(&[0x02, 0x03, 0x08, 0x09], false, true) && at(&[0x04, 0x05, 0x0a, 0x0b], true, true));
    }
}
