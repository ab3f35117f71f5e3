//! The short way of the receive side for large frames: their segments, and a buffer each.

use frame::Cut;
use guest_mem::{View, WriteWindow};

use crate::ring::Ring;
use crate::rx::publish::Publish;
use crate::rx::run::{AHEAD, Buffers, Filled, behind, find_buffers, publish};
use crate::rx::words::{Says, Words};

/// Writes segments of `cut` from number `from` on into the buffers of `ring` from its head on, of which `free` are ours,
/// each with `more` zeros behind it, and writes their descriptors back. What these say is `words` by the length in the
/// buffer. It ends where a buffer is null, or not in the region of the one before, or not in reach.
pub fn fill_cut(
    view: &View<'_>,
    (ring, mut free): (&Ring, u32),
    (cut, from): (&Cut<'_>, usize),
    more: usize,
    words: impl Fn(usize) -> Words,
    by: &impl Publish,
) -> Filled {
    let mut ring = *ring;
    let mut filled = Filled::default();
    let mut places = [0; AHEAD];
    let longest = cut.segment_len(0) + more;
    let full = words(longest);
    let mut segments = cut.segments(from);
    let mut next = from;
    while next < cut.count() && free > 0 {
        let straight = free.min(ring.len - ring.head) as usize;
        let most = AHEAD.min(cut.count() - next).min(straight);
        let Some(buffers) = find_buffers(view, (&ring, most), longest, &mut places) else {
            break;
        };
        let Buffers { first, to, found } = buffers;
        filled.fetched += most as u64;
        let mut copied = 0;
        // The last may be shorter.
        let mut last = longest;
        for place in &places[..found] {
            let len = cut.segment_len(next + copied) + more;
            let Some(place) = to.get(*place) else {
                break;
            };
            segments.write(&place.sub(0, len));
            last = len;
            copied += 1;
        }
        let write = |window: WriteWindow<'_>| {
            let write = |from: usize, n: usize| {
                let at = behind(first, from);
                if last == longest || from + n < copied {
                    return full.write_to(&window, at, n);
                }
                full.write_to(&window, at, n - 1)
                    && words(last).write_to(&window, behind(at, n - 1), 1)
            };
            let says = || match last == longest {
                true => Says::Same(full),
                false => Says::ButLast(full, words(last)),
            };
            publish(by, view, (&ring, first), (copied, says), write)
        };
        if copied == 0 || !view.write_window(first).is_some_and(write) {
            break;
        }
        filled.frames += copied as u32;
        free -= copied as u32;
        next += copied;
        ring.head = ring.behind(copied as u32);
        if copied < most {
            break;
        }
    }
    filled
}
