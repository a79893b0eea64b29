//! The guest image in which stock RDMA programs run on the adapter: Debian's `ibverbs-utils`, `perftest`, `rdma` and
//! their libraries, our kernel module and our rdma-core provider.
//!
//! In: the base [`Image`], Debian's packages, rdma-core's source, and our [`sources`]. Out: an [`Image`] with the same
//! kernel, whose initial file system is the base one followed by a second archive (the kernel unpacks both). Module and
//! provider are built in a [`workshop`] of unpacked packages; nothing is installed. Everything is kept by content, so a
//! changed source file costs its own build and no more.

mod archive;
mod module;
mod provider;
mod pyverbs;
pub mod sources;
pub mod user_module;
pub mod workshop;

use std::fs;

use crate::cache::{Cache, ContentKey};
use crate::debian::{Debian, PackageSet};
use crate::error::file;
use crate::image::Image;
use crate::options::GuestKernel;
use crate::{Progress, Result};
use workshop::Workshop;

/// What the image holds of Debian's programs, with all that they depend on.
const PROGRAMS: &[&str] = &["ibverbs-utils", "rdmacm-utils", "perftest", "qperf", "iproute2", "kmod"];
/// Of their files: programs and libraries.
const CONTENTS: &[&str] = &["usr/bin/", "usr/sbin/", "usr/lib/x86_64-linux-gnu/", "usr/lib64/"];

/// The image; built as far as the cache does not hold it. Call it with the cache's lock held.
pub fn provide(
    cache: &Cache,
    debian: &mut Debian<'_>,
    kernel: GuestKernel,
    progress: &mut dyn Progress,
) -> Result<Image> {
    let base = Image::provide(cache, debian, kernel, progress)?;
    let set = PackageSet::whole("rdma-programs", "trixie", PROGRAMS).cut_to(&[], CONTENTS);
    let programs = debian.provide(&set, progress)?;
    let workshop = Workshop::provide(debian, &base.kernel_release, progress)?;
    let modules = module::provide(cache, &workshop, &base, progress)?;
    let provider = provider::provide(cache, &workshop, debian, progress)?;
    let key = ContentKey::new()
        .part(&base.key)
        .part(&programs.manifest.tree)
        .part(modules.to_string_lossy().as_bytes())
        .part(provider.to_string_lossy().as_bytes())
        .part(archive::identity())
        .name();
    if !cache.folder().join("images").join(&key).is_dir() {
        progress.step(&format!("building the RDMA guest image with kernel {}", base.kernel_release));
    }
    let folder = cache.build_folder("images", &key, |folder| {
        cache.require_space("the RDMA guest image", 256 << 20)?;
        let path = folder.join("initrd");
        fs::copy(&base.initial_file_system, &path).map_err(file("writing", &path))?;
        archive::append(&path, &archive::Parts { programs: &programs.folder, modules: &modules, provider: &provider })
    })?;
    Ok(Image { initial_file_system: folder.join("initrd"), key, ..base })
}

/// Memory for Python, its library and a second program of it; the newer kernel and its modules take more themselves.
fn pyverbs_memory_mib(kernel: GuestKernel) -> u32 {
    match kernel {
        GuestKernel::Stable => 512,
        GuestKernel::Backports => 768,
    }
}

/// The same image with Python and rdma-core's own tests behind it: apart, so that the ordinary one stays small.
pub fn provide_pyverbs(
    cache: &Cache,
    debian: &mut Debian<'_>,
    kernel: GuestKernel,
    progress: &mut dyn Progress,
) -> Result<Image> {
    let base = provide(cache, debian, kernel, progress)?;
    let workshop = Workshop::provide(debian, &base.kernel_release, progress)?;
    let tests = pyverbs::provide(cache, &workshop, debian, progress)?;
    let key = ContentKey::new().part(&base.key).part(tests.to_string_lossy().as_bytes()).name();
    let folder = cache.build_folder("images", &key, |folder| {
        cache.require_space("the image with rdma-core's tests", 256 << 20)?;
        let path = folder.join("initrd");
        fs::copy(&base.initial_file_system, &path).map_err(file("writing", &path))?;
        archive::append_tree(&path, &tests)
    })?;
    Ok(Image { initial_file_system: folder.join("initrd"), key, memory_mib: pyverbs_memory_mib(kernel), ..base })
}
