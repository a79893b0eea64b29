//! What a message is made of, and where it goes: its length, its pieces of the pool, the memory that it names.

use crate::connection::Flow;
use crate::message::{AtomicWork, Message, POOL_BYTES};
use crate::operations::FaultKind;
use crate::random::Random;
use crate::views::View;
use rnic_abi::WorkOpcode;
use rnic_shim::verbs::{MemoryRegion, Operands, Sge};

/// A key that no host has ever had.
pub(crate) const NO_KEY: u32 = 0x0003_ff77;

/// The length of a message: a third fits one packet, a third takes 2 to 16, a third up to the reach, where long ones
/// are rarer the longer they are.
pub(crate) fn length(random: &mut Random, mtu: u32, reach: u32) -> u32 {
    match random.below(3) {
        0 => match random.below(8) {
            0 => 0,
            1 => 1,
            2 => mtu,
            _ => random.between(1, mtu.into()) as u32,
        },
        1 => random.between(u64::from(mtu) + 1, 16 * u64::from(mtu)) as u32,
        _ => {
            let most = f64::from((reach / mtu).max(18));
            let share = random.below(1 << 32) as f64 / f64::from(u32::MAX);
            let packets = 17.0 / (1.0 - share * (1.0 - 17.0 / most)).max(1e-6);
            (packets * f64::from(mtu)) as u32 - random.below(mtu.into()) as u32
        }
    }
    .min(reach)
}

/// Up to four pieces of the pool.
pub(crate) fn pieces(random: &mut Random, length: u32) -> Vec<(u32, u32)> {
    let mut pieces = Vec::new();
    let mut rest = length;
    let most = random.between(1, 4) as usize;
    while rest > 0 {
        let taken = if pieces.len() + 1 >= most { rest } else { random.between(1, rest.into()) as u32 };
        pieces.push((random.below(POOL_BYTES as u64 - u64::from(taken) + 1) as u32, taken));
        rest -= taken;
    }
    pieces
}

/// One piece: what a READ reads.
pub(crate) fn piece(random: &mut Random, length: u32) -> Vec<(u32, u32)> {
    let from = random.below(POOL_BYTES as u64 - u64::from(length) + 1) as u32;
    if length == 0 { Vec::new() } else { vec![(from, length)] }
}

/// Where a READ or an atomic puts what it brings: in two elements, as often as there is room for two.
pub(crate) fn landing_elements(landing: &MemoryRegion, message: &Message, bad: bool) -> Vec<Sge> {
    let (at, length) = (u64::from(message.landing), message.brought());
    let first = if length > 1 { length / 3 + 1 } else { length };
    let mut elements = Vec::new();
    for (from, length) in [(at, first), (at + u64::from(first), length - first)] {
        elements.extend((length > 0).then(|| landing.sge(from, length)));
    }
    if let Some(last) = elements.last_mut().filter(|_| bad) {
        last.lkey = NO_KEY;
    }
    elements
}

/// What an atomic is to do; one that must fail does anything.
pub(crate) fn operands(message: &Message) -> Option<Operands> {
    let work = message.atomic.map_or((1, 2), |work| (work.compare, work.swap_or_add));
    match message.operation.opcode {
        WorkOpcode::CMP_SWAP => Some(Operands::CompareSwap { compare: work.0, swap: work.1 }),
        WorkOpcode::FETCH_ADD => Some(Operands::FetchAdd { add: work.1 }),
        _ => None,
    }
}

/// Which word an atomic works on, and what it finds and leaves there.
pub(crate) fn aim_at_word(random: &mut Random, flow: &Flow, sender: usize, message: &mut Message) {
    // Few words: what one finds, the one before has left.
    let word = random.index(flow.word_values.len().min(8));
    let before = flow.word_values[word];
    let swap_or_add = random.draw();
    let compare = if random.one_in(2) { before } else { random.draw() };
    let after = match message.operation.opcode {
        WorkOpcode::CMP_SWAP if compare == before => swap_or_add,
        WorkOpcode::CMP_SWAP => before,
        WorkOpcode::ATOMIC_WRITE => {
            let pool = crate::message::pool(sender);
            u64::from_le_bytes(std::array::from_fn(|at| message.byte(pool, at as u32).unwrap_or(0)))
        }
        _ => before.wrapping_add(swap_or_add),
    };
    message.atomic = Some(AtomicWork { word, compare, swap_or_add, before, after });
    let shown = flow.view.as_ref().filter(|_| message.view).map(View::extent);
    let (start, _, key) = shown.unwrap_or(extent(&flow.words.memory));
    (message.address, message.rkey) = (start + 8 * word as u64, key);
    match message.fault.map(|fault| fault.kind) {
        Some(FaultKind::RKey) => message.rkey = NO_KEY,
        Some(FaultKind::Unaligned) => message.address += random.between(1, 7),
        _ => {}
    }
}

pub(crate) fn inline_bytes(host: usize, message: &Message) -> Vec<u8> {
    if !message.inline {
        return Vec::new();
    }
    let pool = crate::message::pool(host);
    message
        .pieces
        .iter()
        .flat_map(|(from, length)| pool[*from as usize..][..*length as usize].iter().copied())
        .collect()
}

/// Where a WRITE goes: mostly where no other one does.
pub(crate) fn aim(random: &mut Random, flow: &mut Flow, message: &mut Message) {
    let Some((start, size, key)) = flow.target.as_ref().map(|target| extent(&target.memory)) else { return };
    let length = message.length;
    let placed = if random.one_in(8) { None } else { flow.writes.take(length) };
    message.placed = placed.is_some();
    message.at = placed.unwrap_or_else(|| random.below(size - u64::from(length) + 1) as u32);
    for earlier in flow.outstanding.iter().filter(|earlier| earlier.overlaps(message.at, length)) {
        earlier.alone.set(false);
    }
    aim_at(random, (start, size, key), message);
}

/// Through a window or a fast region: anywhere in what it shows.
pub(crate) fn aim_through_view(random: &mut Random, flow: &Flow, message: &mut Message) {
    let Some(view) = &flow.view else { return };
    let (from, length) = view.place();
    let offset = random.below(u64::from(length - message.length) + 1) as u32;
    let (start, size, key) = view.extent();
    // Offsets are those of the region behind it.
    message.at = offset;
    aim_at(random, (start, size, key), message);
    message.at = from + offset;
}

pub(crate) fn extent(memory: &MemoryRegion) -> (u64, u64, u32) {
    (memory.start(), memory.length_bytes(), memory.key)
}

/// What the packets say of the memory that a WRITE or a READ names.
pub(crate) fn aim_at(random: &mut Random, (start, size, key): (u64, u64, u32), message: &mut Message) {
    let length = message.length;
    (message.address, message.rkey) = (start + u64::from(message.at), key);
    match message.fault.map(|fault| fault.kind) {
        Some(FaultKind::RKey | FaultKind::BothKeys) => message.rkey = NO_KEY,
        Some(FaultKind::RKeyBehind) => message.address = start + size - u64::from(length) + 1,
        Some(FaultKind::RKeyBefore) => message.address = start.wrapping_sub(1),
        Some(FaultKind::RKeyWraps) => message.address = u64::MAX - u64::from(length) / 2 + 1,
        _ => {}
    }
    if length == 0 && random.one_in(2) {
        // Nothing is accessed: neither address nor key is looked at.
        (message.address, message.rkey) = (random.draw(), NO_KEY);
    }
}
