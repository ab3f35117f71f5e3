//! Doorbells in memory: registers of a BAR that the client maps, so that a guest writes them without
//! telling.
//!
//! A store into shared memory wakes no one, so the server looks. It looks at all of the
//! registers before it acts on a message and after the last one of a batch: what the guest stored
//! before it sent the message is then applied before it, as on a bus. Between messages its owner
//! looks at the tails only, through [`MappedDoorbells`], which needs no server.
//!
//! Tails of receive queues are looked at by a thread, too, that has frames for one ([`MappedDoorbells::take`]). Whoever takes a tail holds
//! its lock from the load until the device has the value: a later tail is never followed by an earlier one.
//!
//! The memory is hostile: it may change at any time, to anything. Each look loads each word once,
//! what was loaded goes through the device like any write, and what the device makes of it is stored
//! back unless the guest has written again. A new client gets new memory, since nothing takes the old
//! one's mapping away.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, compiler_fence};

use pci::{Doorbells, QueueDoorbell};

use crate::device::Device;
use parking_lot::Mutex;
use peer::{Area, SharedMem};

/// A register, and its last value that was acted upon.
struct Seen {
    offset: usize,
    seen: AtomicU32,
}

impl Seen {
    fn new(offset: u32) -> Self {
        Seen {
            offset: offset as usize,
            seen: AtomicU32::new(0),
        }
    }

    /// Its value, if it has not been acted upon.
    fn news(&self, area: &Area) -> Option<u32> {
        let now = area.load_u32(self.offset, Ordering::Acquire);
        (now != self.seen.load(Ordering::Acquire)).then_some(now)
    }
}

/// A tail, and what its queue was set up with.
struct Tail {
    tail: Seen,
    queue: u32,
    /// The queue's other registers that are memory, but for the head.
    setup: Box<[Seen]>,
    /// Held from the load of the tail until the device has it.
    taking: Mutex<()>,
    /// The device has had a tail from a thread with frames since the server's last look, which is to come. Until then its register
    /// says nothing of what the server has seen: a guest that has given a whole ring of buffers has stored an old value again.
    /// Changed with the lock.
    taken: AtomicBool,
}

struct Tails {
    area: Area,
    tails: Box<[Tail]>,
    /// Queues that are enabled, bit by bit; none while no client has the memory.
    live: AtomicU64,
}

/// The tails of a device with doorbells in memory, for one client. Clones are the same.
///
/// Any thread may look; a look is one load for each queue that is enabled.
#[derive(Clone)]
pub struct MappedDoorbells(Arc<Tails>);

impl std::fmt::Debug for MappedDoorbells {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MappedDoorbells")
            .field("live", &self.is_live())
            .finish_non_exhaustive()
    }
}

impl MappedDoorbells {
    /// Whether some queue is enabled: only then is a look worth anything.
    pub fn is_live(&self) -> bool {
        self.0.live.load(Ordering::Acquire) != 0
    }

    /// Whether a tail of an enabled queue has been moved and not yet acted upon.
    /// [`Server::process`](crate::Server::process) acts.
    pub fn rung(&self) -> bool {
        let live = self.0.live.load(Ordering::Acquire);
        live != 0
            && self
                .0
                .tails
                .iter()
                .any(|tail| live >> tail.queue & 1 != 0 && tail.tail.news(&self.0.area).is_some())
    }

    /// How many queues there are.
    pub fn queues(&self) -> u32 {
        self.0.tails.len() as u32
    }

    /// Whether the tail of a queue, by its place in the [layout](pci::Doorbells), is worth a try to [`Self::take`] it.
    pub fn has_moved(&self, queue: u32) -> bool {
        self.tail_of(queue)
            .is_some_and(|tail| self.moved(tail).is_some())
    }

    /// Gives `put` the tail of a queue, if that is enabled and its tail has been moved and not yet acted upon. Not if anything else
    /// of the queue has been written, which comes before the tail: then only a look at all registers knows what the tail is of. Not
    /// while another thread takes it, either. Whether `put` has it. The server takes the same tail again with its next look.
    pub fn take(&self, queue: u32, put: &mut dyn FnMut(u32)) -> bool {
        let Some(tail) = self.tail_of(queue) else {
            return false;
        };
        let Some(_taking) = tail.taking.try_lock() else {
            return false;
        };
        let Some(moved) = self.moved(tail) else {
            return false;
        };
        put(moved);
        tail.taken.store(true, Ordering::Release);
        true
    }

    fn tail_of(&self, queue: u32) -> Option<&Tail> {
        let live = self.0.live.load(Ordering::Acquire);
        let tail = self.0.tails.get(queue as usize)?;
        (live >> tail.queue & 1 != 0).then_some(tail)
    }

    fn moved(&self, tail: &Tail) -> Option<u32> {
        let area = &self.0.area;
        // The tail first: a guest writes it last, so what comes before it is seen.
        let news = tail.tail.news(area).or_else(|| {
            let taken = tail.taken.load(Ordering::Acquire);
            taken.then(|| area.load_u32(tail.tail.offset, Ordering::Acquire))
        })?;
        let same = |of: &Seen| of.news(area).is_none();
        tail.setup.iter().all(same).then_some(news)
    }

    /// Both are the same client's.
    pub fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WordUse {
    Setup,
    Head,
    /// With the bits that enable the queue.
    Enable(u32),
    /// With its place among the tails.
    Tail(usize),
}

struct Word {
    offset: u32,
    queue: u32,
    used_as: WordUse,
    /// Not a register elsewhere that enables a queue, which is only read.
    in_memory: bool,
    /// Its place among what a queue was set up with.
    setup: Option<usize>,
    /// Of a head: its place among the heads.
    head: Option<usize>,
    /// What was last loaded from it or stored to it.
    seen: u32,
}

/// The registers of a queue by which it is known whose its tail is.
fn setup_of<'a>(layout: &'a Doorbells, queue: &'a QueueDoorbell) -> impl Iterator<Item = u32> + 'a {
    let enable = Some(queue.enable.0).filter(|at| layout.is_on_page(*at));
    queue.setup.iter().copied().chain(enable)
}

/// What a look found.
#[derive(Clone, Copy, Default)]
pub(crate) struct Found {
    /// Tails that had been moved.
    pub tails: u64,
    /// Other registers that had been written.
    pub others: u64,
}

/// The registers of one client's memory.
struct SharedWords {
    memory: SharedMem,
    bell: MappedDoorbells,
}

/// The registers that are memory, as the server keeps them.
pub(crate) struct Registers {
    layout: Doorbells,
    size: usize,
    words: Box<[Word]>,
    shared: Option<SharedWords>,
    /// What was seen of the heads, in memory that outlives the process; or nothing.
    kept: &'static [AtomicU64],
}

/// Words of heads.
type Heads = [AtomicU64];

/// A head in such memory: the last two values that we had in the client's memory, the same if nothing is under way.
fn pair(now: u32, next: u32) -> u64 {
    u64::from(next) << 32 | u64::from(now)
}

impl Registers {
    /// `size` is the BAR's.
    pub fn new(layout: Doorbells, size: usize) -> Self {
        let mut words: Vec<_> = layout
            .others
            .iter()
            .map(|&offset| Word::new(offset, 0, WordUse::Setup))
            .collect();
        for (queue, doorbell) in (0..).zip(&layout.queues) {
            for offset in doorbell.registers() {
                let kind = if offset == doorbell.tail {
                    WordUse::Tail(queue as usize)
                } else if offset == doorbell.enable.0 {
                    WordUse::Enable(doorbell.enable.1)
                } else if offset == doorbell.head {
                    WordUse::Head
                } else {
                    WordUse::Setup
                };
                let mut setup = setup_of(&layout, doorbell);
                words.push(Word {
                    head: (kind == WordUse::Head).then_some(queue as usize),
                    setup: setup.position(|of| of == offset),
                    in_memory: layout.is_on_page(offset),
                    ..Word::new(offset, queue, kind)
                });
            }
        }
        Self {
            layout,
            size,
            words: words.into(),
            shared: None,
            kept: &[],
        }
    }

    /// The BAR they are in.
    pub fn bar(&self) -> u8 {
        self.layout.bar
    }

    /// Keeps in `words` what another process would need beside [`Self::hand_over`], should this one die: which of the client's
    /// heads are ours and not its own. False: there is no room for so many.
    pub fn keep(&mut self, words: &'static [AtomicU64]) -> bool {
        if words.len() < self.layout.queues.len() {
            return false;
        }
        self.kept = words;
        true
    }

    /// See [`Self::keep`]; from now on nowhere.
    pub fn keep_nothing(&mut self) {
        self.kept = &[];
    }

    /// The memory for this client, made when it is first asked for.
    ///
    /// # Errors
    /// There is none left.
    pub fn share(&mut self, device: &mut dyn Device) -> std::io::Result<&SharedMem> {
        if self.shared.is_none() {
            self.put(SharedMem::new("doorbells", self.size)?);
            for word in &self.words {
                word.note(self.kept, 0);
            }
            self.show(device, |_| true);
        }
        match &self.shared {
            Some(shared) => Ok(&shared.memory),
            None => Err(std::io::ErrorKind::OutOfMemory.into()),
        }
    }

    /// This is the client's memory; nothing in it has been seen.
    fn put(&mut self, memory: SharedMem) {
        let tails = self.layout.queues.iter().zip(0..);
        let tails = tails.map(|(doorbell, queue)| Tail {
            tail: Seen::new(doorbell.tail),
            queue,
            setup: setup_of(&self.layout, doorbell).map(Seen::new).collect(),
            taking: Mutex::new(()),
            taken: AtomicBool::new(false),
        });
        let tails = Tails {
            area: memory.area(0, self.size),
            tails: tails.collect(),
            live: AtomicU64::new(0),
        };
        for word in &mut self.words {
            word.seen = 0;
        }
        self.shared = Some(SharedWords {
            memory,
            bell: MappedDoorbells(Arc::new(tails)),
        });
    }

    /// The client's memory, and what was last seen of each register in it.
    pub fn hand_over(&self) -> Option<(&SharedMem, Vec<u32>)> {
        let shared = self.shared.as_ref()?;
        Some((
            &shared.memory,
            self.words.iter().map(|word| word.seen).collect(),
        ))
    }

    /// Goes on with the memory of a client that another server had; if that is `dead`, what it kept says which heads it saw last.
    /// What the guest has stored since is found by the next look.
    ///
    /// # Errors
    /// It is not the memory of such registers.
    pub fn take_over(&mut self, file: OwnedFd, seen: &[u32], dead: bool) -> std::io::Result<()> {
        if seen.len() != self.words.len() {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
        let kept = self.kept;
        let pairs: Vec<_> = kept.iter().map(|w| w.load(Ordering::Acquire)).collect();
        self.put(SharedMem::from_fd(file, 0, self.size)?);
        let Some(SharedWords { bell, .. }) = &self.shared else {
            return Ok(());
        };
        for (word, seen) in self.words.iter_mut().zip(seen) {
            let pair = word.head.and_then(|at| pairs.get(at)).filter(|_| dead);
            word.seen = pair.map_or(*seen, |pair| {
                let now = bell
                    .0
                    .area
                    .load_u32(word.offset as usize, Ordering::Acquire);
                let next = (pair >> 32) as u32;
                if now == next { next } else { *pair as u32 }
            });
            word.note(kept, word.seen);
            word.share(&bell.0);
        }
        // Whether a thread with frames had taken one is not known here.
        for tail in &bell.0.tails {
            tail.taken.store(true, Ordering::Release);
        }
        self.count_live();
        Ok(())
    }

    /// The client is gone; what it still does to its memory has no effect here.
    pub fn unshare(&mut self) {
        if let Some(shared) = self.shared.take() {
            shared.bell.0.live.store(0, Ordering::Release);
        }
    }

    /// The tails, while a client has them.
    pub fn bell(&self) -> Option<&MappedDoorbells> {
        self.shared.as_ref().map(|shared| &shared.bell)
    }

    /// Tells the device what the guest has written.
    pub fn look(&mut self, device: &mut dyn Device) -> Found {
        let mut found = Found::default();
        let Some(SharedWords { bell, .. }) = &self.shared else {
            return found;
        };
        let tails = &*bell.0;
        let mut enables = false;
        for word in self.words.iter_mut().filter(|word| word.in_memory) {
            let offset = word.offset as usize;
            let load = || tails.area.load_u32(offset, Ordering::Acquire);
            let tail = word.tail(tails);
            let taken = || tail.is_some_and(|tail| tail.taken.load(Ordering::Acquire));
            if load() == word.seen && !taken() {
                continue;
            }
            // Loaded once more: with the lock of a tail, another thread has not a later one.
            let _taking = tail.map(|tail| tail.taking.lock());
            let now = load();
            if now == word.seen && !taken() {
                continue;
            }
            if let Some(tail) = tail {
                tail.taken.store(false, Ordering::Release);
            }
            match word.used_as {
                WordUse::Tail(_) => found.tails += 1,
                _ => found.others += 1,
            }
            enables |= matches!(word.used_as, WordUse::Enable(_));
            device.bar_write(self.layout.bar, word.offset.into(), &now.to_le_bytes());
            word.seen = now;
            word.note(self.kept, now);
            word.share(tails);
            word.show_held(&self.layout, (tails, self.kept), device);
        }
        if enables {
            self.count_live();
        }
        found
    }

    /// Shows what the device has moved. If it has switched a queue off by itself, other registers may
    /// have changed with it. A queue that an access enables changes with that only.
    pub fn publish(&mut self, device: &mut dyn Device) {
        let moves = |word: &Word| {
            word.in_memory && matches!(word.used_as, WordUse::Head | WordUse::Enable(_))
        };
        if self.show(device, moves) {
            self.refresh(device);
        }
    }

    /// A message has written `len` bytes of a BAR: shows what that has changed. Another BAR may be a window to this one.
    pub fn written(&mut self, device: &mut dyn Device, bar: u8, offset: u64, len: usize) {
        let mut words = (offset & !3..offset + len as u64).step_by(4);
        let touches = bar != self.layout.bar || words.any(|at| self.layout.touches(at));
        if self.shared.is_some() && touches {
            self.refresh(device);
        }
    }

    /// Shows everything.
    pub fn refresh(&mut self, device: &mut dyn Device) {
        self.show(device, |_| true);
    }

    /// Shows some of it; `true` when a queue has been switched on or off.
    fn show(&mut self, device: &mut dyn Device, which: impl Fn(&Word) -> bool) -> bool {
        let Some(SharedWords { bell, .. }) = &self.shared else {
            return false;
        };
        let mut enables = false;
        for word in self.words.iter_mut().filter(|word| which(word)) {
            let differs = word.show(&self.layout, (&bell.0, self.kept), device);
            enables |= differs && matches!(word.used_as, WordUse::Enable(_));
        }
        if enables {
            self.count_live();
        }
        enables
    }

    fn count_live(&self) {
        let on =
            |word: &&Word| matches!(word.used_as, WordUse::Enable(bits) if word.seen & bits != 0);
        let live = self.words.iter().filter(on);
        let live = live.fold(0, |live, word| live | 1u64 << word.queue);
        if let Some(shared) = &self.shared {
            shared.bell.0.live.store(live, Ordering::Release);
        }
    }
}

impl Word {
    fn new(offset: u32, queue: u32, used_as: WordUse) -> Self {
        Self {
            offset,
            queue,
            used_as,
            in_memory: true,
            setup: None,
            head: None,
            seen: 0,
        }
    }

    /// Stores what the device has, unless the guest has written meanwhile. `true` if that is another
    /// value than before. Not a tail that the device has from a thread with frames: the next look tells it first.
    fn show(&mut self, layout: &Doorbells, to: (&Tails, &Heads), device: &mut dyn Device) -> bool {
        let tail = self.tail(to.0);
        let _taking = tail.map(|tail| tail.taking.lock());
        if tail.is_some_and(|tail| tail.taken.load(Ordering::Acquire)) {
            return false;
        }
        self.show_held(layout, to, device)
    }

    /// As [`Word::show`], with the lock of a tail.
    fn show_held(
        &mut self,
        layout: &Doorbells,
        (tails, heads): (&Tails, &Heads),
        device: &mut dyn Device,
    ) -> bool {
        let mut data = [0; 4];
        device.bar_read(layout.bar, self.offset.into(), &mut data);
        let has = u32::from_le_bytes(data);
        let differs = has != self.seen;
        if !self.in_memory {
            self.seen = has;
            return differs;
        }
        if differs {
            self.note(heads, has);
            if tails.area.replace_u32(self.offset as usize, self.seen, has) {
                self.seen = has;
            }
            self.note(heads, self.seen);
        }
        self.share(tails);
        differs
    }

    /// Says in memory that outlives the process what a head is, or is about to become.
    #[inline]
    fn note(&self, heads: &Heads, next: u32) {
        if let Some(word) = self.head.and_then(|at| heads.get(at)) {
            word.store(pair(self.seen, next), Ordering::Release);
            // In order also for who comes after this process. A processor's own stores are when it takes an interrupt.
            compiler_fence(Ordering::SeqCst);
        }
    }

    /// The tail it is.
    fn tail<'t>(&self, tails: &'t Tails) -> Option<&'t Tail> {
        match self.used_as {
            WordUse::Tail(at) => tails.tails.get(at),
            _ => None,
        }
    }

    /// Tells others what was seen.
    fn share(&self, tails: &Tails) {
        let of = match (self.used_as, self.setup) {
            (WordUse::Tail(_), _) => self.tail(tails).map(|tail| &tail.tail),
            (_, Some(at)) => {
                let tail = tails.tails.get(self.queue as usize);
                tail.and_then(|tail| tail.setup.get(at))
            }
            _ => None,
        };
        if let Some(of) = of {
            of.seen.store(self.seen, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests;
