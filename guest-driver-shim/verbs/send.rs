//! Posting to a send queue: WQEs into the ring first, then one doorbell for the whole batch.

use super::wqe::{self, SendRequest, Wqe};
use super::{Device, Qpn, Result, VerbsError};
use rnic_abi::doorbell::*;
use rnic_abi::registers::BAR_DOORBELLS;
use rnic_abi::work_request::WQE_SLOT_BYTES;
use serde::{Deserialize, Serialize};

/// How a send queue's doorbell is rung.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DoorbellForm {
    /// One 8-byte store.
    Word,
    /// A 64-byte line with the same fields, as the story rings it.
    #[default]
    Line,
    /// A 64-byte line that is the newest WQE's first slot: the device need not read it back.
    Wqe,
}

impl Device {
    /// Posts a batch. When one request fails, those before it are posted and rung, and the error is the request's.
    pub fn post_send(&mut self, qpn: Qpn, requests: &[SendRequest<'_>], form: DoorbellForm) -> Result<()> {
        let mut newest = None;
        let mut outcome = Ok(());
        for request in requests {
            match self.write_wqe(qpn, request) {
                Ok(wqe) => newest = Some(wqe),
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        if let Some(wqe) = newest {
            self.ring_send(qpn, &wqe, form)?;
        }
        outcome
    }

    fn write_wqe(&mut self, qpn: Qpn, request: &SendRequest<'_>) -> Result<Wqe> {
        let mut wqe = wqe::encode(request, qpn, self.limits.max_inline_bytes.get())?;
        let qp = self.queue_pairs.get_mut(&qpn).ok_or_else(|| VerbsError::Missing { what: qpn.to_string() })?;
        let without = || VerbsError::Missing { what: format!("send ring of {qpn}") };
        let ring = qp.send_buffer.ok_or_else(without)?.iova;
        let needed = wqe.slots();
        let first = qp.send.reserve(needed, request.wr_id).ok_or(VerbsError::RingFull {
            ring: "send",
            slots: qp.send.slots(),
            free: qp.send.free_slots(),
            needed: needed.into(),
        })?;
        wqe.set_slot_index(first);
        for slot in 0..needed {
            // A WQE may wrap: every slot is taken modulo the ring's size.
            let position = qp.send.position(first.wrapping_add(slot)) as u64;
            if let Some(bytes) = wqe.slot(slot.into()) {
                self.backing.copy_in(ring + position * u64::from(WQE_SLOT_BYTES), bytes)?;
            }
        }
        Ok(wqe)
    }

    fn ring_send(&mut self, qpn: Qpn, newest: &Wqe, form: DoorbellForm) -> Result<()> {
        let Some(qp) = self.queue_pairs.get(&qpn) else { return Ok(()) };
        let (page, producer) = (qp.doorbell_page, qp.send.producer());
        let value = queue_doorbell(qpn.0, producer);
        let mut line = [0; DOORBELL_LINE_BYTES as usize];
        let (first_line, second_line) = match form {
            DoorbellForm::Word => return self.doorbell(page, DB_SEND, value),
            DoorbellForm::Line => {
                line[..8].copy_from_slice(&value.to_le_bytes());
                (DB_SEND_LINE_0, DB_SEND_LINE_1)
            }
            DoorbellForm::Wqe => {
                line = newest.slot(0).copied().unwrap_or(line);
                (DB_SEND_WQE_0, DB_SEND_WQE_1)
            }
        };
        // The lines of one form are used in turn, so that the next one never merges with one still on its way.
        let turn = self.line_turn.entry(page).or_default();
        *turn ^= 1 << (form as u8);
        let second = *turn & 1 << (form as u8) == 0;
        let at =
            u64::from(page) * u64::from(DOORBELL_PAGE_BYTES) + u64::from(if second { second_line } else { first_line });
        Ok(self.backing.write_line(BAR_DOORBELLS, at, &line)?)
    }
}
