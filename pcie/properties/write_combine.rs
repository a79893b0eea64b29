//! Whatever is stored comes out, byte for byte and in order; a whole line only where eight stores were in a row.

use super::Input;
use crate::write_combine::{LINE_BYTES, LineOffsets, LogicalWrite, WriteCombiner};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

const LINES: [u16; 2] = [0x800, 0x840];

pub(super) fn body(bytes: &[u8]) -> Result<(), TestCaseError> {
    let mut input = Input(bytes);
    let mut combiner = WriteCombiner::new(LineOffsets::new(4096, &LINES), 100);
    let (mut pushed, mut came_out) = (Vec::new(), Vec::new());
    let mut stamp = 0u8;
    let mut now_ns = 0;
    let (mut stores_in, mut messages_out) = (0u32, 0u32);
    let mut next_slot = 0;
    while !input.is_empty() {
        let kind = input.byte();
        now_ns += u64::from(kind >> 5);
        let writes = match kind & 15 {
            0 => combiner.flush(),
            1 => combiner.expire(now_ns),
            _ => {
                // Mostly the next slot in a row, so that lines come to be.
                let line = u64::from(LINES[usize::from(kind >> 7)]);
                let (offset, length) = match kind & 15 {
                    2 => (u64::from(input.word()) % 0x2000, usize::from(input.byte()) % (LINE_BYTES + 1)),
                    3 => (line, LINE_BYTES),
                    4 => (line + u64::from(input.byte() % 64), usize::from(input.byte() % 9)),
                    5 => (line + u64::from(input.byte() % 8) * 8, 8),
                    6 => (line, 8),
                    _ => (line + next_slot * 8, 8),
                };
                next_slot = if length == 8 { (offset % 64 / 8 + 1) % 8 } else { 0 };
                let store: Vec<u8> = (0..length)
                    .map(|_| {
                        stamp = stamp.wrapping_add(1);
                        stamp
                    })
                    .collect();
                pushed.extend((offset..).zip(store.iter().copied()));
                stores_in += u32::from(length > 0);
                combiner.push(offset, &store, now_ns).map_err(|error| TestCaseError::fail(error.to_string()))?
            }
        };
        take(&writes, &mut came_out, &mut messages_out)?;
        // Between stores nothing but the open line is held back.
        prop_assert!(pushed.len() - came_out.len() <= LINE_BYTES - 8);
        prop_assert_eq!(pushed.len() > came_out.len(), combiner.deadline_ns().is_some());
    }
    take(&combiner.flush(), &mut came_out, &mut messages_out)?;
    prop_assert_eq!(came_out, pushed);
    prop_assert_eq!(messages_out, stores_in);
    Ok(())
}

fn take(writes: &[LogicalWrite], into: &mut Vec<(u64, u8)>, messages: &mut u32) -> Result<(), TestCaseError> {
    for write in writes {
        let in_line = LINES.iter().any(|&line| write.offset % 4096 / 64 * 64 == u64::from(line));
        let whole = in_line && write.offset % 64 == 0 && write.data.len() == LINE_BYTES;
        prop_assert_eq!(write.torn, in_line && !whole);
        prop_assert!(write.observed.messages == 1 || (whole && write.observed.messages == 8));
        prop_assert_eq!(write.observed.bytes as usize, write.data.len());
        *messages += write.observed.messages;
        into.extend((write.offset..).zip(write.data.iter().copied()));
    }
    Ok(())
}
