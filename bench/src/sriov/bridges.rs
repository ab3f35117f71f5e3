//! The paravirtualized NICs' fleet: a bridge of the kernel's for each port, behind it VMs on QEMU's
//! virtio-net with a TAP each, and a sender on one more TAP, which is the port's cable.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rig::{Boot, GuestConfig, Netdev, Netns, Nic, Rig};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::json;

use super::fleet::{LEAD, gigabits, on_the_first};
use super::virtio::{MEMORY, SLOT, Vm};
use crate::error::{Error, Result};
use crate::fabric::{cpu, mac};
use crate::stats::Reading;
use crate::{load, machine};

/// Machines that start at once.
const TOGETHER: usize = 8;
/// Segments of one write at most: with all headers less than 64 KiB.
const SEGMENTS: usize = 44;
/// Frames that may be under way between two VMs: what a TAP's queue holds, so that none is lost there.
const WINDOW: u64 = 900;
/// What has not arrived by then is lost.
const PATIENCE: Duration = Duration::from_millis(20);

/// Ports with VMs.
pub struct Bridges {
    ports: usize,
    clients: Vec<Client>,
    /// VM n is at port n modulo their number.
    vms: Vec<Vm>,
    turns: Vec<usize>,
    _netns: Netns,
}

/// The far end of a port's cable.
struct Client {
    tap: OwnedFd,
    /// Runs of TCP segments by their number less one, each as one write.
    runs: Vec<Vec<u8>>,
    header: usize,
}

impl Client {
    /// Sends a run of full frames to a VM.
    fn send(&mut self, to: [u8; 6], frames: usize) -> bool {
        let run = &mut self.runs[frames - 1];
        run[self.header..self.header + 6].copy_from_slice(&to);
        rustix::io::write(&self.tap, run).is_ok()
    }
}

/// Attaches to TAPs of a namespace: a thread goes there for them.
fn attach(netns: &Netns, names: &[String]) -> Result<Vec<(OwnedFd, usize)>> {
    let path = format!("/proc/{}/ns/net", netns.holder());
    let place = std::fs::File::open(&path).map_err(Error::io(format!("open {path}")))?;
    std::thread::scope(|scope| {
        let there = scope.spawn(|| {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(rustix::fd::AsFd::as_fd(&place), kind)
                .map_err(|e| Error::io("enter the namespace")(e.into()))?;
            let one =
                |name: &String| port_tap::attach(name).map_err(|e| Error::Usage(e.to_string()));
            names.iter().map(one).collect()
        });
        there
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn text(mac: [u8; 6]) -> String {
    mac.map(|b| format!("{b:02x}")).join(":")
}

/// Addresses beyond those of VMs.
fn client_mac(port: usize) -> [u8; 6] {
    mac(0xf000 + port)
}

impl Bridges {
    /// Starts `vms` machines at each of `ports` bridges, on the second processor, and brings their NICs up.
    ///
    /// # Errors
    /// When there is no QEMU, no namespace or no TAP to be had.
    pub fn start(rig: &Rig, ports: usize, vms: usize) -> Result<Self> {
        let netns = Netns::new(rig).map_err(rig::Error::from)?;
        let mut configs = Vec::new();
        for port in 0..ports {
            let taps: Vec<String> = (0..=vms).map(|n| format!("p{port}n{n}")).collect();
            for tap in &taps {
                netns.tap(tap, None)?;
            }
            let members: Vec<&str> = taps.iter().map(String::as_str).collect();
            let bridge = format!("br{port}");
            netns.bridge(&bridge, &members)?;
            // VMs that only receive are not to be forgotten: hundredths of a second.
            netns.ip([
                "link",
                "set",
                &bridge,
                "type",
                "bridge",
                "ageing_time",
                "8640000",
            ])?;
        }
        for number in 0..vms * ports {
            let (port, at) = (number % ports, number / ports);
            let netdev = Netdev::Tap {
                ifname: format!("p{port}n{at}"),
            };
            let nic = Nic::qemu("n0", "virtio-net-pci", Some(netdev))
                .mac(&text(mac(number)))
                .rom("")
                .addr(&format!("{SLOT:x}"));
            let name = format!("pv{number}");
            let mut config = GuestConfig::new(&name).boot(Boot::Qtest).netns(&netns);
            config.mem_mib = MEMORY;
            config.hotplug_ports = 0;
            configs.push(config.nic(nic));
        }
        let mut all = Vec::new();
        while !configs.is_empty() {
            let some = configs.drain(..TOGETHER.min(configs.len())).collect();
            for guest in rig.start_all(some)? {
                machine::pin_process(guest.id(), machine::cores().1);
                let address = mac(all.len());
                let mut vm = Vm::up(guest, address)?;
                vm.prepare(&load::frame(0, 1514, false, address, client_mac(0)));
                all.push(vm);
            }
        }
        let cables: Vec<String> = (0..ports).map(|port| format!("p{port}n{vms}")).collect();
        let clients = attach(&netns, &cables)?.into_iter().enumerate();
        let clients = clients.map(|(port, (tap, header))| {
            let run = |n| load::run_of(header, n, client_mac(port), [0; 6]);
            Client {
                tap,
                runs: (1..=SEGMENTS).map(run).collect(),
                header,
            }
        });
        let mut fleet = Self {
            ports,
            clients: clients.collect(),
            vms: all,
            turns: vec![0; ports],
            _netns: netns,
        };
        // A bridge learns where each is.
        for (number, vm) in fleet.vms.iter_mut().enumerate() {
            vm.send(1, 60, client_mac(number % ports))?;
        }
        fleet.settle()?;
        Ok(fleet)
    }

    /// How many VMs there are.
    pub fn count(&self) -> usize {
        self.vms.len()
    }

    /// Processor seconds of all QEMUs.
    fn cpu(&self) -> f64 {
        self.vms.iter().map(|vm| cpu(vm.guest.id())).sum()
    }

    /// Full frames at a rate to the first `active` VMs, which look every `tick` for what has come. The
    /// figure is the QEMUs' share of a core in percent.
    ///
    /// # Errors
    /// When a QEMU is gone.
    pub fn paced(
        &mut self,
        active: usize,
        pps: f64,
        tick: Duration,
        seconds: f64,
    ) -> Result<Reading> {
        let ran = {
            let fleet = &mut *self;
            on_the_first(move || fleet.run(active, pps, tick, seconds))?
        };
        self.settle()?;
        Ok(Reading {
            value: ran.cpu / ran.seconds * 100.0,
            raw: json!({
                "sent": ran.sent, "received": ran.received, "seconds": ran.seconds,
                "gbit": gigabits(ran.received, 1514, ran.seconds),
                "gbit_sent": gigabits(ran.sent, 1514, ran.seconds),
                "vms_cpu": ran.own / ran.seconds * 100.0,
            }),
        })
    }

    fn run(&mut self, active: usize, pps: f64, tick: Duration, seconds: f64) -> Result<Ran> {
        let ports = self.ports.min(active);
        let each = active / ports;
        self.turns.fill(0);
        let mut ran = Ran::default();
        let mut begun = Instant::now();
        let mut lead = Some(begun + LEAD);
        let mut until = begun + LEAD + Duration::from_secs_f64(seconds);
        let (mut due_since, mut offered, mut next) = (begun, 0u64, begun + tick);
        let (mut cpu, mut own) = (0.0, 0);
        loop {
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            let now = Instant::now();
            next = (next + tick).max(now);
            for vm in &mut self.vms[..active] {
                ran.received += u64::from(vm.receive(1514)?);
            }
            if lead.is_some_and(|lead| now >= lead) {
                lead = None;
                ran = Ran::default();
                (cpu, own) = (self.cpu(), machine::thread_time());
                begun = Instant::now();
                until = begun + Duration::from_secs_f64(seconds);
                (due_since, offered) = (begun, 0);
                continue;
            }
            if lead.is_none() && now >= until {
                break;
            }
            let due = ((now - due_since).as_secs_f64() * pps) as u64;
            // Who was held up for long does not make up for it in one burst.
            let due = (due - offered).min(128 * ports as u64);
            for port in 0..ports {
                let share = due / ports as u64 + u64::from((port as u64) < due % ports as u64);
                let run = (share as usize).div_ceil(each).max(1);
                let mut left = share as usize;
                while left > 0 {
                    let to = self.vms[self.turns[port] * self.ports + port].mac;
                    let mut frames = run.min(left);
                    left -= frames;
                    while frames > 0 {
                        let some = frames.min(SEGMENTS);
                        let sent = self.clients[port].send(to, some);
                        ran.sent += if sent { some as u64 } else { 0 };
                        frames -= some;
                    }
                    self.turns[port] = (self.turns[port] + 1) % each;
                }
            }
            offered += due;
        }
        ran.seconds = begun.elapsed().as_secs_f64();
        ran.own = (machine::thread_time() - own) as f64 / 1e9;
        ran.cpu = self.cpu() - cpu;
        Ok(ran)
    }

    /// From the first VM to the second of a port, as fast as it goes. The figure is millions of frames a second.
    ///
    /// # Errors
    /// When a QEMU is gone.
    pub fn between(&mut self, burst: u32, len: u32, seconds: f64) -> Result<Reading> {
        let before = self.cpu();
        let Some([from, to]) = self.vms.get_mut(..2) else {
            return Err(Error::Usage("there are no two VMs".to_owned()));
        };
        let ran = on_the_first(move || {
            let (start, own) = (Instant::now(), machine::thread_time());
            let until = start + Duration::from_secs_f64(seconds);
            let (mut sent, mut received, mut lost) = (0u64, 0u64, 0u64);
            let mut last = start;
            loop {
                let now = Instant::now();
                if now >= until {
                    break;
                }
                let mut moved = 0;
                if sent.saturating_sub(received + lost) <= WINDOW {
                    moved += from.send(burst, len, to.mac)?;
                    sent += u64::from(moved);
                } else if now - last > PATIENCE {
                    lost = sent.saturating_sub(received);
                }
                let came = to.receive(len)?;
                received += u64::from(came);
                if came > 0 {
                    last = now;
                    lost = lost.min(sent.saturating_sub(received));
                }
                if moved + came == 0 {
                    std::thread::yield_now();
                }
            }
            let own = (machine::thread_time() - own) as f64 / 1e9;
            Ok((start.elapsed().as_secs_f64(), own, sent, received))
        });
        let (took, own, sent, received) = ran?;
        let cpu = self.cpu() - before;
        self.settle()?;
        Ok(Reading {
            value: received as f64 / took / 1e6,
            raw: json!({
                "sent": sent, "received": received, "seconds": took, "daemon_cpu": cpu / took * 100.0,
                "vms_cpu": own / took * 100.0, "mpps_per_core": received as f64 / cpu / 1e6,
                "gbit": gigabits(received, len, took), "burst": burst,
            }),
        })
    }

    /// Takes in what is still under way, so that it is not the next sample's.
    fn settle(&mut self) -> Result<()> {
        let mut quiet = 0;
        let until = Instant::now() + Duration::from_secs(5);
        while quiet < 3 && Instant::now() < until {
            let mut came = 0;
            for vm in &mut self.vms {
                came += vm.receive(1514)?;
            }
            quiet = if came == 0 { quiet + 1 } else { 0 };
            std::thread::sleep(Duration::from_millis(if came == 0 { 10 } else { 1 }));
        }
        Ok(())
    }
}

/// What a paced run did.
#[derive(Debug, Default)]
struct Ran {
    seconds: f64,
    sent: u64,
    received: u64,
    /// Processor seconds of all QEMUs, and of all VMs and senders with the kernel's bridges.
    cpu: f64,
    own: f64,
}
