//! Accesses and allocation of mapped DMA memory.

use super::*;
use rustix::fs::MemfdFlags;

fn memory(iovas: &[u64], length: usize) -> MappedMemory {
    let pieces = iovas.iter().map(|iova| {
        let file = rustix::fs::memfd_create("rnic-test", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, length as u64).unwrap();
        (*iova, Mapping::of_file(&file, 0, length).unwrap())
    });
    MappedMemory::from_pieces(pieces.collect())
}

#[test]
fn copies_keep_every_byte_at_every_alignment() {
    let memory = memory(&[0x1000], 4096);
    for offset in 0..9u64 {
        for length in 0..40usize {
            let bytes: Vec<u8> = (0..length).map(|i| (i * 7 + offset as usize) as u8).collect();
            memory.copy_in(0x1000, &[0xa5; 64]).unwrap();
            memory.copy_in(0x1000 + offset, &bytes).unwrap();
            let mut all = [0; 64];
            memory.copy_out(0x1000, &mut all).unwrap();
            let mut expected = [0xa5; 64];
            expected[offset as usize..offset as usize + length].copy_from_slice(&bytes);
            assert_eq!(all, expected, "offset {offset} length {length}");
            let mut back = vec![0; length];
            memory.copy_out(0x1000 + offset, &mut back).unwrap();
            assert_eq!(back, bytes);
        }
    }
}

#[test]
fn neighbouring_pieces_form_one_run_and_gaps_do_not() {
    let mut memory = memory(&[0x3000, 0x1000, 0x2000, 0x8000], 4096);
    let buffer = memory.allocate(0x3000, 4096).unwrap();
    assert_eq!(buffer.iova, 0x1000);
    memory.copy_in(0x1ffc, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    assert_eq!(memory.load32(0x2000).unwrap(), 0x0807_0605);
    assert!(matches!(memory.allocate(0x2000, 4096), Err(BackingError::OutOfMemory { largest_bytes: 0x1000, .. })));
    assert!(matches!(memory.copy_in(0x3ffc, &[1; 8]), Err(BackingError::NotDmaMemory { .. })));
    assert_eq!(memory.load32(0x3ffc).unwrap(), 0, "nothing of a refused copy is done");
    assert!(matches!(memory.load64(0x1004), Err(BackingError::Unaligned { .. })));
    assert!(matches!(memory.load32(u64::MAX - 3), Err(BackingError::NotDmaMemory { .. })));
}

#[test]
fn released_memory_comes_back_zeroed() {
    let mut memory = memory(&[0], 4096);
    let buffer = memory.allocate(100, 64).unwrap();
    memory.copy_in(buffer.iova, &[0xff; 100]).unwrap();
    memory.release(buffer);
    let whole = memory.allocate(4096, 4096).unwrap();
    let mut bytes = [1; 100];
    memory.copy_out(whole.iova, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 100]);
}

#[test]
fn extents_never_hand_out_a_byte_twice() {
    use proptest::prelude::*;
    let steps = proptest::collection::vec((1u64..5000, 0u32..13, any::<bool>()), 1..60);
    proptest!(|(steps in steps)| {
        let mut extents = Extents::default();
        extents.give(0x10_0000, 1 << 16);
        let mut taken: Vec<(u64, u64)> = Vec::new();
        for (length, log_align, give) in steps {
            if give && !taken.is_empty() {
                let (start, length) = taken.remove(length as usize % taken.len());
                extents.give(start, length);
            } else if let Ok(start) = extents.take(length, 1 << log_align) {
                prop_assert_eq!(start % (1 << log_align), 0);
                prop_assert!(start >= 0x10_0000 && start + length <= 0x11_0000);
                prop_assert!(taken.iter().all(|(s, l)| start + length <= *s || s + l <= start));
                taken.push((start, length));
            }
            let used: u64 = taken.iter().map(|(_, length)| length).sum();
            prop_assert_eq!(extents.free_bytes() + used, 1 << 16);
        }
    });
}
