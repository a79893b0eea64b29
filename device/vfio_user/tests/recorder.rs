//! A backend that keeps what it was told, for the tests to look at.

use super::super::backend::{Backend, DmaMap, DmaUnmap, IrqAction, IrqRequest};
use super::super::device_tables::{pci_irqs, pci_regions};
use rustix::io::Errno;
use vfio_bindings::bindings::vfio::{VFIO_IRQ_INFO_MASKABLE, VFIO_REGION_INFO_FLAG_READ};
use vfio_user::{IrqInfo, ServerRegion};
use vmm_sys_util::eventfd::EventFd;

pub const BAR0_BYTES: u64 = 64 << 10;
pub const BAR2_BYTES: u64 = 4 << 20;
pub const MSIX_VECTORS: u32 = 64;
/// A BAR that can be read and not written.
pub const READ_ONLY_BAR: u32 = 5;
/// The interrupt index that is maskable in these tests, with two interrupts.
pub const MASKABLE_IRQ: u32 = 1;

/// One callback, reduced to what can be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    Read { region: u32, offset: u64, length: usize },
    Write { region: u32, offset: u64, data: Vec<u8> },
    Map { iova: u64, size_bytes: u64, permissions: u32, file_offset: Option<u64> },
    Unmap(DmaUnmap),
    Reset,
    DisableAll { index: u32 },
    Assign { index: u32, action: IrqAction, start: u32, count: usize },
    Deassign { index: u32, action: IrqAction, start: u32, count: u32 },
    Perform { index: u32, action: IrqAction, start: u32, count: u32, selected: Option<Vec<u8>> },
    Answered { id: u64, answer: Result<Vec<u8>, Errno> },
    Disconnected,
}

pub struct Recorder {
    pub regions: Vec<ServerRegion>,
    pub irqs: Vec<IrqInfo>,
    pub calls: Vec<Call>,
    pub eventfds: Vec<EventFd>,
    pub files: Vec<std::os::fd::OwnedFd>,
    /// What the next callbacks that can fail return.
    pub fails_with: Option<Errno>,
    /// Reads return this byte, plus the offset.
    pub fill: u8,
}

impl Recorder {
    pub fn new() -> Self {
        let mut regions = pci_regions([BAR0_BYTES, 0, BAR2_BYTES, 0, 4096, 4096], 4096);
        regions[READ_ONLY_BAR as usize].region_info.flags = VFIO_REGION_INFO_FLAG_READ;
        let mut irqs = pci_irqs(2, MSIX_VECTORS);
        irqs[MASKABLE_IRQ as usize].flags |= VFIO_IRQ_INFO_MASKABLE;
        Self { regions, irqs, calls: vec![], eventfds: vec![], files: vec![], fails_with: None, fill: 0x40 }
    }

    pub fn take(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.calls)
    }

    fn note(&mut self, call: Call) -> Result<(), Errno> {
        self.calls.push(call);
        self.fails_with.map_or(Ok(()), Err)
    }
}

impl Backend for Recorder {
    fn regions(&self) -> &[ServerRegion] {
        &self.regions
    }

    fn irqs(&self) -> &[IrqInfo] {
        &self.irqs
    }

    fn region_read(&mut self, region: u32, offset: u64, into: &mut [u8]) -> Result<(), Errno> {
        assert!(into.iter().all(|&byte| byte == 0), "the buffer holds older bytes");
        for (at, byte) in into.iter_mut().enumerate() {
            *byte = self.fill.wrapping_add(offset as u8).wrapping_add(at as u8);
        }
        self.note(Call::Read { region, offset, length: into.len() })
    }

    fn region_write(&mut self, region: u32, offset: u64, from: &[u8]) -> Result<(), Errno> {
        self.note(Call::Write { region, offset, data: from.to_vec() })
    }

    fn dma_map(&mut self, map: DmaMap) -> Result<(), Errno> {
        let DmaMap { iova, size_bytes, permissions, file } = map;
        let file_offset = file.as_ref().map(|(_, offset)| *offset);
        self.files.extend(file.map(|(fd, _)| fd));
        self.note(Call::Map { iova, size_bytes, permissions: permissions.bits(), file_offset })
    }

    fn dma_unmap(&mut self, unmap: DmaUnmap) -> Result<(), Errno> {
        self.note(Call::Unmap(unmap))
    }

    fn reset(&mut self) -> Result<(), Errno> {
        self.note(Call::Reset)
    }

    fn set_irqs(&mut self, index: u32, request: IrqRequest<'_>) -> Result<(), Errno> {
        let call = match request {
            IrqRequest::DisableAll => Call::DisableAll { index },
            IrqRequest::Assign { action, start, eventfds } => {
                let count = eventfds.len();
                self.eventfds.extend(eventfds);
                Call::Assign { index, action, start, count }
            }
            IrqRequest::Deassign { action, start, count } => Call::Deassign { index, action, start, count },
            IrqRequest::Perform { action, start, count, selected } => {
                Call::Perform { index, action, start, count, selected: selected.map(<[u8]>::to_vec) }
            }
        };
        self.note(call)
    }

    fn dma_answered(&mut self, id: u64, answer: Result<&[u8], Errno>) {
        self.calls.push(Call::Answered { id, answer: answer.map(<[u8]>::to_vec) });
    }

    fn disconnected(&mut self) {
        self.calls.push(Call::Disconnected);
    }
}
