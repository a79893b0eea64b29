//! The port's GID table.

use rnic_abi::limits::MAX_GIDS;

/// One source address of the port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GidEntry {
    pub gid: [u8; 16],
    pub mac: [u8; 6],
    pub vlan_id: Option<u16>,
}

/// GIDs by index, as the driver set them.
#[derive(Debug, Default)]
pub struct GidTable {
    entries: Vec<Option<GidEntry>>,
}

impl GidTable {
    /// A table that begins with these, as the port was configured.
    pub fn preset(mac: [u8; 6], gids: &[[u8; 16]]) -> Self {
        let entries = gids.iter().take(MAX_GIDS.into()).map(|&gid| Some(GidEntry { gid, mac, vlan_id: None }));
        Self { entries: entries.collect() }
    }

    pub fn get(&self, index: u16) -> Option<&GidEntry> {
        self.entries.get(usize::from(index))?.as_ref()
    }

    /// False for an index beyond the table.
    pub fn set(&mut self, index: u16, entry: Option<GidEntry>) -> bool {
        if index >= MAX_GIDS {
            return false;
        }
        let at = usize::from(index);
        if self.entries.len() <= at {
            self.entries.resize(at + 1, None);
        }
        self.entries[at] = entry;
        true
    }

    /// The GIDs that are set, with their indices.
    pub fn indexed(&self) -> impl Iterator<Item = (u16, &GidEntry)> {
        (0..).zip(&self.entries).filter_map(|(index, entry)| entry.as_ref().map(|entry| (index, entry)))
    }

    /// Another index holds the same address in the same VLAN: which of the two a packet is for could not be told.
    pub fn is_elsewhere(&self, index: u16, entry: &GidEntry) -> bool {
        let mut others = self.entries.iter().enumerate().filter(|(at, _)| *at != usize::from(index));
        others.any(|(_, other)| other.is_some_and(|other| (other.gid, other.vlan_id) == (entry.gid, entry.vlan_id)))
    }

    /// The GIDs that are set.
    pub fn iter(&self) -> impl Iterator<Item = &GidEntry> {
        self.entries.iter().flatten()
    }
}
