//! The ways to a device: in this process, over a vfio-user socket, through QEMU under qtest, and as a program inside
//! a Linux guest.

/// The memory half of [`crate::backing::Backing`], for backings whose DMA memory is mapped into this process and stands
/// in their field `memory`.
macro_rules! memory_of_the_backing {
    () => {
        fn allocate(&mut self, length_bytes: u64, align_bytes: u64) -> Result<DmaBuffer> {
            self.memory.allocate(length_bytes, align_bytes)
        }

        fn release(&mut self, buffer: DmaBuffer) {
            self.memory.release(buffer);
        }

        fn copy_in(&mut self, iova: u64, bytes: &[u8]) -> Result<()> {
            self.memory.copy_in(iova, bytes)
        }

        fn copy_out(&mut self, iova: u64, bytes: &mut [u8]) -> Result<()> {
            self.memory.copy_out(iova, bytes)
        }

        fn load32(&mut self, iova: u64) -> Result<u32> {
            self.memory.load32(iova)
        }

        fn load64(&mut self, iova: u64) -> Result<u64> {
            self.memory.load64(iova)
        }

        fn store32(&mut self, iova: u64, value: u32) -> Result<()> {
            self.memory.store32(iova, value)
        }

        fn store64(&mut self, iova: u64, value: u64) -> Result<()> {
            self.memory.store64(iova, value)
        }
    };
}
use memory_of_the_backing;

pub mod guest;
pub mod in_process;
pub mod qtest;
pub mod socket;
