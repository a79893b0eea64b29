//! Any bytes as traffic through a switch of four ports, and any text as a fault script.
//!
//! The invariant of the first: a frame goes where a model of the switch says, unchanged and in order, or is a drop that
//! is counted; and at the end all counts add up.

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::planted::with_planted;
use crate::search;
use crate::{
    Displacement, DropReason, FaultScript, Forwarded, Impairment, PortStatistics, Probability, RateLimit, Reorder,
};

const PORTS: usize = 4;
const RING_FRAMES: usize = 4;

/// What the body knows of a switch without ageing: where each address was seen last, and what is on its way.
#[derive(Default)]
struct Model {
    seen_at: BTreeMap<Vec<u8>, usize>,
    on_the_way: [[VecDeque<Vec<u8>>; PORTS]; PORTS],
    /// Frames given so far.
    given: u32,
}

impl Model {
    /// The ports a frame is for, found from its bytes by offsets of its own.
    fn destinations(&mut self, from: usize, frame: &[u8]) -> Vec<usize> {
        let mut at = 12;
        for _ in 0..2 {
            if matches!(frame.get(at..at + 2), Some([0x81, 0x00] | [0x88, 0xa8])) {
                at += 4;
            }
        }
        let addresses = match (frame.get(at..at + 2), frame.get(at + 2..).unwrap_or_default()) {
            (Some([0x08, 0x00]), ip) if ip.len() >= 20 && (0x45..=0x4f).contains(&ip[0]) => {
                Some((&ip[12..16], &ip[16..20]))
            }
            (Some([0x86, 0xdd]), ip) if ip.len() >= 40 && ip[0] >> 4 == 6 => Some((&ip[8..24], &ip[24..40])),
            _ => None,
        };
        let key = |address: &[u8]| match address {
            [a, b, c, d] => [&[0; 10][..], &[0xff, 0xff, *a, *b, *c, *d]].concat(),
            other => other.to_vec(),
        };
        let sources = [Some(frame[6..12].to_vec()), addresses.map(|(source, _)| key(source))];
        for source in sources.into_iter().flatten().filter(|source| has_one_owner(source)) {
            self.seen_at.insert(source, from);
        }
        let destination = addresses.map_or_else(|| frame[..6].to_vec(), |(_, destination)| key(destination));
        match self.seen_at.get(&destination) {
            Some(&port) if frame[0] & 1 == 0 => vec![port],
            _ => (0..PORTS).filter(|&port| port != from).collect(),
        }
    }
}

/// Whether a MAC address, or an IP address of 16 bytes, can be that of one station.
fn has_one_owner(address: &[u8]) -> bool {
    if address.len() == 6 {
        return address[0] & 1 == 0 && address.iter().any(|&byte| byte != 0);
    }
    match address.strip_prefix(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]) {
        Some(ipv4) => !(ipv4 == [0; 4] || ipv4 == [0xff; 4] || ipv4[0] == 127 || (224..240).contains(&ipv4[0])),
        None => address[0] != 0xff && (address[..15].iter().any(|&byte| byte != 0) || address[15] > 1),
    }
}

/// Commands of a byte and what it needs, until the bytes end.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken.to_vec()
    }

    /// A frame: raw bytes, or one between stations of a small set, tagged or not.
    fn frame(&mut self) -> Option<Vec<u8>> {
        let kind = self.byte()?;
        let (source, destination) = (self.byte()? % 8, self.byte()? % 8);
        let macs = (mac(source), if kind & 0x40 == 0 { mac(destination) } else { BROADCAST });
        let ip6 = |station: u8| Ipv6Addr::from(0xfd00_u128 << 112 | u128::from(station));
        let mut frame = match kind & 3 {
            0 => {
                let length = usize::from(self.byte()?);
                self.bytes(length)
            }
            1 => ethernet(macs.0, macs.1, &[]),
            2 => ipv4(macs.0, macs.1, [10, 0, 0, source], [10, 0, 0, destination]),
            _ => ipv6(macs.0, macs.1, ip6(source), ip6(destination)),
        };
        if kind & 0x80 != 0 && frame.len() >= 14 {
            frame = tagged(&frame);
        }
        let tail = usize::from(kind >> 2 & 7);
        frame.extend(self.bytes(tail));
        Some(frame)
    }
}

/// Traffic with nothing impaired, against the model.
fn switch_frames(bytes: &[u8]) -> Result<(), TestCaseError> {
    let (_, mut ports) = switch_with(SwitchConfig { ring_frames: RING_FRAMES, ..SwitchConfig::default() }, PORTS);
    let mut model = Model::default();
    let mut script = Script(bytes);
    while let Some(command) = script.byte() {
        let port = usize::from(command & 3);
        match command >> 2 & 7 {
            0 => while take(&mut ports, port, &mut model)? {},
            1 => {
                take(&mut ports, port, &mut model)?;
            }
            _ => {
                let Some(mut frame) = script.frame() else { break };
                // No two alike: `take` tells by its bytes which way a frame has come.
                if frame.len() >= 14 {
                    frame.extend(model.given.to_be_bytes());
                    model.given += 1;
                }
                give(&mut ports, port, &frame, &mut model)?;
            }
        }
    }
    for port in 0..PORTS {
        while take(&mut ports, port, &mut model)? {}
    }
    prop_assert!(model.on_the_way.iter().flatten().all(VecDeque::is_empty), "frames were swallowed");
    conserved(&ports)
}

fn give(ports: &mut [Port], from: usize, bytes: &[u8], model: &mut Model) -> Result<(), TestCaseError> {
    let room = ports[from].room();
    let fullest = (0..PORTS).filter(|&to| to != from).map(|to| model.on_the_way[from][to].len()).max().unwrap_or(0);
    prop_assert!(room <= RING_FRAMES - fullest, "room for {room} beside {fullest}");
    prop_assert!(room > 0 || fullest == RING_FRAMES, "no room beside {fullest}");
    let forwarded = ports[from].transmit(&mut frame_of(bytes), 0);
    if bytes.len() < 14 {
        prop_assert_eq!(forwarded, Forwarded::Dropped(DropReason::Runt));
        return Ok(());
    }
    let destinations = model.destinations(from, bytes);
    let fits = |to: &usize| model.on_the_way[from][*to].len() < RING_FRAMES;
    let reached: Vec<usize> = destinations.iter().copied().filter(fits).collect();
    let expected = match destinations[..] {
        [only] if only == from => Forwarded::Dropped(DropReason::Hairpin),
        [_] if reached.is_empty() => Forwarded::Dropped(DropReason::NoRoom),
        [only] => Forwarded::Unicast { port: only as u8 },
        _ => Forwarded::Flooded { copies: reached.len() },
    };
    prop_assert_eq!(forwarded, expected);
    for to in reached.into_iter().filter(|&to| to != from) {
        model.on_the_way[from][to].push_back(bytes.to_vec());
    }
    Ok(())
}

fn take(ports: &mut [Port], to: usize, model: &mut Model) -> Result<bool, TestCaseError> {
    let mut frame = Frame::new();
    if !ports[to].receive(&mut frame, 0) {
        let waiting = model.on_the_way.iter().map(|ways| ways[to].len()).sum::<usize>();
        prop_assert_eq!(waiting, 0, "p{} has nothing", to);
        return Ok(false);
    }
    let expected = model.on_the_way.iter_mut().find(|ways| ways[to].front().is_some_and(|next| next == frame.bytes()));
    prop_assert!(expected.is_some(), "p{} got {:02x?}, which is not next from anywhere", to, frame.bytes());
    expected.map(|ways| ways[to].pop_front());
    Ok(true)
}

/// Every copy was received, is held, or was dropped with a reason.
fn conserved(ports: &[Port]) -> Result<(), TestCaseError> {
    let statistics: Vec<PortStatistics> = ports.iter().map(Port::statistics).collect();
    let sum = |count: fn(&PortStatistics) -> u64| statistics.iter().map(count).sum::<u64>();
    prop_assert_eq!(sum(|port| port.forwarded_frames), sum(|port| port.arrived_frames));
    for (port, port_statistics) in ports.iter().zip(&statistics) {
        let egress_drops: u64 = [DropReason::QueueFull, DropReason::Loss, DropReason::Fault]
            .map(|reason| port_statistics.dropped(reason))
            .iter()
            .sum();
        let came = port_statistics.arrived_frames + port_statistics.duplicated_frames;
        prop_assert_eq!(came, port_statistics.received_frames + egress_drops + port.held_frames() as u64);
        let ingress_drops: u64 = [DropReason::Runt, DropReason::Hairpin, DropReason::NoRoom, DropReason::NoOtherPort]
            .map(|reason| port_statistics.dropped(reason))
            .iter()
            .sum();
        let unicast = port_statistics.transmitted_frames - port_statistics.flooded_frames;
        let copies = unicast + port_statistics.flooded_frames * (PORTS as u64 - 1);
        prop_assert_eq!(copies, port_statistics.forwarded_frames + ingress_drops);
    }
    Ok(())
}

/// Traffic through impaired ports: only the counts can be foretold.
fn impaired_frames(bytes: &[u8]) -> Result<(), TestCaseError> {
    let (_, mut ports) = switch_with(SwitchConfig { ring_frames: RING_FRAMES, ..SwitchConfig::default() }, PORTS);
    let mut script = Script(bytes);
    let chance =
        |byte: Option<u8>| Probability::from_fraction(f64::from(byte.unwrap_or(0)) / 255.0).unwrap_or_default();
    for port in &mut ports {
        let by = Displacement::Frames { count: 2, timeout_ns: 50 };
        port.set_impairment(Impairment {
            seed: u64::from(script.byte().unwrap_or(0)),
            loss: chance(script.byte().map(|byte| byte & 0x7f)),
            duplication: chance(script.byte()),
            corruption: chance(script.byte()),
            reorder: Some(Reorder { probability: chance(script.byte()), by }),
            delay_ns: u64::from(script.byte().unwrap_or(0)),
            rate_limit: script.byte().filter(|byte| byte & 1 == 1).map(|byte| RateLimit {
                bits_per_second: u64::from(byte) << 24,
                queue_bytes: 500,
                marking: None,
            }),
            held_frames_max: 8,
        });
        port.set_fault_script("drop:any:2,duplicate:any:3,corrupt:any:4".parse().unwrap_or_default());
    }
    let mut now_ns = 0;
    let mut frame = Frame::new();
    while let Some(command) = script.byte() {
        let port = &mut ports[usize::from(command & 3)];
        now_ns += u64::from(command);
        match command >> 2 & 3 {
            0 => while port.receive(&mut frame, now_ns) {},
            1 => {
                port.transmit(&mut roce(Opcode::RC_SEND_ONLY, now_ns as u32 & 0xff, b"data"), now_ns);
            }
            _ => {
                let Some(bytes) = script.frame() else { break };
                port.transmit(&mut frame_of(&bytes), now_ns);
            }
        }
    }
    for port in &mut ports {
        // Each step lets go of what is held, so there are at most as many steps as frames.
        for _ in 0..1_000 {
            while port.receive(&mut frame, now_ns) {}
            let Some(due_ns) = port.next_release_ns() else { break };
            now_ns = now_ns.max(due_ns);
        }
        prop_assert_eq!(port.held_frames(), 0, "held for ever");
    }
    conserved(&ports)
}

/// A text that is taken is shown in a form that means the same.
fn fault_script_text(bytes: &[u8]) -> Result<(), TestCaseError> {
    let text = String::from_utf8_lossy(bytes);
    let Ok(mut script) = text.parse::<FaultScript>() else { return Ok(()) };
    prop_assert_eq!(script.to_string().parse::<FaultScript>().ok(), Some(script.clone()));
    let queue_pairs = |text: &str| text.matches('@').count();
    prop_assert_eq!(queue_pairs(&script.to_string()), queue_pairs(&text));
    script.probe(roce(Opcode::RC_SEND_ONLY, 1, b"").bytes());
    script.probe(bytes);
    Ok(())
}

fn any_traffic() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..300)
}

fn nearly_a_script() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        8 => "(drop|corrupt|duplicate|mark)(:(request|response|ack|cnp|any))?:(psn:)?[0-9]{1,8}(-[0-9]{1,3})?(@(0x)?[0-9a-f]{1,6})?",
        1 => "[a-z:@,0-9 -]{0,12}",
        1 => "\\PC{0,8}",
    ];
    proptest::collection::vec(word, 0..4).prop_map(|words| words.join(",").into_bytes())
}

fn check(name: &str, strategy: &impl Strategy<Value = Vec<u8>>, body: fn(&[u8]) -> Result<(), TestCaseError>) {
    search::finds_nothing(env!("CARGO_MANIFEST_DIR"), name, strategy, body);
}

#[test]
fn searching_switch_frames_finds_nothing() {
    check("switch_frames", &any_traffic(), switch_frames);
}

#[test]
fn searching_switch_frames_finds_a_swallowed_frame() {
    with_planted("unicast_swallowed", || search::finds("unicast_swallowed", &any_traffic(), switch_frames));
}

#[test]
fn searching_impaired_frames_finds_nothing() {
    check("impaired_frames", &any_traffic(), impaired_frames);
}

#[test]
fn searching_impaired_frames_finds_a_duplicate_that_is_not_counted() {
    with_planted("duplicate_uncounted", || search::finds("duplicate_uncounted", &any_traffic(), impaired_frames));
}

#[test]
fn searching_fault_scripts_finds_nothing() {
    check("fault_script_text", &nearly_a_script(), fault_script_text);
}

#[test]
fn searching_fault_scripts_finds_a_forgotten_queue_pair() {
    let bug = "fault_script_forgets_qp";
    with_planted(bug, || search::finds(bug, &nearly_a_script(), fault_script_text));
}
