//! Finding the device in a listing like the kernel's, physical addresses, and BAR accesses in a file that plays one.

use super::*;

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("rnic-guest-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn the_device_is_found_by_its_numbers_in_the_order_of_addresses() {
    let devices = folder("find");
    for (address, vendor, device) in [
        ("0000:02:00.0", "0x1234", "0x12b7"),
        ("0000:01:00.0", "0x1234", "0x12b7"),
        ("0000:00:01.0", "0x1234", "0x1111"),
        ("0000:00:02.0", "garbage", "0x12b7"),
    ] {
        let place = devices.join(address);
        std::fs::create_dir_all(&place).unwrap();
        std::fs::write(place.join("vendor"), format!("{vendor}\n")).unwrap();
        std::fs::write(place.join("device"), format!("{device}\n")).unwrap();
    }
    assert_eq!(find_device(&devices, 0).unwrap(), devices.join("0000:01:00.0"));
    assert_eq!(find_device(&devices, 1).unwrap(), devices.join("0000:02:00.0"));
    let error = find_device(&devices, 2).unwrap_err().to_string();
    assert!(error.starts_with("no device 1234:12b7 as number 2 of 2 in "), "{error}");
    std::fs::remove_dir_all(&devices).unwrap();
    assert!(matches!(find_device(&devices, 0), Err(BackingError::Io { .. })));
}

#[test]
fn a_page_without_a_frame_number_has_no_address() {
    assert_eq!(huge_pages::physical_of_entry(1 << 63 | 0x12_3456), Some(0x1_2345_6000));
    assert_eq!(huge_pages::physical_of_entry(1 << 63), None, "no privilege");
    assert_eq!(huge_pages::physical_of_entry(0x12_3456), None, "not present");
    assert_eq!(huge_pages::physical_of_entry(1 << 63 | 1 << 55 | 1 << 61 | 1), Some(4096), "flags are no address");
}

#[test]
fn bar_accesses_are_bounded_and_aligned() {
    let path = folder("bar").join("resource2");
    std::fs::write(&path, [0u8; 4096]).unwrap();
    let mmio = Mmio::map(2, &open_file(&path).unwrap()).unwrap();
    let line: [u8; 64] = std::array::from_fn(|index| index as u8);
    mmio.write_line(0x440, &line).unwrap();
    mmio.write64(0x10, 0x0102_0304_0506_0708).unwrap();
    mmio.write32(0xffc, 0xaabb_ccdd).unwrap();
    assert_eq!(mmio.read32(0x10).unwrap(), 0x0506_0708);
    assert_eq!(mmio.read64(0x440).unwrap(), 0x0706_0504_0302_0100);
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(bytes[0x440..0x480], line);
    assert_eq!(bytes[0xffc..], [0xdd, 0xcc, 0xbb, 0xaa]);
    for wrong in [mmio.write64(0x14, 0), mmio.write64(0xffc, 0), mmio.write32(0x1000, 0), mmio.write_line(0x420, &line)]
    {
        assert!(matches!(wrong, Err(BackingError::BarAccess { bar: 2, .. })));
    }
    assert!(matches!(mmio.read64(u64::MAX - 7), Err(BackingError::BarAccess { .. })));
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
}
