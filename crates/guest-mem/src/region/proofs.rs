use std::ptr::NonNull;

use proofs::proofs;

use super::Near;

proofs! {
    fn what_a_region_holds_lies_in_it(start: u64, room: u64, iova: u64, len: u64, write: bool) {
        // A region never wraps: `Table::check`.
        if start.checked_add(room).is_none() {
            return;
        }
        let near = Near {
            iova: start,
            read: if write { 0 } else { room },
            write: if write { room } else { 0 },
            base: NonNull::dangling(),
        };
        let inside = len > 0
            && iova >= start
            && u128::from(iova) + u128::from(len) <= u128::from(start) + u128::from(room);
        let found = near.holds(iova, len, write);
        assert_eq!(found.is_some(), inside);
        if let Some(at) = found {
            assert_eq!(start + at, iova);
            assert!(at + len <= room);
        }
        assert_eq!(near.holds(iova, len, !write), None);
    }
}
