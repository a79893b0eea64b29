//! Pages of an adapter's objects, copied in its thread.

use crate::adapter::Adapter;
use crate::management::protocol::{ObjectKind, Page};
use crate::management::reports::objects::{ObjectRows, ObjectsReport};

/// Objects of one reply: fewer than other entries, since they are larger.
const MAX_OBJECTS: usize = 512;

pub fn page_of(adapter: &mut Adapter, kind: ObjectKind, page: Page) -> ObjectsReport {
    let engine = &adapter.function.engine;
    let from = u32::try_from(page.from).unwrap_or(u32::MAX);
    // One more than is given tells whether there are more.
    let limit = page.limit().min(MAX_OBJECTS);
    macro_rules! page_of {
        ($views:expr, $number:ident, $rows:path) => {{
            let mut views = $views;
            let next = views.get(limit).map(|view| u64::from(view.$number));
            views.truncate(limit);
            ($rows(views.into_iter().map(Into::into).collect()), next)
        }};
    }
    let (objects, next) = match kind {
        ObjectKind::QueuePairs => {
            page_of!(engine.inspect_queue_pairs(from, limit + 1), qpn, ObjectRows::QueuePairs)
        }
        ObjectKind::CompletionQueues => {
            page_of!(engine.inspect_completion_queues(from, limit + 1), cqn, ObjectRows::CompletionQueues)
        }
        ObjectKind::EventQueues => {
            page_of!(engine.inspect_event_queues(from, limit + 1), eqn, ObjectRows::EventQueues)
        }
        ObjectKind::SharedReceiveQueues => {
            let views = engine.inspect_shared_receive_queues(from, limit + 1);
            page_of!(views, srqn, ObjectRows::SharedReceiveQueues)
        }
        ObjectKind::Keys => page_of!(engine.inspect_keys(from, limit + 1), index, ObjectRows::Keys),
    };
    ObjectsReport { adapter: adapter.name.clone(), objects, next }
}
