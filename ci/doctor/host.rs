//! The machine: memory, files, processors, and where sockets and temporary files go.

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::process::{Resource, getrlimit, getuid};

use super::{Finding, Level};
use crate::guest::machine::MEMORY_MIB;

pub fn examine() -> Vec<Finding> {
    vec![
        memory(available_mib()),
        files(),
        processors(),
        runtime_folder(env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from)),
        temporary_folder(&env::temp_dir()),
    ]
}

/// Two guests, with what their QEMUs take beside.
const NEEDED_MIB: u64 = 2 * MEMORY_MIB as u64 + 300;

fn memory(available_mib: Option<u64>) -> Finding {
    const CHECK: &str = "memory";
    let Some(mib) = available_mib else {
        return Finding::new(
            CHECK,
            Level::Note,
            "the free memory is not known",
            format!("two guests take {NEEDED_MIB} MiB"),
        );
    };
    let found = format!("{mib} MiB available; two guests take {NEEDED_MIB} MiB");
    match mib {
        _ if mib < NEEDED_MIB => {
            Finding::new(CHECK, Level::Stops, found, "end other programs, or raise the limit of this container")
        }
        _ if mib < 2 * NEEDED_MIB => {
            Finding::new(CHECK, Level::Warning, found, "end other programs before a run of the tests")
        }
        _ => Finding::fine(CHECK, found),
    }
}

/// What the kernel and the control group leave, whichever is less.
fn available_mib() -> Option<u64> {
    let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let of_machine = line.split_whitespace().next()?.parse::<u64>().ok()? >> 10;
    let group = number("/sys/fs/cgroup/memory.max").zip(number("/sys/fs/cgroup/memory.current"));
    let of_group = group.map(|(most, now)| most.saturating_sub(now) >> 20);
    Some(of_group.map_or(of_machine, |of_group| of_machine.min(of_group)))
}

fn files() -> Finding {
    const CHECK: &str = "open files";
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let found = format!("a process may have {limit} open");
    let cure = "ulimit -n 4096, or LimitNOFILE= of the service";
    match limit {
        // Two guests with all their memory maps and vectors.
        ..128 => Finding::new(CHECK, Level::Stops, found, cure),
        128..1024 => Finding::new(CHECK, Level::Warning, found, cure),
        _ => Finding::fine(CHECK, found),
    }
}

fn processors() -> Finding {
    const CHECK: &str = "processors";
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    match count {
        1 => Finding::new(
            CHECK,
            Level::Warning,
            "one processor for two guests",
            "expect steps to take several times as long",
        ),
        _ => Finding::fine(CHECK, format!("{count} processors")),
    }
}

fn runtime_folder(folder: Option<PathBuf>) -> Finding {
    const CHECK: &str = "XDG_RUNTIME_DIR";
    const LONGEST: usize = 107 - "/rnic/12345678901234567890123456789012.sock".len();
    let fallback = format!("{}/rnic-{}", env::temp_dir().display(), getuid().as_raw());
    let Some(folder) = folder.filter(|folder| !folder.as_os_str().is_empty()) else {
        let found = format!("it is not set: sockets go to {fallback}");
        return Finding::new(
            CHECK,
            Level::Note,
            found,
            "export XDG_RUNTIME_DIR=/run/user/$(id -u) where that folder exists, or use `rnic serve --folder`",
        );
    };
    let name = folder.display().to_string();
    let cure = "set XDG_RUNTIME_DIR to a folder of yours with mode 0700, or unset it";
    let wrong = match fs::metadata(&folder) {
        Err(error) => Some(format!("{name}: {error}")),
        Ok(data) if !data.is_dir() => Some(format!("{name} is no folder")),
        Ok(data) if data.uid() != getuid().as_raw() => Some(format!("{name} belongs to another user")),
        Ok(_) if access(&folder, Access::WRITE_OK).is_err() => Some(format!("{name} cannot be written")),
        Ok(_) if folder.as_os_str().len() > LONGEST => {
            Some(format!("{name} is so long that sockets in it may not fit their 107 bytes"))
        }
        Ok(data) if data.mode() & 0o077 != 0 => Some(format!(
            "{name} is open to others (mode {:04o}); rnic's own folder in it is not",
            data.mode() & 0o7777
        )),
        Ok(_) => None,
    };
    match wrong {
        Some(found) => Finding::new(CHECK, Level::Warning, found, cure),
        None => Finding::fine(CHECK, format!("{name}: sockets go to {name}/rnic")),
    }
}

/// QEMU's sockets and the logs of a run lie there.
fn temporary_folder(folder: &Path) -> Finding {
    const CHECK: &str = "temporary folder";
    const LONGEST: usize = 107 - "/rnic-123456/exchange-1234".len();
    let name = folder.display();
    let cure = "set TMPDIR to a short path that can be written, such as /tmp";
    match tempfile::tempfile_in(folder) {
        Err(error) => Finding::new(CHECK, Level::Stops, format!("{name}: {error}"), cure),
        Ok(_) if folder.as_os_str().len() > LONGEST => {
            Finding::new(CHECK, Level::Stops, format!("{name} is too long for sockets in it"), cure)
        }
        Ok(_) => Finding::fine(CHECK, name.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_memory_stops_and_little_warns() {
        assert_eq!(memory(Some(NEEDED_MIB - 1)).level, Level::Stops);
        assert_eq!(memory(Some(NEEDED_MIB)).level, Level::Warning);
        assert_eq!(memory(Some(2 * NEEDED_MIB)).level, Level::Fine);
        assert_eq!(memory(None).level, Level::Note);
        assert!(available_mib().is_some_and(|mib| mib > 0));
    }

    #[test]
    fn a_wrong_runtime_folder_is_told_with_its_cure() {
        let folder = tempfile::tempdir().expect("a folder");
        let own = folder.path().to_path_buf();
        let mode =
            |bits| fs::set_permissions(&own, std::os::unix::fs::PermissionsExt::from_mode(bits)).expect("its mode");
        mode(0o755);
        assert_eq!(runtime_folder(Some(own.clone())).level, Level::Warning, "open to others");
        mode(0o700);
        assert_eq!(runtime_folder(Some(own.clone())).level, Level::Fine);
        for wrong in [own.join("missing"), PathBuf::from("/proc/version"), own.join("x".repeat(90))] {
            let finding = runtime_folder(Some(wrong));
            assert_eq!(finding.level, Level::Warning, "{finding:?}");
            assert!(finding.cure.is_some());
        }
        assert_eq!(runtime_folder(None).level, Level::Note);
        assert_eq!(runtime_folder(Some("".into())).level, Level::Note);
    }

    #[test]
    fn a_missing_temporary_folder_stops() {
        assert_eq!(temporary_folder(Path::new("/nowhere")).level, Level::Stops);
        assert_eq!(temporary_folder(&env::temp_dir()).level, Level::Fine);
    }
}
