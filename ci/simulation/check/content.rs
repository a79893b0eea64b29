//! Each request packet against the message it belongs to: opcode, headers, length, pad and bytes (items 9, 10, 36, 41,
//! 42, 50).

use super::packet::{Packet, ahead};
use crate::message::Message;
use crate::operations::Family;
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

pub fn check(packet: &Packet, message: &Message, number: u32, mtu: u32, pool: &[u8]) -> Result<(), String> {
    let (first, last) = (number == 0, number + 1 == message.packets);
    let expect = |what: &str, seen: u64, right: u64| {
        if seen == right {
            return Ok(());
        }
        let (name, of) = (message.operation.name, message.packets);
        Err(format!("{what} is {seen:#x} and should be {right:#x} in packet {number} of {of} of {name}"))
    };
    expect("opcode", packet.opcode.into(), message.operation.wire_opcode(first, last).into())?;
    let offset = u64::from(number) * u64::from(mtu);
    let length = if last { u64::from(message.length) - offset } else { mtu.into() };
    expect("payload length", packet.payload.len() as u64, length)?;
    expect("pad", packet.pad_bytes as u64, length.wrapping_neg() & 3)?;
    expect("P_Key", packet.pkey.into(), 0xffff)?;
    expect("transport version", packet.version.into(), 0)?;
    expect("source port's high bits", u64::from(packet.source_port >> 14), 3)?;
    if last {
        expect("AckReq", packet.ack_req.into(), 1)?;
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
    let compared = message.packets <= COMPARED || number.is_multiple_of(8);
    if compared && !message.carries(pool, offset as usize, packet.payload) {
        return Err(format!("the payload of packet {number} is not the message's"));
    }
    Ok(())
}
