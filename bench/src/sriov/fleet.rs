//! Ports with VMs behind them, and how they are driven: as fast as it goes, or at a rate.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use drivers::igbvf::{Masking, Poll};
use drivers::{Costs, SocketBus};
use rustix::event::epoll;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use serde_json::json;

use super::machine::{Machine, VmNic, gone};
use super::ours::Ours;
use super::sums::{adaptive, gap};
use crate::error::{Error, Result};
use crate::fabric::{Fabric, Traffic, config, delta, mac};
use crate::options::Options;
use crate::stats::Reading;
use crate::{load, machine};

/// How often a VM's driver decides on its gap anew; the paper's does once a second.
const PERIOD: Duration = Duration::from_millis(50);
/// What goes before a sample, for rates to settle.
pub const LEAD: Duration = Duration::from_millis(120);

/// How a fleet is laid out.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Which NICs.
    pub kind: VmNic,
    /// Ports.
    pub ports: usize,
    /// VMs of each.
    pub vms: usize,
    /// Descriptors of each ring.
    pub ring: u32,
    /// Longest frame, in bytes.
    pub longest: usize,
    /// For how many microseconds a worker stays awake for what might come (`busy-poll-us`).
    pub awake: u32,
}

/// When a VM is interrupted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Policy {
    /// So often a second at most.
    Hertz(f64),
    /// As the paper's equations have it, from the frames that come.
    Adaptive,
}

/// A load at a rate.
#[derive(Debug, Clone, Copy)]
pub struct Paced {
    /// VMs that take part.
    pub active: usize,
    /// Frames a second, all together.
    pub pps: f64,
    /// Bytes of each.
    pub size: u32,
    /// How often the senders send what is due.
    pub tick: Duration,
    /// When VMs are interrupted.
    pub policy: Policy,
    /// How they keep a second interrupt away.
    pub masking: Masking,
    /// Frames a VM's application takes of one interrupt; more is lost to it.
    pub buffers: u32,
    /// How long.
    pub seconds: f64,
}

/// A daemon with its ports, a sender at each, and VMs.
pub struct Fleet {
    /// The daemon.
    pub fabric: Fabric,
    plan: Plan,
    /// One for each port.
    clients: Vec<Machine>,
    /// VM n is at port n modulo their number.
    vms: Vec<Machine>,
    /// Where each client goes on.
    turns: Vec<u32>,
}

/// The file that makes it. The last NIC of each port is the sender's.
fn file(dir: &Path, plan: Plan) -> String {
    let mut text = "workers = 1\n".to_owned();
    let awake = plan.awake;
    for port in 0..plan.ports {
        let socket = |number: &str| dir.join(format!("p{port}-{number}.sock"));
        match plan.kind {
            VmNic::Vf => {
                let path = socket("{}");
                let vfs = plan.vms + 1;
                let _ = write!(
                    text,
                    "[[nic]]\nname = \"p{port}\"\nmodel = \"82576\"\nvfs = {vfs}\n\
                     vf-socket-path = {path:?}\nport = \"null\"\nbusy-poll-us = {awake}\n"
                );
            }
            kind => {
                let model = match kind {
                    VmNic::Virtio => "model = \"virtio-net\"\n",
                    VmNic::Vhost => "model = \"virtio-net\"\ntransport = \"vhost-user\"\n",
                    _ => "",
                };
                let _ = write!(text, "[[switch]]\nname = \"p{port}\"\nports = [\"null\"]\n");
                for number in 0..=plan.vms {
                    let path = socket(&number.to_string());
                    let mac = mac(port * (plan.vms + 1) + number).map(|b| format!("{b:02x}"));
                    // VFs have 2 kHz from their driver.
                    let _ = write!(
                        text,
                        "[[nic]]\nname = \"p{port}n{number}\"\nsocket-path = {path:?}\n\
                         mac = \"{}\"\nport = \"switch:p{port}\"\nmoderation = \"fixed:2000\"\n\
                         busy-poll-us = {awake}\n{model}",
                        mac.join(":")
                    );
                }
            }
        }
    }
    text
}

fn up(fabric: &Fabric, plan: Plan, port: usize, number: usize) -> Result<Machine> {
    let path = fabric.dir().join(format!("p{port}-{number}.sock"));
    let refused = |what: String| Error::Usage(format!("VM {number} of port {port}: {what}"));
    let size = plan.ring as u16;
    if plan.kind == VmNic::Vhost {
        let ours = Ours::over_vhost(&path, size)?;
        return Machine::ours(ours, mac(port * (plan.vms + 1) + number));
    }
    let bus = SocketBus::connect(path).map_err(|e| refused(e.to_string()))?;
    match plan.kind {
        VmNic::Virtio | VmNic::Vhost => {
            let (ours, mac) = Ours::over_vfio(bus, size)?;
            Machine::ours(ours, mac)
        }
        VmNic::Vf => Machine::vf(Poll::new(bus, plan.ring).map_err(gone)?),
        VmNic::E1000 => {
            let setup = config(Traffic::Plain(plan.longest), plan.ring);
            let guest = crate::fabric::Guest::new(bus, &setup);
            Machine::e1000(guest.map_err(|e| refused(e.to_string()))?)
        }
    }
}

impl Fleet {
    /// Starts a daemon on the second processor and connects all guests.
    ///
    /// # Errors
    /// When they do not come up.
    pub fn start(options: &Options, plan: Plan) -> Result<Self> {
        let core = machine::cores().1;
        let last = format!("p{}-{}.sock", plan.ports - 1, plan.vms);
        let hypernic = options.hypernic();
        let fabric = Fabric::serve(&hypernic, |dir| file(dir, plan), &last, Some(core))?;
        let (mut clients, mut vms) = (Vec::new(), Vec::new());
        for number in 0..=plan.vms {
            for port in 0..plan.ports {
                let mut vm = up(&fabric, plan, port, number)?;
                let nobody = mac(0xffff);
                vm.prepare(&load::frame(0, plan.longest, false, vm.mac, nobody));
                if number == plan.vms {
                    clients.push(vm);
                } else {
                    vms.push(vm);
                }
            }
        }
        let turns = vec![0; plan.ports];
        let mut fleet = Self {
            fabric,
            plan,
            clients,
            vms,
            turns,
        };
        // A switch that learns learns where each is.
        for at in 0..fleet.vms.len() {
            let to = fleet.clients[at % plan.ports].mac;
            fleet.vms[at].send(1, 60, |_| to)?;
        }
        fleet.settle()?;
        Ok(fleet)
    }

    /// As fast as it goes: each client sends to its VMs in turn, VMs look for what has come.
    ///
    /// # Errors
    /// When a device is gone.
    pub fn flat_out(
        &mut self,
        active: usize,
        burst: u32,
        len: u32,
        seconds: f64,
    ) -> Result<Reading> {
        let (ports, ring) = (self.plan.ports, self.plan.ring);
        let each = (active / ports).max(1);
        let cpu = self.fabric.cpu();
        let writes = [sum(&mut self.clients).writes, sum(&mut self.vms).writes];
        let (clients, vms) = (&mut self.clients, &mut self.vms);
        let work = move || {
            let start = Instant::now();
            let until = start + Duration::from_secs_f64(seconds);
            let own = machine::thread_time();
            let mut shares = vec![0u64; each * ports];
            let (mut turn, mut idle) = (0, 0);
            while Instant::now() < until {
                let mut moved = 0;
                for port in 0..ports {
                    let to = vms[turn * ports + port].mac;
                    moved += clients[port].send(burst, len, |_| to)?;
                    // The one before has had a round's time.
                    let at = (turn + each - 1) % each * ports + port;
                    let came = vms[at].receive(ring)?;
                    shares[at] += u64::from(came);
                    moved += came;
                }
                turn = (turn + 1) % each;
                idle = if moved == 0 { idle + 1 } else { 0 };
                if idle > 32 {
                    std::thread::yield_now();
                }
            }
            let own = machine::thread_time() - own;
            Ok::<_, Error>((start.elapsed().as_secs_f64(), own, shares))
        };
        let (took, own, shares) = on_the_first(work)?;
        let cpu = self.fabric.cpu() - cpu;
        let sends = sum(&mut self.clients).writes - writes[0];
        let gives = sum(&mut self.vms).writes - writes[1];
        self.settle()?;
        let received: u64 = shares.iter().sum();
        Ok(Reading {
            value: received as f64 / took / 1e6,
            raw: json!({
                "received": received, "seconds": took, "daemon_cpu": cpu / took * 100.0,
                "vms_cpu": own as f64 / 1e7 / took, "mpps_per_core": received as f64 / cpu / 1e6,
                "gbit": gigabits(received, len, took), "burst": burst,
                "sends": sends, "gives": gives,
            }),
        })
    }

    /// At a rate, with VMs that sleep until they are interrupted. The figure is the daemon's share of a
    /// core in percent.
    ///
    /// # Errors
    /// When a device is gone.
    pub fn paced(&mut self, paced: Paced) -> Result<Reading> {
        let first = match paced.policy {
            Policy::Hertz(hertz) => gap(hertz),
            Policy::Adaptive => gap(adaptive(paced.pps / paced.active as f64, self.plan.ring)),
        };
        for vm in &mut self.vms[..paced.active] {
            vm.interrupt(paced.masking, first)?;
        }
        let counters = self.fabric.counters()?;
        let (fabric, plan) = (&self.fabric, self.plan);
        let (clients, vms, turns) = (&mut self.clients, &mut self.vms, &mut self.turns);
        let ran = on_the_first(move || run(fabric, plan, paced, clients, vms, turns))?;
        let counters = delta(&counters, &self.fabric.counters()?);
        for vm in &mut self.vms[..paced.active] {
            vm.quiet()?;
        }
        self.settle()?;
        let took = ran.seconds;
        let frames = ran.received.max(1) as f64;
        Ok(Reading {
            value: ran.cpu / took * 100.0,
            raw: json!({
                "sent": ran.sent, "received": ran.received, "taken": ran.taken, "seconds": took,
                "kpps": ran.received as f64 / took / 1e3,
                "gbit": gigabits(ran.received, paced.size, took),
                "gbit_sent": gigabits(ran.sent, paced.size, took),
                "gbit_taken": gigabits(ran.taken, paced.size, took),
                "vms_cpu": ran.own / took * 100.0,
                "interrupts": ran.interrupts as f64 / took,
                "reads_per_packet": ran.costs.reads as f64 / frames,
                "writes_per_packet": ran.costs.writes as f64 / frames,
                "accesses_per_interrupt":
                    (ran.costs.reads + ran.costs.writes) as f64 / ran.interrupts.max(1) as f64,
                "with_lead": counters,
            }),
        })
    }

    /// What the daemon uses while all guests are idle, in percent of a core.
    pub fn idle(&self, seconds: f64) -> Reading {
        std::thread::sleep(Duration::from_millis(500));
        let cpu = self.fabric.cpu();
        let start = Instant::now();
        std::thread::sleep(Duration::from_secs_f64(seconds));
        let took = start.elapsed().as_secs_f64();
        let functions = self.vms.len() + self.clients.len();
        let memory = self.fabric.memory() as f64;
        Reading {
            value: (self.fabric.cpu() - cpu) / took * 100.0,
            raw: json!({"functions": functions, "kib_each": memory / functions as f64}),
        }
    }

    /// Has all VMs wait for interrupts, as idle guests do.
    ///
    /// # Errors
    /// When a device is gone.
    pub fn rest(&mut self) -> Result<()> {
        for vm in &mut self.vms {
            vm.interrupt(Masking::Device, gap(2000.0))?;
        }
        Ok(())
    }

    /// Takes in what is still under way, so that it is not the next sample's.
    fn settle(&mut self) -> Result<()> {
        let until = Instant::now() + Duration::from_secs(5);
        let mut quiet = 0;
        while quiet < 3 && Instant::now() < until {
            let mut came = 0;
            for vm in self.vms.iter_mut().chain(&mut self.clients) {
                came += vm.receive(self.plan.ring)?;
            }
            quiet = if came == 0 { quiet + 1 } else { 0 };
            std::thread::sleep(Duration::from_millis(if came == 0 { 10 } else { 1 }));
        }
        Ok(())
    }
}

/// Of frames of a size, in so many seconds.
pub fn gigabits(frames: u64, size: u32, seconds: f64) -> f64 {
    frames as f64 * f64::from(size) * 8.0 / seconds / 1e9
}

/// Runs something in a thread on the first processor.
///
/// # Errors
/// The work's.
pub fn on_the_first<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            machine::pin(machine::cores().0);
            work()
        });
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// What a paced run did.
#[derive(Debug, Default)]
struct Ran {
    seconds: f64,
    sent: u64,
    received: u64,
    /// Of these, what applications had room for.
    taken: u64,
    interrupts: u64,
    costs: Costs,
    /// Processor seconds of the daemon, and of all VMs and senders.
    cpu: f64,
    own: f64,
}

fn sum(vms: &mut [Machine]) -> Costs {
    let mut all = Costs::default();
    for vm in vms {
        all += vm.costs();
    }
    all
}

/// The timer's mark among the VMs' numbers.
const TIMER: u64 = u64::MAX;

/// Sends `due` frames, from each port its share of them. Gives how many could be sent.
fn send(
    paced: Paced,
    plan: Plan,
    due: u64,
    clients: &mut [Machine],
    vms: &[Machine],
    turns: &mut [u32],
) -> Result<u64> {
    let ports = plan.ports.min(paced.active);
    let each = (paced.active / ports) as u32;
    let mut sent = 0;
    for port in 0..ports {
        let share = (due / ports as u64 + u64::from((port as u64) < due % ports as u64)) as u32;
        if share == 0 {
            continue;
        }
        // One run of frames for each VM, as segments of a stream come.
        let (from, run) = (turns[port], share.div_ceil(each));
        let to = |n: u32| vms[((from + n / run) % each) as usize * plan.ports + port].mac;
        sent += u64::from(clients[port].send(share, paced.size, to)?);
        turns[port] = (from + share.div_ceil(run)) % each;
    }
    Ok(sent)
}

fn run(
    fabric: &Fabric,
    plan: Plan,
    paced: Paced,
    clients: &mut [Machine],
    vms: &mut [Machine],
    turns: &mut [u32],
) -> Result<Ran> {
    let failed = |e: rustix::io::Errno| Error::io("wait for interrupts")(e.into());
    let watch = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
    let tick =
        Timespec::try_from(paced.tick).map_err(|_| Error::Usage("there is no such tick".into()))?;
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = timerfd_create(TimerfdClockId::Monotonic, flags).map_err(failed)?;
    let every = Itimerspec {
        it_interval: tick,
        it_value: tick,
    };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &every).map_err(failed)?;
    let add = |fd, data| {
        let data = epoll::EventData::new_u64(data);
        epoll::add(&watch, fd, data, epoll::EventFlags::IN).map_err(failed)
    };
    add(rustix::fd::AsFd::as_fd(&timer), TIMER)?;
    for (number, vm) in vms[..paced.active].iter().enumerate() {
        add(rustix::fd::AsFd::as_fd(vm.event()), number as u64)?;
    }
    let ports = plan.ports.min(paced.active);
    let mut events: Vec<epoll::Event> = Vec::with_capacity(256);
    let mut ran = Ran::default();
    let mut begun = Instant::now();
    let mut lead = Some(begun + LEAD);
    let mut until = begun + LEAD + Duration::from_secs_f64(paced.seconds);
    let (mut due_since, mut offered) = (begun, 0u64);
    let mut decide = begun + PERIOD;
    let (mut cpu, mut own, mut costs) = (0.0, 0, Costs::default());
    loop {
        events.clear();
        let room = rustix::buffer::spare_capacity(&mut events);
        let wait = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        match epoll::wait(&watch, room, Some(&wait)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(failed(error)),
        }
        let mut ticked = false;
        for event in &events {
            let data = event.data.u64();
            if data == TIMER {
                let mut count = [0; 8];
                let _ = rustix::io::read(&timer, &mut count[..]);
                ticked = true;
                continue;
            }
            let vm = &mut vms[data as usize];
            let came = vm.handle(plan.ring)?;
            ran.received += u64::from(came);
            ran.taken += u64::from(came.min(paced.buffers));
        }
        if !ticked {
            continue;
        }
        let now = Instant::now();
        if lead.is_some_and(|lead| now >= lead) {
            lead = None;
            begun = now;
            until = now + Duration::from_secs_f64(paced.seconds);
            ran = Ran::default();
            (due_since, offered) = (now, 0);
            vms[..paced.active]
                .iter_mut()
                .for_each(|vm| vm.interrupts = 0);
            costs = sum(&mut vms[..paced.active]);
            (cpu, own) = (fabric.cpu(), machine::thread_time());
        }
        if lead.is_none() && now >= until {
            break;
        }
        if paced.policy == Policy::Adaptive && now >= decide {
            decide = now + PERIOD;
            for vm in &mut vms[..paced.active] {
                let pps = f64::from(std::mem::take(&mut vm.fresh)) / PERIOD.as_secs_f64();
                vm.set_gap(gap(adaptive(pps, plan.ring)))?;
            }
        }
        let due = ((now - due_since).as_secs_f64() * paced.pps) as u64;
        // A sender that was delayed for long does not make up for it in one burst.
        let due = (due - offered).min(u64::from(plan.ring) * ports as u64);
        ran.sent += send(paced, plan, due, clients, &*vms, turns)?;
        offered += due;
    }
    ran.seconds = begun.elapsed().as_secs_f64();
    ran.cpu = fabric.cpu() - cpu;
    ran.own = (machine::thread_time() - own) as f64 / 1e9;
    ran.costs = sum(&mut vms[..paced.active]) - costs;
    ran.interrupts = vms[..paced.active].iter().map(|vm| vm.interrupts).sum();
    Ok(ran)
}
