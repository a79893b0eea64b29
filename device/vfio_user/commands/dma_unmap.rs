//! DMA_UNMAP: guest memory stops being reachable before the answer leaves.

use super::super::backend::{Backend, DmaUnmap};
use super::super::dma_message::DmaMessages;
use super::super::message::{self, dma_unmap_flags};
use super::super::reply::Reply;
use super::{argsz_holds, beginning, range_is_valid};
use rustix::io::Errno;

pub fn unmap(
    body: &[u8],
    in_flight: &mut DmaMessages,
    backend: &mut dyn Backend,
    reply: &mut Reply,
) -> Result<(), Errno> {
    let (asked, rest): (message::DmaUnmap, &[u8]) = beginning(body)?;
    let unmap = understood(&asked, rest)?;
    in_flight.revoke(unmap, |id| backend.dma_answered(id, Err(Errno::CANCELED)));
    backend.dma_unmap(unmap)?;
    reply.put(&asked);
    Ok(())
}

fn understood(asked: &message::DmaUnmap, rest: &[u8]) -> Result<DmaUnmap, Errno> {
    if asked.flags & dma_unmap_flags::GET_DIRTY_BITMAP != 0 {
        return Err(Errno::NOTSUP);
    }
    if !rest.is_empty() || asked.flags & !dma_unmap_flags::UNMAP_ALL != 0 {
        return Err(Errno::INVAL);
    }
    argsz_holds::<message::DmaUnmap>(asked.argsz)?;
    if asked.flags & dma_unmap_flags::UNMAP_ALL != 0 {
        return if asked.address == 0 && asked.size == 0 { Ok(DmaUnmap::All) } else { Err(Errno::INVAL) };
    }
    range_is_valid(asked.address, asked.size)?;
    Ok(DmaUnmap::Range { iova: asked.address, size_bytes: asked.size })
}
