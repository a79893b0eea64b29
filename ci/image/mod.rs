//! The guest image: a Debian kernel as bare ELF, and an initial file system with busybox and our own [`init`](INIT).
//!
//! In: the packages `linux-image-amd64` (the flavour that has rdma_rxe; virtio console, PCI hot-plug and PVH are built
//! in), of trixie or of its backports, and `busybox-static`. Out: [`Image`]: two files that QEMU boots. The initial file system stays uncompressed: a
//! guest without hardware acceleration unpacks slower than the host reads.

pub mod cpio;
pub mod vmlinux;

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use crate::cache::{Cache, ContentKey};
use crate::debian::{Debian, PackageSet, Tree};
use crate::error::file;
use crate::guest::machine::MEMORY_MIB;
use crate::options::GuestKernel;
use crate::{Error, Progress, Result};
use cpio::CpioWriter;

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

/// Kernel modules that are unpacked beside the image, for those who want them in a guest: RDMA with the software
/// device, its checksum, and the network driver it needs.
const MODULES: &[&str] = &[
    "/kernel/drivers/infiniband/core/",
    "/kernel/drivers/infiniband/sw/",
    "/kernel/crypto/crc32_generic.ko",
    "/kernel/arch/x86/crypto/crc32-pclmul.ko",
    "/kernel/drivers/net/virtio_net.ko",
    "/kernel/drivers/net/net_failover.ko",
    "/kernel/net/core/failover.ko",
    "/kernel/net/ipv4/udp_tunnel.ko",
    "/kernel/net/ipv6/ip6_udp_tunnel.ko",
    "/kernel/fs/9p/",
    "/kernel/fs/configfs/configfs.ko",
    "/kernel/fs/netfs/",
    "/kernel/net/9p/",
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
    pub initial_file_system: PathBuf,
    /// For example `6.12.117+deb13-amd64`: what modules have to be built for.
    pub kernel_release: String,
    /// The kernel packages' tree: modules lie below `usr/lib/modules/<release>`.
    pub tree: Tree,
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
        let (packages, mut contents) = parts(kernel);
        contents.extend_from_slice(&["usr/bin/busybox", "/modules.builtin", "/modules.order"]);
        contents.extend_from_slice(MODULES);
        let set = PackageSet::whole("guest", kernel.suite(), &["linux-image-amd64", "busybox-static"]);
        let tree = debian.provide(&set.cut_to(packages, &contents), progress)?;
        let (packed_kernel, kernel_release) = match kernel {
            GuestKernel::Stable => find_kernel(&tree.folder.join("boot"))?,
            GuestKernel::Backports => find_kernel_with_modules(&tree.folder.join("usr/lib/modules"))?,
        };
        let series = kernel.series();
        if !kernel_release.starts_with(&format!("{series}.")) {
            let reason = format!("{} has Linux {kernel_release} now, and not {series}", kernel.suite());
            return Err(Error::Kernel { path: packed_kernel, reason });
        }
        let key = ContentKey::new().part(&tree.manifest.tree).part(INIT).part(APPLETS.join(" "));
        let key = key.part(SHARE_MODULES.join(" ")).part(LOADED_MODULES.join(" ")).name();
        if !cache.folder().join("images").join(&key).is_dir() {
            progress.step(&format!("building the guest image with kernel {kernel_release}"));
        }
        let folder = cache.build_folder("images", &key, |folder| {
            cache.require_space("the guest image", 128 << 20)?;
            let packed = fs::read(&packed_kernel).map_err(file("reading", &packed_kernel))?;
            let kernel = folder.join("vmlinux");
            fs::write(&kernel, vmlinux::extract(&packed, &packed_kernel)?).map_err(file("writing", &kernel))?;
            let modules = tree.folder.join("usr/lib/modules").join(&kernel_release).join("kernel");
            let modules: Vec<PathBuf> =
                SHARE_MODULES.iter().chain(LOADED_MODULES).map(|module| modules.join(module)).collect();
            write_initial_file_system(&folder.join("initrd"), &tree.folder.join("usr/bin/busybox"), &modules)
        })?;
        Ok(Image {
            kernel: folder.join("vmlinux"),
            initial_file_system: folder.join("initrd"),
            kernel_release,
            tree,
            kernel_key: key.clone(),
            key,
            memory_mib: MEMORY_MIB,
        })
    }
}

/// The packages that a kernel is in, and where in them it lies.
fn parts(kernel: GuestKernel) -> (&'static [&'static str], Vec<&'static str>) {
    match kernel {
        GuestKernel::Stable => (&["linux-image-", "busybox-static"], vec!["boot/vmlinuz-", "boot/config-"]),
        // One package has the kernel, one its modules, one what is built in.
        GuestKernel::Backports => {
            (&["linux-binary-", "linux-modules-", "linux-base-", "busybox-static"], vec!["/vmlinuz", "-amd64/config"])
        }
    }
}

/// A kernel beside its modules, and its release.
fn find_kernel_with_modules(releases: &Path) -> Result<(PathBuf, String)> {
    let entries = fs::read_dir(releases).map_err(file("look-up", releases))?.flatten();
    let mut kernels: Vec<(PathBuf, String)> = entries
        .filter_map(|entry| Some((entry.path().join("vmlinuz"), entry.file_name().into_string().ok()?)))
        .filter(|(kernel, _)| kernel.is_file())
        .collect();
    kernels.sort();
    kernels
        .pop()
        .ok_or_else(|| Error::Kernel { path: releases.to_path_buf(), reason: "no folder in it holds a vmlinuz".into() })
}

/// A kernel of the boot folder, and its release.
fn find_kernel(boot: &Path) -> Result<(PathBuf, String)> {
    let entries = fs::read_dir(boot).map_err(file("look-up", boot))?.flatten().map(|entry| entry.path());
    let mut kernels: Vec<PathBuf> = entries
        .filter(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("vmlinuz-")))
        .collect();
    kernels.sort();
    let kernel = kernels
        .pop()
        .ok_or_else(|| Error::Kernel { path: boot.to_path_buf(), reason: "the folder holds no vmlinuz".into() })?;
    let release = kernel.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix("vmlinuz-"));
    let release = release.unwrap_or_default().to_owned();
    Ok((kernel, release))
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

    #[test]
    fn the_newest_kernel_is_taken_and_none_is_an_error() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        assert!(matches!(find_kernel(folder.path()), Err(Error::Kernel { .. })));
        for name in ["config-6.12.1", "vmlinuz-6.12.1", "vmlinuz-6.12.2"] {
            fs::write(folder.path().join(name), b"").expect("written");
        }
        let (kernel, release) = find_kernel(folder.path()).expect("found");
        assert!(kernel.ends_with("vmlinuz-6.12.2"));
        assert_eq!(release, "6.12.2");
        assert!(matches!(find_kernel_with_modules(folder.path()), Err(Error::Kernel { .. })));
        fs::create_dir(folder.path().join("7.3.4")).expect("made");
        fs::write(folder.path().join("7.3.4/vmlinuz"), b"").expect("written");
        let (kernel, release) = find_kernel_with_modules(folder.path()).expect("found");
        assert!(kernel.ends_with("7.3.4/vmlinuz"));
        assert_eq!(release, "7.3.4");
    }
}
