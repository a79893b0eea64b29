use super::*;

const LINE: u64 = 0x1800;
const OTHER_LINE: u64 = 0x1840;

fn combiner() -> WriteCombiner {
    WriteCombiner::new(LineOffsets::new(4096, &[0x800, 0x840]), 1000)
}

fn store(slot: usize) -> [u8; 8] {
    [slot as u8 + 1; 8]
}

/// Pushes the slots of a line in this order; (offset, length, torn) of all that comes out.
fn push_slots(combiner: &mut WriteCombiner, line: u64, slots: &[usize]) -> Vec<(u64, usize, bool)> {
    slots.iter().flat_map(|&slot| summary(&combiner.push(line + slot as u64 * 8, &store(slot), 5).unwrap())).collect()
}

fn summary(writes: &Writes) -> Vec<(u64, usize, bool)> {
    writes.iter().map(|write| (write.offset, write.data.len(), write.torn)).collect()
}

#[test]
fn eight_stores_in_order_are_one_line() {
    let mut combiner = combiner();
    assert!(push_slots(&mut combiner, LINE, &[0, 1, 2, 3, 4, 5, 6]).is_empty());
    let writes = combiner.push(LINE + 56, &store(7), 9).unwrap();
    assert_eq!(summary(&writes), [(LINE, 64, false)]);
    assert_eq!(writes[0].observed, Observed { messages: 8, bytes: 64 });
    assert_eq!(writes[0].data.as_slice(), (0..8).flat_map(store).collect::<Vec<_>>());
    assert_eq!(combiner.deadline_ns(), None);
}

#[test]
fn one_store_of_64_bytes_is_a_line_too() {
    let writes = combiner().push(LINE, &[7; 64], 0).unwrap();
    assert_eq!(summary(&writes), [(LINE, 64, false)]);
    assert_eq!(writes[0].observed, Observed { messages: 1, bytes: 64 });
}

#[test]
fn a_foreign_store_tears_the_line_and_follows_it() {
    let mut combiner = combiner();
    push_slots(&mut combiner, LINE, &[0, 1]);
    let writes = combiner.push(0x1000, &[9; 8], 6).unwrap();
    assert_eq!(summary(&writes), [(LINE, 8, true), (LINE + 8, 8, true), (0x1000, 8, false)]);
}

#[test]
fn a_gap_or_a_step_back_tears_the_line() {
    let mut gap = combiner();
    assert_eq!(push_slots(&mut gap, LINE, &[0, 2]), [(LINE, 8, true), (LINE + 16, 8, true)]);
    let mut back = combiner();
    assert_eq!(push_slots(&mut back, LINE, &[0, 1, 0]), [(LINE, 8, true), (LINE + 8, 8, true)]);
    // The step back to slot 0 has opened the line anew.
    assert_eq!(push_slots(&mut back, LINE, &[1, 2, 3, 4, 5, 6, 7]), [(LINE, 64, false)]);
}

#[test]
fn another_line_takes_the_place_of_the_open_one() {
    let mut combiner = combiner();
    push_slots(&mut combiner, LINE, &[0]);
    assert_eq!(push_slots(&mut combiner, OTHER_LINE, &[0]), [(LINE, 8, true)]);
    assert_eq!(push_slots(&mut combiner, OTHER_LINE, &[1, 2, 3, 4, 5, 6, 7]), [(OTHER_LINE, 64, false)]);
}

#[test]
fn seven_held_stores_and_a_foreign_one_fit() {
    let mut combiner = combiner();
    push_slots(&mut combiner, LINE, &[0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(combiner.push(0, &[1; 64], 0).unwrap().len(), 8);
}

#[test]
fn parts_of_lines_and_odd_sizes_pass_through() {
    let mut combiner = combiner();
    assert_eq!(summary(&combiner.push(LINE + 8, &[1; 8], 0).unwrap()), [(LINE + 8, 8, true)]);
    assert_eq!(summary(&combiner.push(LINE, &[1; 4], 0).unwrap()), [(LINE, 4, true)]);
    assert_eq!(summary(&combiner.push(0x1003, &[1; 3], 0).unwrap()), [(0x1003, 3, false)]);
    assert_eq!(summary(&combiner.push(LINE, &[], 0).unwrap()), []);
    assert_eq!(combiner.push(8, &[0; 65], 0), Err(StoreTooLong { offset: 8, length_bytes: 65 }));
}

#[test]
fn a_read_and_a_silence_flush() {
    let mut combiner = combiner();
    push_slots(&mut combiner, LINE, &[0, 1]);
    assert_eq!(combiner.deadline_ns(), Some(1005));
    assert!(combiner.expire(1004).is_empty());
    assert_eq!(summary(&combiner.expire(1005)), [(LINE, 8, true), (LINE + 8, 8, true)]);
    assert_eq!(combiner.deadline_ns(), None);

    push_slots(&mut combiner, LINE, &[0]);
    assert_eq!(summary(&combiner.flush()), [(LINE, 8, true)]);
    push_slots(&mut combiner, LINE, &[0]);
    combiner.discard();
    assert!(combiner.flush().is_empty());
}

#[test]
fn long_accesses_are_cut_at_lines() {
    let access: Vec<u8> = (0..200).collect();
    let cut: Vec<_> = pieces(0x7f0, &access).map(|(offset, piece)| (offset, piece.len())).collect();
    assert_eq!(cut, [(0x7f0, 16), (0x800, 64), (0x840, 64), (0x880, 56)]);
    assert_eq!(pieces(0x7f0, &access).flat_map(|(_, piece)| piece.to_vec()).collect::<Vec<_>>(), access);
}
