//! A place to build in: Debian's compiler, kernel headers and build tools, unpacked, and a program running in them as in
//! a root of its own.
//!
//! In: what is to be built there, a folder to work in, a shell script. Out: what the script left in the folder, which it
//! sees as `/work`. The root is entered in namespaces that an ordinary user may make; where the host forbids that, by root.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::child;
use crate::deadline::Deadline;
use crate::debian::{Debian, PackageSet, Tree};
use crate::error::{file, tail};
use crate::image::Image;
use crate::{Error, Progress, Result};

const TOOLS: &[&str] = &[
    "bash",
    "binutils",
    "cmake",
    "coreutils",
    "dash",
    "diffutils",
    "findutils",
    "gcc",
    "gcc-14",
    "grep",
    "gzip",
    "kmod",
    "libc6-dev",
    "libnl-3-dev",
    "libnl-route-3-dev",
    "libudev-dev",
    "make",
    "mawk",
    "ninja-build",
    "perl",
    "pkgconf",
    "python3-minimal",
    "sed",
    "sparse",
    "tar",
    "xz-utils",
];
/// And what a kernel is built with: its source among them.
const KERNEL_TOOLS: &[&str] = &["bc", "bison", "flex", "libelf-dev", "linux-source-6.12"];
/// What those depend on and no build needs: the headers depend on the kernel, some library on an init system.
const LEFT_OUT: &[&str] = &["linux-image-", "linux-base", "systemd", "udev", "initramfs", "libsystemd-shared", "dpkg"];
/// Of the packages' files, those that a build needs.
const CONTENTS: &[&str] = &[
    "usr/bin/",
    "usr/sbin/",
    "usr/include/",
    "usr/src/",
    "usr/lib/linux-kbuild",
    "usr/lib/linux/",
    "usr/lib/gcc",
    "usr/libexec/gcc",
    "usr/lib/x86_64-linux-gnu/",
    "usr/lib64/",
    "usr/lib/python3",
    "usr/share/bison",
    "usr/share/cmake",
    "usr/share/perl",
    "usr/share/pkgconfig",
];
/// What Debian's base package would have made.
const LINKS: &[(&str, &str)] =
    &[("bin", "usr/bin"), ("sbin", "usr/sbin"), ("lib", "usr/lib"), ("lib64", "usr/lib64"), ("usr/bin/awk", "mawk")];
const FOLDERS: &[&str] = &["dev", "proc", "tmp", "work", "kernel"];
/// Where a kernel of our own is, for modules.
const KERNEL: &str = "/kernel";
/// Enters the root `$1` with the folder `$2` as `/work` and, if there is one, `$4` as [`KERNEL`], and runs the script `$3`.
const ENTER: &str = "mount -t proc proc \"$1/proc\"; mount --rbind /dev \"$1/dev\"; mount --bind \"$2\" \"$1/work\"; \
    [ -z \"$4\" ] || mount --bind \"$4\" \"$1/kernel\"; \
    exec chroot \"$1\" /usr/bin/env -i PATH=/usr/bin:/usr/sbin HOME=/work TMPDIR=/work LC_ALL=C bash -ec \"$3\"";
const PROBE_LIMIT: Duration = Duration::from_secs(20);

/// How the root is entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// In a user namespace: no right of the host is used.
    Unprivileged,
    /// By root, in a mount namespace.
    Root,
}

impl Way {
    /// The first way that this host allows.
    fn choose() -> Result<Way> {
        let mut refusals = Vec::new();
        for way in [Way::Unprivileged, Way::Root] {
            let mut command = way.command();
            command.args(["sh", "-c", "mount -t proc proc /proc"]);
            let output = child::run(command, &Deadline::new("trying to make namespaces", PROBE_LIMIT))?;
            if output.status.success() {
                return Ok(way);
            }
            refusals.push(tail(&output.standard_error));
        }
        Err(Error::Namespaces { unprivileged: refusals.remove(0), root: refusals.remove(0) })
    }

    fn command(self) -> Command {
        let mut command = Command::new("unshare");
        command.arg(if self == Way::Unprivileged { "-Urmpf" } else { "-mpf" }).arg("--kill-child");
        // chroot is an administrator's program, and may not be on the user's path.
        command.env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin");
        command
    }
}

/// What a script printed, and whether it came to its end.
#[derive(Debug)]
pub struct Printed {
    pub success: bool,
    pub text: String,
}

/// A root with tools, for one kernel or its modules.
#[derive(Debug)]
pub struct Workshop {
    tree: Tree,
    way: Way,
    /// The kernel that modules are built for: its folder in the workshop, and on this machine if no package has it.
    headers: String,
    own_kernel: Option<PathBuf>,
}

impl Workshop {
    /// For modules of an image's kernel. Fetches and unpacks what the cache does not hold; call it with the cache's lock held.
    pub fn for_modules(debian: &mut Debian<'_>, image: &Image, progress: &mut dyn Progress) -> Result<Workshop> {
        if let Some(headers) = &image.headers {
            let workshop = Workshop::for_kernels(debian, progress)?;
            return Ok(Workshop { own_kernel: Some(headers.clone()), headers: KERNEL.into(), ..workshop });
        }
        let headers = format!("linux-headers-{}", image.kernel_release);
        let workshop = Workshop::with(debian, "workshop", &[&headers], progress)?;
        Ok(Workshop { headers: format!("/usr/src/{headers}"), ..workshop })
    }

    /// For kernels: with what they are built with, and Debian's source in `/usr/src`.
    pub fn for_kernels(debian: &mut Debian<'_>, progress: &mut dyn Progress) -> Result<Workshop> {
        Workshop::with(debian, "kernel-workshop", KERNEL_TOOLS, progress)
    }

    fn with(debian: &mut Debian<'_>, name: &str, more: &[&str], progress: &mut dyn Progress) -> Result<Workshop> {
        let packages = [TOOLS, more].concat();
        let set = PackageSet::whole(name, "trixie", &packages).without(LEFT_OUT).cut_to(&[], CONTENTS);
        let tree = debian.provide(&set, progress)?;
        for folder in FOLDERS {
            let path = tree.folder.join(folder);
            fs::create_dir_all(&path).map_err(file("creation", &path))?;
        }
        for (link, target) in LINKS {
            let path = tree.folder.join(link);
            if path.symlink_metadata().is_err() {
                symlink(target, &path).map_err(file("creation", &path))?;
            }
        }
        Ok(Workshop { tree, way: Way::choose()?, headers: String::new(), own_kernel: None })
    }

    /// Names everything that a build in it depends on.
    pub fn identity(&self) -> String {
        // A kernel of our own lies in a folder that its content names.
        let kernel = self.own_kernel.as_ref().map(|kernel| kernel.display().to_string());
        self.tree.manifest.tree.clone() + &kernel.unwrap_or_default()
    }

    /// Where make finds the kernel that modules are built for.
    pub fn headers(&self) -> &str {
        &self.headers
    }

    pub fn way(&self) -> Way {
        self.way
    }

    /// Runs a script with `folder` as `/work`; its failure is an error with the last lines it printed.
    pub fn run(&self, step: &str, folder: &Path, script: &str, limit: Duration) -> Result<String> {
        let output = self.output(step, folder, script, limit)?.success(step)?;
        Ok(output.standard_output + &output.standard_error)
    }

    /// The same, and its failure is the caller's to tell of.
    pub fn try_run(&self, step: &str, folder: &Path, script: &str, limit: Duration) -> Result<Printed> {
        let output = self.output(step, folder, script, limit)?;
        Ok(Printed { success: output.status.success(), text: output.standard_output + &output.standard_error })
    }

    fn output(&self, step: &str, folder: &Path, script: &str, limit: Duration) -> Result<child::Output> {
        let mut command = self.way.command();
        command.args(["sh", "-ec", ENTER, "sh"]).arg(&self.tree.folder).arg(folder).arg(script);
        command.arg(self.own_kernel.as_deref().unwrap_or(Path::new("")));
        child::run(command, &Deadline::new(step, limit))
    }

    /// What a step says before it builds.
    pub fn announce(&self, what: &str, progress: &mut dyn Progress) {
        let way = match self.way {
            Way::Unprivileged => "in a user namespace",
            Way::Root => "as root, since this host allows no user namespaces",
        };
        progress.step(&format!("building {what} {way}"));
    }
}
