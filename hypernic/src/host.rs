//! A whole host: switches, ports and NICs, wired as the configuration says.

mod apply;
mod cells;
mod change;
mod far;
mod handed;
mod inlets;
mod leaving;
mod looking;
mod making;
mod member;
mod moved_vfs;
mod moves;
#[cfg(test)]
mod revision_tests;
mod switch;
mod trace;
mod trial;
mod vfs;
mod wiring;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use eswitch::Owner;
use frame::Counted;
use model::Clock;
use port::InletThread;
use registry::Function;
use vfio_user::{DeviceDescription, Listener, Server};

use self::far::Far;
pub(crate) use self::far::Losses;
pub use self::far::NicState;
use self::inlets::inlet;
use self::member::ChipMember;
use self::switch::RunningSwitch;
pub use self::trial::Trial;
use crate::capture::NicCapture;
use crate::chip::RunningChip;
use crate::config::{Cable, ChipConfig, HostConfig, NicConfig, SocketSpec, SwitchConfig};
use crate::error::Error;
use crate::gate::Gate;
use crate::kept_streams;
use crate::left::AllLeft;
use crate::make::{make, make_virtio};
use crate::moves::Moves;
use crate::nic::{self, Lookout, NewNic, RunningNic};
use crate::spec::{Doorbell, PortSpec, Transport};
use crate::tenants::Tenants;
use crate::time::MonotonicClock;
use crate::worker::{Pulses, Workers};
use crate::{fds, ports, quarantine, timeline};

/// Everything that runs. NICs and ports may come and go while it does.
pub struct Host {
    clock: Arc<dyn Clock>,
    switches: BTreeMap<String, RunningSwitch>,
    /// Its chips with virtual functions, and what they were made from.
    chips: BTreeMap<String, (RunningChip, ChipConfig)>,
    nics: BTreeMap<String, Attached>,
    tenants: Tenants,
    /// What it is besides these.
    head: HostConfig,
    /// A configuration that is taken back unless it is confirmed.
    trial: Option<Trial>,
    /// Descriptors that were handed over.
    handed: Vec<OwnedFd>,
    /// How often it was changed.
    generation: AtomicU64,
    /// After the NICs, which have to leave them first.
    workers: Workers,
    /// NICs there are to be.
    planned: usize,
    live: Arc<AtomicUsize>,
    all_finished: Arc<dyn Fn() + Send + Sync>,
    /// While it is started: NICs and ports wait for all others.
    gate: Option<Arc<Gate>>,
    /// NICs that go on.
    left: AllLeft,
    /// NICs that move to other hosts and from them.
    moves: Moves,
    /// What other processes serve.
    far: Far,
}

/// NICs and tenants that a host with a control socket is prepared for at least.
const ROOM: usize = 64;

/// A NIC and what it hangs on. The order of the fields is the order of their end: first the
/// thread that brings frames in, then the NIC.
struct Attached {
    config: NicConfig,
    inlet: Option<InletThread>,
    nic: RunningNic,
    port: Option<(String, Arc<dyn Counted>)>,
    /// The switch it is a port of.
    switch: Option<String>,
    capture: NicCapture,
    /// The connection that it was given is over.
    over: Arc<AtomicBool>,
}

impl Host {
    /// Opens and starts everything in the configuration.
    ///
    /// # Errors
    /// The first thing that cannot be had, with its cure; what was started before is closed again.
    pub fn start(config: &HostConfig) -> Result<Self, Error> {
        Self::start_with(config, AllLeft::default(), || {})
    }

    /// As [`Host::start`]; `all_finished` is called when every NIC had one inherited connection
    /// and all of them are over. What the worker before has `left` goes on.
    ///
    /// # Errors
    /// As [`Host::start`].
    pub fn start_with(
        config: &HostConfig,
        left: AllLeft,
        all_finished: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let clock: Arc<dyn Clock> = Arc::new(MonotonicClock);
        // With a control socket, more may come.
        let room = if config.control.is_some() { ROOM } else { 0 };
        let moves = Moves::read(config.own_control().as_deref()).map_err(Error::Host)?;
        let mut host = Host {
            workers: Workers::start(config.workers, &clock)?,
            clock,
            switches: BTreeMap::new(),
            chips: BTreeMap::new(),
            nics: BTreeMap::new(),
            tenants: Tenants::new(config.tenants().max(room), config.nics.len().max(room)),
            head: config.head(),
            trial: None,
            handed: Vec::new(),
            generation: AtomicU64::new(0),
            planned: config.nics.len(),
            // One for the beginning: not all are over before all are there.
            live: Arc::new(AtomicUsize::new(1)),
            all_finished: Arc::new(all_finished),
            gate: Some(Arc::default()),
            left,
            moves,
            far: Far::default(),
        };
        host.adopt_handed(config);
        let made = host.make_all(config).and_then(|()| host.settle());
        kept_streams::close_others();
        host.remember_seen();
        // Also if not all could be made: what waits there ends then.
        if let Some(gate) = host.gate.take() {
            gate.open();
        }
        made?;
        std::mem::take(&mut host.left).end();
        let names: Vec<_> = host.nics.keys().cloned().collect();
        for name in names {
            host.begin_nic(&name);
        }
        if host.live.fetch_sub(1, Ordering::AcqRel) == 1 && !host.nics.is_empty() {
            (host.all_finished)();
        }
        Ok(host)
    }

    /// Makes a switch with its ports.
    ///
    /// # Errors
    /// A port that cannot be opened, with its cure.
    pub fn add_switch(&mut self, config: &SwitchConfig) -> Result<(), Error> {
        let opens = self.head.own_cell().is_none();
        let clock = Arc::clone(&self.clock);
        let running = RunningSwitch::start(config, clock, self.gate.as_ref(), opens)?;
        self.switches.insert(config.name.clone(), running);
        Ok(())
    }

    /// Opens a port on a switch.
    ///
    /// # Errors
    /// There is no such switch, or the port cannot be opened; nothing has changed.
    pub fn add_port(&mut self, switch: &str, spec: &PortSpec) -> Result<(), Error> {
        let running = self.switches.get_mut(switch).ok_or_else(|| Error::Port {
            owner: switch.to_owned(),
            port: spec.to_string(),
            message: "there is no such switch".into(),
        })?;
        running.add_port(spec, self.gate.as_ref())
    }

    /// Closes a port of a switch. `false` when there is none that is written so.
    pub fn remove_port(&mut self, switch: &str, spec: &PortSpec) -> bool {
        let running = self.switches.get_mut(switch);
        let gone = running.is_some_and(|running| running.remove_port(spec));
        self.release();
        gone
    }

    /// Makes a chip, to which virtual functions can be added.
    ///
    /// # Errors
    /// A port that cannot be had, with its cure.
    pub fn add_chip(&mut self, config: &ChipConfig) -> Result<(), Error> {
        if !self.head.is_own_chip(config) {
            self.far.chips.insert(config.name.clone(), config.clone());
            return Ok(());
        }
        let running = (self.wired_chip(config)?, config.clone());
        self.chips.insert(config.name.clone(), running);
        Ok(())
    }

    /// Makes a NIC and starts serving it.
    ///
    /// # Errors
    /// A socket, port or capture file that cannot be had, with its cure.
    pub fn add_nic(&mut self, config: &NicConfig) -> Result<(), Error> {
        let moved = self.as_moved(config);
        let config = moved.as_ref().unwrap_or(config);
        if !self.head.is_own(config) {
            return self.add_far_nic(config);
        }
        let moved = self.moved_in(&config.name);
        let held = moved.as_ref().is_some_and(|one| one.holds());
        let saved = moved.as_ref().and_then(|one| one.state.as_deref());
        let went_on = self.make_nic(config, held, saved)?;
        if let Some(one) = moved {
            self.settle_moved(&one, went_on);
        }
        if self.gate.is_none() {
            self.begin_nic(&config.name);
        }
        Ok(())
    }

    /// Makes a NIC that no worker has yet, which may be loaded with `saved` then. `held`: not as what a worker before has left.
    /// Whether it is to go on as that.
    fn make_nic(
        &mut self,
        config: &NicConfig,
        held: bool,
        saved: Option<&[u8]>,
    ) -> Result<bool, Error> {
        self.try_make_nic(config, held, saved).inspect_err(|_| {
            if let SocketSpec::Path(path) = &config.socket {
                fds::forget(path);
            }
            ports::forget(&config.port);
        })
    }

    fn try_make_nic(
        &mut self,
        config: &NicConfig,
        held: bool,
        saved: Option<&[u8]>,
    ) -> Result<bool, Error> {
        let ruled = |chip: &str| {
            let mut nics = self.nics.values();
            nics.any(|nic| nic.config.rules.as_deref() == Some(chip))
        };
        let chips = |name: &str| self.chips.get(name).map(|(chip, _)| chip);
        let member = ChipMember::find(chips, config, ruled)?;
        let new = match config.transport {
            Transport::VfioUser => {
                let left = self.left.revision(&config.name);
                let left = left.or_else(|| nic::revision_left(&config.name));
                let left = left.filter(|_| !held);
                let revision = left.or(saved.and_then(nic::revision_saved));
                self.over_vfio_user(config, revision, member.as_ref())?
            }
            Transport::VhostUser => self.over_vhost_user(config)?,
        };

        let capture = self.capture_of(config)?;
        let toward_guest = timeline::arrives(capture.toward_guest(new.sink()));
        let wire = self.wire(config, member.as_ref(), &toward_guest)?;
        let out = match &wire.opened {
            Some(port) => Lookout::new(
                &config.name,
                wire.sink,
                Arc::clone(&port.counters),
                Arc::clone(new.witnesses()),
            ),
            None => wire.sink,
        };
        let toward_wire = timeline::leaves(capture.toward_wire(out));

        let arrived = self.left.take(&config.name);
        let live = Arc::clone(&self.live);
        let all_finished = Arc::clone(&self.all_finished);
        let over = Arc::<AtomicBool>::default();
        let ends = Arc::clone(&over);
        let finished = Box::new(move || {
            let first = !ends.swap(true, Ordering::AcqRel);
            if first && live.fetch_sub(1, Ordering::AcqRel) == 1 {
                all_finished();
            }
        });
        self.live.fetch_add(1, Ordering::AcqRel);
        let mut nic = new.start(toward_wire, config.busy_poll, finished);
        nic.plug(config.cable == Cable::Up);
        if wire.is_cut {
            nic.link_switch()(false);
        }
        let mut went_on = false;
        if held {
            nic.forsake();
        } else if let Some(arrived) = arrived {
            went_on = Self::go_on(config, &mut nic, arrived);
        } else {
            went_on = Self::revive(&mut nic);
        }
        if let Some(member) = member {
            member.stay(&nic);
        }
        let mut attached = Attached {
            config: config.clone(),
            inlet: None,
            nic,
            port: None,
            switch: wire.switch,
            capture,
            over,
        };
        if let Some(port) = wire.opened {
            if let Some(source) = port.inlet {
                let link = attached.nic.link_switch();
                let thread = format!("port {}", config.name);
                let shown = format!("{}/{}", config.name, port.name);
                let linked = move |up| link(up);
                let started = inlet(
                    &thread,
                    source,
                    toward_guest,
                    shown,
                    linked,
                    self.gate.as_ref(),
                );
                attached.inlet = Some(started.inspect_err(|_| {
                    self.live.fetch_sub(1, Ordering::AcqRel);
                })?);
            }
            attached.port = Some((port.name, port.counters));
        }
        self.nics.insert(config.name.clone(), attached);
        Ok(went_on)
    }

    /// What captures a NIC's frames, with its file if it has one.
    fn capture_of(&self, config: &NicConfig) -> Result<NicCapture, Error> {
        let mut capture = NicCapture::new(&config.name);
        if let Some(file) = &config.capture {
            let created = capture.create(file, config.capture_mib, &config.name);
            match created {
                Err(message) if self.is_made_again() => {
                    tracing::error!(nic = %config.name, "it goes on without its capture: {message}");
                }
                created => created.map_err(|message| Error::Port {
                    owner: config.name.clone(),
                    port: format!("capture {}", file.display()),
                    message,
                })?,
            }
        }
        Ok(capture)
    }

    /// What ran in another worker is being made: its guests wait for it.
    fn is_made_again(&self) -> bool {
        self.gate.is_some() && keeper::current().is_some_and(|page| page.life() > 1)
    }

    /// Whether its workers still turn.
    pub fn pulses(&self) -> Pulses {
        self.workers.pulses()
    }

    /// A NIC as a PCI function, on its socket.
    fn over_vfio_user(
        &self,
        config: &NicConfig,
        revision: Option<u16>,
        member: Option<&ChipMember<'_>>,
    ) -> Result<NewNic, Error> {
        let function = member.map_or(&Function::Alone, |member| &member.function);
        let granted = member.and_then(ChipMember::granted);
        let again = self.is_made_again();
        let made = make(config, revision, function, again);
        let (mut nic, nvm) = made.map_err(|message| Error::Nvm {
            nic: config.name.clone(),
            message,
        })?;
        let absent = quarantine::holds(&config.name);
        if absent {
            tracing::error!(
                nic = %config.name,
                "in quarantine: the worker died twice while serving it; its registers read as ones"
            );
            nic = quarantine::instead_of(nic);
        }
        let listener = self.listener(config)?;
        let mut description = DeviceDescription::from_config(nic.identity.config());
        if config.doorbell == Doorbell::Page && !absent {
            let doorbells = nic.control.doorbells().ok_or_else(|| {
                Error::Usage(format!(
                    "{}: model \"{}\" has no doorbell page: its drivers tell it by registers that \
                     cannot be memory; write doorbell = \"trap\"",
                    config.name, nic.identity.model
                ))
            })?;
            description = description.doorbells(doorbells);
        }
        let tenant = self.tenants.get(&config.tenant);
        let server = Server::of_tenant(description, listener, &tenant)
            .map_err(|error| self.socket_error(config, &error))?;
        let found = match nic::Found::of(&config.name) {
            Err(error) if again || fds::exhausted(&error, 0).is_none() => {
                tracing::error!(nic = %config.name, "its guest would not outlive a crash: {error}");
                None
            }
            found => found.map_err(|error| self.socket_error(config, &error))?,
        };
        let task = self.workers.task(&config.name);
        let clock = Arc::clone(&self.clock);
        let (nic, new) = ((nic, nvm), NewNic::over_vfio_user);
        Ok(new(
            nic,
            server,
            clock,
            task,
            (granted, config.mac.0),
            found,
        ))
    }

    /// A NIC as a virtio device's rings, on its socket.
    fn over_vhost_user(&self, config: &NicConfig) -> Result<NewNic, Error> {
        let device = make_virtio(config)
            .map_err(|message| Error::Usage(format!("{}: {message}", config.name)))?;
        let listener = self.listener(config)?;
        let tenant = self.tenants.get(&config.tenant);
        let queues = NewNic::vhost_queues(&device);
        let server = vhost_user::Server::of_tenant(queues, listener, &tenant)
            .map_err(|error| self.socket_error(config, &error))?;
        let task = self.workers.task(&config.name);
        let clock = Arc::clone(&self.clock);
        Ok(NewNic::over_vhost_user(device, server, clock, task))
    }

    /// The socket of a NIC.
    fn listener(&self, config: &NicConfig) -> Result<Listener, Error> {
        match &config.socket {
            SocketSpec::Path(path) => fds::listen(path, self.head.sockets),
            SocketSpec::Fd(fd) => {
                let fd = fds::inherited(*fd).map_err(|message| Error::Socket {
                    nic: config.name.clone(),
                    message,
                })?;
                match self.left.has(&config.name) || keeper::is_held(fd.as_fd()) {
                    true => Listener::goes_on(fd),
                    false => Listener::from_fd(fd),
                }
            }
        }
        .map_err(|error| self.socket_error(config, &error))
    }

    fn socket_error(&self, config: &NicConfig, error: &(dyn std::error::Error + 'static)) -> Error {
        Error::Socket {
            nic: config.name.clone(),
            message: self.cause(error),
        }
    }

    /// The cause and cure of an error; the want of descriptors is seldom the fault of the NIC that
    /// found none.
    fn cause(&self, error: &(dyn std::error::Error + 'static)) -> String {
        let mut source = Some(error);
        while let Some(error) = source {
            if let Some(io) = error.downcast_ref::<std::io::Error>()
                && let Some(cure) = fds::exhausted(io, self.planned.max(self.nics.len() + 1))
            {
                return cure;
            }
            source = error.source();
        }
        error.to_string()
    }

    /// Stops a NIC and takes it off its wire; others notice nothing. `false` when there is none
    /// of that name.
    pub fn remove_nic(&mut self, name: &str) -> bool {
        if let Some(far) = self.far.nics.remove(name) {
            self.far.has_gone(far);
            return true;
        }
        let Some(attached) = self.nics.remove(name) else {
            return false;
        };
        if let SocketSpec::Path(path) = &attached.config.socket {
            fds::forget(path);
        }
        ports::forget(&attached.config.port);
        quarantine::end(name);
        if !attached.over.swap(true, Ordering::AcqRel) {
            self.live.fetch_sub(1, Ordering::AcqRel);
        }
        let place = match (&attached.config.vf, &attached.config.rules) {
            (Some(vf), _) => Some((&vf.chip, Owner::Vf(vf.index))),
            (None, Some(chip)) => Some((chip, Owner::Pf)),
            (None, None) => None,
        };
        if let Some((chip, owner)) = place
            && let Some((chip, _)) = self.chips.get(chip)
        {
            chip.remove(name, owner);
        }
        if let Some(running) = attached.switch.as_ref().and_then(|s| self.switches.get(s)) {
            running.switch.detach(name);
        }
        drop(attached.inlet);
        drop(attached.nic);
        self.release();
        true
    }

    /// Closes a chip. `false`, and nothing happens, when there is none of that name or it still has
    /// virtual functions.
    pub fn remove_chip(&mut self, name: &str) -> bool {
        let is_of = |nic: &NicConfig| nic.of_chip().is_some_and(|chip| chip == name);
        if self.nic_configs().any(is_of) {
            return false;
        }
        if self.far.chips.remove(name).is_some() {
            return true;
        }
        let Some((chip, config)) = self.chips.remove(name) else {
            return false;
        };
        ports::forget(&config.port);
        drop(chip);
        self.release();
        true
    }

    /// Closes a switch and its ports. `false`, and nothing happens, when there is none of that name
    /// or a NIC is on it.
    pub fn remove_switch(&mut self, name: &str) -> bool {
        let used = |nic: &Attached| nic.switch.as_deref() == Some(name);
        let led_to = |(chip, _): &(RunningChip, ChipConfig)| chip.outer_name() == Some(name);
        if self.nics.values().any(used) || self.chips.values().any(led_to) {
            return false;
        }
        let Some(running) = self.switches.remove(name) else {
            return false;
        };
        running.forget();
        drop(running);
        self.release();
        true
    }

    /// Ends everything: no frame in flight is touched after this returns.
    pub fn stop(mut self) {
        let names: Vec<_> = self.nics.keys().cloned().collect();
        for name in names {
            self.remove_nic(&name);
        }
    }
}
