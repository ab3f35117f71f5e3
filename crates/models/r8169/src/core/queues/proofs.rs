use proofs::proofs;

use super::{Desc, MOST, SIZE, place};

proofs! {
    fn a_ring_without_an_end_goes_round_after_the_most_there_are(index: u32, opts1: u32) {
        let index = index % MOST;
        let next = Desc { index, opts1, ..Desc::default() }.next();
        assert!(next < MOST);
        assert!(next == 0 || next == index + 1);
    }

    fn descriptors_do_not_overlap(base: u64, one: u32, another: u32) {
        let (one, another) = (one % MOST, another % MOST);
        let (first, second) = (place(base, one), place(base, another));
        let apart = first.wrapping_sub(second).min(second.wrapping_sub(first));
        assert_eq!(apart == 0, one == another);
        assert!(apart == 0 || apart >= SIZE);
    }
}
