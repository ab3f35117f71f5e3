//! The fast path of the transmit side: packets of one descriptor that ask for nothing.
//!
//! Most packets are such: one data (or legacy) descriptor with EOP and IFCS, of a length that needs no
//! padding, in one piece of memory. For them the general walk ([`crate::tx::parser`]) would make a request,
//! a gather list and a plan only to find all of them empty. The fast path does what the walk would have
//! done, and leaves everything that is not exactly so to it; a test runs random rings through both.

use datapath::offload::{MAX_FRAME, MIN_FRAME};
use frame::Batch;
use guest_mem::ReadSlice;
use intel::SIZE;

use crate::core::tx_queue::{Mark, TxState};
use crate::tx::desc::cmd;
use crate::tx::parser::Parser;

/// Packets whose memory is asked for before the first of them is looked at: about as many cache
/// misses as a processor keeps under way.
const AHEAD: usize = 32;

/// A descriptor for the fast path: address, length, whether it is to be reported.
#[inline]
fn simple(raw: &[u8; SIZE as usize]) -> Option<(u64, u32, bool)> {
    const ASKS: u8 = cmd::IC | cmd::TSE | cmd::VLE | cmd::IDE;
    let both = u128::from_le_bytes(*raw);
    let (addr, rest) = (both as u64, (both >> 64) as u64);
    let command = (rest >> 24) as u8;
    if command & (cmd::EOP | cmd::IFCS | ASKS) != cmd::EOP | cmd::IFCS {
        return None;
    }
    let len = if command & cmd::DEXT == 0 {
        // A null address transfers no data.
        if addr == 0 {
            return None;
        }
        rest as u32 & 0xffff
    } else {
        let (kind, popts) = (rest >> 20 & 0xf, rest >> 40 & 0xff);
        if kind != 1 || popts != 0 {
            return None;
        }
        rest as u32 & 0xf_ffff
    };
    let fits = (MIN_FRAME..=MAX_FRAME).contains(&(len as usize));
    fits.then_some((addr, len, command & (cmd::RS | cmd::RPS) != 0))
}

impl<'v> Parser<'_, 'v> {
    /// Takes packets from the ring as long as they are for the fast path, at most `room` and no further
    /// than is fetched at once. Returns whether there was one. Between packets only; `pieces` is
    /// empty, and is again afterwards.
    pub(crate) fn fast_path(
        &mut self,
        state: &mut TxState,
        batch: &mut Batch<'v>,
        pieces: &mut Vec<ReadSlice<'v>>,
        room: usize,
        fetched: &mut u64,
    ) -> bool {
        let TxState {
            fetcher,
            marks,
            written,
            contexts,
            ..
        } = state;
        let ready = fetcher.get(self.view, &self.ring, self.at, self.left, fetched);
        let Ok(descs) = ready else {
            // The walk meets it too, and counts it.
            return false;
        };
        let memory = contexts.len() as u32 - 1;
        let mut alike = None;
        for raw in descs.iter().take(room.min(AHEAD)) {
            if self.is_full() {
                break;
            }
            let Some((addr, len, reported)) = simple(raw) else {
                break;
            };
            // Those that are not like the first are another run.
            if *alike.get_or_insert(reported) != reported {
                break;
            }
            let Some(slice) = self.view.read_run(addr, len.into()) else {
                break;
            };
            slice.prefetch();
            pieces.push(slice);
            self.gathered(len as usize);
        }
        let n = pieces.len() as u32;
        if n == 0 {
            return false;
        }
        let reported = alike == Some(true);
        if reported {
            // What is fetched at once does not go around the ring.
            written.extend(self.at..self.at + n);
            self.now = true;
        }
        self.at = self.ring.next(self.at + n - 1);
        self.left -= n;
        marks.push(Mark {
            frames: batch.len() as u32 + n,
            run: n,
            reported,
            next: self.at,
            memory,
            written: written.len() as u32,
            now: self.now,
            delayed: self.delayed,
            tso: None,
        });
        for slice in pieces.drain(..) {
            batch.push_frame(slice);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering::Relaxed;

    use frame::Caps;
    use model::{Env, Interrupts, Nanos, Nic, PciState, Timer};
    use model_testkit::{Time, Wire, memory};
    use parking_lot::Mutex;
    use proptest::prelude::*;

    use super::*;
    use crate::core::chip::Chip;
    use crate::{Config, with};

    const RAM: u64 = 0x10_0000;
    const RAM_LEN: u64 = 0x4_0000;
    const BUFFERS: u64 = RAM + 0x1000;
    const RING: u32 = 32;

    /// What a NIC did to the world, in order.
    #[derive(Default)]
    struct World {
        seen: Mutex<Vec<String>>,
    }

    impl Interrupts for World {
        fn set_line(&self, level: bool) {
            self.seen.lock().push(format!("line {level}"));
        }
        fn msi(&self, _: u16) {}
        fn msix(&self, _: u16) {}
    }

    impl Timer for World {
        fn arm(&self, deadline: Option<Nanos>) {
            self.seen.lock().push(format!("timer {deadline:?}"));
        }
    }

    struct Lab {
        nic: Nic,
        env: Env,
        world: Arc<World>,
        time: Arc<Time>,
        wire: Wire,
    }

    impl Lab {
        fn new(fast_path: bool) -> Lab {
            let mut config = Config::new([0x52, 0x54, 0, 0, 0, 1]);
            config.negotiation = std::time::Duration::ZERO;
            let mut chip = Chip::new(&config);
            chip.fast_path = fast_path;
            let world = Arc::new(World::default());
            let time = Arc::new(Time::default());
            let wire = Wire::with(Caps::ALL);
            wire.set_room(0);
            let memory = memory(RAM, RAM_LEN);
            // Byte by byte takes Miri long.
            let filled = if cfg!(miri) { 0x1000 } else { RAM_LEN - 0x1000 };
            let bytes: Vec<u8> = (0..filled).map(|i| (i / 7) as u8).collect();
            memory.view().write(BUFFERS, &bytes).expect("inside");
            let env = Env {
                memory,
                irq: world.clone(),
                clock: time.clone(),
                timer: world.clone(),
            };
            let mut lab = Lab {
                nic: with(&config, Arc::new(chip)),
                env,
                world,
                time,
                wire,
            };
            let on = PciState {
                bus_master: true,
                ..PciState::default()
            };
            lab.nic.control.pci(&lab.env, on);
            // CTRL.SLU, TDBAL, TDLEN, IMS.
            let ring = RING * SIZE as u32;
            for (at, value) in [
                (0, 1 << 6),
                (0x3800, RAM as u32),
                (0x3808, ring),
                (0xd0, 0x8003),
            ] {
                lab.write(at, value);
            }
            lab
        }

        fn write(&mut self, at: u64, value: u32) {
            self.nic
                .control
                .write(&self.env, 0, at, &value.to_le_bytes());
        }

        fn step(&mut self, step: &Step) {
            let view = self.env.memory.view();
            for (at, desc) in &step.descs {
                let at = RAM + u64::from(*at) * SIZE;
                view.write(at, &desc.raw().to_le_bytes()).expect("inside");
            }
            drop(view);
            self.wire.room.fetch_add(step.room, Relaxed);
            self.time.now.fetch_add(1000, Relaxed);
            // TCTL with and without padding, CTRL with and without tags.
            self.write(0x400, 2 | u32::from(step.pad) << 3);
            self.write(0, 1 << 6 | u32::from(step.tags) << 30);
            self.write(0x3818, step.tail);
            let end = self.nic.transmit.run(&self.env, &self.wire, step.budget);
            self.world.seen.lock().push(format!("{end:?}"));
        }

        fn counters(&self) -> Vec<(&'static str, u64)> {
            let mut all = Vec::new();
            self.nic
                .control
                .counters(&mut |name, n| all.push((name, n)));
            all
        }
    }

    #[derive(Clone, Debug)]
    struct Desc {
        addr: u64,
        len: u32,
        /// None: legacy.
        kind: Option<u8>,
        cmd: u8,
        popts: u8,
        special: u16,
    }

    impl Desc {
        fn raw(&self) -> u128 {
            let kind = match self.kind {
                Some(kind) => u64::from(kind) << 20 | 1 << 29,
                None => 0,
            };
            let len = u64::from(self.len)
                & if self.kind.is_some() {
                    0xf_ffff
                } else {
                    0xffff
                };
            let rest = len
                | kind
                | u64::from(self.cmd & !cmd::DEXT) << 24
                | u64::from(self.popts) << 40
                | u64::from(self.special) << 48;
            u128::from(self.addr) | u128::from(rest) << 64
        }
    }

    fn desc() -> impl Strategy<Value = Desc> {
        let inside = (0..RAM_LEN - 0x2000).prop_map(|at| BUFFERS + at);
        let addr = prop_oneof![
            12 => inside,
            1 => Just(0),
            1 => Just(RAM + RAM_LEN - 70),
            1 => any::<u64>(),
        ];
        let len = prop_oneof![
            6 => 60..200u32,
            2 => 1000..1600u32,
            1 => 0..70u32,
            1 => 16_280..16_300u32,
            1 => any::<u32>(),
        ];
        let kind = prop_oneof![4 => Just(None), 4 => Just(Some(1)), 1 => (0..4u8).prop_map(Some)];
        let plain = prop_oneof![
            Just(cmd::EOP | cmd::IFCS),
            Just(cmd::EOP | cmd::IFCS | cmd::RS)
        ];
        let command = prop_oneof![6 => plain, 2 => any::<u8>()];
        let popts = prop_oneof![6 => Just(0), 1 => any::<u8>()];
        (addr, len, kind, command, popts, any::<u16>()).prop_map(
            |(addr, len, kind, cmd, popts, special)| Desc {
                addr,
                len,
                kind,
                cmd,
                popts,
                special,
            },
        )
    }

    #[derive(Clone, Debug)]
    struct Step {
        descs: Vec<(u32, Desc)>,
        tail: u32,
        room: usize,
        budget: usize,
        pad: bool,
        tags: bool,
    }

    fn step() -> impl Strategy<Value = Step> {
        let descs = proptest::collection::vec((0..RING, desc()), 0..40);
        let often = prop_oneof![3 => Just(40usize), 1 => 0..10usize];
        let budget = prop_oneof![3 => Just(256usize), 1 => 1..10usize];
        (descs, 0..RING, often, budget, any::<bool>(), any::<bool>()).prop_map(
            |(descs, tail, room, budget, pad, tags)| Step {
                descs,
                tail,
                room,
                budget,
                pad,
                tags,
            },
        )
    }

    proptest! {
        #[test]
        fn fast_path_and_parser_do_the_same(steps in proptest::collection::vec(step(), 1..12)) {
            let mut labs = [Lab::new(true), Lab::new(false)];
            for step in &steps {
                for lab in &mut labs {
                    lab.step(step);
                }
            }
            let [a, b] = &labs;
            prop_assert_eq!(a.wire.take_notes(), b.wire.take_notes());
            prop_assert_eq!(&*a.world.seen.lock(), &*b.world.seen.lock());
            prop_assert_eq!(a.counters(), b.counters());
            prop_assert!(a.nic.control.save(&a.env) == b.nic.control.save(&b.env), "registers or state");
            let ring = |lab: &Lab| {
                let mut bytes = vec![0; (u64::from(RING) * SIZE) as usize];
                lab.env.memory.view().read(RAM, &mut bytes).expect("inside");
                bytes
            };
            prop_assert_eq!(ring(a), ring(b));
        }
    }
}
