//! Whole adapters that are reset in the middle of everything, by their control register or as a PCIe function, and brought
//! up again by their driver: every object is made anew under its number, every region gets another key. Whoever was
//! connected with them fails or is ended; nobody else may notice.

use crate::commands::Drain;
use crate::connection::*;
use crate::host::vlan_of;
use crate::run::{Checked, Simulation, explain};
use crate::unreliable::Station;
use rnic_shim::backing::Backing;
use rnic_shim::verbs::*;

/// Configuration space: the command word, and the capability that has Device Control.
const COMMAND: u16 = 0x04;
const CAPABILITIES: u16 = 0x34;
const CAPABILITY_EXPRESS: u32 = 0x10;
const FUNCTION_LEVEL_RESET: u16 = 1 << 15;
/// The words that a driver saves: command and base addresses.
const SAVED: [u16; 7] = [COMMAND, 0x10, 0x14, 0x18, 0x1c, 0x20, 0x24];

impl Simulation {
    pub(crate) fn reset_some(&mut self) -> Checked<bool> {
        if let Some(host) = self.broken.pop_first() {
            self.reset_adapter(host)?;
            // The same event of another of its queues is of before.
            self.broken.remove(&host);
            return Ok(true);
        }
        if self.healed_ns.is_some() || !self.random.per_million(self.plan.adapter_resets) {
            return Ok(false);
        }
        let host = self.random.index(self.hosts.len());
        self.reset_adapter(host)?;
        Ok(true)
    }

    fn reset_adapter(&mut self, host: usize) -> Checked {
        // What has completed is taken first; what has not is never completed. An arm may have led to one more event.
        self.poll_host(host)?;
        self.poll_events(host)?;
        self.enter("resets", host, [0; 4]);
        self.coverage.note("adapter resets", 1);
        self.lose_connections(host)?;
        self.lose_stations(host);
        if self.random.one_in(2) {
            self.coverage.note("function level resets", 1);
            reset_function(self.hosts[host].device.backing()).map_err(explain("a function level reset"))?;
        }
        let vlan = vlan_of(&self.plan);
        self.hosts[host].restart(vlan).map_err(explain("bringing an adapter up again"))?;
        self.renew_shared(host).map_err(explain("making shared receive queues anew"))?;
        self.renew_connections(host).map_err(explain("making queue pairs anew"))?;
        self.renew_stations(host).map_err(explain("making unreliable queue pairs anew"))?;
        self.coverage.item(81);
        Ok(())
    }

    /// Its ends of connections have nothing posted any more.
    fn lose_connections(&mut self, host: usize) -> Checked {
        for number in 0..self.connections.len() {
            let ends = self.connections[number].ends;
            let Some(side) = (0..2).find(|side| ends[*side].host == host) else { continue };
            let connection = &mut self.connections[number];
            let counted = &mut self.hosts[host].counted;
            let posted = connection.flows[side].outstanding.len() + connection.flows[1 - side].receives.len();
            counted.unseen_most += posted as u64;
            counted.receives_most += 2;
            if matches!(connection.phase, Phase::Resting { .. }) {
                continue;
            }
            (connection.gone[side], connection.late, connection.drains[side]) = (true, None, Drain::No);
            connection.flows[side].forget_sends();
            connection.flows[1 - side].forget_receives();
            if connection.runs() {
                connection.doom = Some(Doom::Reset);
                // Its peer finds out by itself, if it waits for something.
                if connection.flows[1 - side].outstanding.is_empty() || self.random.one_in(2) {
                    self.end_connection(number)?;
                }
            }
        }
        Ok(())
    }

    /// Lines end where one of their stations is gone.
    fn lose_stations(&mut self, host: usize) {
        for number in 0..self.unreliable.stations.len() {
            let station = &mut self.unreliable.stations[number];
            if station.host != host {
                continue;
            }
            let counted = &mut self.hosts[host].counted;
            counted.unseen_most += (station.outstanding.len() + station.receives.len()) as u64;
            counted.receives_most += 2;
            station.lose();
            self.unreliable.groups.iter_mut().for_each(|group| group.members.retain(|member| *member != number));
            self.unreliable.lines[station.line].excused = true;
        }
    }

    /// Regions of both directions, and the queue pair.
    fn renew_connections(&mut self, host: usize) -> Result<()> {
        for number in 0..self.connections.len() {
            let ends = self.connections[number].ends;
            let Some(side) = (0..2).find(|side| ends[*side].host == host) else { continue };
            let opened = &mut self.hosts[host];
            let [first, second] = &mut self.connections[number].flows;
            let (own, other) = if side == 0 { (first, second) } else { (second, first) };
            opened.renew(&mut own.landing)?;
            for region in other.target.iter_mut().chain([&mut other.arena, &mut other.words]) {
                opened.renew(region)?;
            }
            if let Some(view) = &mut other.view {
                opened.renew(&mut view.region)?;
                view.lose(&mut opened.device);
            }
            if !self.connections[number].destroyed[side] {
                self.create_again(number, side)?;
            }
        }
        Ok(())
    }

    fn renew_stations(&mut self, host: usize) -> Result<()> {
        for number in 0..self.unreliable.stations.len() {
            let station = &mut self.unreliable.stations[number];
            if station.host != host {
                continue;
            }
            let opened = &mut self.hosts[host];
            for region in station.target.iter_mut().chain([&mut station.arena]) {
                opened.renew(region)?;
            }
            let Station { service, qpn, send_cq, receive_cq, shared, .. } = *station;
            let spec = self.station_spec(service, Some(qpn.0), self.hosts[host].pd, [send_cq, receive_cq]);
            self.create_pair(host, spec, shared)?;
        }
        Ok(())
    }
}

/// Saves what a driver restores, sets the bit, and writes it back.
fn reset_function(backing: &mut dyn Backing) -> rnic_shim::backing::Result<()> {
    let mut at = (backing.config_read32(CAPABILITIES)? & 0xfc) as u16;
    while at != 0 {
        let head = backing.config_read32(at)?;
        if head & 0xff == CAPABILITY_EXPRESS {
            break;
        }
        at = (head >> 8 & 0xfc) as u16;
    }
    let control_at = at + 8;
    let control = backing.config_read32(control_at)? as u16;
    let mut saved = [0; SAVED.len()];
    for (word, offset) in saved.iter_mut().zip(SAVED) {
        *word = backing.config_read32(offset)?;
    }
    backing.config_write16(control_at, control | FUNCTION_LEVEL_RESET)?;
    for (word, offset) in saved.into_iter().zip(SAVED).rev() {
        backing.config_write32(offset, if offset == COMMAND { word & 0xffff } else { word })?;
    }
    backing.config_write16(control_at, control)
}
