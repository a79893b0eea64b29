//! What of a transaction needs no device: its bytes, its buffer, its rules. The rest runs against the device in the
//! end-to-end tests.

use super::*;
use crate::backings::in_process::ModelHost;
use crate::verbs::MrLayout;
use rnic_abi::command::ACCESS_REMOTE_WRITE;

/// The first words of SplitMix64 with seed 1234567, as its author publishes them.
#[test]
fn a_message_is_splitmix64_of_its_seed() {
    let words = [6457827717110365317u64, 3203168211198807973, 9817491932198370423];
    let expected: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    assert_eq!(payload(1234567, 24), expected);
    assert_eq!(payload(1234567, 13), expected[..13]);
    assert!(payload(1, 0).is_empty());
}

#[test]
fn the_story_is_the_default_and_a_spec_is_json_with_defaults() {
    let spec: TransactionSpec = serde_json::from_str(r#"{"operation":"send","length_bytes":7}"#).unwrap();
    let story = TransactionSpec::default();
    assert_eq!(spec, TransactionSpec { operation: Operation::Send, length_bytes: 7, ..story.clone() });
    assert_eq!((story.psn, story.requester_qpn, story.responder_qpn, story.immediate), (1000, 0x11, 0x12, 0x2a));
    assert_eq!(serde_json::from_str::<TransactionSpec>(&serde_json::to_string(&story).unwrap()).unwrap(), story);
}

/// A buffer over plain mapped memory: the model host without a device.
struct Memory(crate::memory::MappedMemory);

macro_rules! only_memory {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $out:ty;)*) => {
        $(fn $name(&mut self, $($arg: $ty),*) -> crate::backing::Result<$out> {
            $(let _ = $arg;)*
            unreachable!(stringify!($name))
        })*
    };
}

impl crate::backing::Backing for Memory {
    fn name(&self) -> &'static str {
        "memory alone"
    }

    fn allocate(&mut self, length_bytes: u64, align_bytes: u64) -> crate::backing::Result<crate::backing::DmaBuffer> {
        self.0.allocate(length_bytes, align_bytes)
    }

    fn release(&mut self, buffer: crate::backing::DmaBuffer) {
        self.0.release(buffer);
    }

    fn copy_in(&mut self, iova: u64, bytes: &[u8]) -> crate::backing::Result<()> {
        self.0.copy_in(iova, bytes)
    }

    fn copy_out(&mut self, iova: u64, bytes: &mut [u8]) -> crate::backing::Result<()> {
        self.0.copy_out(iova, bytes)
    }

    only_memory! {
        read32(bar: u8, offset: u64) -> u32;
        read64(bar: u8, offset: u64) -> u64;
        write32(bar: u8, offset: u64, value: u32) -> ();
        write64(bar: u8, offset: u64, value: u64) -> ();
        load32(iova: u64) -> u32;
        load64(iova: u64) -> u64;
        store32(iova: u64, value: u32) -> ();
        store64(iova: u64, value: u64) -> ();
        config_read32(offset: u16) -> u32;
        config_write32(offset: u16, value: u32) -> ();
        config_write16(offset: u16, value: u16) -> ();
        enable_vectors(count: u16) -> ();
        wait_event(vector: u16, timeout: std::time::Duration) -> bool;
        pause() -> ();
    }
}

#[test]
fn a_buffer_is_its_message_between_canaries_in_every_layout() {
    let host = ModelHost { memory_bytes: 1 << 20, ..ModelHost::default() };
    let mut memory = Memory(host.memory().unwrap().1);
    for layout in [MrLayout::Contiguous, MrLayout::List, MrLayout::TwoLevel] {
        for length in [1u32, 63, 4096, 10_000] {
            let buffer = HostBuffer::new(&mut memory, layout, 0x5500_0000_0000, length.into()).unwrap();
            let message = payload(3, length);
            buffer.write_message(&mut memory, &message).unwrap();
            let (found, around) = buffer.read(&mut memory).unwrap();
            assert!(found == message && around.len() as u64 >= 2 * GUARD_BYTES);
            assert!(around.iter().all(|byte| *byte == CANARY));
            let region = buffer.region(ACCESS_REMOTE_WRITE);
            assert_eq!((region.length_bytes, region.start % 4096), (length.into(), 0), "a message begins at a page");
            // As the device walks it: page by page from the first byte's place in the first page.
            let mut walked = Vec::new();
            for at in (region.start % 4096..).take(length as usize) {
                let address = match layout {
                    MrLayout::Contiguous => region.pages[0] + at - region.start % 4096,
                    _ => region.pages[(at / 4096) as usize] + at % 4096,
                };
                let mut byte = [0];
                memory.0.copy_out(address, &mut byte).unwrap();
                walked.push(byte[0]);
            }
            assert!(walked == message, "{layout:?} {length}");
            buffer.release(&mut memory);
        }
    }
}

#[test]
fn a_spec_that_cannot_be_is_refused_before_anything_is_touched() {
    let story = TransactionSpec::default();
    for spec in [
        TransactionSpec { length_bytes: u32::MAX, ..story.clone() },
        TransactionSpec { path_mtu_bytes: 1500, ..story.clone() },
        TransactionSpec { elements: 0, ..story.clone() },
        TransactionSpec { elements: 9, ..story.clone() },
        TransactionSpec { fault: Some(Fault::BadRkey), operation: Operation::Send, ..story.clone() },
        TransactionSpec { operation: Operation::FetchAdd, length_bytes: 4, ..story.clone() },
        TransactionSpec { operation: Operation::Read, inline: true, ..story.clone() },
        TransactionSpec { transport: Transport::Uc, operation: Operation::Read, ..story.clone() },
        TransactionSpec { transport: Transport::Ud, ..story.clone() },
        TransactionSpec { transport: Transport::Ud, operation: Operation::Send, length_bytes: 4097, ..story.clone() },
        TransactionSpec { transport: Transport::Uc, fault: Some(Fault::BadRkey), ..story.clone() },
        TransactionSpec { fault: Some(Fault::OutOfBounds), length_bytes: 0, ..story },
    ] {
        let host = ModelHost { memory_bytes: 1 << 20, ..ModelHost::default() };
        let memory = Box::new(Memory(host.memory().unwrap().1));
        assert!(matches!(Side::open(memory, spec, Role::Requester), Err(TransactionError::Spec(_))));
    }
}
