//! Which ports a frame goes to, and how the switch learns it.
//!
//! In: a frame's addresses and the port it came from. Out: one port, or all others.
//! IP frames go by destination IP, other frames by destination MAC; groups and the unknown are flooded. Reading takes
//! no lock: the table is published and never changes, but for the time each entry was last seen. Learning is rare (a
//! source that is new or has moved), so it copies the table under a lock and publishes the copy.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use crate::address::{Addresses, IpAddress, MacAddress};

/// A port's place in the switch, below `MAX_PORTS`.
pub type PortIndex = u8;

/// Limits of the forwarding table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardConfig {
    /// An entry not seen for this long is forgotten.
    pub age_ns: u64,
    /// Entries for MAC addresses, and as many for IP addresses; beyond it the one not seen for longest goes.
    pub entries_max: usize,
}

impl Default for ForwardConfig {
    fn default() -> Self {
        Self { age_ns: 300 * 1_000_000_000, entries_max: 1024 }
    }
}

/// What was learned of one address.
#[derive(Debug)]
struct Entry<Address> {
    address: Address,
    port: PortIndex,
    /// Written by the port that sees the address, read by all: a hint, so Relaxed will do.
    seen_ns: AtomicU64,
}

impl<Address: Copy> Clone for Entry<Address> {
    fn clone(&self) -> Self {
        Self { address: self.address, port: self.port, seen_ns: AtomicU64::new(self.seen_ns.load(Ordering::Relaxed)) }
    }
}

/// Entries in ascending order of address: an order that is the same in every run, unlike a hash map's.
#[derive(Clone, Debug)]
struct Entries<Address: Copy>(Vec<Entry<Address>>);

impl<Address: Copy + Ord> Entries<Address> {
    fn find(&self, address: Address) -> Option<&Entry<Address>> {
        let place = self.0.binary_search_by_key(&address, |entry| entry.address).ok()?;
        self.0.get(place)
    }

    fn port_of(&self, address: Address, now_ns: u64, age_ns: u64) -> Option<PortIndex> {
        let entry = self.find(address)?;
        let idle_ns = now_ns.saturating_sub(entry.seen_ns.load(Ordering::Relaxed));
        (idle_ns <= age_ns).then_some(entry.port)
    }

    /// Notes that the address was seen. False if it is new or was behind another port. The time is stored only now and
    /// then, to keep busy ports from passing the cache line to and fro.
    fn refresh(&self, address: Address, port: PortIndex, now_ns: u64, age_ns: u64) -> bool {
        let Some(entry) = self.find(address).filter(|entry| entry.port == port) else { return false };
        if now_ns.saturating_sub(entry.seen_ns.load(Ordering::Relaxed)) > age_ns / 256 {
            entry.seen_ns.store(now_ns, Ordering::Relaxed);
        }
        true
    }

    fn learn(&mut self, address: Address, port: PortIndex, now_ns: u64, config: &ForwardConfig) {
        self.0.retain(|entry| {
            let idle_ns = now_ns.saturating_sub(entry.seen_ns.load(Ordering::Relaxed));
            idle_ns <= config.age_ns && entry.address != address
        });
        if self.0.len() >= config.entries_max.max(1) {
            let oldest = (0..self.0.len()).min_by_key(|&place| self.0[place].seen_ns.load(Ordering::Relaxed));
            oldest.map(|place| self.0.remove(place));
        }
        let place = self.0.partition_point(|entry| entry.address < address);
        self.0.insert(place, Entry { address, port, seen_ns: AtomicU64::new(now_ns) });
    }
}

/// One published state of the forwarding table.
#[derive(Clone, Debug)]
pub struct Table {
    config: ForwardConfig,
    stations: Entries<MacAddress>,
    hosts: Entries<IpAddress>,
}

impl Table {
    /// The port a frame goes to; None means all but its own.
    pub fn destination(&self, addresses: &Addresses, now_ns: u64) -> Option<PortIndex> {
        if addresses.is_group() {
            return None;
        }
        match addresses.ip {
            Some((_, destination)) => self.hosts.port_of(destination, now_ns, self.config.age_ns),
            None => self.stations.port_of(addresses.destination_mac, now_ns, self.config.age_ns),
        }
    }

    /// Whether the frame's sources are known to be behind `port`; notes that they were seen.
    pub fn knows_source(&self, addresses: &Addresses, port: PortIndex, now_ns: u64) -> bool {
        let age_ns = self.config.age_ns;
        let mac = addresses.source_mac;
        let mac_known = !mac.is_station() || self.stations.refresh(mac, port, now_ns, age_ns);
        let ip_known = match addresses.ip {
            Some((source, _)) if source.is_station() => self.hosts.refresh(source, port, now_ns, age_ns),
            _ => true,
        };
        mac_known && ip_known
    }

    fn sizes(&self) -> (usize, usize) {
        (self.stations.0.len(), self.hosts.0.len())
    }
}

/// The published table and the right to publish the next one.
#[derive(Debug)]
pub struct Forwarding {
    published: Arc<ArcSwap<Table>>,
    publisher: Mutex<()>,
}

/// A port's view of the published table: one atomic load tells that it has not changed.
pub type TableView = arc_swap::Cache<Arc<ArcSwap<Table>>, Arc<Table>>;

impl Forwarding {
    pub fn new(config: ForwardConfig) -> Self {
        let table = Table { config, stations: Entries(Vec::new()), hosts: Entries(Vec::new()) };
        Self { published: Arc::new(ArcSwap::from_pointee(table)), publisher: Mutex::new(()) }
    }

    pub fn view(&self) -> TableView {
        arc_swap::Cache::new(Arc::clone(&self.published))
    }

    /// How many MAC and how many IP addresses are known, aged ones included.
    pub fn sizes(&self) -> (usize, usize) {
        self.published.load().sizes()
    }

    /// Learns the frame's sources, unless another thread has just done so.
    pub fn learn(&self, addresses: &Addresses, port: PortIndex, now_ns: u64) {
        self.publish(|table| {
            if table.knows_source(addresses, port, now_ns) {
                return None;
            }
            let mut next = table.clone();
            let config = next.config;
            if addresses.source_mac.is_station() {
                next.stations.learn(addresses.source_mac, port, now_ns, &config);
            }
            if let Some((source, _)) = addresses.ip.filter(|(source, _)| source.is_station()) {
                next.hosts.learn(source, port, now_ns, &config);
            }
            Some(next)
        });
    }

    /// Forgets all that was learned from a port that has left.
    pub fn forget(&self, port: PortIndex) {
        self.publish(|table| {
            let mut next = table.clone();
            next.stations.0.retain(|entry| entry.port != port);
            next.hosts.0.retain(|entry| entry.port != port);
            Some(next)
        });
    }

    fn publish(&self, change: impl FnOnce(&Table) -> Option<Table>) {
        // A table is replaced whole, so a panic of another holder left none half changed.
        let _publisher = self.publisher.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(next) = change(&self.published.load()) {
            self.published.store(Arc::new(next));
        }
    }
}
