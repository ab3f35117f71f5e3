//! The way from the guests: a bounded queue before a socket that is never waited for.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use frame::{Batch, Caps, Sink, Wake};

use crate::config::MTU;
use crate::count;
use crate::link::{Link, QUEUE_FRAMES};
use crate::message;

/// An Ethernet header and one VLAN tag.
pub(crate) const L2_MAX: usize = 18;
/// How long senders wait for a process that takes nothing, before their frames are dropped.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);

pub struct UserSink {
    link: Arc<Link>,
}

impl UserSink {
    pub fn new(link: Arc<Link>) -> Self {
        Self { link }
    }
}

impl Sink for UserSink {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let tally = &self.link.tally;
        if self.link.closed.load(Ordering::Acquire) {
            tally.add(count::CLOSED, picks.len() as u64);
            return picks.len();
        }
        let mut out = self.link.out.lock();
        let (mut frames, mut bytes, mut calls, mut done) = (0, 0, 0, 0);
        let mut tell = false;
        for &pick in picks {
            let Some(frame) = batch.get(usize::from(pick)) else {
                done += 1;
                continue;
            };
            if out.socket.is_none() || out.broken {
                tally.add(count::DOWN, 1);
            } else if !frame.notes().is_plain() {
                tally.add(count::CANNOT_TAKE, 1);
            } else if frame.len() > MTU + L2_MAX {
                tally.add(count::TOO_LONG, 1);
            } else if out.frames >= QUEUE_FRAMES && !out.send(&mut calls) {
                // A guest that does not receive must not stop itself, or others, from sending.
                if !self.link.stalled.load(Ordering::Acquire) {
                    let since = *out.full_since.get_or_insert_with(Instant::now);
                    if since.elapsed() < PATIENCE {
                        // The thread must watch the clock for those who wait now.
                        tell = true;
                        break;
                    }
                }
                tally.add(count::IN_FULL, 1);
            } else {
                let len = frame.len();
                bytes += message::push(&mut out.bytes, len, |room| frame.copy_to(0, room)) as u64;
                out.frames += 1;
                frames += 1;
            }
            done += 1;
        }
        // One call for many frames, unless the socket is known to be full.
        if !out.watched {
            out.send(&mut calls);
        }
        tell |= !out.watched && (out.frames > 0 || out.broken);
        drop(out);
        if tell {
            self.link.bell.ring();
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
        self.link.waiters.add(waker);
    }
}
