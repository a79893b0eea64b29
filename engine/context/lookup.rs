//! From a number to its context: a hit in the cache, or a fill from the table in host memory.
//!
//! In: an object's number, the cause it is served for, and who waits. Out: the context, or `Blocked` with the
//! waiter registered.

use super::completion_queue::CqContext;
use super::image::Image;
use super::key::KeyContext;
use super::page_list::PageList;
use super::queue_pair::QpContext;
use super::rd_atomic::RdAtomicContext;
use super::shared_receive_queue::SrqContext;
use super::translation::{LINE_BYTES, Line, Owner, TranslationCache};
use crate::blocks::Block;
use crate::engine::Engine;
use crate::front_end::Status;
use crate::front_end::commands::TableKind;
use crate::host::Host;
use crate::numbers::{Cqn, Key, Qpn, Srqn};
use crate::pending::{Awaited, Fill, Stop, Waiter};
use rnic_abi::Diagnostic;
use rnic_pcie::{Cause, Class, DmaRange, Iova, Origin, Submitted};

/// The largest image.
const IMAGE_BYTES: usize = 512;

impl Engine {
    /// A queue pair's context, as a copy that the caller stores back with [`Engine::store_qp`].
    pub(crate) fn load_qp(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        cause: Cause,
        waiter: Waiter,
    ) -> Result<QpContext, Stop> {
        self.blocks.touch(host.now_ns, Block::QpCache, qpn.0);
        if !self.contexts.queue_pairs.contains(qpn.0) {
            match self.contexts.in_hand.take_queue_pair(qpn) {
                Some(context) => self.cache_qp(host, qpn, context),
                None => self.fill(host, Fill::QueuePair(qpn), cause, waiter)?,
            }
        }
        let cached = self.contexts.queue_pairs.get(qpn.0).copied();
        let mut context = cached.ok_or(Stop::Broken(Diagnostic::ContextFault))?;
        // The image may be older than the resident state: a queue pair goes to ERR without its context.
        context.state = self.queue_pairs.get(qpn).map_or(context.state, |qp| qp.state);
        Ok(context)
    }

    /// Stores a context back; the write to the table waits for its eviction.
    pub(crate) fn store_qp(&mut self, host: &mut Host, qpn: Qpn, context: QpContext) {
        if let Some(slot) = self.contexts.queue_pairs.get_mut(qpn.0) {
            *slot = context;
            return;
        }
        // It left while a nested lookup of another queue pair came in: write-allocate again.
        self.contexts.in_hand.take_queue_pair(qpn);
        if let Some(evicted) = self.contexts.queue_pairs.insert(qpn.0, context, true) {
            self.write_back(host, TableKind::QueuePair, evicted.index, &evicted.value);
        }
    }

    /// A context as it stands in its table.
    fn cache_qp(&mut self, host: &mut Host, qpn: Qpn, context: QpContext) {
        if let Some(evicted) = self.contexts.queue_pairs.insert(qpn.0, context, false) {
            self.write_back(host, TableKind::QueuePair, evicted.index, &evicted.value);
        }
    }

    pub(crate) fn load_cq(
        &mut self,
        host: &mut Host,
        cqn: Cqn,
        cause: Cause,
        waiter: Waiter,
    ) -> Result<CqContext, Stop> {
        if let Some(context) = self.contexts.completion_queues.get(cqn.0) {
            return Ok(*context);
        }
        self.fill(host, Fill::CompletionQueue(cqn), cause, waiter)?;
        self.contexts.completion_queues.get(cqn.0).copied().ok_or(Stop::Broken(Diagnostic::ContextFault))
    }

    pub(crate) fn store_cq(&mut self, host: &mut Host, cqn: Cqn, context: CqContext) {
        if let Some(evicted) = self.contexts.completion_queues.insert(cqn.0, context, true) {
            self.write_back(host, TableKind::CompletionQueue, evicted.index, &evicted.value);
        }
    }

    pub(crate) fn load_srq(
        &mut self,
        host: &mut Host,
        srqn: Srqn,
        cause: Cause,
        waiter: Waiter,
    ) -> Result<SrqContext, Stop> {
        if let Some(context) = self.contexts.shared_receive_queues.get(srqn.0) {
            return Ok(*context);
        }
        match self.contexts.in_hand.take_srq(srqn) {
            Some(context) => self.cache_srq(host, srqn, context, false),
            None => self.fill(host, Fill::SharedReceiveQueue(srqn), cause, waiter)?,
        }
        self.contexts.shared_receive_queues.get(srqn.0).copied().ok_or(Stop::Broken(Diagnostic::ContextFault))
    }

    pub(crate) fn store_srq(&mut self, host: &mut Host, srqn: Srqn, context: SrqContext) {
        self.contexts.in_hand.take_srq(srqn);
        self.cache_srq(host, srqn, context, true);
    }

    fn cache_srq(&mut self, host: &mut Host, srqn: Srqn, context: SrqContext, dirty: bool) {
        if let Some(evicted) = self.contexts.shared_receive_queues.insert(srqn.0, context, dirty) {
            self.write_back(host, TableKind::SharedReceiveQueue, evicted.index, &evicted.value);
        }
    }

    /// What a queue pair remembers of the READs and atomics that it has answered.
    pub(crate) fn load_rd_atomic(
        &mut self,
        host: &mut Host,
        qpn: Qpn,
        cause: Cause,
        waiter: Waiter,
    ) -> Result<RdAtomicContext, Stop> {
        if let Some(context) = self.contexts.rd_atomic.get(qpn.0) {
            return Ok(*context);
        }
        if !self.remembers_rd_atomic(qpn) {
            return Err(Stop::Broken(Diagnostic::TableMissing));
        }
        match self.contexts.in_hand.take_rd_atomic(qpn) {
            Some(context) => self.cache_rd_atomic(host, qpn, context),
            None => self.fill(host, Fill::RdAtomic(qpn), cause, waiter)?,
        }
        self.contexts.rd_atomic.get(qpn.0).copied().ok_or(Stop::Broken(Diagnostic::ContextFault))
    }

    /// As it stands in its table.
    fn cache_rd_atomic(&mut self, host: &mut Host, qpn: Qpn, context: RdAtomicContext) {
        if let Some(evicted) = self.contexts.rd_atomic.insert(qpn.0, context, false) {
            self.write_back(host, TableKind::RdAtomic, evicted.index, &evicted.value);
        }
    }

    pub(crate) fn store_rd_atomic(&mut self, host: &mut Host, qpn: Qpn, context: RdAtomicContext) {
        self.contexts.in_hand.take_rd_atomic(qpn);
        if let Some(evicted) = self.contexts.rd_atomic.insert(qpn.0, context, true) {
            self.write_back(host, TableKind::RdAtomic, evicted.index, &evicted.value);
        }
    }

    /// The driver has given memory for it.
    pub(crate) fn remembers_rd_atomic(&self, qpn: Qpn) -> bool {
        self.contexts.rd_atomic_table.as_ref().is_some_and(|table| table.entry(qpn.0).is_some())
    }

    /// A key's context. A key that was never registered is refused without a crossing.
    pub(crate) fn load_key(
        &mut self,
        host: &mut Host,
        key: Key,
        cause: Cause,
        waiter: Waiter,
    ) -> Result<KeyContext, Stop> {
        let index = key.table_index();
        self.blocks.touch(host.now_ns, Block::KeyCache, index);
        if let Some(context) = self.contexts.keys.get(index) {
            return Ok(*context);
        }
        if !self.key_exists(index) {
            return Err(Stop::Refused(super::key::Refusal::Invalid));
        }
        if let Some(context) = self.contexts.in_hand.key(waiter, index) {
            return Ok(context);
        }
        self.fill(host, Fill::Key(index), cause, waiter)?;
        self.contexts.keys.get(index).copied().ok_or(Stop::Broken(Diagnostic::ContextFault))
    }

    /// Byte `offset` of a page list: its address, and how many bytes follow in the same page.
    pub(crate) fn translate(
        &mut self,
        host: &mut Host,
        owner: Owner,
        pages: &PageList,
        offset: u64,
        cause: Cause,
        waiter: Waiter,
    ) -> Result<(Iova, u64), Stop> {
        if pages.levels == 0 {
            let iova = Iova(pages.root).checked_add(offset).ok_or(Stop::Broken(Diagnostic::TranslationFault))?;
            return Ok((iova, u64::MAX - iova.0));
        }
        let walked = self.walk(host, owner, pages, offset, cause, waiter);
        if walked != Err(Stop::Blocked) {
            self.contexts.in_hand.drop_lines(waiter);
        }
        walked
    }

    fn walk(
        &mut self,
        host: &mut Host,
        owner: Owner,
        pages: &PageList,
        offset: u64,
        cause: Cause,
        waiter: Waiter,
    ) -> Result<(Iova, u64), Stop> {
        const BAD: Stop = Stop::Broken(Diagnostic::TranslationFault);
        let place = pages.place(offset);
        let outer = pages.outer_entry(place.page_index).ok_or(BAD)?;
        let mut entry = self.list_entry(host, owner, outer, cause, waiter)?;
        if pages.levels == 2 {
            let inner = Some(entry).filter(|list| list % 4096 == 0).ok_or(BAD)?;
            let inner = PageList::inner_entry(inner, place.page_index).ok_or(BAD)?;
            entry = self.list_entry(host, owner, inner, cause, waiter)?;
        }
        if entry % pages.page_bytes() != 0 {
            return Err(BAD);
        }
        let iova = Iova(entry).checked_add(place.offset).ok_or(BAD)?;
        Ok((iova, pages.page_bytes() - place.offset))
    }

    fn list_entry(
        &mut self,
        host: &mut Host,
        owner: Owner,
        entry: Iova,
        cause: Cause,
        waiter: Waiter,
    ) -> Result<u64, Stop> {
        if let Some(value) = self.contexts.translations.get(owner, entry) {
            return Ok(value);
        }
        let address = TranslationCache::line_of(entry);
        if let Some(line) = self.contexts.in_hand.line(waiter, owner, address) {
            return Ok(line.entry(entry));
        }
        self.fill(host, Fill::Line { owner, address }, cause, waiter)?;
        self.contexts.translations.get(owner, entry).ok_or(Stop::Broken(Diagnostic::TranslationFault))
    }

    /// Sends a fill, or joins the one in flight. `Ok` when it was answered at once.
    fn fill(&mut self, host: &mut Host, fill: Fill, cause: Cause, waiter: Waiter) -> Result<(), Stop> {
        if let Some(diagnostic) = self.pending.take_fault(waiter, fill) {
            return Err(Stop::Broken(diagnostic));
        }
        if self.pending.join(fill, waiter) {
            return Err(Stop::Blocked);
        }
        let (class, iova, length) = self.fill_source(fill).ok_or(Stop::Broken(Diagnostic::ContextFault))?;
        let mut bytes = [0; IMAGE_BYTES];
        let bytes = &mut bytes[..length];
        let range = [DmaRange::new(iova, length as u32)];
        match host.port.read(Origin::new(class, cause), &range, bytes) {
            Ok(Submitted::Ready) => self.install(host, fill, bytes).map_err(Stop::Broken),
            Ok(Submitted::Pending(tag)) => {
                self.pending.insert(tag, Awaited::Fill { fill, waiters: vec![waiter] });
                Err(Stop::Blocked)
            }
            Err(_) => Err(Stop::Broken(fill_fault(fill))),
        }
    }

    fn fill_source(&self, fill: Fill) -> Option<(Class, Iova, usize)> {
        let tables = &self.contexts;
        let of = |table: &Option<super::table::Table>, index: u32| {
            let table = table.as_ref()?;
            Some((table.entry(index)?, table.entry_bytes()))
        };
        let (class, (iova, length)) = match fill {
            Fill::QueuePair(qpn) => (Class::ContextFetch, of(&tables.queue_pair_table, qpn.0)?),
            Fill::CompletionQueue(cqn) => (Class::ContextFetch, of(&tables.completion_queue_table, cqn.0)?),
            Fill::SharedReceiveQueue(srqn) => (Class::ContextFetch, of(&tables.shared_receive_queue_table, srqn.0)?),
            Fill::RdAtomic(qpn) => (Class::ContextFetch, of(&tables.rd_atomic_table, qpn.0)?),
            Fill::Key(index) => (Class::KeyFetch, of(&tables.key_table, index)?),
            Fill::Line { address, .. } => (Class::TranslationFetch, (Iova(address), LINE_BYTES)),
        };
        Some((class, iova, length))
    }

    /// Puts what a fill brought into its cache, after checking it. What is cached already is never older.
    fn install(&mut self, host: &mut Host, fill: Fill, bytes: &[u8]) -> Result<(), Diagnostic> {
        match fill {
            Fill::QueuePair(qpn) if self.contexts.queue_pairs.contains(qpn.0) => {}
            Fill::CompletionQueue(cqn) if self.contexts.completion_queues.contains(cqn.0) => {}
            Fill::RdAtomic(qpn) if self.contexts.rd_atomic.contains(qpn.0) => {}
            Fill::SharedReceiveQueue(srqn) if self.contexts.shared_receive_queues.contains(srqn.0) => {}
            Fill::SharedReceiveQueue(srqn) => {
                let context = SrqContext::from_bytes(bytes)?;
                self.cache_srq(host, srqn, context, false);
            }
            Fill::RdAtomic(qpn) => {
                let context = RdAtomicContext::from_bytes(bytes)?;
                self.cache_rd_atomic(host, qpn, context);
            }
            Fill::QueuePair(qpn) => {
                let context = QpContext::from_bytes(bytes)?;
                self.cache_qp(host, qpn, context);
            }
            Fill::CompletionQueue(cqn) => {
                let context = CqContext::from_bytes(bytes)?;
                if let Some(evicted) = self.contexts.completion_queues.insert(cqn.0, context, false) {
                    self.write_back(host, TableKind::CompletionQueue, evicted.index, &evicted.value);
                }
            }
            Fill::Key(index) => {
                let context = KeyContext::from_bytes(bytes)?;
                if let Some(evicted) = self.contexts.keys.insert(index, context, false) {
                    self.write_back(host, TableKind::Key, evicted.index, &evicted.value);
                }
            }
            Fill::Line { owner, address } => {
                let line = bytes.first_chunk().ok_or(Diagnostic::TranslationFault)?;
                self.contexts.translations.insert(Line::new(owner, address, line));
            }
        }
        Ok(())
    }

    /// A fill in flight has come back: its waiters run again, whatever it brought.
    pub(crate) fn filled(&mut self, host: &mut Host, fill: Fill, waiters: &[Waiter], bytes: Option<&[u8]>) {
        let installed = match bytes {
            Some(bytes) => self.arrive(host, fill, waiters, bytes),
            None => Err(fill_fault(fill)),
        };
        for waiter in waiters {
            if let Err(diagnostic) = installed {
                self.pending.note_fault(*waiter, fill, diagnostic);
            }
            self.resume(host, *waiter);
            if !waiter.is_scheduled() {
                self.pending.forget_fault(*waiter);
            }
        }
    }

    /// Into the cache, and into the hands of those who asked: it may leave the cache before they use it.
    fn arrive(&mut self, host: &mut Host, fill: Fill, waiters: &[Waiter], bytes: &[u8]) -> Result<(), Diagnostic> {
        let in_hand = &mut self.contexts.in_hand;
        match fill {
            Fill::QueuePair(qpn) if waiters.iter().any(|waiter| waiter.is_scheduled()) => {
                if !self.contexts.queue_pairs.contains(qpn.0) {
                    in_hand.give_queue_pair(qpn, QpContext::from_bytes(bytes)?);
                }
                return Ok(());
            }
            Fill::RdAtomic(qpn) => {
                if !self.contexts.rd_atomic.contains(qpn.0) {
                    in_hand.give_rd_atomic(qpn, RdAtomicContext::from_bytes(bytes)?);
                }
                return Ok(());
            }
            Fill::SharedReceiveQueue(srqn) => {
                if !self.contexts.shared_receive_queues.contains(srqn.0) {
                    in_hand.give_srq(srqn, SrqContext::from_bytes(bytes)?);
                }
                return Ok(());
            }
            // The others use it in this step.
            Fill::QueuePair(_) | Fill::CompletionQueue(_) => {}
            Fill::Key(index) => {
                let context = KeyContext::from_bytes(bytes)?;
                waiters.iter().for_each(|waiter| in_hand.give_key(*waiter, index, context));
            }
            Fill::Line { owner, address } => {
                let line = Line::new(owner, address, bytes.first_chunk().ok_or(Diagnostic::TranslationFault)?);
                waiters.iter().for_each(|waiter| in_hand.give_line(*waiter, line));
            }
        }
        self.install(host, fill, bytes)
    }

    /// Writes a context to its table: eviction and flush.
    pub(crate) fn write_back<T: Image>(&mut self, host: &mut Host, kind: TableKind, index: u32, context: &T) {
        let table = match kind {
            TableKind::QueuePair => &self.contexts.queue_pair_table,
            TableKind::CompletionQueue => &self.contexts.completion_queue_table,
            TableKind::SharedReceiveQueue => &self.contexts.shared_receive_queue_table,
            TableKind::Key => &self.contexts.key_table,
            TableKind::RdAtomic => &self.contexts.rd_atomic_table,
        };
        let mut image = [0; IMAGE_BYTES];
        let image = &mut image[..T::BYTES];
        context.to_bytes(image);
        let written = table.as_ref().and_then(|table| table.entry(index)).map(|iova| {
            let origin = Origin::new(Class::ContextWriteback, Cause::Maintenance);
            host.port.write(origin, &[DmaRange::new(iova, T::BYTES as u32)], image)
        });
        if !matches!(written, Some(Ok(()))) {
            self.diagnose(host.now_ns, Diagnostic::ContextFault, index, kind as u64);
            self.context_lost(kind, index);
        }
    }
}

impl Engine {
    /// What stands in the table is older than what is lost: nobody may go on with it.
    fn context_lost(&mut self, kind: TableKind, index: u32) {
        match kind {
            TableKind::QueuePair | TableKind::RdAtomic => {
                self.doom(Qpn(index), Diagnostic::ContextFault, Some(Status::General));
            }
            TableKind::CompletionQueue => self.lost_queues.push(Cqn(index)),
            TableKind::SharedReceiveQueue => {
                if let Some(srq) = self.shared_receive_queues.get_mut(Srqn(index)) {
                    srq.failed = Some(Diagnostic::ContextFault);
                }
            }
            TableKind::Key => {
                self.contexts.windows.retain(|(_, window)| *window != index);
                self.set_key_exists(index, false);
                self.contexts.keys_epoch += 1;
            }
        }
    }
}

const fn fill_fault(fill: Fill) -> Diagnostic {
    match fill {
        Fill::Line { .. } => Diagnostic::TranslationFault,
        _ => Diagnostic::ContextFault,
    }
}
