//! The machine a guest runs on, as QEMU's command line.
//!
//! One q35 machine for all: one processor, an empty root port `rp0` for the adapter, a virtio serial device with the
//! ports `rnic.control` and `rnic.exchange`, a serial console into a log file. A snapshot can only be restored on the
//! machine it was saved on, so everything that shapes the machine is here and goes into the snapshot's name.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{Acceleration, AdapterFunction, GuestMemory};
use crate::image::Image;

/// Memory of a guest, unless its image needs more: with 64 MiB of huge pages set aside about 130 MiB are free, and a snapshot stays small.
pub const MEMORY_MIB: u32 = 256;

/// Measured to bring a boot without hardware acceleration from 9 s down to 4 s, most of it by leaving out self-tests.
/// `hugepages` sets aside 2 MiB pages for drivers that want contiguous memory.
pub(super) const KERNEL_ARGUMENTS: &str = "console=ttyS0 panic=-1 quiet hugepages=32 mitigations=off cryptomgr.notests tsc=reliable no_timer_check \
    random.trust_cpu=on noreplace-smp rodata=off init_on_alloc=0 lsm= audit=0 apparmor=0 8250.nr_uarts=1 \
    initcall_blacklist=jent_mod_init,load_system_certificate_list,init_encrypted,crypto_kdf108_init,param_sysfs_builtin_init";

/// Where one machine's sockets and logs are.
#[derive(Debug)]
pub struct Connections<'a> {
    pub control: &'a Path,
    pub exchange: &'a Path,
    pub serial: Serial<'a>,
}

/// Where the serial console goes.
#[derive(Debug, Clone, Copy)]
pub enum Serial<'a> {
    Log(&'a Path),
    /// QEMU connects to it.
    Socket(&'a Path),
}

/// The command line of a machine, without what starts its guest.
/// Only with the memory that its image asks for does it fit a snapshot.
pub fn arguments(
    acceleration: Acceleration,
    memory: GuestMemory,
    memory_mib: u32,
    connections: &Connections<'_>,
) -> Vec<OsString> {
    let mut words = fixed(acceleration, memory_mib);
    words.extend(["-object".into(), memory_backend(memory, memory_mib)]);
    for (id, path) in [("control", connections.control), ("exchange", connections.exchange)] {
        words.extend(["-chardev".into(), format!("socket,id={id},path={}", escaped(path))]);
    }
    let serial = match connections.serial {
        Serial::Log(path) => format!("file,id=serial,path={}", escaped(path)),
        Serial::Socket(path) => format!("socket,id=serial,path={}", escaped(path)),
    };
    words.extend(["-chardev".into(), serial]);
    words.into_iter().map(OsString::from).collect()
}

/// What starts a guest from its beginning.
pub fn boot_arguments(image: &Image) -> Vec<OsString> {
    vec![
        "-kernel".into(),
        image.kernel.clone().into(),
        "-initrd".into(),
        image.initial_file_system.clone().into(),
        "-append".into(),
        KERNEL_ARGUMENTS.into(),
    ]
}

/// Everything about the machine that a snapshot depends on, apart from QEMU and the image.
pub fn description(acceleration: Acceleration, memory_mib: u32) -> String {
    format!("{} {KERNEL_ARGUMENTS}", fixed(acceleration, memory_mib).join(" "))
}

fn fixed(acceleration: Acceleration, memory_mib: u32) -> Vec<String> {
    // The processor model is named, since one restored on another model hangs without an error.
    let (accelerator, processor) = match acceleration {
        Acceleration::Tcg => ("tcg,thread=multi", "max"),
        Acceleration::Kvm => ("kvm", "host"),
    };
    let memory = format!("{memory_mib}M");
    let words = [
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-no-reboot",
        "-accel",
        accelerator,
        "-cpu",
        processor,
        "-smp",
        "1",
        "-machine",
        "q35,memory-backend=m0",
        "-m",
        &memory,
        "-device",
        // Windows for what is plugged later: the doorbell BAR alone is 4 MiB, and the firmware reserves 2.
        "pcie-root-port,id=rp0,bus=pcie.0,addr=0x4,chassis=1,slot=1,mem-reserve=8M,pref64-reserve=64M",
        "-device",
        "virtio-serial-pci,id=ports,bus=pcie.0,addr=0x3",
        "-device",
        "virtserialport,bus=ports.0,nr=1,chardev=control,name=rnic.control",
        "-device",
        "virtserialport,bus=ports.0,nr=2,chardev=exchange,name=rnic.exchange",
        "-serial",
        "chardev:serial",
    ];
    words.map(str::to_owned).to_vec()
}

fn memory_backend(memory: GuestMemory, memory_mib: u32) -> String {
    match memory {
        GuestMemory::Shared => format!("memory-backend-memfd,id=m0,size={memory_mib}M,share=on"),
        GuestMemory::PrivateDescriptor => format!("memory-backend-memfd,id=m0,size={memory_mib}M,share=off"),
        GuestMemory::Messages => format!("memory-backend-ram,id=m0,size={memory_mib}M"),
    }
}

/// The properties of one function of the adapter on the root port, for `-device` and `device_add` alike. QEMU knows the
/// socket as a structure only, so both take JSON.
pub fn adapter_device(number: usize, function: &AdapterFunction, functions: usize) -> Value {
    let mut device = json!({
        "driver": crate::qemu::DEVICE,
        "id": format!("adapter{number}"),
        "bus": "rp0",
        "addr": format!("0.{number}"),
        "rombar": 0,
        "socket": { "type": "unix", "path": function.socket },
        "x-msg-timeout": function.message_timeout_ms,
    });
    if functions > 1 {
        device["multifunction"] = json!(true);
    }
    device
}

/// A path as a value among comma-separated options.
pub(super) fn escaped(path: &Path) -> String {
    PathBuf::from(path).display().to_string().replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_names_the_machine_but_no_path() {
        let connections = Connections {
            control: Path::new("/a/c"),
            exchange: Path::new("/a/e"),
            serial: Serial::Log(Path::new("/a,b/s")),
        };
        let words = arguments(Acceleration::Tcg, GuestMemory::Shared, MEMORY_MIB, &connections);
        assert!(words.contains(&"file,id=serial,path=/a,,b/s".into()));
        let description = description(Acceleration::Tcg, MEMORY_MIB);
        assert!(description.contains("-cpu max") && !description.contains("/a"));
        assert_ne!(description, super::description(Acceleration::Kvm, MEMORY_MIB));
        assert_ne!(description, super::description(Acceleration::Tcg, 2 * MEMORY_MIB));
    }

    #[test]
    fn a_single_function_is_not_multifunction() {
        let function = AdapterFunction::new("/s");
        assert_eq!(adapter_device(0, &function, 1).get("multifunction"), None);
        assert_eq!(adapter_device(1, &function, 2)["addr"], "0.1");
    }
}
