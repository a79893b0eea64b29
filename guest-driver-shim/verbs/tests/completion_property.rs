//! Arbitrary completions: a device can lie, but every `wr_id` comes back at most once, in order, and nothing breaks.

use super::queues::Rig;
use crate::properties;
use crate::verbs::WorkCompletion;
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use rnic_abi::Cqe;
use zerocopy::FromBytes;

/// Each instruction is 8 bytes: what to post, then a completion made of the rest.
fn body(bytes: &[u8]) -> Result<(), TestCaseError> {
    let mut rig = Rig::new();
    let (mut posted, mut returned): (u64, [u64; 2]) = (1, [0; 2]);
    // What is outstanding: sends and receives with their ring indices.
    let mut outstanding: [Vec<(u16, u64)>; 2] = Default::default();
    let mut next_index = [0u16; 2];
    for instruction in bytes.chunks_exact(8).take(64) {
        let which = usize::from(instruction[0] & 1);
        if instruction[0] & 2 != 0 && outstanding[which].len() < 16 {
            if which == 0 {
                rig.send(posted)
            } else {
                rig.receive(posted)
            }
            outstanding[which].push((next_index[which], posted));
            next_index[which] += 1;
            posted += 1;
        }
        let mut raw = [0u8; 64];
        raw[4..12].copy_from_slice(instruction);
        let cqe = Cqe::read_from_bytes(&raw).unwrap();
        let which = usize::from(cqe.opcode >> 7);
        let at = outstanding[which].iter().position(|(index, _)| *index == cqe.wqe_index.get());
        // A receive queue completes in order; a send completion retires what stands before it.
        let valid = at.filter(|at| which == 0 || *at == 0);
        rig.complete(cqe);
        let mut one = [WorkCompletion::default()];
        match (rig.device.poll(rig.cqn, &mut one), valid) {
            (Ok(1), Some(at)) => {
                let wr_id = outstanding[which][at].1;
                prop_assert_eq!((one[0].wr_id, usize::from(one[0].retired)), (wr_id, at + 1));
                prop_assert!(wr_id > returned[which], "{wr_id} came after {}", returned[which]);
                returned[which] = wr_id;
                outstanding[which].drain(..=at);
            }
            (Err(_), None) => {
                // A receive out of order is reported; what it skipped is gone with it.
                if let Some(at) = at {
                    outstanding[which].drain(..=at);
                }
            }
            (outcome, valid) => prop_assert!(false, "{outcome:?} where {valid:?} was expected for {cqe:?}"),
        }
    }
    Ok(())
}

/// Indices near what is outstanding, mostly; opcodes of both sides.
fn instructions() -> impl Strategy<Value = Vec<u8>> {
    let index = prop_oneof![8 => 0..24u16, 1 => any::<u16>()];
    let opcode = prop_oneof![Just(1u8), Just(0x80), any::<u8>()];
    let one = (index, opcode, any::<u8>(), any::<u32>()).prop_map(|(index, opcode, status, rest)| {
        let [a, b] = index.to_le_bytes();
        let [c, d, e, f] = rest.to_le_bytes();
        [a, b, opcode, status, c, d, e, f]
    });
    proptest::collection::vec(one, 0..40).prop_map(|all| all.concat())
}

#[test]
fn completions_of_a_lying_device_return_each_request_at_most_once() {
    properties::run("completions", &instructions(), body);
}

#[test]
fn the_planted_bug_is_found() {
    properties::finds("ring-takes-the-oldest-entry", &instructions(), body);
}
