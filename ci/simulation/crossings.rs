//! What must hold at the end of a run: data, crossings and counters agree.

use crate::run::{Checked, Simulation};
use rnic_pcie::Class;

/// Of one completion.
const CQE_BYTES: u64 = 64;

impl Simulation {
    /// Everything is done: data, crossings and counters agree.
    pub(crate) fn check_end(&mut self) -> Checked {
        for host in 0..self.hosts.len() {
            self.poll_host(host)?;
            self.hosts[host].check_guards().map_err(|what| format!("host {host}: {what}"))?;
            if let Some(queue) = self.hosts[host].queues.iter().find(|queue| queue.due) {
                return Err(format!("host {host}: {} was armed, had an entry, and raised no event", queue.cqn));
            }
        }
        for number in 0..self.connections.len() {
            self.settle_doubtful(number)?;
            for side in [0, 1] {
                if self.target_bytes(number, side)? != self.connections[number].flows[side].shadow {
                    return Err(format!(
                        "connection {number}, flow {side}: the region is not what the messages made it"
                    ));
                }
                let flow = &self.connections[number].flows[side];
                if !flow.arriving.is_empty() {
                    return Err(format!(
                        "connection {number}, flow {side}: {} messages never arrived",
                        flow.arriving.len()
                    ));
                }
            }
        }
        self.check_stations()?;
        self.check_shared()?;
        for host in 0..self.hosts.len() {
            self.check_crossings(host)?;
            self.coverage.item(99);
        }
        self.note_surroundings();
        Ok(())
    }

    /// The ledger against the program and the frames.
    fn check_crossings(&mut self, number: usize) -> Checked {
        let host = &self.hosts[number];
        let adapter = host.adapter.borrow();
        let ledger = adapter.link.ledger();
        let counted = host.counted;
        let exactly = |class: Class, right: u64| (class, right, right);
        let held = adapter.held_reads + adapter.failed_reads;
        let rows = [
            exactly(Class::Doorbell, counted.send_doorbells),
            exactly(Class::RecvDoorbell, counted.receive_doorbells),
            exactly(Class::CqArm, counted.arms),
            (Class::CqeWrite, counted.completions, counted.completions + counted.unseen_most),
            exactly(Class::Event, counted.events),
            exactly(Class::CommandCompletion, ledger.class(Class::CommandFetch).crossings),
            // A gather that came back late may have been for nothing.
            (Class::PayloadRead, counted.gathered, counted.gathered + held),
            (Class::PayloadWrite, counted.placed_least, counted.placed_most),
            (Class::AtomicRead, counted.atomics_least, counted.atomics_most + held),
            (
                Class::AtomicWrite,
                counted.atomics_least + counted.atomic_writes_least,
                counted.atomics_most + counted.atomic_writes_most,
            ),
            (Class::FlushRead, counted.flushes_least, counted.flushes_most + held),
            (Class::RecvWqeFetch, counted.receives_least, counted.receives_most + held),
        ];
        for (class, least, most) in rows {
            let found = ledger.class(class).crossings;
            if !(least..=most).contains(&found) {
                return Err(format!(
                    "host {number}: {found} crossings of class {}; the program and the frames make it {least} to {most}",
                    class.name()
                ));
            }
        }
        let written = ledger.class(Class::CqeWrite);
        if (written.mwr, written.bytes) != (written.crossings, CQE_BYTES * written.crossings) {
            return Err(format!("host {number}: completions are not one TLP of {CQE_BYTES} bytes each: {written:?}"));
        }
        let counters = adapter.engine.counters();
        for (name, count) in
            [("cqe_lost", counters.cqe_lost), ("eqe_lost", counters.eqe_lost), ("msn_mismatch", counters.msn_mismatch)]
        {
            if count > 0 {
                return Err(format!("host {number}: {name} is {count}"));
            }
        }
        Ok(())
    }

    fn note_surroundings(&mut self) {
        let mut totals: std::collections::BTreeMap<&'static str, u64> = std::collections::BTreeMap::new();
        for host in &self.hosts {
            let adapter = host.adapter.borrow();
            let port = adapter.port.statistics();
            let ledger = adapter.link.ledger();
            let counters = adapter.engine.counters();
            for (name, times) in [
                ("lost frames", port.dropped(rnic_switch::DropReason::Loss)),
                ("frames beyond the queue", port.dropped(rnic_switch::DropReason::QueueFull)),
                ("duplicated frames", port.duplicated_frames),
                ("reordered frames", port.reordered_frames),
                ("held reads", adapter.held_reads),
                ("context fetches", ledger.class(Class::ContextFetch).crossings),
                ("key fetches", ledger.class(Class::KeyFetch).crossings),
                ("translation fetches", ledger.class(Class::TranslationFetch).crossings),
                ("consumer records read", ledger.class(Class::RecordFetch).crossings),
                ("packets sent again", counters.retransmitted_pkts),
            ] {
                *totals.entry(name).or_default() += times;
            }
        }
        totals.into_iter().for_each(|(name, times)| self.coverage.note(name, times));
    }
}
