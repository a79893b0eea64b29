//! Each request packet against the message it belongs to: opcode, headers, length, pad and bytes (items 9, 10, 36, 41,
//! 42, 50).

use super::packet::{Packet, ahead};
use crate::message::Message;
use crate::operations::{Family, answer_opcode};
use std::collections::VecDeque;
use std::rc::Rc;

/// Packets of one message whose bytes are compared; of longer ones every eighth packet is.
const COMPARED: u32 = 64;

/// The message that a packet belongs to, and which of its packets it is.
pub fn message_of(messages: &VecDeque<Rc<Message>>, psn: u32) -> Option<(Rc<Message>, u32)> {
    let behind = messages.partition_point(|message| ahead(psn, message.first_psn) >= 0);
    let message = messages.get(behind.checked_sub(1)?)?;
    let number = ahead(psn, message.first_psn) as u32;
    (number < message.packets).then(|| (Rc::clone(message), number))
}

fn expectation(message: &Message, number: u32) -> impl Fn(&str, u64, u64) -> Result<(), String> {
    let (name, of) = (message.operation.name, message.packets);
    move |what, seen, right| {
        if seen == right {
            return Ok(());
        }
        Err(format!("{what} is {seen:#x} and should be {right:#x} in packet {number} of {of} of {name}"))
    }
}

pub fn check(packet: &Packet, message: &Message, number: u32, mtu: u32, pool: &[u8]) -> Result<(), String> {
    if message.operation.is_answered() {
        return check_question(packet, message, number, mtu, pool);
    }
    check_carried(packet, message, number, mtu, pool, 0)
}

/// A packet of a SEND or WRITE; `transport` is its opcode's upper bits.
pub fn check_carried(
    packet: &Packet,
    message: &Message,
    number: u32,
    mtu: u32,
    pool: &[u8],
    transport: u8,
) -> Result<(), String> {
    let (first, last) = (number == 0, number + 1 == message.packets);
    let expect = expectation(message, number);
    expect("opcode", packet.opcode.into(), (transport | message.operation.wire_opcode(first, last)).into())?;
    let offset = u64::from(number) * u64::from(mtu);
    let length = if last { u64::from(message.length) - offset } else { mtu.into() };
    expect("payload length", packet.payload.len() as u64, length)?;
    expect("pad", packet.pad_bytes as u64, length.wrapping_neg() & 3)?;
    expect("P_Key", packet.pkey.into(), 0xffff)?;
    expect("transport version", packet.version.into(), 0)?;
    expect("source port's high bits", u64::from(packet.source_port >> 14), 3)?;
    if transport != 0 || last {
        // Nobody acknowledges what is unreliable.
        expect("AckReq", packet.ack_req.into(), u64::from(transport == 0))?;
    }
    let solicits = last && message.solicited && message.operation.consumes_receive();
    expect("SE", packet.solicited.into(), solicits.into())?;
    if first && message.operation.family == Family::Write {
        let (address, rkey, bytes) = packet.reth.unwrap_or_default();
        expect("RETH address", address, message.address)?;
        expect("RETH rkey", rkey.into(), message.rkey.into())?;
        expect("RETH length", bytes.into(), message.length.into())?;
    }
    if last && message.operation.immediate {
        expect("immediate", packet.immediate.unwrap_or(0).into(), message.immediate.into())?;
    }
    if last {
        expect("IETH", packet.invalidates.unwrap_or(0).into(), message.invalidates.unwrap_or(0).into())?;
    }
    let compared = message.packets <= COMPARED || number.is_multiple_of(8);
    if compared && !message.carries(pool, offset as usize, packet.payload) {
        return Err(format!("the payload of packet {number} is not the message's"));
    }
    Ok(())
}

/// A READ's request asks for everything from its packet on to the end; the others' is one packet (items 31, 112).
fn check_question(packet: &Packet, message: &Message, number: u32, mtu: u32, pool: &[u8]) -> Result<(), String> {
    let expect = expectation(message, number);
    expect("opcode", packet.opcode.into(), message.operation.wire_opcode(true, true).into())?;
    let carried = if message.operation.family == Family::AtomicWrite { message.length } else { 0 };
    expect("payload length", packet.payload.len() as u64, carried.into())?;
    if !message.carries(pool, 0, packet.payload) {
        return Err("the payload is not the message's".into());
    }
    expect("P_Key", packet.pkey.into(), 0xffff)?;
    expect("SE", packet.solicited.into(), 0)?;
    if let Some((address, rkey, swap_or_add, compare)) = packet.atomic {
        expect("address", address, message.address)?;
        expect("rkey", rkey.into(), message.rkey.into())?;
        if let Some(work) = message.atomic {
            expect("swap or add", swap_or_add, work.swap_or_add)?;
            let compares = packet.opcode == 0x13;
            expect("compare", compare, if compares { work.compare } else { 0 })?;
        }
        return Ok(());
    }
    if message.operation.family == Family::Flush {
        expect("FETH", packet.feth.unwrap_or(0).into(), message.placement().into())?;
    }
    let skipped = u64::from(number) * u64::from(mtu);
    let (address, rkey, bytes) = packet.reth.unwrap_or_default();
    expect("RETH address", address, message.address.wrapping_add(skipped))?;
    expect("RETH rkey", rkey.into(), message.rkey.into())?;
    expect("RETH length", bytes.into(), u64::from(message.length) - skipped)
}

/// An answer: its place, its length, its bytes; `pool` is the answering host's.
pub fn check_answer(packet: &Packet, message: &Message, number: u32, mtu: u32, pool: &[u8]) -> Result<(), String> {
    let expect = expectation(message, number);
    let last = number + 1 == message.packets;
    let first = matches!(packet.opcode, 0x0d | 0x10 | 0x12);
    expect("opcode", packet.opcode.into(), answer_opcode(message.operation.family, first, last).into())?;
    if message.operation.family == Family::Atomic {
        let before = message.atomic.map(|work| work.before);
        return match (packet.original, before) {
            (Some(found), Some(before)) => expect("what it found", found, before),
            _ => Err("answers an atomic that must fail".into()),
        };
    }
    if first != message.starts.borrow().contains(&number) && (first || number == 0) {
        return Err(format!("opcode {:#x} for packet {number}, asked for from {:?}", packet.opcode, message.starts));
    }
    let offset = u64::from(number) * u64::from(mtu);
    let length = (u64::from(message.brought()) - offset).min(mtu.into());
    expect("payload length", packet.payload.len() as u64, length)?;
    expect("pad", packet.pad_bytes as u64, length.wrapping_neg() & 3)?;
    if message.carries(pool, offset as usize, packet.payload) {
        return Ok(());
    }
    Err(format!("the payload of answer {number} is not what is read"))
}
