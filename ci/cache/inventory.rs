//! What the cache holds, and which of it is still wanted.

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock};

use super::{BUILDING, Cache};
use crate::debian::Manifest;
use crate::error::file;
use crate::{Error, Result};

/// Whether an entry stays when the cache is cleaned, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Keep(String),
    Remove(String),
}

/// One thing in the cache: a tree, an image, a snapshot, or a folder of small things.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Path below the cache folder.
    pub name: String,
    path: PathBuf,
    /// On the disk: files with holes count as what they take.
    pub bytes: u64,
    used: Option<SystemTime>,
    pub verdict: Verdict,
}

impl Entry {
    /// Last use, in seconds since 1970.
    pub fn last_used_s(&self) -> Option<u64> {
        self.used?.duration_since(UNIX_EPOCH).ok().map(|time| time.as_secs())
    }

    /// Removes it. Call it with the cache's lock held.
    pub fn remove(&self) -> Result<()> {
        let is_folder = fs::symlink_metadata(&self.path).is_ok_and(|data| data.is_dir());
        let removed = if is_folder { fs::remove_dir_all(&self.path) } else { fs::remove_file(&self.path) };
        match removed {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(file("removal", &self.path)(error)),
            _ => Ok(()),
        }
    }
}

/// Groups whose members stand for themselves; every other name in the cache folder is an entry as a whole.
const GROUPS: &[&str] = &["trees", "images", "snapshots", "kernels", "reload"];
/// Locks are no contents.
const LOCKS: &[&str] = &["lock", "e2e.lock"];

impl Cache {
    /// Everything in the cache, with what a cleaning that keeps what was used in `unused_days` would do with it.
    pub fn inventory(&self, unused_days: u32) -> Result<Vec<Entry>> {
        let used = self.programs_in_use();
        let named = self.named_trees();
        let unused = Duration::from_secs(u64::from(unused_days) * 24 * 3600);
        let mut entries = Vec::new();
        for path in children(self.folder())? {
            let name = file_name(&path);
            if LOCKS.contains(&name.as_str()) {
                continue;
            }
            if !GROUPS.contains(&name.as_str()) {
                let verdict = match name.as_str() {
                    "debs" => Verdict::Remove("package files, unpacked already".into()),
                    _ if name.starts_with(BUILDING) => Verdict::Remove("left behind, half built".into()),
                    _ => Verdict::Keep("needed again and again".into()),
                };
                entries.push(entry(&path, name, verdict));
                continue;
            }
            let members = children(&path)?;
            let newest =
                members.iter().filter(|path| !file_name(path).starts_with(BUILDING)).max_by_key(|path| time(path));
            for member in &members {
                let verdict = match name.as_str() {
                    _ if file_name(member).starts_with(BUILDING) => Verdict::Remove("left behind, half built".into()),
                    _ if used.iter().any(|program| program.starts_with(member)) => {
                        Verdict::Keep("a program runs from it".into())
                    }
                    "trees" if named.contains(&file_name(member)) => Verdict::Keep("a record names it".into()),
                    "trees" => Verdict::Remove("no record names it".into()),
                    _ if Some(member) == newest => Verdict::Keep("the newest".into()),
                    _ => age_decides(time(member), unused, unused_days),
                };
                entries.push(entry(member, format!("{name}/{}", file_name(member)), verdict));
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// Refuses if something was started from the cache and runs, or if a run of tests holds it.
    pub fn refuse_if_used(&self) -> Result<()> {
        if let Some(program) = self.programs_in_use().into_iter().next() {
            return Err(self.in_use(format!("a running program was started from it: {}", program.display())));
        }
        let tests = self.folder().join("e2e.lock");
        let held = File::open(&tests).is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err());
        if held { Err(self.in_use(format!("a run of tests holds {}", tests.display()))) } else { Ok(()) }
    }

    fn in_use(&self, reason: String) -> Error {
        Error::CacheInUse { folder: self.folder().to_path_buf(), reason }
    }

    /// Files of the cache that running processes execute or have mapped: programs and their libraries. The `exe`
    /// link is asked beside the maps, because a program that has only just started has not mapped its file yet.
    fn programs_in_use(&self) -> BTreeSet<PathBuf> {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
        let mut programs = BTreeSet::new();
        for process in processes.filter(|path| file_name(path).bytes().all(|byte| byte.is_ascii_digit())) {
            let maps = fs::read_to_string(process.join("maps")).unwrap_or_default();
            let mapped = maps.lines().filter_map(|line| line.find('/').map(|at| PathBuf::from(&line[at..])));
            let executed = fs::read_link(process.join("exe")).ok();
            programs.extend(mapped.chain(executed).filter(|path| path.starts_with(self.folder())));
        }
        programs
    }

    /// The trees that records of answered requests name.
    fn named_trees(&self) -> BTreeSet<String> {
        let records = children(&self.folder().join("sets")).unwrap_or_default();
        records
            .iter()
            .filter_map(|record| Manifest::read(record).ok().flatten())
            .map(|manifest| manifest.tree)
            .collect()
    }
}

fn age_decides(used: Option<SystemTime>, unused: Duration, days: u32) -> Verdict {
    match used.and_then(|time| time.elapsed().ok()) {
        Some(age) if age >= unused => Verdict::Remove(format!("not used for {} days", age.as_secs() / 86400)),
        _ => Verdict::Keep(format!("used within {days} days")),
    }
}

fn entry(path: &Path, name: String, verdict: Verdict) -> Entry {
    Entry { name, path: path.to_path_buf(), bytes: bytes_of(path), used: time(path), verdict }
}

fn children(folder: &Path) -> Result<Vec<PathBuf>> {
    Ok(fs::read_dir(folder).map_err(file("look-up", folder))?.flatten().map(|entry| entry.path()).collect())
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn time(path: &Path) -> Option<SystemTime> {
    fs::symlink_metadata(path).and_then(|data| data.modified()).ok()
}

/// What a file, or a folder with all in it, takes on the disk.
fn bytes_of(path: &Path) -> u64 {
    const BLOCK_BYTES: u64 = 512;
    let own = |data: &Metadata| data.blocks() * BLOCK_BYTES;
    match fs::symlink_metadata(path) {
        Ok(data) if data.is_dir() => {
            let inside = children(path).unwrap_or_default();
            own(&data) + inside.iter().map(|path| bytes_of(path)).sum::<u64>()
        }
        Ok(data) => own(&data),
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::debian::PackageSet;

    fn verdicts(cache: &Cache, days: u32) -> Vec<(String, bool)> {
        let entries = cache.inventory(days).expect("an inventory");
        entries.into_iter().map(|entry| (entry.name, matches!(entry.verdict, Verdict::Keep(_)))).collect()
    }

    #[test]
    fn what_is_named_new_or_young_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = Options { cache_folder: Some(folder.path().join("c")), ..Options::default() };
        let cache = Cache::open(&options).expect("a cache");
        let manifest = Manifest::new(PackageSet::whole("qemu", "trixie", &["x"]), Vec::new());
        let record = cache.sub_folder("sets").expect("made").join("qemu.json");
        manifest.write(&record).expect("written");
        for name in [
            &format!("trees/{}", manifest.tree),
            "trees/other",
            "images/old",
            "images/new",
            "debs",
            "images/.building-x",
        ] {
            let path = cache.sub_folder(name).expect("made");
            fs::write(path.join("file"), [7; 5000]).expect("written");
        }
        let long_ago = SystemTime::now() - Duration::from_secs(40 * 24 * 3600);
        for name in ["images/old", "images/new"] {
            let time = if name == "images/old" { long_ago } else { SystemTime::now() };
            File::open(cache.folder().join(name)).and_then(|folder| folder.set_modified(time)).expect("set");
        }
        fs::write(cache.folder().join("lock"), "").expect("written");
        let kept = |name: &str, keep: bool| (name.to_owned(), keep);
        let tree = format!("trees/{}", manifest.tree);
        let expected = |old: bool| {
            let mut rows = vec![
                kept("debs", false),
                kept("images/.building-x", false),
                kept("images/new", true),
                kept("images/old", old),
                kept("sets", true),
                kept(&tree, true),
                kept("trees/other", false),
            ];
            rows.sort();
            rows
        };
        assert_eq!(verdicts(&cache, 30), expected(false));
        assert_eq!(verdicts(&cache, 50), expected(true));
        let entries = cache.inventory(30).expect("an inventory");
        assert!(entries.iter().filter(|entry| entry.name.starts_with("images/")).all(|entry| entry.bytes >= 5000));
        let gone = entries.iter().filter(|entry| matches!(entry.verdict, Verdict::Remove(_)));
        gone.for_each(|entry| entry.remove().expect("removed"));
        assert!(verdicts(&cache, 30).iter().all(|(_, keep)| *keep));
    }

    #[test]
    fn a_program_that_runs_from_the_cache_is_seen() {
        let folder = tempfile::tempdir().expect("a folder");
        let options = Options { cache_folder: Some(folder.path().join("c")), ..Options::default() };
        let cache = Cache::open(&options).expect("a cache");
        cache.refuse_if_used().expect("nothing runs");
        let program = cache.sub_folder("trees/t").expect("made").join("sleep");
        fs::copy("/bin/sleep", &program).expect("copied");
        let mut child = std::process::Command::new(&program).arg("30").spawn().expect("it runs");
        let used = cache.inventory(0).expect("an inventory");
        let refused = cache.refuse_if_used();
        child.kill().and_then(|()| child.wait()).expect("ended");
        assert!(matches!(refused, Err(Error::CacheInUse { .. })), "{refused:?}");
        assert!(used.iter().any(|entry| entry.name == "trees/t" && matches!(entry.verdict, Verdict::Keep(_))));
    }
}
