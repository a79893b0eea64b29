//! Unpacking of package files without root, without scripts and without touching anything outside the target folder.

use std::io::Read;
use std::path::{Component, Path};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::child::Child;
use crate::deadline::Deadline;
use crate::{Error, Result};

/// A package of the kernel's size takes some seconds on a slow machine.
const UNPACK_LIMIT: Duration = Duration::from_secs(300);

/// Calls `visit` for each member of the package's file tree: path without a leading `./`, and the member itself.
pub fn for_each_member(
    package_file: &Path,
    mut visit: impl FnMut(&Path, &mut tar::Entry<'_, &mut dyn Read>) -> Result<()>,
) -> Result<()> {
    let refused = |reason: String| Error::Package { file: package_file.display().to_string(), reason };
    let deadline = Deadline::new(format!("unpacking {}", package_file.display()), UNPACK_LIMIT);
    let mut command = Command::new("dpkg-deb");
    command.arg("--fsys-tarfile").arg(package_file).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = Child::start(command).map_err(|error| match error {
        Error::Start { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            Error::AptMissing { program: "dpkg-deb".into() }
        }
        other => other,
    })?;
    let mut output = child.take_standard_output().ok_or_else(|| refused("dpkg-deb has no output".into()))?;
    let reader: &mut dyn Read = &mut output;
    let mut archive = tar::Archive::new(reader);
    for member in archive.entries().map_err(|error| refused(error.to_string()))? {
        let mut member = member.map_err(|error| refused(error.to_string()))?;
        let path = member.path().map_err(|error| refused(error.to_string()))?.into_owned();
        let path = plain_path(&path).ok_or_else(|| refused(format!("{} leads out of the folder", path.display())))?;
        visit(&path, &mut member)?;
        deadline.remaining()?;
    }
    // Padding after the last member, so that dpkg-deb does not end by a broken pipe.
    std::io::copy(&mut output, &mut std::io::sink()).map_err(|error| refused(error.to_string()))?;
    let status = child.wait(&deadline)?;
    if status.success() { Ok(()) } else { Err(refused(format!("dpkg-deb ended with {status}"))) }
}

/// Unpacks the members that `takes` wants into `folder`.
pub fn unpack(package_file: &Path, folder: &Path, takes: impl Fn(&str) -> bool) -> Result<()> {
    let refused = |reason: String| Error::Package { file: package_file.display().to_string(), reason };
    for_each_member(package_file, |path, member| {
        let kind = member.header().entry_type();
        let wanted = kind.is_file() || kind.is_symlink() || kind.is_hard_link() || kind.is_dir();
        if !wanted || path.as_os_str().is_empty() || !path.to_str().is_some_and(&takes) {
            return Ok(());
        }
        // unpack_in refuses to write through a symbolic link that leads out of the folder.
        match member.unpack_in(folder) {
            Ok(true) => Ok(()),
            Ok(false) => Err(refused(format!("{} leads out of the folder", path.display()))),
            Err(error) => Err(refused(format!("{}: {error}", path.display()))),
        }
    })
}

/// The path without `./`, if it stays inside.
fn plain_path(path: &Path) -> Option<std::path::PathBuf> {
    let mut plain = std::path::PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => plain.push(name),
            Component::CurDir => {}
            Component::RootDir | Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_inside() {
        assert_eq!(plain_path(Path::new("./usr/bin/x")).as_deref(), Some(Path::new("usr/bin/x")));
        assert_eq!(plain_path(Path::new("./")).as_deref(), Some(Path::new("")));
        assert_eq!(plain_path(Path::new("usr/../../x")), None);
        assert_eq!(plain_path(Path::new("/etc/passwd")), None);
    }

    #[test]
    fn something_else_than_a_package_is_refused() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("x.deb");
        std::fs::write(&path, b"no package").expect("written");
        assert!(matches!(unpack(&path, folder.path(), |_| true), Err(Error::Package { .. })));
    }
}
