use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use proptest::prelude::*;

use super::*;
use crate::memory::Memory;
use crate::region::Prot;

const BASE: u64 = 0x10_0000;
const SIZE: u64 = 0x4_0000;

fn mapped() -> Memory {
    let memory = Memory::new();
    memory.map_anon(BASE, SIZE).expect("map");
    memory
}

/// The dirty pages of a range, by their numbers from `iova` on.
fn pages(memory: &Memory, iova: u64, len: u64, page_size: u64) -> BTreeSet<u64> {
    let bytes = log_bytes(iova, len, page_size).expect("a range");
    let mut bitmap = vec![0; bytes as usize];
    memory
        .take_log((iova, len), page_size, &mut bitmap)
        .expect("taken");
    let bit = |page: &u64| bitmap[(page / 8) as usize] >> (page % 8) & 1 != 0;
    (0..8 * bytes).filter(bit).collect()
}

fn set(pages: impl IntoIterator<Item = u64>) -> BTreeSet<u64> {
    pages.into_iter().collect()
}

#[test]
fn what_is_written_is_marked_when_the_view_ends_and_what_is_read_is_not() {
    let memory = mapped();
    memory.view().write(BASE, &[1]).expect("before the log");
    assert_eq!(memory.start_log(4096, &[]), Ok(4096));
    let view = memory.view();
    view.write(BASE + 0x1fff, &[1, 2]).expect("two pages");
    view.write_release(BASE + 0x5000, &[3]).expect("one");
    let mut places = Vec::new();
    let lend = view.write_slices(BASE + 0x7800, 0x1000, &mut |run| places.push(run));
    lend.expect("lent");
    view.read(BASE + 0x9000, &mut [0; 64]).expect("read");
    assert!(
        view.read_run(BASE + 0x9000, 8).is_some(),
        "reads are as fast as ever"
    );
    assert_eq!(pages(&memory, BASE, SIZE, 4096), set([]), "not yet");
    places[0].copy_from(0, &[7]);
    drop(view);
    assert_eq!(pages(&memory, BASE, SIZE, 4096), set([1, 2, 5, 7, 8]));
    assert_eq!(pages(&memory, BASE, SIZE, 4096), set([]), "taken");
    assert_eq!(memory.logged(), Some(5));
    assert!(memory.stop_log() && !memory.stop_log());
    let refused = memory.take_log((BASE, 0x1000), 4096, &mut [0; 8]);
    assert_eq!(refused, Err(LogError::NotLogging));
}

#[test]
fn nothing_is_lent_that_passes_by_the_log() {
    let memory = mapped();
    let lends = |memory: &Memory| {
        let view = memory.view();
        view.read(BASE, &mut [0]).expect("at hand");
        [
            view.write_window(BASE).is_some(),
            view.write_places(BASE, 64).is_some(),
            view.write_places_anew(BASE, 64).is_some(),
        ]
    };
    assert_eq!(lends(&memory), [true; 3]);
    memory.start_log(4096, &[]).expect("logs");
    assert_eq!(lends(&memory), [false; 3]);
    assert!(memory.view().read_places(BASE, 64).is_some());
    let view = memory.view();
    let words = view.words(BASE + 0x3000, 64).expect("words");
    words.store(4, 1, Ordering::Relaxed);
    drop(view);
    assert_eq!(pages(&memory, BASE, SIZE, 4096), set([3]));
    memory.stop_log();
    assert_eq!(lends(&memory), [true; 3]);
}

#[test]
fn what_is_mapped_later_is_logged_and_what_is_unmapped_is_not_forgotten() {
    let memory = mapped();
    memory.start_log(4096, &[]).expect("logs");
    memory.map_anon(BASE + SIZE, 0x2000).expect("map");
    memory.view().write(BASE + SIZE - 1, &[1, 2]).expect("both");
    drop(memory.unmap(BASE + SIZE, 0x2000).expect("unmap"));
    let all = pages(&memory, BASE, SIZE + 0x2000, 4096);
    assert_eq!(all, set([SIZE / 4096 - 1, SIZE / 4096]));
}

#[test]
fn ranges_page_sizes_and_bitmaps_that_make_no_sense_are_refused() {
    let memory = mapped();
    let refused = [
        (0, vec![], LogError::PageSize),
        (12288, vec![], LogError::PageSize),
        (4096, vec![(BASE, 0)], LogError::Range),
        (4096, vec![(u64::MAX, 2)], LogError::Range),
        (4096, vec![(BASE, 1); MAX_LOG_RANGES + 1], LogError::TooMany),
    ];
    for (page_size, ranges, why) in refused {
        assert_eq!(memory.start_log(page_size, &ranges), Err(why));
        assert_eq!(memory.logged(), None);
    }
    assert_eq!(memory.start_log(1 << 40, &[]), Ok(LARGEST_LOG_PAGE));
    assert_eq!(memory.start_log(4096, &[]), Err(LogError::Another));
    memory.stop_log();
    assert_eq!(
        memory.start_log(1, &[(BASE, 1)]),
        Ok(LOG_PAGE),
        "as fine as it goes"
    );
    let take =
        |range, page_size, bytes: usize| memory.take_log(range, page_size, &mut vec![0; bytes]);
    assert_eq!(take((BASE, SIZE), 3, 8), Err(LogError::PageSize));
    assert_eq!(take((BASE, 0), 4096, 0), Err(LogError::Range));
    assert_eq!(take((u64::MAX, 2), 4096, 8), Err(LogError::Range));
    assert_eq!(take((BASE, SIZE), 4096, 7), Err(LogError::Bitmap));
    assert_eq!(take((BASE, SIZE), 4096, 8), Ok(1));
    assert_eq!(take((0, u64::MAX), 1 << 63, 8), Ok(1), "all there is");
}

#[test]
fn a_region_of_any_size_costs_no_more_than_a_log_may() {
    let memory = mapped();
    // Nothing is behind it, so nothing is written there.
    memory
        .map_absent(1 << 40, 1 << 50, Prot::RW)
        .expect("absent");
    assert_eq!(memory.start_log(4096, &[]), Ok(4096));
    memory.view().write(BASE, &[1]).expect("written");
    assert_eq!(pages(&memory, BASE, SIZE, 4096), set([0]));
    let mut log = Dirty::new(4096, &[]).expect("a log");
    log.cover(0, (MAX_LOG_CHUNKS as u64) * PAGES * 4096);
    let lost = log.take((0, 4096), 4096, &mut [0; 8]);
    assert_eq!(lost, Err(LogError::TooLarge), "it has holes, and says so");
}

#[test]
fn what_a_log_costs_is_told_however_few_pages_are_asked_for() {
    const CHUNK: u64 = PAGES * LOG_PAGE;
    let memory = Memory::new();
    memory.map_anon(0, 8 * CHUNK).expect("mapped, not touched");
    assert_eq!(memory.log_cost(), 0);
    memory.start_log(LOG_PAGE, &[]).expect("logs");
    assert_eq!(memory.log_cost(), 8);
    // One bit for all.
    let all = memory.take_log((0, 8 * CHUNK), 8 * CHUNK, &mut [0; 8]);
    assert_eq!(all, Ok(8));
    let some = memory.take_log((CHUNK, CHUNK), LOG_PAGE, &mut [0; PAGES as usize / 8]);
    assert_eq!(some, Ok(1));
    // Each region was looked for in each range.
    memory
        .start_log(LOG_PAGE, &vec![(0, LOG_PAGE); MAX_LOG_RANGES])
        .expect("as it was");
    memory.stop_log();
    memory
        .start_log(LOG_PAGE, &vec![(0, LOG_PAGE); MAX_LOG_RANGES])
        .expect("logs");
    assert_eq!(memory.log_cost(), 8 + MAX_LOG_RANGES / WORDS);
}

proptest! {
    /// Exactly the pages that writes touch are shown, whatever page size is asked for, and each once.
    #[test]
    fn exactly_the_pages_written_are_shown(
        writes in proptest::collection::vec((0..SIZE - 0x3000, 1..0x3000u64), 0..8),
        kept in 12u32..16, asked in 9u32..18, cut in 0..SIZE / 2,
    ) {
        let memory = mapped();
        memory.start_log(1 << kept, &[]).expect("logs");
        let mut fine = BTreeSet::new();
        for (at, len) in writes {
            memory.view().write(BASE + at, &vec![1; len as usize]).expect("written");
            fine.extend((BASE + at) >> kept..=(BASE + at + len - 1) >> kept);
        }
        // Of each page of the log all that is in the range, in units of what is asked for.
        let shown = |fine: &BTreeSet<u64>, from: u64, len: u64| -> BTreeSet<u64> {
            let parts = fine.iter().flat_map(|page| {
                let start = (page << kept).max(from);
                let end = (((page + 1) << kept) - 1).min(from + len - 1);
                let some = start <= end;
                some.then(|| (start - from) >> asked..=(end - from) >> asked).into_iter().flatten()
            });
            parts.collect()
        };
        // What a look at a part shows of pages that lie in it whole is gone.
        let (from, len) = (BASE + cut, SIZE / 3);
        prop_assert_eq!(pages(&memory, from, len, 1 << asked), shown(&fine, from, len));
        fine.retain(|page| page << kept < from || ((page + 1) << kept) > from + len);
        prop_assert_eq!(pages(&memory, BASE, SIZE, 1 << asked), shown(&fine, BASE, SIZE));
        prop_assert_eq!(pages(&memory, BASE, SIZE, 1 << asked), BTreeSet::new());
    }
}
