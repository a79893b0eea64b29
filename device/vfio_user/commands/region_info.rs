//! DEVICE_GET_REGION_INFO: size and access of one region, and where it may be mapped, if it may.

use super::super::backend::Backend;
use super::super::message::{RegionInfo, SparseMmapArea, SparseMmapCapability};
use super::super::reply::Reply;
use super::{argsz_holds, exactly};
use rustix::io::Errno;
use vfio_bindings::bindings::vfio::{VFIO_REGION_INFO_CAP_SPARSE_MMAP, VFIO_REGION_INFO_FLAG_CAPS};
use vfio_user::{ServerRegion, SparseArea};

/// `client_takes_fds`: it has said that it can receive at least one descriptor in a message.
pub fn get(body: &[u8], backend: &dyn Backend, client_takes_fds: bool, reply: &mut Reply) -> Result<(), Errno> {
    let asked: RegionInfo = exactly(body)?;
    argsz_holds::<RegionInfo>(asked.argsz)?;
    let region = backend.regions().get(asked.index as usize).ok_or(Errno::INVAL)?;
    let areas = &region.sparse_areas;
    let full_bytes = full_reply_bytes(areas);
    reply.put(&described(region, asked.index, full_bytes));
    let whole = asked.argsz as usize >= full_bytes;
    if whole && !areas.is_empty() {
        put_areas(areas, reply);
    }
    // The descriptor travels once: with the reply that is whole.
    if let Some(fd) = region.mmap_fd.filter(|_| whole && client_takes_fds) {
        reply.attach(fd);
    }
    Ok(())
}

/// What `argsz` has to be for the whole reply. QEMU refuses a device that says less than the struct's size.
fn full_reply_bytes(areas: &[SparseArea]) -> usize {
    let capability = if areas.is_empty() { 0 } else { size_of::<SparseMmapCapability>() };
    size_of::<RegionInfo>() + capability + size_of_val(areas)
}

fn described(region: &ServerRegion, index: u32, full_bytes: usize) -> RegionInfo {
    let info = &region.region_info;
    let (flags, cap_offset) = match region.sparse_areas.is_empty() {
        true => (info.flags & !VFIO_REGION_INFO_FLAG_CAPS, 0),
        false => (info.flags | VFIO_REGION_INFO_FLAG_CAPS, size_of::<RegionInfo>() as u32),
    };
    RegionInfo { argsz: full_bytes as u32, flags, index, cap_offset, size: info.size, offset: info.offset }
}

fn put_areas(areas: &[SparseArea], reply: &mut Reply) {
    reply.put(&SparseMmapCapability {
        id: VFIO_REGION_INFO_CAP_SPARSE_MMAP as u16,
        version: 1,
        next: 0,
        nr_areas: areas.len() as u32,
        reserved: 0,
    });
    for SparseArea { area } in areas {
        reply.put(&SparseMmapArea { offset: area.offset, size: area.size });
    }
}
