//! The few words of configuration space a driver sets itself: command, BARs, Device Control, MSI-X.
//!
//! In: a [`ConfigSpace`]. Out: capabilities found by walking their list, with a bound on its length.

use crate::backing::{Backing, BackingError, DmaBuffer, Result};

pub const VENDOR_ID: u16 = 0x00;
pub const COMMAND: u16 = 0x04;
pub const BAR_0: u16 = 0x10;
const CAPABILITIES: u16 = 0x34;
pub const CAPABILITY_MSIX: u8 = 0x11;
pub const CAPABILITY_EXPRESS: u8 = 0x10;
pub const COMMAND_MEMORY: u16 = 1 << 1;
pub const COMMAND_BUS_MASTER: u16 = 1 << 2;
/// INTx off: this device has none.
pub const COMMAND_INTX_DISABLE: u16 = 1 << 10;
const MSIX_ENABLE: u16 = 1 << 15;
const MSIX_FUNCTION_MASK: u16 = 1 << 14;
/// A capability list has at most this many entries in 256 bytes.
const MOST_CAPABILITIES: usize = 48;

/// Access to one function's configuration space.
pub trait ConfigSpace {
    fn read_config32(&mut self, offset: u16) -> Result<u32>;
    fn write_config32(&mut self, offset: u16, value: u32) -> Result<()>;
    fn write_config16(&mut self, offset: u16, value: u16) -> Result<()>;

    /// Half a word.
    fn read_config16(&mut self, offset: u16) -> Result<u16> {
        Ok((self.read_config32(offset & !3)? >> (8 * (offset & 2))) as u16)
    }

    /// Offset of a capability.
    fn capability(&mut self, id: u8) -> Result<u16> {
        let mut at = (self.read_config32(CAPABILITIES)? & 0xfc) as u16;
        for _ in 0..MOST_CAPABILITIES {
            if at < 0x40 {
                break;
            }
            let head = self.read_config32(at)?;
            if head as u8 == id {
                return Ok(at);
            }
            at = (head >> 8 & 0xfc) as u16;
        }
        Err(BackingError::Missing { what: format!("capability {id:#04x}") })
    }

    /// Switches memory decoding and bus mastering on.
    fn enable_memory_and_bus_master(&mut self) -> Result<()> {
        let command = self.read_config16(COMMAND)?;
        self.write_config16(COMMAND, command | COMMAND_MEMORY | COMMAND_BUS_MASTER | COMMAND_INTX_DISABLE)
    }

    /// Sets the largest payload and read request in Device Control; both are powers of two from 128 to 4096.
    fn set_payload_sizes(&mut self, max_payload_bytes: u32, max_read_request_bytes: u32) -> Result<()> {
        let at = self.capability(CAPABILITY_EXPRESS)? + 8;
        let code = |bytes: u32| (bytes.max(128).ilog2() - 7).min(5) as u16;
        let control = self.read_config16(at)? & !0x70e0;
        self.write_config16(at, control | code(max_payload_bytes) << 5 | code(max_read_request_bytes) << 12)
    }

    /// Number of MSI-X vectors, and the table's BAR and offset.
    fn msix_table(&mut self) -> Result<MsixTable> {
        let at = self.capability(CAPABILITY_MSIX)?;
        let table = self.read_config32(at + 4)?;
        let vectors = (self.read_config16(at + 2)? & 0x7ff) + 1;
        Ok(MsixTable { vectors, bar: (table & 7) as u8, offset: u64::from(table & !7) })
    }

    fn enable_msix(&mut self) -> Result<()> {
        let at = self.capability(CAPABILITY_MSIX)? + 2;
        let control = self.read_config16(at)?;
        self.write_config16(at, control & !MSIX_FUNCTION_MASK | MSIX_ENABLE)
    }
}

/// Where a function keeps its MSI-X table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsixTable {
    pub vectors: u16,
    pub bar: u8,
    pub offset: u64,
}

/// Every backing's own configuration space.
impl<B: Backing + ?Sized> ConfigSpace for B {
    fn read_config32(&mut self, offset: u16) -> Result<u32> {
        self.config_read32(offset)
    }

    fn write_config32(&mut self, offset: u16, value: u32) -> Result<()> {
        self.config_write32(offset, value)
    }

    fn write_config16(&mut self, offset: u16, value: u16) -> Result<()> {
        self.config_write16(offset, value)
    }
}

/// Points vectors 0 to `count` - 1 at consecutive 4-byte words of DMA memory, unmasked, then enables MSI-X. For
/// backings without an interrupt controller of their own: the message is a memory write, and memory can be polled.
pub fn point_vectors_at_memory<B: Backing + ?Sized>(backing: &mut B, count: u16, words_iova: u64) -> Result<()> {
    let table = backing.msix_table()?;
    if count > table.vectors {
        return Err(BackingError::NoVector { vector: count - 1, count: table.vectors.into() });
    }
    for vector in 0..count {
        let entry = table.offset + u64::from(vector) * 16;
        let address = words_iova + u64::from(vector) * 4;
        backing.write32(table.bar, entry, address as u32)?;
        backing.write32(table.bar, entry + 4, (address >> 32) as u32)?;
        backing.write32(table.bar, entry + 8, VECTOR_MESSAGE)?;
        backing.write32(table.bar, entry + 12, 0)?;
    }
    backing.enable_msix()
}

/// The message's data: anything but zero, which means that no interrupt is pending.
const VECTOR_MESSAGE: u32 = 1;

/// The word a vector is pointed at.
pub fn vector_word(words: Option<DmaBuffer>, vector: u16) -> Result<u64> {
    let count = words.map_or(0, |words| words.length_bytes / 4) as usize;
    words
        .filter(|_| usize::from(vector) < count)
        .map(|words| words.iova + u64::from(vector) * 4)
        .ok_or(BackingError::NoVector { vector, count })
}

/// Waits for a vector that [`point_vectors_at_memory`] has set up.
pub fn wait_for_word<B: Backing + ?Sized>(
    backing: &mut B,
    word_iova: u64,
    timeout: std::time::Duration,
) -> Result<bool> {
    let start = std::time::Instant::now();
    loop {
        if backing.load32(word_iova)? != 0 {
            backing.store32(word_iova, 0)?;
            return Ok(true);
        }
        if start.elapsed() >= timeout {
            return Ok(false);
        }
        backing.pause()?;
    }
}
