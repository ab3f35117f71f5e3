//! The Communication Status Block: what a driver written for it finds, and what a hostile one.

mod driver;

use std::sync::Mutex;

use crate::common::*;
use csb::{CSBAH, CSBAL, NONE, at, passes, rx_kick_at};
use frame::{Batch, Caps, Sink, Wake};
use hypernic_e1000::{Config, new};
use model::{Progress, ResetKind, Watch};
use std::sync::Arc;

const BLOCK: u64 = RAM + 0x1_8000;
const TXDW: u32 = 1;
const LSC: u32 = 1 << 2;
const RXT0: u32 = 1 << 7;
const LEN: u32 = 16;

fn config() -> Config {
    Config {
        csb: true,
        ..Config::new(MAC)
    }
}

/// A machine whose driver has given a page and not switched it on.
fn machine() -> Machine {
    let mut m = Machine::with(config(), Wire::default());
    m.w(u64::from(CSBAH), 0);
    m.w(u64::from(CSBAL), BLOCK as u32);
    m
}

fn get(m: &Machine, offset: u32) -> u32 {
    let bytes = m.peek(BLOCK + u64::from(offset), 4);
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn put(m: &Machine, offset: u32, value: u32) {
    m.poke(BLOCK + u64::from(offset), &value.to_le_bytes());
}

/// Rings of [`LEN`], the block on.
fn at_work() -> Machine {
    let mut m = machine();
    m.tx_on(LEN);
    put(&m, at::GUEST_RDT, LEN - 1);
    m.rx_on(LEN, 0x8000);
    put(&m, at::GUEST_CSB_ON, 1);
    for i in 0..LEN {
        m.poke(TX_BUFFERS + u64::from(i) * 64, &plain(PEER, 60));
        m.tx_desc(i, TX_BUFFERS + u64::from(i) * 64, legacy(60, EOP | RS));
    }
    m
}

/// Hands frames over as the driver does. Whether it had to call.
fn send(m: &mut Machine, tail: u32) -> bool {
    put(m, at::GUEST_TDT, tail);
    let call = get(m, at::HOST_NEED_TXKICK) != 0;
    if call {
        m.w(reg::TDT, tail);
    }
    call
}

#[test]
fn without_the_operators_word_there_is_none() {
    let mut m = Machine::default();
    assert_eq!(m.nic.identity.subsystem, 0x001e);
    for register in [CSBAL, CSBAH] {
        m.w(u64::from(register), u32::MAX);
        assert_eq!(m.r(u64::from(register)), 0);
    }
    let offered = new(config()).identity;
    assert_eq!(
        (offered.subsystem_vendor, offered.subsystem),
        (0x8086, 0x1101)
    );
}

#[test]
fn the_page_survives_ctrl_rst_and_not_a_bus_reset() {
    let mut m = machine();
    m.w(reg::CTRL, 1 << 26);
    assert_eq!(m.r(u64::from(CSBAL)), BLOCK as u32);
    m.tx_on(LEN);
    put(&m, at::GUEST_CSB_ON, 1);
    assert!(send(&mut m, 0), "a transmitter at rest wants to be called");
    m.nic.control.reset(&m.env, ResetKind::Bus);
    assert_eq!(m.r(u64::from(CSBAL)), 0);
    // Half by half, and in bytes.
    m.w(u64::from(CSBAH), 5);
    assert_eq!(m.r(u64::from(CSBAH)), 5);
    m.nic.control.write(&m.env, 0, u64::from(CSBAL) + 1, &[7]);
    assert_eq!(m.r(u64::from(CSBAL)), 0x700);
    m.w(u64::from(CSBAH), 6);
    assert_eq!(m.r(u64::from(CSBAL)), 0, "no page between two addresses");
}

#[test]
fn register_accesses_touch_nothing_of_it() {
    let mut m = at_work();
    let before = m.env.memory.meter().totals();
    for (register, value) in [
        (u64::from(CSBAL), BLOCK as u32 + 64),
        (u64::from(CSBAH), 1),
        (u64::from(CSBAL), 0),
        (u64::from(CSBAL), BLOCK as u32),
        (reg::TDT, 3),
        (reg::RDT, 3),
        (reg::IMS, 0xffff),
        (reg::CTRL, 1 << 26),
    ] {
        m.nic
            .control
            .write(&m.env, 0, register, &value.to_le_bytes());
        m.r(register);
    }
    m.nic.control.reset(&m.env, ResetKind::Bus);
    assert_eq!(m.env.memory.meter().totals(), before);
}

#[test]
fn a_call_wakes_the_transmitter_which_asks_for_none_until_it_sleeps() {
    let mut m = at_work();
    assert!(send(&mut m, 3));
    assert_eq!(m.wire.take().len(), 3);
    assert_eq!(get(&m, at::HOST_TDH), 3);
    assert_eq!(m.r(reg::TDH), 3);
    assert_eq!(get(&m, at::HOST_NEED_TXKICK), 1, "asleep again");
    assert!((0..3).all(|i| m.tx_done(i)));
    // The guest has it spin for three rounds.
    put(&m, at::HOST_TXCYCLES_LIM, 3);
    put(&m, at::GUEST_TDT, 4);
    m.nic
        .control
        .write(&m.env, 0, reg::TDT, &4u32.to_le_bytes());
    for sent in [1, 0, 0] {
        assert_eq!(
            m.nic.transmit.run(&m.env, &m.wire, 256),
            Progress::More,
            "{sent}"
        );
        assert_eq!(m.wire.take().len(), sent);
        let watch = if sent > 0 { Watch::Found } else { Watch::Vain };
        assert_eq!(m.nic.transmit.watch(), watch);
        assert_eq!(get(&m, at::HOST_NEED_TXKICK), 0);
    }
    // In the last one more comes without a call.
    assert!(!send(&mut m, 6));
    assert_eq!(m.nic.transmit.run(&m.env, &m.wire, 256), Progress::More);
    assert_eq!(m.wire.take().len(), 2);
    assert_eq!(m.run(), Progress::Idle);
    assert_eq!(get(&m, at::HOST_NEED_TXKICK), 1);
    assert_eq!(m.nic.transmit.watch(), Watch::Off);
    assert_eq!(m.counter("csb_kicks"), 1, "the first came before it was on");
    assert_eq!(m.counter("csb_tx_sleeps"), 2);
}

#[test]
fn a_stream_earns_more_rounds_before_the_transmitter_sleeps_and_a_frame_alone_does_not() {
    let mut m = at_work();
    assert!(send(&mut m, 1));
    put(&m, at::HOST_TXCYCLES_LIM, 2);
    // Rounds in vain that follow so many frames, a call before the first.
    let rounds = |m: &mut Machine, frames: u32| {
        let mut tail = m.r(reg::TDT);
        put(m, at::GUEST_TDT, (tail + 1) % LEN);
        let first = ((tail + 1) % LEN).to_le_bytes();
        m.nic.control.write(&m.env, 0, reg::TDT, &first);
        for _ in 0..frames {
            tail = (tail + 1) % LEN;
            put(m, at::GUEST_TDT, tail);
            assert_eq!(m.nic.transmit.run(&m.env, &m.wire, 256), Progress::More);
        }
        m.wire.take();
        let mut vain = 1;
        while m.nic.transmit.run(&m.env, &m.wire, 256) == Progress::More {
            vain += 1;
        }
        assert_eq!(get(m, at::HOST_NEED_TXKICK), 1);
        vain
    };
    assert_eq!(rounds(&mut m, 1), 2);
    assert_eq!(rounds(&mut m, 63), 2);
    assert_eq!(rounds(&mut m, 64), 4);
    assert_eq!(rounds(&mut m, 1), 2, "what was earned is used up");
    assert_eq!(rounds(&mut m, 191), 6);
    assert_eq!(rounds(&mut m, 1000), 8, "and no more");
}

/// A port that has the guest hand over more while it takes frames.
struct Busy {
    memory: guest_mem::Memory,
    tails: Mutex<Vec<u32>>,
    frames: Mutex<usize>,
}

impl Sink for Busy {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let _ = batch;
        *self.frames.lock().expect("frames") += picks.len();
        if let Some(tail) = self.tails.lock().expect("tails").pop() {
            let view = self.memory.view();
            let mut need = [9; 4];
            let flag = BLOCK + u64::from(at::HOST_NEED_TXKICK);
            view.read(flag, &mut need).expect("read");
            assert_eq!(need, [0; 4]);
            let word = BLOCK + u64::from(at::GUEST_TDT);
            view.write(word, &tail.to_le_bytes()).expect("write");
        }
        picks.len()
    }
    fn caps(&self) -> Caps {
        Caps::NONE
    }
    fn want_room(&self, _: &Arc<dyn Wake>) {}
}

#[test]
fn what_comes_while_it_works_needs_no_call() {
    let mut m = at_work();
    put(&m, at::GUEST_TDT, 2);
    m.nic
        .control
        .write(&m.env, 0, reg::TDT, &2u32.to_le_bytes());
    let port = Busy {
        memory: m.env.memory.clone(),
        tails: Mutex::new(vec![9, 7, 4]),
        frames: Mutex::new(0),
    };
    while m.nic.transmit.run(&m.env, &port, 256) == Progress::More {}
    assert_eq!(*port.frames.lock().expect("frames"), 9);
    assert_eq!(m.counter("tx_doorbells"), 2);
}

#[test]
fn polling_lasts_as_long_as_it_pays_and_no_longer() {
    let mut config = config();
    config.csb_poll = std::time::Duration::from_micros(100);
    let mut m = Machine::with(config, Wire::default());
    m.w(u64::from(CSBAL), BLOCK as u32);
    m.tx_on(LEN);
    put(&m, at::GUEST_CSB_ON, 1);
    for i in 0..LEN {
        m.tx_desc(i, TX_BUFFERS, legacy(60, EOP));
    }
    // One round takes 10 us here. Returns how many there were until it slept.
    let rounds = |m: &mut Machine, tail: u32| {
        put(m, at::GUEST_TDT, tail % LEN);
        m.nic
            .control
            .write(&m.env, 0, reg::TDT, &0u32.to_le_bytes());
        for n in 1..1000 {
            m.time
                .now
                .fetch_add(10_000, std::sync::atomic::Ordering::SeqCst);
            if m.nic.transmit.run(&m.env, &m.wire, 256) == Progress::Idle {
                return n;
            }
        }
        panic!("it polls for ever");
    };
    let short: Vec<_> = (1..9).map(|tail| rounds(&mut m, tail)).collect();
    assert!(short.is_sorted() && short[0] <= 4, "{short:?}");
    // A round counts for 4 us at most: a window that others used was not spent looking.
    assert!((25..=27).contains(&short[7]), "up to 100 us: {short:?}");
    let mut long = Vec::new();
    for tail in 9..16 {
        m.sleep(50_000_000);
        long.push(rounds(&mut m, tail));
    }
    assert!(long.is_sorted_by(|a, b| a >= b), "{long:?}");
    assert!(long[6] <= 2, "{long:?}");
}

#[test]
fn tails_that_are_none_are_counted_and_ignored() {
    let mut m = at_work();
    for bad in [LEN, 0x7fff, 0xffff, u32::MAX, NONE - 1] {
        put(&m, at::GUEST_TDT, bad);
        m.w(reg::TDT, 0);
        put(&m, at::GUEST_RDT, bad);
        m.offer(&[&plain(MAC, 60)]);
    }
    assert!(m.wire.take().is_empty());
    assert!(m.counter("csb_bad_tail") >= 10);
    assert_eq!(m.counter("rx_frames"), 5, "by the register's tail");
    assert!(send(&mut m, 2));
    assert_eq!(m.wire.take().len(), 2);
    // Only 16 bits of the word are a tail.
    put(&m, at::GUEST_TDT, 0xffff_0003);
    m.w(reg::TDT, 0);
    assert_eq!(m.wire.take().len(), 1);
}

#[test]
fn a_page_that_goes_is_forgotten_and_counted_once() {
    let mut m = at_work();
    assert!(send(&mut m, 2));
    m.env.memory.unmap(RAM, RAM_LEN).expect("unmap");
    for _ in 0..3 {
        m.w(reg::TDT, 5);
        m.offer(&[&plain(MAC, 60)]);
    }
    assert_eq!(m.counter("csb_unmapped"), 1);
    assert_eq!(m.r(u64::from(CSBAL)), 0);
    // Back, but not asked for: the registers count.
    m.env.memory.map_anon(RAM, RAM_LEN).expect("map");
    put(&m, at::GUEST_CSB_ON, 1);
    put(&m, at::GUEST_TDT, 9);
    m.poke(TX_BUFFERS, &plain(PEER, 60));
    m.tx_desc(2, TX_BUFFERS, legacy(60, EOP));
    m.wire.take();
    m.w(reg::TDT, 3);
    assert_eq!(m.wire.take().len(), 1);
    assert_eq!(get(&m, at::HOST_TDH), 0);
    // Neither nothing, nor half a page, nor what is not aligned, is a page.
    for (n, bad) in [0xfee0_0000, (RAM + RAM_LEN - 64) as u32, BLOCK as u32 + 2]
        .into_iter()
        .enumerate()
    {
        m.w(u64::from(CSBAL), bad);
        assert_eq!(m.counter("csb_unmapped"), n as u64 + 2);
    }
}

#[test]
fn interrupts_come_only_when_they_are_wanted() {
    let mut m = at_work();
    m.w(reg::IMS, TXDW | RXT0 | LSC);
    m.r(reg::ICR);
    m.offer(&[&plain(MAC, 60)]);
    assert!(!m.line());
    assert_eq!(get(&m, at::HOST_ISR) & RXT0, RXT0);
    assert_eq!(get(&m, at::HOST_RDH), 1);
    assert_eq!(
        m.r(reg::ICR) & RXT0,
        RXT0,
        "the cause is there all the same"
    );
    put(&m, at::GUEST_NEED_RXKICK, 1);
    send(&mut m, 1);
    assert!(!m.line(), "nothing was received");
    m.offer(&[&plain(MAC, 60)]);
    assert!(m.line());
    put(&m, at::GUEST_NEED_RXKICK, 0);
    m.offer(&[&plain(MAC, 60)]);
    assert!(m.line(), "a line that is up stays until it is answered");
    assert_eq!(m.r(reg::ICR) & (RXT0 | TXDW), RXT0 | TXDW);
    assert!(!m.line());
    // Sent: the NIC interrupts when the guest wants it, even where no descriptor has RS.
    put(&m, at::GUEST_NEED_TXKICK, 1);
    m.tx_desc(1, TX_BUFFERS, legacy(60, EOP));
    send(&mut m, 2);
    assert!(m.line());
    m.r(reg::ICR);
    put(&m, at::GUEST_NEED_TXKICK, 0);
    send(&mut m, 3);
    assert!(!m.line());
    m.nic.control.set_link(&m.env, false);
    assert!(m.line(), "what is not about frames is told always");
}

#[test]
fn whoever_unmasks_hears_of_what_was_held_back() {
    let mut m = at_work();
    m.w(reg::IMS, RXT0);
    m.r(reg::ICR);
    m.offer(&[&plain(MAC, 60)]);
    put(&m, at::GUEST_NEED_RXKICK, 1);
    assert!(!m.line());
    m.w(reg::IMS, RXT0);
    assert!(m.line());
    // The same when the driver switches the block off, or unmaps it.
    for off in [0, 1] {
        m.r(reg::ICR);
        put(&m, at::GUEST_NEED_RXKICK, 0);
        m.offer(&[&plain(MAC, 60)]);
        assert!(!m.line());
        if off == 0 {
            put(&m, at::GUEST_CSB_ON, 0);
            m.w(reg::TDT, 0);
        } else {
            m.w(u64::from(CSBAL), 0);
        }
        assert!(m.line());
        put(&m, at::GUEST_CSB_ON, 1);
        m.r(reg::ICR);
        m.w(reg::TDT, 0);
    }
}

#[test]
fn a_receiver_without_buffers_names_the_place_where_it_wants_to_be_called() {
    let mut m = at_work();
    let frame = plain(MAC, 60);
    let many = vec![frame.as_slice(); LEN as usize + 4];
    assert_eq!(m.offer(&many), many.len(), "five wait in the packet buffer");
    let place = rx_kick_at(LEN - 1, 0, LEN);
    assert_eq!(place, 11);
    assert_eq!(get(&m, at::HOST_RXKICK_AT), place);
    // Buffers returned without passing the place: no call, but the next frame finds them.
    let given = |m: &Machine, tail: u32| put(m, at::GUEST_RDT, tail);
    given(&m, 2);
    assert!(!passes(LEN - 1, 2, place, LEN));
    m.offer(&[&frame]);
    assert_eq!(m.counter("rx_frames"), u64::from(LEN - 1) + 3);
    assert_eq!(get(&m, at::HOST_RXKICK_AT), rx_kick_at(2, 0, LEN));
    // And the call.
    given(&m, 14);
    m.w(reg::RDT, 14);
    assert_eq!(m.counter("rx_frames"), u64::from(LEN) + 5);
    assert_eq!(get(&m, at::HOST_RXKICK_AT), NONE);
    assert_eq!(m.counter("csb_rx_sleeps"), 2);
}

/// Drivers of old have no barrier between their tail and their look at the flag.
#[test]
fn a_call_that_an_old_driver_loses_is_made_up_for() {
    let mut m = at_work();
    assert!(send(&mut m, 1));
    put(&m, at::GUEST_TDT, 5);
    m.sleep(10_000_000);
    assert_eq!(m.wire.take().len(), 5);
    let frame = plain(MAC, 60);
    m.offer(&vec![frame.as_slice(); LEN as usize]);
    put(&m, at::GUEST_RDT, 5);
    m.sleep(10_000_000);
    assert_eq!(m.counter("rx_frames"), u64::from(LEN));
    // Taken away, it is not looked into.
    assert!(m.armed().is_none());
    assert!(send(&mut m, 6));
    assert!(m.armed().is_some());
    m.w(u64::from(CSBAL), 0);
    assert_eq!(m.armed(), None);
    m.w(u64::from(CSBAL), BLOCK as u32);
    // At rest nothing ticks, not even where a guest leaves frames waiting.
    m.sleep(100_000_000);
    assert_eq!(m.armed(), None);
    m.offer(&vec![frame.as_slice(); LEN as usize]);
    m.sleep(100_000_000);
    assert_eq!(m.armed(), None);
}

#[test]
fn a_receiver_that_waits_finds_what_a_guest_gives_back_late_and_needs_no_call() {
    let mut m = at_work();
    let frame = plain(MAC, 60);
    m.offer(&vec![frame.as_slice(); LEN as usize + 4]);
    let got = u64::from(LEN - 1);
    assert_eq!(m.counter("rx_frames"), got);
    let kicks = m.counter("csb_kicks");
    // Again and again, as it is given back little by little and late.
    for (tail, frames) in [(1, 2), (3, 4)] {
        m.sleep(5_000_000);
        put(&m, at::GUEST_RDT, tail);
        m.sleep(1_000_000);
        assert_eq!(m.counter("rx_frames"), got + frames);
    }
    assert_eq!(m.counter("csb_kicks"), kicks);
    // Not for ever.
    m.sleep(20_000_000);
    assert_eq!(m.armed(), None);
    put(&m, at::GUEST_RDT, 4);
    m.sleep(20_000_000);
    assert_eq!(m.counter("rx_frames"), got + 4);
}

#[test]
fn the_block_goes_along_with_a_saved_nic() {
    let mut m = at_work();
    put(&m, at::HOST_TXCYCLES_LIM, 5);
    put(&m, at::GUEST_TDT, 1);
    m.nic
        .control
        .write(&m.env, 0, reg::TDT, &1u32.to_le_bytes());
    assert_eq!(m.nic.transmit.run(&m.env, &m.wire, 256), Progress::More);
    assert_eq!(get(&m, at::HOST_NEED_TXKICK), 0);
    let blob = m.nic.control.save(&m.env);
    let mut other = new(Config::new(MAC));
    let refused = other.control.load(&m.env, &blob).expect_err("no block");
    assert!(refused.to_string().contains("CSBAL"), "{refused}");
    m.nic = new(config());
    m.nic.control.load(&m.env, &blob).expect("loads");
    // It was awake and would not have been called for this.
    assert!(!send(&mut m, 3));
    m.wire.take();
    m.work();
    assert_eq!(m.wire.take().len(), 2);
    assert_eq!(get(&m, at::HOST_NEED_TXKICK), 1);
}
