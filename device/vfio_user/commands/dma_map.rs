//! DMA_MAP: a piece of guest memory becomes reachable, by its file where the client has one.

use super::super::backend::DmaMap;
use super::super::message;
use super::super::passed_fds::MessageFds;
use super::{argsz_holds, exactly, range_is_valid};
use rustix::io::Errno;
use vfio_user::DmaMapFlags;

/// Reads and checks the request. A file offset that no file can have is refused here.
pub fn understood(body: &[u8], passed: MessageFds) -> Result<DmaMap, Errno> {
    let map: message::DmaMap = exactly(body)?;
    argsz_holds::<message::DmaMap>(map.argsz)?;
    range_is_valid(map.address, map.size)?;
    let permissions = DmaMapFlags::from_bits_retain(map.flags);
    if map.flags == 0 || map.flags & !DmaMapFlags::READ_WRITE.bits() != 0 {
        return Err(Errno::INVAL);
    }
    if passed.too_many || passed.fds.len() > 1 {
        return Err(Errno::INVAL);
    }
    let file = passed.fds.into_iter().next().map(|fd| (fd, map.offset));
    let end = map.offset.checked_add(map.size);
    if file.is_some() && end.is_none_or(|end| i64::try_from(end).is_err()) {
        return Err(Errno::INVAL);
    }
    Ok(DmaMap { iova: map.address, size_bytes: map.size, permissions, file })
}
