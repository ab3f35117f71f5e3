use proofs::proofs;

use super::piece;

/// Most bytes that an access is cut in here: two words and what is before and behind them.
const MOST: usize = 24;

proofs! {
    fn a_piece_is_a_word_that_is_aligned_and_no_longer_than_what_is_left(offset: u64, left: usize) {
        if left == 0 {
            return;
        }
        let len = piece(offset, left);
        assert!(matches!(len, 1 | 2 | 4 | 8));
        assert!(len <= left);
        assert_eq!(offset % len as u64, 0);
    }

    fn a_piece_is_the_longest_there_is(offset: u64, left: usize) {
        if left == 0 {
            return;
        }
        let longer = 2 * piece(offset, left);
        assert!(longer > 8 || longer > left || !offset.is_multiple_of(longer as u64));
    }

    #[cfg_attr(kani, kani::unwind(26))]
    fn pieces_make_up_their_access(offset: u64, len: u8) {
        let len = usize::from(len) % (MOST + 1);
        let (mut at, mut left, mut pieces) = (offset, len, 0);
        while left > 0 {
            let piece = piece(at, left);
            at = at.wrapping_add(piece as u64);
            left -= piece;
            pieces += 1;
        }
        assert_eq!(at, offset.wrapping_add(len as u64));
        // Up to three before a whole word, and up to three behind the last.
        assert!(pieces <= len / 8 + 6);
    }
}
