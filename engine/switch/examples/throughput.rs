//! Measures unicast between two ports in two threads: `cargo run --release -p rnic-switch --example throughput`.
//!
//! The sender refills a frame's headers only, the receiver reads its first bytes: what is measured is the switch, not
//! the copy of a payload. With `--touch` both sides write and read the whole frame. `--ring N` sets the frames of a ring.
//! The median of five runs is printed.
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "a measurement has threads and a clock")]

use std::hint::{black_box, spin_loop};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use rnic_switch::{NeverSleeps, Port, Switch, SwitchConfig};
use rnic_wire::Frame;

const RUNS: usize = 5;
const FRAMES: u64 = 2_000_000;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let touch = arguments.iter().any(|argument| argument == "--touch");
    let ring = arguments.iter().skip_while(|argument| *argument != "--ring").nth(1);
    let ring_frames = ring.map_or(256, |frames| frames.parse().expect("--ring takes a number"));
    for length_bytes in [64, 4096 + 74] {
        let mut rates: Vec<f64> = (0..RUNS).map(|_| frames_per_second(length_bytes, ring_frames, touch)).collect();
        rates.sort_by(f64::total_cmp);
        let median = rates[RUNS / 2];
        let gigabytes = median * length_bytes as f64 / 1e9;
        println!("{length_bytes:5} bytes: {:6.2} M frames/s, {gigabytes:6.2} GB/s carried", median / 1e6);
    }
}

fn frames_per_second(length_bytes: usize, ring_frames: usize, touch: bool) -> f64 {
    let switch = Switch::new(SwitchConfig { ring_frames, ..SwitchConfig::default() });
    let mut sender = switch.port("sender", Arc::new(NeverSleeps)).expect("the switch is empty");
    let mut receiver = switch.port("receiver", Arc::new(NeverSleeps)).expect("the switch has one port");
    let mut frame = Frame::new();
    frame.set_bytes(&ipv4_frame(2, 1, 64));
    receiver.transmit(&mut frame, 0);
    let started = Instant::now();
    thread::scope(|scope| {
        scope.spawn(move || receive(&mut receiver, touch));
        scope.spawn(move || send(&mut sender, length_bytes, touch));
    });
    FRAMES as f64 / started.elapsed().as_secs_f64()
}

fn send(port: &mut Port, length_bytes: usize, touch: bool) {
    let frame_bytes = ipv4_frame(1, 2, length_bytes);
    let touched = if touch { length_bytes } else { 64 };
    let mut frame = Frame::new();
    let mut left = FRAMES;
    while left > 0 {
        let room = (port.room() as u64).min(left);
        if room == 0 {
            spin_loop();
        }
        for _ in 0..room {
            frame.buffer_mut()[..touched].copy_from_slice(&frame_bytes[..touched]);
            frame.set_received(length_bytes);
            port.transmit(&mut frame, 0);
        }
        left -= room;
    }
}

fn receive(port: &mut Port, touch: bool) {
    let mut frame = Frame::new();
    let mut sum = 0u64;
    let mut left = FRAMES;
    while left > 0 {
        if !port.receive(&mut frame, 0) {
            spin_loop();
            continue;
        }
        let read = if touch { frame.bytes() } else { &frame.bytes()[..64] };
        sum = read.chunks_exact(8).fold(sum, |sum, word| sum.wrapping_add(u64::from(word[0]) + u64::from(word[7])));
        left -= 1;
    }
    black_box(sum);
}

/// An IPv4 frame between two stations; only its addresses matter.
fn ipv4_frame(source: u8, destination: u8, length_bytes: usize) -> Vec<u8> {
    let mut frame = vec![0; length_bytes];
    frame[5] = destination;
    frame[11] = source;
    frame[12] = 8;
    frame[14] = 0x45;
    frame[26..30].copy_from_slice(&[10, 0, 0, source]);
    frame[30..34].copy_from_slice(&[10, 0, 0, destination]);
    frame
}
