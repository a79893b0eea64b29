//! Everything that can go wrong in the laboratory, one sentence each, with the values a reader needs.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a provisioning step or a guest can fail with.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the Debian archive cannot be reached, so {what} cannot be fetched: {detail}")]
    NetworkMissing { what: String, detail: String },
    #[error("the program {program} is missing: packages are fetched with apt-get and unpacked with dpkg-deb")]
    AptMissing { program: String },
    #[error(
        "the keyring {path} is missing: without it the archive's signatures cannot be verified (Debian package debian-archive-keyring)"
    )]
    KeyringMissing { path: PathBuf },
    #[error("the archive's signature was refused: {detail}")]
    SignatureRefused { detail: String },
    #[error("{folder} has {free_bytes} bytes free, but {what} needs {needed_bytes}")]
    DiskSpace { folder: PathBuf, what: String, needed_bytes: u64, free_bytes: u64 },
    #[error("the cache {folder} is in use: {reason}")]
    CacheInUse { folder: PathBuf, reason: String },
    #[error("no Debian archive is named in {searched}: name one in RNIC_MIRROR or the option for a mirror")]
    MirrorUnknown { searched: String },
    #[error("{what} is not in the cache {cache} and may not be fetched while offline")]
    Offline { what: String, cache: PathBuf },
    #[error("apt could not {what}: {detail}")]
    Apt { what: String, detail: String },
    #[error("{name:?} is no name of a Debian package: these have small letters, digits and + - . in them")]
    PackageName { name: String },
    #[error("the Debian archive has no package {}", names.join(", "))]
    PackageUnknown { names: Vec<String> },
    #[error("the package file {file} does not match its recorded {property}: {found} instead of {expected}")]
    PackageMismatch { file: String, property: &'static str, expected: String, found: String },
    #[error("the package file {file} cannot be unpacked: {reason}")]
    Package { file: String, reason: String },
    #[error("{path} cannot serve as QEMU: {reason}")]
    QemuRefused { path: PathBuf, reason: String },
    #[error("KVM does not work here, leave --accel kvm out or use tcg: {reason}")]
    KvmUnusable { reason: String },
    #[error("{what} of {path} failed: {source}")]
    File { what: &'static str, path: PathBuf, source: std::io::Error },
    #[error("the program {program} could not be started: {source}")]
    Start { program: String, source: std::io::Error },
    #[error("{program} ended with {status}: {detail}")]
    Program { program: String, status: String, detail: String },
    #[error("time limit of {:.1} s passed while {step}{detail}", limit.as_secs_f64())]
    Timeout { step: String, limit: Duration, detail: String },
    #[error("QEMU refused {command}: {class}: {description}")]
    Qmp { command: String, class: String, description: String },
    #[error("the connection to QEMU broke while {step}: {reason}")]
    Connection { step: String, reason: String },
    #[error("QEMU of guest {name} ended while {step}: {detail}")]
    GuestEnded { name: String, step: String, detail: String },
    #[error("the guest answered {answer:?} while {step}")]
    GuestAnswer { step: String, answer: String },
    #[error("the kernel image {path} is not a bzImage with a zstd payload: {reason}")]
    Kernel { path: PathBuf, reason: String },
    #[error("the guest image cannot hold {path}: {reason}")]
    Image { path: String, reason: String },
    #[error(
        "nothing can be built here: a user namespace is refused ({unprivileged}), and so is a mount namespace, which takes root ({root})"
    )]
    Namespaces { unprivileged: String, root: String },
    #[error("the folder {folder} is no source of a kernel module: {reason}")]
    ModuleSource { folder: PathBuf, reason: String },
    #[error("the module of {folder} does not build:\n{lines}")]
    ModuleBuild { folder: PathBuf, lines: String },
    #[error("the guest does not load the module {module}:\n{lines}")]
    ModuleLoad { module: String, lines: String },
    #[error("the manifest {path} cannot be read: {reason}")]
    Manifest { path: PathBuf, reason: String },
}

/// The result of a laboratory step.
pub type Result<T> = std::result::Result<T, Error>;

/// Turns an input-output error into one that names the file and the attempted action: `.map_err(file("read", path))`.
pub(crate) fn file(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_path_buf();
    move |source| Error::File { what, path, source }
}

/// The last lines of a program's output, short enough for an error sentence.
pub(crate) fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(6)..].join(" | ")
}
