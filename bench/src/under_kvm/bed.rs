//! The machine: a guest of the rig that has KVM, in it hypernic and QEMU, and in that one inner guest with all NICs.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rig::{CMDLINE, Job, KvmHost, KvmInside, Rig, with_libraries};
use serde_json::json;

use crate::error::{Error, Result};
use crate::which_nic::party::{Kind, PARTIES, Party, index};

const MOMENT: Duration = Duration::from_secs(300);
/// How long the inner guest may take to boot, and for each NIC and round.
const PATIENCE: [Duration; 2] = [Duration::from_secs(900), Duration::from_secs(60)];
/// Bytes of the file that is received and sent.
pub const BYTES: usize = 2 << 20;
/// The NIC that marks go through: one that has no counters of ours.
const MARKER: &str = "qemu-virtio";

/// The host of the inner guest.
pub struct Bed {
    host: KvmHost,
    vmm: Job,
}

fn socket(at: usize) -> PathBuf {
    format!("/run/n{at}.sock").into()
}

/// Those that need nothing that this host lacks: they stand first in the list.
pub fn parties() -> &'static [Party] {
    let lacks = |party: &Party| matches!(party.kind, Kind::Vhost | Kind::Passt);
    let first = PARTIES.iter().position(lacks).unwrap_or(PARTIES.len());
    &PARTIES[..first]
}

/// hypernic's configuration: all of ours.
fn config() -> String {
    let ours = parties().iter().enumerate();
    ours.filter_map(|(at, party)| party.config(at, &socket(at)))
        .collect()
}

/// QEMU's words for a NIC.
fn device(at: usize, party: &Party) -> String {
    let (slot, mac, tap) = (5 + at, Party::mac(at), Party::tap(at));
    let path = socket(at);
    match party.kind {
        Kind::Ours { .. } => {
            let device = json!({
                "driver": "vfio-user-pci", "addr": format!("{slot:x}"), "x-msg-timeout": 60_000,
                "socket": {"type": "unix", "path": path},
            });
            format!("-device '{device}'")
        }
        Kind::VhostUser => format!(
            "-chardev socket,id=c{at},path={} -netdev vhost-user,id=b{at},chardev=c{at} \
             -device virtio-net-pci,netdev=b{at},mac={mac},romfile=,addr={slot:x}",
            path.display()
        ),
        Kind::Vhost | Kind::Passt => String::new(),
        Kind::Qemu { model, segments } => {
            let place = match model {
                "igb" => "bus=rp0".to_owned(),
                _ => format!("addr={slot:x}"),
            };
            let off = if segments {
                ""
            } else {
                ",guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off"
            };
            format!(
                "-netdev tap,id=b{at},ifname={tap},script=no,downscript=no \
                 -device {model},netdev=b{at},mac={mac},romfile=,{place}{off}"
            )
        }
    }
}

impl Bed {
    /// Boots both guests.
    ///
    /// # Errors
    /// When this machine cannot run guests, or a program of the inner one does not start.
    pub fn start(hypernic: &Path, rounds: usize, pings: usize) -> Result<Self> {
        let rig = Rig::prepare().map_err(rig::Error::from)?;
        let (mut files, words) = with_libraries(hypernic)?;
        files.push(("etc/nics.toml".into(), 0o644, config().into()));
        files.push((
            "www/cgi-bin/mark".into(),
            0o755,
            include_bytes!("mark.sh").to_vec(),
        ));
        files.push(("www/file".into(), 0o644, vec![0x5a; BYTES]));
        let inside = KvmInside {
            init: include_str!("init.sh").to_owned(),
            modules: vec!["igb", "igbvf", "r8169", "realtek", "virtio_net"],
            host_modules: vec!["tun"],
            files,
            mem_mib: 1792,
        };
        let host = KvmHost::start(&rig, inside)?;
        let guest = &host.guest;
        guest.run("mp tun; busybox httpd -p 8000 -h /www; mkfifo /run/open")?;
        guest.spawn("while :; do nc -l -p 9000 <>/run/open >/dev/null; done")?;
        let daemon =
            "--log-format json serve /etc/nics.toml >/run/hypernic.out 2>/run/hypernic.log";
        host.spawn("hypernic", &format!("{words} {daemon}"))?;
        let sockets: Vec<String> = parties()
            .iter()
            .enumerate()
            .filter(|(_, party)| party.is_ours())
            .map(|(at, _)| format!("[ -S {} ]", socket(at).display()))
            .collect();
        guest.wait_for(&sockets.join(" && "), MOMENT)?;
        let devices: Vec<String> = parties()
            .iter()
            .enumerate()
            .map(|(n, p)| device(n, p))
            .collect();
        let marker = index(MARKER).unwrap_or_default();
        let append = format!(
            "{CMDLINE} nics={} marker={marker} rounds={rounds} pings={pings}",
            parties().len()
        );
        let vmm = host.spawn(
            "vmm",
            &format!(
                "qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot -serial file:/run/console \
                 -accel kvm -cpu host -smp 1 -m 384M -object memory-backend-memfd,id=ram,size=384M,share=on \
                 -machine q35,memory-backend=ram -kernel /inner/vmlinux -initrd /inner/initramfs -append '{append}' \
                 -device pcie-root-port,id=rp0,addr=3 {}",
                devices.join(" ")
            ),
        )?;
        for at in 0..parties().len() {
            let tap = Party::tap(at);
            host.guest
                .wait_for(&format!("[ -e /sys/class/net/{tap} ]"), MOMENT)?;
            host.guest.run(&format!(
                "ip addr add 10.10.{at}.1/24 dev {tap} && ip link set {tap} up"
            ))?;
        }
        Ok(Self { host, vmm })
    }

    /// Waits until the inner guest has done all, and gives what was noted. `tell` hears of each round.
    ///
    /// # Errors
    /// When the inner guest says that something failed, dies, or takes too long.
    pub fn marks(&self, rounds: usize, mut tell: impl FnMut(usize)) -> Result<String> {
        let [boot, each] = PATIENCE;
        let work = each * u32::try_from(rounds * parties().len()).unwrap_or(u32::MAX);
        let deadline = Instant::now() + boot + work;
        let guest = &self.host.guest;
        let mut told = 0;
        while Instant::now() < deadline {
            let look = "grep -aE 'ROUND|INNER' /run/console; kill -0 $(cat /run/vmm.pid)";
            let said = guest.sh_within(look, MOMENT)?;
            let done = said.text.matches("ROUND").count();
            (told..done).for_each(&mut tell);
            told = done.max(told);
            if said.text.contains("INNER-END") && !said.text.contains("INNER-FAILED") {
                return Ok(guest.run("cat /run/marks")?);
            }
            if said.text.contains("INNER") || !said.ok() {
                break;
            }
            // The host has better to do than to answer.
            std::thread::sleep(Duration::from_secs(5));
        }
        let all = "tail -n 5 /run/hypernic.log /run/job*.out; tail -n 30 /run/console";
        Err(Error::tool("the inner guest", &guest.sh(all)?.text))
    }

    /// Ends the inner guest.
    ///
    /// # Errors
    /// When the host does not answer.
    pub fn end(self) -> Result<()> {
        self.host.signal("vmm", "TERM")?;
        self.host.guest.finish(&self.vmm, MOMENT)?;
        Ok(())
    }
}
