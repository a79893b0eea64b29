//! A device on a real link, memory that stands for the guest's, and a loop that stands for the engine thread.

use crate::function::ethernet::device::{EthernetConfig, EthernetDevice};
use rnic_pcie::dma_window::{Backing, Permissions};
use rnic_pcie::guest_region::GuestRegion;
use rnic_pcie::ledger::Ledger;
use rnic_pcie::{DmaTag, Link, LinkSettings, MessageKind, Verdict};
use rnic_wire::Frame;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// Where memory is on the bus, and how much.
pub const BASE: u64 = 1 << 32;
pub const MEMORY: usize = 0x2_0000;

/// How reads are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    AtOnce,
    /// Held back and released one by one.
    Late,
    /// As guest memory that is not shared: every transfer is a message.
    ByMessage,
}

pub struct Rig {
    pub device: EthernetDevice,
    pub link: Link,
    pub region: Arc<GuestRegion>,
    /// Reads are held back.
    pub hold: Arc<AtomicBool>,
    /// Frames that the device has given to the switch.
    pub sent: Vec<Vec<u8>>,
    frame: Frame,
}

impl Rig {
    pub fn new(answers: Answers) -> Self {
        let mut link = Link::new(LinkSettings::MODEL_HOST, super::super::VECTORS);
        let region = Arc::new(GuestRegion::anonymous(MEMORY).expect("memory"));
        let backing = match answers {
            Answers::ByMessage => Backing::Message,
            _ => Backing::Mapped { region: Arc::clone(&region), offset: 0 },
        };
        link.map(BASE, MEMORY as u64, Permissions::READ_WRITE, backing).expect("mapped");
        link.set_bus_master(true);
        let hold = Arc::new(AtomicBool::new(answers == Answers::Late));
        let held = Arc::clone(&hold);
        link.set_read_policy(Some(Box::new(move |_, _| match held.load(Ordering::Relaxed) {
            true => Verdict::Hold,
            false => Verdict::Now,
        })));
        let device = EthernetDevice::new(EthernetConfig { mac: MAC, mtu: 9000 });
        Self { device, link, region, hold, sent: Vec::new(), frame: Frame::new() }
    }

    pub fn write_memory(&self, iova: u64, bytes: &[u8]) {
        let slice = self.region.slice(iova - BASE, bytes.len() as u64).expect("inside memory");
        slice.copy_from(bytes);
    }

    pub fn read_memory(&self, iova: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0u8; length];
        self.region.slice(iova - BASE, length as u64).expect("inside memory").copy_to(&mut bytes[..]);
        bytes
    }

    pub fn write_register(&mut self, offset: u64, bytes: &[u8]) {
        self.device.handle_write(&mut self.link, offset, bytes);
    }

    pub fn read_register<const N: usize>(&mut self, offset: u64) -> [u8; N] {
        let mut bytes = [0xa5; N];
        self.device.handle_read(&mut self.link, offset, &mut bytes);
        bytes
    }

    /// A frame from the switch.
    pub fn receive(&mut self, bytes: &[u8]) {
        assert!(self.frame.set_bytes(bytes));
        self.device.handle_frame(&mut self.frame);
    }

    /// Runs the device as the engine thread does; false when nothing moved.
    pub fn step(&mut self) -> bool {
        let mut moved = self.serve_messages();
        while let Some((tag, answer)) = self.link.next_completion() {
            self.device.handle_dma_completion(tag, answer.as_deref().map_err(|fault| *fault));
            moved = true;
        }
        while self.device.poll_transmit(&mut self.link, &mut self.frame) {
            self.sent.push(self.frame.bytes().to_vec());
            moved = true;
        }
        moved |= self.device.work(&mut self.link);
        self.serve_messages() | moved
    }

    /// The client's side of DMA by message.
    fn serve_messages(&mut self) -> bool {
        let mut any = false;
        while let Some(message) = self.link.next_message() {
            any = true;
            match message.kind {
                MessageKind::Read { iova, length_bytes } => {
                    let bytes = self.read_memory(iova.0, length_bytes as usize);
                    self.link.message_answered(message.id, Ok(&bytes));
                }
                MessageKind::Write { iova, data } => {
                    self.write_memory(iova.0, &data);
                    self.link.message_answered(message.id, Ok(&[]));
                }
            }
        }
        any
    }

    /// Releases a read that is held back, chosen by `which`; false if there is none.
    pub fn release(&mut self, which: usize) -> bool {
        let held: Vec<DmaTag> = self.link.held_tags();
        match held.len() {
            0 => false,
            count => self.link.release(held[which % count]),
        }
    }

    /// Runs until nothing moves, whatever is held back released.
    pub fn settle(&mut self) {
        let mut rounds = 0;
        while self.step() || self.release(rounds) {
            rounds += 1;
            assert!(rounds < 100_000, "the device never comes to rest");
        }
    }

    /// Crossings by the name of their class, those that there are.
    pub fn counted(&self, since: &Ledger) -> Vec<(&'static str, u64)> {
        let delta = self.link.ledger().since(since);
        let counted = delta.classes().map(|(class, totals)| (class.name(), totals.crossings));
        let counted: Vec<_> = counted.filter(|(_, crossings)| *crossings > 0).collect();
        counted
    }
}
