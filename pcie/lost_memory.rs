//! Guest RAM that goes away under us: a file that its client makes shorter while it is mapped here.
//!
//! Touching what is gone raises SIGBUS. The handler puts empty memory in the place of the whole mapping, so that the access
//! ends, and marks it as lost: from then on the window refuses it. Only memory that this module watches is rescued; a
//! SIGBUS anywhere else ends the process, as it should.

use libc::{c_int, c_void, siginfo_t};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// Mappings that are watched at a time, of all functions together.
const PLACES: usize = 4096;

/// One mapping. The handler reads it, so there is no lock and nothing moves.
struct Place {
    /// Zero in a free place.
    start: AtomicUsize,
    end: AtomicUsize,
    lost: AtomicBool,
}

static WATCHED: [Place; PLACES] =
    [const { Place { start: AtomicUsize::new(0), end: AtomicUsize::new(0), lost: AtomicBool::new(false) } }; PLACES];
/// Mappings that were lost so far.
static LOST: AtomicU32 = AtomicU32::new(0);
/// Marks a place that is being filled.
const TAKEN: usize = 1;

/// How many mappings have been lost since the process began: a copy that sees it change may have met one.
#[inline]
pub fn lost_so_far() -> u32 {
    LOST.load(Ordering::Relaxed)
}

/// A mapping under watch, until it is dropped; drop it before the memory is unmapped.
#[derive(Debug)]
pub struct Watch {
    place: usize,
}

impl Watch {
    /// Watches a mapping; `None` when too many are watched, or signals cannot be handled.
    pub fn new(start: *const u8, length_bytes: usize) -> Option<Self> {
        static HANDLED: OnceLock<bool> = OnceLock::new();
        let handle = || vmm_sys_util::signal::register_signal_handler(libc::SIGBUS, on_bus_error).is_ok();
        if !*HANDLED.get_or_init(handle) {
            return None;
        }
        let free = |place: &Place| place.start.compare_exchange(0, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let place = WATCHED.iter().position(free)?;
        WATCHED[place].lost.store(false, Ordering::Relaxed);
        WATCHED[place].end.store(start as usize + length_bytes, Ordering::Relaxed);
        WATCHED[place].start.store(start as usize, Ordering::Release);
        Some(Self { place })
    }

    #[inline]
    pub fn is_lost(&self) -> bool {
        WATCHED[self.place].lost.load(Ordering::Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        WATCHED[self.place].end.store(0, Ordering::Relaxed);
        WATCHED[self.place].start.store(0, Ordering::Release);
    }
}

/// Replaces the mapping that was touched. Nothing here allocates, locks or logs.
extern "C" fn on_bus_error(_signal: c_int, info: *mut siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel hands a valid record to a handler that was installed with SA_SIGINFO, and for SIGBUS it has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    for place in &WATCHED {
        let start = place.start.load(Ordering::Acquire);
        let end = place.end.load(Ordering::Relaxed);
        if start <= TAKEN || address < start || address >= end {
            continue;
        }
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
        );
        // SAFETY: the range is a whole mapping of guest RAM that its owner keeps mapped while it is watched; it is accessed by
        // volatile and atomic copies only, so that other bytes there are nothing new.
        let mapped = unsafe { libc::mmap(start as *mut c_void, end - start, protection, flags, -1, 0) };
        if mapped != libc::MAP_FAILED {
            place.lost.store(true, Ordering::Relaxed);
            LOST.fetch_add(1, Ordering::Relaxed);
            return;
        }
    }
    // Not ours: the access is repeated, and ends the process.
    // SAFETY: restoring the default action is allowed in a handler.
    unsafe { libc::sigaction(libc::SIGBUS, &DEFAULT_ACTION.0, null_mut()) };
}

/// The default action of a signal.
struct Action(libc::sigaction);
// SAFETY: it is never written, and the handler it names is none.
unsafe impl Sync for Action {}
// SAFETY: all zeros are a valid `sigaction`: SIG_DFL with an empty mask and no flags.
static DEFAULT_ACTION: Action = Action(unsafe { std::mem::zeroed() });
