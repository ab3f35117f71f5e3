//! Tails that a guest has moved in memory, and of which the register side does not know yet.

use crate::common::*;
use hypernic_e1000::{Config, new};
use intel_offsets::e1000::long::RDFPC;

const BAM: u32 = 0x8000;

fn look(m: &Machine, queue: u32, tail: Option<u32>) -> bool {
    let take = |put: &mut dyn FnMut(u32)| tail.map(put).is_some();
    m.nic.receive.look_at_tail(&m.env, queue, &take)
}

#[test]
fn a_tail_in_memory_gives_buffers_to_frames_in_hand() {
    let mut m = Machine::default();
    m.rx_on(8, BAM);
    m.w(reg::RDT, 2);
    let frame = plain(MAC, 60);
    assert_eq!(m.offer(&[&frame[..]; 5]), 5);
    assert_eq!((m.r(reg::RDH), m.r(RDFPC)), (2, 3), "three wait");
    assert!(!look(&m, 0, None), "it has not been moved");
    let doorbells = m.counter("rx_doorbells");
    assert!(look(&m, 0, Some(0x1_0006)));
    assert_eq!(m.r(reg::RDT), 6, "of its bits");
    assert!(!look(&m, 0, Some(6)), "the next frame finds nothing new");
    m.nic.receive.poll(&m.env);
    assert_eq!((m.r(reg::RDH), m.r(RDFPC)), (5, 0));
    assert_eq!(m.counter("rx_doorbells"), doorbells, "told later");
    assert!(m.nic.receive.keeps_excess());
}

#[test]
fn a_tail_of_a_ring_that_is_off_or_of_the_transmitter_is_not_looked_at() {
    let mut m = Machine::default();
    m.rx_on(8, BAM);
    for queue in [1, 2, u32::MAX] {
        assert!(!look(&m, queue, Some(3)));
    }
    m.w(reg::RCTL, BAM);
    assert!(!look(&m, 0, Some(3)));
    assert_eq!(m.r(reg::RDT), 7);
    m.w(reg::RCTL, BAM | 2);
    assert!(look(&m, 0, Some(3)));
}

#[test]
fn a_nic_with_a_csb_has_no_doorbell_page() {
    let with = |csb| {
        let config = Config {
            csb,
            ..Config::new(MAC)
        };
        new(config).control.doorbells()
    };
    assert!(with(true).is_none());
    assert!(with(false).is_some_and(|layout| layout.valid()));
}
