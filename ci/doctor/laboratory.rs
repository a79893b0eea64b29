//! The laboratory: the cache and its disk, QEMU, the guest's image, KVM, the archive.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use super::{Finding, Level};
use crate::cache::Cache;
use crate::debian::{Debian, apt, sources};
use crate::guest::{Acceleration, Host, accelerator};
use crate::image::Image;
use crate::qemu::{Qemu, RunFolder, Version};
use crate::{Error, Options, Progress, Result};

/// A cache that is not there yet is tried beside its place, and nothing of it stays.
pub fn examine(options: &Options, progress: &mut dyn Progress) -> Vec<Finding> {
    let place = Cache::place(options);
    let is_there = place.try_exists().unwrap_or(true);
    let beside = place.ancestors().skip(1).find(|folder| folder.is_dir()).filter(|_| !is_there);
    let Some(Ok(trial)) = beside.map(|folder| tempfile::Builder::new().prefix(".rnic-doctor-").tempdir_in(folder))
    else {
        return look(options, progress);
    };
    let cache_folder = trial.path().join("cache");
    let mut findings = look(&Options { cache_folder: Some(cache_folder.clone()), ..options.clone() }, progress);
    let [tried, meant] = [&cache_folder, &place].map(|folder| folder.display().to_string());
    findings.iter_mut().for_each(|finding| finding.found = finding.found.replace(&tried, &meant));
    findings
}

fn look(options: &Options, progress: &mut dyn Progress) -> Vec<Finding> {
    let cache = match Cache::open(options).and_then(|cache| writable(&cache).map(|()| cache)) {
        Ok(cache) => cache,
        Err(error) => {
            let cure = "name a folder that can be written in RNIC_CACHE";
            return vec![Finding::new("cache", Level::Stops, error.to_string(), cure)];
        }
    };
    let _lock = match cache.lock(progress) {
        Ok(lock) => lock,
        Err(error) => {
            return vec![Finding::new(
                "cache",
                Level::Stops,
                error.to_string(),
                "wait for the other process, or end it",
            )];
        }
    };
    // What is not in the cache is not fetched here, only told.
    let offline = Options { offline: true, refresh: false, ..options.clone() };
    let mut passed_over = Remarks::default();
    let qemu = Qemu::provide(&offline, &mut Debian::new(&cache, &offline), &mut passed_over);
    let image = Image::provide(&cache, &mut Debian::new(&cache, &offline), offline.kernel, progress);
    let complete = qemu.is_ok() && image.is_ok();
    let mut findings = vec![archive(options, &cache, complete)];
    let can_fetch = findings.iter().all(|finding| finding.level != Level::Stops);
    findings.push(disk(&cache, complete));
    findings.extend(about_qemu(&qemu, passed_over.0, can_fetch));
    findings.push(about_image(&image, can_fetch));
    findings.push(match (qemu, image) {
        (Ok(qemu), Ok(image)) => kvm(options, &cache, qemu, image, progress),
        _ => Finding::new(
            "KVM",
            Level::Note,
            "not tried: QEMU or the guest's image is not there yet",
            "run `rnic demo` once, then look again",
        ),
    });
    findings.push(contents(&cache));
    findings
}

/// Keeps what would have been printed.
#[derive(Default)]
struct Remarks(Vec<String>);

impl Progress for Remarks {
    fn step(&mut self, sentence: &str) {
        self.0.push(sentence.to_owned());
    }
}

fn writable(cache: &Cache) -> Result<()> {
    let probe = tempfile::tempfile_in(cache.folder()).and_then(|mut file: File| file.write_all(b"rnic"));
    probe.map_err(crate::error::file("writing in", cache.folder()))
}

fn archive(options: &Options, cache: &Cache, complete: bool) -> Finding {
    const CHECK: &str = "archive";
    if options.offline {
        return Finding::new(CHECK, Level::Note, "not asked: offline", "leave --offline out to try it");
    }
    let address = sources::archive_address(options.mirror.as_deref(), std::path::Path::new("/etc/apt"));
    let tried = address.and_then(|address| {
        let apt = apt::Apt::prepare(&cache.sub_folder("apt")?, &address)?;
        apt.reach(&address).map(|()| address)
    });
    match tried {
        Ok(address) => Finding::fine(CHECK, format!("{address} answers")),
        Err(error) => {
            let level = if complete { Level::Note } else { Level::Stops };
            let needed = if complete { "; everything is in the cache, so it is not needed now" } else { "" };
            Finding::new(CHECK, level, format!("{error}{needed}"), cure_of_archive(&error))
        }
    }
}

fn cure_of_archive(error: &Error) -> &'static str {
    match error {
        Error::AptMissing { .. } => "run on Debian 12 or 13, or install apt and dpkg",
        Error::KeyringMissing { .. } => "apt-get install debian-archive-keyring",
        Error::MirrorUnknown { .. } => "name a Debian archive in RNIC_MIRROR",
        _ => "look at network and proxy (apt's Acquire::http::Proxy counts), or name another archive in RNIC_MIRROR",
    }
}

fn disk(cache: &Cache, complete: bool) -> Finding {
    const CHECK: &str = "disk";
    // Package files, trees, image and snapshot, as they come to be; later the logs of a run.
    let needed: u64 = if complete { 100 << 20 } else { 1400 << 20 };
    match cache.require_space("a run", needed) {
        Ok(free) => Finding::fine(CHECK, format!("{} MB free for {}", free / 1_000_000, cache.folder().display())),
        Err(error) => Finding::new(
            CHECK,
            Level::Stops,
            error.to_string(),
            "free the disk (`rnic cache clean`), or name another folder in RNIC_CACHE",
        ),
    }
}

fn about_qemu(qemu: &Result<Qemu>, passed_over: Vec<String>, can_fetch: bool) -> Vec<Finding> {
    const CHECK: &str = "QEMU";
    let mut findings: Vec<Finding> = passed_over
        .into_iter()
        .map(|remark| Finding::new(CHECK, Level::Note, remark, "nothing: a newer one from Debian's packages is used"))
        .collect();
    match qemu {
        Ok(qemu) => {
            findings.push(Finding::fine(CHECK, format!("{}, has vfio-user-pci", qemu.identity())));
            let (bugs, cure) = known_bugs(qemu.version());
            findings.push(Finding::new("QEMU's known bugs", Level::Note, bugs, cure));
        }
        Err(Error::Offline { .. }) if can_fetch => {
            findings.push(Finding::new(
                CHECK,
                Level::Note,
                "not in the cache yet",
                "nothing: the first run fetches it",
            ));
        }
        Err(error) => {
            let cure = "unset RNIC_QEMU, or name a QEMU 11.1 or newer with vfio-user-pci (Debian: trixie-backports)";
            findings.push(Finding::new(CHECK, Level::Stops, error.to_string(), cure));
        }
    }
    findings
}

/// What its users meet; docs/known-limits.md has all of it.
fn known_bugs(version: Version) -> (String, &'static str) {
    const CURE: &str =
        "do not unplug, end guests before the server, save before the adapter is plugged in (docs/known-limits.md)";
    let found = "unplugging a device with MSI-X aborts it; a guest that reboots after its server died aborts it; migration loses the device's state without a word";
    match (version.major, version.minor) {
        (11, 1) => (format!("{version}: {found}"), CURE),
        _ => (format!("{version} was not tried; 11.1 has these: {found}"), CURE),
    }
}

fn about_image(image: &Result<Image>, can_fetch: bool) -> Finding {
    const CHECK: &str = "guest image";
    match image {
        Ok(image) => Finding::fine(CHECK, format!("kernel {}", image.kernel_release)),
        Err(Error::Offline { .. }) if can_fetch => {
            Finding::new(CHECK, Level::Note, "not in the cache yet", "nothing: the first run fetches and builds it")
        }
        Err(error) => Finding::new(
            CHECK,
            Level::Stops,
            error.to_string(),
            "let the archive be reached, or `rnic cache clean --all` and start afresh",
        ),
    }
}

fn kvm(options: &Options, cache: &Cache, qemu: Qemu, image: Image, progress: &mut dyn Progress) -> Finding {
    const CHECK: &str = "KVM";
    let cure = "nothing: guests run on TCG, about ten times slower. For KVM, let this user open /dev/kvm (group kvm), and allow nested virtualisation if this is a virtual machine";
    let without = |found: &str| Finding::new(CHECK, Level::Note, found, cure);
    if let Err(error) = File::options().read(true).write(true).open(accelerator::DEVICE) {
        return without(&format!("{}: {error}", accelerator::DEVICE));
    }
    let choice = RunFolder::create(options).and_then(|run_folder| {
        let host = Host { qemu, image, run_folder: Arc::new(run_folder) };
        accelerator::choose(options, cache, &host, progress)
    });
    match choice {
        Ok(Acceleration::Kvm) => Finding::fine(CHECK, "a guest booted with it"),
        Ok(Acceleration::Tcg) => {
            without("/dev/kvm is there, but a guest did not boot with it within 5 s (the answer is remembered)")
        }
        Err(error) => without(&error.to_string()),
    }
}

fn contents(cache: &Cache) -> Finding {
    const CHECK: &str = "cache";
    match cache.inventory(30) {
        Ok(entries) => {
            let bytes: u64 = entries.iter().map(|entry| entry.bytes).sum();
            Finding::fine(
                CHECK,
                format!("{}: {} entries, {} MB", cache.folder().display(), entries.len(), bytes / 1_000_000),
            )
        }
        Err(error) => Finding::new(CHECK, Level::Warning, error.to_string(), "`rnic cache clean --all`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Silent;

    fn levels(options: &Options) -> Vec<(&'static str, Level)> {
        examine(options, &mut Silent).into_iter().map(|finding| (finding.check, finding.level)).collect()
    }

    #[test]
    fn an_empty_cache_is_no_obstacle_and_a_wrong_qemu_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut options = Options { cache_folder: Some(folder.path().join("c")), offline: true, ..Options::default() };
        let found = levels(&options);
        assert!(found.contains(&("guest image", Level::Note)) && found.contains(&("KVM", Level::Note)), "{found:?}");
        let told: String = examine(&options, &mut Silent).into_iter().map(|finding| finding.found + "\n").collect();
        assert!(told.contains(&folder.path().join("c").display().to_string()), "{told}");
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0, "a look leaves nothing behind");
        options.qemu = Some(folder.path().join("missing"));
        assert!(levels(&options).contains(&("QEMU", Level::Stops)));
    }

    #[test]
    fn a_cache_that_cannot_be_written_stops() {
        let options = Options { cache_folder: Some("/proc/version".into()), ..Options::default() };
        assert_eq!(levels(&options), [("cache", Level::Stops)]);
    }

    /// Every finding that is not fine says what to do.
    #[test]
    fn an_archive_that_is_missing_is_told_with_its_cure() {
        let folder = tempfile::tempdir().expect("a folder");
        let mirror = Some(format!("file:{}", folder.path().join("nothing").display()));
        let options = Options { cache_folder: Some(folder.path().join("c")), mirror, ..Options::default() };
        let findings = examine(&options, &mut Silent);
        let archive = findings.iter().find(|finding| finding.check == "archive").expect("looked at");
        assert_eq!(archive.level, Level::Stops, "{archive:?}");
        assert!(findings.iter().all(|finding| finding.level == Level::Fine || finding.cure.is_some()));
    }
}
