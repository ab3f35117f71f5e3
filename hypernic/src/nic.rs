//! One NIC at work: a model, its vfio-user or vhost-user server, its timer and its place on a wire.
//!
//! A NIC's worker answers register accesses and transmits. The thread that has frames for the NIC (an
//! inlet's, or another worker's through the switch) writes them into its rings, so receiving goes on
//! beside transmitting and register accesses.

mod engine;
mod held;
mod lifeline;
mod lookout;
mod moved_vf;
mod rarp;
mod refusal;
mod sink;
mod unsent;
mod vfio;
mod vhost;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use frame::{Counted, Hot, Lines, Sink, Wake};
use guest_mem::LINE;
use model::{Env, Moderation, Nic, Peeked, Transmit};
use parking_lot::Mutex;
use program::log::Limit;
use vale::Witnesses;
use vfio_user::EventSet;

use self::engine::{Door, Engine};
pub(crate) use self::lifeline::{Found, Granted, revision_left};
pub(crate) use self::lookout::Lookout;
pub(crate) use self::moved_vf::revision_saved;
pub(crate) use self::refusal::HoldRefusal;
use self::sink::{Hint, NicSink};
use self::unsent::Unsent;
use self::vfio::{VfioDoor, Wires};
use self::vhost::{Alarm, CallWires, VhostDoor};
use crate::left::{Arrived, Left};
use crate::nvm::NvmFile;
use crate::report::Section;
use crate::timeline;
use crate::worker::{ASKED, OTHERS, QUESTION, Served, Task, Turn, WOKEN};

/// How long a busy worker may take to answer a question about a NIC's counters.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// Counters, in the order they were visited.
pub(crate) type Values = Vec<(&'static str, u64)>;

/// What others ask a NIC's worker, and who waits for the answer.
enum Question {
    Counters(mpsc::Sender<Values>),
    Registers(mpsc::Sender<Vec<Peeked>>),
    States(mpsc::Sender<Option<[Vec<u8>; 2]>>),
}

/// What other threads share with a NIC's worker.
struct Inbox {
    /// The port's other side is there.
    link: AtomicBool,
    /// The operator has not pulled the cable.
    plugged: AtomicBool,
    /// Nanoseconds that its worker may stay awake for it.
    busy_poll: AtomicU64,
    /// Turns that had something to do.
    served: AtomicU64,
    questions: Mutex<Vec<Question>>,
    /// What the operator has chosen since its worker looked.
    moderation: Mutex<Option<Moderation>>,
}

impl Inbox {
    fn has_link(&self) -> bool {
        self.link.load(Ordering::Acquire) && self.plugged.load(Ordering::Acquire)
    }

    /// The NIC goes on with the link that it had. While the operator's end is out, nothing is known of the other.
    fn was(&self, link: bool) {
        let plugged = self.plugged.load(Ordering::Acquire);
        self.link.store(link || !plugged, Ordering::Release);
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A running NIC.
pub struct RunningNic {
    name: String,
    inbox: Arc<Inbox>,
    sink: Arc<NicSink>,
    task: Arc<Task>,
    irq: Option<vfio_user::Interrupts>,
    revision: Option<u16>,
    /// Until [`Self::begin`], and while it is held.
    body: Mutex<Option<Box<NicBody>>>,
}

/// A NIC made, but not yet wired to a port.
pub(crate) struct NewNic {
    name: String,
    transmit: Box<dyn Transmit>,
    env: Env,
    task: Arc<Task>,
    sink: Arc<NicSink>,
    irq: Option<vfio_user::Interrupts>,
    /// Of its model; a virtio device, whose VMM asks for its features, has none to tell.
    revision: Option<u16>,
    /// What its turns touch.
    hot: Hot,
    /// Puts the NIC behind its door.
    door: Box<dyn FnOnce(Engine) -> Box<dyn Door>>,
}

impl NewNic {
    /// Joins a model and its vfio-user server, with what its chip has granted it and the memory in which it outlives a worker.
    pub(crate) fn over_vfio_user(
        (nic, nvm): (Nic, Option<NvmFile>),
        server: vfio_user::Server,
        clock: Arc<dyn model::Clock>,
        task: Arc<Task>,
        (granted, mac): (Option<Box<dyn Granted>>, [u8; 6]),
        found: Option<Found>,
    ) -> Self {
        let irq = server.interrupts();
        let env = Env {
            memory: server.memory(),
            irq: timeline::interrupts(Wires(irq.clone())),
            clock,
            timer: Arc::clone(&task) as Arc<dyn model::Timer>,
        };
        let hint = server.has_doorbells().then(|| Hint::new(&task));
        let sink = NicSink::new(nic.receive, &env, &task, hint);
        let (control, revision) = (nic.control, nic.revision);
        let mut hot = Hot::default();
        hot.add(Lines::first(&*control, LINE));
        hot.add(Lines::first(&*nic.transmit, LINE));
        sink.hot(&mut hot);
        Self {
            name: task.name().to_owned(),
            hot,
            transmit: nic.transmit,
            env,
            task,
            sink,
            irq: Some(irq),
            revision: Some(revision),
            door: Box::new(move |engine| {
                let (model, itself) = ((control, revision), (granted, mac));
                Box::new(VfioDoor::new(server, model, nvm, engine, itself, found))
            }),
        }
    }

    /// Joins a virtio device and its vhost-user server.
    pub(crate) fn over_vhost_user(
        device: virtio_net::Device,
        server: vhost_user::Server,
        clock: Arc<dyn model::Clock>,
        task: Arc<Task>,
    ) -> Self {
        let device = Arc::new(device);
        let alarm = Arc::new(Alarm::new(&task, &clock));
        let env = Env {
            memory: server.memory(),
            irq: timeline::interrupts(CallWires(server.calls())),
            clock,
            timer: Arc::clone(&alarm) as Arc<dyn model::Timer>,
        };
        let receive = Arc::new(virtio_net::Receiver {
            device: Arc::clone(&device),
        });
        let sink = NicSink::new(receive, &env, &task, None);
        let mut hot = Hot::default();
        sink.hot(&mut hot);
        Self {
            name: task.name().to_owned(),
            hot,
            transmit: Box::new(virtio_net::Sender {
                device: Arc::clone(&device),
            }),
            env,
            task,
            sink,
            irq: None,
            revision: None,
            door: Box::new(|engine| Box::new(VhostDoor::new(server, device, alarm, engine))),
        }
    }

    /// Queues that a vhost-user front end sees of a device.
    pub(crate) fn vhost_queues(device: &virtio_net::Device) -> u16 {
        vhost::queues(device)
    }

    /// Those who are shown what it loses.
    pub(crate) fn witnesses(&self) -> &Arc<Witnesses> {
        &self.sink.witnesses
    }

    /// Where frames for the NIC go.
    pub(crate) fn sink(&self) -> Arc<NicSink> {
        Arc::clone(&self.sink)
    }

    /// Puts the NIC together; what the guest sends goes to `out`. It works from [`RunningNic::begin`] on.
    /// `finished` is called when the one connection the NIC was given is over.
    pub(crate) fn start(
        self,
        out: Arc<dyn Sink>,
        busy_poll: Duration,
        finished: Box<dyn FnOnce() + Send>,
    ) -> RunningNic {
        let inbox = Arc::new(Inbox {
            link: AtomicBool::new(true),
            plugged: AtomicBool::new(true),
            busy_poll: AtomicU64::new(nanos(busy_poll)),
            served: AtomicU64::new(0),
            questions: Mutex::default(),
            moderation: Mutex::default(),
        });
        let mut hot = self.hot;
        out.hot(&mut hot);
        let seen = Box::new(Unsent {
            name: self.name.clone(),
            to: Arc::clone(&out),
            witnesses: Arc::clone(&self.sink.witnesses),
        });
        let engine = Engine {
            name: self.name.clone(),
            seen,
            transmit: self.transmit,
            env: self.env,
            sink: Arc::clone(&self.sink),
            out,
            waker: Arc::clone(&self.task) as Arc<dyn Wake>,
            tx_ready: false,
            limit: Limit::default(),
        };
        let body = Box::new(NicBody {
            name: self.name.clone(),
            door: (self.door)(engine),
            sink: Arc::clone(&self.sink),
            inbox: Arc::clone(&inbox),
            finished: Some(finished),
            link_shown: true,
            counters: 0,
        });
        hot.add(Lines::of(&*body));
        self.task.knows_hot(hot);
        RunningNic {
            name: self.name,
            inbox,
            sink: self.sink,
            task: self.task,
            irq: self.irq,
            revision: self.revision,
            body: Mutex::new(Some(body)),
        }
    }
}

impl RunningNic {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The revision of its model that its guest sees; `None`: its VMM asks for its features each time.
    pub(crate) fn revision(&self) -> Option<u16> {
        self.revision
    }

    /// Goes on with what a NIC of another worker has left, before it works.
    pub(crate) fn go_on(&mut self, arrived: Arrived) -> Result<(), String> {
        let link = arrived.left.link;
        let body = self.body.get_mut().as_mut().ok_or("it works already")?;
        body.door.go_on(arrived)?;
        body.link_shown = link;
        self.inbox.was(link);
        Ok(())
    }

    /// Goes on with what a worker that died has left, before it works. `None`: nothing.
    pub(crate) fn revive(&mut self) -> Option<Result<u64, String>> {
        /// This thread's, among those that a keeper watches: none serves so many workers.
        const MARK: usize = 127;
        let body = self.body.get_mut().as_mut()?;
        let page = keeper::current()?;
        // What kills this worker too is this NIC's.
        let mark = page.thread(MARK);
        if let Some(mark) = &mark {
            mark.begin(page.nics().place(&self.name));
        }
        let went = body.door.revive();
        if let Some(mark) = &mark {
            mark.end();
        }
        if let Some(Ok(_)) = went {
            body.link_shown = body.door.cable();
            self.inbox.was(body.link_shown);
        }
        went
    }

    /// Gives it to its worker.
    pub(crate) fn begin(&mut self) {
        if let Some(body) = self.body.get_mut().take() {
            self.task.start(body);
        }
    }

    /// Takes it from its worker, for good. `None`: it has fallen.
    pub(crate) fn leave(&self) -> Option<Box<dyn Served>> {
        self.task.stop()
    }

    /// Those who are shown what it loses.
    pub(crate) fn witnesses(&self) -> &Arc<Witnesses> {
        &self.sink.witnesses
    }

    /// Where frames for it go.
    pub fn sink(&self) -> Arc<dyn Sink> {
        Arc::clone(&self.sink) as Arc<dyn Sink>
    }

    /// Pulls or plugs the operator's end of the cable.
    pub(crate) fn plug(&self, plugged: bool) {
        self.inbox.plugged.store(plugged, Ordering::Release);
        self.task.call(ASKED);
    }

    /// Its worker may stay awake for it for so long from now on.
    pub(crate) fn set_busy_poll(&self, busy_poll: Duration) {
        let busy_poll = nanos(busy_poll);
        self.inbox.busy_poll.store(busy_poll, Ordering::Relaxed);
    }

    /// From its next turn on, its guest is interrupted as is said here.
    pub(crate) fn moderate(&self, how: Moderation) {
        *self.inbox.moderation.lock() = Some(how);
        self.task.call(ASKED);
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

    /// Whether its guest is on the way to another host, or from one.
    pub(crate) fn is_moving(&self) -> bool {
        self.sink.halted.load(Ordering::Acquire) || self.sink.memory().logged().is_some()
    }

    /// Whether a VMM has it.
    pub(crate) fn is_attached(&self) -> bool {
        self.sink.attached.load(Ordering::Acquire)
    }

    /// Turns in which its guest had something to do.
    pub(crate) fn served(&self) -> u64 {
        self.inbox.served.load(Ordering::Relaxed)
    }

    /// Whether its guest would get a frame, without effect; `None`: its model does not tell.
    pub(crate) fn trace(
        &self,
        frame: &frame::Frame<'_>,
        tell: &mut dyn FnMut(String, Option<&'static str>),
    ) -> Option<bool> {
        self.sink.trace(frame, tell)
    }

    /// Its interrupts; none, if its VMM has them.
    pub(crate) fn vectors(&self) -> Vec<vfio_user::VectorInfo> {
        let vectors = self.irq.as_ref().map(vfio_user::Interrupts::vectors);
        vectors.unwrap_or_default()
    }

    /// The memory of its guest that it reaches.
    pub(crate) fn regions(&self) -> Vec<guest_mem::RegionInfo> {
        self.sink.memory().regions()
    }

    /// Its worker, how many turns it had there, and the nanoseconds of those that had something to do.
    pub(crate) fn turns(&self) -> (usize, u64, u64) {
        let (turns, work) = self.task.turns();
        (self.task.worker(), turns, work)
    }

    /// Whether the VMM that has it may fail when it goes away under traffic. One that has it over vhost-user waits for the
    /// next in its place.
    pub(crate) fn will_be_missed(&self) -> bool {
        self.irq.is_some() && self.is_attached()
    }

    /// Pulls its cable, and asks the VMM that has it to unplug it, if that listens.
    ///
    /// A device with MSI-X is not asked back: QEMU up to 11.1.3 aborts when it unplugs one.
    pub(crate) fn let_go(&self) {
        self.link_switch()(false);
        if let Some(irq) = &self.irq
            && !irq.has_msix()
        {
            irq.request();
        }
    }

    /// Whether its cable is in, at both ends.
    pub(crate) fn has_link(&self) -> bool {
        self.inbox.has_link()
    }

    /// Whether its model panicked.
    pub(crate) fn has_failed(&self) -> bool {
        self.task.has_fallen()
    }

    /// Asks its worker for its counters. `None`: it has none any more.
    pub(crate) fn ask(&self) -> Option<mpsc::Receiver<Values>> {
        let (answer, question) = mpsc::channel();
        self.put(Question::Counters(answer)).then_some(question)
    }

    /// Its registers, asked of its worker, which looks at them without effect. `None`: it did not answer in time, or
    /// not any more.
    pub(crate) fn registers(&self) -> Option<Vec<Peeked>> {
        let (answer, question) = mpsc::channel();
        let asked = self.put(Question::Registers(answer));
        asked
            .then(|| question.recv_timeout(PATIENCE).ok())
            .flatten()
    }

    /// What it would leave to another program now: its client and itself. `None`: nothing that could go on.
    pub(crate) fn states(&self) -> Option<[Vec<u8>; 2]> {
        let (answer, question) = mpsc::channel();
        let asked = self.put(Question::States(answer));
        asked
            .then(|| question.recv_timeout(PATIENCE).ok())
            .flatten()
            .flatten()
    }

    /// Whether its worker will answer.
    fn put(&self, question: Question) -> bool {
        if self.task.has_fallen() {
            return false;
        }
        self.inbox.questions.lock().push(question);
        if self.answer_held() {
            return true;
        }
        self.task.call(QUESTION);
        !self.task.has_fallen()
    }

    /// What a NIC of this name has answered, or does until then.
    pub(crate) fn told(
        name: &str,
        question: Option<mpsc::Receiver<Values>>,
        until: Instant,
    ) -> Section {
        let left = until.saturating_duration_since(Instant::now());
        let told = |question: mpsc::Receiver<Values>| question.recv_timeout(left);
        Section {
            kind: "nic",
            name: name.to_owned(),
            values: match question {
                Some(question) => told(question).unwrap_or_default(),
                None => vec![("failed", 1)],
            },
        }
    }

    /// Its counters, asked of its worker.
    pub fn counters(&self) -> Section {
        Self::told(&self.name, self.ask(), Instant::now() + PATIENCE)
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
    name: String,
    door: Box<dyn Door>,
    sink: Arc<NicSink>,
    inbox: Arc<Inbox>,
    finished: Option<Box<dyn FnOnce() + Send>>,
    link_shown: bool,
    /// How many counters it had when it was asked last.
    counters: usize,
}

impl Served for NicBody {
    fn watch(&mut self, set: &EventSet) -> std::io::Result<()> {
        self.door.watch(set)
    }

    fn unwatch(&mut self) {
        self.door.unwatch();
    }

    fn busy_poll(&self) -> Duration {
        Duration::from_nanos(self.inbox.busy_poll.load(Ordering::Relaxed))
    }

    fn bell(&self) -> Option<&vfio_user::MappedDoorbells> {
        self.door.bell()
    }

    fn tick(&mut self) {
        self.door.tick();
    }

    fn is_settled(&self) -> bool {
        self.door.is_settled()
    }

    fn leave(&mut self) -> Option<Left> {
        let left = self.door.leave()?;
        Some(Left {
            name: self.name.clone(),
            link: self.link_shown,
            ..left
        })
    }

    fn answer(&mut self) {
        for question in std::mem::take(&mut *self.inbox.questions.lock()) {
            match question {
                Question::Counters(asker) => {
                    let mut values = Vec::with_capacity(self.counters);
                    let mut visit = |name, value| values.push((name, value));
                    self.door.counters(&mut visit);
                    self.sink.counters(&mut visit);
                    self.counters = values.len();
                    let _ = asker.send(values);
                }
                Question::Registers(asker) => {
                    let mut registers = Vec::new();
                    self.door.peek(&mut |register| registers.push(register));
                    let _ = asker.send(registers);
                }
                Question::States(asker) => {
                    let _ = asker.send(self.door.states());
                }
            }
        }
    }

    fn turn(&mut self, calls: u32) -> Turn {
        assert!(
            !self.sink.failed.load(Ordering::Acquire),
            "its receive side failed while others gave it frames"
        );
        if calls & OTHERS != 0 {
            self.door.engine().out.prefetch();
        }
        let calls = calls & !OTHERS;
        self.door.engine().tx_ready |= calls & WOKEN != 0;
        if calls & ASKED != 0 {
            let chosen = self.inbox.moderation.lock().take();
            if let Some(how) = chosen {
                self.door.moderate(how);
            }
            self.follow_link();
            self.door.attend();
        }
        if let Some(hint) = &self.sink.hint {
            hint.owed.store(0, Ordering::Relaxed);
        }
        match self.door.turn(calls) {
            Ok(turn) => {
                if let Some(tell) = self.finished.take_if(|_| turn.finished) {
                    tracing::info!(nic = %self.name, "its inherited connection has ended");
                    tell();
                }
                if turn.served {
                    self.inbox.served.fetch_add(1, Ordering::Relaxed);
                }
                Turn {
                    served: turn.served,
                    more: turn.more,
                    ill: false,
                    answered: turn.answered,
                }
            }
            Err(error) => {
                // Only our own descriptors can fail here; going round at once would spin.
                if let Some(held_back) = self.door.engine().may_log() {
                    let nic = &self.name;
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
    fn follow_link(&mut self) {
        let up = self.inbox.has_link();
        if up != self.link_shown {
            self.link_shown = up;
            self.door.set_link(up);
        }
    }
}
