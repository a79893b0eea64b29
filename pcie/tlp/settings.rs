//! What the host programmed into Device Control and Link Control, as far as it decides how transfers split.

/// Settings of the link. Every report that states packets or link bytes states them too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkSettings {
    /// 1 to 5: 2.5, 5, 8, 16, 32 GT/s.
    pub generation: u8,
    /// Lanes.
    pub width: u8,
    /// Maximum payload size.
    pub mps_bytes: u32,
    /// Maximum read request size.
    pub mrrs_bytes: u32,
    /// Read completion boundary.
    pub rcb_bytes: u32,
}

impl LinkSettings {
    /// What the published per-verb figures assume.
    pub const MODEL_HOST: Self = Self { generation: 3, width: 16, mps_bytes: 256, mrrs_bytes: 512, rcb_bytes: 64 };
    /// What a Linux guest programs under QEMU, and what a function has after a reset.
    pub const AFTER_RESET: Self = Self { generation: 3, width: 16, mps_bytes: 128, mrrs_bytes: 512, rcb_bytes: 64 };

    /// The nearest settings that a link can have: MPS and MRRS a power of two from 128 to 4096, RCB 64 or 128.
    pub fn legalised(self) -> Self {
        let size = |bytes: u32| (bytes.clamp(128, 4096) + 1).next_power_of_two() / 2;
        Self {
            generation: self.generation.clamp(1, 5),
            width: self.width.clamp(1, 32),
            mps_bytes: size(self.mps_bytes),
            mrrs_bytes: size(self.mrrs_bytes),
            rcb_bytes: if self.rcb_bytes >= 128 { 128 } else { 64 },
        }
    }
}

impl Default for LinkSettings {
    fn default() -> Self {
        Self::AFTER_RESET
    }
}
