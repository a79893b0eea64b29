//! `rnic guest reload`: the loop of somebody who writes the kernel module. The source is built, the guest restored, and the
//! module loaded before the adapter is plugged in, so that what is probed is a device that nobody has touched.

use super::{BOOT_LIMIT_S, CommonOptions, Failure, GuestOptions};
use clap::Args;
use rnic_ci::guest::workbench::Workbench;
use rnic_ci::{Lab, StandardError};
use std::path::{Path, PathBuf};
use std::time::Instant;

#[derive(Debug, Args)]
#[command(after_help = "\
The folder holds the source of one external kernel module, with a Kbuild or a Makefile. It is built for the kernel of our
image, with Debian's compiler, in a copy that stays in the cache: what has not changed is not compiled again, and nothing
is left in the folder. Headers of the hardware interface are in ../include, as in the repository. The guest is that of
--rdma: the RDMA core is loaded, and the image's own rnic is taken out.

Then it is as with `rnic guest`: a console, or one command. To reload, leave the console and say it again: a guest's
adapter is plugged in once in its life.

Examples:
  rnic guest reload A
  rnic guest reload A --module ~/mydriver
  rnic guest reload A --exec 'ibv_devinfo -v'

Exit: as of `rnic guest`; and 1 when the module does not build (the compiler's lines are on standard error) or is not
loaded. With --exec that is 125, and so is a module that does not take the adapter.")]
pub struct ReloadOptions {
    #[command(flatten)]
    pub(super) common: CommonOptions,
    /// The module's source [default: guest-driver-shim/linux here, or where this program was built].
    #[arg(long, value_name = "DIR")]
    module: Option<PathBuf>,
}

/// The repository's own module, below the working folder or where this program was built.
const OWN: &str = "guest-driver-shim/linux";

impl ReloadOptions {
    /// The guest that it is, but for the module.
    pub fn guest(&self) -> GuestOptions {
        GuestOptions {
            subcommand: None,
            common: self.common.clone(),
            kernel: None,
            initrd: None,
            rdma: true,
            append: None,
            memory: None,
            share: None,
            boot_limit: BOOT_LIMIT_S,
            qemu_arguments: Vec::new(),
        }
    }

    /// Builds it; what the compiler warns of is shown.
    pub fn build(&self, lab: &Lab) -> Result<PathBuf, Failure> {
        let begin = Instant::now();
        let built = lab.build_module(&self.source()?, &mut StandardError)?;
        if !built.warnings.is_empty() {
            tell!("{}", built.warnings);
        }
        tell!("rnic guest: {} is built, after {:.1} s", name(&built.path), begin.elapsed().as_secs_f64());
        Ok(built.path)
    }

    fn source(&self) -> Result<PathBuf, Failure> {
        if let Some(folder) = &self.module {
            return Ok(folder.clone());
        }
        let places = [PathBuf::from(OWN), Path::new(env!("CARGO_MANIFEST_DIR")).join(OWN)];
        places.into_iter().find(|place| place.is_dir()).ok_or_else(|| {
            Failure::Usage(format!("there is no {OWN} here: name the folder of the module's source with --module"))
        })
    }
}

fn name(module: &Path) -> String {
    module.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The adapter is a driver's, or nobody's: then a person may look why, and a script has failed.
pub fn await_driver(bench: &mut Workbench, module: &Path, script: bool, begin: Instant) -> Result<(), Failure> {
    let module = name(module);
    match bench.driver()? {
        Ok(driver) => {
            let elapsed = begin.elapsed().as_secs_f64();
            tell!(
                "rnic guest: {module} is loaded, and driver {driver} has the adapter, {elapsed:.1} s after the command"
            );
        }
        Err(log) if script => {
            return Err(Failure::Module(format!("{module} is loaded, and no driver took the adapter:\n{log}")));
        }
        Err(log) => tell!("rnic guest: {module} is loaded, and no driver took the adapter:\n{log}"),
    }
    Ok(())
}
