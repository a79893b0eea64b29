//! Outside judges: tshark names the fields of our packets, scapy computes their ICRC, lspci reads our configuration space,
//! xmllint has libvirt's schema.
//! All come from Debian's packages and run unpacked, through their own loader.
//!
//! In: the package names. Out: [`Tool`]s, from which commands are made.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::cache::Cache;
use crate::child::{self, Output};
use crate::deadline::Deadline;
use crate::debian::{Debian, PackageSet, Tree};
use crate::error::file;
use crate::qemu::{loader, loader_prefix};
use crate::{Error, Options, Progress, Result};

/// An unpacked program.
#[derive(Debug, Clone)]
pub struct Tool {
    name: &'static str,
    program: PathBuf,
    prefix: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

impl Tool {
    /// A command that runs the tool; arguments are added to it.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.prefix).envs(self.environment.iter().cloned());
        command
    }

    /// Runs the tool to its end.
    pub fn run<S: AsRef<std::ffi::OsStr>>(&self, arguments: &[S], limit: Duration) -> Result<Output> {
        let mut command = self.command();
        command.args(arguments);
        child::run(command, &Deadline::new(format!("{} runs", self.name), limit))
    }
}

/// The judges.
#[derive(Debug, Clone)]
pub struct Tools {
    tshark: Tool,
    python: Tool,
    lspci: Tool,
    xmllint: Tool,
    libvirt_domain_schema: PathBuf,
}

impl Tools {
    /// The tools; fetched if the cache does not hold them.
    pub fn provide(options: &Options, progress: &mut dyn Progress) -> Result<Tools> {
        let cache = Cache::open(options)?;
        let _lock = cache.lock(progress)?;
        let set = PackageSet::whole("tools", "trixie", &["tshark", "python3", "python3-scapy"]);
        let mut debian = Debian::new(&cache, options);
        let tree = debian.provide(&set, progress)?;
        let pciutils = debian.provide(&PackageSet::whole("pciutils", "trixie", &["pciutils"]), progress)?;
        // They write preferences and caches into the home folder, which must not be the user's.
        let home = cache.sub_folder("tools-home")?;
        let libvirt = debian
            .provide(&PackageSet::whole("libvirt", "trixie", &["libxml2-utils", "libvirt-common"]), progress)?
            .folder;
        Ok(Tools {
            tshark: tshark(&tree, &home),
            python: python(&tree, &home)?,
            lspci: lspci(&pciutils, &home),
            xmllint: xmllint(&libvirt, &home),
            libvirt_domain_schema: libvirt.join("usr/share/libvirt/schemas/domain.rng"),
        })
    }

    /// Prints packets: `-r capture.pcap -T fields -e infiniband.bth.opcode`.
    pub fn tshark(&self) -> &Tool {
        &self.tshark
    }

    /// Python with scapy, whose `scapy.contrib.roce` builds and checks RoCE packets.
    pub fn python(&self) -> &Tool {
        &self.python
    }

    /// Checks documents against a schema: `--noout --relaxng schema document`.
    pub fn xmllint(&self) -> &Tool {
        &self.xmllint
    }

    /// libvirt's own schema of a domain, with its QEMU namespace.
    pub fn libvirt_domain_schema(&self) -> &Path {
        &self.libvirt_domain_schema
    }

    /// Decodes configuration spaces: `-vv -F dump`, the dump being what `lspci -xxxx` prints.
    pub fn lspci(&self) -> &Tool {
        &self.lspci
    }
}

fn tshark(tree: &Tree, home: &Path) -> Tool {
    let root = &tree.folder;
    let mut prefix = loader_prefix(root, &[]);
    prefix.push(root.join("usr/bin/tshark").into());
    let environment = vec![
        ("HOME".into(), home.into()),
        ("XDG_CONFIG_HOME".into(), home.into()),
        ("WIRESHARK_DATA_DIR".into(), root.join("usr/share/wireshark").into()),
        ("WIRESHARK_PLUGIN_DIR".into(), home.join("no-plugins").into()),
    ];
    Tool { name: "tshark", program: loader(root), prefix, environment }
}

fn lspci(tree: &Tree, home: &Path) -> Tool {
    let root = &tree.folder;
    let mut prefix = loader_prefix(root, &[]);
    prefix.push(root.join("usr/bin/lspci").into());
    prefix.extend(["-i".into(), root.join("usr/share/misc/pci.ids").into()]);
    Tool { name: "lspci", program: loader(root), prefix, environment: vec![("HOME".into(), home.into())] }
}

fn xmllint(root: &Path, home: &Path) -> Tool {
    let mut prefix = loader_prefix(root, &[]);
    prefix.push(root.join("usr/bin/xmllint").into());
    Tool { name: "xmllint", program: loader(root), prefix, environment: vec![("HOME".into(), home.into())] }
}

fn python(tree: &Tree, home: &Path) -> Result<Tool> {
    let root = &tree.folder;
    let bin = root.join("usr/bin");
    let mut names: Vec<String> = std::fs::read_dir(&bin)
        .map_err(file("look-up", &bin))?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| {
            name.strip_prefix("python3.").is_some_and(|minor| minor.bytes().all(|byte| byte.is_ascii_digit()))
        })
        .collect();
    names.sort();
    let missing = || Error::Package { file: bin.display().to_string(), reason: "it holds no python3".into() };
    let program = bin.join(names.pop().ok_or_else(missing)?);
    let mut prefix = loader_prefix(root, &[]);
    prefix.push(program.into());
    let environment = vec![
        ("HOME".into(), home.into()),
        ("XDG_CACHE_HOME".into(), home.into()),
        ("XDG_CONFIG_HOME".into(), home.into()),
        ("PYTHONHOME".into(), root.join("usr").into()),
        ("PYTHONPATH".into(), root.join("usr/lib/python3/dist-packages").into()),
        ("PYTHONDONTWRITEBYTECODE".into(), "1".into()),
        ("PYTHONNOUSERSITE".into(), "1".into()),
    ];
    Ok(Tool { name: "python", program: loader(root), prefix, environment })
}
