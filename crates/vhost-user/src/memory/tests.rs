use std::os::fd::AsFd;

use peer::SharedMem;
use proptest::prelude::*;

use super::*;

fn fd(file: &SharedMem) -> OwnedFd {
    file.as_fd().try_clone_to_owned().expect("a descriptor")
}

fn region(guest: u64, size: u64, user: u64, mmap_offset: u64) -> MemRegion {
    MemRegion {
        guest,
        size,
        user,
        mmap_offset,
    }
}

fn read(memory: &GuestMemory, guest: u64) -> Option<u8> {
    let mut byte = [0];
    let view = memory.memory.view();
    view.read(guest, &mut byte).ok().map(|()| byte[0])
}

#[test]
fn a_user_address_is_found_where_one_region_holds_all_of_it() {
    let file = SharedMem::new("ram", 0x4000).expect("a memfd");
    let mut memory = GuestMemory::new(Memory::new());
    memory
        .add(&region(0x1000, 0x1000, 0x7f00_0000, 0), &fd(&file))
        .expect("added");
    memory
        .add(&region(0x8000, 0x2000, 0x7f00_1000, 0x1800), &fd(&file))
        .expect("added, at an offset that is no page");
    assert_eq!(memory.guest_of(0x7f00_0000, 0x1000), Some(0x1000));
    assert_eq!(memory.guest_of(0x7f00_0fff, 1), Some(0x1fff));
    assert_eq!(memory.guest_of(0x7f00_0fff, 2), None, "two regions");
    assert_eq!(memory.guest_of(0x7f00_2fff, 1), Some(0x9fff));
    assert_eq!(memory.guest_of(0x7f00_3000, 1), None);
    assert_eq!(memory.guest_of(0x7eff_ffff, 1), None);
    assert_eq!(memory.guest_of(0x7f00_0000, 0), None);
    assert_eq!(memory.guest_of(u64::MAX, u64::MAX), None);
    file.write(0x1800 + 5, &[42]);
    assert_eq!(read(&memory, 0x8005), Some(42));
}

#[test]
fn what_lies_is_refused() {
    let file = SharedMem::new("ram", 0x4000).expect("a memfd");
    let mut memory = GuestMemory::new(Memory::new());
    let first = region(0x1000, 0x1000, 0x10_0000, 0);
    memory.add(&first, &fd(&file)).expect("added");
    let mut refused = |at: MemRegion| {
        memory
            .add(&at, &fd(&file))
            .expect_err("refused")
            .to_string()
    };
    for wraps in [
        region(0x2000, 0, 0, 0),
        region(u64::MAX, 2, 0, 0),
        region(0, 0x1000, u64::MAX, 0),
        region(0, 0x1000, 0, u64::MAX),
    ] {
        assert!(refused(wraps).contains("beyond 2^64"), "{wraps:?}");
    }
    for overlaps in [
        first,
        region(0x1fff, 1, 0, 0),
        region(0, 0x1001, 0x20_0000, 0),
        region(0x9000, 0x10, 0x10_0fff, 0),
    ] {
        assert!(refused(overlaps).contains("share"), "{overlaps:?}");
    }
    assert!(refused(region(0x9000, 0x1000, 0x20_0000, 0x3001)).contains("share=on"));
    let disk = std::fs::File::open("/proc/self/maps").expect("open").into();
    let error = memory.add(&region(0x9000, 1, 0x20_0000, 0), &disk);
    let error = error.expect_err("no memory").to_string();
    assert!(error.contains("memfd, tmpfs or hugetlbfs"), "{error}");
    let unknown = memory.remove(&region(0x1000, 0x1000, 0x10_0001, 0));
    assert!(matches!(unknown, Err(MemoryError::Unknown)));
    memory
        .remove(&region(0x1000, 0x1000, 0x10_0000, 77))
        .expect("its offset is not looked at");
    assert_eq!(read(&memory, 0x1000), None);
}

#[test]
fn a_new_table_leaves_what_stays_alone() {
    let (one, two) = (
        SharedMem::new("one", 0x4000).expect("a memfd"),
        SharedMem::new("two", 0x4000).expect("a memfd"),
    );
    one.fill(0, 0x4000, 1);
    two.fill(0, 0x4000, 2);
    let mut memory = GuestMemory::new(Memory::new());
    let (a, b) = (
        region(0, 0x1000, 0x10_0000, 0),
        region(0x1000, 0x1000, 0x20_0000, 0),
    );
    let mut left = 0;
    let mut replace = |memory: &mut GuestMemory, regions: &[MemRegion], files: &[&SharedMem]| {
        let fds: Vec<_> = files.iter().map(|file| fd(file)).collect();
        memory.replace(regions, &fds, &mut |_| left += 1)
    };
    replace(&mut memory, &[a, b], &[&one, &one]).expect("taken");
    // A view of what stays is no hindrance: nothing is unmapped.
    replace(&mut memory, &[b, a], &[&one, &one]).expect("the same, in another order");
    // Another file at the same place.
    replace(&mut memory, &[a, b], &[&one, &two]).expect("taken");
    assert_eq!(
        (read(&memory, 0), read(&memory, 0x1000)),
        (Some(1), Some(2))
    );
    replace(&mut memory, &[a], &[&one]).expect("taken");
    assert_eq!((read(&memory, 0), read(&memory, 0x1000)), (Some(1), None));
    let error = replace(&mut memory, &[a, a], &[&one, &one]).expect_err("twice the same");
    assert!(matches!(error, MemoryError::Overlap));
    assert_eq!(read(&memory, 0), Some(1), "nothing has changed");
    replace(&mut memory, &[], &[]).expect("nothing");
    assert_eq!((left, memory.regions().count()), (3, 0));
}

#[test]
fn no_more_regions_than_slots() {
    let file = SharedMem::new("ram", 0x1000).expect("a memfd");
    let mut memory = GuestMemory::new(Memory::new());
    for n in 0..MAX_SLOTS as u64 {
        let at = region(n << 20, 0x1000, n << 20, 0);
        memory.add(&at, &fd(&file)).expect("added");
    }
    let more = memory.add(&region(1 << 60, 1, 1 << 60, 0), &fd(&file));
    assert!(matches!(more, Err(MemoryError::TooMany)));
}

proptest! {
    /// Whatever the regions, a translation is that of the one region that holds it.
    #[test]
    fn a_translation_stays_inside_its_region(
        regions in prop::collection::vec((0..64u64, 1..8u64, 0..64u64), 0..12),
        user in 0..72u64, len in 0..10u64,
    ) {
        let file = SharedMem::new("ram", 0x1_0000).expect("a memfd");
        let mut memory = GuestMemory::new(Memory::new());
        let mut taken = Vec::new();
        for (guest, size, user) in regions {
            let at = region(guest * 0x100, size * 0x100, user * 0x100, 0);
            if memory.add(&at, &fd(&file)).is_ok() {
                taken.push(at);
            }
        }
        let (user, len) = (user * 0x100, len * 0x80);
        let wanted = taken.iter().find(|r| len > 0 && r.user <= user && user + len <= r.user + r.size);
        prop_assert_eq!(memory.guest_of(user, len), wanted.map(|r| r.guest + (user - r.user)));
    }
}
