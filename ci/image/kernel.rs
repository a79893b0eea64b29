//! The kernel of an image, where it lies unpacked: one of Debian's packages, or the one of our own that finds faults.

use std::fs;
use std::path::{Path, PathBuf};

use super::vmlinux;
use crate::cache::Cache;
use crate::debian::{Debian, PackageSet};
use crate::error::file;
use crate::options::GuestKernel;
use crate::{Error, Progress, Result, debug_kernel};

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

/// A kernel, and the busybox that its first program is run by.
#[derive(Debug)]
pub struct Kernel {
    /// A bzImage.
    pub image: PathBuf,
    pub release: String,
    /// With `modules.builtin` and what else depmod wants.
    pub modules: PathBuf,
    /// What modules are built against, where no package has it.
    pub headers: Option<PathBuf>,
    pub busybox: PathBuf,
    /// What every guest wants is built in, and the image starts as it is.
    pub is_our_own: bool,
    /// Names the content of all of these.
    pub identity: String,
}

impl Kernel {
    /// Fetched, or built, if the cache does not hold it. Call it with the cache's lock held.
    pub fn provide(
        cache: &Cache,
        debian: &mut Debian<'_>,
        kernel: GuestKernel,
        progress: &mut dyn Progress,
    ) -> Result<Kernel> {
        match kernel {
            GuestKernel::Stable | GuestKernel::Backports => Kernel::of_packages(debian, kernel, progress),
            GuestKernel::Debug => Kernel::of_our_own(cache, debian, progress),
        }
    }

    fn of_packages(debian: &mut Debian<'_>, kernel: GuestKernel, progress: &mut dyn Progress) -> Result<Kernel> {
        let (packages, mut contents) = parts(kernel);
        contents.extend_from_slice(&["usr/bin/busybox", "/modules.builtin", "/modules.order"]);
        contents.extend_from_slice(MODULES);
        let set = PackageSet::whole("guest", kernel.suite(), &["linux-image-amd64", "busybox-static"]);
        let tree = debian.provide(&set.cut_to(packages, &contents), progress)?;
        let (image, release) = match kernel {
            GuestKernel::Backports => find_kernel_with_modules(&tree.folder.join("usr/lib/modules"))?,
            _ => find_kernel(&tree.folder.join("boot"))?,
        };
        let series = kernel.series();
        if !release.starts_with(&format!("{series}.")) {
            let reason = format!("{} has Linux {release} now, and not {series}", kernel.suite());
            return Err(Error::Kernel { path: image, reason });
        }
        Ok(Kernel {
            image,
            modules: tree.folder.join("usr/lib/modules").join(&release),
            release,
            headers: None,
            busybox: tree.folder.join("usr/bin/busybox"),
            is_our_own: false,
            identity: tree.manifest.tree,
        })
    }

    fn of_our_own(cache: &Cache, debian: &mut Debian<'_>, progress: &mut dyn Progress) -> Result<Kernel> {
        let set = PackageSet::whole("busybox", "trixie", &["busybox-static"]);
        let tree = debian.provide(&set.cut_to(&["busybox-static"], &["usr/bin/busybox"]), progress)?;
        let built = debug_kernel::provide(cache, debian, progress)?;
        Ok(Kernel {
            identity: format!("{} {}", tree.manifest.tree, built.image.display()),
            image: built.image,
            release: built.release,
            modules: built.modules,
            headers: Some(built.headers),
            busybox: tree.folder.join("usr/bin/busybox"),
            is_our_own: true,
        })
    }

    /// What QEMU starts: the bare ELF image, if it can.
    pub fn to_start(&self) -> Result<Vec<u8>> {
        let packed = fs::read(&self.image).map_err(file("reading", &self.image))?;
        if self.is_our_own { Ok(packed) } else { vmlinux::extract(&packed, &self.image) }
    }
}

/// The packages that a kernel is in, and where in them it lies.
fn parts(kernel: GuestKernel) -> (&'static [&'static str], Vec<&'static str>) {
    match kernel {
        // One package has the kernel, one its modules, one what is built in.
        GuestKernel::Backports => {
            (&["linux-binary-", "linux-modules-", "linux-base-", "busybox-static"], vec!["/vmlinuz", "-amd64/config"])
        }
        _ => (&["linux-image-", "busybox-static"], vec!["boot/vmlinuz-", "boot/config-"]),
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

#[cfg(test)]
mod tests {
    use super::*;

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
