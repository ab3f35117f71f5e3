use proofs::proofs;

use super::{Ring, SIZE};

/// Descriptors that the length registers can say: 20 bits of bytes.
const MOST: u32 = (1 << 20) / SIZE as u32;

/// A ring whose indices are inside, as [`Ring::read`] gives it.
fn ring(base: u64, len: u32, head: u32, tail: u32) -> Ring {
    let len = len % MOST + 1;
    Ring {
        base,
        len,
        head: head % len,
        tail: tail % len,
    }
}

proofs! {
    fn what_is_available_ends_at_the_tail(len: u32, head: u32, tail: u32) {
        let ring = ring(0, len, head, tail);
        let available = ring.available();
        assert!(available < ring.len);
        assert_eq!(ring.behind(available), ring.tail);
        assert_eq!(ring.distance(ring.head, ring.tail), available);
    }

    fn so_many_on_and_so_many_back_is_the_same_place(len: u32, head: u32, n: u32) {
        let ring = ring(0, len, head, 0);
        let n = n % ring.len;
        let there = ring.behind(n);
        assert!(there < ring.len);
        assert_eq!(ring.distance(ring.head, there), n);
        assert_eq!(ring.before(there, n), ring.head);
    }

    fn the_next_one_is_one_on(len: u32, head: u32, n: u32) {
        let ring = ring(0, len, head, 0);
        let n = n % ring.len;
        let next = ring.next(ring.behind(n));
        assert!(next < ring.len);
        // The last one's next is the head itself.
        assert_eq!(next, if n + 1 == ring.len { ring.head } else { ring.behind(n + 1) });
    }

    fn descriptors_do_not_overlap(base: u64, len: u32, one: u32, another: u32) {
        let ring = ring(base, len, one, another);
        let (one, another) = (ring.address(ring.head), ring.address(ring.tail));
        let apart = one.wrapping_sub(another).min(another.wrapping_sub(one));
        assert_eq!(apart == 0, ring.head == ring.tail);
        assert!(apart == 0 || apart >= SIZE);
        assert!(one.wrapping_sub(base) + SIZE <= u64::from(ring.len) * SIZE);
    }
}
