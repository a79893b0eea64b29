//! One WRITE through two engines over model host memory, from the post to the completion, and each engine's part of it:
//! `cargo bench -p rnic-measure --bench engine`.
//!
//! The parts are timed over batches, so that the clock costs nothing. An inline WRITE has no source to check and
//! gather; one that comes in its doorbell has no WQE to fetch: the differences are what those stages cost.

#[path = "../../engine/tests/rig/mod.rs"]
mod rig;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use rig::{Fabric, Request};
use rnic_abi::{WorkOpcode, doorbell};
use rnic_engine::EngineConfig;
use rnic_wire::Frame;
use std::time::{Duration, Instant};

/// Path MTU of 4096 bytes, as the interface has it.
const MTU: u8 = 5;
/// Messages of a batch: their WQEs, packets and completions fit into the rings.
const BATCH: usize = 16;

/// Where WQEs go that come in their doorbells, in turn.
const LINES: [u32; 2] = [doorbell::DB_SEND_WQE_0, doorbell::DB_SEND_WQE_1];

/// How a WRITE is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Posted {
    /// Its source named by an element.
    Element(u32),
    /// Its bytes in the WQE.
    Inline,
    /// The WQE in its doorbell.
    InDoorbell,
}

impl Posted {
    fn request(self) -> Request {
        let length = if let Self::Element(length) = self { length } else { 16 };
        let inline = (!matches!(self, Self::Element(_))).then(|| vec![7; 16]);
        Request { inline, ..Request::new(WorkOpcode::WRITE, length) }
    }
}

/// What an engine does in the course of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The requester takes a doorbell, and fetches the WQE unless it came with it.
    Doorbell,
    /// The requester checks the key, gathers, builds the packet.
    Transmit,
    /// The responder parses, checks, scatters.
    Receive,
    /// The responder builds the acknowledgement, one for the batch.
    Acknowledge,
    /// The requester takes the acknowledgement, and writes the completions.
    Complete,
}

const PARTS: [(Part, &str); 5] = [
    (Part::Doorbell, "doorbell"),
    (Part::Transmit, "transmit"),
    (Part::Receive, "receive"),
    (Part::Acknowledge, "acknowledge"),
    (Part::Complete, "complete"),
];

struct Bench {
    fabric: Fabric,
    frames: Vec<Frame>,
    acknowledgement: Frame,
}

impl Bench {
    fn new() -> Self {
        let fabric = Fabric::new(EngineConfig::default(), MTU);
        Self { fabric, frames: (0..BATCH).map(|_| Frame::new()).collect(), acknowledgement: Frame::new() }
    }

    /// A batch of messages; the time of one part of it, or of all.
    fn batch(&mut self, posted: Posted, request: &Request, timed: Option<Part>) -> Duration {
        let mut time = Duration::ZERO;
        let mut clock = |part: Part, work: &mut dyn FnMut()| {
            let start = Instant::now();
            work();
            if timed.is_none_or(|timed| timed == part) {
                time += start.elapsed();
            }
        };
        let Self { fabric: Fabric { a, b, .. }, frames, acknowledgement } = self;
        let mut lines = Vec::with_capacity(BATCH);
        let first = a.of(a.qpn).send;
        for _ in 0..BATCH {
            lines.push(a.post(request));
        }
        clock(Part::Doorbell, &mut || {
            for (at, line) in lines.iter().enumerate() {
                match posted {
                    Posted::InDoorbell => a.write(2, LINES[at % LINES.len()].into(), line),
                    _ => {
                        let producer = first.wrapping_add((at + 1) as u16);
                        a.ring(doorbell::DB_SEND, doorbell::queue_doorbell(a.qpn, producer));
                    }
                }
            }
        });
        clock(Part::Transmit, &mut || {
            for frame in frames.iter_mut() {
                assert!(a.engine.poll_transmit(a.now_ns, &mut a.port, frame), "a packet a message");
            }
        });
        clock(Part::Receive, &mut || {
            for frame in frames.iter_mut() {
                b.engine.handle_frame(b.now_ns, &mut b.port, frame);
            }
        });
        clock(Part::Acknowledge, &mut || {
            assert!(b.engine.poll_transmit(b.now_ns, &mut b.port, acknowledgement), "an acknowledgement");
        });
        clock(Part::Complete, &mut || a.engine.handle_frame(a.now_ns, &mut a.port, acknowledgement));
        let completed = std::iter::from_fn(|| a.poll()).filter(|cqe| cqe.status == 0).count();
        assert_eq!(completed, BATCH, "every message completes");
        self.fabric.clear_logs();
        time
    }
}

fn engine(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("engine");
    group.throughput(criterion::Throughput::Elements(1));
    let mut bench = Bench::new();
    let ways = [
        ("64", Posted::Element(64)),
        ("4096", Posted::Element(4096)),
        ("16 inline", Posted::Inline),
        ("16 inline in the doorbell", Posted::InDoorbell),
    ];
    let all = [(None, "WRITE")].into_iter();
    let parts: Vec<_> = all.chain(PARTS.map(|(part, name)| (Some(part), name))).collect();
    for (way, posted) in ways {
        let request = posted.request();
        for (part, name) in &parts {
            group.bench_function(BenchmarkId::new(*name, way), |bencher| {
                bencher.iter_custom(|messages| {
                    let batches = messages.div_ceil(BATCH as u64);
                    let time: Duration = (0..batches).map(|_| bench.batch(posted, &request, *part)).sum();
                    // Of as many messages as were asked for.
                    time.mul_f64(messages as f64 / (batches * BATCH as u64) as f64)
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, engine);
criterion_main!(benches);
