//! SET_TABLE, and the walks of page lists that commands make.

use super::{Halt, Progress, halt};
use crate::context::page_list::{ENTRIES_PER_LINE, PageList};
use crate::context::table::Table;
use crate::context::translation::Owner;
use crate::engine::Engine;
use crate::front_end::commands::TableKind;
use crate::front_end::{Answer, CommandError};
use crate::host::Host;
use crate::pending::{Stop, Waiter};
use arrayvec::ArrayVec;
use rnic_abi::{CommandStatus, Diagnostic, limits};
use rnic_pcie::Cause;

/// Lines of a page list that its registration brings into the cache: a quarter of the default one.
const WARMED_LINES: u64 = 1024;

impl Engine {
    pub(super) fn set_table(
        &mut self,
        host: &mut Host,
        kind: TableKind,
        log_entries: u8,
        pages: &PageList,
        cause: Cause,
        progress: &mut Progress,
    ) -> Result<Answer, Halt> {
        let (entry_bytes, in_use) = match kind {
            TableKind::QueuePair => (limits::QP_CONTEXT_BYTES, self.queue_pairs.len() > 0),
            TableKind::CompletionQueue => (limits::CQ_CONTEXT_BYTES, self.completion_queues.len() > 0),
            TableKind::SharedReceiveQueue => (limits::SRQ_CONTEXT_BYTES, self.shared_receive_queues.len() > 0),
            TableKind::Key => (limits::KEY_CONTEXT_BYTES, self.keys_present.iter().any(|word| *word != 0)),
            TableKind::RdAtomic => (limits::RD_ATOMIC_CONTEXT_BYTES, self.queue_pairs.len() > 0),
        };
        if in_use {
            return Err(CommandError::new(CommandStatus::BAD_STATE, Diagnostic::TableInUse, kind as u32).into());
        }
        let bytes = Table::bytes(log_entries, entry_bytes);
        usable(pages, bytes, entry_bytes.into(), kind as u32)?;
        self.read_pages(host, Owner::Table(kind as u8), pages, bytes, cause, progress)?;
        let table = Some(Table::new(pages, log_entries, entry_bytes, std::mem::take(&mut progress.pages)));
        match kind {
            TableKind::QueuePair => self.contexts.queue_pair_table = table,
            TableKind::CompletionQueue => self.contexts.completion_queue_table = table,
            TableKind::SharedReceiveQueue => self.contexts.shared_receive_queue_table = table,
            TableKind::Key => self.contexts.key_table = table,
            TableKind::RdAtomic => self.contexts.rd_atomic_table = table,
        }
        Ok(Answer::Done)
    }

    /// Reads every page address of a list.
    fn read_pages(
        &mut self,
        host: &mut Host,
        owner: Owner,
        pages: &PageList,
        bytes: u64,
        cause: Cause,
        progress: &mut Progress,
    ) -> Result<(), Halt> {
        if pages.levels == 0 {
            return Ok(());
        }
        let count = bytes.div_ceil(pages.page_bytes());
        while (progress.pages.len() as u64) < count {
            let offset = (progress.pages.len() as u64) << pages.page_shift;
            let (iova, _) = self
                .translate(host, owner, pages, offset, cause, Waiter::Command)
                .map_err(|stop| self.give_up(stop, &[owner]))?;
            progress.pages.push(iova.0);
        }
        self.contexts.forget_lines(owner);
        Ok(())
    }

    /// A command that fails leaves no line behind: its driver may mend the list and try again.
    fn give_up(&mut self, stop: Stop, owners: &[Owner]) -> Halt {
        if stop != Stop::Blocked {
            owners.iter().for_each(|owner| self.contexts.forget_lines(*owner));
        }
        halt(stop, 0)
    }

    /// Brings the first lines of page lists into the cache, so that the first use finds them.
    pub(super) fn warm(
        &mut self,
        host: &mut Host,
        extents: &[Extent],
        cause: Cause,
        progress: &mut Progress,
    ) -> Result<(), Halt> {
        let mut before = 0;
        for extent in extents {
            let lines = extent.lines();
            while progress.warmed < before + lines {
                let offset = ((progress.warmed - before) * ENTRIES_PER_LINE) << extent.pages.page_shift;
                self.translate(host, extent.owner, &extent.pages, offset, cause, Waiter::Command).map_err(|stop| {
                    let owners: ArrayVec<Owner, 2> = extents.iter().map(|extent| extent.owner).collect();
                    self.give_up(stop, &owners)
                })?;
                progress.warmed += 1;
            }
            before += lines;
        }
        Ok(())
    }
}

/// The part of a page list that an object uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub owner: Owner,
    pub pages: PageList,
    /// Bytes from the first page's start to the object's end.
    pub bytes: u64,
}

impl Extent {
    /// Lines of the list that are worth bringing in.
    fn lines(&self) -> u64 {
        if self.pages.levels == 0 {
            return 0;
        }
        self.bytes.div_ceil(self.pages.page_bytes()).div_ceil(ENTRIES_PER_LINE).min(WARMED_LINES)
    }
}

/// A page list that can hold so many bytes of entries of this size.
pub(super) fn usable(pages: &PageList, bytes: u64, align: u64, object: u32) -> Result<(), CommandError> {
    let aligned = pages.levels > 0 || pages.root.is_multiple_of(align);
    if aligned && pages.covers(0, bytes) {
        return Ok(());
    }
    Err(CommandError::new(CommandStatus::BAD_PARAMETER, Diagnostic::PageListInvalid, object))
}

/// A table that has room for this number.
pub(super) fn has_entry(table: &Option<Table>, index: u32) -> Result<(), CommandError> {
    match table.as_ref().and_then(|table| table.entry(index)) {
        Some(_) => Ok(()),
        None => Err(CommandError::new(CommandStatus::NO_RESOURCES, Diagnostic::TableMissing, index)),
    }
}
