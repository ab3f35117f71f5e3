//! Tails that a guest has moved in memory, and of which the register side does not know yet.

use super::{WHOLE, tcp};
use crate::regs as r;
use crate::regs::bits::xdctl;
use crate::testing::Guest;
use model::Receive;

#[test]
fn a_tail_in_memory_gives_buffers_to_frames_in_hand() {
    let guest = Guest::pf();
    guest.start_rx(0, 8, WHOLE);
    guest.set(r::RDT, 0, 2);
    let frames = vec![tcp(); 5];
    assert_eq!(guest.receive(&frames), 2);
    let look = |queue, tail: Option<u32>| {
        let take = |put: &mut dyn FnMut(u32)| tail.map(put).is_some();
        guest.receiver.look_at_tail(&guest.env, queue, &take)
    };
    assert!(!look(0, None), "it has not been moved");
    assert_eq!(guest.receive(&frames), 0);
    let doorbells = guest.counter("rx_doorbells");
    assert!(look(0, Some(0x1_0005)));
    assert_eq!(guest.get(r::RDT, 0), 5, "of its bits");
    assert!(!look(0, Some(5)), "the next frame finds nothing new");
    assert_eq!(guest.receive(&frames), 3);
    assert_eq!(guest.get(r::RDH, 0), 5);
    assert_eq!(guest.counter("rx_doorbells"), doorbells, "told later");
}

#[test]
fn a_tail_of_a_queue_that_is_off_or_on_no_page_is_not_looked_at() {
    let guest = Guest::pf();
    guest.start_rx(0, 8, WHOLE);
    guest.start_rx(4, 8, WHOLE);
    let take = |put: &mut dyn FnMut(u32)| {
        put(3);
        true
    };
    let look = |queue| guest.receiver.look_at_tail(&guest.env, queue, &take);
    guest.set(r::RXDCTL, 0, 0);
    assert!(!look(0) && !look(1) && !look(99));
    assert!(!look(4), "transmit queues follow");
    assert_eq!(guest.get(r::RDT, 4), 7);
    guest.set(r::RXDCTL, 0, xdctl::ENABLE);
    assert!(look(0));
}
