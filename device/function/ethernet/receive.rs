//! From a frame of the switch to the driver's buffers.
//!
//! Frames wait here until the driver has lent enough; so many are kept, and then the newest are lost, as in any network
//! card whose driver is slow. They never hold up the switch, whose frames for the RNIC come the same way.

use super::NetFault;
use super::chain::Chain;
use super::checksum;
use super::device::{EthernetDevice, RECEIVE};
use super::header::{self, HEADER_BYTES};
use rnic_pcie::{DmaPort, DmaRange};
use rnic_wire::Frame;
use std::collections::VecDeque;
use virtio_bindings::virtio_net::{VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_MRG_RXBUF};

/// Frames that wait for buffers.
const KEPT: usize = 128;
/// Frames that one call delivers.
const DELIVERED: usize = 16;

/// Frames that wait, and buffers that have been lent for the next one.
#[derive(Debug, Default)]
pub struct Receive {
    waiting: VecDeque<Frame>,
    spare: Vec<Frame>,
    lent: VecDeque<Chain>,
    lent_bytes: u64,
    ranges: Vec<DmaRange>,
    bytes: Vec<u8>,
}

impl Receive {
    pub fn reset(&mut self) {
        self.spare.extend(self.waiting.drain(..));
        self.lent.clear();
        self.lent_bytes = 0;
    }

    /// Takes the frame and leaves another buffer; false if there is no room.
    pub fn keep(&mut self, frame: &mut Frame) -> bool {
        if self.waiting.len() >= KEPT {
            return false;
        }
        // A frame from inside the process may have left its ICRC to whoever carries it out.
        frame.seal();
        let empty = self.spare.pop().unwrap_or_default();
        self.waiting.push_back(std::mem::replace(frame, empty));
        true
    }

    fn drop_first(&mut self) {
        self.spare.extend(self.waiting.pop_front());
    }
}

impl EthernetDevice {
    /// Delivers what waits, as far as the driver's buffers go. True if something moved.
    pub(super) fn deliver_frames(&mut self, port: &mut dyn DmaPort) -> Result<bool, NetFault> {
        let mut moved = false;
        for _ in 0..DELIVERED {
            let Some(length) = self.receive.waiting.front().map(Frame::length) else {
                self.active[RECEIVE] = false;
                break;
            };
            if !port.has_room() {
                break;
            }
            let needed = (HEADER_BYTES + length) as u64;
            if !self.borrow(port, needed)? {
                self.active[RECEIVE] = false;
                break;
            }
            if self.receive.lent_bytes >= needed {
                self.deliver(port)?;
            } else {
                self.counters.received_too_long += 1;
            }
            self.receive.drop_first();
            moved = true;
        }
        Ok(moved)
    }

    /// Takes buffers until there are enough for so many bytes, or until no more make a difference. False: not yet.
    fn borrow(&mut self, port: &mut dyn DmaPort, needed: u64) -> Result<bool, NetFault> {
        let mergeable = self.negotiated(VIRTIO_NET_F_MRG_RXBUF);
        let queue = &mut self.queues[RECEIVE];
        while self.receive.lent_bytes < needed {
            if !mergeable && !self.receive.lent.is_empty() {
                break;
            }
            let Some(chain) = queue.next_chain(port)? else { return Ok(false) };
            let too_many = self.receive.lent.len() >= usize::from(queue.settings.size);
            if too_many || !chain.readable.is_empty() || chain.writable_bytes < HEADER_BYTES as u64 {
                return Err(NetFault::WrongBuffers { queue: queue.number(), head: chain.head });
            }
            self.receive.lent_bytes += chain.writable_bytes;
            self.receive.lent.push_back(chain);
        }
        Ok(true)
    }

    /// Writes the first frame into the first buffers, as few as hold it.
    fn deliver(&mut self, port: &mut dyn DmaPort) -> Result<(), NetFault> {
        let wants_checksum = self.negotiated(VIRTIO_NET_F_GUEST_CSUM);
        let (queue, receive) = (&mut self.queues[RECEIVE], &mut self.receive);
        let Some(frame) = receive.waiting.front() else { return Ok(()) };
        let (mut left, mut buffers) = ((HEADER_BYTES + frame.length()) as u64, 0u16);
        receive.ranges.clear();
        for chain in &receive.lent {
            if left == 0 {
                break;
            }
            buffers += 1;
            for range in &chain.writable {
                let length_bytes = left.min(range.length_bytes.into());
                left -= length_bytes;
                receive.ranges.push(DmaRange::new(range.iova, length_bytes as u32));
            }
        }
        receive.bytes.clear();
        let right = wants_checksum && checksum::is_right(frame.bytes());
        receive.bytes.extend(header::received(right, buffers));
        receive.bytes.extend(frame.bytes());
        let index = receive.lent.front().map_or(0, |chain| chain.index);
        queue.write_payload(port, index, &receive.ranges, &receive.bytes)?;
        self.counters.received_frames += 1;
        self.counters.received_bytes += frame.length() as u64;
        // The buffers of one frame appear in the used ring together.
        if queue.room() < buffers.into() {
            queue.publish(port)?;
        }
        let mut left = receive.bytes.len() as u64;
        for chain in receive.lent.drain(..usize::from(buffers)) {
            receive.lent_bytes -= chain.writable_bytes;
            let written = left.min(chain.writable_bytes);
            left -= written;
            queue.finish(chain, written as u32);
        }
        Ok(())
    }
}
