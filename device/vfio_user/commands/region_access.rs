//! REGION_READ and REGION_WRITE: the guest's loads and stores. A posted write is the hot path of the connection.

use super::super::backend::Backend;
use super::super::message::{Command, MAX_DATA_BYTES, RegionAccess};
use super::super::reply::Reply;
use super::{beginning, exactly};
use rustix::io::Errno;
use vfio_bindings::bindings::vfio::{VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE};

pub fn read(body: &[u8], backend: &mut dyn Backend, reply: &mut Reply) -> Result<(), Errno> {
    let access: RegionAccess = exactly(body)?;
    check(&access, VFIO_REGION_INFO_FLAG_READ, backend)?;
    reply.put(&access);
    backend.region_read(access.region, access.offset, reply.space(access.count as usize))
}

pub fn write(body: &[u8], backend: &mut dyn Backend, reply: &mut Reply) -> Result<(), Errno> {
    let (access, data): (RegionAccess, &[u8]) = beginning(body)?;
    if data.len() != access.count as usize {
        return Err(Errno::INVAL);
    }
    perform_write(&access, data, backend)?;
    reply.put(&access);
    Ok(())
}

/// What a request that was refused wanted, for the log.
pub fn place(command: Command, body: &[u8]) -> Option<String> {
    let is_access = command == Command::REGION_READ || command == Command::REGION_WRITE;
    let (access, _): (RegionAccess, &[u8]) = beginning(body).ok().filter(|_| is_access)?;
    let RegionAccess { offset, region, count } = access;
    Some(format!("region {region}, offset {offset:#x}, {count} bytes"))
}

/// Checks one write and hands it to the backend. `data` is of the length the access says.
pub fn perform_write(access: &RegionAccess, data: &[u8], backend: &mut dyn Backend) -> Result<(), Errno> {
    check(access, VFIO_REGION_INFO_FLAG_WRITE, backend)?;
    backend.region_write(access.region, access.offset, data)
}

/// The access is inside a region that allows it.
fn check(access: &RegionAccess, allowed: u32, backend: &dyn Backend) -> Result<(), Errno> {
    let info = &backend.regions().get(access.region as usize).ok_or(Errno::INVAL)?.region_info;
    let end = access.offset.checked_add(access.count.into());
    let inside = end.is_some_and(|end| end <= info.size);
    let count_is_valid = (1..=MAX_DATA_BYTES).contains(&(access.count as usize));
    if inside && count_is_valid && info.flags & allowed != 0 { Ok(()) } else { Err(Errno::INVAL) }
}
