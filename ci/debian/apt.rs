//! A private apt: the machine's apt-get with its own state, cache, sources and an empty package database.
//!
//! In: the archive's address and a [`PackageSet`]. Out: the packages that satisfy it, with sizes and hashes from the
//! signed index, and their files. Nothing of the machine's own package state is read or changed; only how it reaches
//! the network (proxies, retries) is taken over.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::manifest::{Package, PackageSet};
use crate::child::{self, Output};
use crate::deadline::Deadline;
use crate::error::{file, tail};
use crate::{Error, Result};

/// The suites a set may prefer.
const SUITES: &[&str] = &["trixie", "trixie-backports"];
const ARCHITECTURE: &str = "amd64";
const KEYRINGS: &[&str] =
    &["/usr/share/keyrings/debian-archive-keyring.gpg", "/usr/share/keyrings/debian-archive-keyring.pgp"];
/// A release file has some hundred kilobytes.
const REACH_LIMIT: Duration = Duration::from_secs(30);
const INDEX_LIMIT: Duration = Duration::from_secs(300);
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(1800);

/// The private apt root.
#[derive(Debug)]
pub struct Apt {
    folder: PathBuf,
    index_is_fresh: bool,
}

impl Apt {
    /// Writes the configuration below `folder`.
    pub fn prepare(folder: &Path, archive: &str) -> Result<Apt> {
        let keyring = find_keyring(KEYRINGS)?;
        for part in ["etc/parts", "etc/sources", "etc/preferences", "state/lists/partial", "cache/archives/partial"] {
            let path = folder.join(part);
            fs::create_dir_all(&path).map_err(file("creation", &path))?;
        }
        let apt = Apt { folder: folder.to_path_buf(), index_is_fresh: false };
        write(&folder.join("state/status"), "")?;
        write(&folder.join("etc/sources.list"), &sources_list(archive, keyring))?;
        // The machine's configuration has hooks that must not run here, so only network settings are taken from it.
        let dump =
            run(machine_program("apt-config", &["dump"]), "read the machine's configuration", Duration::from_secs(20))?;
        write(&folder.join("apt.conf"), &configuration(folder, &dump.standard_output))?;
        Ok(apt)
    }

    /// Fetches the signed index, once a process.
    pub fn update(&mut self) -> Result<()> {
        if !self.index_is_fresh {
            let what = "the package index";
            let output = run(self.program("apt-get", &["-q", "update"]), "read the package index", INDEX_LIMIT)?;
            succeeded(output, what)?;
            self.index_is_fresh = true;
        }
        Ok(())
    }

    /// Whether the archive answers: its release file is fetched, and dropped.
    pub fn reach(&self, archive: &str) -> Result<()> {
        let address = format!("{}/dists/{}/InRelease", archive.trim_end_matches('/'), SUITES[0]);
        let folder = tempfile::tempdir().map_err(file("use", &std::env::temp_dir()))?;
        let release = folder.path().join("InRelease");
        let mut command =
            self.program("/usr/lib/apt/apt-helper", &["-o", "Acquire::Retries=0", "download-file", &address]);
        command.arg(&release);
        succeeded(run(command, "reach the archive", REACH_LIMIT)?, &address).map(|_| ())
    }

    /// The packages that satisfy the set, sorted by name.
    pub fn resolve(&self, set: &PackageSet) -> Result<Vec<Package>> {
        let mut command = self.program("apt-get", &["-q", "-y", "--print-uris", "-t", &set.suite, "install", "--"]);
        command.args(&set.packages);
        let what = format!("the packages {}", set.packages.join(", "));
        let listed = succeeded(run(command, "resolve packages", INDEX_LIMIT)?, &what)?.standard_output;
        let wanted: Vec<String> = listed
            .lines()
            .filter_map(name_and_version)
            .filter(|(name, _)| set.takes_package(name))
            .map(|(name, version)| format!("{name}={version}"))
            .collect();
        if wanted.is_empty() {
            return Err(Error::Apt { what: format!("resolve {what}"), detail: "it named no package file".into() });
        }
        let mut command = self.program("apt-cache", &["show", "--"]);
        command.args(&wanted);
        let shown = succeeded(run(command, "describe packages", INDEX_LIMIT)?, &what)?.standard_output;
        let mut packages: Vec<Package> = shown.split("\n\n").filter_map(package_of_stanza).collect();
        packages.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
        packages.dedup();
        if packages.len() != wanted.len() {
            let detail = format!("{} package files, but {} index entries with a SHA-256", wanted.len(), packages.len());
            return Err(Error::Apt { what: format!("describe {what}"), detail });
        }
        Ok(packages)
    }

    /// Downloads package files into `folder`.
    pub fn download(&self, packages: &[&Package], folder: &Path) -> Result<()> {
        let mut command = self.program("apt-get", &["-q", "download", "--"]);
        command.args(packages.iter().map(|package| format!("{}={}", package.name, package.version)));
        command.current_dir(folder);
        succeeded(run(command, "download packages", DOWNLOAD_LIMIT)?, "package files")?;
        Ok(())
    }

    /// Downloads one file of the archive, which must have this hash.
    pub fn download_file(&self, address: &str, sha256: &str, target: &Path) -> Result<()> {
        let mut command = self.program("/usr/lib/apt/apt-helper", &["-q", "download-file", address]);
        command.arg(target).arg(format!("SHA256:{sha256}"));
        succeeded(run(command, "download a source file", DOWNLOAD_LIMIT)?, address).map(|_| ())
    }

    fn program(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = machine_program(program, arguments);
        command.env("APT_CONFIG", self.folder.join("apt.conf"));
        command
    }
}

fn machine_program(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).env("LC_ALL", "C").env("DEBIAN_FRONTEND", "noninteractive").env_remove("APT_CONFIG");
    command
}

fn run(command: Command, step: &str, limit: Duration) -> Result<Output> {
    let program = command.get_program().to_string_lossy().into_owned();
    child::run(command, &Deadline::new(format!("apt was to {step}"), limit)).map_err(|error| match error {
        Error::Start { source, .. } if source.kind() == std::io::ErrorKind::NotFound => Error::AptMissing { program },
        other => other,
    })
}

pub(super) fn find_keyring(candidates: &[&str]) -> Result<PathBuf> {
    candidates
        .iter()
        .map(PathBuf::from)
        .find(|path| path.is_file())
        .ok_or_else(|| Error::KeyringMissing { path: PathBuf::from(candidates.first().copied().unwrap_or_default()) })
}

fn sources_list(archive: &str, keyring: PathBuf) -> String {
    SUITES
        .iter()
        .map(|suite| format!("deb [arch={ARCHITECTURE} signed-by={}] {archive} {suite} main\n", keyring.display()))
        .collect()
}

/// apt.conf: all folders private, and the machine's network settings.
fn configuration(folder: &Path, machine_dump: &str) -> String {
    let folder = folder.display();
    let network = [
        "Acquire::http",
        "Acquire::https",
        "Acquire::Check-",
        "Acquire::ForceIPv",
        "Acquire::Retries",
        "Acquire::Proxy",
    ];
    let mut text: String = machine_dump
        .lines()
        .filter(|line| network.iter().any(|prefix| line.starts_with(prefix)))
        .map(|line| format!("{line}\n"))
        .collect();
    text += &format!(
        "Dir \"{folder}\";
Dir::Etc \"{folder}/etc\";
Dir::Etc::sourcelist \"{folder}/etc/sources.list\";
Dir::Etc::sourceparts \"{folder}/etc/sources\";
Dir::Etc::preferencesparts \"{folder}/etc/preferences\";
Dir::Etc::parts \"{folder}/etc/parts\";
Dir::State \"{folder}/state\";
Dir::State::status \"{folder}/state/status\";
Dir::Cache \"{folder}/cache\";
Dir::Cache::pkgcache \"\";
Dir::Cache::srcpkgcache \"\";
APT::Architecture \"{ARCHITECTURE}\";
APT::Architectures {{ \"{ARCHITECTURE}\"; }};
APT::Install-Recommends \"false\";
APT::Sandbox::User \"\";
APT::Update::Error-Mode \"any\";
Acquire::Languages \"none\";
Acquire::GzipIndexes \"true\";
Acquire::AllowInsecureRepositories \"false\";
Acquire::AllowWeakRepositories \"false\";
"
    );
    if !text.contains("Acquire::Retries") {
        text += "Acquire::Retries \"3\";\n";
    }
    text
}

/// Sorts apt's failures into ours by what it printed.
fn succeeded(output: Output, what: &str) -> Result<Output> {
    if output.status.success() {
        return Ok(output);
    }
    let said: String = output
        .standard_error
        .lines()
        .filter(|line| line.starts_with(['E', 'W']))
        .map(|line| format!("{line}\n"))
        .collect();
    Err(failure(what, if said.is_empty() { &output.standard_error } else { &said }))
}

fn failure(what: &str, said: &str) -> Error {
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    let detail = tail(said);
    if has(&[
        "NO_PUBKEY",
        "is not signed",
        "signature couldn't be verified",
        "BADSIG",
        "EXPKEYSIG",
        "signatures were invalid",
    ]) {
        return Error::SignatureRefused { detail };
    }
    if has(&[
        "Could not resolve",
        "Could not connect",
        "Cannot initiate",
        "Connection failed",
        "Temporary failure",
        "Network is unreachable",
        "Connection timed out",
        "Failed to fetch",
    ]) {
        return Error::NetworkMissing { what: what.to_owned(), detail };
    }
    let names = unknown_names(said);
    if !names.is_empty() {
        return Error::PackageUnknown { names };
    }
    Error::Apt { what: format!("provide {what}"), detail }
}

/// Of packages that no index has, or that are known by name alone.
fn unknown_names(said: &str) -> Vec<String> {
    let named = |line: &str| {
        let unknown = line.strip_prefix("E: Unable to locate package ");
        let known = || line.strip_prefix("E: Package '")?.strip_suffix("' has no installation candidate");
        unknown.or_else(known).map(|name| name.trim().to_owned())
    };
    said.lines().filter_map(named).collect()
}

/// Name and version from a line `'address' name_version_architecture.deb size hash` of apt-get --print-uris.
fn name_and_version(line: &str) -> Option<(String, String)> {
    let rest = line.strip_prefix('\'')?;
    let (_, rest) = rest.split_once("' ")?;
    let mut parts = rest.split_whitespace().next()?.strip_suffix(".deb")?.split('_');
    let (name, version) = (parts.next()?, parts.next()?);
    Some((name.to_owned(), version.replace("%3a", ":")))
}

/// The fields of one stanza of apt-cache show.
fn package_of_stanza(stanza: &str) -> Option<Package> {
    let field =
        |name: &str| stanza.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).map(str::to_owned);
    Some(Package {
        name: field("Package")?,
        version: field("Version")?,
        architecture: field("Architecture")?,
        sha256: field("SHA256")?,
        size_bytes: field("Size")?.parse().ok()?,
        installed_bytes: field("Installed-Size")
            .and_then(|kib| kib.parse::<u64>().ok())
            .unwrap_or(0)
            .saturating_mul(1024),
    })
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(file("writing", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apt_output_is_understood() {
        let line =
            "'http://a.example/pool/q_11.deb' qemu-system-x86_1%3a11.1.3+ds-1~bpo13+1_amd64.deb 10377056 MD5Sum:00";
        assert_eq!(name_and_version(line), Some(("qemu-system-x86".into(), "1:11.1.3+ds-1~bpo13+1".into())));
        assert_eq!(name_and_version("Need to get 5 B of archives."), None);
        let stanza =
            "Package: a\nVersion: 1:2\nArchitecture: all\nInstalled-Size: 3\nSize: 44\nSHA256: ff\nDescription: x";
        let package = package_of_stanza(stanza).expect("a package");
        assert_eq!((package.installed_bytes, package.size_bytes, package.sha256.as_str()), (3072, 44, "ff"));
        assert_eq!(package_of_stanza("Package: a\nVersion: 1\nArchitecture: all\nSize: 4"), None, "no SHA-256");
    }

    #[test]
    fn failures_have_their_own_sentences() {
        let network = failure("the index", "E: Failed to fetch http://a  Could not resolve 'a'");
        assert!(matches!(network, Error::NetworkMissing { .. }));
        let signature = failure(
            "the index",
            "W: GPG error: the following signatures couldn't be verified: NO_PUBKEY 1\nE: The repository is not signed.",
        );
        assert!(matches!(signature, Error::SignatureRefused { .. }));
        let said = "E: Unable to locate package nope\nE: Package 'old' has no installation candidate\n";
        assert_eq!(failure("x", said).to_string(), "the Debian archive has no package nope, old");
        assert!(matches!(failure("x", "E: Unmet dependencies"), Error::Apt { .. }));
        assert!(matches!(find_keyring(&["/nowhere/keyring.gpg"]), Err(Error::KeyringMissing { .. })));
        let missing = run(Command::new("/nowhere/apt-get"), "x", Duration::from_secs(1));
        assert!(matches!(missing, Err(Error::AptMissing { program }) if program == "/nowhere/apt-get"));
    }

    #[test]
    fn only_network_settings_are_taken_from_the_machine() {
        let dump =
            "Acquire::http::Proxy \"http://proxy.example:3128\";\nAPT::Update::Post-Invoke:: \"rm -rf x\";\nDir \"/\";";
        let text = configuration(Path::new("/cache/apt"), dump);
        assert!(text.contains("proxy.example") && !text.contains("rm -rf") && !text.contains("Dir \"/\";"));
    }
}
