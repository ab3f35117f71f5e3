//! Two guests with an RTL8168C each, beside [`Pair`](super::Pair): one sends, the other receives. Its driver's part is
//! more than an 82540EM's: it writes OWN into each descriptor again, both ways.

use std::sync::Arc;

use model::{Env, Nic, PciState, Progress};
use model_testkit::{Silent, memory};
use r8169::{BAR_MMIO, Config};
use vale::{Keeper, PortConfig, Switch, SwitchConfig, SwitchPort};

use super::{BUFFERS, NicSink, RAM, RX_RING, RealTime, TX_RING, frame, keep, mac};
use crate::spec::Spec;

const TX_BASE: u64 = 0x20;
const CHIP_CMD: u64 = 0x37;
pub(super) const TX_POLL: u64 = 0x38;
const RX_CONFIG: u64 = 0x44;
const RX_MAX_SIZE: u64 = 0xda;
const RX_BASE: u64 = 0xe4;

const OWN: u32 = 1 << 31;
const EOR: u32 = 1 << 30;
const FS: u32 = 1 << 29;
const LS: u32 = 1 << 28;
const STRIDE: u64 = 2048;

pub(super) struct Guest {
    pub(super) nic: Nic,
    pub(super) env: Env,
    pub(super) port: Arc<SwitchPort>,
    /// Both rings as they are given to the device.
    to_send: Vec<u8>,
    given: Vec<u8>,
    pub(super) next: u32,
}

/// A descriptor that is the device's.
fn desc(index: u32, ring: u32, opts1: u32, addr: u64) -> [u8; 16] {
    let end = if index + 1 == ring { EOR } else { 0 };
    let mut raw = [0; 16];
    raw[..4].copy_from_slice(&(OWN | end | opts1).to_le_bytes());
    raw[8..].copy_from_slice(&addr.to_le_bytes());
    raw
}

impl Guest {
    fn new(switch: &Switch, number: u16, to: u16, spec: &Spec) -> Guest {
        let ring = spec.ring;
        let len = BUFFERS - RAM + 2 * u64::from(ring) * STRIDE;
        let env = Env {
            memory: memory(RAM, len),
            irq: Arc::new(Silent),
            clock: Arc::new(RealTime::begin()),
            timer: Arc::new(Silent),
        };
        let mut config = Config::new(mac(number));
        config.negotiation = std::time::Duration::ZERO;
        config.csb = spec.csb;
        let mut nic = r8169::new(config);
        if spec.kept {
            keep(&mut nic);
        }
        let sink = NicSink {
            receive: Arc::clone(&nic.receive),
            env: env.clone(),
        };
        let port = switch
            .attach(&format!("n{number}"), Arc::new(sink), PortConfig::default())
            .expect("a free port");
        let buffer = |i: u32| BUFFERS + u64::from(i) * STRIDE;
        let opts1 = FS | LS | spec.size as u32;
        let to_send = (0..ring).flat_map(|i| desc(i, ring, opts1, buffer(i)));
        let given = (0..ring).flat_map(|i| desc(i, ring, STRIDE as u32 - 8, buffer(ring + i)));
        let mut guest = Guest {
            nic,
            env,
            port,
            to_send: to_send.collect(),
            given: given.collect(),
            next: 0,
        };
        let view = guest.env.memory.view();
        for i in 0..ring {
            let bytes = frame(number, to, spec.size, spec);
            view.write(buffer(i), &bytes).expect("inside of RAM");
        }
        let last = TX_RING + u64::from(ring - 1) * 16;
        view.write(last, &EOR.to_le_bytes()).expect("inside of RAM");
        view.write(RX_RING, &guest.given).expect("inside of RAM");
        drop(view);
        let on = PciState {
            bus_master: true,
            ..PciState::default()
        };
        guest.nic.control.pci(&guest.env, on);
        // APM and AB.
        for (at, value) in [
            (TX_BASE + 4, 0),
            (TX_BASE, TX_RING as u32),
            (RX_BASE + 4, 0),
            (RX_BASE, RX_RING as u32),
            (RX_CONFIG, 0xe70a),
        ] {
            guest.write(at, &value.to_le_bytes());
        }
        guest.write(RX_MAX_SIZE, &0x4000_u16.to_le_bytes());
        guest.write(CHIP_CMD, &[0x0c]);
        // As after an answer.
        guest.nic.control.settled();
        guest
    }

    pub(super) fn write(&mut self, at: u64, data: &[u8]) {
        self.nic.control.write(&self.env, BAR_MMIO, at, data);
        let work = self.nic.control.take_work();
        if work.tx {
            let run = |nic: &mut Nic, env: &Env, port: &SwitchPort| {
                nic.transmit.run(env, port, frame::MAX_BATCH)
            };
            while run(&mut self.nic, &self.env, &self.port) == Progress::More {}
        }
        if work.rx {
            self.nic.receive.poll(&self.env);
        }
    }

    /// Gives the next `n` descriptors of a ring to the device again, without the doorbell that only one of them has.
    pub(super) fn give(&mut self, at: u64, n: u32) {
        let given = if at == TX_RING {
            &self.to_send
        } else {
            &self.given
        };
        let ring = (given.len() / 16) as u32;
        let straight = n.min(ring - self.next);
        let view = self.env.memory.view();
        for (from, n) in [(self.next, straight), (0, n - straight)] {
            if n == 0 {
                continue;
            }
            let bytes = from as usize * 16..(from + n) as usize * 16;
            let at = at + bytes.start as u64;
            view.write(at, &given[bytes]).expect("inside of RAM");
        }
        self.next = (self.next + n) % ring;
    }
}

/// Two guests on a switch.
pub struct RealtekPair {
    pub(super) burst: u32,
    pub(super) from: Guest,
    pub(super) to: Guest,
    pub(super) clock: RealTime,
    _keeper: Keeper,
}

impl RealtekPair {
    /// Sets everything up and has the switch learn both addresses.
    ///
    /// # Panics
    /// When the machine has no memory or thread left.
    pub fn new(spec: Spec) -> RealtekPair {
        let clock = RealTime::begin();
        let switch = Switch::new(SwitchConfig::default(), clock.of_turns());
        let keeper = Keeper::start(&switch).expect("a thread");
        let from = Guest::new(&switch, 1, 2, &spec);
        let mut to = Guest::new(&switch, 2, 1, &spec);
        to.give(TX_RING, 1);
        to.write(TX_POLL, &[0x40]);
        // From here on it counts its receive ring.
        to.next = 0;
        let mut pair = RealtekPair {
            burst: spec.burst(),
            from,
            to,
            clock,
            _keeper: keeper,
        };
        for _ in 0..2 * spec.ring {
            pair.burst();
        }
        pair
    }

    /// One doorbell's worth: the sender hands over a burst, the receiver gives as many buffers back.
    #[inline(never)]
    pub fn burst(&mut self) {
        self.clock.in_turn(|| {
            self.from.give(TX_RING, self.burst);
            self.from.write(TX_POLL, &[0x40]);
            self.to.give(RX_RING, self.burst);
        });
    }

    /// What the drivers do of a burst, without a doorbell: they write the same descriptors. Returns how many frames that is.
    #[inline(never)]
    pub fn drive(&mut self) -> u64 {
        self.from.give(TX_RING, self.burst);
        self.to.give(RX_RING, self.burst);
        self.burst.into()
    }

    /// Frames that have arrived so far.
    pub fn arrived(&self) -> u64 {
        let mut found = 0;
        self.to.nic.control.counters(&mut |name, value| {
            if name == "rx_frames" {
                found = value;
            }
        });
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_sent_arrives() {
        for (size, burst) in [(60, 1), (60, 32), (1514, 32), (60, 128)] {
            let plain = Spec::frames(size, 256, burst);
            for spec in [plain, plain.kept()] {
                let mut pair = RealtekPair::new(spec);
                let before = pair.arrived();
                for _ in 0..50 {
                    pair.burst();
                }
                assert_eq!(pair.arrived() - before, 50 * u64::from(burst), "{spec:?}");
            }
        }
    }
}
