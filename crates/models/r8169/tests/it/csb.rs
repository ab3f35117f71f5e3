//! The Communication Status Block: what a driver written for it finds, and what a hostile one.

mod driver;
mod stream;

use crate::common::*;
use csb::{NONE, at};
use hypernic_r8169::{Config, Variant, new};
use model::{PciState, Progress, ResetKind, Watch};
use model_testkit::CountedWake;
use std::sync::Arc;

const BLOCK: u64 = RAM + 0x1_8000;
const CSBAL: u64 = 0xa0;
const CSBAH: u64 = 0xa4;
const RXKICK: u64 = 0xa8;
const LEN: u32 = 16;

fn config() -> Config {
    Config {
        csb: true,
        ..Config::new(MAC)
    }
}

fn get(m: &Machine, offset: u32) -> u32 {
    let bytes = m.peek(BLOCK + u64::from(offset), 4);
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn put(m: &Machine, offset: u32, value: u32) {
    m.poke(BLOCK + u64::from(offset), &value.to_le_bytes());
}

/// Rings of `len`, the page given as a driver does, the block on.
fn at_work_with(config: Config, len: u32) -> Machine {
    let mut m = Machine::with(config, Wire::default());
    m.rings(len, 1536);
    put(&m, at::HOST_RXKICK_AT, NONE);
    put(&m, at::HOST_NEED_TXKICK, 1);
    put(&m, at::GUEST_NEED_RXKICK, 1);
    put(&m, at::GUEST_CSB_ON, 1);
    m.w32(CSBAH, 0);
    m.w32(CSBAL, BLOCK as u32);
    m.w16(reg::IMR, ROK | TOK | LINK_CHG);
    m
}

fn at_work() -> Machine {
    at_work_with(config(), LEN)
}

/// Puts a frame into the ring, and the index behind it into the page. Whether the driver must call.
fn send(m: &Machine, index: u32, frame: &[u8]) -> bool {
    let buffer = TX_BUFFERS + u64::from(index) * 0x800;
    m.poke(buffer, frame);
    let end = m.tx_words(index).0 & EOR;
    m.tx_desc(index, OWN | end | BOTH | frame.len() as u32, 0, buffer);
    put(m, at::GUEST_TDT, (index + 1) % LEN);
    get(m, at::HOST_NEED_TXKICK) != 0
}

fn turn(m: &mut Machine) -> Progress {
    m.nic.transmit.run(&m.env, &m.wire, 256)
}

#[test]
fn without_the_operators_word_there_is_none() {
    let mut m = Machine::new();
    assert_eq!(m.nic.identity.subsystem, 0x8168);
    for register in [CSBAL, CSBAH, RXKICK] {
        m.w32(register, u32::MAX);
        assert_eq!(m.r32(register), 0);
    }
    let offered = new(config()).identity;
    let ids = (offered.subsystem_vendor, offered.subsystem);
    assert_eq!(ids, (0x10ec, 0x1101));
    assert_eq!(offered.device, 0x8168);
}

/// Registers and descriptors differ, the block does not.
#[test]
fn a_block_serves_each_chip() {
    for variant in [Variant::Rtl8168C, Variant::Rtl8168H, Variant::Rtl8169S] {
        let config = Config {
            csb: true,
            ..Config::of(variant, MAC)
        };
        let mut m = at_work_with(config, LEN);
        assert!(send(&m, 0, &plain(PEER, 100)), "{variant:?}");
        m.w8(reg::TX_POLL, 0x40);
        assert_eq!(m.wire.take(), [plain(PEER, 100)], "{variant:?}");
        assert_eq!(get(&m, at::HOST_TDH), 1, "{variant:?}");
        assert_eq!(m.offer(&[&plain(MAC, 100)]), 1);
        assert_eq!(get(&m, at::HOST_RDH), 1, "{variant:?}");
        assert_eq!(get(&m, at::HOST_ISR) as u16 & (ROK | TOK), ROK | TOK);
    }
}

#[test]
fn the_page_survives_rst_and_not_a_bus_reset() {
    let mut m = at_work();
    m.w8(reg::CHIP_CMD, 0x10);
    assert_eq!(m.r32(CSBAL), BLOCK as u32);
    m.nic.control.reset(&m.env, ResetKind::Bus);
    assert_eq!((m.r32(CSBAL), m.r32(CSBAH)), (0, 0));
    // Half by half, and in bytes.
    m.w32(CSBAH, 5);
    m.nic.control.write(&m.env, 2, CSBAL + 1, &[7]);
    m.nic.control.take_work();
    assert_eq!((m.r32(CSBAL), m.r32(CSBAH)), (0x700, 5));
    m.w32(CSBAH, 6);
    assert_eq!(m.r32(CSBAL), 0, "no page between two addresses");
}

#[test]
fn register_accesses_write_nothing_there() {
    let mut m = at_work();
    let before = m.peek(BLOCK, 4096);
    for (register, value) in [
        (CSBAL, BLOCK as u32 + 64),
        (CSBAH, 1),
        (CSBAL, 0),
        (CSBAL, BLOCK as u32),
        (RXKICK, 3),
        (reg::TX_POLL, 0x40),
        (reg::IMR, 0xffff_ffff),
    ] {
        let data = value.to_le_bytes();
        m.nic.control.write(&m.env, 2, register, &data);
        m.nic.control.read(&m.env, 2, register, &mut [0; 4]);
    }
    assert_eq!(m.peek(BLOCK, 4096), before);
}

#[test]
fn a_sender_calls_only_a_transmitter_that_sleeps() {
    let mut m = at_work();
    put(&m, at::HOST_TXCYCLES_LIM, 3);
    assert!(send(&m, 0, &plain(PEER, 60)));
    m.w8(reg::TX_POLL, 0x40);
    assert_eq!(m.wire.take().len(), 1);
    assert_eq!(get(&m, at::HOST_TDH), 1);
    assert_eq!(get(&m, at::HOST_NEED_TXKICK), 1, "it sleeps again");
    assert_eq!(m.counter("csb_kicks"), 1);
    assert_eq!(m.tx_words(0).0 & OWN, 0);
    // It is called, and finds more for as long as it looks.
    assert!(send(&m, 1, &plain(PEER, 60)));
    m.nic.control.write(&m.env, 2, reg::TX_POLL, &[0x40]);
    assert!(m.nic.control.take_work().tx);
    assert_eq!(turn(&mut m), Progress::More);
    assert_eq!(m.nic.transmit.watch(), Watch::Found);
    assert!(!send(&m, 2, &plain(PEER, 60)), "it is awake");
    assert_eq!(turn(&mut m), Progress::More);
    assert_eq!(turn(&mut m), Progress::More);
    assert_eq!(m.nic.transmit.watch(), Watch::Vain);
    assert_eq!(turn(&mut m), Progress::More);
    assert_eq!(turn(&mut m), Progress::Idle);
    assert_eq!(m.nic.transmit.watch(), Watch::Off);
    assert_eq!(m.wire.take().len(), 2);
    assert_eq!(get(&m, at::HOST_NEED_TXKICK), 1);
    // A call that was lost costs 2 ms.
    send(&m, 3, &plain(PEER, 60));
    m.sleep(2_000_000);
    assert_eq!(m.wire.take().len(), 1);
}

#[test]
fn a_receiver_without_buffers_says_where_it_wants_to_be_called() {
    let mut m = at_work();
    let frame = plain(MAC, 100);
    for _ in 0..LEN {
        assert_eq!(m.offer(&[&frame]), 1);
    }
    assert_eq!(get(&m, at::HOST_RDH), 0);
    assert_eq!(get(&m, at::HOST_RXKICK_AT), NONE);
    let waker = Arc::new(CountedWake::default());
    let wake: Arc<dyn frame::Wake> = waker.clone();
    assert_eq!(m.offer(&[&frame]), 0);
    m.nic.receive.want_room(&wake);
    // It looks by itself at first, with more and more time between, and wakes for half of the ring.
    for (soon, i) in [125, 250, 500].into_iter().zip(0..) {
        assert_eq!(get(&m, at::HOST_RXKICK_AT), NONE);
        m.rx_desc(i, OWN | 1536, RX_BUFFERS + u64::from(i) * RX_STEP);
        put(&m, at::GUEST_RDT, i + 1);
        m.sleep(soon * 1000);
        assert_eq!(waker.rung(), 0);
    }
    for i in 3..8 {
        m.rx_desc(i, OWN | 1536, RX_BUFFERS + u64::from(i) * RX_STEP);
    }
    put(&m, at::GUEST_RDT, 8);
    m.sleep(1_000_000);
    assert_eq!(waker.rung(), 1);
    for _ in 0..8 {
        assert_eq!(m.offer(&[&frame]), 1);
    }
    assert_eq!(m.offer(&[&frame]), 0);
    m.nic.receive.want_room(&wake);
    // Then it asks: three quarters of the others.
    m.sleep(1_874_000);
    assert_eq!(get(&m, at::HOST_RXKICK_AT), NONE);
    m.sleep(1_000);
    assert_eq!(get(&m, at::HOST_RXKICK_AT), (8 + 12) % LEN);
    for i in 8..20 {
        let i = i % LEN;
        let end = if i + 1 == LEN { EOR } else { 0 };
        m.rx_desc(i, OWN | end | 1536, RX_BUFFERS + u64::from(i) * RX_STEP);
    }
    put(&m, at::GUEST_RDT, 4);
    m.w32(RXKICK, 12);
    assert_eq!(waker.rung(), 2);
    assert_eq!(get(&m, at::HOST_RXKICK_AT), NONE);
    assert_eq!(m.counter("csb_rx_sleeps"), 1);
    assert_eq!(m.offer(&[&frame]), 1);
}

#[test]
fn interrupts_come_when_they_are_wanted() {
    let mut m = at_work();
    m.take_isr();
    put(&m, at::GUEST_NEED_RXKICK, 0);
    let frame = plain(MAC, 100);
    m.offer(&[&frame]);
    assert!(!m.line(), "nothing is to be heard");
    assert_eq!(m.r16(reg::ISR), ROK);
    assert_eq!(get(&m, at::HOST_ISR), u32::from(ROK));
    // With the next frame, or when the driver asks by a write of IMR.
    put(&m, at::GUEST_NEED_RXKICK, 1);
    assert!(!m.line());
    m.w16(reg::IMR, ROK | TOK | LINK_CHG);
    assert!(m.line());
    m.take_isr();
    assert!(!m.line());
    m.offer(&[&frame]);
    assert!(m.line());
    m.take_isr();
    // The other direction.
    send(&m, 0, &plain(PEER, 60));
    m.w8(reg::TX_POLL, 0x40);
    assert!(!m.line() && m.r16(reg::ISR) & TOK != 0);
    put(&m, at::GUEST_NEED_TXKICK, 1);
    send(&m, 1, &plain(PEER, 60));
    m.w8(reg::TX_POLL, 0x40);
    assert!(m.line());
    m.take_isr();
    // What does not concern frames always interrupts; and all does when the block is off.
    put(&m, at::GUEST_NEED_TXKICK, 0);
    put(&m, at::GUEST_NEED_RXKICK, 0);
    m.nic.control.set_link(&m.env, false);
    assert!(m.line());
    m.nic.control.set_link(&m.env, true);
    m.sleep(20_000_000);
    m.take_isr();
    put(&m, at::GUEST_CSB_ON, 0);
    m.offer(&[&frame]);
    assert!(m.line());
}

/// A driver acknowledges while frames come, and IMR stays as it is: what came meanwhile it finds by itself, and the next is told.
#[test]
fn frames_that_come_before_an_acknowledgement_do_not_end_all_interrupts() {
    for msi in [false, true] {
        let mut m = at_work();
        m.pci(msi, false);
        m.take_isr();
        m.messages();
        let frame = plain(MAC, 100);
        m.offer(&[&frame]);
        assert!(m.messages() == 1 || m.line());
        let isr = m.r16(reg::ISR);
        put(&m, at::GUEST_NEED_RXKICK, 0);
        m.offer(&[&frame]);
        m.w16(reg::ISR, isr);
        assert!(m.messages() == 0 && !m.line(), "it polls");
        put(&m, at::GUEST_NEED_RXKICK, 1);
        m.offer(&[&frame]);
        assert!(m.messages() == 1 || m.line());
    }
}

#[test]
fn a_wrong_place_is_counted_and_reads_nothing() {
    let mut m = at_work();
    // The end of the ring is known once it was passed.
    for i in 0..LEN {
        if send(&m, i, &plain(PEER, 60)) {
            m.w8(reg::TX_POLL, 0x40);
        }
        while turn(&mut m) == Progress::More {}
    }
    assert_eq!(m.wire.take().len() as u32, LEN);
    let before = m.counter("csb_bad_tail");
    for tail in [LEN, 0xffff, 1023] {
        put(&m, at::GUEST_TDT, tail);
        m.w8(reg::TX_POLL, 0x40);
    }
    assert!(m.counter("csb_bad_tail") > before);
    // An index that is one does not make a descriptor the chip's.
    put(&m, at::GUEST_TDT, 7);
    m.w8(reg::TX_POLL, 0x40);
    assert!(m.wire.take().is_empty());
    put(&m, at::GUEST_RDT, 5);
    let frame = plain(MAC, 100);
    (0..LEN).for_each(|_| assert_eq!(m.offer(&[&frame]), 1));
    assert_eq!(m.offer(&[&frame]), 0, "no descriptor has OWN");
}

#[test]
fn a_page_that_is_not_there_is_given_up() {
    for base in [RAM + RAM_LEN - 8, BLOCK + 2, 0x10] {
        let mut m = Machine::with(config(), Wire::default());
        m.rings(LEN, 1536);
        m.w32(CSBAL, base as u32);
        assert_eq!(m.r32(CSBAL), 0);
        assert_eq!(m.counter("csb_unmapped"), 1);
        m.send(0, &plain(PEER, 60), BOTH, 0);
        assert_eq!(m.wire.take().len(), 1);
    }
    // A NIC that may not do DMA looks at none, and keeps it.
    let mut m = Machine::with(config(), Wire::default());
    m.set_pci(PciState::default());
    m.w32(CSBAL, 0x10);
    assert_eq!((m.r32(CSBAL), m.counter("csb_unmapped")), (0x10, 0));
}

#[test]
fn it_goes_along_when_the_nic_is_saved() {
    let mut m = at_work();
    put(&m, at::GUEST_NEED_RXKICK, 0);
    let saved = m.save();
    let mut other = Machine::new();
    assert!(other.nic.control.load(&other.env, &saved).is_err());
    m.w32(CSBAL, 0);
    // What the driver puts there meanwhile is found without a call.
    send(&m, 0, &plain(PEER, 60));
    m.nic.control.load(&m.env, &saved).expect("its own state");
    m.work();
    assert_eq!(m.r32(CSBAL), BLOCK as u32);
    assert_eq!(m.wire.take().len(), 1);
    m.take_isr();
    m.offer(&[&plain(MAC, 100)]);
    assert!(!m.line());
}
