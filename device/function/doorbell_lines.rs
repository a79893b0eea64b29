//! Where the doorbell pages have 64-byte lines.

use rnic_abi::doorbell::*;
use rnic_pcie::write_combine::LineOffsets;

pub(super) fn offsets() -> LineOffsets {
    let lines = [DB_SEND_LINE_0, DB_SEND_LINE_1, DB_SEND_WQE_0, DB_SEND_WQE_1].map(|offset| offset as u16);
    LineOffsets::new(DOORBELL_PAGE_BYTES.into(), &lines)
}
