//! A place to build in: Debian's compiler, kernel headers and build tools, unpacked, and a program running in them as in
//! a root of its own.
//!
//! In: package names, a folder to work in, a shell script. Out: what the script left in the folder, which it sees as
//! `/work`. The root is entered in namespaces that an ordinary user may make; where the host forbids that, by root.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::child;
use crate::deadline::Deadline;
use crate::debian::{Debian, PackageSet, Tree};
use crate::error::{file, tail};
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
    "tar",
    "xz-utils",
];
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
    "usr/share/cmake",
    "usr/share/perl",
    "usr/share/pkgconfig",
];
/// What Debian's base package would have made.
const LINKS: &[(&str, &str)] =
    &[("bin", "usr/bin"), ("sbin", "usr/sbin"), ("lib", "usr/lib"), ("lib64", "usr/lib64"), ("usr/bin/awk", "mawk")];
const FOLDERS: &[&str] = &["dev", "proc", "tmp", "work"];
/// Enters the root `$1` with the folder `$2` as `/work` and runs the script `$3`.
const ENTER: &str = "mount -t proc proc \"$1/proc\"; mount --rbind /dev \"$1/dev\"; mount --bind \"$2\" \"$1/work\"; \
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

/// A root with tools, for one kernel.
#[derive(Debug)]
pub struct Workshop {
    tree: Tree,
    way: Way,
}

impl Workshop {
    /// Fetches and unpacks what the cache does not hold. Call it with the cache's lock held.
    pub fn provide(debian: &mut Debian<'_>, kernel_release: &str, progress: &mut dyn Progress) -> Result<Workshop> {
        let headers = format!("linux-headers-{kernel_release}");
        let mut packages = TOOLS.to_vec();
        packages.push(&headers);
        let set = PackageSet::whole("workshop", "trixie", &packages).without(LEFT_OUT).cut_to(&[], CONTENTS);
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
        Ok(Workshop { tree, way: Way::choose()? })
    }

    /// Names everything that a build in it depends on.
    pub fn identity(&self) -> &str {
        &self.tree.manifest.tree
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
