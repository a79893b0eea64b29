//! Datagrams: where one goes, where one came from, and the groups that a queue pair listens to.

use super::{Device, Qpn, Result};
use rnic_abi::command::{AddressVector, MulticastGroup};
use rnic_abi::completion::{CQE_GRH, CQE_WITH_VLAN, Cqe};
use rnic_abi::{CommandOpcode, DatagramSegment};
use serde::Serialize;
use zerocopy::IntoBytes;

/// Where a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    pub av: AddressVector,
    pub dest_qpn: u32,
    /// With `QKEY_PRIVILEGED` the queue pair's own is sent.
    pub qkey: u32,
    /// Of the general services interface alone.
    pub pkey_index: u16,
}

impl Datagram {
    pub(crate) fn segment(&self) -> DatagramSegment {
        DatagramSegment {
            av: self.av,
            dest_qpn: self.dest_qpn.into(),
            qkey: self.qkey.into(),
            pkey_index: self.pkey_index.into(),
            reserved: 0.into(),
        }
    }
}

/// Where a datagram came from, beside its sender's queue pair; the network header stands in front of it in its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DatagramOrigin {
    pub source_mac: [u8; 6],
    /// Identifier and priority of its 802.1Q tag.
    pub vlan: Option<(u16, u8)>,
    /// A `NETWORK_*` code: which header it is.
    pub network_type: u8,
    pub pkey_index: u16,
}

impl DatagramOrigin {
    pub(crate) fn of(cqe: &Cqe, flags: u16) -> Option<Self> {
        (flags & CQE_GRH != 0).then(|| Self {
            source_mac: cqe.source_mac,
            vlan: (flags & CQE_WITH_VLAN != 0).then_some((cqe.vlan_id.get(), cqe.service_level)),
            network_type: cqe.network_type,
            pkey_index: cqe.pkey_index.get(),
        })
    }
}

/// The MAC address of a group: RFC 1112 for an IPv4 address, RFC 2464 for an IPv6 one.
pub fn multicast_mac(gid: &[u8; 16]) -> [u8; 6] {
    let [.., a, b, c, d] = *gid;
    let is_ipv4 = gid[..10] == [0; 10] && gid[10..12] == [0xff; 2];
    if is_ipv4 { [0x01, 0x00, 0x5e, b & 0x7f, c, d] } else { [0x33, 0x33, a, b, c, d] }
}

impl Device {
    /// The queue pair takes the packets of a group from now on.
    pub fn attach_multicast(&mut self, qpn: Qpn, gid: [u8; 16]) -> Result<()> {
        self.on_group(CommandOpcode::ATTACH_MULTICAST, qpn, gid)
    }

    pub fn detach_multicast(&mut self, qpn: Qpn, gid: [u8; 16]) -> Result<()> {
        self.on_group(CommandOpcode::DETACH_MULTICAST, qpn, gid)
    }

    fn on_group(&mut self, opcode: CommandOpcode, qpn: Qpn, gid: [u8; 16]) -> Result<()> {
        let body = MulticastGroup { qpn: qpn.0.into(), reserved: 0.into(), gid };
        self.command(opcode, body.as_bytes()).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 1112, section 6.4 (the upper bits of 224.128.64.32 do not show) and RFC 2464, section 7.
    #[test]
    fn a_groups_mac_address_is_made_of_its_last_bytes() {
        let ipv4 = |address: [u8; 4]| {
            let mut gid = [0; 16];
            gid[10..12].fill(0xff);
            gid[12..].copy_from_slice(&address);
            multicast_mac(&gid)
        };
        assert_eq!(ipv4([224, 128, 64, 32]), [0x01, 0x00, 0x5e, 0x00, 0x40, 0x20]);
        assert_eq!(ipv4([239, 1, 2, 3]), [0x01, 0x00, 0x5e, 0x01, 0x02, 0x03]);
        let mut all_nodes = [0; 16];
        (all_nodes[0], all_nodes[1], all_nodes[15]) = (0xff, 0x02, 1);
        assert_eq!(multicast_mac(&all_nodes), [0x33, 0x33, 0, 0, 0, 1]);
    }
}
