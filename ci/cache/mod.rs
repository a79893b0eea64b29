//! The cache folder: where everything fetched or built is kept, and the lock that lets one process at a time add to it.
//!
//! ```text
//! apt/         private apt root: lists and configuration
//! debs/        package files as downloaded
//! trees/       unpacked packages, named after their content
//! sets/        manifests: which packages, versions and hashes answered which request
//! images/      guest kernels and initial file systems, named after what went into them
//! snapshots/   saved guests, named after what went into them
//! kernels/     kernels that find faults, named after what went into them, and the build of one that was ended
//! reload/      builds of users' own kernel modules, which go on from where they were
//! lock         held while something is added
//! ```
//!
//! Whatever has a final name is complete: it is built beside under a temporary name and renamed.

pub mod inventory;

use std::env;
use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock, statvfs};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use crate::deadline::Deadline;
use crate::error::file;
use crate::{Error, Options, Progress, Result};

/// How long a process waits for another one that is adding to the cache: a first provisioning on a slow network.
const LOCK_LIMIT: Duration = Duration::from_secs(1800);

/// The cache folder.
#[derive(Debug, Clone)]
pub struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// Where the folder is, or would be.
    pub fn place(options: &Options) -> PathBuf {
        match &options.cache_folder {
            Some(folder) => folder.clone(),
            None => default_folder(env::var_os("XDG_CACHE_HOME"), env::var_os("HOME")),
        }
    }

    /// The folder that the options or the environment name, created if it is not there.
    pub fn open(options: &Options) -> Result<Cache> {
        let folder = Cache::place(options);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(file("creation", &folder))?;
        only_ours(&folder)?;
        // Absolute, because programs are started from it with other working folders.
        let folder = folder.canonicalize().map_err(file("look-up", &folder))?;
        Ok(Cache { folder })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A sub-folder, created if it is not there.
    pub fn sub_folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.folder.join(name);
        fs::create_dir_all(&path).map_err(file("creation", &path))?;
        Ok(path)
    }

    /// Waits for the lock, and says so if somebody else holds it. It is released on drop, or by the kernel when the
    /// process dies.
    pub fn lock(&self, progress: &mut dyn Progress) -> Result<CacheLock> {
        let path = self.folder.join("lock");
        let lock_file =
            File::options().create(true).truncate(false).write(true).open(&path).map_err(file("opening", &path))?;
        let deadline =
            Deadline::new(format!("waiting for another process to finish with {}", self.folder.display()), LOCK_LIMIT);
        let mut said = false;
        while let Err(error) = flock(&lock_file, FlockOperation::NonBlockingLockExclusive) {
            if error != rustix::io::Errno::WOULDBLOCK && error != rustix::io::Errno::INTR {
                return Err(Error::File { what: "locking", path, source: error.into() });
            }
            if !said {
                progress.step(&format!("waiting for another process that holds {}", path.display()));
                said = true;
            }
            std::thread::sleep(deadline.remaining()?.min(Duration::from_millis(100)));
        }
        Ok(CacheLock { _file: lock_file })
    }

    /// Refuses a step that would fill the disk; returns the free bytes.
    pub fn require_space(&self, what: &str, needed_bytes: u64) -> Result<u64> {
        let space = statvfs(&self.folder).map_err(|error| file("free space", &self.folder)(error.into()))?;
        let free_bytes = space.f_bavail.saturating_mul(space.f_frsize);
        if free_bytes < needed_bytes {
            let (folder, what) = (self.folder.clone(), what.to_owned());
            return Err(Error::DiskSpace { folder, what, needed_bytes, free_bytes });
        }
        Ok(free_bytes)
    }

    /// A temporary folder in `parent`, for what is renamed once it is complete.
    pub fn build_beside(&self, parent: &Path) -> Result<TempDir> {
        tempfile::Builder::new().prefix(BUILDING).tempdir_in(parent).map_err(file("creation", parent))
    }

    /// Whether the folder `group/name` is there: what is built is announced first.
    pub fn holds(&self, group: &str, name: &str) -> bool {
        self.folder.join(group).join(name).is_dir()
    }

    /// Makes the folder `group/name` by letting `build` fill a temporary one beside it, unless it is there already.
    /// Call it with the lock held.
    pub fn build_folder(&self, group: &str, name: &str, build: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let parent = self.sub_folder(group)?;
        let path = parent.join(name);
        if path.is_dir() {
            mark_used(&path);
            return Ok(path);
        }
        remove_unused(&parent)?;
        let beside = self.build_beside(&parent)?;
        build(beside.path())?;
        let beside = beside.keep();
        fs::rename(&beside, &path).map_err(file("renaming", &path))?;
        Ok(path)
    }
}

/// Prefix of what is being built; whoever holds the lock may take what bears it for left behind by a killed process.
const BUILDING: &str = ".building-";
/// Old images and snapshots go when a new one is built, unless a build of another day may still want them.
const UNUSED_LIMIT: Duration = Duration::from_secs(30 * 24 * 3600);

/// Sets the folder's time, by which [`remove_unused`] goes; a cache that may only be read serves without it.
pub(crate) fn mark_used(folder: &Path) {
    let _ = File::open(folder).and_then(|folder| folder.set_modified(SystemTime::now()));
}

/// Removes what a killed process left half built, and what nobody has used for long.
pub(crate) fn remove_unused(parent: &Path) -> Result<()> {
    for entry in fs::read_dir(parent).map_err(file("look-up", parent))?.flatten() {
        let is_left_behind = entry.file_name().to_string_lossy().starts_with(BUILDING);
        let unused = entry.metadata().and_then(|data| data.modified()).ok().and_then(|time| time.elapsed().ok());
        if is_left_behind || unused.is_some_and(|time| time > UNUSED_LIMIT) {
            let path = entry.path();
            fs::remove_dir_all(&path).map_err(file("removal", &path))?;
        }
    }
    Ok(())
}

/// The lock on the cache.
#[derive(Debug)]
pub struct CacheLock {
    _file: File,
}

/// Programs are run from the cache: nobody else may put any there.
fn only_ours(folder: &Path) -> Result<()> {
    let data = fs::metadata(folder).map_err(file("look-up", folder))?;
    let in_temporary = folder.starts_with(env::temp_dir());
    let of_another = in_temporary && data.uid() != rustix::process::getuid().as_raw();
    if of_another || data.mode() & 0o002 != 0 {
        let what = "others can write there, and programs are run from it";
        return Err(file("use as a cache", folder)(std::io::Error::new(std::io::ErrorKind::PermissionDenied, what)));
    }
    Ok(())
}

fn default_folder(cache_home: Option<std::ffi::OsString>, home: Option<std::ffi::OsString>) -> PathBuf {
    // The XDG rules ignore a relative path.
    if let Some(folder) = cache_home.map(PathBuf::from).filter(|folder| folder.is_absolute()) {
        return folder.join("rnic");
    }
    match home.map(PathBuf::from).filter(|folder| folder.is_absolute()) {
        Some(home) => home.join(".cache/rnic"),
        // The name is ours alone, and so is the folder: see `only_ours`.
        None => env::temp_dir().join(format!("rnic-cache-{}", rustix::process::getuid().as_raw())),
    }
}

/// A name made of what goes in: 16 hexadecimal digits of a SHA-256 over length-prefixed parts.
#[derive(Debug, Clone, Default)]
pub struct ContentKey {
    hash: Sha256,
}

impl ContentKey {
    pub fn new() -> ContentKey {
        ContentKey::default()
    }

    pub fn part(mut self, bytes: impl AsRef<[u8]>) -> ContentKey {
        let bytes = bytes.as_ref();
        self.hash.update((bytes.len() as u64).to_le_bytes());
        self.hash.update(bytes);
        self
    }

    pub fn name(self) -> String {
        hexadecimal(&self.hash.finalize()[..8])
    }
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// SHA-256 of a file, as hexadecimal digits.
pub fn file_sha256(path: &Path) -> Result<String> {
    let mut input = File::open(path).map_err(file("opening", path))?;
    let mut hash = Sha256::new();
    std::io::copy(&mut input, &mut hash).map_err(file("reading", path))?;
    Ok(hexadecimal(&hash.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Recorded(Vec<String>);

    impl Progress for Recorded {
        fn step(&mut self, sentence: &str) {
            self.0.push(sentence.to_owned());
        }
    }

    fn cache() -> (tempfile::TempDir, Cache) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let options = Options { cache_folder: Some(folder.path().join("cache")), ..Options::default() };
        let cache = Cache::open(&options).expect("the cache folder");
        (folder, cache)
    }

    #[test]
    fn the_default_folder_follows_the_xdg_rules() {
        assert_eq!(default_folder(Some("/x".into()), Some("/h".into())), PathBuf::from("/x/rnic"));
        assert_eq!(default_folder(Some("relative".into()), Some("/h".into())), PathBuf::from("/h/.cache/rnic"));
        assert_eq!(default_folder(None, Some("/h".into())), PathBuf::from("/h/.cache/rnic"));
    }

    #[test]
    fn a_folder_that_others_can_write_is_no_cache() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let options = Options { cache_folder: Some(folder.path().to_path_buf()), ..Options::default() };
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("set");
        let refused = Cache::open(&options).map(|_| ()).expect_err("anybody's").to_string();
        assert!(refused.contains("others can write there"), "{refused}");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("set");
        Cache::open(&options).expect("ours");
    }

    #[test]
    fn a_second_lock_waits_and_says_so() {
        let (_folder, cache) = cache();
        let held = cache.lock(&mut Recorded::default()).expect("the first lock");
        let second = cache.clone();
        let waiter = std::thread::spawn(move || {
            let mut recorded = Recorded::default();
            second.lock(&mut recorded).expect("the second lock");
            recorded.0
        });
        std::thread::sleep(Duration::from_millis(300));
        assert!(!waiter.is_finished(), "the second lock did not wait");
        drop(held);
        let said = waiter.join().expect("the waiter");
        assert_eq!(said.len(), 1);
        assert!(said[0].contains("waiting for another process"), "{said:?}");
    }

    #[test]
    fn a_failed_build_leaves_nothing_and_a_finished_one_is_not_repeated() {
        let (_folder, cache) = cache();
        let failed = cache.build_folder("trees", "a", |_| Err(Error::MirrorUnknown { searched: "x".into() }));
        assert!(matches!(failed, Err(Error::MirrorUnknown { .. })));
        assert_eq!(fs::read_dir(cache.folder().join("trees")).expect("the folder").count(), 0);

        let build = |folder: &Path| fs::write(folder.join("file"), b"1").map_err(file("writing", folder));
        let path = cache.build_folder("trees", "a", build).expect("built");
        assert!(path.join("file").is_file());
        cache.build_folder("trees", "a", |_| panic!("built twice")).expect("found");

        let parent = path.parent().expect("a parent");
        let (left, old) = (parent.join(".building-1"), parent.join("old"));
        for folder in [&left, &old] {
            fs::create_dir(folder).expect("made");
        }
        let long_ago = SystemTime::now() - 2 * UNUSED_LIMIT;
        File::open(&old).and_then(|folder| folder.set_modified(long_ago)).expect("set");
        cache.build_folder("trees", "b", build).expect("built");
        assert_eq!((left.exists(), old.exists(), path.exists()), (false, false, true));
    }

    #[test]
    fn a_full_disk_is_refused_before_the_step() {
        let (_folder, cache) = cache();
        cache.require_space("nothing", 0).expect("room for nothing");
        assert!(matches!(cache.require_space("a world", u64::MAX), Err(Error::DiskSpace { .. })));
    }

    #[test]
    fn keys_tell_parts_apart() {
        assert_ne!(ContentKey::new().part("ab").part("c").name(), ContentKey::new().part("a").part("bc").name());
    }
}
