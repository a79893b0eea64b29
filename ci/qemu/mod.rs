//! A QEMU that can be a vfio-user client, and the ways to talk to it.
//!
//! In: a program named by the caller, the one on PATH, or Debian's package, in that order. Out: [`Qemu`], from which
//! commands are made that run it, whether it is installed or only unpacked. [`qmp`] controls a running one, [`qtest`]
//! drives a machine without a guest, [`trace`] lets QEMU itself say what crossed its vfio-user socket.

pub mod qmp;
pub mod qtest;
mod run_folder;
mod running;
pub mod trace;
mod version;

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::child;
use crate::deadline::Deadline;
use crate::debian::{Debian, PackageSet, Tree};
use crate::{Error, Options, Progress, Result};
pub use run_folder::RunFolder;
pub use running::{Awaited, Running};
pub use version::{DEVICE, OLDEST, Version, judge};

const PROGRAM: &str = "qemu-system-x86_64";
const QUESTION_LIMIT: Duration = Duration::from_secs(20);
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// A QEMU program that was asked what it is.
#[derive(Debug, Clone)]
pub struct Qemu {
    program: PathBuf,
    prefix: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    version: Version,
    identity: String,
}

impl Qemu {
    /// The program that the options name, or one on PATH that will do, or the one in Debian's package.
    pub fn provide(options: &Options, debian: &mut Debian<'_>, progress: &mut dyn Progress) -> Result<Qemu> {
        if let Some(path) = &options.qemu {
            let refused = |reason: String| Error::QemuRefused {
                path: path.clone(),
                reason: format!("{reason} (RNIC_QEMU or the options name it)"),
            };
            return Qemu::ask(Candidate::installed(path.clone())).map_err(refused);
        }
        if let Some(path) = on_path(env::var_os("PATH")) {
            match Qemu::ask(Candidate::installed(path.clone())) {
                Ok(qemu) => return Ok(qemu),
                Err(reason) => progress.step(&format!("{} is passed over: {reason}", path.display())),
            }
        }
        let tree = debian.provide(&PackageSet::whole("qemu", "trixie-backports", &["qemu-system-x86"]), progress)?;
        let refused = |reason| Error::QemuRefused { path: tree.folder.clone(), reason };
        Qemu::ask(Candidate::unpacked(&tree)).map_err(refused)
    }

    /// Runs the candidate with `-version` and `-device help`, and judges the answers.
    fn ask(candidate: Candidate) -> std::result::Result<Qemu, String> {
        let answer = |arguments: &[&str]| -> std::result::Result<String, String> {
            let mut command = candidate.command();
            command.args(arguments);
            let deadline = Deadline::new(format!("asking QEMU for {}", arguments.join(" ")), QUESTION_LIMIT);
            let tried = format!("{} {}", candidate.program.display(), arguments.join(" "));
            let output = child::run(command, &deadline).map_err(|error| error.to_string())?;
            if !output.status.success() {
                let printed = crate::error::tail(&format!("{}\n{}", output.standard_output, output.standard_error));
                let printed = if printed.is_empty() { "printed nothing".into() } else { format!("said: {printed}") };
                return Err(format!("`{tried}` ended with {} and {printed}", output.status));
            }
            Ok(output.standard_output)
        };
        let version_text = answer(&["-version"])?;
        let version = judge(&version_text, &answer(&["-device", "help"])?)?;
        let line = version_text.lines().next().unwrap_or_default();
        let identity = format!("{line} {}", candidate.program.display());
        let Candidate { program, prefix, environment } = candidate;
        Ok(Qemu { program, prefix, environment, version, identity })
    }

    /// A command that runs this QEMU; arguments are added to it.
    pub fn command(&self) -> Command {
        command(&self.program, &self.prefix, &self.environment)
    }

    pub fn version(&self) -> Version {
        self.version
    }

    /// Its version line and where it is: part of the key of whatever only this build can read back.
    pub fn identity(&self) -> &str {
        &self.identity
    }
}

struct Candidate {
    program: PathBuf,
    prefix: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

impl Candidate {
    fn installed(program: PathBuf) -> Candidate {
        Candidate { program, prefix: Vec::new(), environment: Vec::new() }
    }

    /// An unpacked package runs through its own loader, since the host's C library may be older, and is told where its
    /// data and modules are, since they are not where it was built for.
    fn unpacked(tree: &Tree) -> Candidate {
        let root = &tree.folder;
        let mut prefix = loader_prefix(root, &[]);
        prefix.push(root.join("usr/bin").join(PROGRAM).into());
        for data in ["usr/share/qemu", "usr/share/seabios"] {
            prefix.extend(["-L".into(), root.join(data).into()]);
        }
        let environment = vec![("QEMU_MODULE_DIR".into(), root.join(LIBRARIES).join("qemu").into())];
        Candidate { program: loader(root), prefix, environment }
    }

    fn command(&self) -> Command {
        command(&self.program, &self.prefix, &self.environment)
    }
}

fn command(program: &Path, prefix: &[OsString], environment: &[(OsString, OsString)]) -> Command {
    let mut command = Command::new(program);
    command.args(prefix).envs(environment.iter().cloned());
    command
}

/// The dynamic loader in a tree of unpacked packages.
pub(crate) fn loader(root: &Path) -> PathBuf {
    root.join(LIBRARIES).join("ld-linux-x86-64.so.2")
}

/// What the loader is told before the program's path: where the tree's libraries are, further folders first.
pub(crate) fn loader_prefix(root: &Path, further: &[PathBuf]) -> Vec<OsString> {
    let mut folders: Vec<PathBuf> = further.to_vec();
    folders.push(root.join(LIBRARIES));
    let joined = env::join_paths(folders).unwrap_or_default();
    vec!["--library-path".into(), joined]
}

fn on_path(path: Option<OsString>) -> Option<PathBuf> {
    env::split_paths(&path?).map(|folder| folder.join(PROGRAM)).find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Silent;
    use crate::cache::Cache;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn script(folder: &Path, version: &str) -> PathBuf {
        let path = folder.join(PROGRAM);
        let text = format!(
            "#!/bin/sh\nif [ \"$1\" = -version ]; then echo 'QEMU emulator version {version}'; else echo 'name \"vfio-user-pci\", bus PCI'; fi\n"
        );
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
        path
    }

    #[test]
    fn a_named_qemu_must_do_and_a_new_one_does() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut options = Options {
            cache_folder: Some(folder.path().join("cache")),
            offline: true,
            qemu: Some(script(folder.path(), "10.0.13")),
            ..Options::default()
        };
        let cache = Cache::open(&options).expect("a cache");
        let refused = Qemu::provide(&options, &mut Debian::new(&cache, &options), &mut Silent);
        assert!(
            matches!(&refused, Err(Error::QemuRefused { reason, .. }) if reason.contains("10.0.13")),
            "{refused:?}"
        );

        options.qemu = Some(script(folder.path(), "11.2.0"));
        let qemu = Qemu::provide(&options, &mut Debian::new(&cache, &options), &mut Silent).expect("it will do");
        assert_eq!(qemu.version().to_string(), "11.2.0");

        options.qemu = Some(folder.path().join("missing"));
        let refused = Qemu::provide(&options, &mut Debian::new(&cache, &options), &mut Silent);
        assert!(matches!(refused, Err(Error::QemuRefused { .. })));
    }

    #[test]
    fn a_program_that_is_no_qemu_is_named_with_what_was_tried() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut options =
            Options { cache_folder: Some(folder.path().join("cache")), offline: true, ..Options::default() };
        let cache = Cache::open(&options).expect("a cache");
        for (program, expected) in [
            ("/bin/false", "`/bin/false -version` ended with exit status: 1 and printed nothing"),
            ("/bin/true", "its version cannot be read from \"\""),
        ] {
            options.qemu = Some(program.into());
            let refused = Qemu::provide(&options, &mut Debian::new(&cache, &options), &mut Silent);
            let sentence = refused.expect_err("no QEMU").to_string();
            assert!(sentence.contains(program) && sentence.contains(expected), "{sentence}");
        }
    }

    #[test]
    fn the_path_is_searched_in_order() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let program = script(folder.path(), "11.1.0");
        let path = env::join_paths([Path::new("/nowhere"), folder.path()]).expect("a path");
        assert_eq!(on_path(Some(path)), Some(program));
        assert_eq!(on_path(None), None);
    }
}
