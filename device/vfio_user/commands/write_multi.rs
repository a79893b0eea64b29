//! REGION_WRITE_MULTI: many small writes in one message, which QEMU sends when its queue is long.

use super::super::backend::Backend;
use super::super::message::{MultiWrite, WriteMulti};
use super::super::reply::Reply;
use super::{beginning, region_access};
use rustix::io::Errno;
use zerocopy::FromBytes;

/// Performs the writes in order. Each stands for itself, as if it had come alone: one that is refused does not keep
/// the others from being made, and the first refusal is the answer.
pub fn write(body: &[u8], backend: &mut dyn Backend, reply: &mut Reply) -> Result<(), Errno> {
    let (multi, rest): (WriteMulti, &[u8]) = beginning(body)?;
    let expected = multi.write_count.checked_mul(size_of::<MultiWrite>() as u64);
    if expected != Some(rest.len() as u64) {
        return Err(Errno::INVAL);
    }
    let mut outcome = Ok(());
    for bytes in rest.chunks_exact(size_of::<MultiWrite>()) {
        outcome = outcome.and(one(bytes, backend));
    }
    outcome?;
    reply.put(&multi);
    Ok(())
}

/// How many writes a body holds, for the budget of the caller.
pub fn cost(body: &[u8]) -> u32 {
    (body.len() / size_of::<MultiWrite>()).max(1) as u32
}

fn one(bytes: &[u8], backend: &mut dyn Backend) -> Result<(), Errno> {
    let write = MultiWrite::read_from_bytes(bytes).map_err(|_| Errno::INVAL)?;
    let data = write.data.get(..write.access.count as usize).ok_or(Errno::INVAL)?;
    region_access::perform_write(&write.access, data, backend)
}
