//! The second archive of the image's initial file system: programs, libraries, modules, provider.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;

use super::provider::{LIBRARY, PROGRAMS};
use crate::Result;
use crate::error::file;
use crate::image::cpio::CpioWriter;
use crate::image::tree::{add, add_file, add_tree};

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
    for program in PROGRAMS {
        add_file(&mut archive, &parts.provider.join(program), &format!("usr/bin/{program}"))?;
    }
    add_modules(&mut archive, parts.modules)?;
    archive.finish().map(|_| ())
}

fn add_modules(archive: &mut CpioWriter<BufWriter<File>>, root: &Path) -> Result<()> {
    let releases = root.join("lib/modules");
    let release = fs::read_dir(&releases).map_err(file("look-up", &releases))?.flatten().next();
    let release = release.and_then(|entry| entry.file_name().into_string().ok()).unwrap_or_default();
    add_tree(archive, root, &format!("lib/modules/{release}"), &|_| true)?;
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
        PROGRAMS.iter().for_each(|program| put(&format!("provider/{program}"), "the verbs user"));
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
