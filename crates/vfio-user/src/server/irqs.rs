//! Answers `GET_IRQ_INFO` and `SET_IRQS`.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;

use super::session::{Refusal, Session, Signal, SignalChange, Which};
use super::state::{MAX_SIGNALS, Server};
use crate::codec::{Header, IrqInfo, SetIrqs, irq, irq_set};
use crate::description::Shape;
use crate::stream::Sender;
use peer::deferred_closer::PeerFd;
use peer::event;

impl Session {
    pub(super) fn irq_info(
        &mut self,
        header: &Header,
        payload: &[u8],
        tx: &mut Sender,
    ) -> Result<(), Refusal> {
        let ask = self.parse(IrqInfo::parse(payload))?;
        if (ask.argsz as usize) < IrqInfo::LEN {
            return self.malformed();
        }
        if ask.index >= irq::COUNT {
            self.counters.bad_irq += 1;
            return Err(Errno::INVAL);
        }
        let count = self.irq.0.count(ask.index);
        let reply = IrqInfo {
            argsz: IrqInfo::LEN as u32,
            flags: if count == 0 {
                0
            } else {
                Shape::irq_flags(ask.index)
            },
            index: ask.index,
            count,
        };
        tx.push(&header.reply(IrqInfo::LEN), &reply.to_bytes());
        Ok(())
    }

    pub(super) fn set_irqs(
        &mut self,
        header: &Header,
        payload: &[u8],
        fds: &mut Vec<OwnedFd>,
        tx: &mut Sender,
        cost: &mut usize,
    ) -> Result<(), Refusal> {
        let set = self.parse(SetIrqs::parse(payload))?;
        // Touching a vector is cheap but not free, and one message may touch all 2048.
        *cost += self.irq.0.count(set.index) as usize / 16;
        if let Err(errno) = self.apply_irqs(&set, &payload[SetIrqs::LEN..], fds) {
            self.counters.bad_irq += 1;
            return Err(errno);
        }
        tx.push(&header.reply(0), &[]);
        Ok(())
    }

    fn apply_irqs(
        &mut self,
        set: &SetIrqs,
        bools: &[u8],
        fds: &mut Vec<OwnedFd>,
    ) -> Result<(), Refusal> {
        let (data, action) = (set.flags & irq_set::DATA, set.flags & irq_set::ACTION);
        let known = set.flags & !(irq_set::DATA | irq_set::ACTION) == 0;
        let vectors = self.irq.0.count(set.index);
        let end = set.start.checked_add(set.count);
        if !known
            || data.count_ones() != 1
            || action.count_ones() != 1
            || (set.argsz as usize) < SetIrqs::LEN
            || set.index >= irq::COUNT
        {
            return Err(Errno::INVAL);
        }
        if set.count == 0 {
            // Only "disable the index" has no range. QEMU says it also of an index without vectors.
            if data == irq_set::DATA_NONE && action == irq_set::ACTION_TRIGGER && set.start == 0 {
                self.irq.0.disable(set.index);
                self.todo.signals.push(SignalChange::Remove(Which {
                    index: set.index,
                    vectors: 0..u32::MAX,
                    mask: None,
                }));
                return Ok(());
            }
            return Err(Errno::INVAL);
        }
        if end.is_none_or(|end| end > vectors) {
            return Err(Errno::INVAL);
        }
        let range = set.start..set.start + set.count;
        match data {
            irq_set::DATA_EVENTFD => {
                if !fds.is_empty() && fds.len() != set.count as usize {
                    return Err(Errno::INVAL);
                }
                if !fds.is_empty() && self.deferred_closer.is_used_up() {
                    self.counters.refused_quota += 1;
                    return Err(Errno::NOSPC);
                }
                let mut adopted = Vec::with_capacity(fds.len());
                let ours = fds
                    .drain(..)
                    .map(|fd| PeerFd::new(fd, &self.deferred_closer));
                adopted.extend(ours);
                for fd in &adopted {
                    event::adopt(fd.as_fd()).inspect_err(|_| {
                        self.counters.bad_eventfd += 1;
                    })?;
                }
                let mut adopted = adopted.into_iter();
                if action == irq_set::ACTION_TRIGGER {
                    for vector in range {
                        self.irq.0.arm(set.index, vector, adopted.next());
                    }
                    return Ok(());
                }
                if adopted.len() > MAX_SIGNALS {
                    return Err(Errno::NOSPC);
                }
                let mask = action == irq_set::ACTION_MASK;
                self.todo.signals.push(SignalChange::Remove(Which {
                    index: set.index,
                    vectors: range.clone(),
                    mask: Some(mask),
                }));
                for (vector, fd) in range.zip(adopted) {
                    self.next_token += 1;
                    self.todo.signals.push(SignalChange::Add(Signal {
                        index: set.index,
                        vector,
                        mask,
                        fd,
                        token: self.next_token,
                    }));
                }
            }
            irq_set::DATA_BOOL => {
                let bools = bools.get(..set.count as usize).ok_or(Errno::INVAL)?;
                for (vector, _) in range.zip(bools).filter(|(_, on)| **on != 0) {
                    self.act(set.index, vector, action);
                }
            }
            _ => {
                for vector in range {
                    self.act(set.index, vector, action);
                }
            }
        }
        Ok(())
    }

    fn act(&mut self, index: u32, vector: u32, action: u32) {
        match action {
            irq_set::ACTION_MASK => self.irq.0.mask(index, vector, true),
            irq_set::ACTION_UNMASK => self.irq.0.mask(index, vector, false),
            _ => self.irq.0.loopback(index, vector),
        }
    }
}

impl Server {
    /// An eventfd of the client's masks or unmasks a vector.
    pub(super) fn serve_signal(&mut self, token: u64) {
        let Some(at) = self.signals.iter().position(|s| s.token == token) else {
            return;
        };
        let signal = &self.signals[at];
        match event::try_take(signal.fd.as_fd()) {
            Ok(_) => self
                .session
                .irq
                .0
                .mask(signal.index, signal.vector, signal.mask),
            // Another thread has taken it.
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => {
                // It would wake us without end.
                self.session.counters.bad_eventfd += 1;
                self.session.changed = true;
                let signal = self.signals.swap_remove(at);
                self.end(signal.fd.as_fd());
            }
        }
    }
}
