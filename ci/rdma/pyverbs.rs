//! rdma-core's own tests, as its source has them, with Debian's Python and `pyverbs`.
//!
//! Out: a folder that goes into the image as its root; the tests lie in `/usr/lib/pyverbs-tests`. Everything is compiled
//! to Python's byte code here, which a guest without hardware acceleration would spend most of its time on.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::provider::SOURCE;
use crate::cache::{Cache, ContentKey};
use crate::debian::{Debian, PackageSet};
use crate::error::file;
use crate::workshop::Workshop;
use crate::{Progress, Result};

/// Where the tests are in the guest.
pub const TESTS: &str = "usr/lib/pyverbs-tests";
const LIMIT: Duration = Duration::from_secs(600);
/// Of what `python3-pyverbs` depends on: the rest is in the RDMA image, or not used by the tests.
const ONLY: &[&str] = &["python3", "libpython3", "libexpat1", "libffi8", "zlib1g", "libbz2-1.0", "liblzma5"];
const CONTENTS: &[&str] = &["usr/bin/python3", "usr/lib/python3", "usr/lib/x86_64-linux-gnu/"];
/// Tests of other vendors' devices skip themselves, after they have been read; parts of Python's library nobody reads.
/// Byte code alone stays of the library, beside their source of the tests, for what they print when they fail.
const SCRIPT: &str = "cd /work
chmod -R u+w root
mkdir -p root/TESTS
tar -xzf source.tar.gz -C root/TESTS --strip-components=2 --no-same-owner --wildcards '*/tests/*.py'
cd root/TESTS
rm test_mlx5_* test_efa* test_cuda*
cd /work/root/usr/lib/python3.*/
rm -rf test idlelib ensurepip pydoc_data lib2to3 tkinter turtledemo sqlite3 config-*
cd /work/root
find . -name __pycache__ -prune -exec rm -r {} +
export PYTHONHOME=/work/root/usr PYTHONDONTWRITEBYTECODE=1 LD_LIBRARY_PATH=/work/root/usr/lib/x86_64-linux-gnu
python=$(echo usr/bin/python3.*)
$python -m compileall -q -b --invalidation-mode unchecked-hash usr/lib/python3*
find usr/lib/python3* -name '*.py' -delete
$python -m compileall -q --invalidation-mode unchecked-hash TESTS";

/// The folder that goes into the image as its root.
pub fn provide(
    cache: &Cache,
    workshop: &Workshop,
    debian: &mut Debian<'_>,
    progress: &mut dyn Progress,
) -> Result<PathBuf> {
    let set = PackageSet::whole("pyverbs", "trixie", &["python3-pyverbs"]).cut_to(ONLY, CONTENTS);
    let packages = debian.provide(&set, progress)?;
    let key = ContentKey::new().part(workshop.identity()).part(&packages.manifest.tree).part(SOURCE.sha256);
    let key = key.part(SCRIPT).part(TESTS).name();
    if !cache.holds("pyverbs", &key) {
        workshop.announce("rdma-core's tests", progress);
    }
    cache.build_folder("pyverbs", &key, |folder| {
        let work = cache.build_beside(&cache.sub_folder("pyverbs")?)?;
        let (packed, source) = (debian.source(&SOURCE, progress)?, work.path().join("source.tar.gz"));
        fs::copy(&packed, &source).map_err(file("copying", &packed))?;
        super::module::copy(&packages.folder.join("usr"), &work.path().join("root/usr"))?;
        workshop.run("compiling rdma-core's tests", work.path(), &SCRIPT.replace("TESTS", TESTS), LIMIT)?;
        let (from, to) = (work.path().join("root/usr"), folder.join("usr"));
        fs::rename(&from, &to).map_err(file("renaming", &from))
    })
}
