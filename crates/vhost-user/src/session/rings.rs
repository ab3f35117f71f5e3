//! Rings: described, started, kicked, stopped.

use std::os::fd::{AsFd, OwnedFd};

use peer::{PeerFd, event};
use rustix::io::Errno;

use super::{Places, Session, Vring};
use crate::answer::{Refusal, Reply};
use crate::backend::{Backend, Ring};
use crate::codec::{VringAddr, VringFd, VringState, feature, vring_flags};

/// Descriptors of a ring at most.
pub(super) const MAX_SIZE: u16 = 32768;

/// Finds the guest physical address of bytes at an address of the front end's.
pub(super) type Find<'a> = &'a dyn Fn(u64, u64) -> Option<u64>;

/// Where the parts of a ring are: each in one region, aligned as virtio wants it.
fn places(addr: &VringAddr, size: u16, packed: bool, find: Find<'_>) -> Result<Places, String> {
    let n = u64::from(size);
    // Bytes and alignment of descriptors, driver's and device's part (virtio, "Split Virtqueues" and
    // "Packed Virtqueues"); with room for the event indices.
    let (driver, device) = if packed {
        ((4, 4), (4, 4))
    } else {
        ((6 + 2 * n, 2), (6 + 8 * n, 4))
    };
    let part = |what, user: u64, (len, align): (u64, u64)| {
        let at = find(user, len).ok_or_else(|| {
            format!(
                "ring {}: its {what} at {user:#x}+{len:#x} lies outside of the memory table",
                addr.index
            )
        })?;
        if at.is_multiple_of(align) {
            Ok(at)
        } else {
            Err(format!(
                "ring {}: its {what} at {user:#x} is not aligned to {align} bytes",
                addr.index
            ))
        }
    };
    Ok(Places {
        descriptors: part("descriptors", addr.descriptor, (16 * n, 16))?,
        driver: part("available part", addr.available, driver)?,
        device: part("used part", addr.used, device)?,
    })
}

fn log_of(addr: &VringAddr) -> Option<u64> {
    (addr.flags & vring_flags::LOG != 0).then_some(addr.log)
}

impl Session {
    pub(super) fn queues(&self) -> u16 {
        self.rings.len() as u16
    }

    pub(super) fn ring(&mut self, queue: u16) -> &mut Vring {
        &mut self.rings[usize::from(queue)]
    }

    /// A ring that the device has.
    fn queue(&self, index: u32) -> Result<u16, Refusal> {
        u16::try_from(index)
            .ok()
            .filter(|queue| *queue < self.queues())
            .ok_or_else(|| {
                let all = self.queues();
                Refusal::Hard(format!("the device has {all} rings, and none is {index}"))
            })
    }

    fn packed(&self) -> bool {
        self.features & feature::PACKED != 0
    }

    fn places_of(&self, queue: u16) -> Result<Places, String> {
        let ring = &self.rings[usize::from(queue)];
        let addr = ring.addr.as_ref().ok_or("the ring has no addresses")?;
        let find = |user, len| self.memory.guest_of(user, len);
        places(addr, ring.size, self.packed(), &find)
    }

    /// Ends a ring, if it runs.
    pub(super) fn stop_ring(&mut self, backend: &mut dyn Backend, queue: u16) {
        if std::mem::take(&mut self.ring(queue).started) {
            self.ring(queue).base = backend.stop(queue);
            self.counters.rings_stopped += 1;
        }
    }

    /// Its eventfds go.
    pub(super) fn forget_ring(&mut self, queue: u16) {
        self.unwatch(queue);
        self.ring(queue).polled = false;
        self.calls.forget(queue);
    }

    /// It goes on where its front end says, not where it was.
    pub(super) fn forget_note(&mut self, queue: u16) {
        let size = self.rings[usize::from(queue)].size;
        let file = self.inflight.as_ref().filter(|_| self.packed());
        if let Some(note) = file.and_then(|file| file.packed(queue, size)) {
            note.forget();
        }
    }

    fn unwatch(&mut self, queue: u16) {
        if let Some(kick) = self.ring(queue).kick.take()
            && let Some(set) = &self.set
        {
            set.delete(kick.as_fd());
        }
    }

    /// Ends the rings that are about to move or to vanish: `find` knows the memory to come.
    pub(super) fn stop_lost(&mut self, backend: &mut dyn Backend, find: Find<'_>) {
        let packed = self.packed();
        for queue in 0..self.queues() {
            let ring = self.ring(queue);
            let Some(addr) = ring.addr.filter(|_| ring.started) else {
                continue;
            };
            if places(&addr, ring.size, packed, find) != Ok(ring.placed) {
                self.counters.rings_lost += 1;
                self.stop_ring(backend, queue);
                self.calls.error(queue);
            }
        }
    }

    /// Starts a ring that can be, and has the device look at it once.
    fn start_ring(&mut self, backend: &mut dyn Backend, queue: u16) -> Result<(), Refusal> {
        let packed = self.packed();
        let placed = self.places_of(queue).map_err(Refusal::Hard)?;
        let ring = &self.rings[usize::from(queue)];
        let part = self.inflight.as_ref();
        let inflight = part.filter(|_| !packed);
        let inflight = inflight.and_then(|file| file.ring(queue, ring.size));
        let inflight_packed = part.filter(|_| packed);
        let inflight_packed = inflight_packed.and_then(|file| file.packed(queue, ring.size));
        let mut base = ring.base;
        if let Some(note) = &inflight_packed {
            match note.recover(&self.memory.view(), placed.descriptors) {
                Some(used) => base = u32::from(used) | u32::from(used) << 16,
                None => note.begin((base >> 16) as u16),
            }
        }
        if !packed && !ring.size.is_power_of_two() {
            return Err(Refusal::Hard(format!(
                "ring {queue} is split, and {} descriptors are no power of two",
                ring.size
            )));
        }
        let started = Ring {
            size: ring.size,
            packed,
            descriptors: placed.descriptors,
            driver: placed.driver,
            device: placed.device,
            base,
            log: ring.addr.as_ref().and_then(log_of),
            inflight,
            inflight_packed,
        };
        backend
            .start(queue, &started)
            .map_err(|refused| Refusal::Hard(format!("ring {queue}: {refused}")))?;
        let ring = self.ring(queue);
        ring.placed = placed;
        ring.started = true;
        self.counters.rings_started += 1;
        // What the last back end had no time to tell.
        self.calls.call(queue);
        backend.kicked(queue);
        Ok(())
    }

    /// A ring that is described whole and enabled starts with its eventfd: what the driver put into
    /// it before would otherwise wait for a kick that never comes.
    fn try_start(&mut self, backend: &mut dyn Backend, queue: u16) -> Result<(), Refusal> {
        let ring = self.ring(queue);
        let kicked = ring.kick.is_some() || ring.polled;
        if !ring.started && kicked && ring.enabled && ring.size != 0 && ring.addr.is_some() {
            self.start_ring(backend, queue)?;
        }
        Ok(())
    }

    pub(super) fn set_num(
        &mut self,
        backend: &mut dyn Backend,
        state: &VringState,
    ) -> Result<Reply, Refusal> {
        let queue = self.queue(state.index)?;
        let size = u16::try_from(state.num).unwrap_or(0);
        if !(1..=MAX_SIZE).contains(&size) {
            return Err("a ring has 1 to 32768 descriptors".into());
        }
        self.stop_ring(backend, queue);
        self.ring(queue).size = size;
        Ok(Reply::Done)
    }

    pub(super) fn set_base(
        &mut self,
        backend: &mut dyn Backend,
        state: &VringState,
    ) -> Result<Reply, Refusal> {
        let queue = self.queue(state.index)?;
        self.stop_ring(backend, queue);
        self.ring(queue).base = state.num;
        Ok(Reply::Done)
    }

    pub(super) fn set_addr(
        &mut self,
        backend: &mut dyn Backend,
        addr: &VringAddr,
    ) -> Result<Reply, Refusal> {
        let queue = self.queue(addr.index)?;
        if addr.flags & !vring_flags::LOG != 0 {
            return Err("its flags are not known".into());
        }
        let packed = self.packed();
        let find = |user, len| self.memory.guest_of(user, len);
        let ring = &self.rings[usize::from(queue)];
        let placed = places(addr, ring.size.max(1), packed, &find).map_err(Refusal::Hard)?;
        let moves = ring.started && placed != ring.placed;
        if moves {
            self.stop_ring(backend, queue);
        }
        let ring = self.ring(queue);
        let before = ring.addr.as_ref().and_then(log_of);
        ring.addr = Some(*addr);
        if ring.started && log_of(addr) != before {
            backend.log_ring(queue, log_of(addr));
        }
        Ok(Reply::Done)
    }

    pub(super) fn get_base(
        &mut self,
        backend: &mut dyn Backend,
        state: &VringState,
    ) -> Result<Reply, Refusal> {
        let queue = self.queue(state.index)?;
        self.stop_ring(backend, queue);
        self.forget_ring(queue);
        self.forget_note(queue);
        let reply = VringState {
            index: state.index,
            num: self.ring(queue).base,
        };
        Ok(Reply::Bytes(reply.to_bytes().to_vec()))
    }

    /// The eventfd of a message, if it has one. Other files may make those who look at them wait.
    fn eventfd(
        &mut self,
        ring: &VringFd,
        fds: &mut Vec<OwnedFd>,
    ) -> Result<(u16, Option<PeerFd>), Refusal> {
        let queue = self.queue(u32::from(ring.index))?;
        if ring.without_fd {
            return Ok((queue, None));
        }
        let fd = PeerFd::new(fds.remove(0), &self.closer);
        if event::adopt(fd.as_fd()).is_err() {
            self.counters.bad_eventfd += 1;
            return Err(Refusal::Hard(format!(
                "ring {queue}: its descriptor is no eventfd"
            )));
        }
        Ok((queue, Some(fd)))
    }

    pub(super) fn set_kick(
        &mut self,
        backend: &mut dyn Backend,
        ring: &VringFd,
        fds: &mut Vec<OwnedFd>,
    ) -> Result<Reply, Refusal> {
        let (queue, fd) = self.eventfd(ring, fds)?;
        self.unwatch(queue);
        if let (Some(fd), Some(set)) = (&fd, &self.set) {
            set.add(fd.as_fd()).map_err(|error| {
                Refusal::Hard(format!("its eventfd cannot be watched: {error}"))
            })?;
        }
        let ring = self.ring(queue);
        ring.polled = fd.is_none();
        ring.kick = fd;
        self.try_start(backend, queue)?;
        Ok(Reply::Done)
    }

    pub(super) fn set_call(
        &mut self,
        ring: &VringFd,
        fds: &mut Vec<OwnedFd>,
    ) -> Result<Reply, Refusal> {
        let (queue, fd) = self.eventfd(ring, fds)?;
        self.calls.set_call(queue, fd);
        Ok(Reply::Done)
    }

    pub(super) fn set_err(
        &mut self,
        ring: &VringFd,
        fds: &mut Vec<OwnedFd>,
    ) -> Result<Reply, Refusal> {
        let (queue, fd) = self.eventfd(ring, fds)?;
        self.calls.set_err(queue, fd);
        Ok(Reply::Done)
    }

    pub(super) fn set_enable(
        &mut self,
        backend: &mut dyn Backend,
        state: &VringState,
    ) -> Result<Reply, Refusal> {
        let queue = self.queue(state.index)?;
        match state.num {
            0 | 1 => self.enable(backend, queue, state.num == 1)?,
            _ => return Err("a ring is enabled by 1 and disabled by 0".into()),
        }
        Ok(Reply::Done)
    }

    pub(super) fn enable(
        &mut self,
        backend: &mut dyn Backend,
        queue: u16,
        enabled: bool,
    ) -> Result<(), Refusal> {
        if std::mem::replace(&mut self.ring(queue).enabled, enabled) != enabled {
            backend.enable(queue, enabled);
        }
        self.try_start(backend, queue)
    }

    /// A ring's eventfd is readable: it starts, if it has not, and the device looks at it.
    pub fn kick(&mut self, backend: &mut dyn Backend, queue: u16) {
        let Some(kick) = &self.ring(queue).kick else {
            return;
        };
        match event::try_take(kick.as_fd()) {
            Ok(_) => self.counters.kicks += 1,
            // The front end has emptied it.
            Err(Errno::AGAIN | Errno::INTR) => return,
            Err(_) => {
                // It would wake us without end.
                self.counters.bad_eventfd += 1;
                self.unwatch(queue);
                return;
            }
        }
        let ring = self.ring(queue);
        if ring.started {
            backend.kicked(queue);
        } else if ring.size != 0
            && ring.addr.is_some()
            && let Err(refusal) = self.start_ring(backend, queue)
        {
            self.counters.refused(&refusal);
            if let Refusal::Hard(why) = refusal {
                self.close = Some(format!("the kick of {why}"));
            }
        }
    }

    /// A ring runs whose driver does not kick: the device has to look by itself.
    pub fn polls(&self) -> bool {
        self.rings.iter().any(|ring| ring.started && ring.polled)
    }
}
