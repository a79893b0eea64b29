//! Work requests that the hardware could not read: its one completion stands for all of them up to the producer index of
//! then. A later completion retires them in the driver.

/// Of one send queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unread {
    /// Numbers below this one were rung when a fetch was refused.
    refused_below: u64,
    /// Behind the completion that told of it: these have none of their own.
    silent: (u64, u64),
}

impl Unread {
    /// Memory refused a fetch; the next request to be posted has this number.
    pub fn refused(&mut self, next_number: u64) {
        self.refused_below = next_number;
    }

    /// A request has failed. One that was never read has no opcode; it speaks for those behind it that were rung.
    pub fn failed(&mut self, number: u64, opcode: u8) {
        if opcode == 0 && number < self.refused_below {
            self.silent = (number + 1, self.refused_below);
        }
    }

    /// Nobody will hear of this request.
    pub fn is_silent(&self, number: u64) -> bool {
        (self.silent.0..self.silent.1).contains(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_rung_when_a_fetch_was_refused_is_silent_behind_its_completion() {
        let mut unread = Unread::default();
        unread.failed(0, 0);
        assert!(!unread.is_silent(1), "no fetch was refused");
        unread.refused(9);
        assert!(!unread.is_silent(5), "nothing has been told yet");
        unread.failed(3, 4);
        assert!(!unread.is_silent(4), "this one was read");
        unread.failed(4, 0);
        assert!(!unread.is_silent(4) && unread.is_silent(5) && unread.is_silent(8) && !unread.is_silent(9));
    }
}
