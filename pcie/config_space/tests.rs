use super::*;

const MAC: [u8; 6] = [0x02, 0x00, 0x5e, 0x10, 0x20, 0x30];
const DEVICE_CONTROL: u64 = 0x68;
const LINK_CONTROL: u64 = 0x70;

fn space() -> ConfigSpace {
    ConfigSpace::new(&ConfigDescription::rnic(MAC, 32, 4 << 20))
}

fn read<const N: usize>(space: &ConfigSpace, offset: u64) -> [u8; N] {
    let mut bytes = [0; N];
    space.read(offset, &mut bytes);
    bytes
}

fn dword(space: &ConfigSpace, offset: u64) -> u32 {
    u32::from_le_bytes(read(space, offset))
}

#[test]
fn the_header() {
    let space = space();
    assert_eq!(dword(&space, 0x00), 0x12b7_1234);
    assert_eq!(dword(&space, 0x08), 0x0207_0001);
    assert_eq!(read(&space, 0x0e), [0]);
    assert_eq!(dword(&space, 0x2c), 0x12b7_1234);
    assert_eq!(read(&space, 0x3d), [0], "no INTx");
    let two = ConfigSpace::new(&ConfigDescription { multifunction: true, ..ConfigDescription::rnic(MAC, 1, 0) });
    assert_eq!(read(&two, 0x0e), [0x80]);
}

#[test]
fn bars_show_their_size() {
    let mut space = space();
    for (bar, size, kind) in [(0u64, 0x1_0000u64, 0x4), (2, 4 << 20, 0xc), (4, 0x1_0000, 0x4)] {
        let at = 0x10 + 4 * bar;
        assert_eq!(dword(&space, at), kind);
        let effects = space.write(at, &[0xff; 8]);
        assert!(effects.bars_changed);
        let mask = u64::from_le_bytes(read(&space, at));
        assert_eq!((!(mask & !0xf)).wrapping_add(1), size);
        assert_eq!(mask & 0xf, u64::from(kind));
        space.write(at, &0x38_1234_0000_u64.to_le_bytes());
        assert_eq!(space.bar_address(bar as u8), Some(0x38_1234_0000 & !(size - 1)));
    }
    assert_eq!((space.bar_address(1), space.bar_address(6)), (None, None));
    assert_eq!(dword(&space, 0x30), 0, "no expansion ROM");
}

/// The list of capabilities as software walks it.
fn capabilities(space: &ConfigSpace) -> Vec<(u8, u8)> {
    let mut found = Vec::new();
    let [mut at] = read(space, 0x34);
    while at != 0 && found.len() < 48 {
        let [id, next] = read(space, u64::from(at));
        found.push((id, at));
        at = next;
    }
    found
}

fn extended_capabilities(space: &ConfigSpace) -> Vec<(u32, u32)> {
    let mut found = Vec::new();
    let mut at = 0x100;
    while at != 0 && found.len() < 48 {
        let header = dword(space, u64::from(at));
        found.push((header & 0xffff, at));
        at = header >> 20;
    }
    found
}

#[test]
fn capabilities_are_linked() {
    let space = space();
    assert_eq!(capabilities(&space), [(0x01, 0x40), (0x11, 0x48), (0x10, 0x60)]);
    assert_eq!(extended_capabilities(&space), [(0x0001, 0x100), (0x0003, 0x150)]);
    // The serial number reads as the EUI-64, most significant byte last.
    assert_eq!(read(&space, 0x154), [0x30, 0x20, 0x10, 0xfe, 0xff, 0x5e, 0x00, 0x02]);
}

#[test]
fn vendor_capabilities_follow_as_long_as_they_fit() {
    let fits = vec![16, 1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0];
    let mut description = ConfigDescription::rnic(MAC, 1, 0);
    let capability = |body: Vec<u8>, writable: &[u8]| VendorCapability { body, writable: writable.to_vec() };
    description.vendor_capabilities =
        vec![capability(fits.clone(), &[0, 0, 0x0f]), capability(fits, &[]), capability(vec![0; 200], &[])];
    let mut space = ConfigSpace::new(&description);
    assert_eq!(capabilities(&space)[3..], [(0x09, 0x9c), (0x09, 0xac)]);
    assert_eq!(read(&space, 0x9e), [16, 1, 4]);
    space.write(0x9e, &[0xff; 4]);
    assert_eq!(read(&space, 0x9e), [16, 1, 0x0f, 0], "only what is said to be writable");
}

#[test]
fn link_settings_follow_their_registers() {
    let mut space = space();
    assert_eq!(space.link_settings(), LinkSettings::AFTER_RESET);
    let effects = space.write(DEVICE_CONTROL, &0x2830u16.to_le_bytes());
    let model = LinkSettings::MODEL_HOST;
    assert_eq!(effects.link_changed, Some(model));
    let effects = space.write(LINK_CONTROL, &[1 << 3]);
    assert_eq!(effects.link_changed, Some(LinkSettings { rcb_bytes: 128, ..model }));
    // Codes beyond what is supported.
    space.write(DEVICE_CONTROL, &0x70e0u16.to_le_bytes());
    assert_eq!((space.link_settings().mps_bytes, space.link_settings().mrrs_bytes), (512, 4096));
    assert_eq!(dword(&space, 0x6c) & 0x3ff, 16 << 4 | 3, "Link Capabilities: x16, 8 GT/s");
    assert_eq!(dword(&space, 0x70) >> 16 & 0x3ff, 16 << 4 | 3, "Link Status");
    assert_eq!(dword(&space, 0x8c), 0b1110, "Link Capabilities 2: up to 8 GT/s");
}

#[test]
fn the_command_register() {
    let mut space = space();
    let effects = space.write(0x04, &[0x06]);
    assert_eq!((effects.bus_master_changed, effects.memory_enable_changed), (Some(true), Some(true)));
    assert!(effects.bars_changed && space.bus_master() && space.memory_enabled());
    assert_eq!(space.write(0x04, &[0x06]), ConfigEffects::default(), "no change, no effect");
    assert_eq!(space.write(0x04, &[0x02]).bus_master_changed, Some(false));
    space.write(0x04, &[0xff; 4]);
    assert_eq!(dword(&space, 0x04), 0x0010_0546);
}

#[test]
fn msix_and_power() {
    let mut space = space();
    assert_eq!(dword(&space, 0x48) >> 16, 31);
    assert_eq!((dword(&space, 0x4c), dword(&space, 0x50)), (4, 0x8004));
    let effects = space.write(0x4a, &0xc000u16.to_le_bytes());
    assert_eq!(effects.msix_changed, Some(MsixControl { enabled: true, function_masked: true }));
    assert_eq!(space.write(0x44, &[3]).power, Some(PowerState::D3Hot));
    assert_eq!(space.write(0x44, &[1]).power, None, "there is no D1");
    assert_eq!(space.power_state(), PowerState::D3Hot);
    assert_eq!(space.write(0x44, &[0]).power, Some(PowerState::D0));
    assert_eq!(read(&space, 0x44), [8], "no soft reset");
}

#[test]
fn a_function_level_reset_spares_the_link() {
    let mut space = space();
    space.write(0x04, &[0x06]);
    space.write(0x10, &[0xff; 8]);
    space.write(LINK_CONTROL, &[1 << 3]);
    let effects = space.write(DEVICE_CONTROL, &0xd830u16.to_le_bytes());
    assert!(effects.flr);
    assert_eq!(read(&space, DEVICE_CONTROL), 0x5830u16.to_le_bytes(), "the reset bit reads as zero");
    space.function_level_reset();
    assert!(!space.bus_master() && space.bar_address(0) == Some(0));
    assert_eq!(space.link_settings(), LinkSettings { rcb_bytes: 128, ..LinkSettings::MODEL_HOST });
    space.reset();
    assert_eq!(space.link_settings(), LinkSettings::AFTER_RESET);
}

#[test]
fn accesses_past_the_end() {
    let mut space = space();
    for offset in [4095, 4096, u64::MAX - 3, u64::MAX] {
        space.write(offset, &[0xff; 8]);
        assert_eq!(read::<8>(&space, offset)[1..], [0xff; 7]);
    }
}
