//! Context images: the bytes by which contexts stand in host memory. Opaque to the driver, versioned, and
//! validated when they come back like anything else from there.

use rnic_abi::Diagnostic;

/// First byte of every image: a change of any image's layout changes it.
const IMAGE_VERSION: u8 = 4;

/// Bytes of the sum at the end of every image.
const SUM_BYTES: usize = 4;

/// Finds stray writes, every one that changes a single word for certain. What a driver forges is found by the checks
/// of the fields, as far as it concerns anybody but its own queue pair.
fn checksum(image: &[u8]) -> u32 {
    image
        .as_chunks::<4>()
        .0
        .iter()
        .fold(0x811c_9dc5, |sum, word| (sum ^ u32::from_le_bytes(*word)).rotate_left(5).wrapping_mul(0x0100_0193))
}

/// A context that can leave the device and come back.
pub trait Image: Sized {
    const BYTES: usize;

    /// Fills `out`, which is zero.
    fn encode(&self, out: &mut Writer<'_>);

    /// `None` where the bytes are not what `encode` wrote.
    fn decode(bytes: &mut Reader<'_>) -> Option<Self>;

    fn to_bytes(&self, out: &mut [u8]) {
        out.fill(0);
        let (image, sum) = out.split_at_mut(Self::BYTES - SUM_BYTES);
        let mut writer = Writer { bytes: image, at: 0 };
        writer.u8(IMAGE_VERSION);
        self.encode(&mut writer);
        sum.copy_from_slice(&checksum(image).to_le_bytes());
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, Diagnostic> {
        let (image, sum) = bytes.split_at_checked(Self::BYTES - SUM_BYTES).ok_or(Diagnostic::ContextInvalid)?;
        let mut reader = Reader { bytes: image, at: 0 };
        let intact = sum == checksum(image).to_le_bytes() && reader.u8() == Some(IMAGE_VERSION);
        intact.then(|| Self::decode(&mut reader)).flatten().ok_or(Diagnostic::ContextInvalid)
    }
}

/// Appends little-endian fields. Images are sized for their fields: running over is a programming error.
#[derive(Debug)]
pub struct Writer<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    pub fn put(&mut self, field: &[u8]) {
        self.bytes[self.at..self.at + field.len()].copy_from_slice(field);
        self.at += field.len();
    }

    pub fn u8(&mut self, value: u8) {
        self.put(&[value]);
    }

    pub fn u16(&mut self, value: u16) {
        self.put(&value.to_le_bytes());
    }

    pub fn u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }

    pub fn u64(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }
}

/// Takes little-endian fields.
#[derive(Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    pub fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let field = self.bytes.get(self.at..self.at + N)?.try_into().ok()?;
        self.at += N;
        Some(field)
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_le_bytes)
    }

    pub fn flag(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}
