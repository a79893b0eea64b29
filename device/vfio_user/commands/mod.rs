//! One file per command family. In comes the request's body (whole, of any length) and the backend; out comes the
//! reply's body, or the errno of an error reply. Whether and how the reply is sent is `dispatch`'s.

pub mod device_info;
pub mod dma_map;
pub mod dma_unmap;
pub mod irq_info;
pub mod region_access;
pub mod region_info;
pub mod set_irqs;
pub mod write_multi;

use rustix::io::Errno;
use zerocopy::FromBytes;

/// A body that is exactly this struct.
fn exactly<T: FromBytes>(body: &[u8]) -> Result<T, Errno> {
    T::read_from_bytes(body).map_err(|_| Errno::INVAL)
}

/// A body that begins with this struct, and what follows it.
fn beginning<T: FromBytes>(body: &[u8]) -> Result<(T, &[u8]), Errno> {
    T::read_from_prefix(body).map_err(|_| Errno::INVAL)
}

/// The client's `argsz` must hold at least the fixed part of the struct.
fn argsz_holds<T>(argsz: u32) -> Result<(), Errno> {
    if (argsz as usize) < size_of::<T>() { Err(Errno::INVAL) } else { Ok(()) }
}

/// A range of addresses that is not empty and does not wrap; it may end at the very end of the space.
fn range_is_valid(address: u64, size_bytes: u64) -> Result<(), Errno> {
    let last = size_bytes.checked_sub(1).and_then(|more| address.checked_add(more));
    last.map(drop).ok_or(Errno::INVAL)
}
