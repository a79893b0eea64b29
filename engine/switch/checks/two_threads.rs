//! Ports in threads of their own: nothing lost under back-pressure, no wake-up missed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::Duration;

use super::*;
use crate::{DropReason, Wake};

/// What an eventfd would be: it counts, and a wake-up before the sleep is not lost.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    ring: Condvar,
    count: AtomicU64,
}

impl Wake for Bell {
    fn wake(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
        *self.rung.lock().unwrap() = true;
        self.ring.notify_one();
    }
}

impl Bell {
    /// Sleeps until rung. A missed wake-up shows as a sleep that does not end.
    fn sleep(&self) {
        let rung = self.rung.lock().unwrap();
        let (mut rung, timeout) = self.ring.wait_timeout_while(rung, Duration::from_secs(20), |rung| !*rung).unwrap();
        assert!(!timeout.timed_out(), "nobody rang the bell");
        *rung = false;
    }
}

const FRAMES: u32 = if cfg!(miri) { 50 } else { 200_000 };

fn number(frame: &Frame) -> u32 {
    u32::from_be_bytes(frame.bytes()[14..18].try_into().unwrap())
}

/// Sends numbered frames as fast as there is room, sleeping when there is none.
fn send_all(mut port: Port, bell: &Bell, source: u8, destination: u8) -> Port {
    let mut frame = Frame::new();
    let mut sent = 0u32;
    while sent < FRAMES {
        for _ in 0..port.room().min((FRAMES - sent) as usize) {
            assert!(frame.set_bytes(&ethernet(mac(source), mac(destination), &sent.to_be_bytes())));
            port.transmit(&mut frame, 0);
            sent += 1;
        }
        while port.receive(&mut frame, 0) {}
        if sent < FRAMES && port.room() == 0 && port.before_sleep() {
            bell.sleep();
        }
    }
    port.wake_receivers();
    port
}

/// Takes frames from several senders, sleeping when there are none, and checks each sender's order.
fn receive_all(mut port: Port, bell: &Bell, senders: &[u8]) -> Port {
    let mut frame = Frame::new();
    let mut next = [0u32; 256];
    let mut left = senders.len() as u64 * u64::from(FRAMES);
    while left > 0 {
        if port.receive(&mut frame, 0) {
            let sender = usize::from(frame.bytes()[11]);
            assert_eq!(number(&frame), next[sender], "from {sender}");
            next[sender] += 1;
            left -= 1;
        } else if port.before_sleep() {
            bell.sleep();
        }
    }
    port
}

#[test]
fn nothing_is_lost_and_no_wake_up_is_missed_under_back_pressure() {
    for ring_frames in [2, 8, 256] {
        let switch = Switch::new(SwitchConfig { ring_frames, ..SwitchConfig::default() });
        let bells: [Arc<Bell>; 3] = Default::default();
        let mut ports =
            bells.iter().enumerate().map(|(place, bell)| switch.port(&format!("p{place}"), bell.clone()).unwrap());
        let (receiver, first, second) = (ports.next().unwrap(), ports.next().unwrap(), ports.next().unwrap());
        drop(ports);
        let mut receiver = receiver;
        receiver.transmit(&mut frame_of(&ethernet(mac(9), BROADCAST, b"here")), 0);
        let (receiver, first, second) = thread::scope(|scope| {
            let senders = [(first, &bells[1], 1), (second, &bells[2], 2)]
                .map(|(port, bell, station)| scope.spawn(move || send_all(port, bell, station, 9)));
            let receiver = receive_all(receiver, &bells[0], &[1, 2]);
            let [first, second] = senders.map(|sender| sender.join().unwrap());
            (receiver, first, second)
        });
        for port in [&first, &second] {
            let statistics = port.statistics();
            assert_eq!(statistics.drops, [0; DropReason::ALL.len()]);
            assert_eq!(statistics.transmitted_frames, u64::from(FRAMES));
        }
        assert_eq!(receiver.statistics().received_frames, 2 * u64::from(FRAMES));
    }
}

#[test]
fn floods_to_sleeping_ports_arrive_everywhere() {
    let switch = Switch::new(SwitchConfig { ring_frames: 16, ..SwitchConfig::default() });
    let bells: [Arc<Bell>; 3] = Default::default();
    let mut ports: Vec<Port> =
        (0..3).map(|place| switch.port(&format!("p{place}"), bells[place].clone()).unwrap()).collect();
    let sender = ports.remove(0);
    thread::scope(|scope| {
        for (port, bell) in ports.into_iter().zip(&bells[1..]) {
            scope.spawn(move || receive_all(port, bell, &[1]));
        }
        // Nobody has the address, so each frame is flooded. A receiver that is done leaves, with nothing on its way.
        scope.spawn(|| send_all(sender, &bells[0], 1, 99));
    });
}

#[test]
fn a_busy_receiver_is_not_woken_and_a_sleeping_one_once() {
    let switch = Switch::new(SwitchConfig::default());
    let bell = Arc::new(Bell::default());
    let mut sender = switch.port("sender", Arc::new(NeverSleeps)).unwrap();
    let mut receiver = switch.port("receiver", bell.clone()).unwrap();
    let rung = || bell.count.load(Ordering::Relaxed);
    let mut frame = Frame::new();
    let send = |sender: &mut Port| sender.transmit(&mut frame_of(&ethernet(mac(1), mac(2), b"")), 0);
    // The sender learns where the receiver is: floods are announced at once.
    receiver.transmit(&mut frame_of(&ethernet(mac(2), mac(1), b"")), 0);
    assert!(sender.receive(&mut frame, 0));
    for _ in 0..10 {
        send(&mut sender);
    }
    sender.wake_receivers();
    assert_eq!(rung(), 0);
    assert!(!receiver.before_sleep(), "frames wait");
    assert!((0..10).all(|_| receiver.receive(&mut frame, 0)));
    assert!(receiver.before_sleep());
    for _ in 0..10 {
        send(&mut sender);
    }
    assert_eq!(rung(), 0, "more may follow");
    sender.wake_receivers();
    assert_eq!(rung(), 1);
    assert!(receiver.receive(&mut frame, 0));
    send(&mut sender);
    sender.wake_receivers();
    assert_eq!(rung(), 1);
}

#[test]
fn a_long_burst_wakes_its_receiver_while_it_lasts_and_a_sender_that_sleeps_or_has_no_room_wakes_it_too() {
    let switch = Switch::new(SwitchConfig { ring_frames: 128, ..SwitchConfig::default() });
    let bell = Arc::new(Bell::default());
    let mut sender = switch.port("sender", Arc::new(NeverSleeps)).unwrap();
    let mut receiver = switch.port("receiver", bell.clone()).unwrap();
    let mut frame = Frame::new();
    // The sender learns where the receiver is, so that it floods no more.
    receiver.transmit(&mut frame_of(&ethernet(mac(2), mac(1), b"")), 0);
    assert!(sender.receive(&mut frame, 0));
    let mut burst = |frames: usize, then: fn(&mut Port)| {
        while receiver.receive(&mut frame, 0) {}
        assert!(receiver.before_sleep());
        let before = bell.count.load(Ordering::Relaxed);
        for _ in 0..frames {
            sender.transmit(&mut frame_of(&ethernet(mac(1), mac(2), b"")), 0);
        }
        then(&mut sender);
        bell.count.load(Ordering::Relaxed) - before
    };
    assert_eq!(burst(1, |_| ()), 0);
    assert_eq!(burst(100, |_| ()), 1);
    assert_eq!(burst(1, |sender| assert!(sender.before_sleep())), 1);
    let small = Switch::new(SwitchConfig { ring_frames: 2, ..SwitchConfig::default() });
    let mut sender = small.port("sender", Arc::new(NeverSleeps)).unwrap();
    let mut receiver = small.port("receiver", bell.clone()).unwrap();
    receiver.transmit(&mut frame_of(&ethernet(mac(2), mac(1), b"")), 0);
    assert!(sender.receive(&mut frame, 0) && receiver.before_sleep());
    let before = bell.count.load(Ordering::Relaxed);
    while sender.room() > 0 {
        sender.transmit(&mut frame_of(&ethernet(mac(1), mac(2), b"")), 0);
    }
    assert_eq!(bell.count.load(Ordering::Relaxed) - before, 1);
}

#[test]
fn a_sender_that_waits_for_room_learns_that_the_port_has_left() {
    let switch = Switch::new(SwitchConfig { ring_frames: 2, ..SwitchConfig::default() });
    let bell = Arc::new(Bell::default());
    let mut sender = switch.port("sender", bell.clone()).unwrap();
    let receiver = switch.port("receiver", Arc::new(NeverSleeps)).unwrap();
    while sender.room() > 0 {
        sender.transmit(&mut frame_of(&ethernet(mac(1), mac(2), b"")), 0);
    }
    assert!(sender.before_sleep());
    thread::scope(|scope| {
        scope.spawn(move || drop(receiver));
        bell.sleep();
    });
    assert!(sender.room() > 0);
    assert_eq!(sender.statistics().dropped(DropReason::PortLeft), 2);
}

#[test]
fn ports_join_and_leave_while_others_are_busy() {
    let switch = Switch::new(SwitchConfig { ring_frames: 4, ..SwitchConfig::default() });
    let bells: [Arc<Bell>; 2] = Default::default();
    let sender = switch.port("sender", bells[1].clone()).unwrap();
    let mut receiver = switch.port("receiver", bells[0].clone()).unwrap();
    receiver.transmit(&mut frame_of(&ethernet(mac(9), BROADCAST, b"here")), 0);
    thread::scope(|scope| {
        let sending = scope.spawn(|| send_all(sender, &bells[1], 1, 9));
        let visitor = scope.spawn(|| {
            for visit in 0..if cfg!(miri) { 3 } else { 300 } {
                let port = switch.port(&format!("visitor{visit}"), Arc::new(NeverSleeps)).unwrap();
                thread::yield_now();
                drop(port);
            }
        });
        let receiver = receive_all(receiver, &bells[0], &[1]);
        visitor.join().unwrap();
        // The address stays learned all the while, so nothing was flooded to a visitor.
        assert_eq!(sending.join().unwrap().statistics().drops, [0; DropReason::ALL.len()]);
        drop(receiver);
    });
}
