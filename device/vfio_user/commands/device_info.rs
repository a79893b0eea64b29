//! DEVICE_GET_INFO: what kind of device it is, how many regions and interrupt indices it has.

use super::super::backend::Backend;
use super::super::message::DeviceInfo;
use super::super::reply::Reply;
use super::{argsz_holds, exactly};
use rustix::io::Errno;
use vfio_bindings::bindings::vfio::{VFIO_DEVICE_FLAGS_PCI, VFIO_DEVICE_FLAGS_RESET};

pub fn get(body: &[u8], backend: &dyn Backend, reply: &mut Reply) -> Result<(), Errno> {
    let asked: DeviceInfo = exactly(body)?;
    argsz_holds::<DeviceInfo>(asked.argsz)?;
    reply.put(&DeviceInfo {
        argsz: size_of::<DeviceInfo>() as u32,
        flags: VFIO_DEVICE_FLAGS_PCI | VFIO_DEVICE_FLAGS_RESET,
        num_regions: backend.regions().len() as u32,
        num_irqs: backend.irqs().len() as u32,
    });
    Ok(())
}
