//! What a view must have become: by its completions, and in memory.

use super::*;
use crate::message::{Message, pool};
use crate::operations::{FAULTS, FaultKind};
use crate::run::{Checked, Simulation, explain};
use std::rc::Rc;

impl Simulation {
    /// A work request without packets has ended well: the view of the other direction is open, or closed.
    pub(crate) fn view_changes(&mut self, number: usize, owner: usize) -> Checked {
        let Some(view) = &mut self.connections[number].flows[1 - owner].view else {
            return Err("there is no key for it".into());
        };
        match view.state {
            State::Opening => {
                view.state = State::Open;
                let kind = view.kind;
                self.coverage.items(match kind {
                    Kind::Window(WindowType::One) => &[85, 86],
                    Kind::Window(_) => &[85, 87],
                    Kind::Fast => &[90],
                });
                Ok(())
            }
            State::Closing => self.view_closes(number, 1 - owner),
            state => Err(format!("the view is {state:?}")),
        }
    }

    /// Its key is of no use from here on.
    pub(crate) fn view_closes(&mut self, number: usize, side: usize) -> Checked {
        let found = self.view_bytes(number, side)?;
        let Some(view) = &mut self.connections[number].flows[side].view else { return Ok(()) };
        (view.state, view.frozen) = (State::Closed, Some(found));
        let used = self.plan.faults > 0 && view.stale_key().is_some() && self.random.one_in(4);
        let item = match view.kind {
            Kind::Window(WindowType::One) => 86,
            Kind::Window(_) => 88,
            Kind::Fast => 90,
        };
        self.coverage.item(item);
        let connection = &mut self.connections[number];
        if used && connection.flows[side].wanted.is_none() {
            // The sender goes on using its key.
            connection.flows[side].wanted = FAULTS.iter().find(|fault| fault.kind == FaultKind::RKey);
        }
        Ok(())
    }

    fn view_bytes(&mut self, number: usize, side: usize) -> Checked<Vec<u8>> {
        let connection = &self.connections[number];
        let Some(view) = &connection.flows[side].view else { return Ok(Vec::new()) };
        let mut bytes = vec![0; REGION_BYTES as usize];
        let (host, iova) = (connection.ends[1 - side].host, view.region.buffer.iova);
        self.hosts[host].read(iova, &mut bytes).map_err(explain("reading a region"))?;
        Ok(bytes)
    }

    /// Nothing was written since it was closed.
    pub(crate) fn check_frozen(&mut self, number: usize, side: usize) -> Checked {
        let found = self.view_bytes(number, side)?;
        let Some(view) = &self.connections[number].flows[side].view else { return Ok(()) };
        let Some(frozen) = &view.frozen else { return Ok(()) };
        match (0..found.len()).find(|at| found[*at] != frozen[*at]) {
            Some(at) => Err(format!(
                "connection {number}, flow {side}: byte {at} behind {:?} was written after it had been closed",
                view.kind
            )),
            None => Ok(()),
        }
    }

    /// The region behind it holds what the messages made of it.
    pub(crate) fn settle_view(&mut self, number: usize, side: usize) -> Checked {
        self.check_frozen(number, side)?;
        let found = self.view_bytes(number, side)?;
        let sender = self.connections[number].ends[side].host;
        let Some(view) = &mut self.connections[number].flows[side].view else { return Ok(()) };
        let doubtful = std::mem::take(&mut view.doubtful);
        for (at, byte) in found.iter().enumerate().filter(|(at, byte)| view.shadow[*at] != **byte) {
            let at = at as u32;
            let inside = |message: &&Rc<Message>| message.at <= at && at < message.at + message.length;
            let mut writers = doubtful.iter().filter(inside);
            if !writers.any(|message| message.byte(pool(sender), at - message.at) == Some(*byte)) {
                return Err(format!(
                    "connection {number}, flow {side}: byte {at} behind {:?} is {byte:#x}, which nobody sent",
                    view.kind
                ));
            }
        }
        view.shadow.copy_from_slice(&found);
        view.frozen = None;
        Ok(())
    }
}
