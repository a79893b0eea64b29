//! The guest image in which stock RDMA programs run on the adapter: Debian's `ibverbs-utils`, `perftest`, `rdma` and
//! their libraries, our kernel module and our rdma-core provider.
//!
//! In: the base [`Image`], Debian's packages, rdma-core's source, and our [`sources`]. Out: an [`Image`] with the same
//! kernel, whose initial file system is the base one followed by a second archive (the kernel unpacks both). Module and
//! provider are built in a [`Workshop`] of unpacked packages; nothing is installed. Everything is kept by content, so a
//! changed source file costs its own build and no more.

mod archive;
mod module;
mod provider;
mod pyverbs;
pub mod sources;
pub mod user_module;

use crate::cache::{Cache, ContentKey};
use crate::debian::{Debian, PackageSet};
use crate::image::Image;
use crate::image::tree::append_tree;
use crate::options::GuestKernel;
use crate::workshop::Workshop;
use crate::{Progress, Result};
pub use provider::NEWER;

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
    let workshop = Workshop::for_modules(debian, &base, progress)?;
    let modules = module::provide(cache, &workshop, &base, progress)?;
    let provider = provider::provide(cache, &workshop, debian, progress)?;
    let key = ContentKey::new()
        .part(&base.key)
        .part(&programs.manifest.tree)
        .part(modules.to_string_lossy().as_bytes())
        .part(provider.to_string_lossy().as_bytes())
        .part(archive::identity())
        .name();
    base.with_more(cache, (key, "the RDMA guest image", 256 << 20), progress, |path| {
        archive::append(path, &archive::Parts { programs: &programs.folder, modules: &modules, provider: &provider })
    })
}

/// Memory for Python, its library and a second program of it; the newer kernel and its modules take more themselves.
fn pyverbs_memory_mib(kernel: GuestKernel) -> u32 {
    match kernel {
        GuestKernel::Stable => 512,
        GuestKernel::Backports => 768,
        GuestKernel::Debug => 1536,
    }
}

/// The same image with Python and rdma-core's own tests behind it, and the newer rdma-core: apart, so that the ordinary one stays
/// small.
pub fn provide_pyverbs(
    cache: &Cache,
    debian: &mut Debian<'_>,
    kernel: GuestKernel,
    progress: &mut dyn Progress,
) -> Result<Image> {
    let base = provide(cache, debian, kernel, progress)?;
    let workshop = Workshop::for_modules(debian, &base, progress)?;
    let tests = pyverbs::provide(cache, &workshop, debian, progress)?;
    let newer = provider::provide_newer(cache, &workshop, debian, progress)?;
    let parts = [&tests, &newer];
    let key = ContentKey::new().part(&base.key);
    let key = parts.iter().fold(key, |key, part| key.part(part.to_string_lossy().as_bytes())).name();
    let image = base.with_more(cache, (key, "the image with rdma-core's tests", 256 << 20), progress, |path| {
        parts.iter().try_for_each(|part| append_tree(path, part, &|_| true))
    })?;
    Ok(Image { memory_mib: pyverbs_memory_mib(kernel), ..image })
}
