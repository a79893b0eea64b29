//! Whether KVM works here, proved by a short boot that is thrown away: a device node says little, since a nested or
//! sandboxed KVM may hang at a stock kernel's first instructions. The answer is kept in the cache.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use super::{Acceleration, GuestSpec, Host, start};
use crate::cache::{Cache, ContentKey};
use crate::error::file;
use crate::{Accelerator, Error, Options, Progress, Result};

pub const DEVICE: &str = "/dev/kvm";
/// With a KVM that works the guest takes commands after about one second.
const PROOF_LIMIT: Duration = Duration::from_secs(5);

/// The accelerator for this laboratory's guests. Call it with the cache's lock held.
pub fn choose(options: &Options, cache: &Cache, host: &Host, progress: &mut dyn Progress) -> Result<Acceleration> {
    match options.accelerator {
        Accelerator::Tcg => return Ok(Acceleration::Tcg),
        Accelerator::Kvm | Accelerator::Auto => {}
    }
    // Who asks for KVM is told that it does not work; who leaves the choice to us gets TCG.
    let wanted = options.accelerator == Accelerator::Kvm;
    if let Err(error) = File::options().read(true).write(true).open(DEVICE) {
        return if wanted {
            Err(unusable(format!("{DEVICE} cannot be opened: {error}")))
        } else {
            Ok(Acceleration::Tcg)
        };
    }
    let key = ContentKey::new()
        .part(host.qemu.identity())
        .part(&host.image.kernel_key)
        .part(kernel_release())
        .part(processor_model());
    let record = cache.sub_folder("accelerators")?.join(key.name());
    match read(&record) {
        Some(Acceleration::Kvm) => return Ok(Acceleration::Kvm),
        // It may work by now.
        Some(Acceleration::Tcg) if !wanted => return Ok(Acceleration::Tcg),
        _ => {}
    }
    progress.step(&format!("proving KVM by a boot of at most {} s", PROOF_LIMIT.as_secs()));
    let proof = start::boot_within(host, Acceleration::Kvm, &GuestSpec::without_adapter("kvm-proof"), PROOF_LIMIT);
    let Err(error) = proof.map(drop) else {
        write(&record, Acceleration::Kvm)?;
        return Ok(Acceleration::Kvm);
    };
    host.run_folder.drop_logs();
    write(&record, Acceleration::Tcg)?;
    if wanted {
        return Err(unusable(error.to_string()));
    }
    progress.step(&format!("KVM does not work here, guests run on TCG: {error}"));
    Ok(Acceleration::Tcg)
}

fn unusable(reason: String) -> Error {
    Error::KvmUnusable { reason }
}

fn read(record: &Path) -> Option<Acceleration> {
    match fs::read_to_string(record).ok()?.trim() {
        "kvm" => Some(Acceleration::Kvm),
        "tcg" => Some(Acceleration::Tcg),
        _ => None,
    }
}

fn write(record: &Path, acceleration: Acceleration) -> Result<()> {
    let folder = record.parent().unwrap_or(Path::new("."));
    let word = match acceleration {
        Acceleration::Kvm => "kvm\n",
        Acceleration::Tcg => "tcg\n",
    };
    let mut beside = tempfile::NamedTempFile::new_in(folder).map_err(file("creation", folder))?;
    beside.write_all(word.as_bytes()).map_err(file("writing", record))?;
    beside.persist(record).map_err(|error| file("renaming", record)(error.error))?;
    Ok(())
}

fn kernel_release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default()
}

/// The host processor's name, on which a guest under KVM depends.
pub(super) fn processor_model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.lines().filter(|line| line.starts_with("model name") || line.starts_with("flags")).take(2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_remembered_and_garbage_is_none() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let record = folder.path().join("answer");
        assert_eq!(read(&record), None);
        for acceleration in [Acceleration::Kvm, Acceleration::Tcg] {
            write(&record, acceleration).expect("written");
            assert_eq!(read(&record), Some(acceleration));
        }
        fs::write(&record, "maybe").expect("written");
        assert_eq!(read(&record), None);
    }
}
