//! How stations are made, set up and begun anew.

use super::{Line, QKEY, Service, Station, Unreliable};
use crate::check::row::Row;
use crate::connection::Phase;
use crate::message::Places;
use crate::run::Simulation;
use crate::unread::Unread;
use rnic_abi::command::*;
use rnic_shim::verbs::*;
use std::collections::VecDeque;

/// Who will be where: a line's hosts, and the completion queues of each.
#[derive(Debug)]
pub(crate) struct Site {
    service: Service,
    hosts: Vec<usize>,
    queues: Vec<[usize; 2]>,
}

impl Simulation {
    /// Chooses the hosts of all lines, and counts the users of their completion queues.
    pub(crate) fn choose_sites(&mut self, queues: usize, users: &mut [Vec<u64>]) -> Vec<Site> {
        let mut sites = Vec::new();
        let (connections, datagrams) = (self.plan.unreliable_connections, self.plan.datagram_stations);
        for number in 0..connections + datagrams {
            let service = if number < connections { Service::Uc } else { Service::Ud };
            let first = self.random.index(self.plan.hosts);
            let other = (first + 1 + self.random.index(self.plan.hosts - 1)) % self.plan.hosts;
            let hosts = match service {
                Service::Uc => vec![first, other],
                // Datagrams need somebody at another host.
                Service::Ud => vec![(number - connections) % self.plan.hosts],
            };
            let mut choose = |host: usize| {
                let choice = [self.random.index(queues), self.random.index(queues)];
                choice.iter().for_each(|queue| users[host][*queue] += 1);
                choice
            };
            let queues = hosts.iter().map(|host| choose(*host)).collect();
            sites.push(Site { service, hosts, queues });
        }
        sites
    }

    pub(crate) fn build_unreliable(&mut self, sites: &[Site]) -> Result<()> {
        for (line, site) in sites.iter().enumerate() {
            let first = self.unreliable.stations.len();
            let stations: Vec<usize> = (first..first + site.hosts.len()).collect();
            for (at, (host, queues)) in site.hosts.iter().zip(&site.queues).enumerate() {
                let mut station = self.build_station(site.service, line, *host, *queues)?;
                station.peer = stations[stations.len() - 1 - at];
                self.unreliable.places.insert((*host, station.qpn.0), first + at);
                self.unreliable.stations.push(station);
            }
            let phase = Phase::Resting { until_ns: 0 };
            self.unreliable.lines.push(Line { stations, phase, mtu: 0, excused: false });
            self.set_up_line(line)?;
        }
        self.build_groups();
        Ok(())
    }

    fn build_station(&mut self, service: Service, line: usize, host: usize, queues: [usize; 2]) -> Result<Station> {
        let bytes = u64::from(self.plan.reach_bytes) + (16 << 10);
        let layouts = [MrLayout::Contiguous, MrLayout::List, MrLayout::TwoLevel];
        let layout = self.random.pick(&layouts);
        let shared = self.choose_shared(host, true);
        let opened = &mut self.hosts[host];
        let (send_cq, receive_cq) = (opened.queues[queues[0]].cqn, opened.queues[queues[1]].cqn);
        let pd = opened.pd;
        let spec = self.station_spec(service, None, pd, [send_cq, receive_cq]);
        let qpn = self.create_pair(host, spec, shared)?;
        let opened = &mut self.hosts[host];
        let arena = opened.open_region(bytes, layout)?;
        let target = match service {
            Service::Uc => Some(opened.open_region(bytes, layout)?),
            Service::Ud => None,
        };
        let shadow = vec![0; target.as_ref().map_or(0, |target| target.buffer.length_bytes as usize)];
        Ok(Station {
            service,
            line,
            host,
            qpn,
            send_cq,
            receive_cq,
            shared,
            last_receive: false,
            peer: 0,
            outstanding: VecDeque::new(),
            next_number: 0,
            next_psn: 0,
            unsignaled: 0,
            leaving: 0,
            history: VecDeque::new(),
            stopped: false,
            unread: Unread::default(),
            gone: false,
            receives: VecDeque::new(),
            next_receive: 0,
            receive_bytes: 0,
            places: Places::new(arena.buffer.length_bytes as u32),
            arena,
            target,
            before: shadow.clone(),
            shadow,
            unsure: Vec::new(),
            row: Row::new(0),
            candidates: VecDeque::new(),
            begun_certain: false,
            dry: self.random.one_in(self.plan.dry_one_in),
        })
    }

    /// The queue pair of a station.
    pub(crate) fn station_spec(&self, service: Service, qpn: Option<u32>, pd: Pdn, queues: [Cqn; 2]) -> QpSpec {
        let limit = self.plan.log_cqes_per_qp;
        QpSpec {
            qpn,
            pd,
            send_cq: queues[0],
            receive_cq: queues[1],
            log_send_slots: limit + 2,
            log_receive_entries: limit,
            log_receive_stride: 2,
            doorbell_page: 1,
            signal_all: false,
            privileged: false,
            selective: false,
            qp_type: if service == Service::Uc { QP_TYPE_UC } else { QP_TYPE_UD },
        }
    }

    /// RESET to RTS, with new numbers.
    pub(crate) fn set_up_line(&mut self, line: usize) -> Result<()> {
        let stations = self.unreliable.lines[line].stations.clone();
        let service = self.unreliable.stations[stations[0]].service;
        let mtu = match service {
            Service::Uc => self.random.pick(&[256, 512, 1024, 1024, 2048, 4096]),
            Service::Ud => self.plan.engine.port_mtu_bytes,
        };
        let sizes = match service {
            Service::Uc => [mtu, 4 * mtu, 16 * mtu],
            Service::Ud => [0, 64, mtu].map(|bytes| bytes + 40),
        };
        let psns: Vec<u32> = stations.iter().map(|_| self.first_psn()).collect();
        for (at, station) in stations.iter().enumerate() {
            let mut bytes = self.random.pick(&sizes);
            if let Some(queue) = self.unreliable.stations[*station].shared {
                bytes = self.shared[queue].entry_bytes;
            }
            let their_psn = psns[psns.len() - 1 - at];
            self.unreliable.stations[*station].begin(psns[at], their_psn, bytes);
            match service {
                Service::Uc => self.connect_station(*station, psns[at], their_psn, mtu)?,
                Service::Ud => {
                    let Station { host, qpn, .. } = self.unreliable.stations[*station];
                    for step in datagram_attributes(QP_TYPE_UD, QKEY, psns[at]) {
                        self.hosts[host].device.modify_queue_pair(qpn, step)?;
                    }
                }
            }
        }
        let line = &mut self.unreliable.lines[line];
        (line.mtu, line.phase, line.excused) = (mtu, Phase::Running, false);
        Ok(())
    }

    fn connect_station(&mut self, station: usize, own_psn: u32, their_psn: u32, mtu: u32) -> Result<()> {
        let Unreliable { stations, .. } = &self.unreliable;
        let (own, peer) = (&stations[station], &stations[stations[station].peer]);
        let av = self.address_of(peer.host);
        let rtr = RtrAttributes {
            path_mtu_bytes: mtu,
            dest_qpn: peer.qpn.0,
            rq_psn: their_psn,
            max_dest_rd_atomic: 0,
            min_rnr_timer: 0,
            av,
        };
        let rts = RtsAttributes { sq_psn: own_psn, timeout: 0, retry_cnt: 0, rnr_retry: 0, max_rd_atomic: 0 };
        let (qpn, device) = (own.qpn, &mut self.hosts[own.host].device);
        device.modify_queue_pair(qpn, init_attributes(ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE))?;
        device.modify_queue_pair(qpn, unreliable(rtr_attributes(rtr)))?;
        device.modify_queue_pair(qpn, unreliable(rts_attributes(rts)))
    }
}

impl Station {
    /// Everything of before is forgotten.
    fn begin(&mut self, psn: u32, their_psn: u32, receive_bytes: u32) {
        (self.next_psn, self.leaving, self.next_number, self.next_receive) = (psn, psn, 0, 0);
        (self.unsignaled, self.stopped, self.receive_bytes) = (0, false, receive_bytes);
        (self.last_receive, self.gone, self.unread) = (false, false, Unread::default());
        self.row = Row::new(their_psn);
        self.outstanding.clear();
        self.history.clear();
        self.receives.clear();
        self.places.clear();
        self.candidates.clear();
        self.unsure.clear();
        self.before.copy_from_slice(&self.shadow);
    }
}
