//! What the caller may choose; the environment supplies the defaults.

use std::env;
use std::path::PathBuf;
use std::str::FromStr;

/// Which accelerator guests run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Accelerator {
    /// KVM if a short boot proves that it works, else TCG.
    #[default]
    Auto,
    Tcg,
    Kvm,
}

impl FromStr for Accelerator {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Accelerator::Auto),
            "tcg" => Ok(Accelerator::Tcg),
            "kvm" => Ok(Accelerator::Kvm),
            other => Err(format!("accelerator {other:?} is none of auto, tcg, kvm")),
        }
    }
}

/// Which kernel our guests run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GuestKernel {
    /// Debian trixie's own.
    #[default]
    Stable,
    /// The one of trixie-backports.
    Backports,
    /// Built from trixie's source, to find faults.
    Debug,
}

impl GuestKernel {
    pub const ALL: [GuestKernel; 3] = [GuestKernel::Stable, GuestKernel::Backports, GuestKernel::Debug];

    /// What it is called by: the beginning of its releases, and for what it was built.
    pub fn series(self) -> &'static str {
        match self {
            GuestKernel::Stable => "6.12",
            GuestKernel::Backports => "7.3",
            GuestKernel::Debug => "6.12-debug",
        }
    }

    pub(crate) fn suite(self) -> &'static str {
        match self {
            GuestKernel::Stable | GuestKernel::Debug => "trixie",
            GuestKernel::Backports => "trixie-backports",
        }
    }
}

impl FromStr for GuestKernel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = GuestKernel::ALL.into_iter().find(|kernel| kernel.series() == text);
        known.ok_or_else(|| format!("guest kernel {text:?} is none of 6.12, 7.3, 6.12-debug"))
    }
}

/// Choices for provisioning and for all guests of a laboratory.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Address of a Debian archive; none: the one in the machine's apt sources.
    pub mirror: Option<String>,
    /// Use only what is in the cache.
    pub offline: bool,
    /// Ask the archive again even if the cache holds an earlier answer.
    pub refresh: bool,
    /// The cache folder; none: `$XDG_CACHE_HOME/rnic` or `~/.cache/rnic`.
    pub cache_folder: Option<PathBuf>,
    /// A QEMU program that must be used (an unfit one is an error, not passed over).
    pub qemu: Option<PathBuf>,
    /// Where the logs of guests go and stay; none: a temporary folder, kept only after a failure.
    pub run_folder: Option<PathBuf>,
    pub accelerator: Accelerator,
    pub kernel: GuestKernel,
    /// Debian packages that guests have beside those of their image.
    pub packages: Vec<String>,
}

impl Options {
    /// The defaults with `RNIC_MIRROR`, `RNIC_CACHE`, `RNIC_QEMU` and `RNIC_RUN_FOLDER` taken from the environment.
    pub fn from_environment() -> Options {
        let path = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Options {
            mirror: env::var("RNIC_MIRROR").ok().filter(|value| !value.is_empty()),
            cache_folder: path("RNIC_CACHE"),
            qemu: path("RNIC_QEMU"),
            run_folder: path("RNIC_RUN_FOLDER"),
            ..Options::default()
        }
    }
}
