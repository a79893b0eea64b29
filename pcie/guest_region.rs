//! Files of guest RAM, each mapped into this process once.
//!
//! A client sends a file descriptor with every map, under a vIOMMU one a page: they are told apart by device and
//! inode number, and one mapping serves all maps of a file. The file's size is asked at each map, and a file that
//! has grown is mapped anew.
//!
//! Hazard: where a file is made shorter later, touching the part that is gone raises SIGBUS. A memfd sealed against
//! shrinking (QEMU's default for `memory-backend-memfd`) cannot be; other files are watched ([`crate::lost_memory`]), and
//! one that loses a part is refused as a whole until it is mapped anew.

use crate::lost_memory::Watch;
use rustix::fs::{OFlags, SealFlags, fcntl_get_seals, fcntl_getfl};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vm_memory::mmap::{MmapRegion, MmapRegionBuilder};
use vm_memory::{FileOffset, VolatileMemory, VolatileSlice};

/// The most distinct files that are held mapped at a time.
pub const MAX_FILES: usize = 256;
/// Beyond so many, files that no map uses any more are let go.
const KEPT_UNUSED_FILES: usize = 16;

const PROT_READ: i32 = 1;
const PROT_WRITE: i32 = 2;
const MAP_SHARED: i32 = 1;
const MAP_NORESERVE: i32 = 0x4000;

/// Why a file cannot be reached through a mapping. Its range can still be served by messages.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    #[error("asking for the size of the file: {0}")]
    Metadata(#[source] std::io::Error),
    #[error("the descriptor is not of a regular file")]
    NotAFile,
    #[error("offset {offset:#x} and length {length_bytes:#x} end after the file's {size_bytes:#x} bytes")]
    BeyondEnd { offset: u64, length_bytes: u64, size_bytes: u64 },
    #[error("{MAX_FILES} files are mapped already")]
    TooManyFiles,
    #[error("the file is not sealed against shrinking (F_SEAL_SHRINK), and no more files can be watched")]
    Unwatched,
    #[error("mapping {size_bytes:#x} bytes: {source}")]
    Mmap { size_bytes: u64, source: vm_memory::mmap::MmapRegionError },
}

/// Guest RAM mapped into this process.
#[derive(Debug)]
pub struct GuestRegion {
    /// Of a file that can be made shorter. Before the memory: it is dropped first.
    watch: Option<Watch>,
    memory: MmapRegion<()>,
    writable: bool,
    /// That it is lost has been logged.
    told: AtomicBool,
}

impl GuestRegion {
    /// Maps a whole file, shared; read-only where the descriptor allows no more.
    pub fn from_file(file: File) -> Result<Self, RegionError> {
        let size_bytes = regular_file_size(&file)?;
        let size = usize::try_from(size_bytes).unwrap_or(usize::MAX);
        let shrink_sealed = fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        let read_write = fcntl_getfl(&file).is_ok_and(|flags| flags & OFlags::RWMODE == OFlags::RDWR);
        let offset = FileOffset::new(file, 0);
        let map = |prot: i32| {
            MmapRegionBuilder::new(size)
                .with_mmap_prot(prot)
                .with_mmap_flags(MAP_SHARED | MAP_NORESERVE)
                .with_file_offset(offset.clone())
                .build()
        };
        if read_write && let Ok(memory) = map(PROT_READ | PROT_WRITE) {
            return Self::watched(memory, true, shrink_sealed);
        }
        let memory = map(PROT_READ).map_err(|source| RegionError::Mmap { size_bytes, source })?;
        Self::watched(memory, false, shrink_sealed)
    }

    fn watched(memory: MmapRegion<()>, writable: bool, shrink_sealed: bool) -> Result<Self, RegionError> {
        let watch = match shrink_sealed {
            true => None,
            false => Some(Watch::new(memory.as_ptr(), memory.size()).ok_or(RegionError::Unwatched)?),
        };
        Ok(Self { watch, memory, writable, told: AtomicBool::new(false) })
    }

    /// Memory of no file, for hosts inside this process.
    pub fn anonymous(size_bytes: usize) -> Result<Self, RegionError> {
        let memory = MmapRegion::new(size_bytes)
            .map_err(|source| RegionError::Mmap { size_bytes: size_bytes as u64, source })?;
        Self::watched(memory, true, true)
    }

    pub fn size_bytes(&self) -> u64 {
        self.memory.size() as u64
    }

    pub fn writable(&self) -> bool {
        self.writable
    }

    /// The file cannot be made shorter, so no access can raise SIGBUS.
    pub fn shrink_sealed(&self) -> bool {
        self.watch.is_none()
    }

    /// The file was made shorter, and an access has met that.
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.watch.as_ref().is_some_and(Watch::is_lost) && self.tell_lost()
    }

    #[cold]
    fn tell_lost(&self) -> bool {
        if !self.told.swap(true, Ordering::Relaxed) {
            log::warn!(
                "the client has made a file of guest RAM shorter while it is mapped: DMA there is refused until it is mapped anew"
            );
        }
        true
    }

    /// A part of the memory, or `None` where it does not lie inside.
    pub fn slice(&self, offset: u64, length_bytes: u64) -> Option<VolatileSlice<'_>> {
        self.memory.get_slice(usize::try_from(offset).ok()?, usize::try_from(length_bytes).ok()?).ok()
    }
}

fn regular_file_size(file: &File) -> Result<u64, RegionError> {
    let metadata = file.metadata().map_err(RegionError::Metadata)?;
    if metadata.is_file() { Ok(metadata.size()) } else { Err(RegionError::NotAFile) }
}

/// Two descriptors of one file differ in what they allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileIdentity {
    device: u64,
    inode: u64,
    read_write: bool,
}

/// Every file mapped, each once.
#[derive(Debug, Default)]
pub struct GuestFiles {
    files: Vec<(FileIdentity, Arc<GuestRegion>)>,
}

impl GuestFiles {
    /// The mapping of a file, which holds `length_bytes` from `offset` on.
    pub fn share(&mut self, file: File, offset: u64, length_bytes: u64) -> Result<Arc<GuestRegion>, RegionError> {
        let metadata = file.metadata().map_err(RegionError::Metadata)?;
        let size_bytes = regular_file_size(&file)?;
        let end = offset.checked_add(length_bytes).filter(|&end| end <= size_bytes);
        let end = end.ok_or(RegionError::BeyondEnd { offset, length_bytes, size_bytes })?;
        let read_write = fcntl_getfl(&file).is_ok_and(|flags| flags & OFlags::RWMODE == OFlags::RDWR);
        let identity = FileIdentity { device: metadata.dev(), inode: metadata.ino(), read_write };
        let known = self.files.iter().position(|(known, _)| *known == identity);
        if let Some((_, region)) = known.and_then(|index| self.files.get(index))
            && region.size_bytes() >= end
            && !region.is_lost()
        {
            return Ok(Arc::clone(region));
        }
        let region = Arc::new(GuestRegion::from_file(file)?);
        if !region.shrink_sealed() {
            log::info!("guest RAM in a file of {size_bytes:#x} bytes that is not sealed against shrinking");
        }
        if let Some(index) = known {
            self.files.swap_remove(index);
        }
        if self.files.len() >= KEPT_UNUSED_FILES {
            self.release_unused();
        }
        if self.files.len() >= MAX_FILES {
            return Err(RegionError::TooManyFiles);
        }
        self.files.push((identity, Arc::clone(&region)));
        Ok(region)
    }

    /// Lets go of the files that no map uses.
    pub fn release_unused(&mut self) {
        self.files.retain(|(_, region)| Arc::strong_count(region) > 1);
    }

    pub fn len(&self) -> usize {
        self.files.len()
    }

    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};

    fn memfd(size_bytes: u64) -> File {
        let fd = memfd_create("guest", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&fd, size_bytes).unwrap();
        File::from(fd)
    }

    #[test]
    fn one_file_is_mapped_once_however_often_it_is_sent() {
        let mut files = GuestFiles::default();
        let file = memfd(0x4000);
        let first = files.share(file.try_clone().unwrap(), 0, 0x1000).unwrap();
        let second = files.share(file.try_clone().unwrap(), 0x3000, 0x1000).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        files.share(memfd(0x1000), 0, 0x1000).unwrap();
        assert_eq!(files.len(), 2);
        files.release_unused();
        assert_eq!(files.len(), 1);
    }

    #[test]
    fn a_file_that_has_grown_is_mapped_anew() {
        let mut files = GuestFiles::default();
        let file = memfd(0x1000);
        let small = files.share(file.try_clone().unwrap(), 0, 0x1000).unwrap();
        let refused = files.share(file.try_clone().unwrap(), 0x1000, 0x1000);
        assert!(matches!(refused, Err(RegionError::BeyondEnd { size_bytes: 0x1000, .. })));
        ftruncate(&file, 0x3000).unwrap();
        let grown = files.share(file, 0x1000, 0x1000).unwrap();
        assert_eq!((small.size_bytes(), grown.size_bytes(), files.len()), (0x1000, 0x3000, 1));
        small.slice(0, 1).unwrap().write_at(7);
        assert_eq!(grown.slice(0, 1).unwrap().read_at(), 7);
    }

    #[test]
    fn seals_and_read_only_descriptors_are_seen() {
        let file = memfd(0x1000);
        assert!(!GuestRegion::from_file(file.try_clone().unwrap()).unwrap().shrink_sealed());
        fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        let read_only = File::open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file))).unwrap();
        let region = GuestRegion::from_file(read_only).unwrap();
        assert!(region.shrink_sealed() && !region.writable());
    }

    #[test]
    fn a_file_that_was_made_shorter_is_refused_until_it_is_mapped_anew() {
        let mut files = GuestFiles::default();
        let (file, other) = (memfd(0x4000), memfd(0x4000));
        let region = files.share(file.try_clone().unwrap(), 0, 0x4000).unwrap();
        let unharmed = files.share(other, 0, 0x4000).unwrap();
        let before = crate::lost_memory::lost_so_far();
        ftruncate(&file, 0x1000).unwrap();
        // What is left can be used; the first touch of what is gone loses all of it.
        region.slice(0, 1).unwrap().write_at(7);
        assert!(!region.is_lost());
        region.slice(0x3000, 1).unwrap().write_at(7);
        assert!(region.is_lost() && crate::lost_memory::lost_so_far() != before);
        assert_eq!(region.slice(0x2000, 1).unwrap().read_at(), 0);
        unharmed.slice(0x3000, 1).unwrap().write_at(9);
        assert!(!unharmed.is_lost() && unharmed.slice(0x3000, 1).unwrap().read_at() == 9);
        ftruncate(&file, 0x4000).unwrap();
        let anew = files.share(file, 0, 0x4000).unwrap();
        assert!(!Arc::ptr_eq(&anew, &region) && !anew.is_lost());
        assert_eq!(anew.slice(0, 1).unwrap().read_at(), 7, "the file's, and not the empty memory's");
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        let file = File::from(std::os::fd::OwnedFd::from(socket));
        assert!(matches!(GuestRegion::from_file(file), Err(RegionError::NotAFile)));
        let empty = GuestFiles::default().share(memfd(0), u64::MAX, 2);
        assert!(matches!(empty, Err(RegionError::BeyondEnd { .. })));
    }

    trait Byte {
        fn write_at(&self, value: u8);
        fn read_at(&self) -> u8;
    }

    impl Byte for VolatileSlice<'_> {
        fn write_at(&self, value: u8) {
            crate::guest_copy::write(&[value], self);
        }
        fn read_at(&self) -> u8 {
            let mut byte = [0];
            crate::guest_copy::read(self, &mut byte);
            byte[0]
        }
    }
}
