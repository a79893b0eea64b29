//! Multicast groups: datagram queue pairs join and leave them, anybody sends to them, and each member at another host has a
//! copy of its own.

use super::{Group, Service};
use crate::check::packet::Packet;
use crate::run::{Checked, Simulation, explain};
use rnic_abi::command::{AddressVector, MULTICAST_QPN};
use rnic_shim::verbs::*;

/// A station joins or leaves in one of so many turns.
const CHANGES_ONE_IN: u64 = 400;
/// One in so many datagrams goes to a group.
const GROUPED_ONE_IN: u64 = 3;

/// The address of a group, of the hosts' own kind.
fn gid_of_group(number: usize, ipv6: bool) -> [u8; 16] {
    let number = number as u8 + 1;
    if ipv6 {
        [0xff, 0x05, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 1, number]
    } else {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 7, 1, number]
    }
}

impl Simulation {
    pub(crate) fn build_groups(&mut self) {
        let ipv6 = self.plan.ipv6;
        let new = |number| Group { gid: gid_of_group(number, ipv6), members: Vec::new() };
        self.unreliable.groups = (0..self.plan.groups).map(new).collect();
    }

    /// The group that a packet is for.
    pub(crate) fn group_of(&self, packet: &Packet) -> Option<usize> {
        let to_group = packet.deth.is_some() && packet.dest_qp == MULTICAST_QPN;
        self.unreliable.groups.iter().position(|group| to_group && group.gid == packet.dest)
    }

    pub(crate) fn members_at(&self, group: usize, host: usize) -> Vec<usize> {
        let members = self.unreliable.groups[group].members.iter();
        members.copied().filter(|member| self.unreliable.stations[*member].host == host).collect()
    }

    /// Copies may be more than can be kept while they wait for reads.
    pub(crate) fn may_find_no_room(&self, frame: &[u8]) -> bool {
        self.plan.memory.hold > 0 && Packet::read(frame).is_some_and(|packet| self.group_of(&packet).is_some())
    }

    pub(crate) fn address_of_group(&self, group: usize) -> (AddressVector, u32) {
        let dest_gid = self.unreliable.groups[group].gid;
        let dest_mac = multicast_mac(&dest_gid);
        (AddressVector { dest_gid, dest_mac, hop_limit: 64, ..self.address_of(0) }, MULTICAST_QPN)
    }

    /// A group's MAC address is made of its address.
    pub(crate) fn check_group_address(&self, packet: &Packet, group: usize) -> Checked {
        let Group { gid, .. } = self.unreliable.groups[group];
        // RFC 1112 and RFC 2464.
        let right = match gid {
            [0xff, .., a, b, c, d] => [0x33, 0x33, a, b, c, d],
            [.., b, c, d] => [1, 0, 0x5e, b & 0x7f, c, d],
        };
        if packet.dest_mac == right { Ok(()) } else { Err(format!("to {:02x?}, not {right:02x?}", packet.dest_mac)) }
    }

    /// The group that a datagram goes to, now and then.
    pub(crate) fn choose_group(&mut self, number: usize) -> Option<usize> {
        let (service, groups) = (self.unreliable.stations[number].service, self.unreliable.groups.len());
        let grouped = service == Service::Ud && groups > 0 && self.random.one_in(GROUPED_ONE_IN);
        grouped.then(|| self.random.index(groups))
    }

    /// Stations join and leave.
    pub(crate) fn change_groups(&mut self) -> Checked<bool> {
        let (groups, stations) = (self.unreliable.groups.len(), self.unreliable.stations.len());
        if groups == 0 || stations == 0 || self.healed_ns.is_some() || !self.random.one_in(CHANGES_ONE_IN) {
            return Ok(false);
        }
        let (group, number) = (self.random.index(groups), self.random.index(stations));
        let station = &self.unreliable.stations[number];
        if station.service != Service::Ud {
            return Ok(false);
        }
        let (qpn, device) = (station.qpn, &mut self.hosts[station.host].device);
        let Group { gid, members } = &mut self.unreliable.groups[group];
        let place = members.iter().position(|member| *member == number);
        let name = match place {
            Some(place) => {
                members.remove(place);
                device.detach_multicast(qpn, *gid).map_err(explain("leaving a group"))?;
                "groups left"
            }
            None => {
                members.push(number);
                device.attach_multicast(qpn, *gid).map_err(explain("joining a group"))?;
                "groups joined"
            }
        };
        self.coverage.note(name, 1);
        Ok(true)
    }
}
