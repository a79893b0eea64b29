//! What stands in the buffers: before the operation, and after it.

use super::buffer::{CANARY, payload};
use super::spec::{Operation, Role, TransactionSpec};
use crate::verbs::Operands;

/// What a FETCH_ADD adds: more than one byte carries over.
const ADDEND: u64 = 0x0123_4567_89ab_cdef;

impl TransactionSpec {
    fn message(&self) -> Vec<u8> {
        payload(self.seed, self.length_bytes)
    }

    /// The word that an atomic finds.
    fn original(&self) -> u64 {
        self.message().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    pub(super) fn operands(&self) -> Operands {
        match self.operation {
            Operation::FetchAdd => Operands::FetchAdd { add: ADDEND },
            _ => Operands::CompareSwap { compare: self.original(), swap: !self.original() },
        }
    }

    /// The message stands where it comes from; elsewhere there are canaries.
    pub(super) fn initial(&self, role: Role) -> Vec<u8> {
        let comes_from = if self.operation.fetches() { Role::Responder } else { Role::Requester };
        if role == comes_from { self.message() } else { vec![CANARY; self.length_bytes as usize] }
    }

    /// What an operation that is refused leaves as it was.
    pub(super) fn expected(&self, role: Role) -> Vec<u8> {
        match (role, self.operation) {
            _ if self.fault.is_some() => self.initial(role),
            (Role::Responder, Operation::CompareSwap) => (!self.original()).to_le_bytes().to_vec(),
            (Role::Responder, Operation::FetchAdd) => self.original().wrapping_add(ADDEND).to_le_bytes().to_vec(),
            _ => self.message(),
        }
    }
}
