//! What `rnic serve` serves: the form of its TOML file, with the default of everything that is left out.

use super::congestion::CongestionSettings;
use super::values::{
    AdapterName, Address, BitRate, DoorbellPages, Entries, Frames, Generation, Mac, Microseconds, Mtu, QueueBytes,
    RingFrames, Seconds, Share, Threshold, Vectors, Width,
};
use rnic_device::adapter::AdapterOptions;
use rnic_device::server::adapter_options;
use rnic_engine::EngineConfig;
use rnic_pcie::LinkSettings;
use rnic_switch::{Displacement, ForwardConfig, Impairment, Marking, RateLimit, Reorder, SwitchConfig};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A whole server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configuration {
    /// Folder of the sockets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
    /// File that gets every frame on the switch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capture: Option<PathBuf>,
    /// Ports that a QEMU without an adapter joins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plain_ports: Vec<AdapterName>,
    #[serde(default)]
    pub switch: SwitchSettings,
    #[serde(default = "adapters_a_and_b", rename = "adapter")]
    pub adapters: Vec<AdapterSettings>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SwitchSettings {
    /// Frames that each ring between two adapters holds.
    pub ring_frames: RingFrames,
    /// How long an address that is not seen is remembered.
    pub address_age_s: Seconds,
    /// MAC addresses that are remembered, and as many IP addresses.
    pub addresses: Entries,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdapterSettings {
    pub name: AdapterName,
    /// Default: local, derived from the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
    /// Largest path MTU of the port.
    #[serde(default = "defaults::mtu")]
    pub mtu: Mtu,
    #[serde(default = "defaults::vectors")]
    pub vectors: Vectors,
    #[serde(default = "defaults::doorbell_pages")]
    pub doorbell_pages: DoorbellPages,
    /// A warning stops the device, so that no broken rule passes unseen.
    #[serde(default)]
    pub strict: bool,
    /// How long the adapter's thread looks for work before it sleeps.
    #[serde(default = "defaults::busy_poll_us")]
    pub busy_poll_us: Microseconds,
    /// What the GID table holds before the driver writes it.
    #[serde(default)]
    pub gids: Vec<Address>,
    #[serde(default)]
    pub link: LinkForm,
    #[serde(default)]
    pub caches: CacheSettings,
    #[serde(default)]
    pub receive: ReceiveSettings,
    #[serde(default)]
    pub congestion: CongestionSettings,
}

/// The PCIe link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinkForm {
    pub generation: Generation,
    pub width: Width,
}

/// Entries of the caches in the device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CacheSettings {
    pub qp: Entries,
    pub cq: Entries,
    pub key: Entries,
    /// Lines of page lists, eight page addresses each.
    pub translation: Entries,
}

/// What happens to frames on their way to the adapter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReceiveSettings {
    pub seed: u32,
    pub loss: Share,
    pub duplication: Share,
    /// One bit of the frame is flipped.
    pub corruption: Share,
    pub delay_us: Microseconds,
    /// Frames held at once by delay, reordering and rate.
    pub held_frames: Frames,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reorder: Option<ReorderSettings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateSettings>,
}

/// Which frames come out of order: held until so many others have passed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReorderSettings {
    pub probability: Share,
    pub frames: Frames,
    #[serde(default = "defaults::reorder_timeout_us")]
    pub timeout_us: Microseconds,
}

/// A line of limited rate with a queue in front.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateSettings {
    pub bits_per_second: BitRate,
    #[serde(default = "defaults::queue_bytes")]
    pub queue_bytes: QueueBytes,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marking: Option<MarkingSettings>,
}

/// Which share of the frames the queue marks as congestion experienced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "MarkingForm", into = "MarkingForm")]
pub struct MarkingSettings(MarkingForm);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MarkingForm {
    min_bytes: Threshold,
    max_bytes: Threshold,
    probability: Share,
}

impl TryFrom<MarkingForm> for MarkingSettings {
    type Error = String;

    fn try_from(form: MarkingForm) -> Result<Self, String> {
        let (min, max) = (form.min_bytes.0, form.max_bytes.0);
        if min > max {
            return Err(format!("min_bytes {min} is above max_bytes {max}: the queue marks from the first on"));
        }
        Ok(Self(form))
    }
}

impl From<MarkingSettings> for MarkingForm {
    fn from(settings: MarkingSettings) -> Self {
        settings.0
    }
}

mod defaults {
    use super::*;

    pub const fn mtu() -> Mtu {
        Mtu(4096)
    }

    pub fn vectors() -> Vectors {
        Vectors(EngineConfig::default().vectors)
    }

    pub fn doorbell_pages() -> DoorbellPages {
        DoorbellPages(EngineConfig::default().doorbell_pages)
    }

    pub const fn busy_poll_us() -> Microseconds {
        Microseconds(0)
    }

    pub const fn reorder_timeout_us() -> Microseconds {
        Microseconds(1000)
    }

    pub const fn queue_bytes() -> QueueBytes {
        QueueBytes(1 << 20)
    }
}

impl Default for SwitchSettings {
    fn default() -> Self {
        let SwitchConfig { forward, ring_frames } = SwitchConfig::default();
        Self {
            ring_frames: RingFrames(ring_frames as u32),
            address_age_s: Seconds((forward.age_ns / 1_000_000_000) as u32),
            addresses: Entries(forward.entries_max as u32),
        }
    }
}

impl Default for LinkForm {
    fn default() -> Self {
        let LinkSettings { generation, width, .. } = LinkSettings::AFTER_RESET;
        Self { generation: Generation(generation), width: Width(width) }
    }
}

impl Default for CacheSettings {
    fn default() -> Self {
        let engine = EngineConfig::default();
        let entries = |number: usize| Entries(number as u32);
        Self {
            qp: entries(engine.qp_cache_entries),
            cq: entries(engine.cq_cache_entries),
            key: entries(engine.key_cache_entries),
            translation: entries(engine.translation_cache_lines),
        }
    }
}

impl Default for ReceiveSettings {
    fn default() -> Self {
        Self {
            seed: 0,
            loss: Share::default(),
            duplication: Share::default(),
            corruption: Share::default(),
            delay_us: Microseconds(0),
            held_frames: Frames(Impairment::default().held_frames_max as u32),
            reorder: None,
            rate: None,
        }
    }
}

impl Default for Configuration {
    fn default() -> Self {
        Self {
            folder: None,
            capture: None,
            plain_ports: Vec::new(),
            switch: SwitchSettings::default(),
            adapters: adapters_a_and_b(),
        }
    }
}

fn adapters_a_and_b() -> Vec<AdapterSettings> {
    ["A", "B"].iter().filter_map(|name| name.parse().ok()).map(AdapterSettings::new).collect()
}

impl AdapterSettings {
    pub fn new(name: AdapterName) -> Self {
        Self {
            name,
            mac: None,
            mtu: defaults::mtu(),
            vectors: defaults::vectors(),
            doorbell_pages: defaults::doorbell_pages(),
            strict: false,
            busy_poll_us: defaults::busy_poll_us(),
            gids: Vec::new(),
            link: LinkForm::default(),
            caches: CacheSettings::default(),
            receive: ReceiveSettings::default(),
            congestion: CongestionSettings::default(),
        }
    }

    pub fn mac(&self) -> Mac {
        self.mac.unwrap_or_else(|| Mac(rnic_device::server::mac_of(self.name.as_str())))
    }

    /// What the adapter is started with, its socket in `folder`.
    pub fn options(&self, folder: &Path) -> AdapterOptions {
        let usual = adapter_options(self.name.as_str(), folder);
        let CacheSettings { qp, cq, key, translation } = &self.caches;
        let entries = |entries: &Entries| entries.0 as usize;
        AdapterOptions {
            engine: EngineConfig {
                mac: self.mac().0,
                doorbell_pages: self.doorbell_pages.0,
                vectors: self.vectors.0,
                qp_cache_entries: entries(qp),
                cq_cache_entries: entries(cq),
                key_cache_entries: entries(key),
                translation_cache_lines: entries(translation),
                port_mtu_bytes: self.mtu.0,
                strict: self.strict,
                congestion: self.congestion.config(),
                gids: self.gids.iter().map(|address| address.gid()).collect(),
                ..usual.engine
            },
            link: LinkSettings { generation: self.link.generation.0, width: self.link.width.0, ..usual.link },
            impairment: self.receive.impairment(),
            busy_poll: Duration::from_micros(self.busy_poll_us.0.into()),
            ..usual
        }
    }
}

impl SwitchSettings {
    pub fn config(&self) -> SwitchConfig {
        let age_ns = u64::from(self.address_age_s.0) * 1_000_000_000;
        let forward = ForwardConfig { age_ns, entries_max: self.addresses.0 as usize };
        SwitchConfig { forward, ring_frames: self.ring_frames.0 as usize }
    }
}

impl ReceiveSettings {
    fn impairment(&self) -> Impairment {
        let nanoseconds = |time: Microseconds| u64::from(time.0) * 1000;
        Impairment {
            seed: self.seed.into(),
            loss: self.loss.probability(),
            duplication: self.duplication.probability(),
            corruption: self.corruption.probability(),
            reorder: self.reorder.as_ref().map(|reorder| Reorder {
                probability: reorder.probability.probability(),
                by: Displacement::Frames { count: reorder.frames.0, timeout_ns: nanoseconds(reorder.timeout_us) },
            }),
            delay_ns: nanoseconds(self.delay_us),
            rate_limit: self.rate.as_ref().map(RateSettings::limit),
            held_frames_max: self.held_frames.0 as usize,
        }
    }
}

impl RateSettings {
    pub fn new(bits_per_second: BitRate) -> Self {
        Self { bits_per_second, queue_bytes: defaults::queue_bytes(), marking: None }
    }

    fn limit(&self) -> RateLimit {
        RateLimit {
            bits_per_second: self.bits_per_second.0,
            queue_bytes: self.queue_bytes.0,
            marking: self.marking.as_ref().map(|MarkingSettings(form)| Marking {
                threshold_min_bytes: form.min_bytes.0,
                threshold_max_bytes: form.max_bytes.0,
                probability_max: form.probability.probability(),
            }),
        }
    }
}
