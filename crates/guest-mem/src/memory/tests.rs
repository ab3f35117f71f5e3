use proptest::prelude::*;

use super::*;
use crate::fault::{Fault, FaultKind};
use crate::work;
#[cfg(not(miri))]
use std::os::fd::AsFd;

fn kind(r: Result<(), Fault>) -> FaultKind {
    r.expect_err("must fault").kind
}

#[test]
fn reads_back_what_was_written_acrossregions() {
    let memory = Memory::new();
    memory.map_anon(0x1000, 0x1000).expect("map");
    memory.map_anon(0x2000, 0x1000).expect("map");
    let view = memory.view();
    let bytes: Vec<u8> = (0..=255).collect();
    view.write(0x1f80, &bytes).expect("write");
    let mut back = [0u8; 256];
    view.read(0x1f80, &mut back).expect("read");
    assert_eq!(back.to_vec(), bytes);
    let mut runs = Vec::new();
    view.read_slices(0x1f80, 256, &mut |s| runs.push(s.len()))
        .expect("slices");
    assert_eq!(runs, [0x80, 0x80]);
}

/// Each before all others, in both orders: no map or unmap moves what is there.
#[test]
fn as_many_regions_as_one_peer_may_have_are_added_and_removed_at_the_front() {
    let memory = Memory::new();
    let at = |n: usize| (crate::MAX_REGIONS - n) as u64 * 0x10;
    for n in 0..crate::MAX_REGIONS {
        memory.map_absent(at(n), 1, Prot::RW).expect("map");
    }
    let one_more = memory.map_absent(0, 1, Prot::RW);
    assert!(matches!(one_more, Err(MapError::TooMany)));
    for n in (0..crate::MAX_REGIONS).rev() {
        memory.unmap(at(n), 1).expect("unmap");
    }
    assert!(memory.regions().is_empty());
}

#[test]
fn an_access_spans_some_hundred_regions_and_no_more_and_costs_their_lookups() {
    let memory = Memory::new();
    for n in 0..=crate::MAX_RUNS as u64 {
        memory.map_anon(n, 1).expect("map");
    }
    let view = memory.view();
    work::take();
    let mut all = vec![0; crate::MAX_RUNS];
    view.read(0, &mut all).expect("so many");
    assert_eq!(work::take(), crate::MAX_RUNS as u64 / 4);
    all.push(0);
    assert_eq!(kind(view.read(0, &mut all)), FaultKind::Scattered);
    assert_eq!(work::take(), (crate::MAX_RUNS as u64 + 1) / 4);
    view.read(0, &mut [0; 3]).expect("three");
    assert_eq!(work::take(), 0);
}

#[test]
fn an_access_is_done_whole_or_not_at_all() {
    let memory = Memory::new();
    memory.map_anon(0x1000, 0x1000).expect("map");
    memory.map_absent(0x2000, 0x1000, Prot::RO).expect("map");
    let view = memory.view();
    assert_eq!(kind(view.write(0x1ff0, &[1; 32])), FaultKind::Protected);
    assert_eq!(kind(view.read(0x1ff0, &mut [1; 32])), FaultKind::NoFd);
    assert_eq!(kind(view.read(0xff0, &mut [1; 32])), FaultKind::Unmapped);
    assert_eq!(kind(view.read(u64::MAX, &mut [1; 2])), FaultKind::Wraps);
    let mut back = [9u8; 16];
    view.read(0x1ff0, &mut back).expect("read");
    assert_eq!(back, [0; 16]);
    drop(view);
    let mut seen = Vec::new();
    memory.counters(&mut |name, n| seen.push((name, n)));
    assert_eq!(seen, [("dma_faults", 4), ("dma_sigbus", 0)]);
}

#[test]
#[cfg(feature = "meter")]
fn the_meter_counts_what_passes_and_only_that() {
    let memory = Memory::new();
    memory.map_anon(0x1000, 0x1000).expect("map");
    memory.map_anon(0x2000, 0x1000).expect("map");
    let view = memory.view();
    memory.meter().record(true);
    view.write(0x1fff, &[1, 2]).expect("write");
    view.write(0x2fff, &[1, 2]).expect_err("beyond the end");
    view.read_slices(0x1ff0, 0x20, &mut |_| ()).expect("read");
    let want = crate::meter::Totals {
        reads: 1,
        read_bytes: 0x20,
        writes: 1,
        write_bytes: 2,
    };
    assert_eq!(memory.meter().totals(), want);
    let mut written = Vec::new();
    memory.meter().drain(&mut |access| written.push(access));
    assert_eq!(
        written,
        [crate::meter::Access {
            iova: 0x1fff,
            len: 2
        }]
    );
}

#[test]
fn words_are_those_of_one_region_that_can_be_read_and_written() {
    let memory = Memory::new();
    memory.map_anon(0x1000, 0x1000).expect("map");
    memory.map_anon(0x2000, 0x1000).expect("map");
    memory.map_absent(0x3000, 0x1000, Prot::RW).expect("map");
    let view = memory.view();
    let words = view.words(0x1100, 0x40).expect("inside");
    words.store(0x3c, 0x0102_0304, Ordering::Release);
    let mut back = [0; 4];
    view.read(0x113c, &mut back).expect("read");
    assert_eq!(back, [4, 3, 2, 1], "little-endian");
    view.write(0x1100, &[1, 0, 0, 0x80]).expect("write");
    assert_eq!(words.load(0, Ordering::Acquire), 0x8000_0001);
    words.set_bits(0, 0x0000_0100, Ordering::Release);
    words.set_bits(0, 0x0000_0001, Ordering::Release);
    assert_eq!(words.load(0, Ordering::Acquire), 0x8000_0101);
    for (iova, bytes) in [
        (0x1101, 4),
        (0x1ffc, 8),
        (0x3000, 4),
        (0x4000, 4),
        (0x1000, 6),
        (u64::MAX - 3, 4),
    ] {
        assert!(view.words(iova, bytes).is_none(), "{iova:#x}+{bytes}");
    }
    let panics = |offset| {
        let load = || words.load(offset, Ordering::Relaxed);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(load)).is_err()
    };
    assert!(panics(0x40) && panics(2) && !panics(0x3c));
}

#[test]
fn the_last_byte_of_the_address_space_can_be_mapped() {
    let memory = Memory::new();
    memory.map_anon(u64::MAX - 0xfff, 0x1000).expect("map");
    memory.view().write(u64::MAX, &[7]).expect("write");
    assert!(matches!(memory.map_anon(u64::MAX, 2), Err(MapError::Wraps)));
}

#[test]
fn overlaps_empty_ranges_and_inexact_unmaps_are_refused() {
    let memory = Memory::new();
    memory.map_anon(0x2000, 0x2000).expect("map");
    for (iova, len) in [
        (0x2000, 0x2000),
        (0x1000, 0x1001),
        (0x3fff, 1),
        (0x2800, 0x100),
    ] {
        assert!(
            matches!(memory.map_anon(iova, len), Err(MapError::Exists)),
            "{iova:#x}"
        );
    }
    assert!(matches!(memory.map_anon(0x9000, 0), Err(MapError::Wraps)));
    memory.map_anon(0x1000, 0x1000).expect("the gap before");
    memory.map_anon(0x4000, 0x1000).expect("the gap after");
    assert_eq!(
        memory.unmap(0x2000, 0x1000).err(),
        Some(UnmapError::NoSuchRegion)
    );
    assert_eq!(
        memory.unmap(0x2001, 0x1fff).err(),
        Some(UnmapError::NoSuchRegion)
    );
    memory.unmap(0x2000, 0x2000).expect("unmap");
    assert_eq!(memory.regions().len(), 2);
}

#[test]
fn a_range_takes_whole_regions_or_nothing() {
    let memory = Memory::new();
    for iova in [0x2000, 0x4000, 0x8000] {
        memory.map_anon(iova, 0x2000).expect("map");
    }
    let taken = |iova, len| {
        memory
            .unmap_range(iova, len)
            .map(|(_, bytes, regions)| (bytes, regions))
    };
    for (iova, len) in [(0, 0x2000), (0x6000, 0x2000), (0xa000, u64::MAX - 0xa000)] {
        assert_eq!(taken(iova, len), Ok((0, 0)), "nothing at {iova:#x}");
    }
    for (iova, len) in [(0x2001, 0x5000), (0, 0x2001), (0, 0x5fff), (0x9fff, 1)] {
        assert_eq!(taken(iova, len), Err(UnmapError::CutsRegion), "{iova:#x}");
    }
    for (iova, len) in [(0, 0), (2, u64::MAX)] {
        assert_eq!(taken(iova, len), Err(UnmapError::Wraps), "{iova:#x}");
    }
    assert_eq!(taken(0, 0x6000), Ok((0x4000, 2)));
    assert_eq!(memory.regions().len(), 1);
    assert_eq!(taken(0, u64::MAX), Ok((0x2000, 1)));
}

#[cfg(not(miri))]
fn memfd(len: u64) -> std::os::fd::OwnedFd {
    let fd = rustix::fs::memfd_create("t", rustix::fs::MemfdFlags::CLOEXEC).expect("memfd");
    rustix::fs::ftruncate(&fd, len).expect("truncate");
    fd
}

#[test]
#[cfg(not(miri))]
fn one_file_is_mapped_once_and_bothregions_see_the_same_bytes() {
    let fd = memfd(0x4000);
    let memory = Memory::new();
    memory
        .map_fd(0, 0x2000, fd.as_fd(), 0, Prot::RW)
        .expect("map");
    memory
        .map_fd(0x10_0000, 0x3000, fd.as_fd(), 0x1000, Prot::RO)
        .expect("map");
    let view = memory.view();
    view.write(0x1004, b"hello").expect("write");
    let mut back = [0u8; 5];
    view.read(0x10_0004, &mut back).expect("read");
    assert_eq!(&back, b"hello");
    assert_eq!(kind(view.write(0x10_0004, b"x")), FaultKind::Protected);
    drop(view);
    assert_eq!(memory.table.read().files.len(), 1);
    let too_far = memory.map_fd(0x20_0000, 0x4000, fd.as_fd(), 0x1000, Prot::RW);
    assert!(matches!(
        too_far,
        Err(MapError::BeyondFile {
            file: 0x4000,
            wanted: 0x5000
        })
    ));
    memory.unmap_all();
    assert!(memory.table.read().files.is_empty());
}

#[test]
#[cfg(not(miri))]
fn one_peer_cannot_have_all_mappings_and_all_addresses_of_the_process() {
    use crate::account::{MAX_BYTES, MAX_FILES};
    let memory = Memory::new();
    let map = |n: u64, len: u64| {
        let fd = memfd(len);
        memory.map_fd(n << 44, 0x1000, fd.as_fd(), 0, Prot::RW)
    };
    for n in 0..MAX_FILES {
        map(n, 0x1000).expect("map");
    }
    let one_more = map(MAX_FILES, 0x1000);
    assert!(matches!(one_more, Err(MapError::TooMany)), "{one_more:?}");
    // One gone is kept for a while, and gives way at once.
    memory.unmap(0, 0x1000).expect("unmap");
    map(MAX_FILES, 0x1000).expect("room again");
    memory.unmap_all();
    map(0, MAX_BYTES).expect("one large file");
    assert!(matches!(map(1, 0x1000), Err(MapError::TooMany)));
    // A file that grows under one region after the other is a mapping each time.
    memory.unmap_all();
    let fd = memfd(0x1000);
    let grow = |n: u64| {
        rustix::fs::ftruncate(&fd, (n + 1) * 0x1000).expect("grow");
        memory.map_fd(n << 44, 0x1000, fd.as_fd(), n * 0x1000, Prot::RW)
    };
    let grown = (0..=MAX_FILES).map_while(|n| grow(n).ok()).count();
    assert_eq!(grown as u64, MAX_FILES);
}

#[test]
#[cfg(not(miri))]
fn memory_files_are_told_apart_and_others_are_not_looked_at() {
    let file =
        || rustix::fs::memfd_create("ram", rustix::fs::MemfdFlags::CLOEXEC).expect("a memfd");
    let (one, two) = (file(), file());
    let of = |fd: &std::os::fd::OwnedFd| crate::FileId::of(fd.as_fd()).expect("memory");
    let again = one.try_clone().expect("a descriptor");
    assert_eq!(of(&one), of(&again));
    assert_ne!(of(&one), of(&two));
    let disk = std::fs::File::open("/proc/self/maps").expect("open");
    let refused = crate::FileId::of(disk.as_fd());
    assert!(matches!(refused, Err(MapError::NotMemory)), "{refused:?}");
}

#[test]
#[cfg(not(miri))]
fn only_memory_files_are_accepted() {
    let disk = std::fs::File::open("/proc/self/maps").expect("open");
    let refused = Memory::new().map_fd(0, 1, disk.as_fd(), 0, Prot::RO);
    assert!(matches!(refused, Err(MapError::NotMemory)), "{refused:?}");
}

fn sigbus(memory: &Memory) -> u64 {
    let mut hits = 0;
    memory.counters(&mut |name, n| {
        if name == "dma_sigbus" {
            hits = n;
        }
    });
    hits
}

#[test]
#[cfg(not(miri))]
fn a_truncated_file_costs_zeros_and_a_counter_not_the_process() {
    crate::guard::install_sigbus_guard();
    let fd = memfd(0x4000);
    let memory = Memory::new();
    memory
        .map_fd(0, 0x4000, fd.as_fd(), 0, Prot::RW)
        .expect("map");
    memory.view().write(0x3000, b"here").expect("write");
    rustix::fs::ftruncate(&fd, 0x1000).expect("shrink");
    let mut back = [9u8; 4];
    let view = memory.view();
    view.read(0x3000, &mut back).expect("mapped, though gone");
    assert_eq!(back, [0; 4]);
    view.write(0x3ff0, b"lost").expect("write to nowhere");
    drop(view);
    let hits = sigbus(&memory);
    assert!(hits >= 1);

    // From the next batch on the file is out of reach, and nothing of ours grows under it.
    assert_eq!(
        kind(memory.view().write(0x2000, b"x")),
        FaultKind::Truncated
    );
    assert_eq!(kind(memory.view().read(0, &mut back)), FaultKind::Truncated);
    assert!(memory.view().write_window(0).is_none() && memory.view().words(0, 4).is_none());
    assert_eq!(sigbus(&memory), hits);

    // Other files are not, and neither is this one where the peer maps it anew.
    let other = memfd(0x1000);
    let map =
        |iova, fd: &std::os::fd::OwnedFd| memory.map_fd(iova, 0x1000, fd.as_fd(), 0, Prot::RW);
    map(0x10_0000, &other).expect("map");
    memory.view().write(0x10_0000, b"fine").expect("write");
    memory.unmap(0, 0x4000).expect("unmap");
    map(0, &fd).expect("map");
    memory.view().write(0, b"back").expect("write");
    memory.unmap_all();
    assert_eq!(sigbus(&memory), hits, "a counter never falls");
}

#[test]
#[cfg(not(miri))]
fn unmap_waits_for_the_view_in_flight() {
    use std::sync::atomic::AtomicBool;
    let memory = Memory::new();
    memory.map_anon(0, 0x1000).expect("map");
    let view = memory.view();
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            memory.unmap(0, 0x1000).expect("unmap");
            done.store(true, Ordering::SeqCst);
        });
        std::thread::sleep(std::time::Duration::from_millis(30));
        // A second view must not queue behind the waiting unmap.
        let second = memory.view();
        second.write(0, b"still here").expect("write");
        assert!(!done.load(Ordering::SeqCst));
        drop(second);
        drop(view);
    });
    assert!(done.load(Ordering::SeqCst));
    assert_eq!(kind(memory.view().read(0, &mut [0])), FaultKind::Unmapped);
}

proptest! {
    #[test]
    fn what_views_keep_at_hand_is_what_is_mapped(
        steps in prop::collection::vec((0u64..6, 0u8..4, any::<u8>()), 0..60)
    ) {
        let memory = Memory::new();
        let place = |i: u64| (i * 0x10000, (i % 4 + 1) * 0x1000);
        let mut want: [Option<u8>; 6] = [None; 6];
        for (i, what, value) in steps {
            let (iova, len) = place(i);
            let slot = &mut want[i as usize];
            match what {
                0 => {
                    prop_assert_eq!(memory.map_anon(iova, len).is_ok(), slot.is_none());
                    slot.get_or_insert(0);
                }
                1 => {
                    prop_assert_eq!(memory.unmap(iova, len).is_ok(), slot.is_some());
                    *slot = None;
                }
                2 if value == 0 => {
                    drop(memory.unmap_all());
                    want = [None; 6];
                }
                _ => {
                    let done = memory.view().write(iova + len - 1, &[value]);
                    prop_assert_eq!(done.is_ok(), slot.is_some());
                    *slot = slot.map(|_| value);
                }
            }
            let view = memory.view();
            for (i, want) in (0..).zip(&want) {
                let (iova, len) = place(i);
                let mut byte = [0];
                let read = view.read(iova + len - 1, &mut byte);
                prop_assert_eq!(read.ok().map(|()| byte[0]), *want);
                let window = view.write_window(iova + 1);
                prop_assert_eq!(window.and_then(|w| w.at(iova, len as usize)).is_some(), want.is_some());
                prop_assert!(view.write(iova + len, &[0]).is_err(), "behind its end");
            }
        }
    }
}

#[test]
#[cfg(not(miri))]
fn a_peers_memory_is_in_no_core_dump() {
    let name = "hypernic-no-core-dump";
    let fd = rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::ALLOW_SEALING).expect("memfd");
    rustix::fs::ftruncate(&fd, 0x4000).expect("size");
    let memory = Memory::new();
    memory
        .map_fd(0, 0x4000, fd.as_fd(), 0, Prot::RW)
        .expect("map");
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("maps");
    let (_, ours) = maps.split_once(name).expect("it is mapped");
    let flags = ours.lines().find_map(|line| line.strip_prefix("VmFlags:"));
    let mut flags = flags.expect("flags").split_whitespace();
    // `dd`: not in dumps (proc(5)).
    assert!(flags.any(|flag| flag == "dd"), "{ours}");
}
