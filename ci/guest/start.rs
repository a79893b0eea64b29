//! From a spec to a guest that takes commands: boot with the adapter present, or restore and hot-plug it.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::control::Control;
use super::exchange::Exchange;
use super::machine::{self, Connections, Serial};
use super::{Acceleration, AdapterFunction, Guest, GuestSpec, Host, snapshot};
use crate::Result;
use crate::deadline::Deadline;
use crate::qemu::trace::{EVENTS, Trace};
use crate::qemu::{Awaited, Running};

/// A boot takes 4 s on an idle machine without hardware acceleration.
const BOOT_LIMIT: Duration = Duration::from_secs(180);
const CONNECT_LIMIT: Duration = Duration::from_secs(30);

/// Boots a guest from its beginning, with the adapter present, and waits until it takes commands.
pub fn boot(host: &Host, acceleration: Acceleration, spec: &GuestSpec) -> Result<Guest> {
    boot_within(host, acceleration, spec, BOOT_LIMIT)
}

/// The same with a time limit of the caller's.
pub(super) fn boot_within(host: &Host, acceleration: Acceleration, spec: &GuestSpec, limit: Duration) -> Result<Guest> {
    let mut arguments = machine::boot_arguments(&host.image);
    for (number, function) in spec.adapter.iter().enumerate() {
        let device = machine::adapter_device(number, function, spec.adapter.len());
        arguments.extend(["-device".into(), device.to_string().into()]);
    }
    let mut guest = launch(host, acceleration, spec, arguments)?;
    let deadline = Deadline::new(format!("guest {} boots", spec.name), limit);
    guest.control.await_ready(&deadline).map_err(|error| guest.running.explain(error))?;
    Ok(guest)
}

/// Restores a guest from a snapshot of an empty machine, and plugs the adapter in.
pub fn restore(host: &Host, acceleration: Acceleration, spec: &GuestSpec, saved: &Path) -> Result<Guest> {
    let mut guest = launch(host, acceleration, spec, vec!["-incoming".into(), "defer".into()])?;
    let restored = snapshot::load(guest.running.qmp(), saved).and_then(|()| plug_in(&mut guest.running, &spec.adapter));
    restored.map_err(|error| guest.running.explain(error))?;
    Ok(guest)
}

/// Plugs the adapter in. The guest looks at the slot when function 0 arrives, so that one comes last.
pub(super) fn plug_in(running: &mut Running, adapter: &[AdapterFunction]) -> Result<()> {
    for (number, function) in adapter.iter().enumerate().rev() {
        let device = machine::adapter_device(number, function, adapter.len());
        // Realizing the device waits for the adapter's server.
        let limit = Duration::from_millis(u64::from(function.message_timeout_ms)).saturating_add(CONNECT_LIMIT);
        running.qmp().execute_within("device_add", device, limit)?;
    }
    Ok(())
}

/// Starts QEMU and takes both connections; the guest has not necessarily executed anything.
fn launch(host: &Host, acceleration: Acceleration, spec: &GuestSpec, start: Vec<OsString>) -> Result<Guest> {
    let run_folder = &host.run_folder;
    let (control, exchange) = (Awaited::listen(run_folder, "control")?, Awaited::listen(run_folder, "exchange")?);
    let serial_log = run_folder.log_path(&spec.name, "serial");
    let serial = Serial::Log(&serial_log);
    let connections = Connections { control: control.path(), exchange: exchange.path(), serial };
    let mut arguments = machine::arguments(acceleration, spec.memory, host.image.memory_mib, &connections);
    arguments.extend(start);
    let trace = spec.trace.then(|| Trace::prepare(run_folder.logs(), &spec.name, EVENTS)).transpose()?;
    if let Some(trace) = &trace {
        arguments.extend(trace.arguments().iter().map(OsString::from));
    }
    arguments.extend_from_slice(&spec.extra_arguments);
    let mut running = host.qemu.start(&spec.name, run_folder, &arguments)?;
    let deadline = Deadline::new(format!("QEMU of guest {} connects its ports", spec.name), CONNECT_LIMIT);
    let control = Control::new(running.accept(&control, &deadline)?);
    let exchange = Exchange::new(running.accept(&exchange, &deadline)?);
    Ok(Guest { running, control, exchange, serial_log, trace })
}

/// Stops the guest's processor and writes its state, memory included, to `path`.
pub(super) fn save(guest: &mut Guest, path: &Path) -> Result<()> {
    guest.running.qmp().execute("stop", json!({}))?;
    snapshot::store(guest.running.qmp(), path).map_err(|error| guest.running.explain(error))
}
