//! Our rdma-core provider, built inside rdma-core's source: its private interface is in no package. Beside it a program for
//! tests, `rnic_verbs_user`, built with the same library.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::sources::{self, HEADERS, PROVIDER};
use super::workshop::Workshop;
use crate::cache::{Cache, ContentKey};
use crate::debian::{Debian, SourceFile};
use crate::error::file;
use crate::{Progress, Result};

/// The release that Debian trixie ships.
pub const SOURCE: SourceFile = SourceFile {
    path: "pool/main/r/rdma-core/rdma-core_56.1.orig.tar.gz",
    sha256: "63ce7f2baa7242c2dbc76375dac957c420187dd27f8c5e148efc07971ee522a8",
};
/// The library's name carries the number of that private interface.
pub const LIBRARY: &str = "librnic-rdmav34.so";
/// What does with verbs what no stock program does.
pub const PROGRAM: &str = "rnic_verbs_user";
const PROGRAM_SOURCE: sources::Folder = &[("verbs_user.c", include_str!("verbs_user/verbs_user.c"))];
const LIMIT: Duration = Duration::from_secs(900);
const SCRIPT: &str = "cd /work
mkdir source build
tar -xzf source.tar.gz -C source --strip-components=1 --no-same-owner
mv rnic source/providers/rnic
sed -i 's|^add_subdirectory(providers/rxe)$|&\\nadd_subdirectory(providers/rnic)|' source/CMakeLists.txt
cd build
cmake -GNinja -Wno-dev -DNO_MAN_PAGES=1 -DNO_PYVERBS=1 -DCMAKE_BUILD_TYPE=RelWithDebInfo -DENABLE_WERROR=1 \
    -DCMAKE_INSTALL_PREFIX=/usr -DCMAKE_INSTALL_SYSCONFDIR=/etc -DCMAKE_INSTALL_LIBDIR=lib/x86_64-linux-gnu ../source
ninja rnic-rdmav34
strip -g lib/LIBRARY
gcc -O2 -Wall -Wextra -Werror -Iinclude -o PROGRAM ../verbs_user.c lib/libibverbs.so
strip -g PROGRAM";

/// The folder with [`LIBRARY`] and [`PROGRAM`].
pub fn provide(
    cache: &Cache,
    workshop: &Workshop,
    debian: &mut Debian<'_>,
    progress: &mut dyn Progress,
) -> Result<PathBuf> {
    let key = ContentKey::new()
        .part(workshop.identity())
        .part(SOURCE.sha256)
        .part(sources::key(&[PROVIDER, HEADERS, PROGRAM_SOURCE]))
        .part(SCRIPT)
        .name();
    if !cache.folder().join("providers").join(&key).is_dir() {
        workshop.announce("the rdma-core provider", progress);
    }
    cache.build_folder("providers", &key, |folder| {
        let work = cache.build_beside(&cache.sub_folder("providers")?)?;
        let (packed, source) = (debian.source(&SOURCE, progress)?, work.path().join("source.tar.gz"));
        fs::copy(&packed, &source).map_err(file("copying", &packed))?;
        sources::write(&[PROVIDER, HEADERS], &work.path().join("rnic"))?;
        sources::write(&[PROGRAM_SOURCE], work.path())?;
        let script = SCRIPT.replace("LIBRARY", LIBRARY).replace("PROGRAM", PROGRAM);
        workshop.run("building the rdma-core provider", work.path(), &script, LIMIT)?;
        for (place, name) in [("build/lib", LIBRARY), ("build", PROGRAM)] {
            let built = work.path().join(place).join(name);
            fs::copy(&built, folder.join(name)).map_err(file("copying", &built))?;
        }
        Ok(())
    })
}
