//! The qtest backing against a small machine that speaks the protocol: a root port, a device behind it, RAM.

use super::*;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};

const LIMIT: Duration = Duration::from_secs(5);

/// Configuration space by (bus, device), memory by byte, and every line that came.
#[derive(Default)]
struct Machine {
    selected: u32,
    config: HashMap<(u32, u32), Vec<u8>>,
    memory: HashMap<u64, u8>,
    lines: Vec<String>,
}

fn number(text: &str) -> u64 {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap()
}

/// BAR register to the bits that can be written and those that are fixed.
fn bar_bits(register: usize) -> Option<(u32, u32)> {
    match register {
        0x10 => Some((!0xffff, 0x4)),
        0x18 => Some((!0x3f_ffff, 0xc)),
        0x20 => Some((!0xfff, 0x4)),
        0x14 | 0x1c | 0x24 => Some((!0, 0)),
        _ => None,
    }
}

impl Machine {
    fn new() -> Self {
        let mut machine = Self::default();
        let mut bridge = vec![0; 256];
        bridge[..4].copy_from_slice(&[0x36, 0x1b, 0x0c, 0x00]);
        bridge[0x0e] = 1;
        machine.config.insert((0, 3), bridge);
        let mut device = vec![0; 256];
        device[..4].copy_from_slice(&[0x34, 0x12, 0xb7, 0x12]);
        (device[0x34], device[0x80], device[0x82], device[0x84]) = (0x80, 0x11, 3, 4);
        machine.config.insert((1, 0), device);
        machine
    }

    /// The selected function, if its bus has a number and it has one.
    fn function(&mut self) -> Option<(&mut Vec<u8>, usize)> {
        let (bus, device, function) = (self.selected >> 16 & 0xff, self.selected >> 11 & 31, self.selected >> 8 & 7);
        let secondary = self.config[&(0, 3)][0x19];
        let reached = function == 0 && (bus == 0 || bus == u32::from(secondary));
        let register = (self.selected & 0xfc) as usize;
        self.config.get_mut(&(bus, device)).filter(|_| reached).map(|space| (space, register))
    }

    fn config_write(&mut self, offset: usize, bytes: &[u8]) {
        let is_device = self.selected >> 16 & 0xff == 1;
        let Some((space, register)) = self.function() else { return };
        let mut value = bytes.to_vec();
        if let Some((writable, fixed)) = bar_bits(register).filter(|_| is_device) {
            let wanted = u32::from_le_bytes(bytes.try_into().unwrap());
            value = (wanted & writable | fixed).to_le_bytes().to_vec();
        }
        space[register + offset..register + offset + value.len()].copy_from_slice(&value);
    }

    fn execute(&mut self, line: &str) -> String {
        self.lines.push(line.into());
        let words: Vec<&str> = line.split(' ').collect();
        let argument = |at: usize| number(words[at]);
        match words[0] {
            "outl" if argument(1) == 0xcf8 => self.selected = argument(2) as u32,
            "outl" => self.config_write(0, &(argument(2) as u32).to_le_bytes()),
            "outw" => self.config_write(argument(1) as usize & 2, &(argument(2) as u16).to_le_bytes()),
            "inl" => {
                let value = self.function().map(|(space, at)| space[at..at + 4].try_into().unwrap());
                return format!("OK 0x{:x}", value.map_or(u32::MAX, u32::from_le_bytes));
            }
            "readl" | "readq" => {
                let bytes: [u8; 8] = std::array::from_fn(|at| self.byte(argument(1) + at as u64));
                let value = u64::from_le_bytes(bytes) & if words[0] == "readl" { 0xffff_ffff } else { u64::MAX };
                return format!("OK 0x{value:016x}");
            }
            "writel" => self.store(argument(1), &(argument(2) as u32).to_le_bytes()),
            "writeq" => self.store(argument(1), &argument(2).to_le_bytes()),
            "memset" => (argument(1)..argument(1) + argument(2)).for_each(|at| {
                self.memory.remove(&at);
            }),
            "read" => {
                let bytes = (argument(1)..argument(1) + argument(2)).map(|at| format!("{:02x}", self.byte(at)));
                return format!("OK 0x{}", bytes.collect::<String>());
            }
            "write" => {
                let digits = words[3].trim_start_matches("0x");
                let bytes: Vec<u8> = (0..digits.len()).step_by(2).map(|at| number(&digits[at..at + 2]) as u8).collect();
                assert_eq!(bytes.len() as u64, argument(2));
                self.store(argument(1), &bytes);
            }
            _ => return "ERR unknown".into(),
        }
        "OK".into()
    }

    fn byte(&self, at: u64) -> u8 {
        self.memory.get(&at).copied().unwrap_or(0)
    }

    fn store(&mut self, address: u64, bytes: &[u8]) {
        (address..).zip(bytes).for_each(|(at, byte)| {
            self.memory.insert(at, *byte);
        });
    }
}

fn start(mut machine: Machine) -> (UnixStream, std::thread::JoinHandle<Machine>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let thread = std::thread::spawn(move || {
        let mut writer = theirs.try_clone().unwrap();
        for line in BufReader::new(theirs).lines() {
            let answer = machine.execute(&line.unwrap());
            // Notices of interrupts come at any time.
            writer.write_all(format!("IRQ raise 1\n{answer}\n").as_bytes()).unwrap();
        }
        machine
    });
    (ours, thread)
}

fn options() -> QtestOptions {
    QtestOptions { memory_bytes: 1 << 20, limit: LIMIT, ..QtestOptions::default() }
}

#[test]
fn the_device_is_enumerated_behind_its_port_and_reached() {
    let (stream, machine) = start(Machine::new());
    let mut qtest = Qtest::open(stream, options()).unwrap();
    qtest.write64(0, 0x40, 0x1122_3344_5566_7788).unwrap();
    qtest.write32(2, 0x3f_fffc, 7).unwrap();
    assert_eq!(qtest.read32(0, 0x44).unwrap(), 0x1122_3344);
    assert!(matches!(qtest.write64(0, 4, 0), Err(BackingError::BarAccess { .. })));
    assert!(matches!(qtest.read32(1, 0), Err(BackingError::BarAccess { .. })));
    drop(qtest);
    let machine = machine.join().unwrap();
    let config = |key, at: usize| u32::from_le_bytes(machine.config[&key][at..at + 4].try_into().unwrap());
    let (bridge, device) = ((0, 3), (1, 0));
    assert_eq!(config(bridge, 0x18) & 0xff_ffff, 0x01_0100, "primary 0, secondary and subordinate 1");
    assert_eq!(config(bridge, 0x20), 0xe0f0_e000);
    assert_eq!(
        (config(bridge, 0x24) & 0xfff0_fff0, config(bridge, 0x28), config(bridge, 0x2c)),
        (0x3ff0_0000, 0x80, 0x80)
    );
    assert_eq!((config(device, 0x10), config(device, 0x14)), (0xe000_0004, 0));
    assert_eq!((config(device, 0x18), config(device, 0x1c)), (0x0000_000c, 0x80));
    assert_eq!((config(device, 0x20), config(device, 0x24)), (0xe001_0004, 0));
    assert_eq!((config(bridge, 4) & 6, config(device, 4) & 6), (6, 6));
    assert_eq!(machine.lines.iter().filter(|line| line.starts_with("writeq 0xe0000040")).count(), 1);
    assert_eq!(machine.byte(0x80_003f_fffc), 7);
}

#[test]
fn memory_is_messages_within_the_range_that_is_ours() {
    let (stream, _machine) = start(Machine::new());
    let mut qtest = Qtest::open(stream, options()).unwrap();
    let buffer = qtest.allocate(100_000, 4096).unwrap();
    assert_eq!(buffer.iova, 16 << 20);
    let bytes: Vec<u8> = (0..100_000u32).map(|index| (index * 7 / 3) as u8).collect();
    qtest.copy_in(buffer.iova, &bytes).unwrap();
    let mut back = vec![0; 100_000];
    qtest.copy_out(buffer.iova, &mut back).unwrap();
    assert!(back == bytes);
    qtest.store64(buffer.iova + 8, u64::MAX).unwrap();
    assert_eq!(qtest.load32(buffer.iova + 12).unwrap(), u32::MAX);
    assert!(matches!(qtest.store32(0x1000, 0), Err(BackingError::NotDmaMemory { .. })));
    assert!(matches!(qtest.copy_in((17 << 20) - 1, &[0; 2]), Err(BackingError::NotDmaMemory { .. })));
    assert!(matches!(qtest.load64(buffer.iova + 4), Err(BackingError::Unaligned { .. })));
}

#[test]
fn vectors_are_words_of_our_memory() {
    let (stream, machine) = start(Machine::new());
    let mut qtest = Qtest::open(stream, options()).unwrap();
    qtest.enable_vectors(2).unwrap();
    let words = qtest.vectors.unwrap().iova;
    assert!(!qtest.wait_event(1, Duration::ZERO).unwrap());
    qtest.store32(words + 4, 1).unwrap();
    assert!(qtest.wait_event(1, LIMIT).unwrap() && !qtest.wait_event(0, Duration::ZERO).unwrap());
    assert!(!qtest.wait_event(1, Duration::ZERO).unwrap());
    assert!(matches!(qtest.enable_vectors(9), Err(BackingError::NoVector { .. })));
    drop(qtest);
    let machine = machine.join().unwrap();
    let entry = |at: u64| u32::from_le_bytes(std::array::from_fn(|byte| machine.byte(0xe001_0000 + at + byte as u64)));
    assert_eq!([entry(16), entry(20), entry(24), entry(28)], [words as u32 + 4, 0, 1, 0]);
    assert_eq!(machine.config[&(1, 0)][0x83] & 0x80, 0x80, "MSI-X is on");
}

#[test]
fn a_machine_without_the_device_and_a_broken_peer_are_errors() {
    let mut machine = Machine::new();
    machine.config.remove(&(1, 0));
    let (stream, _machine) = start(machine);
    let error = Qtest::open(stream, options()).unwrap_err().to_string();
    assert_eq!(error, "no device 1234:12b7 as number 0 behind the 1 root ports of bus 0");
    for answer in ["FAIL no\n", "OK zebra\nOK zebra\n", "OK", ""] {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(answer.as_bytes()).unwrap();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(matches!(Qtest::open(ours, options()), Err(BackingError::Protocol { .. })), "{answer:?}");
    }
    let (ours, _silent) = UnixStream::pair().unwrap();
    let limited = QtestOptions { limit: Duration::from_millis(50), ..options() };
    assert!(matches!(Qtest::open(ours, limited), Err(BackingError::Io { .. })));
}
