//! A switch of three ports that tests send through, in the short ways or without them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use frame::{Batch, Caps, Mix, Run, Sink, Wake};
use model_testkit::{in_groups, in_mixes};
use parking_lot::Mutex;
use proptest::prelude::*;
use wire::{Csum, Gso, MacAddr, Offload};

use crate::{PortConfig, Switch, SwitchConfig, SwitchPort};

/// Takes as many frames as it has room for.
#[derive(Default)]
pub(crate) struct Room {
    pub left: AtomicUsize,
    pub got: Mutex<Vec<(Vec<u8>, Offload)>>,
    caps: Caps,
    pub declines: bool,
    pub given_up: AtomicUsize,
}

impl Sink for Room {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let n = self.left.load(Relaxed).min(picks.len());
        self.left.fetch_sub(n, Relaxed);
        let frames = picks[..n].iter().filter_map(|p| batch.get((*p).into()));
        let seen = frames.map(|f| (f.to_vec(), *f.notes()));
        self.got.lock().extend(seen);
        n
    }
    fn deliver_run(&self, run: &Run<'_>) -> Option<usize> {
        // Some take none.
        if self.declines {
            return None;
        }
        let n = self.left.load(Relaxed).min(run.count());
        self.left.fetch_sub(n, Relaxed);
        let frames = (0..n).filter_map(|i| Some((run.to_vec(i)?, Offload::NONE)));
        self.got.lock().extend(frames);
        Some(n)
    }
    fn caps(&self) -> Caps {
        self.caps
    }
    fn want_room(&self, _: &Arc<dyn Wake>) {}
    fn give_up(&self, _: &Batch<'_>, picks: &[u16]) {
        self.given_up.fetch_add(picks.len(), Relaxed);
    }
}

struct Nobody;

impl Wake for Nobody {
    fn wake(&self) {}
}

pub(crate) const PORTS: usize = 3;

/// What its ports are like.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kind {
    /// Which of them lead into the mesh.
    pub mesh: [bool; PORTS],
    /// The station that is fixed to the first one.
    pub fixed: Option<u64>,
}

pub(crate) fn kind() -> impl Strategy<Value = Kind> {
    let fixed = proptest::option::of(0..4u64);
    (any::<[bool; PORTS]>(), fixed).prop_map(|(mesh, fixed)| Kind { mesh, fixed })
}

/// The address of station `n`; 9 is everybody.
fn station(n: u64) -> MacAddr {
    MacAddr::from_u64(if n == 9 {
        0xffff_ffff_ffff
    } else {
        0x0200_0000_0000 | n
    })
}

pub(crate) struct Lab {
    pub switch: Switch,
    now: Arc<std::sync::atomic::AtomicU64>,
    pub sinks: Vec<Arc<Room>>,
    pub ports: Vec<Arc<SwitchPort>>,
    /// Frames that are alike are offered as runs.
    runs: bool,
}

impl Lab {
    /// One whose last port takes no runs.
    pub(crate) fn new(direct: bool) -> Lab {
        Lab::of(direct, true, Kind::default())
    }

    pub(crate) fn of(direct: bool, declines: bool, kind: Kind) -> Lab {
        let now = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let clock = now.clone();
        // So short that what is known ages under way.
        let config = SwitchConfig {
            ageing: std::time::Duration::from_millis(20),
            ..SwitchConfig::default()
        };
        let mut switch = Switch::new(config, Arc::new(move || clock.load(Relaxed)));
        switch.set_direct(direct);
        switch.set_timer(Arc::new(Nobody));
        let caps = [
            Caps::ALL,
            Caps {
                csum: true,
                ..Caps::NONE
            },
            Caps::NONE,
        ];
        let room = |caps: Caps| Room {
            caps,
            declines: declines && !caps.csum,
            ..Room::default()
        };
        let sinks: Vec<_> = caps.into_iter().map(|caps| Arc::new(room(caps))).collect();
        let attach = |(at, sink): (usize, &Arc<Room>)| {
            let config = PortConfig {
                waits: at != 2,
                only: Vec::from_iter((at == 1).then(|| station(1))),
                fixed: Vec::from_iter(kind.fixed.filter(|_| at == 0).map(station)),
                mesh: kind.mesh[at],
                ..PortConfig::default()
            };
            switch
                .attach(&at.to_string(), sink.clone(), config)
                .expect("a port")
        };
        let ports = sinks.iter().enumerate().map(attach).collect();
        Lab {
            switch,
            now,
            sinks,
            ports,
            runs: direct,
        }
    }

    pub(crate) fn step(&self, step: &Step) -> usize {
        self.now.fetch_add(step.passed, Relaxed);
        self.sinks[step.room.0].left.fetch_add(step.room.1, Relaxed);
        let mut batch = Batch::new();
        for frame in &step.frames {
            batch.push_bytes(station(frame.dst).as_bytes());
            batch.push_bytes(station(frame.src).as_bytes());
            batch.push_bytes(&vec![frame.dst as u8; frame.len]);
            batch.end(frame.notes());
        }
        let port = &self.ports[step.from];
        let deliver = |picks: &[u16]| port.deliver(&batch, picks);
        let run = |run: &Run<'_>| port.deliver_run(run);
        let run: &dyn Fn(&Run<'_>) -> Option<usize> = &run;
        let mix = |mix: &Mix<'_>| port.deliver_mix(mix);
        let mix: &dyn Fn(&Mix<'_>) -> Option<usize> = &mix;
        match step.how {
            How::Groups => {
                let run = self.runs.then_some(run);
                return in_groups(&batch, deliver, run);
            }
            How::Mixes => return in_mixes(&batch, deliver, self.runs.then_some(mix)),
            How::Batch => {}
        }
        let mut picks = Vec::new();
        deliver(batch.all_picks(&mut picks))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct One {
    pub src: u64,
    pub dst: u64,
    pub len: usize,
    pub noted: u8,
}

impl One {
    fn notes(&self) -> Offload {
        let csum = Some(Csum {
            start: 34,
            offset: 6,
        });
        match self.noted {
            0 => Offload {
                csum_valid: true,
                ..Offload::NONE
            },
            // Inside of the frame or not.
            1 | 2 => Offload {
                csum,
                ..Offload::NONE
            },
            3 => Offload {
                vlan: Some(5),
                ..Offload::NONE
            },
            // Of a frame that can be cut or, most often, not.
            4 => Offload {
                csum,
                gso: Gso::Tcp4,
                gso_size: 20,
                hdr_len: 54,
                ..Offload::NONE
            },
            _ => Offload::NONE,
        }
    }
}

/// How frames are offered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum How {
    Batch,
    /// Those alike together.
    Groups,
    /// Those that are plain together.
    Mixes,
}

#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub from: usize,
    pub room: (usize, usize),
    pub passed: u64,
    pub how: How,
    pub frames: Vec<One>,
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let one = (
        0..4u64,
        prop_oneof![5 => 0..4u64, 1 => Just(9)],
        0..80usize,
        0..20u8,
    );
    let one = one.prop_map(|(src, dst, len, noted)| One {
        src,
        dst,
        len,
        noted,
    });
    let alike = (one.clone(), 1..6usize).prop_map(|(one, n)| vec![one; n]);
    let frames = prop_oneof![3 => alike, 1 => proptest::collection::vec(one, 0..6)];
    let room = (0..PORTS, 0..6usize);
    (0..PORTS, room, 0..4_000_000u64, any::<bool>(), frames).prop_map(
        |(from, room, passed, grouped, frames)| Step {
            from,
            room,
            passed,
            how: if grouped { How::Groups } else { How::Batch },
            frames,
        },
    )
}
