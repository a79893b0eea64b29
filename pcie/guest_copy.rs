//! Copies between a buffer of the device and memory that the guest writes at the same time.
//!
//! Every access is volatile, in ascending order, in pieces that never tear a naturally aligned word of up to 8
//! bytes. The last aligned word of a write is stored with release: whoever sees it sees the bytes before it. A read
//! ends with an acquire fence, so that it is not overtaken by what is read after it.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};
use vm_memory::VolatileSlice;

/// The widest piece. Two aligned words of 8 bytes on x86-64, whose 16-byte moves do not tear them.
#[cfg(target_arch = "x86_64")]
type Block = std::arch::x86_64::__m128i;
#[cfg(not(target_arch = "x86_64"))]
type Block = u64;

const BLOCK_BYTES: usize = size_of::<Block>();
const UNROLL: usize = 4;

/// Copies guest memory into `into`; as many bytes as both hold.
#[inline]
pub(crate) fn read(from: &VolatileSlice<'_>, into: &mut [u8]) {
    let guard = from.ptr_guard();
    let length = guard.len().min(into.len());
    // SAFETY: the guard keeps `length` bytes of guest memory mapped, and `into` has as many.
    unsafe { copy_ascending::<true>(guard.as_ptr(), into.as_mut_ptr(), length, guard.as_ptr() as usize) };
    fence(Ordering::Acquire);
}

/// Copies `from` to guest memory, the last aligned word last; as many bytes as both hold.
#[inline]
pub(crate) fn write(from: &[u8], into: &VolatileSlice<'_>) {
    let guard = into.ptr_guard_mut();
    let length = guard.len().min(from.len());
    if length == 0 {
        return;
    }
    let last = last_word_bytes(guard.as_ptr() as usize + length, length);
    let before = length - last;
    // SAFETY: the guard keeps `length` bytes of guest memory mapped, and `from` has as many; `before` is less. The
    // last word lies at a multiple of its size, inside both.
    unsafe {
        copy_ascending::<false>(from.as_ptr(), guard.as_ptr(), before, guard.as_ptr() as usize);
        store_release(from.as_ptr().add(before), guard.as_ptr().add(before), last);
    }
}

/// The size of the largest word that ends at `end`, is aligned there and is not longer than `length`.
fn last_word_bytes(end: usize, length: usize) -> usize {
    let alignment = 1usize << end.trailing_zeros().min(3);
    let longest = 1usize << length.ilog2().min(3);
    alignment.min(longest)
}

/// # Safety
/// `from` is readable and `into` writable for `bytes` (1, 2, 4 or 8) bytes, and `into` is a multiple of `bytes`.
#[inline]
unsafe fn store_release(from: *const u8, into: *mut u8, bytes: usize) {
    // SAFETY: as the caller promises; guest memory is only ever touched through volatile and atomic accesses.
    unsafe {
        match bytes {
            8 => (*into.cast::<AtomicU64>()).store(from.cast::<u64>().read_unaligned(), Ordering::Release),
            4 => (*into.cast::<AtomicU32>()).store(from.cast::<u32>().read_unaligned(), Ordering::Release),
            2 => (*into.cast::<AtomicU16>()).store(from.cast::<u16>().read_unaligned(), Ordering::Release),
            _ => (*into.cast::<AtomicU8>()).store(from.read(), Ordering::Release),
        }
    }
}

/// Copies in ascending order; `guest` is the address on the guest's side, which decides the alignment of pieces.
///
/// # Safety
/// `from` is readable and `into` writable for `length` bytes.
#[inline]
unsafe fn copy_ascending<const FROM_GUEST: bool>(from: *const u8, into: *mut u8, length: usize, guest: usize) {
    let mut done = 0;
    // Words up to the first multiple of a block.
    while done < length && !(guest + done).is_multiple_of(BLOCK_BYTES) {
        let word = (1usize << (guest + done).trailing_zeros().min(3)).min(1 << (length - done).ilog2().min(3));
        // SAFETY: `done + word <= length`.
        unsafe { copy_word(from.add(done), into.add(done), word) };
        done += word;
    }
    while length - done >= UNROLL * BLOCK_BYTES {
        for step in 0..UNROLL {
            // SAFETY: `done + UNROLL * BLOCK_BYTES <= length`.
            unsafe {
                copy_block::<FROM_GUEST>(from.add(done + step * BLOCK_BYTES), into.add(done + step * BLOCK_BYTES))
            };
        }
        done += UNROLL * BLOCK_BYTES;
    }
    while length - done >= BLOCK_BYTES {
        // SAFETY: `done + BLOCK_BYTES <= length`.
        unsafe { copy_block::<FROM_GUEST>(from.add(done), into.add(done)) };
        done += BLOCK_BYTES;
    }
    while done < length {
        let word = 1usize << (length - done).ilog2().min(3);
        // SAFETY: `done + word <= length`.
        unsafe { copy_word(from.add(done), into.add(done), word) };
        done += word;
    }
}

/// One block: the guest's side is aligned, the device's need not be.
///
/// # Safety
/// `from` is readable and `into` writable for a block; the guest's side is a multiple of a block.
#[inline(always)]
unsafe fn copy_block<const FROM_GUEST: bool>(from: *const u8, into: *mut u8) {
    // SAFETY: as the caller promises.
    unsafe {
        if FROM_GUEST {
            into.cast::<Block>().write_unaligned(from.cast::<Block>().read_volatile());
        } else {
            into.cast::<Block>().write_volatile(from.cast::<Block>().read_unaligned());
        }
    }
}

#[repr(C, packed)]
struct Unaligned<T>(T);

/// One word by volatile accesses; the side of the guest is a multiple of it, so that it does not tear.
///
/// # Safety
/// `from` is readable and `into` writable for `bytes` (1, 2, 4 or 8) bytes.
#[inline]
unsafe fn copy_word(from: *const u8, into: *mut u8, bytes: usize) {
    // SAFETY: as the caller promises; the packed type asks for no alignment.
    unsafe {
        match bytes {
            8 => into.cast::<Unaligned<u64>>().write_volatile(from.cast::<Unaligned<u64>>().read_volatile()),
            4 => into.cast::<Unaligned<u32>>().write_volatile(from.cast::<Unaligned<u32>>().read_volatile()),
            2 => into.cast::<Unaligned<u16>>().write_volatile(from.cast::<Unaligned<u16>>().read_volatile()),
            _ => into.write_volatile(from.read_volatile()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vm_memory::{MmapRegion, VolatileMemory};

    #[test]
    fn every_offset_and_length_copies_exactly() {
        let source: Vec<u8> = (0..=255).cycle().take(400).collect();
        for offset in 0..20 {
            for length in (0..150).chain([300, 333]) {
                let mut guest = vec![0xa5u8; 400];
                let slice = VolatileSlice::from(guest.as_mut_slice());
                write(&source[3..3 + length], &slice.subslice(offset, length).unwrap());
                let mut back = vec![0u8; length];
                read(&slice.subslice(offset, length).unwrap(), &mut back);
                assert_eq!(back, &source[3..3 + length]);
                assert_eq!(&guest[offset..offset + length], &source[3..3 + length]);
                assert!(guest[..offset].iter().chain(&guest[offset + length..]).all(|&byte| byte == 0xa5));
            }
        }
    }

    #[test]
    fn the_last_word_is_the_largest_aligned_one() {
        assert_eq!(last_word_bytes(0x1040, 64), 8);
        assert_eq!(last_word_bytes(0x1040, 7), 4);
        assert_eq!(last_word_bytes(0x1044, 64), 4);
        assert_eq!(last_word_bytes(0x1042, 64), 2);
        assert_eq!(last_word_bytes(0x1041, 64), 1);
        assert_eq!(last_word_bytes(0x1040, 1), 1);
    }

    #[test]
    fn whoever_sees_the_last_word_sees_the_rest() {
        let memory = MmapRegion::<()>::new(8192).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let reader = memory.get_slice(0, 4104).unwrap();
                let mut last = [0; 8];
                let mut rest = [0; 4096];
                loop {
                    read(&reader.subslice(4096, 8).unwrap(), &mut last);
                    read(&reader.subslice(0, 4096).unwrap(), &mut rest);
                    let oldest = rest.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).min();
                    assert!(oldest >= Some(u64::from_le_bytes(last)), "{oldest:?} behind {last:?}");
                    if u64::from_le_bytes(last) == 20_000 {
                        break;
                    }
                }
            });
            for round in 1..=20_000u64 {
                let from: Vec<u8> = round.to_le_bytes().repeat(513);
                write(&from, &memory.get_slice(0, 4104).unwrap());
            }
        });
    }
}
