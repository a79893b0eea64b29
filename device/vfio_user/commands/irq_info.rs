//! DEVICE_GET_IRQ_INFO: how many interrupts an index has and what can be done with them.

use super::super::backend::Backend;
use super::super::message::IrqInfoMessage;
use super::super::reply::Reply;
use super::{argsz_holds, exactly};
use rustix::io::Errno;

pub fn get(body: &[u8], backend: &dyn Backend, reply: &mut Reply) -> Result<(), Errno> {
    let asked: IrqInfoMessage = exactly(body)?;
    argsz_holds::<IrqInfoMessage>(asked.argsz)?;
    let irq = backend.irqs().get(asked.index as usize).ok_or(Errno::INVAL)?;
    reply.put(&IrqInfoMessage {
        argsz: size_of::<IrqInfoMessage>() as u32,
        flags: irq.flags,
        index: asked.index,
        count: irq.count,
    });
    Ok(())
}
