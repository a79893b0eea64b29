//! A server: one switch, its adapters, and its plain ports.

use crate::adapter::{AdapterError, AdapterHandle, AdapterOptions};
use crate::plain_port::{PlainPort, PlainPortError};
use rnic_switch::{Switch, SwitchConfig};
use std::path::Path;

/// A switch with adapters on it. Dropping it ends them all.
pub struct Server {
    pub switch: Switch,
    pub adapters: Vec<AdapterHandle>,
    pub plain_ports: Vec<PlainPort>,
}

impl Server {
    pub fn start(adapters: Vec<AdapterOptions>, switch: SwitchConfig) -> Result<Self, AdapterError> {
        let switch = Switch::new(switch);
        let adapters =
            adapters.into_iter().map(|options| AdapterHandle::start(options, &switch)).collect::<Result<_, _>>()?;
        Ok(Self { switch, adapters, plain_ports: Vec::new() })
    }

    /// Adds a port that a QEMU without an adapter joins.
    pub fn add_plain_port(&mut self, name: &str, socket: &Path) -> Result<&PlainPort, PlainPortError> {
        self.plain_ports.push(PlainPort::start(name, socket, &self.switch)?);
        Ok(&self.plain_ports[self.plain_ports.len() - 1])
    }

    pub fn adapter(&self, name: &str) -> Option<&AdapterHandle> {
        self.adapters.iter().find(|adapter| adapter.name() == name)
    }
}

/// The adapter of this name: sockets `NAME.sock` and `NAME.net.sock` in the folder, a MAC of its own.
pub fn adapter_options(name: &str, folder: &Path) -> AdapterOptions {
    AdapterOptions {
        name: name.to_owned(),
        socket: folder.join(format!("{name}.sock")),
        ethernet_socket: folder.join(format!("{name}.net.sock")),
        engine: rnic_engine::EngineConfig { mac: mac_of(name), ..Default::default() },
        link: rnic_pcie::LinkSettings::AFTER_RESET,
        impairment: rnic_switch::Impairment::default(),
        always_seal: false,
        busy_poll: std::time::Duration::ZERO,
    }
}

/// A local, unicast MAC address that depends on the name alone (FNV-1a).
pub fn mac_of(name: &str) -> [u8; 6] {
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let [.., a, b, c, d, e] = hash.to_be_bytes();
    [0x02, a, b, c, d, e]
}
