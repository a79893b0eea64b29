//! The virtio network device as a state machine: no socket, no clock, no thread.
//!
//! In: register accesses ([`super::registers`]), frames from the switch, answers to reads. Out: frames for the switch,
//! and through the port it is lent everything that happens to host memory. One that has met a [`NetFault`] stands
//! still until the driver resets it.

use super::control;
use super::counters::EthernetCounters;
use super::filter::{Mac, ReceiveFilter};
use super::header::HEADER_BYTES;
use super::receive::Receive;
use super::registers::Registers;
use super::virtqueue::{Virtqueue, VirtqueueView};
use super::{CONFIG_QUEUE, NO_VECTOR, NetFault};
use crate::function::ethernet::chain::Chain;
use rnic_pcie::{Cause, Class, DmaFault, DmaPort, DmaRange, DmaTag, Iova, Origin};
use rnic_wire::Frame;
use rnic_wire::frame::CAPACITY;
use virtio_bindings::virtio_config::{
    VIRTIO_CONFIG_S_DRIVER_OK, VIRTIO_CONFIG_S_NEEDS_RESET, VIRTIO_F_ACCESS_PLATFORM, VIRTIO_F_VERSION_1,
};
use virtio_bindings::virtio_net::{
    VIRTIO_NET_F_CSUM, VIRTIO_NET_F_CTRL_RX, VIRTIO_NET_F_CTRL_VQ, VIRTIO_NET_F_GUEST_CSUM, VIRTIO_NET_F_MAC,
    VIRTIO_NET_F_MRG_RXBUF, VIRTIO_NET_F_MTU, VIRTIO_NET_F_STATUS,
};
use virtio_bindings::virtio_ring::VIRTIO_RING_F_INDIRECT_DESC;

/// The queues: frames to the driver, frames from it, commands.
pub const RECEIVE: usize = 0;
pub const TRANSMIT: usize = 1;
pub const CONTROL: usize = 2;
pub const QUEUES: usize = 3;

/// Chains that one call finishes without a frame to show for it.
const FRUITLESS: usize = 16;
/// Commands that one call carries out.
const COMMANDS: usize = 8;

const ISR_QUEUE: u8 = 1 << 0;
const ISR_CONFIG: u8 = 1 << 1;

pub const fn feature(bit: u32) -> u64 {
    1 << bit
}

/// What the device offers.
pub const FEATURES: u64 = feature(VIRTIO_F_VERSION_1)
    | feature(VIRTIO_F_ACCESS_PLATFORM)
    | feature(VIRTIO_RING_F_INDIRECT_DESC)
    | feature(VIRTIO_NET_F_CSUM)
    | feature(VIRTIO_NET_F_GUEST_CSUM)
    | feature(VIRTIO_NET_F_MTU)
    | feature(VIRTIO_NET_F_MAC)
    | feature(VIRTIO_NET_F_MRG_RXBUF)
    | feature(VIRTIO_NET_F_STATUS)
    | feature(VIRTIO_NET_F_CTRL_VQ)
    | feature(VIRTIO_NET_F_CTRL_RX);

/// What the function is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EthernetConfig {
    pub mac: Mac,
    /// The largest payload of a frame.
    pub mtu: u16,
}

/// A path MTU of 4096 fits into it.
pub const DEFAULT_MTU: u16 = 9000;

#[derive(Debug)]
pub struct EthernetDevice {
    pub(super) config: EthernetConfig,
    pub(super) registers: Registers,
    pub(super) queues: [Virtqueue; QUEUES],
    /// The queue may move: the driver or an answer has said so.
    pub(super) active: [bool; QUEUES],
    pub(super) link_up: bool,
    pub(super) isr: u8,
    /// The driver is to be told that the configuration has changed.
    pub(super) config_changed: bool,
    pub(super) counters: EthernetCounters,
    pub(super) receive: Receive,
    filter: ReceiveFilter,
    transmit_chain: Option<Chain>,
    control_chain: Option<Chain>,
    fault: Option<NetFault>,
}

impl EthernetDevice {
    pub fn new(config: EthernetConfig) -> Self {
        let payload_bytes = HEADER_BYTES + CAPACITY;
        Self {
            config,
            registers: Registers::default(),
            queues: std::array::from_fn(|number| Virtqueue::new(number as u16, [0, payload_bytes, 0][number])),
            active: [false; QUEUES],
            link_up: true,
            isr: 0,
            config_changed: false,
            counters: EthernetCounters::default(),
            receive: Receive::default(),
            filter: ReceiveFilter::new(config.mac),
            transmit_chain: None,
            control_chain: None,
            fault: None,
        }
    }

    /// Everything as at the beginning, but for the counters and the state of the link.
    pub fn handle_reset(&mut self) {
        self.registers = Registers::default();
        self.queues.iter_mut().for_each(Virtqueue::reset);
        self.active = [false; QUEUES];
        (self.isr, self.config_changed) = (0, false);
        self.receive.reset();
        self.filter = ReceiveFilter::new(self.config.mac);
        (self.transmit_chain, self.control_chain, self.fault) = (None, None, None);
    }

    /// A driver is at work, and nothing is broken.
    pub fn is_running(&self) -> bool {
        self.registers.has_status(VIRTIO_CONFIG_S_DRIVER_OK) && self.fault.is_none()
    }

    pub fn fault(&self) -> Option<NetFault> {
        self.fault
    }

    pub fn counters(&self) -> &EthernetCounters {
        &self.counters
    }

    /// The features that the driver has accepted.
    pub fn driver_features(&self) -> u64 {
        self.registers.driver_features
    }

    pub fn view_queues(&self) -> [VirtqueueView; QUEUES] {
        std::array::from_fn(|number| self.queues[number].view(["receive", "transmit", "control"][number]))
    }

    pub fn is_link_up(&self) -> bool {
        self.link_up
    }

    /// Plugs the cable in or out; the driver is told.
    pub fn set_link_up(&mut self, up: bool) {
        if std::mem::replace(&mut self.link_up, up) != up {
            self.announce_change();
        }
    }

    pub(super) fn negotiated(&self, bit: u32) -> bool {
        self.registers.driver_features & feature(bit) != 0
    }

    pub(super) fn announce_change(&mut self) {
        self.registers.generation = self.registers.generation.wrapping_add(1);
        self.isr |= ISR_CONFIG;
        self.config_changed = true;
    }

    /// Stops until the next reset.
    pub(super) fn fail(&mut self, fault: NetFault) {
        log::warn!("net {} {}: {fault}; the device needs a reset", fault.number(), fault.name());
        self.counters.faults += 1;
        self.fault = Some(fault);
        self.active = [false; QUEUES];
        self.receive.reset();
        self.registers.status |= VIRTIO_CONFIG_S_NEEDS_RESET as u8;
        self.announce_change();
    }

    /// Settles what a queue's work came to.
    fn settle<T: Default>(&mut self, outcome: Result<T, NetFault>) -> T {
        outcome.unwrap_or_else(|fault| {
            self.fail(fault);
            T::default()
        })
    }

    /// An answer to a read that was pending; one that nobody waits for is ignored.
    pub fn handle_dma_completion(&mut self, tag: DmaTag, answer: Result<&[u8], DmaFault>) {
        let asked = self.queues.iter_mut().position(|queue| queue.answer(tag, answer));
        if let Some(queue) = asked {
            self.active[queue] = true;
        }
    }

    /// A frame from the switch: it is taken, and another buffer comes in its place, or it is counted and left.
    pub fn handle_frame(&mut self, frame: &mut Frame) {
        if !self.is_running() || !self.link_up {
            self.counters.received_unattended += 1;
        } else if !self.filter.takes(frame.bytes()) {
            self.counters.received_filtered += 1;
        } else if self.receive.keep(frame) {
            self.active[RECEIVE] = true;
        } else {
            self.counters.received_overrun += 1;
        }
    }

    /// There may be something to do.
    pub fn has_work(&self) -> bool {
        self.config_changed || self.active.contains(&true)
    }

    /// The next frame that the driver sends, into `frame`. To be called while the switch has room, until it says false.
    pub fn poll_transmit(&mut self, port: &mut dyn DmaPort, frame: &mut Frame) -> bool {
        if !self.is_running() || !self.active[TRANSMIT] {
            return false;
        }
        let outcome = self.next_frame(port, frame);
        self.settle(outcome)
    }

    fn next_frame(&mut self, port: &mut dyn DmaPort, frame: &mut Frame) -> Result<bool, NetFault> {
        for _ in 0..FRUITLESS {
            let queue = &mut self.queues[TRANSMIT];
            if queue.room() == 0 {
                queue.publish(port)?;
            }
            let chain = match self.transmit_chain.take() {
                Some(chain) => Some(chain),
                None => queue.next_chain(port)?,
            };
            let Some(chain) = chain else {
                self.active[TRANSMIT] = false;
                return Ok(false);
            };
            if !chain.writable.is_empty() || chain.readable_bytes < HEADER_BYTES as u64 {
                return Err(NetFault::WrongBuffers { queue: queue.number(), head: chain.head });
            }
            let built = if chain.readable_bytes > queue.payload_bytes() as u64 {
                false
            } else if let Some(bytes) = queue.read_payload(port, &chain)? {
                super::transmit::build(bytes, frame)
            } else {
                self.transmit_chain = Some(chain);
                self.active[TRANSMIT] = false;
                return Ok(false);
            };
            queue.finish(chain, 0);
            if built && self.link_up {
                self.counters.transmitted_frames += 1;
                self.counters.transmitted_bytes += frame.length() as u64;
                return Ok(true);
            }
            self.counters.transmit_dropped += 1;
        }
        Ok(false)
    }

    /// Does all but transmission: commands, received frames, used rings and interrupts. True if something moved.
    pub fn work(&mut self, port: &mut dyn DmaPort) -> bool {
        let mut moved = false;
        if self.is_running() {
            let outcome = self.try_work(port);
            moved = self.settle(outcome);
        }
        if std::mem::take(&mut self.config_changed) && self.registers.config_vector != NO_VECTOR {
            let cause = Cause::Net { queue: CONFIG_QUEUE, index: self.registers.generation.into() };
            let nothing = DmaRange::new(Iova(0), 0);
            let _ = port.event(Origin::new(Class::NetEvent, cause), nothing, &[], Some(self.registers.config_vector));
        }
        moved
    }

    fn try_work(&mut self, port: &mut dyn DmaPort) -> Result<bool, NetFault> {
        let mut moved = false;
        if self.active[CONTROL] {
            moved |= self.run_commands(port)?;
        }
        if self.active[RECEIVE] {
            moved |= self.deliver_frames(port)?;
        }
        for queue in &mut self.queues {
            queue.publish(port)?;
            if queue.signal(port)? {
                self.isr |= ISR_QUEUE;
            }
        }
        Ok(moved)
    }

    fn run_commands(&mut self, port: &mut dyn DmaPort) -> Result<bool, NetFault> {
        let mut moved = false;
        for _ in 0..COMMANDS {
            let queue = &mut self.queues[CONTROL];
            let chain = match self.control_chain.take() {
                Some(chain) => Some(chain),
                None => queue.next_chain(port)?,
            };
            let Some(chain) = chain else {
                self.active[CONTROL] = false;
                break;
            };
            let Some(answer_to) = chain.writable.first().map(|range| DmaRange::new(range.iova, 1)) else {
                return Err(NetFault::WrongBuffers { queue: queue.number(), head: chain.head });
            };
            let answer = if chain.readable_bytes > queue.payload_bytes() as u64 {
                control::REFUSED
            } else if let Some(command) = queue.read_payload(port, &chain)? {
                control::execute(&mut self.filter, command)
            } else {
                self.control_chain = Some(chain);
                self.active[CONTROL] = false;
                break;
            };
            queue.write_payload(port, chain.index, &[answer_to], &[answer])?;
            queue.finish(chain, 1);
            self.counters.commands += 1;
            moved = true;
        }
        Ok(moved)
    }
}
