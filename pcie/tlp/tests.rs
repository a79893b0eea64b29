use super::list::{self, Tlp, TlpKind};
use super::*;
use crate::Iova;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// 64-bit address space above 4 GiB, where the published rows live.
const HIGH: u64 = 0x1_0000_0000;
const MODEL: LinkSettings = LinkSettings::MODEL_HOST;

fn range(address: u64, length_bytes: u32) -> DmaRange {
    DmaRange::new(Iova(address), length_bytes)
}

/// (address, bytes) of each packet.
fn pieces_of(tlps: impl Iterator<Item = Tlp>) -> Vec<(u64, u32)> {
    tlps.map(|tlp| (tlp.address, tlp.bytes)).collect()
}

#[test]
fn known_answers_of_the_rules() {
    assert_eq!(pieces_of(list::writes(MODEL, 0xfc0, 128)), [(0xfc0, 64), (0x1000, 64)]);

    let request = list::reads(MODEL, 0x1010, 256).next().unwrap();
    let finest: Vec<Tlp> = list::completions(MODEL, request, CompletionPolicy::EachBoundary).collect();
    assert_eq!(finest.iter().map(|c| c.bytes).collect::<Vec<_>>(), [48, 64, 64, 64, 16]);
    assert_eq!(finest.iter().map(|c| c.lower_address()).collect::<Vec<_>>(), [0x10, 0x40, 0, 0x40, 0]);
    assert_eq!(finest.iter().map(|c| c.byte_count).collect::<Vec<_>>(), [256, 208, 144, 80, 16]);
    assert_eq!(list::completions(MODEL, request, CompletionPolicy::Coarse).count(), 1);

    let unaligned = list::writes(MODEL, 0x1001, 6).next().unwrap();
    assert_eq!((unaligned.length_dw(), unaligned.first_be(), unaligned.last_be()), (2, 0b1110, 0b0111));

    let reads = pieces_of(list::reads(MODEL, 0x800, 4096));
    assert_eq!(reads.len(), 8);
    assert!(reads.iter().all(|&(address, bytes)| bytes == 512 && address & 0xfff <= 0x1000 - 512));

    assert_eq!(pieces_of(list::writes(MODEL, 0, 257)), [(0, 256), (256, 1)]);
}

#[test]
fn a_packet_of_one_dw_has_no_last_byte_enables() {
    let one = list::writes(MODEL, 0x1002, 1).next().unwrap();
    assert_eq!((one.length_dw(), one.first_be(), one.last_be()), (1, 0b0100, 0));
}

#[test]
fn unaligned_payloads_are_limited_in_whole_dws() {
    // 256 bytes from address 1 touch 65 DWs, one more than an MPS of 256 allows.
    assert_eq!(pieces_of(list::writes(MODEL, 1, 256)), [(1, 255), (256, 1)]);
    assert_eq!(Splitter::new(MODEL).device_write(range(1, 256)).tlps.mwr, 2);
}

#[test]
fn header_size_follows_the_address_of_each_request() {
    let splitter = Splitter::new(MODEL);
    assert_eq!(splitter.device_write(range(0x1000, 64)).wire_bytes.up, 64 + 20);
    assert_eq!(splitter.device_write(range(HIGH, 64)).wire_bytes.up, 64 + 24);
    assert_eq!(splitter.device_read(range(0x1000, 64)).wire_bytes, WireBytes { up: 20, down: 84 });
    assert_eq!(splitter.device_read(range(HIGH, 64)).wire_bytes, WireBytes { up: 24, down: 84 });
    assert_eq!(splitter.device_write(range(HIGH - 64, 128)).wire_bytes.up, 128 + 20 + 24);
    assert_eq!(splitter.host_write(0xfe00_0000, 8).wire_bytes, WireBytes { down: 28, up: 0 });
    assert_eq!(splitter.host_read(0xfe00_0000, 8).wire_bytes, WireBytes { down: 20, up: 28 });
}

#[test]
fn a_transfer_of_no_bytes_is_no_packet() {
    let splitter = Splitter::new(MODEL);
    assert_eq!(splitter.device_write(range(HIGH, 0)), Traffic::default());
    assert_eq!(splitter.device_read(range(HIGH, 0)), Traffic::default());
}

#[test]
fn published_bandwidths() {
    let splitter = Splitter::new(MODEL);
    let write = |bytes: u32| splitter.device_write(range(HIGH, bytes)).wire_bytes.up as f64;
    let read_down = |bytes: u32| splitter.device_read(range(HIGH, bytes)).wire_bytes.down as f64;
    let both_up = |bytes: u32| write(bytes) + splitter.device_read(range(HIGH, bytes)).wire_bytes.up as f64;
    let rate = |tlp_rate: f64, bytes: u32, wire: f64| tlp_rate * f64::from(bytes) / wire;
    for (tlp_rate, wr64, wr256, rd64, rd256) in [
        (57.885, 42.098, 52.923, 44.103, 53.690),
        (113.700, 82.691, 103.954, 86.629, 105.461),
        (227.400, 165.382, 207.909, 173.257, 210.922),
    ] {
        assert_near(rate(tlp_rate, 64, write(64)), wr64);
        assert_near(rate(tlp_rate, 256, write(256)), wr256);
        assert_near(rate(tlp_rate, 64, read_down(64)), rd64);
        assert_near(rate(tlp_rate, 256, read_down(256)), rd256);
    }
    let gen3_x8 = 57.885;
    for (bytes, gbit) in [
        (4, 8.269),
        (8, 14.471),
        (32, 33.077),
        (65, 42.275),
        (128, 48.745),
        (257, 48.775),
        (512, 52.923),
        (1500, 52.815),
    ] {
        assert_near(rate(gen3_x8, bytes, write(bytes)), gbit);
    }
    for (bytes, gbit) in [(128, 50.063), (257, 50.089)] {
        assert_near(rate(gen3_x8, bytes, read_down(bytes)), gbit);
    }
    for (bytes, gbit) in [(64, 33.077), (256, 48.745), (512, 50.748), (4096, 50.748)] {
        assert_near(rate(gen3_x8, bytes, both_up(bytes)), gbit);
    }
}

fn assert_near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 0.002, "found {found:.4}, expected {expected}");
}

/// One operation's transfers on the link, for the golden rows.
fn total(parts: &[Traffic]) -> (u64, u64) {
    let mut sum = Traffic::default();
    parts.iter().for_each(|&part| sum += part);
    (sum.wire_bytes.down, sum.wire_bytes.up)
}

#[test]
fn golden_rows_per_verb() {
    let splitter = Splitter::new(MODEL);
    let doorbell = splitter.host_write(HIGH, 8);
    let line = splitter.host_write(HIGH, 64);
    let wqe = splitter.device_read(range(HIGH, 64));
    let recv_wqe = splitter.device_read(range(HIGH, 16));
    let cqe = splitter.device_write(range(HIGH, 64));
    // length; WRITE by doorbell; WRITE by line; READ by doorbell; responder's WRITE up; READ; SEND
    type Row = (u32, (u64, u64), (u64, u64), (u64, u64), u64, (u64, u64), (u64, u64));
    let rows: [Row; 6] = [
        (0, (116, 112), (88, 88), (116, 112), 0, (0, 0), (36, 112)),
        (8, (144, 136), (116, 112), (116, 144), 32, (28, 24), (36, 144)),
        (64, (200, 136), (172, 112), (116, 200), 88, (84, 24), (36, 200)),
        (256, (392, 136), (364, 112), (116, 392), 280, (276, 24), (36, 392)),
        (1024, (1220, 160), (1192, 136), (116, 1232), 1120, (1104, 48), (36, 1232)),
        (4096, (4532, 304), (4504, 280), (116, 4592), 4480, (4416, 192), (36, 4592)),
    ];
    for (length, write, write_line, read, responder_write, responder_read, responder_send) in rows {
        let gather = splitter.device_read(range(HIGH, length));
        let scatter = splitter.device_write(range(HIGH, length));
        assert_eq!(total(&[doorbell, wqe, gather, cqe]), write, "WRITE, {length}");
        assert_eq!(total(&[line, gather, cqe]), write_line, "WRITE by line, {length}");
        assert_eq!(total(&[doorbell, wqe, scatter, cqe]), read, "READ, {length}");
        assert_eq!(total(&[scatter]), (0, responder_write), "responder WRITE, {length}");
        assert_eq!(total(&[gather]), responder_read, "responder READ, {length}");
        assert_eq!(total(&[recv_wqe, scatter, cqe]), responder_send, "responder SEND, {length}");
    }
    assert_eq!(total(&[line, cqe]), (88, 88), "inline WRITE of one line");
    assert_eq!(total(&[line, line, cqe]), (176, 88), "inline WRITE of two lines");
}

#[test]
fn the_finest_completions_of_4096_bytes() {
    let finest = Splitter::with_policy(MODEL, CompletionPolicy::EachBoundary).device_read(range(HIGH, 4096));
    assert_eq!((finest.tlps.cpld, finest.wire_bytes.down), (64, 5376));
    let coarse = Splitter::new(MODEL).device_read(range(HIGH, 4096));
    assert_eq!((coarse.tlps.cpld, coarse.wire_bytes.down), (16, 4416));
}

#[test]
fn settings_are_legalised() {
    let odd = LinkSettings { generation: 0, width: 0, mps_bytes: 0, mrrs_bytes: 300, rcb_bytes: 7 };
    let expected = LinkSettings { generation: 1, width: 1, mps_bytes: 128, mrrs_bytes: 256, rcb_bytes: 64 };
    assert_eq!(odd.legalised(), expected);
    assert_eq!(MODEL.legalised(), MODEL);
}

#[test]
fn transfers_at_the_end_of_the_address_space() {
    let splitter = Splitter::new(MODEL);
    for address in [u64::MAX, u64::MAX - 3, u64::MAX - 4095, u64::MAX - 5000] {
        let found = splitter.device_read(range(address, u32::MAX));
        assert_eq!(found.tlps.mrd as usize, list::reads(MODEL, address, u32::MAX).count());
    }
    assert_eq!(splitter.device_write(range(0, u32::MAX)).tlps.mwr, 1 << 24);
}

/// Cuts a transfer by looking at every byte: no division, no knowledge of the closed form.
fn cut_requests(address: u64, length: u32, limit: u64) -> Vec<(u64, u64)> {
    let mut cuts: Vec<(u64, u64)> = Vec::new();
    for byte in address..address + u64::from(length) {
        match cuts.last_mut() {
            Some((start, end)) if byte % 4096 != 0 && (byte | 3) + 1 - (*start & !3) <= limit => *end = byte + 1,
            _ => cuts.push((byte, byte + 1)),
        }
    }
    cuts
}

/// The same for completions: when the next byte does not fit, fall back to the last boundary passed.
fn cut_completions(start: u64, end: u64, settings: LinkSettings) -> Vec<(u64, u64)> {
    let mut cuts = Vec::new();
    let mut piece_start = start;
    let mut last_boundary = None;
    for byte in start..end {
        if byte > piece_start && byte % u64::from(settings.rcb_bytes) == 0 {
            last_boundary = Some(byte);
        }
        if (byte | 3) + 1 - (piece_start & !3) > u64::from(settings.mps_bytes) {
            let cut = last_boundary.expect("MPS is at least a boundary's distance");
            cuts.push((piece_start, cut));
            piece_start = cut;
            last_boundary = (byte > cut && byte % u64::from(settings.rcb_bytes) == 0).then_some(byte);
        }
    }
    cuts.push((piece_start, end));
    cuts
}

#[test]
fn closed_form_list_and_bytewise_splitter_agree() {
    let strategy = (
        prop_oneof![0u64..0x3000, HIGH - 0x2000..HIGH + 0x2000, 0x7_0000_0000u64..0x7_0000_2000],
        prop_oneof![1u32..64, 1u32..1024, 1u32..20_000],
        (7u32..=12, 7u32..=12, 6u32..=7),
    );
    let mut runner = TestRunner::new(Config { cases: 10_000, failure_persistence: None, ..Config::default() });
    runner
        .run(&strategy, |(address, length, (mps, mrrs, rcb))| {
            let settings = LinkSettings { mps_bytes: 1 << mps, mrrs_bytes: 1 << mrrs, rcb_bytes: 1 << rcb, ..MODEL };
            compare(settings, address, length)
        })
        .unwrap();
}

fn compare(settings: LinkSettings, address: u64, length: u32) -> Result<(), TestCaseError> {
    let splitter = Splitter::new(settings);
    let overhead = |start: u64| if start < HIGH { 20 } else { 24 };

    let writes = cut_requests(address, length, u64::from(settings.mps_bytes));
    let found = splitter.device_write(range(address, length));
    let expected: u64 = writes.iter().map(|&(start, end)| end - start + overhead(start)).sum();
    prop_assert_eq!((u64::from(found.tlps.mwr), found.wire_bytes.up), (writes.len() as u64, expected));
    prop_assert!(
        list::writes(settings, address, length).map(|t| (t.address, t.address + u64::from(t.bytes))).eq(writes)
    );

    let reads = cut_requests(address, length, u64::from(settings.mrrs_bytes));
    let completions: Vec<_> = reads.iter().flat_map(|&(start, end)| cut_completions(start, end, settings)).collect();
    let found = splitter.device_read(range(address, length));
    prop_assert_eq!(found.tlps, Tlps { mrd: reads.len() as u32, mwr: 0, cpld: completions.len() as u32 });
    prop_assert_eq!(found.wire_bytes.up, reads.iter().map(|&(start, _)| overhead(start)).sum::<u64>());
    prop_assert_eq!(found.wire_bytes.down, u64::from(length) + 20 * completions.len() as u64);
    let listed = list::reads(settings, address, length)
        .flat_map(|request| list::completions(settings, request, CompletionPolicy::Coarse));
    prop_assert!(listed.map(|t| (t.address, t.address + u64::from(t.bytes))).eq(completions));

    let finest = Splitter::with_policy(settings, CompletionPolicy::EachBoundary).device_read(range(address, length));
    let listed: Vec<Tlp> = list::reads(settings, address, length)
        .flat_map(|request| list::completions(settings, request, CompletionPolicy::EachBoundary))
        .collect();
    prop_assert!(listed.iter().all(|tlp| tlp.kind == TlpKind::CplD));
    prop_assert_eq!(finest.tlps.cpld as usize, listed.len());
    prop_assert_eq!(finest.wire_bytes.down, listed.iter().map(|tlp| u64::from(tlp.wire_bytes())).sum::<u64>());
    Ok(())
}
