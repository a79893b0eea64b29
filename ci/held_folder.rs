//! Temporary folders that do not stay for ever when their process is killed.
//!
//! Each holds a locked file for as long as its process lives; the kernel lets go of the lock however the process ends.
//! Whoever makes a folder first removes those of the same user that bear our prefix and whose lock nobody holds. A
//! folder without the file, made by somebody else or kept on purpose, is left alone.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

use crate::Result;
use crate::error::file;

/// All of our folders begin so.
const PREFIX: &str = "rnic-";
const LOCK: &str = ".held";

/// A temporary folder, removed when dropped.
#[derive(Debug)]
pub struct HeldFolder {
    folder: TempDir,
    _lock: File,
}

impl HeldFolder {
    /// Makes a folder whose name begins with `prefix`, which begins with `rnic-`.
    pub fn create(prefix: &str) -> Result<HeldFolder> {
        HeldFolder::create_in(&std::env::temp_dir(), prefix)
    }

    fn create_in(parent: &Path, prefix: &str) -> Result<HeldFolder> {
        debug_assert!(prefix.starts_with(PREFIX));
        sweep(parent);
        let folder = tempfile::Builder::new().prefix(prefix).tempdir_in(parent).map_err(file("use", parent))?;
        // Locked before it has the name that a sweep looks for.
        let unnamed = folder.path().join(".new");
        let lock = File::create(&unnamed).map_err(file("creation", &unnamed))?;
        let locked = flock(&lock, FlockOperation::NonBlockingLockExclusive);
        locked.map_err(|errno| file("locking", &unnamed)(errno.into()))?;
        fs::rename(&unnamed, folder.path().join(LOCK)).map_err(file("renaming", &unnamed))?;
        Ok(HeldFolder { folder, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Keeps the folder for good; no sweep takes it.
    pub fn keep(self) -> PathBuf {
        let _ = fs::remove_file(self.folder.path().join(LOCK));
        self.folder.keep()
    }
}

/// Removes what killed processes of this user have left. What cannot be removed stays: it is in nobody's way.
fn sweep(parent: &Path) {
    let own = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX)
            && entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == own);
        if ours && is_abandoned(&entry.path().join(LOCK)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// It has a lock that nobody holds.
fn is_abandoned(lock: &Path) -> bool {
    let plain = fs::symlink_metadata(lock).is_ok_and(|found| found.is_file());
    plain && File::open(lock).is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_whose_process_is_gone_is_swept_and_no_other() {
        let parent = tempfile::tempdir().expect("a folder");
        let living = HeldFolder::create_in(parent.path(), "rnic-living-").expect("created");
        let kept = HeldFolder::create_in(parent.path(), "rnic-kept-").expect("created").keep();
        let dead = parent.path().join("rnic-dead");
        let foreign = parent.path().join("other-dead");
        for folder in [&dead, &foreign] {
            fs::create_dir_all(folder.join("inside")).expect("made");
            fs::write(folder.join(LOCK), "").expect("written");
        }
        let without_lock = parent.path().join("rnic-without");
        fs::create_dir(&without_lock).expect("made");
        let link = parent.path().join("rnic-link");
        std::os::unix::fs::symlink(&foreign, &link).expect("linked");
        let next = HeldFolder::create_in(parent.path(), "rnic-next-").expect("created");
        assert!(!dead.exists(), "the dead one is gone");
        for stays in [living.path(), &kept, &foreign, &without_lock, &link, next.path()] {
            assert!(stays.exists(), "{} is gone", stays.display());
        }
        let path = living.path().to_owned();
        drop(living);
        assert!(!path.exists());
    }
}
