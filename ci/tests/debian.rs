//! Packages from the real archive, into a cache that is empty at first.

mod laboratory;

use laboratory::{options, progress, provided};
use rnic_ci::cache::Cache;
use rnic_ci::debian::{Debian, PackageSet};
use rnic_ci::{Error, Options};

#[test]
fn a_package_is_fetched_verified_unpacked_and_then_served_offline() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let options = Options { cache_folder: Some(folder.path().to_path_buf()), ..options() };
    let cache = Cache::open(&options).expect("a cache");
    let set = PackageSet::whole("shell", "trixie", &["busybox-static"]).cut_to(&["busybox-"], &["usr/bin/"]);
    let _lock = cache.lock(&mut progress()).expect("the lock");
    let Some(tree) = provided(Debian::new(&cache, &options).provide(&set, &mut progress())) else { return };
    assert!(tree.folder.join("usr/bin/busybox").is_file());
    assert!(!tree.folder.join("usr/share").exists(), "the set was cut to usr/bin");
    assert_eq!(tree.manifest.packages.len(), 1);
    assert!(tree.manifest.version_of("busybox-static").is_some());

    let offline = Options { offline: true, ..options.clone() };
    let again = Debian::new(&cache, &offline).provide(&set, &mut progress()).expect("from the cache");
    assert_eq!(again.folder, tree.folder);

    let unknown = PackageSet::whole("unknown", "trixie", &["rnic-no-such-package"]);
    let refused = Debian::new(&cache, &options).provide(&unknown, &mut progress());
    assert!(matches!(&refused, Err(Error::PackageUnknown { names }) if names.len() == 1), "{refused:?}");
}

#[test]
fn an_unreachable_mirror_is_one_clear_sentence() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Port 9 of this machine: nothing listens there.
    let options = Options {
        cache_folder: Some(folder.path().to_path_buf()),
        mirror: Some("http://127.0.0.1:9/debian".into()),
        ..Options::default()
    };
    let cache = Cache::open(&options).expect("a cache");
    let set = PackageSet::whole("shell", "trixie", &["busybox-static"]);
    let refused = Debian::new(&cache, &options).provide(&set, &mut progress()).map(|_| ());
    assert!(matches!(&refused, Err(Error::NetworkMissing { .. })), "{refused:?}");
}

#[test]
fn an_archive_that_nobody_signed_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let archive = folder.path().join("archive");
    for suite in ["trixie", "trixie-backports"] {
        let release = archive.join("dists").join(suite);
        std::fs::create_dir_all(&release).expect("made");
        std::fs::write(release.join("Release"), format!("Origin: Debian\nCodename: {suite}\nComponents: main\n"))
            .expect("written");
    }
    let options = Options {
        cache_folder: Some(folder.path().join("cache")),
        mirror: Some(format!("file:{}", archive.display())),
        ..Options::default()
    };
    let cache = Cache::open(&options).expect("a cache");
    let set = PackageSet::whole("shell", "trixie", &["busybox-static"]);
    let refused = Debian::new(&cache, &options).provide(&set, &mut progress()).map(|_| ());
    assert!(matches!(&refused, Err(Error::SignatureRefused { .. })), "{refused:?}");
}
