//! Debian packages of the user's choice, with all that they depend on, behind an image.
//!
//! They are unpacked and not installed: no script of theirs runs. Documentation stays away, since the guest has its files in
//! memory.

use std::fs;
use std::path::Path;

use super::Image;
use super::tree::append_tree;
use crate::cache::{Cache, ContentKey};
use crate::debian::{Debian, PackageSet};
use crate::error::file;
use crate::{Error, Progress, Result};

const CONTENTS: &[&str] = &["usr/", "etc/"];
const LEFT_OUT: &[&str] =
    &["usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "usr/share/lintian", "usr/share/bug"];

/// The image with the packages; built if the cache does not hold it. Call it with the cache's lock held.
pub fn provide(
    cache: &Cache,
    debian: &mut Debian<'_>,
    base: Image,
    names: &[String],
    progress: &mut dyn Progress,
) -> Result<Image> {
    if names.is_empty() {
        return Ok(base);
    }
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    if let Some(name) = names.iter().find(|name| !is_a_name(name)) {
        return Err(Error::PackageName { name: (*name).to_owned() });
    }
    let set = PackageSet::whole("more-programs", "trixie", &names).cut_to(&[], CONTENTS);
    let tree = debian.provide(&set, progress)?;
    let key = ContentKey::new().part(&base.key).part(&tree.manifest.tree).part(LEFT_OUT.join(" ")).name();
    let unpacked: u64 = tree.manifest.packages.iter().map(|package| package.installed_bytes).sum();
    let bytes = |path: &Path| fs::metadata(path).map(|data| data.len()).map_err(file("look-up", path));
    let (before, memory_mib) = (bytes(&base.initial_file_system)?, base.memory_mib);
    let what = format!("the guest image with {}", names.join(", "));
    let image = base.with_more(cache, (key, &what, unpacked), progress, |path| {
        append_tree(path, &tree.folder, &|place| !LEFT_OUT.contains(&place))
    })?;
    // While the guest boots it holds the archive and what came out of it.
    let more = bytes(&image.initial_file_system)?.saturating_sub(before) >> 19;
    let memory_mib = memory_mib.saturating_add(u32::try_from(more).unwrap_or(u32::MAX));
    Ok(Image { memory_mib, ..image })
}

/// As Debian's policy has it; with a minus behind it apt would be asked for the contrary.
fn is_a_name(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.len() > 1
        && !name.ends_with('-')
        && name.starts_with(is_letter)
        && name.chars().all(|c| is_letter(c) || "+-.".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_debians_policy() {
        for name in ["gdb", "libstdc++6", "0ad", "python3.13"] {
            assert!(is_a_name(name), "{name}");
        }
        for name in ["", "a", "-y", "Strace", "a b", "strace=1", "../x", "strace/sid", "strace-"] {
            assert!(!is_a_name(name), "{name}");
        }
    }
}
