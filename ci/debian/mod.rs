//! Packages of Debian trixie, unpacked into the cache.
//!
//! In: a [`PackageSet`] (suites and names). Out: a [`Tree`]: the folder with the packages' files and the manifest that
//! says which versions they are. In order: [`sources`] finds the archive, [`apt`] resolves and downloads with verified
//! signatures, [`unpack`] writes the files, [`manifest`] records what was used. A set that the cache holds is served
//! from there, without network, until a refresh is asked for.

pub mod apt;
pub mod manifest;
pub mod sources;
pub mod unpack;

use std::fs;
use std::path::{Path, PathBuf};

use crate::cache::{Cache, file_sha256, mark_used};
use crate::error::file;
use crate::{Error, Options, Progress, Result};
use apt::Apt;
pub use manifest::{Manifest, Package, PackageSet};

/// Unpacked packages.
#[derive(Debug, Clone)]
pub struct Tree {
    pub folder: PathBuf,
    pub manifest: Manifest,
}

/// A file of the archive that is no package: where it lies, and what it must be.
#[derive(Debug, Clone, Copy)]
pub struct SourceFile {
    pub path: &'static str,
    pub sha256: &'static str,
}

impl SourceFile {
    pub fn name(&self) -> &'static str {
        self.path.rsplit('/').next().unwrap_or(self.path)
    }
}

/// Provides package sets from the cache, or from the archive. Call it with the cache's lock held.
#[derive(Debug)]
pub struct Debian<'a> {
    cache: &'a Cache,
    options: &'a Options,
    apt: Option<Apt>,
}

impl<'a> Debian<'a> {
    pub fn new(cache: &'a Cache, options: &'a Options) -> Debian<'a> {
        Debian { cache, options, apt: None }
    }

    /// The set's tree; fetched if the cache does not hold it.
    pub fn provide(&mut self, set: &PackageSet, progress: &mut dyn Progress) -> Result<Tree> {
        let record = self.cache.sub_folder("sets")?.join(format!("{}.json", set.request_name()));
        // An unreadable record is no reason to fail: it is made again.
        let known = Manifest::read(&record).unwrap_or_default();
        if let Some(manifest) = known.filter(|_| !self.options.refresh || self.options.offline) {
            let folder = self.cache.folder().join("trees").join(&manifest.tree);
            if folder.is_dir() {
                mark_used(&folder);
                return Ok(Tree { folder, manifest });
            }
        }
        if self.options.offline {
            let what = format!("the package set {} ({})", set.name, set.packages.join(", "));
            return Err(Error::Offline { what, cache: self.cache.folder().to_path_buf() });
        }
        let packages = self.apt(progress)?.resolve(set)?;
        let manifest = Manifest::new(set.clone(), packages);
        self.download(&manifest, progress)?;
        let folder = self.unpack(&manifest, progress)?;
        manifest.write(&record)?;
        Ok(Tree { folder, manifest })
    }

    /// A source file; fetched if the cache does not hold it.
    pub fn source(&mut self, source: &SourceFile, progress: &mut dyn Progress) -> Result<PathBuf> {
        let name = source.name();
        let folder = self.cache.sub_folder("sources")?;
        let path = folder.join(name);
        if path.is_file() && file_sha256(&path)? == source.sha256 {
            return Ok(path);
        }
        if self.options.offline {
            return Err(Error::Offline { what: name.to_owned(), cache: self.cache.folder().to_path_buf() });
        }
        let archive = sources::archive_address(self.options.mirror.as_deref(), Path::new("/etc/apt"))?;
        let address = format!("{}/{}", archive.trim_end_matches('/'), source.path);
        progress.step(&format!("downloading {address}"));
        let beside = self.cache.build_beside(&folder)?;
        let fetched = beside.path().join(name);
        self.apt(progress)?.download_file(&address, source.sha256, &fetched)?;
        fs::rename(&fetched, &path).map_err(file("renaming", &path))?;
        Ok(path)
    }

    fn apt(&mut self, progress: &mut dyn Progress) -> Result<&mut Apt> {
        let apt = match self.apt.take() {
            Some(apt) => apt,
            None => {
                let archive = sources::archive_address(self.options.mirror.as_deref(), Path::new("/etc/apt"))?;
                let mut apt = Apt::prepare(&self.cache.sub_folder("apt")?, &archive)?;
                progress.step(&format!("reading the package index of {archive}"));
                self.cache.require_space("the package index", 128 << 20)?;
                apt.update()?;
                apt
            }
        };
        Ok(self.apt.insert(apt))
    }

    /// Downloads what `debs/` does not hold, and checks every file against the signed index.
    fn download(&mut self, manifest: &Manifest, progress: &mut dyn Progress) -> Result<()> {
        let folder = self.cache.sub_folder("debs")?;
        let missing: Vec<&Package> = manifest
            .packages
            .iter()
            .filter(|package| check_file(&folder.join(package.file_name()), package).is_err())
            .collect();
        let download_bytes: u64 = missing.iter().map(|package| package.size_bytes).sum();
        let unpacked_bytes: u64 = manifest.packages.iter().map(|package| package.installed_bytes).sum();
        let what = format!("the package set {}", manifest.set.name);
        let free_bytes = self.cache.require_space(&what, download_bytes.saturating_add(unpacked_bytes))?;
        if missing.is_empty() {
            return Ok(());
        }
        let mb = |bytes: u64| bytes.div_ceil(1_000_000);
        progress.step(&format!(
            "downloading {} packages, {} MB, for {what} into {}, where {} MB are free",
            missing.len(),
            mb(download_bytes),
            self.cache.folder().display(),
            mb(free_bytes)
        ));
        // Beside first: a download that was cut off must not look like a package.
        let beside = self.cache.build_beside(&folder)?;
        self.apt(progress)?.download(&missing, beside.path())?;
        for package in missing {
            let name = package.file_name();
            check_file(&beside.path().join(&name), package)?;
            fs::rename(beside.path().join(&name), folder.join(&name)).map_err(file("renaming", &folder.join(&name)))?;
        }
        Ok(())
    }

    fn unpack(&self, manifest: &Manifest, progress: &mut dyn Progress) -> Result<PathBuf> {
        let debs = self.cache.sub_folder("debs")?;
        progress.step(&format!("unpacking {} packages for {}", manifest.packages.len(), manifest.set.name));
        self.cache.build_folder("trees", &manifest.tree, |folder| {
            for package in &manifest.packages {
                unpack::unpack(&debs.join(package.file_name()), folder, |path| manifest.set.takes_member(path))?;
            }
            Ok(())
        })
    }
}

/// Size and hash of a package file must be those of the signed index.
fn check_file(path: &Path, package: &Package) -> Result<()> {
    let mismatch = |property, expected: String, found: String| {
        Err(Error::PackageMismatch { file: package.file_name(), property, expected, found })
    };
    let size = fs::metadata(path).map_err(file("look-up", path))?.len();
    if size != package.size_bytes {
        return mismatch("size", package.size_bytes.to_string(), size.to_string());
    }
    let sha256 = file_sha256(path)?;
    if sha256 != package.sha256 {
        return mismatch("SHA-256", package.sha256.clone(), sha256);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Silent;

    fn options(folder: &Path) -> Options {
        Options { cache_folder: Some(folder.to_path_buf()), offline: true, ..Options::default() }
    }

    #[test]
    fn offline_serves_the_cache_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let options = options(folder.path());
        let cache = Cache::open(&options).expect("a cache");
        let set = PackageSet::whole("judge", "trixie", &["tshark"]);
        let mut debian = Debian::new(&cache, &options);
        assert!(matches!(debian.provide(&set, &mut Silent), Err(Error::Offline { .. })));

        let manifest = Manifest::new(set.clone(), Vec::new());
        let record = cache.sub_folder("sets").expect("sets").join(format!("{}.json", set.request_name()));
        manifest.write(&record).expect("written");
        assert!(matches!(debian.provide(&set, &mut Silent), Err(Error::Offline { .. })), "a record without its tree");
        cache.build_folder("trees", &manifest.tree, |_| Ok(())).expect("built");
        assert_eq!(debian.provide(&set, &mut Silent).expect("cached").manifest, manifest);
    }

    #[test]
    fn a_changed_package_file_is_refused() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("a.deb");
        fs::write(&path, b"abc").expect("written");
        let mut package = Package {
            name: "a".into(),
            version: "1".into(),
            architecture: "all".into(),
            sha256: "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad".into(),
            size_bytes: 3,
            installed_bytes: 3,
        };
        check_file(&path, &package).expect("the published SHA-256 of abc");
        package.size_bytes = 4;
        assert!(matches!(check_file(&path, &package), Err(Error::PackageMismatch { property: "size", .. })));
        fs::write(&path, b"abcd").expect("written");
        assert!(matches!(check_file(&path, &package), Err(Error::PackageMismatch { property: "SHA-256", .. })));
    }
}
