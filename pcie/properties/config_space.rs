//! Accesses of any size and offset against a table of what software may write, written down from the datasheet of
//! each register and not from the code.

use super::Input;
use crate::config_space::{CONFIG_BYTES, ConfigDescription, ConfigSpace};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

/// Registers with writable bits: offset, mask.
const WRITABLE: &[(usize, u32)] = &[
    (0x04, 0x0000_0546),
    (0x0c, 0x0000_00ff),
    (0x10, 0xffff_0000),
    (0x14, 0xffff_ffff),
    (0x18, 0xffc0_0000),
    (0x1c, 0xffff_ffff),
    (0x20, 0xffff_0000),
    (0x24, 0xffff_ffff),
    (0x3c, 0x0000_00ff),
    (0x44, 0x0000_0003),
    (0x48, 0xc000_0000),
    (0x68, 0x0000_79ff),
    (0x70, 0x0000_00cb),
    (0x88, 0x0000_001f),
    (0x90, 0x0000_000f),
    (0x108, 0x007f_f030),
    (0x10c, 0x007f_f030),
    (0x114, 0x0000_f1c1),
];

pub(super) fn body(bytes: &[u8]) -> Result<(), TestCaseError> {
    let mut input = Input(bytes);
    let mut space = ConfigSpace::new(&ConfigDescription::rnic([2, 0, 0, 0, 0, 1], 8, 4 << 20));
    let mut model = everything(&space);
    let initial = model;
    let mut mask = [0u8; CONFIG_BYTES];
    for &(at, bits) in WRITABLE {
        mask[at..at + 4].copy_from_slice(&bits.to_le_bytes());
    }
    while !input.is_empty() {
        let kind = input.byte();
        // Mostly where there is something; sometimes anywhere, past the end too.
        let offset = match kind & 3 {
            0 => usize::from(input.byte()),
            1 => WRITABLE[usize::from(input.byte()) % WRITABLE.len()].0,
            2 => usize::from(input.word() % 0x200),
            _ => usize::from(input.word()),
        };
        let data = input.take(usize::from(kind >> 2) % 9);
        if kind == 0xff {
            space.reset();
            model = initial;
            continue;
        }
        let bus_master = space.bus_master();
        let effects = space.write(offset as u64, data);
        for (at, &value) in (offset..CONFIG_BYTES).zip(data) {
            let mut bits = mask[at];
            // D1 and D2 cannot be entered.
            if at == 0x44 && matches!(value & 3, 1 | 2) {
                bits = 0;
            }
            model[at] = (model[at] & !bits) | (value & bits);
        }
        prop_assert_eq!(&everything(&space)[..0x180], &model[..0x180]);
        prop_assert_eq!(effects.bus_master_changed, (bus_master != space.bus_master()).then_some(!bus_master));
        let asked = |(at, &value): (usize, &u8)| at == 0x69 && value & 0x80 != 0;
        prop_assert_eq!(effects.flr, (offset..).zip(data).any(asked));
        let link = space.link_settings();
        prop_assert_eq!(link, link.legalised());
        prop_assert!(link.mps_bytes <= 512);
    }
    prop_assert!(everything(&space) == model);
    Ok(())
}

fn everything(space: &ConfigSpace) -> [u8; CONFIG_BYTES] {
    let mut bytes = [0; CONFIG_BYTES];
    space.read(0, &mut bytes);
    bytes
}
