//! What a NIC model is, and what it may ask for.
//!
//! A model is a pure state machine in three parts that different threads may own: [`Control`]
//! answers register accesses, [`Transmit`] walks the transmit rings, [`Receive`] takes frames. A
//! frame can so be sent while another is received and a register is read. The parts share what
//! they must (interrupt causes, enables, ring indices) behind the model's own cells; each is
//! handed its [`Env`] at each call and owns no thread, socket or clock.
//!
//! Two rules keep a VMM alive: a register access is answered at once, and work that touches memory
//! is only *noted* by the access ([`Control::take_work`]) and done after the answer has left.
#![forbid(unsafe_code)]

mod moderation;

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

use frame::{Batch, Caps, Counted, Cut, Frame, Run, Sink, Wake};
use guest_mem::{Hot, Memory};
use pci::{ConfigBuilder, Msi, Pcie, PowerManagement};

pub use pci::{
    Aer, Ari, Capability, Doorbells, Extended, Msix, Pme, PmeWrite, QueueDoorbell, Raw, Serial,
    Sriov, Window,
};

pub use snapshot::StateError;

pub use crate::moderation::Moderation;

/// Nanoseconds of a monotonic clock.
pub type Nanos = u64;

/// Tells the time.
pub trait Clock: Send + Sync {
    /// Now. Never goes backwards, and began at least a second ago: what happened shortly before a
    /// state was saved has a time on every clock.
    fn now(&self) -> Nanos;
}

/// What an interrupt comes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Through {
    /// INTx.
    Pin,
    /// A message of MSI.
    Msi(u16),
    /// A message of MSI-X.
    Msix(u16),
}

/// The NIC's interrupt pins, as seen from the model.
pub trait Interrupts: Send + Sync {
    /// The level of INTx. Idempotent; may be called from any thread.
    fn set_line(&self, level: bool);
    /// What PMCSR shows. Idempotent. A bus that cannot wake a guest ignores it.
    fn set_pme(&self, _pme: Pme) {}
    /// Sends MSI message `vector`, when the guest has enabled MSI.
    fn msi(&self, vector: u16);
    /// Sends MSI-X message `vector`; latched while masked.
    fn msix(&self, vector: u16);
    /// Something begins to wait for its time that would come by this: the guest or the operator wants fewer interrupts. Told once,
    /// however much joins it.
    fn delayed(&self, _by: Through) {}
}

/// One timer per NIC.
pub trait Timer: Send + Sync {
    /// Calls [`Control::tick`] once, at or soon after `deadline`; `None` calls it off. A second
    /// call replaces the first. May be called from any part of the model.
    fn arm(&self, deadline: Option<Nanos>);
}

/// What a model may use. Handed in at each call; cheap to clone.
#[derive(Clone)]
#[repr(C)]
pub struct Env {
    /// The guest's memory.
    pub memory: Memory,
    /// The NIC's interrupts.
    pub irq: Arc<dyn Interrupts>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The NIC's timer.
    pub timer: Arc<dyn Timer>,
}

/// Work noted by register accesses, to be done after they have been answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// [`Transmit::run`] has something to do.
    pub tx: bool,
    /// [`Receive::poll`] has something to do.
    pub rx: bool,
}

/// Bytes after which a call to [`Transmit::run`] ends, however few frames they were: a full batch of
/// ordinary frames. It holds up a register access of the same NIC, and the others of a worker, for
/// one copy of so much.
pub const TURN_BYTES: usize = 256 * 1514;

/// How a call to [`Transmit::run`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nothing left.
    Idle,
    /// The budget ran out; call again soon, after others had their turn.
    More,
    /// The sink had no room; call again when it wakes you.
    Blocked,
}

/// Who asked for a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetKind {
    /// The bus: power-up, machine reset, the VMM's reset request. PCI state is lost too.
    Bus,
    /// The function was moved from D3 to D0. As [`ResetKind::Bus`], but what the guest must know
    /// of its awakening stays.
    PowerUp,
}

/// What of PCI a model must know, changed by a configuration write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PciState {
    /// COMMAND bit 2: the device may master the bus (do DMA).
    pub bus_master: bool,
    /// MSI is enabled (INTx is then silent).
    pub msi: bool,
    /// MSI-X is enabled.
    pub msix: bool,
    /// The function is in D3.
    pub d3: bool,
    /// Virtual functions that SR-IOV's registers have enabled.
    pub vfs: u16,
    /// PMCSR's PME bits were written: given once, with the write.
    pub pme: Option<PmeWrite>,
}

/// A register that was looked at without effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peeked {
    /// Its name in the manual.
    pub name: &'static str,
    /// Which of an array of equal ones; `None` where there is one.
    pub element: Option<u32>,
    /// Where it is in the BAR of registers.
    pub offset: u32,
    /// What accesses do, as register pages write it.
    pub access: &'static str,
    /// The manual's section.
    pub section: &'static str,
    /// The value.
    pub value: u32,
}

/// Words of a [`Kept`]. Memory that nobody stores to is none.
pub const KEPT: usize = 2304;

/// Words in memory that outlives the process, for what a NIC must know of itself after its process died at any instruction. All
/// of them are true as soon as they are stored.
#[derive(Clone)]
pub struct Kept {
    words: &'static [AtomicU64; KEPT],
    /// Has the memory for as long as somebody may store there.
    _home: Arc<dyn Any + Send + Sync>,
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.words).finish()
    }
}

impl Kept {
    /// These words, which are not another's as long as `home` is.
    pub fn new(words: &'static [AtomicU64; KEPT], home: Arc<dyn Any + Send + Sync>) -> Self {
        Self { words, _home: home }
    }

    /// A word as it is.
    pub fn get(&self, at: usize) -> u64 {
        self.words[at].load(Ordering::Acquire)
    }

    /// Stores a word: behind all stores before this in the program, and before all behind it, as far as somebody can tell who
    /// looks after this thread was killed.
    #[inline]
    pub fn put(&self, at: usize, value: u64) {
        self.words[at].store(value, Ordering::Release);
        // A processor's stores of one thread are complete in order when it takes an interrupt; the compiler is to keep it too.
        compiler_fence(Ordering::SeqCst);
    }

    /// Stores words from one on, in any order: behind all stores before this, and before all behind it.
    #[inline]
    pub fn put_all(&self, at: usize, values: &[u64]) {
        for (word, value) in self.words[at..].iter().zip(values) {
            word.store(*value, Ordering::Release);
        }
        compiler_fence(Ordering::SeqCst);
    }
}

/// The register side. Owned by the thread that serves the VMM's socket.
pub trait Control: Send + Counted {
    /// Answers a read of `data.len()` bytes at `offset` of BAR `bar`. Any size and alignment.
    fn read(&mut self, env: &Env, bar: u8, offset: u64, data: &mut [u8]);
    /// Takes a write. Any size and alignment.
    fn write(&mut self, env: &Env, bar: u8, offset: u64, data: &[u8]);
    /// Work noted since the last call.
    fn take_work(&mut self) -> Work;
    /// The image of the NIC's non-volatile memory, if it is another than at the last call (or, at
    /// the first, than the one it was made with). Its keeper gives it back when the NIC is
    /// made again.
    fn take_nvm(&mut self) -> Option<Vec<u8>> {
        None
    }
    /// The registers that may be memory shared with the guest instead of being written by access.
    /// [`Control::write`] still receives changes, later, and only the last of several;
    /// [`Control::read`] gives the value to read back.
    fn doorbells(&self) -> Option<Doorbells> {
        None
    }
    /// Shows each register as a read would find it now, without what a read does: for operators. A model without a
    /// table of registers shows none.
    fn peek(&self, env: &Env, visit: &mut dyn FnMut(Peeked)) {
        let _ = (env, visit);
    }
    /// The address at which the guest receives, as far as the NIC knows one: it is announced where the guest has moved to.
    fn station(&self) -> Option<[u8; 6]> {
        None
    }
    /// Resets everything the kind of reset resets.
    fn reset(&mut self, env: &Env, kind: ResetKind);
    /// PCI state changed.
    fn pci(&mut self, env: &Env, state: PciState);
    /// The armed deadline has come.
    fn tick(&mut self, env: &Env);
    /// A function that shares something with this NIC has changed it: looks there.
    fn attend(&mut self, env: &Env) {
        let _ = env;
    }
    /// The cable (what the port's other side is): in or out.
    fn set_link(&mut self, env: &Env, up: bool);
    /// The operator has chosen when interrupts are raised, from now on. What the old way holds back is looked at again by the
    /// new one: no interrupt is lost. A model that raises each at once ignores it.
    fn moderate(&mut self, env: &Env, how: Moderation) {
        let _ = (env, how);
    }
    /// It is about to be saved for one that goes on in its place while this process lives: what the guest is to see once it is
    /// saved is shown now.
    fn finish(&mut self, env: &Env) {
        let _ = env;
    }
    /// The whole NIC, all three parts, as it is between two batches. A caller that moves the NIC
    /// elsewhere stops driving this one first: what it did afterwards would be done twice.
    ///
    /// Times in it are relative, so another clock may go on. Not in it: what was configured,
    /// counters, PCI configuration space (its owner saves that), frames that wait with others.
    fn save(&self, env: &Env) -> Vec<u8>;
    /// From now on, keeps in `words` what a NIC that goes on after its process died must know beside its saved state. `false`: this
    /// one cannot go on.
    fn keep(&mut self, words: Kept) -> bool {
        let _ = words;
        false
    }
    /// Whether accesses since the last call have changed something that the words do not tell, so that it is to be saved again
    /// before the answers leave.
    fn take_changed(&mut self) -> bool {
        true
    }
    /// What was answered so far will not be asked again, should the process die: it is saved, or in the words.
    fn settled(&mut self) {}
    /// Becomes what a NIC was whose process died: `blob` was saved so long ago, when something changed last, and `words` are as it
    /// left them. Keeps them from now on. Accesses that were made and not answered are made again behind this. Returns how many
    /// frames were perhaps under way; they are lost if they had not arrived.
    ///
    /// # Errors
    /// As [`Control::load`].
    fn recover(
        &mut self,
        env: &Env,
        (blob, age): (&[u8], Nanos),
        words: Kept,
    ) -> Result<u64, StateError> {
        let _ = (env, blob, age, words);
        Err(StateError::NoState)
    }
    /// Becomes what was saved, by this or another program, on this or another host. Sets line and
    /// timer accordingly and notes the work that was left; the caller does it as after a register
    /// access.
    ///
    /// # Errors
    /// A state that is damaged, of another NIC, from a newer program, or impossible is refused with
    /// the reason, and the NIC stays as it was.
    fn load(&mut self, env: &Env, blob: &[u8]) -> Result<(), StateError>;
}

/// The transmit side of the NIC. Used by one thread at a time.
pub trait Transmit: Send {
    /// Sends at most about `budget` frames and [`TURN_BYTES`] bytes into `to`, and never walks a
    /// ring more than once.
    fn run(&mut self, env: &Env, to: &dyn Sink, budget: usize) -> Progress;
    /// Whether the last run ended with [`Progress::More`] because something may come soon that no call
    /// would tell of.
    fn watch(&self) -> Watch {
        Watch::Off
    }
}

/// How a run went of a transmitter that watches the guest's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Watch {
    /// It does not: the guest calls it.
    #[default]
    Off,
    /// Something was there, and more may come.
    Found,
    /// Nothing was there. Others who want the processor go first.
    Vain,
}

/// The receive side of the NIC: called by any thread that has frames for it.
pub trait Receive: Send + Sync {
    /// As [`Sink::deliver`].
    fn deliver(&self, env: &Env, batch: &Batch<'_>, picks: &[u16]) -> usize;
    /// As [`Sink::deliver_or_leave`].
    fn deliver_or_leave(&self, env: &Env, batch: &Batch<'_>, picks: &[u16]) -> usize {
        self.deliver(env, batch, picks)
    }
    /// As [`Sink::deliver_run`].
    fn deliver_run(&self, env: &Env, run: &Run<'_>) -> Option<usize> {
        let _ = (env, run);
        None
    }
    /// As [`Sink::deliver_cut`].
    fn deliver_cut(&self, env: &Env, cut: &Cut<'_>, from: usize) -> Option<usize> {
        let _ = (env, cut, from);
        None
    }
    /// As [`Sink::caps`].
    fn caps(&self) -> Caps;
    /// As [`Sink::want_room`].
    fn want_room(&self, waker: &Arc<dyn Wake>);
    /// As [`Sink::give_up`].
    fn give_up(&self, env: &Env, batch: &Batch<'_>, picks: &[u16]) {
        let _ = (env, batch, picks);
    }
    /// The guest may have given buffers: moves what waited, wakes those who want room.
    fn poll(&self, env: &Env);
    /// The lines of the NIC's own memory that runs of frames touch, sent or received. They stay where they are.
    fn hot(&self, hot: &mut Hot) {
        let _ = hot;
    }
    /// A receive queue, by its place among [`Control::doorbells`], may have been given buffers in memory that the register side has
    /// not looked at yet. `take` gives what it is called with the tail that is there now, if the queue is set up as it was, and says
    /// whether it has; it is called while nothing else is set up. Whether there are more buffers.
    fn look_at_tail(&self, env: &Env, queue: u32, take: TakeTail<'_>) -> bool {
        let _ = (env, queue, take);
        false
    }
    /// Whether [`Self::deliver`] keeps frames that find no buffer, so that a look at tails in memory is worth more before it than behind.
    fn keeps_excess(&self) -> bool {
        false
    }
    /// Whether the guest would get the frame, without effect: `tell` is told each decision, and the counter that goes
    /// with it. `None`: the model does not tell.
    fn trace(
        &self,
        env: &Env,
        frame: &Frame<'_>,
        tell: &mut dyn FnMut(String, Option<&'static str>),
    ) -> Option<bool> {
        let _ = (env, frame, tell);
        None
    }
}

/// For [`Receive::look_at_tail`].
pub type TakeTail<'a> = &'a dyn Fn(&mut dyn FnMut(u32)) -> bool;

/// The address space of a BAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// 32-bit memory.
    Memory32,
    /// 64-bit memory.
    Memory64,
    /// I/O ports.
    Io,
}

/// One BAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    /// 0 to 5.
    pub index: u8,
    /// Memory or I/O.
    pub space: Space,
    /// Bytes, a power of two.
    pub size: u64,
}

/// Where capabilities stand in configuration space; 0 is the next free place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Power management.
    pub pm: u8,
    /// MSI.
    pub msi: u8,
    /// MSI-X.
    pub msix: u8,
    /// PCI Express.
    pub pcie: u8,
}

/// What the guest's bus scan finds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Name of the model as users write it ("e1000").
    pub model: &'static str,
    /// PCI vendor id.
    pub vendor: u16,
    /// PCI device id.
    pub device: u16,
    /// Subsystem vendor id.
    pub subsystem_vendor: u16,
    /// Subsystem id.
    pub subsystem: u16,
    /// Revision id.
    pub revision: u8,
    /// Class code: base, sub-class, programming interface.
    pub class: [u8; 3],
    /// The BARs.
    pub bars: Vec<Bar>,
    /// INTA# is wired.
    pub intx: bool,
    /// MSI messages offered; 0 for none.
    pub msi: u8,
    /// Each MSI message can be masked.
    pub msi_masking: bool,
    /// MSI-X: how many vectors, and where their table and pending bits are.
    pub msix: Option<Msix>,
    /// PCI power management capability.
    pub pm: bool,
    /// The states from which PME can be asserted, as in bits 15:11 of PMC.
    pub pme: u8,
    /// A PCI Express endpoint with function level reset, and 4096 bytes of configuration space.
    pub pcie: bool,
    /// Extended capabilities and their offsets, in the order of their chain; the first is at 0x100.
    /// Only with [`Identity::pcie`].
    pub extended: Vec<(u16, Extended)>,
    /// Where the capabilities stand that have a place of their own in the real chip.
    pub places: Places,
    /// Capabilities of its own, behind the others.
    pub others: Vec<Capability>,
}

impl Identity {
    /// The configuration space in which it is found.
    pub fn config(&self) -> ConfigBuilder {
        let [base, sub, interface] = self.class.map(u32::from);
        let mut config = ConfigBuilder::new(self.vendor, self.device)
            .class(base << 16 | sub << 8 | interface)
            .revision(self.revision)
            .subsystem(self.subsystem_vendor, self.subsystem)
            .interrupt_pin(self.intx.into());
        for bar in &self.bars {
            let decoded = match bar.space {
                Space::Memory32 => pci::Bar::memory32(bar.size),
                Space::Memory64 => pci::Bar::memory64(bar.size),
                Space::Io => pci::Bar::io(bar.size),
            };
            config = config.bar(bar.index, decoded);
        }
        for (at, capability) in self.capabilities() {
            config = match at {
                0 => config.capability(capability),
                at => config.capability_at(at, capability),
            };
        }
        for capability in &self.others {
            config = config.capability(capability.clone());
        }
        if self.pcie {
            config = config.express();
        }
        for (at, what) in &self.extended {
            config = config.extended_at(*at, what.clone());
        }
        config
    }

    fn capabilities(&self) -> impl Iterator<Item = (u8, Capability)> {
        let Self {
            places, pme, msi, ..
        } = *self;
        let pm = self.pm.then(|| {
            let pm = PowerManagement {
                pme,
                ..PowerManagement::default()
            };
            (places.pm, Capability::PowerManagement(pm))
        });
        let msi = (msi > 0).then(|| {
            let msi = Msi::new(msi).address64();
            let msi = if self.msi_masking { msi.masking() } else { msi };
            (places.msi, Capability::Msi(msi))
        });
        let msix = self.msix.map(|m| (places.msix, Capability::Msix(m)));
        let pcie = (self.pcie).then(|| (places.pcie, Capability::Pcie(Pcie::endpoint())));
        [pm, msi, msix, pcie].into_iter().flatten()
    }
}

/// A NIC, taken apart.
pub struct Nic {
    /// What it looks like on the bus.
    pub identity: Identity,
    /// Registers.
    pub control: Box<dyn Control>,
    /// Transmit.
    pub transmit: Box<dyn Transmit>,
    /// Receive.
    pub receive: Arc<dyn Receive>,
    /// The model revision: which of the NICs that releases have shown guests under this model's name it is, from 1 on. Its states
    /// are [stamped](snapshot::stamp) with it.
    pub revision: u16,
}

#[cfg(test)]
mod tests {
    use pci::ExtendedCapability;

    use super::*;

    #[test]
    fn an_express_nic_is_found_with_its_capabilities_in_their_places() {
        let identity = Identity {
            vendor: 0x8086,
            device: 0x10c9,
            bars: vec![
                Bar {
                    index: 0,
                    space: Space::Memory32,
                    size: 128 << 10,
                },
                Bar {
                    index: 3,
                    space: Space::Memory32,
                    size: 16 << 10,
                },
            ],
            pm: true,
            msi: 1,
            msi_masking: true,
            msix: Some(Msix {
                vectors: 10,
                table_bar: 3,
                table_offset: 0,
                pba_bar: 3,
                pba_offset: 0x2000,
            }),
            pcie: true,
            extended: vec![(
                0x100,
                ExtendedCapability {
                    id: 3,
                    version: 1,
                    body: vec![0; 8],
                    ..ExtendedCapability::default()
                }
                .into(),
            )],
            places: Places {
                pm: 0x40,
                msi: 0x50,
                msix: 0x70,
                pcie: 0xa0,
            },
            ..Identity::default()
        };
        let space = identity.config().build().expect("possible");
        assert_eq!(space.len(), 4096);
        let mut chain = Vec::new();
        let mut at = space.read_u16(0x34) as u8;
        while at != 0 {
            let [id, next] = space.read_u16(at.into()).to_le_bytes();
            chain.push((at, id));
            at = next;
        }
        assert_eq!(chain, [(0x40, 1), (0x50, 5), (0x70, 0x11), (0xa0, 0x10)]);
        assert_eq!(space.read_u16(0x52), 0x0180); // 64-bit, maskable, one message
        assert_eq!(space.read_u16(0x72), 9); // ten vectors
        assert_eq!(space.read_u32(0x74), 3);
        assert_eq!(space.read_u32(0x78), 0x2003);
        assert_eq!(space.read_u32(0x100), 0x0001_0003);
    }
}
