use proofs::proofs;

use super::{LOG_PAGE, log_bytes};

proofs! {
    fn a_bitmap_has_a_bit_for_each_page_and_less_than_a_word_more(iova: u64, len: u64, shift: u8) {
        let shift = 12 + shift % 40;
        let bytes = log_bytes(iova, len, 1 << shift);
        let wraps = len == 0 || iova.checked_add(len - 1).is_none();
        assert_eq!(bytes.is_none(), wraps);
        if let Some(bytes) = bytes {
            let pages = u128::from(len).div_ceil(1 << shift);
            let bits = 8 * u128::from(bytes);
            assert!(bytes.is_multiple_of(8));
            assert!(bits >= pages && bits - pages < 64);
        }
    }

    fn a_page_size_that_is_none_has_no_bitmap(iova: u64, len: u64, page_size: u64) {
        assert!(page_size.is_power_of_two() || log_bytes(iova, len, page_size).is_none());
        assert!(LOG_PAGE.is_power_of_two());
    }
}
