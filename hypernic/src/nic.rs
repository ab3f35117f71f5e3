//! One NIC at work: a model, its vfio-user server, its timer and its place on a wire.
//!
//! The thread of a NIC answers register accesses and transmits; frames for the NIC are put into
//! its rings by whoever has them (an inlet's thread, another NIC's thread through the switch), so
//! receiving, transmitting and register accesses go on side by side.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use frame::{Batch, Caps, Counted, Sink, Wake};
use model::{
    Control, Env, Interrupts, Nic, PciState, PmeWrite, Progress, Receive, ResetKind, Space,
    Transmit,
};
use parking_lot::Mutex;
use pci::{Bar, Capability, ConfigEvent, Msi, PowerManagement, PowerState};
use port::Bell;
use rustix::event::{PollFd, PollFlags, poll};
use vfio_user::{
    ClientEvent, Device, DeviceDescription, DmaChange, ResetCause, Server, Work as ServerWork,
};

use crate::error::Error;
use crate::log::{Held, Limit};
use crate::nvm::NvmFile;
use crate::patience::Patience;
use crate::report::Section;
use crate::time::NicTimer;

/// Frames sent in one turn before the socket is looked at again.
const TX_BUDGET: usize = frame::MAX_BATCH;

/// Messages answered in one turn.
const MESSAGE_BUDGET: usize = 1024;

/// Turns of a busy NIC between two looks at its other descriptors.
const TURNS_PER_LOOK: u32 = 8;

/// Pauses between two looks while awake: about a microsecond, so that a look (a system call) is
/// not made in vain too often.
const PAUSES_PER_LOOK: u32 = 16;

/// How long a busy NIC thread may take to answer a question about its counters.
const PATIENCE: Duration = Duration::from_secs(2);

/// The description of a model's PCI function for the vfio-user server.
pub(crate) fn describe(identity: &model::Identity) -> DeviceDescription {
    let [base, sub, interface] = identity.class.map(u32::from);
    let mut description = DeviceDescription::new(identity.vendor, identity.device)
        .class(base << 16 | sub << 8 | interface)
        .revision(identity.revision)
        .subsystem(identity.subsystem_vendor, identity.subsystem);
    for bar in &identity.bars {
        let decoded = match bar.space {
            Space::Memory32 => Bar::memory32(bar.size),
            Space::Memory64 => Bar::memory64(bar.size),
            Space::Io => Bar::io(bar.size),
        };
        description = description.bar(bar.index, decoded);
    }
    if identity.intx {
        description = description.intx(1);
    }
    if identity.pm {
        description = description.capability(Capability::PowerManagement(PowerManagement {
            pme: identity.pme,
            ..PowerManagement::default()
        }));
    }
    if identity.msi > 0 {
        description = description.msi(Msi::new(identity.msi).address64());
    }
    description
}

/// The model's interrupt pins, wired to the server's eventfds.
struct Wires(vfio_user::Interrupts);

impl Interrupts for Wires {
    fn set_line(&self, level: bool) {
        self.0.set_line(level);
    }
    fn msi(&self, vector: u16) {
        self.0.msi(vector);
    }
    fn msix(&self, vector: u16) {
        self.0.msix(vector);
    }
    fn set_pme(&self, enabled: bool, status: bool) {
        self.0.set_pme(enabled, status);
    }
}

/// The receive side of a NIC as a sink, silent while no VMM is attached.
pub struct NicSink {
    receive: Arc<dyn Receive>,
    env: Env,
    attached: AtomicBool,
    no_client: AtomicU64,
}

impl Sink for NicSink {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        if !self.attached.load(Ordering::Acquire) {
            self.no_client
                .fetch_add(picks.len() as u64, Ordering::Relaxed);
            return picks.len();
        }
        self.receive.deliver(&self.env, batch, picks)
    }

    fn caps(&self) -> Caps {
        self.receive.caps()
    }

    fn want_room(&self, waker: &Arc<dyn Wake>) {
        self.receive.want_room(waker);
    }

    fn give_up(&self, batch: &Batch<'_>, picks: &[u16]) {
        self.receive.give_up(&self.env, batch, picks);
    }
}

/// Counters, in the order they were visited.
type Values = Vec<(&'static str, u64)>;

/// What other threads share with a NIC's thread.
struct Shared {
    bell: Arc<Bell>,
    quit: AtomicBool,
    link: AtomicBool,
    /// Who waits for counters.
    questions: Mutex<Vec<mpsc::Sender<Values>>>,
}

/// A running NIC.
pub struct RunningNic {
    name: String,
    shared: Arc<Shared>,
    sink: Arc<NicSink>,
    thread: Option<JoinHandle<()>>,
}

/// A NIC made, but not yet wired to a port.
pub(crate) struct NewNic {
    name: String,
    nic: Nic,
    nvm: Option<NvmFile>,
    server: Server,
    env: Env,
    timer: Arc<NicTimer>,
    sink: Arc<NicSink>,
}

impl NewNic {
    /// Joins a model and its server.
    pub(crate) fn new(
        name: &str,
        nic: Nic,
        nvm: Option<NvmFile>,
        server: Server,
        clock: Arc<dyn model::Clock>,
    ) -> Result<Self, Error> {
        let timer = Arc::new(NicTimer::new().map_err(Error::os("cannot make a timer"))?);
        let env = Env {
            memory: server.memory(),
            irq: Arc::new(Wires(server.interrupts())),
            clock,
            timer: Arc::clone(&timer) as Arc<dyn model::Timer>,
        };
        let sink = Arc::new(NicSink {
            receive: Arc::clone(&nic.receive),
            env: env.clone(),
            attached: AtomicBool::new(false),
            no_client: AtomicU64::new(0),
        });
        Ok(Self {
            name: name.to_owned(),
            nic,
            nvm,
            server,
            env,
            timer,
            sink,
        })
    }

    /// Where frames for the NIC go.
    pub(crate) fn sink(&self) -> Arc<NicSink> {
        Arc::clone(&self.sink)
    }

    /// Starts the NIC's thread; what the guest sends goes to `out`.
    /// `finished` is called when the one connection the NIC was given is over.
    pub(crate) fn start(
        self,
        out: Arc<dyn Sink>,
        busy_poll: Duration,
        finished: Box<dyn FnOnce() + Send>,
    ) -> Result<RunningNic, Error> {
        let bell = Bell::new().map_err(|source| Error::Os {
            what: "cannot make an eventfd",
            source,
        })?;
        let shared = Arc::new(Shared {
            bell: Arc::new(bell),
            quit: AtomicBool::new(false),
            link: AtomicBool::new(true),
            questions: Mutex::default(),
        });
        let waker = Arc::clone(&shared.bell) as Arc<dyn Wake>;
        let board = Board {
            name: self.name.clone(),
            control: self.nic.control,
            nvm: self.nvm,
            transmit: self.nic.transmit,
            env: self.env,
            sink: Arc::clone(&self.sink),
            out,
            waker,
            pci: PciState::default(),
            tx_ready: false,
            limit: Limit::default(),
        };
        let worker = Worker {
            server: self.server,
            board,
            timer: self.timer,
            shared: Arc::clone(&shared),
            finished: Some(finished),
            patience: Patience::new(busy_poll),
            link_shown: true,
            polls: 0,
        };
        let thread = std::thread::Builder::new()
            .name(format!("nic {}", self.name))
            .spawn(move || worker.run())
            .map_err(|source| Error::Os {
                what: "cannot start a thread",
                source,
            })?;
        Ok(RunningNic {
            name: self.name,
            shared,
            sink: self.sink,
            thread: Some(thread),
        })
    }
}

impl RunningNic {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where frames for it go.
    pub fn sink(&self) -> Arc<dyn Sink> {
        Arc::clone(&self.sink) as Arc<dyn Sink>
    }

    /// Pulls or plugs the cable.
    pub fn link_switch(&self) -> impl Fn(bool) + Send + Sync + use<> {
        let shared = Arc::clone(&self.shared);
        move |up| {
            shared.link.store(up, Ordering::Release);
            shared.bell.ring();
        }
    }

    /// Its counters, asked of its thread.
    pub fn counters(&self) -> Section {
        let (answer, question) = mpsc::channel();
        self.shared.questions.lock().push(answer);
        self.shared.bell.ring();
        let values = question.recv_timeout(PATIENCE).unwrap_or_default();
        Section {
            kind: "nic",
            name: self.name.clone(),
            values,
        }
    }
}

impl Drop for RunningNic {
    fn drop(&mut self) {
        self.shared.quit.store(true, Ordering::Release);
        self.shared.bell.ring();
        if let Some(thread) = self.thread.take() {
            // A panic over there has been reported by the panic hook already.
            let _ = thread.join();
        }
    }
}

/// The loop of one NIC's thread.
struct Worker {
    server: Server,
    board: Board,
    timer: Arc<NicTimer>,
    shared: Arc<Shared>,
    finished: Option<Box<dyn FnOnce() + Send>>,
    patience: Patience,
    link_shown: bool,
    polls: u64,
}

impl Worker {
    fn run(mut self) {
        let mut more = true;
        let mut turns = 0u32;
        while !self.shared.quit.load(Ordering::Acquire) {
            let progress = if more {
                if turns.is_multiple_of(TURNS_PER_LOOK) {
                    // Busy or not, the timer and the other descriptors get their turn.
                    self.look(Some(Duration::ZERO));
                }
                turns = turns.wrapping_add(1);
                self.turn()
            } else {
                self.wait()
            };
            more = progress.more;
        }
    }

    /// Does what there is to do now.
    fn turn(&mut self) -> vfio_user::Progress {
        if self.shared.bell.clear() {
            self.board.tx_ready = true;
            self.answer();
            self.follow_link();
        }
        match self.server.process(&mut self.board, MESSAGE_BUDGET) {
            Ok(progress) => {
                if let Some(tell) = self.finished.take_if(|_| progress.finished) {
                    tracing::info!(nic = %self.board.name, "its one connection is over");
                    tell();
                }
                progress
            }
            Err(error) => {
                // Only our own descriptors can fail here; going round at once would spin.
                tracing::error!(nic = %self.board.name, "cannot serve the socket: {error}");
                std::thread::sleep(Duration::from_millis(100));
                vfio_user::Progress::default()
            }
        }
    }

    /// Waits for something to do: first awake, for as long as that has paid of late, then asleep.
    ///
    /// A driver sends its register accesses in quick succession. To wake a sleeping thread costs
    /// its sender (a virtual CPU) more than the message itself, so it pays to look again for a
    /// few microseconds. How long follows from how long the last sleeps were, as in KVM's
    /// `halt_poll_ns`: short sleeps were not worth going to sleep for.
    fn wait(&mut self) -> vfio_user::Progress {
        let start = Instant::now();
        while start.elapsed() < self.patience.window() {
            // Whoever else wants this processor (the VMM's own threads above all) goes first.
            std::thread::yield_now();
            for _ in 0..PAUSES_PER_LOOK {
                std::hint::spin_loop();
            }
            let due = self.timer.take_due(self.board.env.clock.now());
            if due {
                self.board.control.tick(&self.board.env);
            }
            let progress = self.turn();
            if due || progress.messages > 0 || progress.more {
                self.patience.paid();
                return progress;
            }
        }
        // A turn may have taken the ring that came with `quit`; nobody rings twice.
        if self.shared.quit.load(Ordering::Acquire) {
            return vfio_user::Progress::default();
        }
        let asleep = Instant::now();
        self.look(None);
        self.patience.slept(asleep.elapsed());
        self.turn()
    }

    /// Looks at the socket, the interrupts' resample eventfds, the timer and the bell, for at most
    /// `timeout`.
    fn look(&mut self, timeout: Option<Duration>) {
        let mut timer_fired = false;
        {
            let bell = PollFd::new(&*self.shared.bell, PollFlags::IN);
            let timer = PollFd::new(&*self.timer, PollFlags::IN);
            let server = PollFd::from_borrowed_fd(self.server.as_fd(), PollFlags::IN);
            let mut fds = [bell, timer, server];
            let timeout = timeout.and_then(|t| rustix::event::Timespec::try_from(t).ok());
            self.polls += 1;
            if poll(&mut fds, timeout.as_ref()).is_ok() {
                timer_fired = fds[1].revents().contains(PollFlags::IN);
            }
        }
        if timer_fired && self.timer.expired() {
            self.board.control.tick(&self.board.env);
        }
    }

    fn answer(&mut self) {
        for asker in std::mem::take(&mut *self.shared.questions.lock()) {
            let mut values = Vec::new();
            let mut visit = |name, value| values.push((name, value));
            self.board.control.counters(&mut visit);
            self.server.counters(&mut visit);
            self.board.env.memory.counters(&mut visit);
            self.board.sink.counters(&mut visit);
            if let Some(nvm) = &self.board.nvm {
                nvm.counters(&mut visit);
            }
            visit("timer_calls", self.timer.syscalls());
            visit("poll_calls", self.polls);
            visit("polls_saved", self.patience.saved);
            let _ = asker.send(values);
        }
    }

    fn follow_link(&mut self) {
        let up = self.shared.link.load(Ordering::Acquire);
        if up != self.link_shown {
            self.link_shown = up;
            self.board.control.set_link(&self.board.env, up);
        }
    }
}

/// The model as the server's device.
struct Board {
    name: String,
    control: Box<dyn Control>,
    nvm: Option<NvmFile>,
    transmit: Box<dyn Transmit>,
    env: Env,
    sink: Arc<NicSink>,
    out: Arc<dyn Sink>,
    waker: Arc<dyn Wake>,
    pci: PciState,
    /// Transmit may have something to do.
    tx_ready: bool,
    limit: Limit,
}

impl Board {
    /// How many lines were held back, when one that a peer can cause may be written now.
    fn may_log(&self) -> Option<Held> {
        self.limit.pass(Instant::now())
    }
}

impl Device for Board {
    fn bar_read(&mut self, bar: u8, offset: u64, data: &mut [u8]) {
        self.control.read(&self.env, bar, offset, data);
    }

    fn bar_write(&mut self, bar: u8, offset: u64, data: &[u8]) {
        self.control.write(&self.env, bar, offset, data);
    }

    fn config_event(&mut self, event: ConfigEvent) {
        match event {
            ConfigEvent::Command { master, .. } => self.pci.bus_master = master,
            ConfigEvent::MsiEnable(on) => self.pci.msi = on,
            ConfigEvent::MsixEnable(on) => self.pci.msix = on,
            ConfigEvent::PowerState(state) => self.pci.d3 = state == PowerState::D3Hot,
            ConfigEvent::Pme { enable, cleared } => {
                self.pci.pme = Some(PmeWrite {
                    enable,
                    clear: cleared,
                });
            }
            _ => return,
        }
        self.control.pci(&self.env, self.pci);
        self.pci.pme = None;
    }

    fn reset(&mut self, why: ResetCause) {
        let kind = match why {
            ResetCause::PowerUp => ResetKind::PowerUp,
            _ => ResetKind::Bus,
        };
        self.pci = PciState::default();
        self.control.reset(&self.env, kind);
        self.control.pci(&self.env, self.pci);
    }

    fn client(&mut self, event: ClientEvent) {
        match event {
            ClientEvent::Connected => self.sink.attached.store(true, Ordering::Release),
            ClientEvent::Gone(_) => self.sink.attached.store(false, Ordering::Release),
            ClientEvent::Refused(_) => {}
        }
        let Some(held_back) = self.may_log() else {
            return;
        };
        let name = &self.name;
        match event {
            ClientEvent::Connected => tracing::info!(nic = %name, held_back, "VMM connected"),
            ClientEvent::Gone(why) => {
                tracing::info!(nic = %name, held_back, "VMM gone: {why}; waiting for the next");
            }
            ClientEvent::Refused(why) => {
                tracing::warn!(nic = %name, held_back, "another VMM turned away: {why}");
            }
        }
    }

    fn dma_map_changed(&mut self, change: DmaChange) {
        // RAM starts at 0, and again at 4 GiB; ROMs and device memory come without a descriptor
        // from every VMM and mean nothing.
        let DmaChange::Mapped {
            iova: 0 | 0x1_0000_0000,
            len,
            prot,
            shared: false,
        } = change
        else {
            return;
        };
        if prot.write
            && let Some(held_back) = self.may_log()
        {
            tracing::error!(
                nic = %self.name,
                held_back,
                "the VMM's RAM ({} MiB) is not shared, so the NIC cannot reach it: start QEMU with \
                 -object memory-backend-memfd,id=ram0,size=…,share=on -machine memory-backend=ram0, \
                 cloud-hypervisor with --memory shared=on",
                len >> 20
            );
        }
    }

    fn work(&mut self) -> ServerWork {
        if let Some(nvm) = &self.nvm
            && let Some(image) = self.control.take_nvm()
        {
            nvm.put(image);
        }
        let noted = self.control.take_work();
        if noted.rx {
            self.sink.receive.poll(&self.env);
        }
        if !(noted.tx || self.tx_ready) {
            return ServerWork::Idle;
        }
        let mut progress = self.transmit.run(&self.env, &*self.out, TX_BUDGET);
        if progress == Progress::Blocked {
            // Room may have come between the attempt and the registration.
            self.out.want_room(&self.waker);
            progress = self.transmit.run(&self.env, &*self.out, TX_BUDGET);
        }
        self.tx_ready = progress == Progress::More;
        if self.tx_ready {
            ServerWork::More
        } else {
            ServerWork::Idle
        }
    }
}

impl Counted for NicSink {
    fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("rx_no_client", self.no_client.load(Ordering::Relaxed));
    }
}
