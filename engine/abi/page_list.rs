//! One description of memory for regions, rings and tables.

use zerocopy::little_endian::{U16, U32, U64};

structure! {
    /// `levels` 0: a contiguous run that starts at `root`. 1: `root` is a contiguous list of 8-byte page addresses.
    /// 2: `root` is a contiguous list of the addresses of 4096-byte lists of 512 page addresses each.
    /// Pages are of `1 << page_shift` bytes, 12 to 30, and aligned to their size; lists are aligned to 64 bytes
    /// (level 1) or 4096 (level 2's inner lists). A list stays valid and unchanged until what it describes is gone.
    PageListFields, 16 {
        root: U64,
        page_shift: u8,
        levels: u8,
        reserved0: U16,
        reserved1: U32,
    }
}
