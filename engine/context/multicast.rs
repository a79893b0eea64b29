//! Multicast groups: which datagram queue pairs take the packets of which group.

use crate::numbers::Qpn;
use rnic_abi::limits::{MAX_GROUP_QPS, MAX_MULTICAST_GROUPS};
use std::collections::BTreeMap;

/// Groups by GID; the queue pairs of each in the order in which they were attached. No group is empty.
#[derive(Debug, Default)]
pub struct MulticastTable {
    groups: BTreeMap<[u8; 16], Vec<Qpn>>,
}

impl MulticastTable {
    /// False where there is no room. To attach again changes nothing.
    pub fn attach(&mut self, group: [u8; 16], qpn: Qpn) -> bool {
        if self.is_attached(&group, qpn) {
            return true;
        }
        if !self.has_members(&group) && self.groups.len() >= MAX_MULTICAST_GROUPS.into() {
            return false;
        }
        let members = self.groups.entry(group).or_default();
        let room = members.len() < MAX_GROUP_QPS.into();
        if room {
            members.push(qpn);
        }
        room
    }

    /// False where it was not attached.
    pub fn detach(&mut self, group: &[u8; 16], qpn: Qpn) -> bool {
        let Some(members) = self.groups.get_mut(group) else { return false };
        let before = members.len();
        members.retain(|member| *member != qpn);
        let detached = members.len() < before;
        if members.is_empty() {
            self.groups.remove(group);
        }
        detached
    }

    pub fn detach_everywhere(&mut self, qpn: Qpn) {
        self.groups.retain(|_, members| {
            members.retain(|member| *member != qpn);
            !members.is_empty()
        });
    }

    pub fn is_attached(&self, group: &[u8; 16], qpn: Qpn) -> bool {
        self.groups.get(group).is_some_and(|members| members.contains(&qpn))
    }

    pub fn has_members(&self, group: &[u8; 16]) -> bool {
        self.groups.contains_key(group)
    }

    /// The queue pair at this place of the group.
    pub fn member(&self, group: &[u8; 16], at: usize) -> Option<Qpn> {
        self.groups.get(group)?.get(at).copied()
    }

    pub fn groups(&self) -> impl Iterator<Item = (&[u8; 16], &[Qpn])> {
        self.groups.iter().map(|(group, members)| (group, members.as_slice()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(number: u16) -> [u8; 16] {
        let mut group = [0xff; 16];
        group[14..].copy_from_slice(&number.to_be_bytes());
        group
    }

    #[test]
    fn groups_come_with_their_first_member_and_go_with_their_last() {
        let mut table = MulticastTable::default();
        assert!(table.attach(group(1), Qpn(5)) && table.attach(group(1), Qpn(4)) && table.attach(group(1), Qpn(5)));
        assert_eq!(table.groups().collect::<Vec<_>>(), [(&group(1), [Qpn(5), Qpn(4)].as_slice())]);
        assert!(
            !table.detach(&group(2), Qpn(5)) && table.detach(&group(1), Qpn(5)) && !table.detach(&group(1), Qpn(5))
        );
        table.detach_everywhere(Qpn(4));
        assert!(!table.has_members(&group(1)));
    }

    #[test]
    fn a_full_table_and_a_full_group_take_nobody_else() {
        let mut table = MulticastTable::default();
        for number in 0..u16::from(MAX_GROUP_QPS) {
            assert!(table.attach(group(0), Qpn(number.into())));
        }
        assert!(!table.attach(group(0), Qpn(1000)) && table.attach(group(0), Qpn(0)));
        for number in 1..MAX_MULTICAST_GROUPS {
            assert!(table.attach(group(number), Qpn(1000)));
        }
        assert!(!table.attach(group(MAX_MULTICAST_GROUPS), Qpn(1000)) && table.attach(group(1), Qpn(1)));
    }
}
