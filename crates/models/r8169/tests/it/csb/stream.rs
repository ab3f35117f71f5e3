//! What a stream costs a driver: register accesses, and notifications either way. The driver does what the patched one of
//! Linux does (`guest/linux`), and time is the test's.

use super::{RXKICK, at_work_with, config, get, put};
use crate::common::*;
use csb::{at, passes};
use model::Progress;

/// As many descriptors as Linux has.
const RING: u32 = 256;
/// A step of time, after which the NIC takes a turn, and after how many the driver polls.
const STEP: u64 = 50_000;
const GAP: u32 = 5;
/// Packets of a poll that is followed by another one, without an interrupt.
const STREAM: u32 = 4;

struct Driver {
    m: Machine,
    /// With a block, or as the stock one does.
    csb: bool,
    cur_tx: u32,
    dirty_tx: u32,
    cur_rx: u32,
    accesses: u64,
    calls: u64,
    interrupts: u64,
    received: u64,
    /// Steps until the next poll; none while an interrupt is waited for.
    poll_in: Option<u32>,
    /// The NIC looks by itself.
    polls: bool,
}

impl Driver {
    fn new(csb: bool) -> Driver {
        let mut m = at_work_with(config(), RING);
        m.pci(true, false);
        if csb {
            put(&m, at::HOST_TXCYCLES_LIM, 64);
        } else {
            m.w32(super::CSBAL, 0);
        }
        m.take_isr();
        m.messages();
        Driver {
            m,
            csb,
            cur_tx: 0,
            dirty_tx: 0,
            cur_rx: 0,
            accesses: 0,
            calls: 0,
            interrupts: 0,
            received: 0,
            poll_in: None,
            polls: true,
        }
    }

    fn w8(&mut self, at: u64, value: u8) {
        self.accesses += 1;
        self.m.nic.control.write(&self.m.env, 2, at, &[value]);
    }

    fn call_tx(&mut self) {
        self.w8(reg::TX_POLL, 0x40);
        self.calls += 1;
    }

    /// A packet of one descriptor.
    fn send(&mut self) {
        if self.cur_tx.wrapping_sub(self.dirty_tx) == RING - 1 {
            return;
        }
        let index = self.cur_tx % RING;
        let end = if index + 1 == RING { EOR } else { 0 };
        self.m.tx_desc(index, OWN | end | BOTH | 60, 0, TX_BUFFERS);
        self.cur_tx += 1;
        if !self.csb {
            return self.call_tx();
        }
        put(&self.m, at::GUEST_TDT, self.cur_tx % RING);
        if get(&self.m, at::HOST_NEED_TXKICK) != 0 {
            put(&self.m, at::HOST_NEED_TXKICK, 0);
            self.call_tx();
        }
        // A quarter of the ring is sent: it asks for a poll.
        let sent = get(&self.m, at::HOST_TDH).wrapping_sub(self.dirty_tx % RING) % RING;
        if sent >= RING / 4 {
            self.poll_in = Some(0);
        }
    }

    fn interrupt(&mut self) {
        self.interrupts += 1;
        // ISR is read and acknowledged; without a block IMR is 0 until the poll has ended.
        self.accesses += 2;
        if self.csb {
            put(&self.m, at::GUEST_NEED_RXKICK, 0);
        } else {
            self.accesses += 1;
            self.m.w16(reg::IMR, 0);
        }
        self.m.take_isr();
        self.poll_in = Some(0);
    }

    fn poll(&mut self) {
        self.poll_in = None;
        if self.csb {
            put(&self.m, at::GUEST_NEED_RXKICK, 0);
        }
        while self.dirty_tx != self.cur_tx && self.m.tx_words(self.dirty_tx % RING).0 & OWN == 0 {
            self.dirty_tx += 1;
        }
        let (mut got, old) = (0, self.cur_rx % RING);
        while self.m.rx_words(self.cur_rx % RING).0 & OWN == 0 && got < 64 {
            let index = self.cur_rx % RING;
            let end = if index + 1 == RING { EOR } else { 0 };
            let at = RX_BUFFERS + u64::from(index) * 0x800;
            self.m.rx_desc(index, OWN | end | 1536, at);
            self.cur_rx += 1;
            got += 1;
        }
        self.received += u64::from(got);
        if self.csb {
            put(&self.m, at::GUEST_RDT, self.cur_rx % RING);
            let place = get(&self.m, at::HOST_RXKICK_AT);
            if passes(old, self.cur_rx % RING, place, RING) {
                self.accesses += 1;
                self.calls += 1;
                self.m.w32(RXKICK, 0);
            }
        }
        if got == 64 {
            self.poll_in = Some(0);
        } else if !self.csb {
            self.accesses += 1;
            self.m.w16(reg::IMR, ROK | TOK | LINK_CHG);
        } else if got >= STREAM {
            self.poll_in = Some(GAP);
        } else {
            put(&self.m, at::GUEST_NEED_RXKICK, 1);
            if self.m.rx_words(self.cur_rx % RING).0 & OWN == 0 {
                self.poll_in = Some(0);
            }
        }
        // What is sent is looked at in a while.
        if self.csb && self.dirty_tx != self.cur_tx {
            self.poll_in = Some(self.poll_in.unwrap_or(4 * GAP).min(4 * GAP));
        }
    }

    /// Time passes.
    fn step(&mut self) {
        if self.m.nic.control.take_work().tx || self.polls {
            let progress = self.m.nic.transmit.run(&self.m.env, &self.m.wire, 256);
            self.polls = progress == Progress::More;
        }
        self.m.wire.take();
        self.m.sleep(STEP);
        if self.m.messages() > 0 {
            self.interrupt();
        }
        match self.poll_in {
            Some(0) => self.poll(),
            Some(n) => self.poll_in = Some(n - 1),
            None => {}
        }
    }

    fn per_packet(&self, packets: u64) -> (f64, f64) {
        let per = |n: u64| n as f64 / packets as f64;
        (per(self.accesses), per(self.calls + self.interrupts))
    }
}

/// 200 000 packets a second, with a pause of a millisecond after each thousand.
fn sent(csb: bool) -> (f64, f64) {
    let mut driver = Driver::new(csb);
    driver.m.poke(TX_BUFFERS, &plain(PEER, 60));
    for burst in 0..5000 {
        (0..10).for_each(|_| driver.send());
        driver.step();
        if burst % 100 == 99 {
            (0..20).for_each(|_| driver.step());
        }
    }
    (0..100).for_each(|_| driver.step());
    assert_eq!(driver.m.counter("tx_frames"), driver.cur_tx.into());
    assert_eq!(driver.cur_tx, 50_000, "the ring had room for all");
    driver.per_packet(driver.cur_tx.into())
}

/// The same of received packets.
fn received(csb: bool) -> (f64, f64) {
    let mut driver = Driver::new(csb);
    let frame = plain(MAC, 60);
    for burst in 0..5000 {
        driver.m.offer(&[&frame[..]; 10]);
        driver.step();
        if burst % 100 == 99 {
            (0..20).for_each(|_| driver.step());
        }
    }
    (0..100).for_each(|_| driver.step());
    assert_eq!(driver.received, 50_000, "none is left");
    assert_eq!(driver.received, driver.m.counter("rx_frames"));
    driver.per_packet(driver.received)
}

#[test]
fn a_stream_costs_hardly_an_access() {
    for (way, of) in [("sent", sent as fn(bool) -> _), ("received", received)] {
        let (stock, ours) = (of(false), of(true));
        println!("{way}: stock {stock:?}, CSB {ours:?} (accesses, notifications)");
        let (accesses, notifications) = ours;
        assert!(accesses <= 0.01, "{way}: {accesses}");
        assert!(notifications <= 0.002, "{way}: {notifications}");
        assert!(stock.0 > 10.0 * accesses && stock.1 > notifications);
    }
}
