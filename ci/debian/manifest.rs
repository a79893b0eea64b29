//! The record of which packages answered a request: names, versions, hashes, and the tree they were unpacked into.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::cache::ContentKey;
use crate::error::file;
use crate::{Error, Result};

/// What is asked of the archive: suites and names, never versions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackageSet {
    /// Names the set's files in the cache.
    pub name: String,
    /// The suite whose versions are preferred: `trixie` or `trixie-backports`.
    pub suite: String,
    pub packages: Vec<String>,
    /// Of these packages and all that they depend on, take those whose name begins with one of these; empty: all.
    pub only: Vec<String>,
    /// And leave out those whose name begins with one of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<String>,
    /// Of their files, unpack those whose path contains one of these; empty: all.
    pub contents: Vec<String>,
}

impl PackageSet {
    /// The packages with all that they depend on, unpacked whole.
    pub fn whole(name: &str, suite: &str, packages: &[&str]) -> PackageSet {
        let packages = packages.iter().map(|&package| package.to_owned()).collect();
        let (name, suite) = (name.to_owned(), suite.to_owned());
        PackageSet { name, suite, packages, only: Vec::new(), without: Vec::new(), contents: Vec::new() }
    }

    /// The same set, cut down to some packages and some files.
    pub fn cut_to(mut self, only: &[&str], contents: &[&str]) -> PackageSet {
        self.only = only.iter().map(|&prefix| prefix.to_owned()).collect();
        self.contents = contents.iter().map(|&fragment| fragment.to_owned()).collect();
        self
    }

    /// The same set without packages that others depend on and nothing here needs.
    pub fn without(mut self, prefixes: &[&str]) -> PackageSet {
        self.without = prefixes.iter().map(|&prefix| prefix.to_owned()).collect();
        self
    }

    pub(super) fn takes_package(&self, package: &str) -> bool {
        let begins = |prefix: &String| package.starts_with(prefix.as_str());
        (self.only.is_empty() || self.only.iter().any(begins)) && !self.without.iter().any(begins)
    }

    pub(super) fn takes_member(&self, path: &str) -> bool {
        self.contents.is_empty() || self.contents.iter().any(|fragment| path.contains(fragment.as_str()))
    }

    /// The name of the request: it changes when anything that is asked for does.
    pub(super) fn request_name(&self) -> String {
        let key = ContentKey::new().part(serde_json::to_vec(self).unwrap_or_default());
        format!("{}-{}", self.name, key.name())
    }
}

/// One package of the archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Package {
    pub name: String,
    pub version: String,
    pub architecture: String,
    pub sha256: String,
    pub size_bytes: u64,
    pub installed_bytes: u64,
}

impl Package {
    /// apt's name for the package file: the version's colon is written as `%3a`.
    pub fn file_name(&self) -> String {
        format!("{}_{}_{}.deb", self.name, self.version.replace(':', "%3a"), self.architecture)
    }
}

/// What answered a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub set: PackageSet,
    pub packages: Vec<Package>,
    /// Name of the folder below `trees/`.
    pub tree: String,
}

impl Manifest {
    /// A manifest whose tree is named after the packages' hashes and the cut.
    pub fn new(set: PackageSet, packages: Vec<Package>) -> Manifest {
        let mut key = ContentKey::new().part(serde_json::to_vec(&set.contents).unwrap_or_default());
        for package in &packages {
            key = key.part(&package.sha256);
        }
        let tree = format!("{}-{}", set.name, key.name());
        Manifest { set, packages, tree }
    }

    pub fn version_of(&self, package: &str) -> Option<&str> {
        self.packages.iter().find(|known| known.name == package).map(|known| known.version.as_str())
    }

    /// The manifest at `path`, if there is one.
    pub fn read(path: &Path) -> Result<Option<Manifest>> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(file("reading", path)(error)),
        };
        let unreadable = |reason: String| Error::Manifest { path: PathBuf::from(path), reason };
        let manifest: Manifest = serde_json::from_slice(&text).map_err(|error| unreadable(error.to_string()))?;
        // It becomes a path below `trees/`.
        if manifest.tree.is_empty() || manifest.tree.contains('/') || manifest.tree.starts_with('.') {
            return Err(unreadable(format!("{:?} is no folder name", manifest.tree)));
        }
        Ok(Some(manifest))
    }

    /// Writes the manifest beside and renames it into place.
    pub fn write(&self, path: &Path) -> Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        let text = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::Manifest { path: path.into(), reason: error.to_string() })?;
        let mut beside = tempfile::NamedTempFile::new_in(folder).map_err(file("creation", folder))?;
        beside.write_all(&text).map_err(file("writing", path))?;
        beside.persist(path).map_err(|error| file("renaming", path)(error.error))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(sha256: &str) -> Package {
        Package {
            name: "qemu-system-x86".into(),
            version: "1:11.1.3+ds-1~bpo13+1".into(),
            architecture: "amd64".into(),
            sha256: sha256.into(),
            size_bytes: 10,
            installed_bytes: 20,
        }
    }

    #[test]
    fn a_manifest_survives_its_file() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("m.json");
        assert_eq!(Manifest::read(&path).expect("no file is no error"), None);
        let manifest =
            Manifest::new(PackageSet::whole("qemu", "trixie-backports", &["qemu-system-x86"]), vec![package("ab")]);
        manifest.write(&path).expect("written");
        assert_eq!(Manifest::read(&path).expect("read"), Some(manifest.clone()));
        assert_eq!(manifest.version_of("qemu-system-x86"), Some("1:11.1.3+ds-1~bpo13+1"));
        fs::write(&path, b"{ half a mani").expect("written");
        assert!(matches!(Manifest::read(&path), Err(Error::Manifest { .. })));
        fs::write(&path, serde_json::to_vec(&Manifest { tree: "../x".into(), ..manifest }).expect("json"))
            .expect("written");
        assert!(matches!(Manifest::read(&path), Err(Error::Manifest { .. })));
    }

    #[test]
    fn names_follow_the_content_and_the_request() {
        let set = PackageSet::whole("qemu", "trixie-backports", &["qemu-system-x86"]);
        let cut = set.clone().cut_to(&["qemu"], &["usr/bin/"]);
        assert_ne!(set.request_name(), cut.request_name());
        let tree = |set: &PackageSet, hash| Manifest::new(set.clone(), vec![package(hash)]).tree;
        assert_ne!(tree(&set, "ab"), tree(&set, "cd"));
        assert_ne!(tree(&set, "ab"), tree(&cut, "ab"));
        assert!(cut.takes_package("qemu-system-x86") && !cut.takes_package("libc6"));
        let less = PackageSet::whole("x", "trixie", &["cmake"]).without(&["systemd"]);
        assert!(less.takes_package("libsystemd0") && !less.takes_package("systemd"));
        assert!(cut.takes_member("usr/bin/x") && !cut.takes_member("usr/share/x"));
    }

    #[test]
    fn an_epoch_is_escaped_in_file_names() {
        assert_eq!(package("").file_name(), "qemu-system-x86_1%3a11.1.3+ds-1~bpo13+1_amd64.deb");
    }
}
