//! A client that asks and does not read.

use super::super::message::{Command, RegionAccess};
use super::super::output::OUTPUT_BOUND_BYTES;
use super::rig::{Rig, message};
use zerocopy::IntoBytes;

#[test]
fn reading_stops_at_the_bound_and_resumes_in_order() {
    let mut rig = Rig::negotiated();
    let count = 256 << 10;
    let total = 200u16;
    for id in 0..total {
        let access = RegionAccess { offset: 0, region: 2, count };
        rig.send(&message(id, Command::REGION_READ, 0, access.as_bytes()));
    }
    while rig.server.on_readable(&mut rig.device, 64).unwrap().served > 0 {}
    assert!(!rig.server.wants_read() && rig.server.wants_write() && !rig.server.has_work());
    let served = rig.device.take().len();
    assert!(served < total as usize / 2, "{served} requests were served against a client that does not read");
    assert!(rig.server.memory_bytes() < 2 * OUTPUT_BOUND_BYTES + (1 << 20), "{}", rig.server.memory_bytes());

    let mut ids = vec![];
    while ids.len() < total as usize {
        ids.extend(rig.seen().iter().map(|reply| {
            assert_eq!(reply.body.len(), 16 + count as usize);
            reply.header.message_id
        }));
        if rig.server.on_writable(&mut rig.device).unwrap().more {
            rig.server.on_readable(&mut rig.device, 64).unwrap();
        }
    }
    assert_eq!(ids, (0..total).collect::<Vec<_>>());
    assert!(rig.server.wants_read() && !rig.server.wants_write());
}
