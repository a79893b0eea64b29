//! Is guest RAM really shared? Compares what the client reads at an address with what the map of its file shows.
//!
//! With `share=off` QEMU passes a descriptor all the same, but writes to private copies of its pages: the map shows
//! stale bytes and DMA corrupts silently. The owner of the maps (`function/sharing`) copies bytes before and after a
//! `request_dma_read` of the same bytes and asks here.

/// What to tell the user whose RAM is not shared, or not by descriptor.
pub const SHARE_ON: &str =
    "start QEMU with `-object memory-backend-memfd,id=ram,size=...,share=on -machine memory-backend=ram`";

/// What the comparison says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// The map shows what the guest wrote.
    Shared,
    /// The map is stale, first seen at this byte. See [`SHARE_ON`].
    Stale { at_byte: usize },
    /// Nothing but zeros on both sides, or the guest wrote meanwhile: to be asked again with other bytes.
    Undecided,
}

/// `before` and `after` are the map's bytes before the read was requested and after it was answered with `answer`.
pub fn compare(before: &[u8], answer: &[u8], after: &[u8]) -> Sharing {
    if before.len() != answer.len() || after.len() != answer.len() {
        return Sharing::Undecided;
    }
    let steady = |at: usize| before.get(at) == after.get(at);
    let differs = |at: usize| answer.get(at) != before.get(at);
    match (0..answer.len()).find(|&at| steady(at) && differs(at)) {
        Some(at_byte) => Sharing::Stale { at_byte },
        None if (0..answer.len()).any(|at| steady(at) && answer.get(at) != Some(&0)) => Sharing::Shared,
        None => Sharing::Undecided,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_bytes_are_shared_and_stale_ones_are_named() {
        assert_eq!(compare(&[0, 1, 2], &[0, 1, 2], &[0, 1, 2]), Sharing::Shared);
        assert_eq!(compare(&[0, 0, 0], &[0, 7, 0], &[0, 0, 0]), Sharing::Stale { at_byte: 1 });
    }

    #[test]
    fn zeros_and_racing_writes_decide_nothing() {
        assert_eq!(compare(&[0; 8], &[0; 8], &[0; 8]), Sharing::Undecided);
        assert_eq!(compare(&[1, 0], &[2, 0], &[3, 0]), Sharing::Undecided);
        assert_eq!(compare(&[1], &[1, 1], &[1]), Sharing::Undecided);
        // A write that raced with the read beside bytes that stood still.
        assert_eq!(compare(&[1, 5], &[2, 5], &[3, 5]), Sharing::Shared);
    }
}
