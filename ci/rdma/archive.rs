//! The second archive of the image's initial file system: programs, libraries, modules, provider.

use std::fs::{self, File};
use std::io::BufWriter;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::provider::{LIBRARY, PROGRAM};
use crate::error::file;
use crate::image::cpio::CpioWriter;
use crate::{Error, Result};

/// The folders it is made from.
pub struct Parts<'a> {
    pub programs: &'a Path,
    pub modules: &'a Path,
    pub provider: &'a Path,
}

/// Loaded by the guest's first program, in this order, so that a snapshot has them: plugging the adapter in is enough.
const LOADED: &[&str] = &[
    "kernel/fs/configfs/configfs.ko",
    "kernel/drivers/infiniband/core/ib_core.ko",
    // From Linux 7 on; what is not there is passed over.
    "kernel/drivers/infiniband/core/ib_uverbs_support.ko",
    "kernel/drivers/infiniband/core/ib_uverbs.ko",
    "kernel/drivers/infiniband/core/ib_cm.ko",
    "kernel/drivers/infiniband/core/iw_cm.ko",
    "kernel/drivers/infiniband/core/rdma_cm.ko",
    "kernel/drivers/infiniband/core/rdma_ucm.ko",
    "extra/rnic.ko",
];
const SOFTWARE: &str = "librxe-rdmav34.so";
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// Changes when the way it is put together does.
pub fn identity() -> String {
    format!("3 {SOFTWARE} {}", LOADED.join(" "))
}

/// Appends the archive to the file.
pub fn append(path: &Path, parts: &Parts<'_>) -> Result<()> {
    let output = File::options().append(true).open(path).map_err(file("opening", path))?;
    let mut archive = CpioWriter::new(BufWriter::new(output));
    for folder in ["usr/bin", "usr/sbin", "usr/lib64", LIBRARIES] {
        add(&mut archive, parts.programs, folder, &|name| folder != LIBRARIES || name.contains(".so"))?;
    }
    archive.symbolic_link("lib64", "usr/lib64")?;
    // Debian's provider of the kernel's software device, which a test has at the other end.
    let software = format!("{LIBRARIES}/libibverbs/{SOFTWARE}");
    add_file(&mut archive, &parts.programs.join(&software), &software)?;
    archive.file("etc/libibverbs.d/rxe.driver", 0o644, b"driver rxe\n")?;
    let library = parts.provider.join(LIBRARY);
    let bytes = fs::read(&library).map_err(file("reading", &library))?;
    archive.file(&format!("{LIBRARIES}/libibverbs/{LIBRARY}"), 0o644, &bytes)?;
    archive.file("etc/libibverbs.d/rnic.driver", 0o644, b"driver rnic\n")?;
    add_file(&mut archive, &parts.provider.join(PROGRAM), &format!("usr/bin/{PROGRAM}"))?;
    add_modules(&mut archive, parts.modules)?;
    archive.finish().map(|_| ())
}

/// Appends another archive, with all that is below `root`.
pub fn append_tree(path: &Path, root: &Path) -> Result<()> {
    let output = File::options().append(true).open(path).map_err(file("opening", path))?;
    let mut archive = CpioWriter::new(BufWriter::new(output));
    add_tree(&mut archive, root, "")?;
    archive.finish().map(|_| ())
}

fn add_modules(archive: &mut CpioWriter<BufWriter<File>>, root: &Path) -> Result<()> {
    let releases = root.join("lib/modules");
    let release = fs::read_dir(&releases).map_err(file("look-up", &releases))?.flatten().next();
    let release = release.and_then(|entry| entry.file_name().into_string().ok()).unwrap_or_default();
    add_tree(archive, root, &format!("lib/modules/{release}"))?;
    for (number, name) in LOADED.iter().enumerate() {
        let module = Path::new(name).file_name().and_then(|name| name.to_str()).unwrap_or_default();
        // Behind those of the base image.
        archive.symbolic_link(
            &format!("lib/loaded/{:02}-{module}", 50 + number),
            &format!("/lib/modules/{release}/{name}"),
        )?;
    }
    Ok(())
}

/// The files and links of one folder whose names are wanted, sorted, so that the archive depends on content only.
fn add(
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

fn add_tree(archive: &mut CpioWriter<BufWriter<File>>, root: &Path, folder: &str) -> Result<()> {
    if !folder.is_empty() {
        archive.directory(folder)?;
    }
    for name in names(&root.join(folder))? {
        let place = if folder.is_empty() { name } else { format!("{folder}/{name}") };
        let path = root.join(&place);
        if path.is_dir() && !path.is_symlink() {
            add_tree(archive, root, &place)?;
        } else {
            add_file(archive, &path, &place)?;
        }
    }
    Ok(())
}

fn add_file(archive: &mut CpioWriter<BufWriter<File>>, path: &Path, place: &str) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_follows_the_first_and_holds_all_parts() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let put = |name: &str, content: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(path, content).expect("written");
        };
        for name in ["usr/bin/ibv_devinfo", "usr/bin/kmod", "usr/sbin/x", "usr/lib64/ld.so"] {
            put(&format!("programs/{name}"), name);
        }
        put(&format!("programs/{LIBRARIES}/libibverbs.so.1"), "a library");
        put(&format!("programs/{LIBRARIES}/libibverbs/{SOFTWARE}"), "the software device's");
        put(&format!("programs/{LIBRARIES}/notes.txt"), "no library");
        put("modules/lib/modules/6.1/extra/rnic.ko", "the module");
        put(&format!("provider/{LIBRARY}"), "the provider");
        put(&format!("provider/{PROGRAM}"), "the verbs user");
        put("initrd", "the first archive");
        let path = folder.path().join("initrd");
        let [programs, modules, provider] = ["programs", "modules", "provider"].map(|name| folder.path().join(name));
        append(&path, &Parts { programs: &programs, modules: &modules, provider: &provider }).expect("appended");
        let bytes = fs::read(&path).expect("read");
        assert!(bytes.starts_with(b"the first archive070701"));
        let holds = |needle: &str| bytes.windows(needle.len()).any(|window| window == needle.as_bytes());
        for text in [
            "usr/bin/ibv_devinfo\0",
            "a library",
            "the software device's",
            "the module",
            "the provider",
            "the verbs user",
            "driver rnic\n",
        ] {
            assert!(holds(text), "{text:?}");
        }
        assert!(holds("lib/loaded/58-rnic.ko\0") && holds("/lib/modules/6.1/extra/rnic.ko"));
        assert!(!holds("no library"));
    }
}
