//! The options of `rnic serve`, and how they change what the file says.

use super::configuration::{AdapterSettings, Configuration, RateSettings};
use super::values::{
    AdapterName, Address, BitRate, Entries, Generation, Mac, Microseconds, Mtu, QueueBytes, RingFrames, Share, Vectors,
    Width,
};
use clap::Args;
use std::path::PathBuf;
use std::str::FromStr;

/// A value for one adapter, `NAME=VALUE`, or for all.
#[derive(Clone, Debug, PartialEq)]
pub struct For<T> {
    adapter: Option<AdapterName>,
    value: T,
}

impl<T: FromStr<Err = String>> FromStr for For<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, value)) => Ok(Self { adapter: Some(name.parse()?), value: value.parse()? }),
            None => Ok(Self { adapter: None, value: text.parse()? }),
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Values that may differ from adapter to adapter are given as VALUE for all, or as NAME=VALUE for one; repeat the option
for several. Options override the file; names on the command line say which adapters there are.

Examples:
  rnic serve                                       adapters A and B, until Ctrl-C
  rnic serve A B C --capture wire.pcapng           three adapters, and every frame into a file
  rnic serve --loss B=0.01 --delay-us 50           one frame in a hundred to B is lost, all come 50 us later
  rnic serve --link-gen 5 --link-width A=8         PCIe generation 5, A with eight lanes
  rnic serve --qp-cache 1                          what a working set larger than the cache costs
  rnic serve A --plain-port P                      and a port for a QEMU that has no adapter
  rnic serve --print-config > lab.toml             everything there is to configure, with its default
  rnic serve --config lab.toml                     what the file says

Exit: 0 ended by a signal; 2 a mistake in options or file (with its line); 3 a socket, folder or capture.")]
pub struct ServeOptions {
    /// Names of the adapters [default: A B, or those of the file].
    #[arg(value_name = "NAME")]
    pub adapters: Vec<AdapterName>,
    /// Read the configuration from this TOML file.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print the effective configuration as TOML and end; `--config` reads it back.
    #[arg(long)]
    pub print_config: bool,
    /// What the server is called by `rnic list` and `--server`.
    #[arg(long, value_name = "NAME", default_value = "main")]
    pub name: AdapterName,
    /// Record crossings and packets from the start, for `rnic trace`.
    #[arg(long)]
    pub record: bool,
    /// Folder for the sockets [default: $XDG_RUNTIME_DIR/rnic].
    #[arg(long)]
    pub folder: Option<PathBuf>,
    /// Write every frame on the switch to this file as pcapng (`-`: standard output).
    ///
    /// What cannot be written any more (a full disk, a reader that has gone or is too slow) changes nothing but the capture,
    /// is told at the end, and makes the exit number 3.
    #[arg(long, value_name = "FILE")]
    pub capture: Option<PathBuf>,
    /// MAC address [default: local, derived from the name].
    #[arg(long, value_name = "NAME=MAC", help_heading = "Adapters")]
    pub mac: Vec<For<Mac>>,
    /// An entry of the GID table before the driver writes it; repeat for more.
    #[arg(long, value_name = "NAME=ADDRESS", help_heading = "Adapters")]
    pub gid: Vec<For<Address>>,
    /// Largest path MTU of the port [default: 4096].
    #[arg(long, value_name = "[NAME=]BYTES", help_heading = "Adapters")]
    pub mtu: Vec<For<Mtu>>,
    /// Generation of the PCIe link, 1 to 5 [default: 3].
    #[arg(long, value_name = "[NAME=]N", help_heading = "Adapters")]
    pub link_gen: Vec<For<Generation>>,
    /// Lanes of the PCIe link [default: 16].
    #[arg(long, value_name = "[NAME=]LANES", help_heading = "Adapters")]
    pub link_width: Vec<For<Width>>,
    /// MSI-X vectors [default: 32].
    #[arg(long, value_name = "[NAME=]N", help_heading = "Adapters")]
    pub vectors: Vec<For<Vectors>>,
    /// Queue pair contexts that the device keeps [default: 1024].
    #[arg(long, value_name = "[NAME=]N", help_heading = "Adapters")]
    pub qp_cache: Vec<For<Entries>>,
    /// Completion queue contexts that the device keeps [default: 1024].
    #[arg(long, value_name = "[NAME=]N", help_heading = "Adapters")]
    pub cq_cache: Vec<For<Entries>>,
    /// Keys that the device keeps [default: 4096].
    #[arg(long, value_name = "[NAME=]N", help_heading = "Adapters")]
    pub key_cache: Vec<For<Entries>>,
    /// Lines of page lists that the device keeps [default: 4096].
    #[arg(long, value_name = "[NAME=]N", help_heading = "Adapters")]
    pub translation_cache: Vec<For<Entries>>,
    /// A warning stops the device, so that no broken rule passes unseen.
    #[arg(long, help_heading = "Adapters")]
    pub strict: bool,
    /// Packets of connections may be marked by a queue on their way: its receiver tells the sender, which slows down (DCQCN).
    #[arg(long, help_heading = "Adapters")]
    pub ecn: bool,
    /// How long the adapter's thread looks for work before it sleeps: quicker answers for a processor's time [default: 0].
    #[arg(long, value_name = "[NAME=]US", help_heading = "Adapters")]
    pub busy_poll: Vec<For<Microseconds>>,
    /// Probability that a frame to the adapter is lost.
    #[arg(long, value_name = "[NAME=]P", help_heading = "Switch")]
    pub loss: Vec<For<Share>>,
    /// Probability that a frame to the adapter comes twice.
    #[arg(long, value_name = "[NAME=]P", help_heading = "Switch")]
    pub duplication: Vec<For<Share>>,
    /// Probability that a bit of a frame to the adapter is flipped.
    #[arg(long, value_name = "[NAME=]P", help_heading = "Switch")]
    pub corruption: Vec<For<Share>>,
    /// Delay of each frame to the adapter.
    #[arg(long, value_name = "[NAME=]US", help_heading = "Switch")]
    pub delay_us: Vec<For<Microseconds>>,
    /// Rate of the line to the adapter, in bits per second.
    #[arg(long, value_name = "[NAME=]BITS", help_heading = "Switch")]
    pub rate: Vec<For<BitRate>>,
    /// Length of the queue in front of a line of limited rate [default: 1048576].
    #[arg(long, value_name = "[NAME=]BYTES", help_heading = "Switch")]
    pub queue_bytes: Vec<For<QueueBytes>>,
    /// Seed of all chance on the switch; the same seed and frames meet the same fate.
    #[arg(long, value_name = "N", help_heading = "Switch")]
    pub seed: Option<u32>,
    /// A port that a QEMU without an adapter joins by `-netdev stream`; repeat for more.
    #[arg(long = "plain-port", value_name = "NAME", help_heading = "Switch")]
    pub plain_ports: Vec<AdapterName>,
    /// Frames that each ring between two adapters holds [default: 256].
    #[arg(long, value_name = "N", help_heading = "Switch")]
    pub ring_frames: Option<RingFrames>,
}

impl ServeOptions {
    /// What the file says, changed by the options.
    pub fn apply(&self, configuration: &mut Configuration) -> Result<(), String> {
        if !self.adapters.is_empty() {
            self.choose_adapters(configuration)?;
        }
        configuration.folder = self.folder.clone().or(configuration.folder.take());
        configuration.capture = self.capture.clone().or(configuration.capture.take());
        if !self.plain_ports.is_empty() {
            configuration.plain_ports.clone_from(&self.plain_ports);
        }
        configuration.switch.ring_frames = self.ring_frames.unwrap_or(configuration.switch.ring_frames);
        let adapters = &mut configuration.adapters;
        if let Some(nameless) = self.gid.iter().chain([].iter()).find(|given| given.adapter.is_none()) {
            return Err(format!("--gid {0}: say whose address it is: --gid NAME={0}", nameless.value));
        }
        if let Some(nameless) = self.mac.iter().find(|given| given.adapter.is_none()) {
            return Err(format!("--mac {0}: say whose address it is: --mac NAME={0}", nameless.value));
        }
        set(adapters, "mac", &self.mac, |adapter, mac| adapter.mac = Some(mac))?;
        set(adapters, "gid", &self.gid, |adapter, gid| adapter.gids.push(gid))?;
        set(adapters, "mtu", &self.mtu, |adapter, mtu| adapter.mtu = mtu)?;
        set(adapters, "link-gen", &self.link_gen, |adapter, generation| adapter.link.generation = generation)?;
        set(adapters, "link-width", &self.link_width, |adapter, width| adapter.link.width = width)?;
        set(adapters, "vectors", &self.vectors, |adapter, vectors| adapter.vectors = vectors)?;
        set(adapters, "qp-cache", &self.qp_cache, |adapter, entries| adapter.caches.qp = entries)?;
        set(adapters, "cq-cache", &self.cq_cache, |adapter, entries| adapter.caches.cq = entries)?;
        set(adapters, "key-cache", &self.key_cache, |adapter, entries| adapter.caches.key = entries)?;
        set(adapters, "translation-cache", &self.translation_cache, |adapter, entries| {
            adapter.caches.translation = entries;
        })?;
        set(adapters, "busy-poll", &self.busy_poll, |adapter, time| adapter.busy_poll_us = time)?;
        adapters.iter_mut().for_each(|adapter| {
            adapter.strict |= self.strict;
            adapter.congestion.ecn |= self.ecn;
        });
        self.apply_to_switch(adapters)
    }

    fn apply_to_switch(&self, adapters: &mut [AdapterSettings]) -> Result<(), String> {
        set(adapters, "loss", &self.loss, |adapter, share| adapter.receive.loss = share)?;
        set(adapters, "duplication", &self.duplication, |adapter, share| adapter.receive.duplication = share)?;
        set(adapters, "corruption", &self.corruption, |adapter, share| adapter.receive.corruption = share)?;
        set(adapters, "delay-us", &self.delay_us, |adapter, delay| adapter.receive.delay_us = delay)?;
        set(adapters, "rate", &self.rate, |adapter, rate| {
            let known = adapter.receive.rate.take();
            adapter.receive.rate = Some(match known {
                Some(known) => RateSettings { bits_per_second: rate, ..known },
                None => RateSettings::new(rate),
            });
        })?;
        let mut without_rate = None;
        set(adapters, "queue-bytes", &self.queue_bytes, |adapter, bytes| match &mut adapter.receive.rate {
            Some(rate) => rate.queue_bytes = bytes,
            None => without_rate = Some(adapter.name.clone()),
        })?;
        if let Some(name) = without_rate {
            return Err(format!("--queue-bytes: the line to {name} has no rate, so it has no queue: add --rate"));
        }
        if let Some(seed) = self.seed {
            // Each adapter draws from a seed of its own, else all would lose the same frames.
            for (seed, adapter) in (seed..=u32::MAX).chain(0..seed).zip(adapters) {
                adapter.receive.seed = seed;
            }
        }
        Ok(())
    }

    /// The adapters that were named; those that the file describes stay as they are described.
    fn choose_adapters(&self, configuration: &mut Configuration) -> Result<(), String> {
        let described = std::mem::take(&mut configuration.adapters);
        for (at, name) in self.adapters.iter().enumerate() {
            if self.adapters[..at].contains(name) {
                return Err(format!("two adapters have the name {:?}", name.as_str()));
            }
            let known = described.iter().find(|adapter| adapter.name == *name).cloned();
            configuration.adapters.push(known.unwrap_or_else(|| AdapterSettings::new(name.clone())));
        }
        Ok(())
    }
}

/// Gives each value to the adapters that it is for: first what is for all, then what is for one.
fn set<T: Clone>(
    adapters: &mut [AdapterSettings],
    option: &str,
    given: &[For<T>],
    mut put: impl FnMut(&mut AdapterSettings, T),
) -> Result<(), String> {
    for value in given.iter().filter(|value| value.adapter.is_none()) {
        adapters.iter_mut().for_each(|adapter| put(adapter, value.value.clone()));
    }
    for value in given {
        let Some(name) = &value.adapter else { continue };
        match adapters.iter_mut().find(|adapter| adapter.name == *name) {
            Some(adapter) => put(adapter, value.value.clone()),
            None => {
                let names: Vec<_> = adapters.iter().map(|adapter| adapter.name.as_str()).collect();
                return Err(format!("--{option} {name}=…: there is no adapter {name}, but {}", names.join(", ")));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: ServeOptions,
    }

    fn applied(file: &str, arguments: &str) -> Result<Configuration, String> {
        let words = ["serve"].into_iter().chain(arguments.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        let mut configuration = file::parse(file)?;
        line.options.apply(&mut configuration).map(|()| configuration)
    }

    #[test]
    fn options_override_the_file_for_all_or_for_one() {
        let file = "[[adapter]]\nname = \"A\"\nmtu = 256\n[[adapter]]\nname = \"C\"\nlink = { width = 4 }";
        let both = applied(file, "--mtu 512 --mtu C=1024 --gid C=10.0.0.3 --rate A=8000 --queue-bytes A=9000").unwrap();
        let [a, c] = &both.adapters[..] else { panic!("{both:?}") };
        assert_eq!((a.mtu, c.mtu, c.link.width, c.gids.len()), (Mtu(512), Mtu(1024), Width(4), 1));
        assert_eq!(a.receive.rate.as_ref().map(|rate| rate.queue_bytes), Some(QueueBytes(9000)));
        let other = applied(file, "B C").unwrap();
        let names: Vec<_> = other.adapters.iter().map(|adapter| adapter.name.as_str()).collect();
        assert_eq!((names, other.adapters[1].link.width), (vec!["B", "C"], Width(4)));
        let seeds: Vec<_> = applied("", "--seed 7").unwrap().adapters.iter().map(|a| a.receive.seed).collect();
        assert_eq!(seeds, [7, 8]);
    }

    #[test]
    fn mistakes_name_the_option_and_the_cure() {
        for (arguments, words) in [
            ("--mtu D=512", "there is no adapter D, but A, B"),
            ("--mtu 1500", "2048 or 4096"),
            ("--loss 7", "0.0 to 1.0"),
            ("--gid 10.0.0.1", "--gid NAME=10.0.0.1"),
            ("--mac 02:00:00:00:00:01", "--mac NAME="),
            ("--queue-bytes 9000", "add --rate"),
            ("A A", "two adapters"),
            ("a/b", "no name for an adapter"),
        ] {
            let mistake = applied("", arguments).expect_err(arguments);
            assert!(mistake.contains(words), "{arguments}: {mistake}");
        }
    }
}
