//! The laboratory: everything provisioned, guests on demand.

use std::path::Path;
use std::sync::Arc;

use crate::cache::Cache;
use crate::debian::Debian;
use crate::guest::workbench::{Workbench, WorkbenchSpec};
use crate::guest::{Acceleration, Guest, GuestSpec, Host, accelerator, boot, restore, snapshot};
use crate::image::{Image, packages};
use crate::options::GuestKernel;
use crate::qemu::{Qemu, RunFolder};
use crate::rdma::user_module::{self, UserModule};
use crate::tools::Tools;
use crate::workshop::Workshop;
use crate::{Options, Progress, Result, rdma};

/// A provisioned laboratory. Guests started from it may outlive it; its logs stay until the last of them is gone.
#[derive(Debug)]
pub struct Lab {
    cache: Cache,
    options: Options,
    host: Host,
    acceleration: Acceleration,
    snapshot: std::path::PathBuf,
}

impl Lab {
    /// Finds or fetches QEMU, builds the guest image, chooses the accelerator and makes the snapshot, as far as the
    /// cache does not hold them. With everything there it takes about a tenth of a second.
    pub fn prepare(options: &Options, progress: &mut dyn Progress) -> Result<Lab> {
        Lab::prepare_with(options, progress, Image::provide)
    }

    /// The same with the image in which stock RDMA programs run.
    pub fn prepare_rdma(options: &Options, progress: &mut dyn Progress) -> Result<Lab> {
        Lab::prepare_with(options, progress, rdma::provide)
    }

    /// The same with rdma-core's own tests in it.
    pub fn prepare_pyverbs(options: &Options, progress: &mut dyn Progress) -> Result<Lab> {
        Lab::prepare_with(options, progress, rdma::provide_pyverbs)
    }

    fn prepare_with(
        options: &Options,
        progress: &mut dyn Progress,
        provide: fn(&Cache, &mut Debian<'_>, GuestKernel, &mut dyn Progress) -> Result<Image>,
    ) -> Result<Lab> {
        let cache = Cache::open(options)?;
        let _lock = cache.lock(progress)?;
        let mut debian = Debian::new(&cache, options);
        let qemu = Qemu::provide(options, &mut debian, progress)?;
        let image = provide(&cache, &mut debian, options.kernel, progress)?;
        let image = packages::provide(&cache, &mut debian, image, &options.packages, progress)?;
        let host = Host { qemu, image, run_folder: Arc::new(RunFolder::create(options)?) };
        let acceleration = accelerator::choose(options, &cache, &host, progress)?;
        let snapshot = snapshot::provide(&cache, &host, acceleration, progress)?;
        Ok(Lab { cache: cache.clone(), options: options.clone(), host, acceleration, snapshot })
    }

    /// Starts a guest: restored from the snapshot with the adapter hot-plugged, or booted cold with it present. The
    /// adapter's server must be listening.
    pub fn guest(&self, spec: &GuestSpec) -> Result<Guest> {
        if spec.cold_boot {
            boot(&self.host, self.acceleration, spec)
        } else {
            restore(&self.host, self.acceleration, spec, &self.snapshot)
        }
    }

    /// Starts a guest for a person: restored, or booted if the spec asks for what the snapshot does not have.
    pub fn workbench(&self, spec: &WorkbenchSpec) -> Result<Workbench> {
        Workbench::start(&self.host, self.acceleration, spec, &self.snapshot)
    }

    /// Builds a kernel module from a folder of the user's, for the image's kernel.
    pub fn build_module(&self, folder: &Path, progress: &mut dyn Progress) -> Result<UserModule> {
        let _lock = self.cache.lock(progress)?;
        let mut debian = Debian::new(&self.cache, &self.options);
        let release = &self.host.image.kernel_release;
        let workshop = Workshop::for_modules(&mut debian, &self.host.image, progress)?;
        user_module::build(&self.cache, &workshop, release, folder, progress)
    }

    /// The outside judges, fetched if the cache does not hold them.
    pub fn tools(&self, progress: &mut dyn Progress) -> Result<Tools> {
        Tools::provide(&self.options, progress)
    }

    pub fn qemu(&self) -> &Qemu {
        &self.host.qemu
    }

    pub fn image(&self) -> &Image {
        &self.host.image
    }

    pub fn acceleration(&self) -> Acceleration {
        self.acceleration
    }

    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Where logs and sockets go: also for an adapter's server, whose socket path must be short.
    pub fn run_folder(&self) -> &Arc<RunFolder> {
        &self.host.run_folder
    }
}
