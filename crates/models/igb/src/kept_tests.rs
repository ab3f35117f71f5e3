//! Two guests, one sending to the other, whose functions' process dies at every step it takes.

mod guests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use frame::Sink;
use intel::kept::rx::RX_MARK;
use intel::kept::tx::TX_MARK;
use model::{Env, KEPT, Kept, Nic, PciState, Progress};
use model_testkit::lives::{Cutting, To};
use model_testkit::{Silent, Time, death, memory};

use self::guests::{ALL, FIRST, Kind, RING, Receiver, Sender, rx_descriptor, tx_descriptor};
use crate::sriov::channel::{Grant, VfChannel};
use crate::{Config, pf, vf};

/// Each store that outlives the process.
#[derive(Debug)]
pub(crate) struct Steps;

impl intel::kept::Step for Steps {
    fn step() {
        death::step();
    }
}

const RAM: u64 = 0x10_0000;
const RAM_LEN: u64 = 0x10_0000;
const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

/// Which function both are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    Pf,
    Vf,
}

/// One function, its guest's memory, and what outlives its process.
struct Side {
    of: Of,
    mac: [u8; 6],
    env: Env,
    words: &'static [AtomicU64; KEPT],
    blob: Vec<u8>,
    nic: Nic,
}

impl Side {
    fn kept(words: &'static [AtomicU64; KEPT]) -> Kept {
        Kept::new(words, Arc::new(()))
    }

    /// One as its VMM has it before the guest begins.
    fn nic(of: Of, mac: [u8; 6], env: &Env) -> Nic {
        let mut config = Config::new(mac);
        config.negotiation = std::time::Duration::ZERO;
        let mut nic = match of {
            Of::Pf => pf(&config),
            Of::Vf => {
                let channel = VfChannel::new();
                channel.set_grant(Grant {
                    enabled: true,
                    link: true,
                    max_frame: 1518,
                    ..Grant::default()
                });
                vf(&config, channel)
            }
        };
        let on = PciState {
            bus_master: true,
            msix: true,
            ..PciState::default()
        };
        nic.control.pci(env, on);
        nic.control.attend(env);
        nic
    }

    fn new(of: Of, mac: [u8; 6]) -> Side {
        let words: &[AtomicU64; KEPT] = Box::leak(Box::new([const { AtomicU64::new(0) }; KEPT]));
        let env = Env {
            memory: memory(RAM, RAM_LEN),
            irq: Arc::new(Silent),
            clock: Arc::new(Time::default()),
            timer: Arc::new(Silent),
        };
        let mut nic = Self::nic(of, mac, &env);
        assert!(nic.control.keep(Self::kept(words)));
        Side {
            of,
            mac,
            env,
            words,
            blob: Vec::new(),
            nic,
        }
    }

    /// A register is written and answered.
    fn write(&mut self, at: u64, value: u32) {
        let bytes = value.to_le_bytes();
        self.nic.control.write(&self.env, 0, at, &bytes);
        if self.nic.control.take_changed() {
            self.blob = self.nic.control.save(&self.env);
        }
        self.nic.control.settled();
    }

    /// Another process goes on. Returns the frames that may be lost.
    fn revive(&mut self) -> Result<u64, model::StateError> {
        self.nic = Self::nic(self.of, self.mac, &self.env);
        let (env, words) = (&self.env, Self::kept(self.words));
        let lost = self.nic.control.recover(env, (&self.blob, 0), words)?;
        self.nic.control.settled();
        Ok(lost)
    }

    fn word(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        self.env.memory.view().read(at, &mut bytes).expect("inside");
        u64::from_le_bytes(bytes)
    }

    fn put(&self, at: u64, value: u64) {
        let view = self.env.memory.view();
        view.write(at, &value.to_le_bytes()).expect("inside");
    }

    fn bytes(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.env.memory.view().read(at, &mut bytes).expect("inside");
        bytes
    }
}

struct Host {
    sides: [Side; 2],
    /// One that cuts, and dies with them.
    switch: Option<Cutting>,
    sender: Sender,
    receiver: Receiver,
    /// Frames that may be lost.
    unsure: u64,
    torn: u64,
}

impl Host {
    fn new(of: Of, kind: Kind, torn: u64) -> Host {
        let mut host = Host {
            sides: MACS.map(|mac| Side::new(of, mac)),
            switch: None,
            sender: Sender::new(kind),
            receiver: Receiver::new(kind),
            unsure: 0,
            torn,
        };
        let [a, b] = &mut host.sides;
        // CTRL.SLU, TCTL.EN, RCTL.EN with the FCS stripped: a VF has other registers there, or none.
        if of == Of::Pf {
            a.write(0, 1 << 6);
            a.write(0x400, 2);
            b.write(0, 1 << 6);
            b.write(0x100, 2 | 1 << 3 | 1 << 26);
        }
        host.sender.start(a);
        host.receiver.start(b);
        host
    }

    /// What the guests do by themselves, and then say.
    fn guests(&mut self, post: u32) {
        self.receiver.consume(&self.sides[1]);
        self.sender.reclaim(&self.sides[0]);
        self.sender.post(&self.sides[0], post);
    }

    fn say(&mut self) {
        self.receiver.say(&mut self.sides[1]);
        self.sender.say(&mut self.sides[0]);
    }

    fn turn(&mut self) {
        let [a, b] = &mut self.sides;
        let to = || To(Arc::clone(&b.nic.receive), b.env.clone());
        let plain = to();
        let to: &dyn Sink = match self.sender.kind {
            Kind::Large => self.switch.get_or_insert_with(|| Cutting::new(to())),
            _ => &plain,
        };
        b.nic.receive.poll(&b.env);
        for _ in 0..6 {
            if a.nic.transmit.run(&a.env, to, 256) == Progress::Idle {
                break;
            }
        }
    }

    /// Some of what was being written back is, and the first is not.
    fn tear(&mut self) {
        let mut chance = self.torn;
        let mut some = || {
            chance = chance.rotate_right(1);
            self.torn != 0 && chance & 1 != 0
        };
        let open = |word: u64| word >> 63 != 0;
        let [a, b] = &self.sides;
        let word = |side: &Side, at: usize| side.words[at].load(Ordering::Relaxed);
        let rx = word(b, 0);
        let first = rx & 0xffff;
        if open(rx) && b.word(rx_descriptor(first) + 8) == RX_MARK {
            for at in first + 1..first + (rx >> 16 & 0xffff) {
                if some() {
                    b.put(rx_descriptor(at), 0xdead_0000_0000);
                    if some() {
                        b.put(rx_descriptor(at) + 8, 64 << 32 | 3);
                    }
                }
            }
        }
        for queue in 0..4 {
            let tx = word(a, 16 + queue as usize);
            let (head, next, marked) = (tx & 0xffff, tx >> 16 & 0xffff, tx >> 32 & 0xffff);
            let second = |at: u64| tx_descriptor(queue, at) + 8;
            let waits =
                tx >> 61 & 1 != 0 && a.word(second(marked)) >> 32 & 0xf == u64::from(TX_MARK);
            if open(tx) && tx >> 62 & 1 == 0 && waits {
                let mut at = head;
                while at != next {
                    let word = a.word(second(at));
                    if at != marked && word & guests::RS != 0 && some() {
                        a.put(second(at), word | 1 << 32);
                    }
                    at = (at + 1) % u64::from(RING);
                }
            }
        }
    }

    fn revive(&mut self, steps: u64) {
        self.switch = None;
        let went = death::living(steps, || {
            let lost = self
                .sides
                .iter_mut()
                .map(|side| side.revive().expect("sound"));
            lost.sum::<u64>()
        });
        match went {
            Some(lost) => self.unsure += lost,
            // Nothing is known of those of the one before: it did not come to tell.
            None => {
                self.unsure += 64;
                self.tear();
                self.revive(u64::MAX);
            }
        }
        death::live_on();
    }
}

/// Runs the script; the process dies after so many steps, and again as early when it is revived. Returns what was received, how many
/// frames may be lost, and whether it died.
fn run((of, kind): (Of, Kind), steps: u64, again: u64, torn: u64) -> (Vec<Vec<u8>>, u64, bool) {
    let mut host = Host::new(of, kind, torn);
    let mut left = steps;
    let mut died = false;
    let mut posted = 0;
    for round in 0..40 {
        let most = [1, 9, 3, 15, 2, 7][round % 6].min(FIRST - posted);
        let before = host.sender.next;
        host.guests(most);
        host.say();
        let lived = death::living(left, || host.turn());
        left = match died {
            true => u64::MAX,
            false => death::left(),
        };
        death::live_on();
        if lived.is_none() {
            (died, left) = (true, u64::MAX);
            host.tear();
            // The guests go on while nobody serves.
            host.guests(5.min(FIRST - posted - (host.sender.next - before)));
            host.revive(again);
            host.guests(0);
            host.say();
            host.turn();
        }
        posted += host.sender.next - before;
    }
    for _ in 0..40 {
        let before = host.sender.next;
        host.guests(ALL - posted);
        posted += host.sender.next - before;
        host.say();
        host.turn();
    }
    host.guests(0);
    host.sender.check();
    assert_eq!(posted, ALL, "all was posted");
    (host.receiver.got, host.unsure, died)
}

fn wherever_it_dies(of: Of, kind: Kind) {
    let case = (of, kind);
    let (undisturbed, ..) = run(case, u64::MAX, u64::MAX, 0);
    match kind {
        // Four of three segments, eight of four and four of five.
        Kind::Large => assert_eq!(undisturbed.len(), 64 + 10 + 64, "{case:?}"),
        _ => assert_eq!(undisturbed.len(), ALL as usize, "{case:?}"),
    }
    let mut deaths = 0;
    let some = 0xaaaa_5555_3333_cccc;
    let ways = [(u64::MAX, 0), (3, u64::MAX), (1, 0), (9, some)];
    let most = match kind {
        Kind::Mixed | Kind::Large => 4,
        _ => 2,
    };
    // Later ones come while it is passed over what was sent.
    let later = (11..40).step_by(6).filter(|_| kind == Kind::Large);
    let ways = ways.into_iter().take(most);
    for (again, torn) in ways.chain(later.map(|again| (again, some))) {
        for steps in 0.. {
            let (got, unsure, died) = run(case, steps, again, torn);
            let what = format!("{case:?} dead at step {steps}, again at {again}, torn {torn:x}");
            // Of queues each is in order.
            for queue in 0..2 {
                let of = |frames: &[Vec<u8>]| -> Vec<Vec<u8>> {
                    let own = |frame: &&Vec<u8>| kind.queue_of(frame) == queue;
                    frames.iter().filter(own).cloned().collect()
                };
                let (all, got) = (of(&undisturbed), of(&got));
                let mut left = all.iter();
                for frame in &got {
                    assert!(
                        left.any(|sent| sent == frame),
                        "{what}: not once, in order and whole"
                    );
                }
            }
            let lost = (undisturbed.len() - got.len()) as u64;
            assert!(lost <= unsure, "{what}: {lost} lost, {unsure} told");
            // No ring stands still: what is sent when nobody dies any more arrives.
            let behind = &undisturbed[undisturbed.len() - (ALL - FIRST) as usize..];
            assert!(behind.iter().all(|frame| got.contains(frame)), "{what}");
            if !died {
                break;
            }
            deaths += 1;
        }
    }
    assert!(deaths > 250, "{case:?}: {deaths}");
}

#[test]
fn runs_are_sent_at_most_once_wherever_the_process_dies() {
    wherever_it_dies(Of::Pf, Kind::Alike);
}

#[test]
fn reports_that_are_seldom_come_wherever_the_process_dies() {
    wherever_it_dies(Of::Pf, Kind::Seldom);
}

#[test]
fn contexts_are_as_they_were_wherever_the_process_dies() {
    wherever_it_dies(Of::Pf, Kind::Contexts);
}

#[test]
fn mixed_packets_are_sent_at_most_once_wherever_the_process_dies() {
    wherever_it_dies(Of::Pf, Kind::Mixed);
}

#[test]
fn heads_in_memory_are_as_they_were_wherever_the_process_dies() {
    wherever_it_dies(Of::Pf, Kind::HeadInMemory);
}

#[test]
fn split_headers_are_sent_at_most_once_wherever_the_process_dies() {
    wherever_it_dies(Of::Pf, Kind::Split);
}

#[test]
fn frames_in_several_buffers_are_whole_wherever_the_process_dies() {
    wherever_it_dies(Of::Pf, Kind::Long);
}

#[test]
fn queues_are_each_in_order_wherever_the_process_dies() {
    wherever_it_dies(Of::Pf, Kind::Queues);
}

#[test]
fn frames_of_vfs_are_sent_at_most_once_wherever_the_process_dies() {
    wherever_it_dies(Of::Vf, Kind::Mixed);
}

/// The words are another process's, which may have gone mad.
#[test]
fn words_that_nobody_leaves_are_refused_or_harmless() {
    use proptest::prelude::*;
    let words = proptest::collection::vec(
        (
            0..256usize,
            prop_oneof![any::<u64>(), 0..64u64, (0..64u32).prop_map(|n| 1 << n)],
        ),
        1..8,
    );
    proptest!(|(words in words, vf in any::<bool>())| {
        let of = if vf { Of::Vf } else { Of::Pf };
        let mut host = Host::new(of, Kind::Mixed, 0);
        host.guests(9);
        host.say();
        host.turn();
        for (at, value) in words {
            host.sides[0].words[at].store(value, Ordering::Relaxed);
            host.sides[1].words[at].store(value, Ordering::Relaxed);
        }
        for side in &mut host.sides {
            let _ = side.revive();
            side.nic.control.settled();
        }
        host.turn();
    });
}

#[test]
fn large_packets_are_cut_once_wherever_the_process_dies() {
    for of in [Of::Pf, Of::Vf] {
        wherever_it_dies(of, Kind::Large);
    }
}

/// Vectors that have spoken.
#[derive(Default)]
struct Heard(AtomicU64);

impl model::Interrupts for Heard {
    fn set_line(&self, _: bool) {}
    fn msi(&self, _: u16) {}
    fn msix(&self, vector: u16) {
        self.0.fetch_or(1 << vector, Ordering::Relaxed);
    }
}

/// Masks and gaps are as the guest wrote them last, also where that was not worth a saved state; in doubt a vector speaks.
#[test]
fn what_is_unmasked_speaks_when_another_process_goes_on() {
    for of in [Of::Pf, Of::Vf] {
        let mut side = Side::new(of, MACS[0]);
        let heard = Arc::new(Heard::default());
        side.env.irq = Arc::clone(&heard) as _;
        if of == Of::Pf {
            side.write(0x1514, 1 << 4 | 1 << 30);
        }
        // IVAR: what is received by vector 0, what is sent by 1. EIAC, EIAM.
        side.write(0x1700, 0x8180);
        side.write(0x152c, 3);
        side.write(0x1530, 3);
        assert!(!side.nic.control.take_changed());
        let write = |side: &mut Side, at: u64, value: u32| {
            let bytes = value.to_le_bytes();
            side.nic.control.write(&side.env, 0, at, &bytes);
            assert!(!side.nic.control.take_changed(), "{of:?}: {at:#x}");
        };
        // EIMS, EIMC, EITR: in the words alone.
        write(&mut side, 0x1524, 3);
        write(&mut side, 0x1528, 2);
        write(&mut side, 0x1680, 0x3e8);
        for times in 0..2 {
            heard.0.store(0, Ordering::Relaxed);
            side.revive().expect("sound");
            // It masks itself with its message, which the next process is not to take for the guest's will.
            assert_eq!(heard.0.load(Ordering::Relaxed), 1, "{of:?} {times}");
            let mut gap = [0; 4];
            side.nic.control.read(&side.env, 0, 0x1680, &mut gap);
            assert_eq!(u32::from_le_bytes(gap), 0x3e8);
        }
        assert!(side.nic.control.take_changed());
        write(&mut side, 0x1528, 1);
        heard.0.store(0, Ordering::Relaxed);
        side.revive().expect("sound");
        assert_eq!(heard.0.load(Ordering::Relaxed), 0, "{of:?}");
    }
}
