//! The way out: into buffers of a transmit ring, from any thread.

use std::sync::Arc;
use std::time::Instant;

use datapath::Layout;
use frame::{Batch, Caps, Frame, Sink, Wake};
use guest_mem::View;
use port::vnet;

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

impl Sink for VhostSink {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let tally = &self.shared.tally;
        let mut slot = self.shared.out.lock();
        let Some(out) = slot.as_mut().filter(|out| !out.broken) else {
            tally.add(count::DOWN, picks.len() as u64);
            return picks.len();
        };
        let memory = out.side.memory.clone();
        let view = memory.view();
        let (mut frames, mut bytes, mut done) = (0, 0, 0);
        let mut tell = false;
        for &pick in picks {
            let Some(frame) = batch.get(usize::from(pick)) else {
                done += 1;
                continue;
            };
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
                    break;
                }
            }
            done += 1;
        }
        if publish(&self.shared, out, &view).is_err() {
            out.broken = true;
        }
        if out.broken {
            tally.add(count::DOWN, (picks.len() - done) as u64);
            done = picks.len();
            tell = true;
        }
        drop(slot);
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
