//! Our rdma-core provider, built inside rdma-core's source: its private interface is in no package. Beside it a program for
//! tests, `rnic_verbs_user`, built with the same library.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::sources::{self, HEADERS, PROVIDER};
use crate::cache::{Cache, ContentKey};
use crate::debian::{Debian, SourceFile};
use crate::error::file;
use crate::workshop::Workshop;
use crate::{Progress, Result};

/// The release that Debian trixie ships.
pub const SOURCE: SourceFile = SourceFile {
    path: "pool/main/r/rdma-core/rdma-core_56.1.orig.tar.gz",
    sha256: "63ce7f2baa7242c2dbc76375dac957c420187dd27f8c5e148efc07971ee522a8",
};
/// The one of the release after it.
const NEWER_SOURCE: SourceFile = SourceFile {
    path: "pool/main/r/rdma-core/rdma-core_65.0.orig.tar.gz",
    sha256: "f6ba3d8b2c4aa334c5c883c1ad0772de339011123cff4fb1db32ae7a443fb7ca",
};
/// The library's name carries the number of that private interface.
pub const LIBRARY: &str = "librnic-rdmav34.so";
/// What do with verbs what no stock program does: operations that these do not know, and all that is wrong.
pub const PROGRAMS: [&str; 2] = ["rnic_verbs_user", "rnic_wrong_verbs"];
/// Where the newer release is in the guest: its library, a provider for it, and one of its programs.
pub const NEWER: &str = "usr/lib/rdma-core-65";
const PROGRAM_SOURCES: sources::Folder = &[
    ("rnic_verbs_user.c", include_str!("verbs_user/verbs_user.c")),
    ("rnic_wrong_verbs.c", include_str!("verbs_user/wrong_verbs.c")),
];
const LIMIT: Duration = Duration::from_secs(900);
/// `$1` is where it would be installed, the others are what is built.
const BUILD: &str = "build() {
    mkdir source build
    tar -xzf source.tar.gz -C source --strip-components=1 --no-same-owner
    mv rnic source/providers/rnic
    sed -i 's|^add_subdirectory(providers/rxe)$|&\\nadd_subdirectory(providers/rnic)|' source/CMakeLists.txt
    cd build
    cmake -GNinja -Wno-dev -DNO_MAN_PAGES=1 -DNO_PYVERBS=1 -DCMAKE_BUILD_TYPE=RelWithDebInfo -DENABLE_WERROR=1 \
        -DCMAKE_INSTALL_PREFIX=$1 -DCMAKE_INSTALL_SYSCONFDIR=/etc -DCMAKE_INSTALL_LIBDIR=$2 ../source
    shift 2
    ninja \"$@\"
}
cd /work
";
const SCRIPT: &str = "build /usr lib/x86_64-linux-gnu rnic-rdmav34
mkdir ../out
for program in PROGRAMS; do
    gcc -O2 -Wall -Wextra -Werror -Iinclude -o ../out/$program ../$program.c lib/libibverbs.so
done
mv lib/LIBRARY ../out/
strip -g ../out/*";
const NEWER_SCRIPT: &str = "build /NEWER lib rnic-rdmav65 ibv_rc_pingpong
strip -g lib/librnic-rdmav65.so lib/libibverbs.so.1 bin/ibv_rc_pingpong
mkdir -p ../out/NEWER/lib/libibverbs
cp -L lib/libibverbs.so.1 bin/ibv_rc_pingpong ../out/NEWER/
mv lib/librnic-rdmav65.so ../out/NEWER/lib/libibverbs/";

/// The folder with [`LIBRARY`] and [`PROGRAMS`].
pub fn provide(
    cache: &Cache,
    workshop: &Workshop,
    debian: &mut Debian<'_>,
    progress: &mut dyn Progress,
) -> Result<PathBuf> {
    let script = SCRIPT.replace("LIBRARY", LIBRARY).replace("PROGRAMS", &PROGRAMS.join(" "));
    built(cache, workshop, debian, &SOURCE, &script, progress)
}

/// A folder with [`NEWER`] in it.
pub fn provide_newer(
    cache: &Cache,
    workshop: &Workshop,
    debian: &mut Debian<'_>,
    progress: &mut dyn Progress,
) -> Result<PathBuf> {
    built(cache, workshop, debian, &NEWER_SOURCE, &NEWER_SCRIPT.replace("NEWER", NEWER), progress)
}

/// What the script leaves in `out`.
fn built(
    cache: &Cache,
    workshop: &Workshop,
    debian: &mut Debian<'_>,
    release: &SourceFile,
    script: &str,
    progress: &mut dyn Progress,
) -> Result<PathBuf> {
    let script = format!("{BUILD}{script}");
    let key = ContentKey::new()
        .part(workshop.identity())
        .part(release.sha256)
        .part(sources::key(&[PROVIDER, HEADERS, PROGRAM_SOURCES]))
        .part(&script)
        .name();
    if !cache.holds("providers", &key) {
        workshop.announce(&format!("the provider in {}", release.name()), progress);
    }
    cache.build_folder("providers", &key, |folder| {
        let work = cache.build_beside(&cache.sub_folder("providers")?)?;
        let (packed, source) = (debian.source(release, progress)?, work.path().join("source.tar.gz"));
        fs::copy(&packed, &source).map_err(file("copying", &packed))?;
        sources::write(&[PROVIDER, HEADERS], &work.path().join("rnic"))?;
        sources::write(&[PROGRAM_SOURCES], work.path())?;
        workshop.run("building the rdma-core provider", work.path(), &script, LIMIT)?;
        super::module::copy(&work.path().join("out"), folder)
    })
}
