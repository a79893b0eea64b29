//! Saved guests: booted once with an empty root port, saved while the first program waits for its first command, and
//! restored as often as needed.
//!
//! The file has QEMU's mapped-ram layout: memory lies at fixed places and zero pages are holes, so a restore reads it
//! with the page cache's speed. Its name is made of everything that shaped it. How the memory is backed does not: one
//! snapshot serves all kinds of [`GuestMemory`](super::GuestMemory).

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Acceleration, GuestSpec, Host, accelerator, machine, start};
use crate::cache::{Cache, ContentKey};
use crate::deadline::Deadline;
use crate::qemu::qmp::Qmp;
use crate::{Error, Progress, Result};

const SAVE_LIMIT: Duration = Duration::from_secs(120);
const RESTORE_LIMIT: Duration = Duration::from_secs(60);
const FILE_NAME: &str = "guest";

/// The snapshot's file; made if the cache does not hold it. Call it with the cache's lock held.
pub fn provide(cache: &Cache, host: &Host, acceleration: Acceleration, progress: &mut dyn Progress) -> Result<PathBuf> {
    let memory_mib = host.image.memory_mib;
    let mut key = ContentKey::new().part(host.qemu.identity()).part(&host.image.key);
    key = key.part(machine::description(acceleration, memory_mib));
    if acceleration == Acceleration::Kvm {
        // With KVM the guest saw this host's processor.
        key = key.part(accelerator::processor_model());
    }
    let name = key.name();
    if !cache.holds("snapshots", &name) {
        progress.step("booting a guest once, to save it");
    }
    let folder = cache.build_folder("snapshots", &name, |folder| {
        cache.require_space("a snapshot", u64::from(memory_mib) << 21)?;
        let begin = Instant::now();
        let mut guest = start::boot(host, acceleration, &GuestSpec::without_adapter("snapshot"))?;
        let booted = begin.elapsed();
        start::save(&mut guest, &folder.join(FILE_NAME))?;
        let saved = begin.elapsed() - booted;
        progress.step(&format!("the guest was booted in {booted:.1?} and saved in {saved:.1?}"));
        Ok(())
    })?;
    Ok(folder.join(FILE_NAME))
}

/// Writes the state of a stopped machine to `path`.
pub(super) fn store(qmp: &mut Qmp, path: &Path) -> Result<()> {
    use_mapped_ram(qmp)?;
    qmp.execute("migrate", json!({ "uri": uri(path) }))?;
    let deadline = Deadline::new("saving a guest", SAVE_LIMIT);
    loop {
        let state = qmp.execute("query-migrate", json!({}))?;
        match state["status"].as_str() {
            Some("completed") => return Ok(()),
            Some("failed" | "cancelled") => return Err(failed("migrate", &state)),
            _ => pause(&deadline)?,
        }
    }
}

/// Reads a machine's state from `path` and lets it run. QEMU must have been started with `-incoming defer`.
pub(super) fn load(qmp: &mut Qmp, path: &Path) -> Result<()> {
    use_mapped_ram(qmp)?;
    qmp.execute_within("migrate-incoming", json!({ "uri": uri(path) }), RESTORE_LIMIT)?;
    let deadline = Deadline::new("restoring a guest", RESTORE_LIMIT);
    loop {
        let state = qmp.execute("query-status", json!({}))?;
        match state["status"].as_str() {
            Some("inmigrate") => pause(&deadline)?,
            Some("paused" | "postmigrate" | "prelaunch") => break,
            Some("running") => return Ok(()),
            _ => return Err(failed("migrate-incoming", &state)),
        }
    }
    qmp.execute("cont", json!({})).map(|_| ())
}

fn use_mapped_ram(qmp: &mut Qmp) -> Result<()> {
    let capability = json!({ "capabilities": [{ "capability": "mapped-ram", "state": true }] });
    qmp.execute("migrate-set-capabilities", capability).map(|_| ())
}

fn uri(path: &Path) -> String {
    format!("file:{}", path.display())
}

fn failed(command: &str, state: &Value) -> Error {
    let description = state["error-desc"].as_str().unwrap_or(state["status"].as_str().unwrap_or("no status"));
    Error::Qmp { command: command.into(), class: "Failed".into(), description: description.into() }
}

fn pause(deadline: &Deadline) -> Result<()> {
    thread::sleep(deadline.remaining()?.min(Duration::from_millis(3)));
    Ok(())
}
