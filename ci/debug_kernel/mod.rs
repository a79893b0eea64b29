//! A kernel of our own that finds what is wrong with a driver: memory that is used wrongly (KASAN, UBSAN), locks in an order
//! that can hang (lockdep), memory that nobody knows any more (kmemleak), wrong use of DMA (DMA_API_DEBUG).
//!
//! In: Debian's source of the kernel that the image has anyway, and the file `config`: everything that a guest wants is built
//! in, and nothing else. Out: a folder with the kernel, and with what modules are built against. That takes a processor ten
//! minutes or more, so the build goes on where an earlier one was ended.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::cache::{self, Cache, ContentKey};
use crate::debian::Debian;
use crate::error::file;
use crate::workshop::Workshop;
use crate::{Progress, Result};

/// What the kernel is told to be; what is not named is off.
const CONFIG: &str = include_str!("config");
const LIMIT: Duration = Duration::from_secs(4 * 3600);
const NEEDED_BYTES: u64 = 5 << 30;
/// A line of the configuration that depends on something else that is not there would vanish without a word. What modules
/// are built against is what `make M=` reads. Processes register memory that overlaps, which DMA debugging takes for a driver's
/// mistake unless a mapping says that it needs no care for caches; the RDMA core of newer kernels says so, this one is made to.
const SCRIPT: &str = "cd /work
if [ ! -e source/.whole ]; then
    mkdir -p source
    tar -xJf /usr/src/linux-source-6.12.tar.xz -C source --strip-components=1 --no-same-owner
    touch source/.whole
fi
cd source
umem=drivers/infiniband/core/umem.c
grep -q DMA_ATTR_SKIP_CPU_SYNC $umem || sed -i 's/dma_attr = 0;/dma_attr = DMA_ATTR_SKIP_CPU_SYNC;/' $umem
grep -q DMA_ATTR_SKIP_CPU_SYNC $umem
make -s KCONFIG_ALLCONFIG=/work/config allnoconfig
while read -r line; do
    case $line in
    CONFIG_*) grep -qxF \"$line\" .config || { echo \"$line has no effect in this kernel\"; exit 1; } ;;
    esac
done </work/config
nice make -s -j$(nproc) bzImage modules
rm -rf /work/out
mkdir -p /work/out/headers /work/out/modules
make -s kernelrelease >/work/out/release
cp arch/x86/boot/bzImage /work/out/
cp modules.builtin modules.builtin.modinfo modules.order /work/out/modules/
tar -c --exclude='*.o' --exclude='.*.cmd' .config Makefile Module.symvers include scripts arch/x86/Makefile* arch/x86/include \
    tools/objtool/objtool | tar -x -C /work/out/headers";

/// The built kernel.
#[derive(Debug)]
pub struct DebugKernel {
    /// It unpacks itself: from inside it cannot be started.
    pub image: PathBuf,
    pub release: String,
    /// What is built in, as depmod wants to know.
    pub modules: PathBuf,
    pub headers: PathBuf,
}

/// The kernel; built if the cache does not hold it. Call it with the cache's lock held.
pub fn provide(cache: &Cache, debian: &mut Debian<'_>, progress: &mut dyn Progress) -> Result<DebugKernel> {
    let workshop = Workshop::for_kernels(debian, progress)?;
    let key = ContentKey::new().part(workshop.identity()).part(CONFIG).part(SCRIPT).name();
    let folder = cache.build_folder("kernels", &key, |folder| {
        cache.require_space("building a kernel", NEEDED_BYTES)?;
        workshop.announce("a kernel that looks for faults (ten minutes or more)", progress);
        let work = cache.sub_folder("kernels")?.join(format!("build-{}", workshop.identity()));
        fs::create_dir_all(&work).map_err(file("creation", &work))?;
        cache::mark_used(&work);
        let config = work.join("config");
        fs::write(&config, CONFIG).map_err(file("writing", &config))?;
        workshop.run("building a kernel", &work, SCRIPT, LIMIT)?;
        for name in ["bzImage", "headers", "modules", "release"] {
            let (from, to) = (work.join("out").join(name), folder.join(name));
            fs::rename(&from, &to).map_err(file("renaming", &from))?;
        }
        fs::remove_dir_all(&work).map_err(file("removal", &work))
    })?;
    let release = folder.join("release");
    let release = fs::read_to_string(&release).map_err(file("reading", &release))?.trim().to_owned();
    let part = |name: &str| folder.join(name);
    Ok(DebugKernel { image: part("bzImage"), release, modules: part("modules"), headers: part("headers") })
}
