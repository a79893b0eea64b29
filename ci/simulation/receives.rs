//! Receives: for messages that wait for one, and for some that do not exist yet.

use crate::aim::*;
use crate::connection::*;
use crate::flow::BEHIND_RECEIVES;
use crate::operations::{Family, FaultKind};
use crate::run::{Checked, Simulation, explain};
use rnic_shim::verbs::*;

impl Simulation {
    /// Posts receives: for messages that wait for one, and for some that do not exist yet.
    pub(crate) fn post_receives(&mut self, number: usize, side: usize) -> Checked<bool> {
        let limit = self.limit();
        let connection = &mut self.connections[number];
        let (runs, doomed) = (connection.runs(), connection.doom.is_some());
        if connection.gone[1 - side] || connection.shares(1 - side) {
            return Ok(false);
        }
        if !(runs || connection.phase == Phase::Ending && self.random.one_in(50)) {
            return Ok(false);
        }
        let never = connection.doom.and_then(|doom| doom.kind()) == Some(FaultKind::NeverReady);
        let flow = &connection.flows[side];
        let ahead = !flow.dry && flow.wanted.is_none() && self.healed_ns.is_none() && !doomed;
        let hurries = !flow.dry || self.healed_ns.is_some() || self.random.one_in(20);
        let free = limit.saturating_sub(flow.receives.len());
        let mut wanted = if hurries { flow.unmatched_messages.len().min(free) } else { 0 };
        if ahead && wanted < free {
            wanted += self.random.index(4).min(free - wanted);
        }
        if never || wanted == 0 {
            return Ok(false);
        }
        let mut posted = 0;
        for _ in 0..wanted {
            posted += u64::from(self.post_receive(number, side)?);
        }
        Ok(posted > 0)
    }

    pub(crate) fn post_receive(&mut self, number: usize, side: usize) -> Checked<bool> {
        let random = &mut self.random;
        let connection = &mut self.connections[number];
        let (mtu, in_error) = (connection.profile.mtu, !connection.runs());
        let end = connection.ends[1 - side];
        let flow = &mut connection.flows[side];
        let matched = flow.unmatched_messages.front().cloned();
        let needed =
            matched.as_ref().filter(|message| message.operation.family == Family::Send).map(|message| message.length);
        let kind = matched.as_ref().and_then(|message| message.fault).map(|fault| fault.kind);
        let size = match needed {
            // Every byte of it will be used.
            Some(length) if kind == Some(FaultKind::ReceiveRange) => length,
            Some(length) => length + random.below(3) as u32,
            None => random.pick(&[0, 64, mtu, 4 * mtu]),
        };
        let Some(at) = flow.receive_places.take(size) else { return Ok(false) };
        let mut rest = size;
        if kind == Some(FaultKind::ReceiveSmall) {
            rest = needed.unwrap_or(1).saturating_sub(1 + random.below(u64::from(needed.unwrap_or(1)).min(16)) as u32);
        }
        let mut elements = Vec::new();
        let mut from = u64::from(at);
        while rest > 0 {
            let mut taken = if elements.len() == 3 { rest } else { random.between(1, rest.into()) as u32 };
            if kind == Some(FaultKind::ReceiveRange) && elements.is_empty() {
                taken = taken.min(BEHIND_RECEIVES);
            }
            elements.push(flow.arena.memory.sge(from, taken));
            (from, rest) = (from + u64::from(taken), rest - taken);
        }
        match (kind, elements.first_mut()) {
            (Some(FaultKind::ReceiveKey), Some(first)) => first.lkey = NO_KEY,
            (Some(FaultKind::ReceiveRange), Some(first)) => {
                first.address =
                    flow.arena.memory.start() + flow.arena.memory.length_bytes() - u64::from(first.length_bytes) + 1;
            }
            _ => {}
        }
        let wr_id = flow.next_receive;
        flow.next_receive += 1;
        flow.receives.push_back(Posted { number: wr_id, at, size });
        match matched {
            Some(_) => drop(flow.unmatched_messages.pop_front()),
            None if !in_error => flow.unmatched_receives.push_back(size),
            None => {}
        }
        let host = &mut self.hosts[end.host];
        let request = ReceiveRequest { wr_id, elements: &elements };
        host.device.post_receive(end.qpn, &[request]).map_err(explain("posting a receive"))?;
        host.counted.receive_doorbells += 1;
        self.enter("receives", end.host, [end.qpn.0.into(), wr_id, size.into(), 0]);
        Ok(true)
    }
}
