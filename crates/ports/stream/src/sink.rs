//! The way out: a bounded buffer before a socket that is never waited for.

use std::sync::Arc;
use std::time::Instant;

use frame::{Batch, Caps, Sink, Wake};

use crate::config::MAX_FRAME;
use crate::connection::{Connection, LIMIT};
use crate::count;

pub struct StreamSink {
    shared: Arc<Connection>,
}

impl StreamSink {
    pub fn new(shared: Arc<Connection>) -> Self {
        Self { shared }
    }
}

impl Sink for StreamSink {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let tally = &self.shared.tally;
        let mut out = self.shared.out.lock();
        let (mut frames, mut bytes, mut calls, mut done) = (0, 0, 0, 0);
        let mut tell = false;
        for &pick in picks {
            let Some(frame) = batch.get(usize::from(pick)) else {
                done += 1;
                continue;
            };
            let framed = 4 + frame.len();
            if !out.is_up() {
                tally.add(count::DOWN, 1);
            } else if !frame.notes().is_plain() {
                tally.add(count::CANNOT_TAKE, 1);
            } else if frame.len() > MAX_FRAME {
                tally.add(count::TOO_LONG, 1);
            } else if out.waiting() + framed > LIMIT && !out.send(&mut calls) {
                let since = *out.full_since.get_or_insert_with(Instant::now);
                if since.elapsed() < self.shared.patience {
                    // The inlet must watch the clock for those who wait now.
                    tell = true;
                    break;
                }
                tally.add(count::STALLED, 1);
            } else if out.waiting() + framed > LIMIT {
                // Something moved, though not enough yet.
                break;
            } else {
                out.push(&frame);
                frames += 1;
                bytes += frame.len() as u64;
            }
            done += 1;
        }
        out.commit();
        // One call for the whole batch, unless the socket is known to be full.
        if !out.watched {
            out.send(&mut calls);
        }
        tell |= !out.watched && (out.waiting() > 0 || out.broken);
        drop(out);
        if tell {
            self.shared.bell.ring();
        }
        tally.add(count::FRAMES_OUT, frames);
        tally.add(count::BYTES_OUT, bytes);
        tally.add(count::SYSCALLS, calls);
        done
    }

    fn caps(&self) -> Caps {
        Caps::NONE
    }

    fn want_room(&self, waker: &Arc<dyn Wake>) {
        self.shared.waiters.add(waker);
    }
}
