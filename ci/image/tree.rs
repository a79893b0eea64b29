//! Folders of this machine as archives of the initial file system, in an order that depends on their content alone.

use std::fs::{self, File};
use std::io::BufWriter;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::cpio::CpioWriter;
use crate::error::file;
use crate::{Error, Result};

/// Appends another archive to the file, with what is wanted of all that is below `root`.
pub(crate) fn append_tree(path: &Path, root: &Path, takes: &dyn Fn(&str) -> bool) -> Result<()> {
    let output = File::options().append(true).open(path).map_err(file("opening", path))?;
    let mut archive = CpioWriter::new(BufWriter::new(output));
    // Where programs look for their loader.
    archive.symbolic_link("lib64", "usr/lib64")?;
    add_tree(&mut archive, root, "", takes)?;
    archive.finish().map(|_| ())
}

/// The files and links of one folder whose names are wanted, sorted, so that the archive depends on content only.
pub(crate) fn add(
    archive: &mut CpioWriter<BufWriter<File>>,
    root: &Path,
    folder: &str,
    takes: &dyn Fn(&str) -> bool,
) -> Result<()> {
    archive.directory(folder)?;
    for name in names(&root.join(folder))? {
        let path = root.join(folder).join(&name);
        if takes(&name) && !path.is_dir() {
            add_file(archive, &path, &format!("{folder}/{name}"))?;
        }
    }
    Ok(())
}

/// A folder with all that is in it, but for the places that are not wanted.
pub(crate) fn add_tree(
    archive: &mut CpioWriter<BufWriter<File>>,
    root: &Path,
    folder: &str,
    takes: &dyn Fn(&str) -> bool,
) -> Result<()> {
    if !folder.is_empty() {
        archive.directory(folder)?;
    }
    for name in names(&root.join(folder))? {
        let place = if folder.is_empty() { name } else { format!("{folder}/{name}") };
        let path = root.join(&place);
        if !takes(&place) {
            continue;
        }
        if path.is_dir() && !path.is_symlink() {
            add_tree(archive, root, &place, takes)?;
        } else {
            add_file(archive, &path, &place)?;
        }
    }
    Ok(())
}

/// One file or link.
pub(crate) fn add_file(archive: &mut CpioWriter<BufWriter<File>>, path: &Path, place: &str) -> Result<()> {
    let data = path.symlink_metadata().map_err(file("look-up", path))?;
    if data.is_symlink() {
        let target = fs::read_link(path).map_err(file("look-up", path))?;
        let target = target.to_str().ok_or_else(|| odd(path))?;
        return archive.symbolic_link(place, target);
    }
    archive.file(place, data.permissions().mode() & 0o777, &fs::read(path).map_err(file("reading", path))?)
}

fn names(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(file("look-up", folder))?.flatten() {
        names.push(entry.file_name().into_string().map_err(|_| odd(&entry.path()))?);
    }
    names.sort();
    Ok(names)
}

fn odd(path: &Path) -> Error {
    Error::Image { path: path.display().to_string(), reason: "its name is no text".into() }
}
