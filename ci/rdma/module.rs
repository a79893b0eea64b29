//! The guest's kernel modules: ours, built for the image's kernel, and those of Debian's kernel that it stands on; beside
//! them `rnic_kernel_user`, which is not loaded until a test does: a user of RDMA inside the kernel.
//!
//! Out: a folder `lib/modules/<release>` as modprobe wants it, everything unpacked and without debug information, which
//! halves the time of loading.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::sources::{self, HEADERS, MODULE};
use super::workshop::Workshop;
use crate::cache::{Cache, ContentKey};
use crate::error::file;
use crate::image::Image;
use crate::{Progress, Result};

const LIMIT: Duration = Duration::from_secs(600);
/// Modules that a test loads.
macro_rules! kernel_user {
    ($($name:literal)*) => { &[$(($name, include_str!(concat!("kernel_user/", $name)))),*] };
}
const KERNEL_USER: sources::Folder =
    kernel_user!("Kbuild" "connection.c" "fast_region.c" "messages.c" "moderation.c" "module.c" "stage.h");
/// `$1` is the release. W=1 and -Werror: a warning in our code is a failed build.
const SCRIPT: &str = "set -- RELEASE
for folder in linux user; do
    make -j2 -C /usr/src/linux-headers-$1 M=/work/$folder W=1 KCFLAGS=-Werror modules
done
cd /work/root/lib/modules/$1
rm -f vmlinuz config
mkdir extra
mv /work/linux/rnic.ko /work/user/rnic_kernel_user.ko extra/
find . -name '*.ko.xz' -exec xz -d {} +
find . -name '*.ko' -exec strip -g {} +
depmod -b /work/root $1";

/// The folder that goes into the image as its root.
pub fn provide(cache: &Cache, workshop: &Workshop, base: &Image, progress: &mut dyn Progress) -> Result<PathBuf> {
    let release = &base.kernel_release;
    let key = ContentKey::new()
        .part(workshop.identity())
        .part(&base.tree.manifest.tree)
        .part(sources::key(&[MODULE, HEADERS, KERNEL_USER]))
        .part(SCRIPT)
        .name();
    if !cache.folder().join("modules").join(&key).is_dir() {
        workshop.announce(&format!("the kernel module for {release}"), progress);
    }
    cache.build_folder("modules", &key, |folder| {
        let work = cache.build_beside(&cache.sub_folder("modules")?)?;
        sources::write(&[MODULE], &work.path().join("linux"))?;
        sources::write(&[HEADERS], &work.path().join("include"))?;
        sources::write(&[KERNEL_USER], &work.path().join("user"))?;
        let root = work.path().join("root");
        let modules = Path::new("lib/modules").join(release);
        copy(&base.tree.folder.join("usr").join(&modules), &root.join(&modules))?;
        workshop.run("building the kernel module", work.path(), &SCRIPT.replace("RELEASE", release), LIMIT)?;
        let (from, to) = (root.join("lib"), folder.join("lib"));
        fs::rename(&from, &to).map_err(file("renaming", &from))
    })
}

pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).map_err(file("creation", to))?;
    for entry in fs::read_dir(from).map_err(file("look-up", from))?.flatten() {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_symlink() {
            let pointed = fs::read_link(&path).map_err(file("look-up", &path))?;
            symlink(pointed, &target).map_err(file("creation", &target))?;
        } else if path.is_dir() {
            copy(&path, &target)?;
        } else {
            fs::copy(&path, &target).map_err(file("copying", &path))?;
        }
    }
    Ok(())
}
