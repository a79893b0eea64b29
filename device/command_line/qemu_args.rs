//! `rnic qemu-args`: what attaches an adapter to a QEMU, one argument a line.

use crate::exit::Exit;
use crate::sockets;
use clap::{Args, ValueEnum};
use serde_json::json;
use std::path::{Path, PathBuf};

/// How long QEMU waits for each reply of the server, in milliseconds. After that the device is dead for good, so it is an
/// hour: a server that is stopped in a debugger may stay there.
pub const MESSAGE_TIMEOUT_MS: u32 = 3_600_000;
/// The identifier of the guest's memory, which the machine names.
const MEMORY: &str = "rnic-memory";
const SLOTS: std::ops::RangeInclusive<u8> = 1..=31;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Machine type and memory: once for a guest.
    Machine,
    /// Root port and adapter: once for each adapter of a guest.
    Device,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One argument a line.
    Args,
    /// Elements of a libvirt domain.
    Libvirt,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Each line is one argument, so a shell array takes them as they are, whatever characters they hold.

Examples:
  mapfile -t ARGS < <(rnic qemu-args A)
  qemu-system-x86_64 \"${ARGS[@]}\" -accel kvm -cpu host -nographic -kernel bzImage -append console=ttyS0

  rnic qemu-args A --memory 8G                     a machine with more memory
  rnic qemu-args A B                               both adapters in one guest
  rnic qemu-args A --part device                   for a machine that you describe yourself
  rnic qemu-args /run/lab/A.sock                   a socket by its path, served or not
  rnic qemu-args A --format libvirt                for <domain xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>

A machine of your own needs q35, guest memory with share=on, and a PCIe root port for the adapter.

Exit: 0 printed; 2 usage; 3 nobody serves an adapter of this name.")]
pub struct QemuArgsOptions {
    /// Names of served adapters, or paths of their sockets.
    #[arg(required = true, value_name = "ADAPTER")]
    adapters: Vec<String>,
    /// Memory of the guest, as QEMU takes it.
    #[arg(long, default_value = "2G", value_parser = memory)]
    memory: String,
    /// Only this part.
    #[arg(long, value_enum)]
    part: Option<Part>,
    #[arg(long, value_enum, default_value = "args")]
    format: Format,
    /// Slot and chassis of the first root port; each port of a guest has its own.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(*SLOTS.start() as i64..=*SLOTS.end() as i64))]
    slot: u8,
    /// Folder of the sockets [default: $XDG_RUNTIME_DIR/rnic].
    #[arg(long)]
    folder: Option<PathBuf>,
}

/// A size as QEMU's `-m` takes it; it stands between commas, so nothing else may.
fn memory(text: &str) -> Result<String, String> {
    let digits = text.trim_end_matches(['M', 'G', 'm', 'g']);
    let number = digits.parse::<u32>().ok().filter(|number| *number > 0 && text.len() - digits.len() <= 1);
    number.map(|_| text.to_owned()).ok_or_else(|| format!("{text:?} is no memory size: give for example 512M or 2G"))
}

pub fn run(options: &QemuArgsOptions) -> Exit {
    match text(options) {
        Ok(text) => crate::output::print("qemu-args", &text),
        Err((message, exit)) => {
            tell!("rnic qemu-args: {message}");
            exit
        }
    }
}

fn text(options: &QemuArgsOptions) -> Result<String, (String, Exit)> {
    let folder = options.folder.clone().unwrap_or_else(sockets::default_folder);
    let mut devices = Vec::new();
    for (number, adapter) in options.adapters.iter().enumerate() {
        let slot = u8::try_from(number).ok().and_then(|number| options.slot.checked_add(number));
        let slot = slot.filter(|slot| SLOTS.contains(slot));
        let slot = slot.ok_or_else(|| (format!("there are slots 1 to {} only", SLOTS.end()), Exit::Usage))?;
        if options.adapters[..number].contains(adapter) {
            return Err((format!("{adapter} is named twice: an adapter is one device of one guest"), Exit::Usage));
        }
        let adapter = sockets::find(adapter, &folder).map_err(|error| (error, Exit::Environment))?;
        devices.extend(device(&adapter.name, &adapter.functions(), slot).map_err(|error| (error, Exit::Usage))?);
    }
    let (with_machine, with_device) = (options.part != Some(Part::Device), options.part != Some(Part::Machine));
    let devices = if with_device { devices } else { Vec::new() };
    Ok(match options.format {
        Format::Args => {
            let machine = if with_machine { machine(&options.memory) } else { Vec::new() };
            machine.iter().chain(&devices).map(|word| format!("{word}\n")).collect()
        }
        Format::Libvirt => libvirt(with_machine.then_some(options.memory.as_str()), &devices),
    })
}

/// The machine and its memory, which the device's server must be able to map.
pub fn machine(memory: &str) -> Vec<String> {
    [
        "-machine",
        &format!("q35,memory-backend={MEMORY}"),
        "-m",
        memory,
        "-object",
        &format!("memory-backend-memfd,id={MEMORY},size={memory},share=on"),
    ]
    .map(str::to_owned)
    .to_vec()
}

/// A root port and the adapter's functions behind it, function 0 first.
pub fn device(name: &str, functions: &[&Path], slot: u8) -> Result<Vec<String>, String> {
    let port = format!("rnic-port{slot}");
    // Room behind the port for the doorbell pages also when the adapter is plugged later.
    let root_port = format!("pcie-root-port,id={port},chassis={slot},slot={slot},mem-reserve=8M,pref64-reserve=64M");
    let mut words = vec!["-device".to_owned(), root_port];
    for (number, socket) in functions.iter().enumerate() {
        let path = socket.to_str().ok_or_else(|| format!("{}: a path for QEMU must be UTF-8", socket.display()))?;
        let mut function = json!({
            "driver": "vfio-user-pci",
            "id": if number == 0 { format!("rnic-{name}") } else { format!("rnic-{name}.{number}") },
            "bus": port,
            "addr": format!("0.{number}"),
            "rombar": 0,
            "x-msg-timeout": MESSAGE_TIMEOUT_MS,
            "socket": { "type": "unix", "path": path },
        });
        if functions.len() > 1 {
            function["multifunction"] = json!(true);
        }
        words.extend(["-device".into(), function.to_string()]);
    }
    Ok(words)
}

/// libvirt describes machine and memory itself; what it does not know goes through its QEMU namespace.
fn libvirt(memory: Option<&str>, devices: &[String]) -> String {
    let mut text = String::new();
    if let Some(memory) = memory {
        let (number, unit) = memory.split_at(memory.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len());
        let unit = if unit.eq_ignore_ascii_case("g") { "GiB" } else { "MiB" };
        text += &format!(
            "<memory unit='{unit}'>{number}</memory>\n\
             <os><type arch='x86_64' machine='q35'>hvm</type></os>\n\
             <memoryBacking>\n  <source type='memfd'/>\n  <access mode='shared'/>\n</memoryBacking>\n"
        );
    }
    if !devices.is_empty() {
        text += "<qemu:commandline>\n";
        devices.iter().for_each(|word| text += &format!("  <qemu:arg value='{}'/>\n", escaped(word)));
        text += "</qemu:commandline>\n";
    }
    text
}

fn escaped(word: &str) -> String {
    word.replace('&', "&amp;").replace('<', "&lt;").replace('\'', "&apos;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_argument_is_one_line_whatever_the_path_holds() {
        let words = device("A", &[Path::new("/run/a b,c'\n\"/A.sock")], 3).expect("a path");
        assert!(words.iter().all(|word| !word.contains('\n')), "{words:?}");
        let json: serde_json::Value = serde_json::from_str(&words[3]).expect("JSON");
        assert_eq!(json["socket"]["path"], "/run/a b,c'\n\"/A.sock");
        assert_eq!((&json["bus"], &json["rombar"]), (&json!("rnic-port3"), &json!(0)));
        assert!(json.get("multifunction").is_none());
        let two = device("A", &[Path::new("/A.sock"), Path::new("/A.net.sock")], 1).expect("paths");
        let function: serde_json::Value = serde_json::from_str(&two[5]).expect("JSON");
        assert_eq!((&function["addr"], &function["multifunction"]), (&json!("0.1"), &json!(true)));
        assert!(json["x-msg-timeout"].as_u64().is_some_and(|ms| ms > 60_000));
    }

    #[test]
    fn sizes_are_plain() {
        for right in ["2G", "512M", "1g", "1024"] {
            assert_eq!(memory(right), Ok(right.to_owned()));
        }
        for wrong in ["", "0", "2GG", "2G,share=off", "-1G", "99999999999G"] {
            assert!(memory(wrong).is_err_and(|error| error.contains("2G")), "{wrong}");
        }
    }

    #[test]
    fn libvirt_gets_escaped_elements() {
        let text = libvirt(Some("2G"), &["-device".into(), "{'<&}".into()]);
        assert!(text.contains("<memory unit='GiB'>2</memory>") && text.contains("<access mode='shared'/>"), "{text}");
        assert!(text.contains("value='{&apos;&lt;&amp;}'"), "{text}");
        assert!(!libvirt(None, &["x".into()]).contains("memory"));
    }
}
