//! The way out: into buffers of the transmit rings, from any thread.

use std::sync::Arc;
use std::time::Instant;

use datapath::Layout;
use frame::{Batch, Caps, Frame, Sink, Wake};
use guest_mem::View;
use parking_lot::{Mutex, MutexGuard};
use port::{flow, vnet};

use crate::config::MAX_PAIRS;
use crate::count;
use crate::ring::{BUFFER, Broken, SIZE};
use crate::shared::{Out, Shared};

pub struct VhostSink {
    shared: Arc<Shared>,
}

/// What became of a frame.
enum Fate {
    Given,
    NoRoom,
    Dropped(usize),
}

impl VhostSink {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    fn give(&self, out: &mut Out, view: &View<'_>, frame: &Frame<'_>) -> Result<Fate, Broken> {
        if !out.caps.accepts(frame.notes()) {
            return Ok(Fate::Dropped(count::CANNOT_TAKE));
        }
        let len = vnet::LONG + frame.len();
        let needed = len.div_ceil(BUFFER as usize);
        if needed > usize::from(SIZE) {
            return Ok(Fate::Dropped(count::TOO_LONG));
        }
        if !out.has(needed) && !self.has_room(out, view, needed)? {
            let since = *out.full_since.get_or_insert_with(Instant::now);
            if since.elapsed() < self.shared.patience {
                return Ok(Fate::NoRoom);
            }
            return Ok(Fate::Dropped(count::STALLED));
        }
        let header = vnet::encode(frame.notes());
        let layout = Layout {
            head: &header,
            frame,
            from: 0,
            tail: &[],
        };
        out.pick(needed);
        let Out { side, chain, .. } = out;
        let mut at = 0;
        for &buffer in &*chain {
            let part = (len - at).min(BUFFER as usize);
            view.write_slices(side.ring.buffer(buffer), part as u64, &mut |to| {
                layout.copy(at, &to);
                at += to.len();
            })?;
        }
        let last = len - (needed - 1) * BUFFER as usize;
        side.ring.offer(view, chain, last as u32, false)?;
        Ok(Fate::Given)
    }

    /// Looks for room once more, after the back end was asked to tell of it.
    fn has_room(&self, out: &mut Out, view: &View<'_>, needed: usize) -> Result<bool, Broken> {
        out.reap(view)?;
        if out.has(needed) {
            return Ok(true);
        }
        // It has to see what it is to make room for.
        publish(&self.shared, out, view)?;
        while out.side.ring.want_call(view)? {
            out.reap(view)?;
            if out.has(needed) {
                out.side.ring.no_call(view)?;
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Shows the back end what is there, and kicks it if it wants that.
fn publish(shared: &Shared, out: &mut Out, view: &View<'_>) -> Result<(), Broken> {
    if out.side.ring.publish(view)? {
        shared.tally.add(count::KICKS, 1);
        out.side.kick();
    }
    Ok(())
}

/// The ring for a frame: the same for all frames of a flow, so that they keep their order.
fn pair_of(frame: &Frame<'_>, pairs: usize) -> usize {
    if pairs > 1 {
        flow::spread(frame.head(), pairs)
    } else {
        0
    }
}

/// Rings that a batch goes to.
type Locked<'a> = [Option<MutexGuard<'a, Out>>; MAX_PAIRS];

/// All of them are taken first, always in the same order: what finds no room ends the batch for all.
fn lock<'a>(outs: &'a [Mutex<Out>], batch: &Batch<'_>, picks: &[u16]) -> Locked<'a> {
    let mut locked = Locked::default();
    let mut needed = 1_u32;
    if outs.len() > 1 {
        let frames = picks
            .iter()
            .filter_map(|pick| batch.get(usize::from(*pick)));
        let bits = frames.map(|frame| 1 << pair_of(&frame, outs.len()));
        needed = bits.fold(0, |all, bit: u32| all | bit);
    }
    for (n, (slot, out)) in locked.iter_mut().zip(outs).enumerate() {
        if needed >> n & 1 == 1 {
            *slot = Some(out.lock());
        }
    }
    locked
}

impl Sink for VhostSink {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let tally = &self.shared.tally;
        let outs = self.shared.outs.read();
        if outs.is_empty() {
            tally.add(count::DOWN, picks.len() as u64);
            return picks.len();
        }
        let mut locked = lock(&outs, batch, picks);
        // All rings of a session lie in one memory.
        let memory = locked.iter().flatten().next();
        let Some(memory) = memory.map(|out| out.side.memory.clone()) else {
            return picks.len();
        };
        let view = memory.view();
        let (mut frames, mut bytes, mut done) = (0, 0, 0);
        let mut tell = false;
        for &pick in picks {
            let frame = batch.get(usize::from(pick));
            let Some((frame, out)) = frame.and_then(|frame| {
                let out = locked[pair_of(&frame, outs.len())].as_mut()?;
                Some((frame, out))
            }) else {
                done += 1;
                continue;
            };
            if out.broken {
                tally.add(count::DOWN, 1);
                done += 1;
                continue;
            }
            match self.give(out, &view, &frame) {
                Ok(Fate::Given) => {
                    frames += 1;
                    bytes += frame.len() as u64;
                }
                Ok(Fate::Dropped(why)) => tally.add(why, 1),
                Ok(Fate::NoRoom) => {
                    // The inlet must watch the clock for those who wait now.
                    tell = true;
                    break;
                }
                Err(Broken) => {
                    out.broken = true;
                    tally.add(count::DOWN, 1);
                }
            }
            done += 1;
        }
        for out in locked.iter_mut().flatten() {
            out.broken |= publish(&self.shared, out, &view).is_err();
            // The inlet ends the session.
            tell |= out.broken;
        }
        drop(locked);
        drop(outs);
        if tell {
            self.shared.bell.ring();
        }
        tally.add(count::FRAMES_OUT, frames);
        tally.add(count::BYTES_OUT, bytes);
        done
    }

    fn caps(&self) -> Caps {
        self.shared.caps()
    }

    fn want_room(&self, waker: &Arc<dyn Wake>) {
        self.shared.waiters.add(waker);
    }
}
