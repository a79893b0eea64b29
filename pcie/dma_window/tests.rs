use super::*;
use crate::Iova;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

const PAGE: u64 = 0x1000;

fn region(pages: u64) -> Arc<GuestRegion> {
    Arc::new(GuestRegion::anonymous((pages * PAGE) as usize).unwrap())
}

fn mapped(region: &Arc<GuestRegion>, offset: u64) -> Backing {
    Backing::Mapped { region: Arc::clone(region), offset }
}

fn range(iova: u64, length_bytes: u32) -> DmaRange {
    DmaRange::new(Iova(iova), length_bytes)
}

#[test]
fn a_transfer_spans_maps_whatever_their_order_in_memory() {
    let region = region(4);
    let mut window = DmaWindow::default();
    // Three pages in DMA space, backwards in memory.
    for page in 0..3 {
        window.map(page * PAGE, PAGE, Permissions::READ_WRITE, mapped(&region, (3 - page) * PAGE)).unwrap();
    }
    let data: Vec<u8> = (0..PAGE as usize + 200).map(|byte| byte as u8).collect();
    window.write_mapped(PAGE - 100, &data).unwrap();
    let mut back = vec![0; data.len()];
    window.read_mapped(PAGE - 100, &mut back).unwrap();
    assert_eq!(back, data);
    let mut in_memory = [0; 100];
    guest_copy::read(&region.slice(4 * PAGE - 100, 100).unwrap(), &mut in_memory);
    assert_eq!(in_memory, data[..100]);
    assert_eq!(window.reach(range(PAGE - 100, PAGE as u32 + 200), Access::Read), Ok(Reach::Mapped));
    assert_eq!(window.reach(range(2 * PAGE, PAGE as u32 + 1), Access::Read), Err(DmaFault::UnsupportedRequest));
}

#[test]
fn read_only_maps_and_memory_are_honoured() {
    let mut window = DmaWindow::default();
    window.map(0, PAGE, Permissions::READ_ONLY, mapped(&region(1), 0)).unwrap();
    assert_eq!(window.reach(range(0, 1), Access::Write), Err(DmaFault::UnsupportedRequest));
    assert_eq!(window.write_mapped(0, &[1]), Err(DmaFault::UnsupportedRequest));
    assert_eq!(window.reach(range(0, 1), Access::Read), Ok(Reach::Mapped));
}

#[test]
fn maps_that_cannot_be_are_refused() {
    let mut window = DmaWindow::default();
    let region = region(1);
    let mut map = |iova, length, offset| {
        window.map(iova, length, Permissions::READ_WRITE, mapped(&region, offset)).map_err(|e| format!("{e:?}"))
    };
    assert!(map(0, 0, 0).unwrap_err().contains("Empty"));
    assert!(map(u64::MAX, 2, 0).unwrap_err().contains("BeyondAddressSpace"));
    assert!(map(0, PAGE, 1).unwrap_err().contains("BeyondRegion"));
    assert!(map(0, PAGE, u64::MAX).unwrap_err().contains("BeyondRegion"));
    map(0x8000, PAGE, 0).unwrap();
    for (iova, length) in [(0x8000, 1), (0x8fff, 1), (0x7fff, 2), (0, u64::MAX)] {
        assert!(map(iova, length, 0).unwrap_err().contains("Overlap"), "{iova:#x} {length:#x}");
    }
    map(0x9000, PAGE, 0).unwrap();
    map(0x7000, PAGE, 0).unwrap();
}

#[test]
fn sweeps_remove_what_they_contain() {
    let mut window = DmaWindow::default();
    let all = |window: &mut DmaWindow| {
        for iova in [0, 0x10_0000, 1 << 32, u64::MAX - (PAGE - 1)] {
            window.map(iova, PAGE, Permissions::READ_WRITE, Backing::Message).unwrap();
        }
    };
    all(&mut window);
    assert_eq!(window.unmap(0x800, PAGE), 0, "a part is not a whole");
    assert_eq!(window.unmap(0x5000, 0), 0);
    // As a client does that switches its IOMMU off: powers of two over the whole space.
    let mut removed = window.unmap(0, 1 << 12);
    for order in 12..64 {
        removed += window.unmap(1 << order, 1 << order);
    }
    assert_eq!((removed, window.map_count()), (4, 0));
    all(&mut window);
    assert_eq!(window.unmap(0, u64::MAX), 3, "2^64 - 1 bytes are one too few for the last page");
    assert_eq!((window.unmap_all(), window.map_count()), (1, 0));
    assert_eq!(window.reach(range(0, 1), Access::Read), Err(DmaFault::UnsupportedRequest));
}

#[test]
fn the_whole_address_space_is_one_map_too() {
    let mut window = DmaWindow::default();
    window.map(0, u64::MAX, Permissions::READ_WRITE, Backing::Message).unwrap();
    window.map(u64::MAX, 1, Permissions::READ_WRITE, Backing::Message).unwrap();
    assert_eq!(window.reach(range(u64::MAX - 9, 10), Access::Write), Ok(Reach::Message));
    assert_eq!(window.reach(range(u64::MAX - 9, 11), Access::Write), Err(DmaFault::UnsupportedRequest));
}

#[test]
fn neighbouring_message_maps_are_one_stretch() {
    let mut window = DmaWindow::default();
    window.map(0, PAGE, Permissions::READ_WRITE, Backing::Message).unwrap();
    window.map(PAGE, PAGE, Permissions::READ_WRITE, Backing::Message).unwrap();
    window.map(2 * PAGE, PAGE, Permissions::READ_WRITE, mapped(&region(1), 0)).unwrap();
    assert_eq!(window.piece(0x10, 3 * PAGE - 0x10, Access::Read).unwrap().length_bytes(), 2 * PAGE - 0x10);
    assert_eq!(window.reach(range(0x10, 3 * PAGE as u32 - 0x10), Access::Read), Ok(Reach::Message));
    let mut byte = [0; 2];
    assert_eq!(window.read_mapped(2 * PAGE - 1, &mut byte), Err(DmaFault::UnsupportedRequest));
}

#[test]
fn a_map_a_page_of_one_file_is_one_mapping() {
    let fd = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&fd, 64 * PAGE).unwrap();
    let file = File::from(fd);
    let mut window = DmaWindow::default();
    for page in 0..64 {
        let descriptor = file.try_clone().unwrap();
        window.map_file(page * PAGE, PAGE, Permissions::READ_WRITE, descriptor, page * PAGE).unwrap();
    }
    assert_eq!((window.map_count(), window.file_count()), (64, 1));
    window.write_mapped(0, &vec![0x5a; 64 * PAGE as usize]).unwrap();
    window.unmap_all();
    assert_eq!(window.file_count(), 0);
}

#[test]
fn the_number_of_maps_is_bounded() {
    let mut window = DmaWindow::default();
    for page in 0..MAX_MAPS as u64 {
        window.map(page * PAGE, PAGE, Permissions::READ_WRITE, Backing::Message).unwrap();
    }
    let one_more = window.map(u64::MAX, 1, Permissions::READ_WRITE, Backing::Message);
    assert!(matches!(one_more, Err(MapError::TooManyMaps)));
}

/// The client makes the file of a map shorter: the copy that meets it is a fault, like all that come after, until the memory is
/// mapped anew.
#[test]
fn memory_that_goes_away_is_a_fault_and_the_other_maps_stay() {
    let memfd = || File::from(memfd_create("guest", MemfdFlags::CLOEXEC).unwrap());
    for writes in [false, true] {
        let (file, other) = (memfd(), memfd());
        ftruncate(&file, 2 * PAGE).unwrap();
        ftruncate(&other, PAGE).unwrap();
        let mut window = DmaWindow::default();
        let rights = Permissions::READ_WRITE;
        window.map_file(0, 2 * PAGE, rights, file.try_clone().unwrap(), 0).unwrap();
        window.map_file(2 * PAGE, PAGE, rights, other, 0).unwrap();
        ftruncate(&file, 0).unwrap();
        let copy = |window: &DmaWindow, iova| {
            if writes { window.write_mapped(iova, &[7; 8]) } else { window.read_mapped(iova, &mut [0; 8]) }
        };
        assert_eq!(copy(&window, PAGE), Err(DmaFault::UnsupportedRequest), "the copy that meets it");
        assert_eq!(copy(&window, 0), Err(DmaFault::UnsupportedRequest), "all of the file");
        assert_eq!(copy(&window, 2 * PAGE), Ok(()));
        assert_eq!(window.unmap(0, 2 * PAGE), 1);
        ftruncate(&file, 2 * PAGE).unwrap();
        window.map_file(0, 2 * PAGE, rights, file, 0).unwrap();
        assert_eq!(copy(&window, PAGE), Ok(()));
    }
}
