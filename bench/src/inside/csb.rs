//! The same two guests where tails are in a Communication Status Block: a burst costs its guest a store and no register write, as
//! long as the NIC is awake, and the NIC's worker looks at the block.

use csb::{CSBAH, CSBAL, NONE, at, passes};
use intel_offsets::e1000::long::{RDT, TDT};
use model::{Env, Nic, Progress};
use vale::SwitchPort;

use super::realtek::{self, RealtekPair};
use super::{Guest, Pair, RAM, RX_RING, TX_RING};
use crate::spec::Spec;

/// Where the block is in a guest's memory, between its rings and its buffers.
const BLOCK: u64 = RAM + 0x8_0000;
/// Looks in vain before a transmitter sleeps: it never does.
const AWAKE: u32 = 64;

/// Of an RTL8168C: where the block's address goes, and the call for buffers.
const REALTEK_CSBAL: u64 = 0xa0;
const REALTEK_CSBAH: u64 = 0xa4;
const RXKICK: u64 = 0xa8;

fn load(env: &Env, word: u32) -> u32 {
    let mut bytes = [0; 4];
    let view = env.memory.view();
    let read = view.read(BLOCK + u64::from(word), &mut bytes);
    read.expect("inside of RAM");
    u32::from_le_bytes(bytes)
}

fn store(env: &Env, word: u32, value: u32) {
    let view = env.memory.view();
    let written = view.write(BLOCK + u64::from(word), &value.to_le_bytes());
    written.expect("inside of RAM");
}

/// The block as a driver gives it to its NIC, whose rings stand there.
fn prepare(env: &Env, sent: u32, given: u32) {
    for (word, value) in [
        (at::GUEST_TDT, sent),
        (at::GUEST_RDT, given),
        (at::HOST_NEED_TXKICK, 1),
        (at::HOST_TXCYCLES_LIM, AWAKE),
        (at::HOST_RXKICK_AT, NONE),
        (at::GUEST_CSB_ON, 1),
    ] {
        store(env, word, value);
    }
}

/// Frames up to `tail` are to be sent. Whether the NIC is to be called.
fn sends(env: &Env, tail: u32) -> bool {
    store(env, at::GUEST_TDT, tail);
    let calls = load(env, at::HOST_NEED_TXKICK) != 0;
    if calls {
        store(env, at::HOST_NEED_TXKICK, 0);
    }
    calls
}

/// Buffers up to `tail` are the NIC's. Whether it is to be called.
fn gives(env: &Env, tail: u32, ring: u32) -> bool {
    let before = load(env, at::GUEST_RDT);
    store(env, at::GUEST_RDT, tail);
    let calls = passes(before, tail, load(env, at::HOST_RXKICK_AT), ring);
    if calls {
        store(env, at::HOST_RXKICK_AT, NONE);
    }
    calls
}

/// Turns of a NIC that is awake, until all up to `tail` is sent: one, as a rule.
fn turns(nic: &mut Nic, env: &Env, port: &SwitchPort, tail: u32) {
    while nic.transmit.run(env, port, frame::MAX_BATCH) == Progress::More
        && load(env, at::HOST_TDH) != tail
    {}
}

impl Guest {
    fn send(&mut self, tail: u32) {
        self.tail = tail;
        if sends(&self.env, tail) {
            self.nic
                .control
                .write(&self.env, 0, TDT, &tail.to_le_bytes());
            self.nic.control.take_work();
        }
        turns(&mut self.nic, &self.env, &self.port, tail);
    }

    fn give_by_block(&mut self, ring: u32, n: u32) {
        self.room = (self.room + n) % ring;
        if gives(&self.env, self.room, ring) {
            self.write(RDT, self.room);
        }
    }
}

/// Two guests with an 82540EM each.
pub struct CsbPair(Pair);

impl CsbPair {
    /// Sets everything up, without the block at first.
    ///
    /// # Panics
    /// As [`Pair::new`].
    pub fn new(spec: Spec) -> CsbPair {
        let mut pair = CsbPair(Pair::new(spec.with_csb()));
        let Pair { from, to, .. } = &mut pair.0;
        for guest in std::iter::once(from).chain(to) {
            prepare(&guest.env, guest.tail, guest.room);
            for (register, value) in [(CSBAH, 0), (CSBAL, BLOCK as u32)] {
                let (env, data) = (&guest.env, u32::to_le_bytes(value));
                guest.nic.control.write(env, 0, register.into(), &data);
            }
            guest.nic.control.take_work();
            guest.nic.control.settled();
        }
        for _ in 0..2 * spec.ring {
            pair.burst();
        }
        pair
    }

    /// As [`Pair::burst`].
    #[inline(never)]
    pub fn burst(&mut self) {
        let Pair {
            from,
            to,
            spec,
            clock,
            burst,
            ..
        } = &mut self.0;
        clock.in_turn(|| {
            from.send((from.tail + *burst) % spec.ring);
            to[0].give_by_block(spec.ring, *burst);
        });
    }

    /// Frames that have arrived so far.
    pub fn arrived(&self) -> u64 {
        self.0.arrived()
    }

    #[cfg(test)]
    fn calls(&self) -> u64 {
        self.0.from.counter("csb_kicks") + self.0.to[0].counter("csb_kicks")
    }
}

impl realtek::Guest {
    fn send(&mut self, n: u32) {
        self.give(TX_RING, n);
        let tail = self.next;
        if sends(&self.env, tail) {
            let (env, at) = (&self.env, r8169::BAR_MMIO);
            self.nic.control.write(env, at, realtek::TX_POLL, &[0x40]);
            self.nic.control.take_work();
        }
        turns(&mut self.nic, &self.env, &self.port, tail);
    }

    fn give_by_block(&mut self, ring: u32, n: u32) {
        self.give(RX_RING, n);
        if gives(&self.env, self.next, ring) {
            self.write(RXKICK, &1_u32.to_le_bytes());
        }
    }
}

/// Two guests with an RTL8168C each.
pub struct RealtekCsbPair {
    pair: RealtekPair,
    ring: u32,
}

impl RealtekCsbPair {
    /// Sets everything up, without the block at first.
    ///
    /// # Panics
    /// As [`RealtekPair::new`].
    pub fn new(spec: Spec) -> RealtekCsbPair {
        let mut pair = RealtekCsbPair {
            pair: RealtekPair::new(spec.with_csb()),
            ring: spec.ring,
        };
        for guest in [&mut pair.pair.from, &mut pair.pair.to] {
            prepare(&guest.env, guest.next, guest.next);
            for (register, value) in [(REALTEK_CSBAH, 0), (REALTEK_CSBAL, BLOCK as u32)] {
                let (env, data) = (&guest.env, u32::to_le_bytes(value));
                let control = &mut guest.nic.control;
                control.write(env, r8169::BAR_MMIO, register, &data);
            }
            guest.nic.control.take_work();
            guest.nic.control.settled();
        }
        for _ in 0..2 * spec.ring {
            pair.burst();
        }
        pair
    }

    /// As [`RealtekPair::burst`].
    #[inline(never)]
    pub fn burst(&mut self) {
        let RealtekPair {
            burst,
            from,
            to,
            clock,
            ..
        } = &mut self.pair;
        clock.in_turn(|| {
            from.send(*burst);
            to.give_by_block(self.ring, *burst);
        });
    }

    /// Frames that have arrived so far.
    pub fn arrived(&self) -> u64 {
        self.pair.arrived()
    }

    #[cfg(test)]
    fn calls(&self) -> u64 {
        let mut found = 0;
        for nic in [&self.pair.from.nic, &self.pair.to.nic] {
            nic.control.counters(&mut |name, value| {
                if name == "csb_kicks" {
                    found += value;
                }
            });
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BURSTS: u32 = 50;

    /// Frames that arrive and calls that are made, of so many bursts.
    fn of<P>(mut pair: P, burst: impl Fn(&mut P), count: impl Fn(&P) -> (u64, u64)) -> (u64, u64) {
        let before = count(&pair);
        (0..BURSTS).for_each(|_| burst(&mut pair));
        let after = count(&pair);
        (after.0 - before.0, after.1 - before.1)
    }

    #[test]
    fn all_that_is_sent_arrives_and_nobody_calls() {
        for (size, burst) in [(60, 1), (60, 32), (1514, 32), (60, 128)] {
            let plain = Spec::frames(size, 256, burst);
            for spec in [plain, plain.kept()] {
                let want = (u64::from(BURSTS * burst), 0);
                let intel = of(CsbPair::new(spec), CsbPair::burst, |pair| {
                    (pair.arrived(), pair.calls())
                });
                assert_eq!(intel, want, "{spec:?}");
                let realtek = of(RealtekCsbPair::new(spec), RealtekCsbPair::burst, |pair| {
                    (pair.arrived(), pair.calls())
                });
                assert_eq!(realtek, want, "{spec:?}");
            }
        }
    }
}
