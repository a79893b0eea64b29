//! The guest image: a kernel as bare ELF, and an initial file system with busybox and our own [`init`](INIT).
//!
//! In: a [`kernel`]: the packages `linux-image-amd64` (the flavour that has rdma_rxe; virtio console, PCI hot-plug and PVH are
//! built in), of trixie or of its backports, or one that is built to find faults; and `busybox-static`. Out: [`Image`]: two files that QEMU boots. The initial file system stays uncompressed: a
//! guest without hardware acceleration unpacks slower than the host reads.

pub mod cpio;
mod kernel;
pub mod packages;
pub(crate) mod tree;
pub mod vmlinux;

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use crate::cache::{Cache, ContentKey};
use crate::debian::Debian;
use crate::error::file;
use crate::guest::machine::MEMORY_MIB;
use crate::options::GuestKernel;
use crate::{Progress, Result};
use cpio::CpioWriter;
use kernel::Kernel;

/// The guest's first program.
pub const INIT: &str = include_str!("init");

/// The programs that the image's busybox is linked as.
const APPLETS: &[&str] = &[
    "arp",
    "arping",
    "awk",
    "basename",
    "cat",
    "chmod",
    "cp",
    "cut",
    "date",
    "dd",
    "devmem",
    "dmesg",
    "echo",
    "false",
    "find",
    "grep",
    "head",
    "hexdump",
    "hostname",
    "insmod",
    "ip",
    "ln",
    "ls",
    "lsmod",
    "lspci",
    "mkdir",
    "modprobe",
    "mount",
    "mv",
    "nc",
    "od",
    "ping",
    "poweroff",
    "ps",
    "reboot",
    "rm",
    "rmmod",
    "sed",
    "seq",
    "setsid",
    "sh",
    "sha256sum",
    "sleep",
    "stty",
    "sync",
    "tail",
    "tar",
    "timeout",
    "touch",
    "tr",
    "true",
    "umount",
    "uname",
    "usleep",
    "wc",
    "xargs",
    "xz",
    "xzcat",
];

/// Kernel modules that the image holds, below `kernel/` of their release: they mount a folder of the host.
const SHARE_MODULES: &[&str] =
    &["fs/netfs/netfs.ko.xz", "net/9p/9pnet.ko.xz", "net/9p/9pnet_virtio.ko.xz", "fs/9p/9p.ko.xz"];
/// And those that its first program loads, so that a snapshot has them: the network driver.
const LOADED_MODULES: &[&str] =
    &["net/core/failover.ko.xz", "drivers/net/net_failover.ko.xz", "drivers/net/virtio_net.ko.xz"];

/// A kernel and an initial file system.
#[derive(Debug, Clone)]
pub struct Image {
    pub kernel: PathBuf,
    /// The same as it was packed, if it was.
    pub packed_kernel: PathBuf,
    pub initial_file_system: PathBuf,
    /// For example `6.12.117+deb13-amd64`: what modules have to be built for.
    pub kernel_release: String,
    /// The kernel's modules, as its packages have them.
    pub modules: PathBuf,
    /// What modules are built against, where no package has it.
    pub headers: Option<PathBuf>,
    /// The program that runs the image's first one.
    pub busybox: PathBuf,
    /// Names the content of both files.
    pub key: String,
    /// Names the kernel and what boots it, whatever programs the image holds.
    pub kernel_key: String,
    /// What a guest with it is given.
    pub memory_mib: u32,
}

impl Image {
    /// The image; built if the cache does not hold it. Call it with the cache's lock held.
    pub fn provide(
        cache: &Cache,
        debian: &mut Debian<'_>,
        kernel: GuestKernel,
        progress: &mut dyn Progress,
    ) -> Result<Image> {
        let found = Kernel::provide(cache, debian, kernel, progress)?;
        let key = ContentKey::new().part(&found.identity).part(INIT).part(APPLETS.join(" "));
        let key = key.part(SHARE_MODULES.join(" ")).part(LOADED_MODULES.join(" ")).name();
        if !cache.holds("images", &key) {
            progress.step(&format!("building the guest image with kernel {}", found.release));
        }
        let folder = cache.build_folder("images", &key, |folder| {
            cache.require_space("the guest image", 128 << 20)?;
            let image = folder.join("vmlinux");
            fs::write(&image, found.to_start()?).map_err(file("writing", &image))?;
            let wanted: &[&[&str]] = if found.is_our_own { &[] } else { &[SHARE_MODULES, LOADED_MODULES] };
            let modules = found.modules.join("kernel");
            let modules: Vec<PathBuf> = wanted.concat().iter().map(|module| modules.join(module)).collect();
            write_initial_file_system(&folder.join("initrd"), &found.busybox, &modules)
        })?;
        Ok(Image {
            kernel: folder.join("vmlinux"),
            packed_kernel: found.image,
            initial_file_system: folder.join("initrd"),
            kernel_release: found.release,
            modules: found.modules,
            headers: found.headers,
            busybox: found.busybox,
            kernel_key: key.clone(),
            key,
            memory_mib: memory_mib(kernel),
        })
    }

    /// The same with more behind it, which `append` adds to the file of the initial file system: the kernel unpacks one archive
    /// after the other. `key` names all of it; `bytes` is room enough.
    pub(crate) fn with_more(
        self,
        cache: &Cache,
        (key, what, bytes): (String, &str, u64),
        progress: &mut dyn Progress,
        append: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<Image> {
        if !cache.holds("images", &key) {
            progress.step(&format!("building {what} with kernel {}", self.kernel_release));
        }
        let folder = cache.build_folder("images", &key, |folder| {
            cache.require_space(what, bytes)?;
            let path = folder.join("initrd");
            fs::copy(&self.initial_file_system, &path).map_err(file("writing", &path))?;
            append(&path)
        })?;
        Ok(Image { initial_file_system: folder.join("initrd"), key, ..self })
    }
}

/// What a guest is given: a kernel that looks for faults keeps books about all of its memory.
fn memory_mib(kernel: GuestKernel) -> u32 {
    match kernel {
        GuestKernel::Stable | GuestKernel::Backports => MEMORY_MIB,
        GuestKernel::Debug => 1024,
    }
}

fn write_initial_file_system(path: &Path, busybox: &Path, modules: &[PathBuf]) -> Result<()> {
    let output = File::create(path).map_err(file("creation", path))?;
    let mut archive = CpioWriter::new(BufWriter::new(output));
    for directory in ["bin", "dev", "proc", "sys", "tmp", "lib", "lib/modules"] {
        archive.directory(directory)?;
    }
    // The kernel gives it to init as input and output, before devtmpfs is mounted.
    archive.character_device("dev/console", 5, 1)?;
    archive.file("init", 0o755, INIT.as_bytes())?;
    archive.file("bin/busybox", 0o755, &fs::read(busybox).map_err(file("reading", busybox))?)?;
    for applet in APPLETS {
        archive.symbolic_link(&format!("bin/{applet}"), "busybox")?;
    }
    for module in modules {
        let name = module.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let content = fs::read(module).map_err(file("reading", module))?;
        archive.file(&format!("lib/modules/{name}"), 0o644, &content)?;
    }
    archive.finish().map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_initial_file_system_holds_init_and_busybox() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let busybox = folder.path().join("busybox");
        fs::write(&busybox, b"a static program").expect("written");
        let module = folder.path().join("m.ko.xz");
        fs::write(&module, b"a module").expect("written");
        let path = folder.path().join("initrd");
        write_initial_file_system(&path, &busybox, std::slice::from_ref(&module)).expect("written");
        let bytes = fs::read(&path).expect("read");
        let holds = |needle: &[u8]| bytes.windows(needle.len()).any(|window| window == needle);
        assert!(holds(b"init\0") && holds(INIT.as_bytes()) && holds(b"a static program") && holds(b"bin/sh\0"));
        assert!(holds(b"lib/modules/m.ko.xz\0") && holds(b"a module"));
    }
}
