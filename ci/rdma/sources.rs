//! The C sources of module and provider as they are in this repository, held in the program: it builds guest images
//! wherever it runs.

use std::fs;
use std::path::Path;

use crate::Result;
use crate::cache::ContentKey;
use crate::error::file;

/// A folder's files by name.
pub type Folder = &'static [(&'static str, &'static str)];

macro_rules! folder {
    ($place:literal: $($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../guest-driver-shim/", $place, "/", $name)))),*]
    };
}

/// The kernel module.
pub const MODULE: Folder = folder!("linux":
    "Kbuild" "Makefile" "address.c" "command.c" "compat.h" "completion_queue.c" "context.c" "counters.c" "device.c" "dkms.conf"
    "event.c" "memory.c" "netdev.c" "page_list.c" "pci.c" "queue_pair.c" "receive.c" "registration.c" "resize.c"
    "rnic.h" "send.c" "shared_receive.c" "work_queue.c");
/// The provider.
pub const PROVIDER: Folder = folder!("rdma-core":
    "CMakeLists.txt" "address.c" "compat.h" "completion_queue.c" "context.c" "domain.c" "extended_poll.c" "extended_send.c" "memory.c"
    "poll.c" "queue_pair.c" "receive.c" "rnic.h" "send.c" "shared_receive.c");
/// What both include.
pub const HEADERS: Folder = folder!("include": "rnic_abi.h" "rnic_uverbs.h");

/// Writes the folders' files into one.
pub fn write(folders: &[Folder], target: &Path) -> Result<()> {
    fs::create_dir_all(target).map_err(file("creation", target))?;
    for (name, text) in folders.iter().copied().flatten() {
        let path = target.join(name);
        fs::write(&path, text).map_err(file("writing", &path))?;
    }
    Ok(())
}

/// The same, but files that are so already keep their time.
pub fn write_changed(folders: &[Folder], target: &Path) -> Result<()> {
    fs::create_dir_all(target).map_err(file("creation", target))?;
    for (name, text) in folders.iter().copied().flatten() {
        let path = target.join(name);
        if !fs::read(&path).is_ok_and(|old| old == text.as_bytes()) {
            fs::write(&path, text).map_err(file("writing", &path))?;
        }
    }
    Ok(())
}

/// Changes with every byte of them.
pub fn key(folders: &[Folder]) -> String {
    let files = folders.iter().copied().flatten();
    files.fold(ContentKey::new(), |key, (name, text)| key.part(name).part(text)).name()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `make` leaves beside the sources.
    fn is_built(name: &str) -> bool {
        let ends = [".o", ".ko", ".symvers", ".order"];
        name.starts_with('.') || name.contains(".mod") || ends.iter().any(|end| name.ends_with(end))
    }

    /// Every file of the repository's folders is held, and nothing else.
    #[test]
    fn they_are_the_repositorys() {
        for (place, held) in [("linux", MODULE), ("rdma-core", PROVIDER), ("include", HEADERS)] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest-driver-shim").join(place);
            let mut there: Vec<String> = fs::read_dir(&folder)
                .expect("the folder")
                .map(|entry| entry.expect("an entry").file_name().into_string().expect("a plain name"))
                .filter(|name| !is_built(name))
                .collect();
            there.sort();
            let mut names: Vec<&str> = held.iter().map(|(name, _)| *name).collect();
            names.sort_unstable();
            assert_eq!(there, names, "{place}");
        }
    }

    #[test]
    fn the_key_tells_folders_apart() {
        assert_ne!(key(&[MODULE]), key(&[MODULE, HEADERS]));
        assert_ne!(key(&[HEADERS]), key(&[PROVIDER]));
    }
}
