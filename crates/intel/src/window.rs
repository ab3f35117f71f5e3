//! A window of 32-bit registers, reached by accesses of any size and alignment.

use std::ops::Range;

/// Splits an access to a window of `span` bytes into words: offset of the word, first byte in it,
/// range of the caller's bytes. Bytes beyond the window are left out.
pub fn each_word(
    span: u32,
    offset: u64,
    len: usize,
    mut visit: impl FnMut(u32, usize, Range<usize>),
) {
    let mut done = 0;
    while done < len {
        let Some(at) = offset.checked_add(done as u64) else {
            return;
        };
        if at >= u64::from(span) {
            return;
        }
        let first = (at % 4) as usize;
        let n = (4 - first).min(len - done);
        visit(at as u32 & !3, first, done..done + n);
        done += n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_is_cut_at_words_and_at_the_windows_end() {
        let of = |offset, len| {
            let mut words = Vec::new();
            each_word(16, offset, len, |at, first, range| {
                words.push((at, first, range));
            });
            words
        };
        assert_eq!(of(4, 4), [(4, 0, 0..4)]);
        assert_eq!(of(3, 6), [(0, 3, 0..1), (4, 0, 1..5), (8, 0, 5..6)]);
        assert_eq!(of(14, 8), [(12, 2, 0..2)]);
        assert_eq!(of(16, 1), []);
        assert_eq!(of(u64::MAX, 2), []);
    }
}
