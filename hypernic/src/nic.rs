//! One NIC at work: a model, its vfio-user server, its timer and its place on a wire.
//!
//! A NIC's worker answers register accesses and transmits. The thread that has frames for the NIC (an
//! inlet's, or another worker's through the switch) writes them into its rings, so receiving goes on
//! beside transmitting and register accesses.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use frame::{Batch, Caps, Counted, Cut, Run, Sink, Wake};
use model::{
    Control, Env, Interrupts, Nic, PciState, Pme, Progress, Receive, ResetKind, Transmit, Watch,
};
use parking_lot::Mutex;
use pci::{ConfigEvent, PowerState};
use vfio_user::{
    ClientEvent, Device, DmaChange, EventSet, Look, ResetCause, Server, Work as ServerWork,
};

use crate::nvm::NvmFile;
use crate::report::Section;
use crate::worker::{ASKED, LOOK, Served, TRIED, Task, Turn, WOKEN, Workers};
use program::log::{Held, Limit};

/// Frames sent in one turn before the socket is looked at again.
const TX_BUDGET: usize = frame::MAX_BATCH;

/// Turns in a row of a transmitter that watches its guest's memory, before the worker looks for messages again.
const SPARED: u32 = 3;

/// Messages answered in one turn.
const MESSAGE_BUDGET: usize = 1024;

/// How long a busy worker may take to answer a question about a NIC's counters.
const PATIENCE: Duration = Duration::from_secs(2);

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
    fn set_pme(&self, pme: Pme) {
        self.0.set_pme(pme);
    }
}

/// Frames a guest is given before its doorbells are looked at: the driver gives buffers back in
/// memory, which sends no notice, and a ring that seems empty would cost frames.
const OWED: u32 = 32;

/// Calls a worker to look at doorbells in memory.
struct Hint {
    task: Arc<Task>,
    /// Frames given since it looked.
    owed: AtomicU32,
}

impl Hint {
    fn given(&self, frames: usize) {
        let frames = frames as u32;
        let before = self.owed.fetch_add(frames, Ordering::Relaxed);
        if before < OWED && before.saturating_add(frames) >= OWED {
            self.task.call(LOOK);
        }
    }
}

/// The receive side of a NIC as a sink, silent while no VMM is attached.
pub struct NicSink {
    receive: Arc<dyn Receive>,
    env: Env,
    attached: AtomicBool,
    /// It panicked while another NIC or a port gave it frames; its worker takes it off.
    failed: AtomicBool,
    task: Arc<Task>,
    no_client: AtomicU64,
    /// With doorbells in memory.
    hint: Option<Hint>,
}

impl NicSink {
    /// Runs a part of the NIC on the thread of another one. What fails there is this NIC's fault and costs only it.
    fn guarded<T>(&self, part: impl FnOnce() -> T) -> Option<T> {
        let done = catch_unwind(AssertUnwindSafe(part)).ok();
        if done.is_none() {
            self.attached.store(false, Ordering::Release);
            self.failed.store(true, Ordering::Release);
            self.task.call(ASKED);
        }
        done
    }
}

impl NicSink {
    #[inline]
    fn take(&self, picks: &[u16], deliver: impl FnOnce() -> usize) -> usize {
        if !self.attached.load(Ordering::Acquire) {
            self.no_client
                .fetch_add(picks.len() as u64, Ordering::Relaxed);
            return picks.len();
        }
        let Some(taken) = self.guarded(deliver) else {
            return picks.len();
        };
        if let Some(hint) = &self.hint {
            hint.given(taken);
        }
        taken
    }

    /// As [`NicSink::take`], in the short way.
    #[inline]
    fn take_some(&self, deliver: impl FnOnce() -> Option<usize>) -> Option<usize> {
        if !self.attached.load(Ordering::Acquire) {
            return None;
        }
        let taken = self.guarded(deliver).flatten()?;
        if let Some(hint) = &self.hint {
            hint.given(taken);
        }
        Some(taken)
    }
}

impl Sink for NicSink {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        self.take(picks, || self.receive.deliver(&self.env, batch, picks))
    }

    fn deliver_or_leave(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        let receive = &self.receive;
        self.take(picks, || receive.deliver_or_leave(&self.env, batch, picks))
    }

    fn deliver_run(&self, run: &Run<'_>) -> Option<usize> {
        self.take_some(|| self.receive.deliver_run(&self.env, run))
    }

    fn deliver_cut(&self, cut: &Cut<'_>, from: usize) -> Option<usize> {
        self.take_some(|| self.receive.deliver_cut(&self.env, cut, from))
    }

    fn caps(&self) -> Caps {
        self.receive.caps()
    }

    fn want_room(&self, waker: &Arc<dyn Wake>) {
        self.receive.want_room(waker);
        if let Some(hint) = &self.hint {
            hint.task.call(LOOK);
        }
    }

    fn give_up(&self, batch: &Batch<'_>, picks: &[u16]) {
        let _ = self.guarded(|| self.receive.give_up(&self.env, batch, picks));
    }
}

/// Counters, in the order they were visited.
type Values = Vec<(&'static str, u64)>;

/// What other threads share with a NIC's worker.
struct Inbox {
    link: AtomicBool,
    /// Turns that had something to do.
    served: AtomicU64,
    /// Who waits for counters.
    questions: Mutex<Vec<mpsc::Sender<Values>>>,
}

/// A running NIC.
pub struct RunningNic {
    name: String,
    inbox: Arc<Inbox>,
    sink: Arc<NicSink>,
    task: Arc<Task>,
    irq: vfio_user::Interrupts,
}

/// A NIC made, but not yet wired to a port.
pub(crate) struct NewNic {
    name: String,
    nic: Nic,
    nvm: Option<NvmFile>,
    server: Server,
    env: Env,
    task: Arc<Task>,
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
        workers: &Workers,
    ) -> Self {
        let task = workers.task(name);
        let env = Env {
            memory: server.memory(),
            irq: Arc::new(Wires(server.interrupts())),
            clock,
            timer: Arc::clone(&task) as Arc<dyn model::Timer>,
        };
        let sink = Arc::new(NicSink {
            receive: Arc::clone(&nic.receive),
            env: env.clone(),
            attached: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            task: Arc::clone(&task),
            no_client: AtomicU64::new(0),
            hint: server.has_doorbells().then(|| Hint {
                task: Arc::clone(&task),
                owed: AtomicU32::new(0),
            }),
        });
        Self {
            name: name.to_owned(),
            nic,
            nvm,
            server,
            env,
            task,
            sink,
        }
    }

    /// Where frames for the NIC go.
    pub(crate) fn sink(&self) -> Arc<NicSink> {
        Arc::clone(&self.sink)
    }

    /// Gives the NIC to its worker; what the guest sends goes to `out`.
    /// `finished` is called when the one connection the NIC was given is over.
    pub(crate) fn start(
        self,
        out: Arc<dyn Sink>,
        busy_poll: Duration,
        finished: Box<dyn FnOnce() + Send>,
    ) -> RunningNic {
        let inbox = Arc::new(Inbox {
            link: AtomicBool::new(true),
            served: AtomicU64::new(0),
            questions: Mutex::default(),
        });
        let board = Board {
            name: self.name.clone(),
            control: self.nic.control,
            nvm: self.nvm,
            transmit: self.nic.transmit,
            env: self.env,
            sink: Arc::clone(&self.sink),
            out,
            waker: Arc::clone(&self.task) as Arc<dyn Wake>,
            pci: PciState::default(),
            tx_ready: false,
            limit: Limit::default(),
        };
        let irq = self.server.interrupts();
        self.task.start(Box::new(NicBody {
            server: self.server,
            board,
            inbox: Arc::clone(&inbox),
            finished: Some(finished),
            busy_poll,
            link_shown: true,
            looks: Looks::default(),
        }));
        RunningNic {
            name: self.name,
            inbox,
            sink: self.sink,
            task: self.task,
            irq,
        }
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
        let (shared, task) = (Arc::clone(&self.inbox), Arc::clone(&self.task));
        move |up| {
            shared.link.store(up, Ordering::Release);
            task.call(ASKED);
        }
    }

    /// Has it look at what others share with it.
    pub(crate) fn bell(&self) -> Arc<dyn Wake> {
        Arc::new(Attend(Arc::clone(&self.task)))
    }

    /// Whether a VMM has it.
    pub(crate) fn is_attached(&self) -> bool {
        self.sink.attached.load(Ordering::Acquire)
    }

    /// Turns in which its guest had something to do.
    pub(crate) fn served(&self) -> u64 {
        self.inbox.served.load(Ordering::Relaxed)
    }

    /// Pulls its cable, and asks the VMM that has it to unplug it, if that listens.
    ///
    /// A device with MSI-X is not asked back: QEMU up to 11.1.3 aborts when it unplugs one.
    pub(crate) fn let_go(&self) {
        self.link_switch()(false);
        if !self.irq.has_msix() {
            self.irq.request();
        }
    }

    /// Its counters, asked of its worker.
    pub fn counters(&self) -> Section {
        let (answer, question) = mpsc::channel();
        self.inbox.questions.lock().push(answer);
        self.task.call(ASKED);
        let values = if self.task.has_fallen() {
            vec![("failed", 1)]
        } else {
            question.recv_timeout(PATIENCE).unwrap_or_default()
        };
        Section {
            kind: "nic",
            name: self.name.clone(),
            values,
        }
    }
}

impl Drop for RunningNic {
    fn drop(&mut self) {
        // Ended here, where it holds up no worker: it may have to write a file.
        drop(self.task.stop());
    }
}

/// Makes a NIC look at what other functions share with it.
struct Attend(Arc<Task>);

impl Wake for Attend {
    fn wake(&self) {
        self.0.call(ASKED);
    }
}

/// A NIC as its worker serves it.
struct NicBody {
    server: Server,
    board: Board,
    inbox: Arc<Inbox>,
    finished: Option<Box<dyn FnOnce() + Send>>,
    busy_poll: Duration,
    link_shown: bool,
    looks: Looks,
}

/// Where turns look for the client. Each look is a system call, which costs as much as a burst of
/// small frames.
#[derive(Debug, Default)]
struct Looks {
    /// The transmitter watches the guest's memory, and goes on without a message.
    watching: bool,
    /// Turns in a row that did not look.
    spared: u32,
}

impl Looks {
    /// For a turn that was called for `calls`.
    fn next(&mut self, calls: u32) -> Look {
        if calls & TRIED != 0 {
            return Look::Messages;
        }
        let spared = self.watching && calls == 0 && self.spared < SPARED;
        self.spared = if spared { self.spared + 1 } else { 0 };
        if spared { Look::Nowhere } else { Look::All }
    }
}

impl Served for NicBody {
    fn watch(&mut self, set: &EventSet) -> std::io::Result<()> {
        self.server.watch(set)
    }

    fn unwatch(&mut self) {
        self.server.unwatch();
    }

    fn busy_poll(&self) -> Duration {
        self.busy_poll
    }

    fn bell(&self) -> Option<&vfio_user::MappedDoorbells> {
        self.server.bell()
    }

    fn tick(&mut self) {
        self.board.control.tick(&self.board.env);
    }

    fn turn(&mut self, calls: u32) -> Turn {
        assert!(
            !self.board.sink.failed.load(Ordering::Acquire),
            "its receive side failed while others gave it frames"
        );
        self.board.tx_ready |= calls & WOKEN != 0;
        if calls & ASKED != 0 {
            self.answer();
            self.follow_link();
            self.board.control.attend(&self.board.env);
        }
        if let Some(hint) = &self.board.sink.hint {
            hint.owed.store(0, Ordering::Relaxed);
        }
        let look = self.looks.next(calls);
        let board = &mut self.board;
        match self.server.process_after(look, board, MESSAGE_BUDGET) {
            Ok(progress) => {
                if let Some(tell) = self.finished.take_if(|_| progress.finished) {
                    tracing::info!(nic = %self.board.name, "its inherited connection has ended");
                    tell();
                }
                let watch = self.board.transmit.watch();
                self.looks.watching = progress.more && watch != Watch::Off;
                // A look that found nothing does not count as served.
                let sent = progress.more && watch != Watch::Vain;
                let served = progress.messages > 0 || progress.doorbells > 0 || sent;
                if served {
                    self.inbox.served.fetch_add(1, Ordering::Relaxed);
                }
                Turn {
                    served,
                    more: progress.more,
                    ill: false,
                }
            }
            Err(error) => {
                // Only our own descriptors can fail here; going round at once would spin.
                if let Some(held_back) = self.board.may_log() {
                    let nic = &self.board.name;
                    tracing::error!(nic, held_back, "cannot serve the socket: {error}");
                }
                Turn {
                    ill: true,
                    ..Turn::default()
                }
            }
        }
    }
}

impl NicBody {
    fn answer(&mut self) {
        for asker in std::mem::take(&mut *self.inbox.questions.lock()) {
            let mut values = Vec::new();
            let mut visit = |name, value| values.push((name, value));
            self.board.control.counters(&mut visit);
            self.server.counters(&mut visit);
            self.board.env.memory.counters(&mut visit);
            self.board.sink.counters(&mut visit);
            if let Some(nvm) = &self.board.nvm {
                nvm.counters(&mut visit);
            }
            let _ = asker.send(values);
        }
    }

    fn follow_link(&mut self) {
        let up = self.inbox.link.load(Ordering::Acquire);
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
            ConfigEvent::Vfs { count, .. } => self.pci.vfs = count,
            ConfigEvent::PowerState(state) => self.pci.d3 = state == PowerState::D3Hot,
            ConfigEvent::Pme(write) => self.pci.pme = Some(write),
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
                tracing::info!(nic = %name, held_back, "VMM disconnected: {why}; waiting for the next");
            }
            ClientEvent::Refused(why) => {
                tracing::warn!(nic = %name, held_back, "refused another VMM: {why}");
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
                "the VMM's RAM ({} MiB) is not shared, so the NIC cannot reach it. Start QEMU with \
                 -object memory-backend-memfd,id=ram0,size=…,share=on -machine memory-backend=ram0, \
                 or cloud-hypervisor with --memory shared=on",
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

#[cfg(test)]
mod tests;
