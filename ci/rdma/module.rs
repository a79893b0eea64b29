//! The guest's kernel modules: ours, built for the image's kernel, and those of Debian's kernel that it stands on; beside
//! them two that are not loaded until a test does: `rnic_kernel_user`, a user of RDMA inside the kernel, and
//! `rnic_kernel_faults`, which does what a kernel that looks for faults has to find.
//!
//! Out: a folder `lib/modules/<release>` as modprobe wants it, everything unpacked and without debug information, which
//! halves the time of loading.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::sources::{self, HEADERS, MODULE};
use crate::cache::{Cache, ContentKey};
use crate::error::file;
use crate::image::Image;
use crate::workshop::Workshop;
use crate::{Progress, Result};

const LIMIT: Duration = Duration::from_secs(600);
/// Modules that a test loads.
macro_rules! kernel_user {
    ($($name:literal)*) => { &[$(($name, include_str!(concat!("kernel_user/", $name)))),*] };
}
const KERNEL_USER: sources::Folder =
    kernel_user!("Kbuild" "connection.c" "fast_region.c" "messages.c" "moderation.c" "module.c" "stage.h");
const KERNEL_FAULTS: sources::Folder = &[
    ("Kbuild", include_str!("kernel_faults/Kbuild")),
    ("rnic_kernel_faults.c", include_str!("kernel_faults/rnic_kernel_faults.c")),
];
/// `$1` is the release, `$2` where the kernel is. A warning in our code is a failed build: the compiler's with W=1, sparse's, which
/// does not understand the headers of kernels from 7 on, and those of the kernel's judge of style where its whole source was
/// unpacked; kernels within one version are not what it is told of here.
const SCRIPT: &str = "cd /work
set -- RELEASE KERNEL
case $1 in 6.*) check=1 ;; *) check=0 ;; esac
if [ -e $2/scripts/checkpatch.pl ]; then
    perl $2/scripts/checkpatch.pl --no-tree --root=$2 --terse --strict --max-line-length=120 --no-summary \
        --ignore LINUX_VERSION_CODE,CONSTANT_COMPARISON,MACRO_WITH_FLOW_CONTROL,MACRO_ARG_UNUSED -f linux/*.[ch] include/rnic_uverbs.h user/*.[ch] faults/*.c
fi
for folder in linux user faults; do
    make -j2 -C $2 M=/work/$folder W=1 C=$check CF='-D__CHECK_ENDIAN__ -Wsparse-error' KCFLAGS=-Werror modules
done
cd /work/root/lib/modules/$1
rm -f vmlinuz config
mkdir extra
mv /work/linux/rnic.ko /work/user/rnic_kernel_user.ko /work/faults/rnic_kernel_faults.ko extra/
find . -name '*.ko.xz' -exec xz -d {} +
find . -name '*.ko' -exec strip -g {} +
depmod -b /work/root $1";

/// The folder that goes into the image as its root.
pub fn provide(cache: &Cache, workshop: &Workshop, base: &Image, progress: &mut dyn Progress) -> Result<PathBuf> {
    let release = &base.kernel_release;
    let key = ContentKey::new()
        .part(workshop.identity())
        .part(base.modules.to_string_lossy().as_bytes())
        .part(sources::key(&[MODULE, HEADERS, KERNEL_USER, KERNEL_FAULTS]))
        .part(SCRIPT)
        .name();
    if !cache.holds("modules", &key) {
        workshop.announce(&format!("the kernel module for {release}"), progress);
    }
    cache.build_folder("modules", &key, |folder| {
        let work = cache.build_beside(&cache.sub_folder("modules")?)?;
        sources::write(&[MODULE], &work.path().join("linux"))?;
        sources::write(&[HEADERS], &work.path().join("include"))?;
        sources::write(&[KERNEL_USER], &work.path().join("user"))?;
        sources::write(&[KERNEL_FAULTS], &work.path().join("faults"))?;
        let root = work.path().join("root");
        let modules = Path::new("lib/modules").join(release);
        copy(&base.modules, &root.join(&modules))?;
        let script = SCRIPT.replace("RELEASE", release).replace("KERNEL", workshop.headers());
        workshop.run("building the kernel module", work.path(), &script, LIMIT)?;
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
