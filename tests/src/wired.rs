//! A guest whose NICs' cables end in the test: a [`Peer`] sees and says all there is.

use std::path::PathBuf;
use std::process::Command;

use rig::{Guest, GuestConfig, Netdev, Nic};
use serde_json::json;

use crate::daemon::{Daemon, binary};
use crate::error::{Error, Result};
use crate::guests;
use crate::lab::{Lab, mac};
use crate::peer::{self, ECHO, Peer, Target};

/// The guest's number on every network.
pub const HOST: u8 = 2;

/// What is sent through the guest's TCP at each setting, in bytes: enough for segments of 64 KiB.
const NOISE: usize = 256 * 1024;

/// Where the guest keeps it.
const FILE: &str = "/tmp/noise";

/// What NIC a guest gets, and the driver of the guest's own that is to take it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Card {
    /// An 82540EM.
    E1000,
    /// An 82545EM.
    I82545,
    /// The physical function of an 82576.
    Igb,
    /// Virtual functions of an 82576, whose software PF has the cable.
    IgbVf,
    /// An RTL8168C.
    R8169,
    /// An RTL8168H.
    R8168H,
    /// A virtio-net over vfio-user, with a pair of queues for each of the guest's processors.
    Virtio,
    /// The same over vhost-user: the registers are QEMU's.
    VirtioVhost,
}

impl Card {
    /// The stock driver's name.
    #[must_use]
    pub fn driver(self) -> &'static str {
        match self {
            Self::E1000 | Self::I82545 => "e1000",
            Self::Igb => "igb",
            Self::IgbVf => "igbvf",
            Self::R8169 | Self::R8168H => "r8169",
            Self::Virtio | Self::VirtioVhost => "virtio_net",
        }
    }

    /// What the daemon calls a NIC whose socket has this name.
    #[must_use]
    pub fn nic(self, socket: &str) -> String {
        match self {
            Self::IgbVf => format!("p0{socket}"),
            _ => socket.to_owned(),
        }
    }

    /// The guest with one NIC more, behind the socket of this name.
    #[must_use]
    pub fn plug(self, lab: &Lab, config: GuestConfig, nic: &str) -> GuestConfig {
        if self != Self::VirtioVhost {
            return config.nic(lab.nic(nic));
        }
        let pairs = config.smp;
        let front = format!("front-{nic}");
        let netdev = json!({"type": "vhost-user", "chardev": front, "queues": pairs});
        let device = Nic::qemu(nic, "virtio-net-pci", Some(Netdev::Json(netdev)))
            .mac(&mac(nic))
            .rom("")
            .property("packed", json!(true))
            .property("mq", json!(pairs > 1))
            .property("vectors", json!(2 * pairs + 2));
        let path = lab.socket(nic);
        let socket = format!("socket,id={front},path={},reconnect-ms=100", path.display());
        config.nic(device).args(["-chardev".to_owned(), socket])
    }

    /// The daemon's configuration for these NICs, and their cables: one each, or that of their chip.
    fn toml(self, lab: &Lab, nics: &[&str], switched: bool, lines: &str) -> (String, Vec<PathBuf>) {
        let cable = |nic: &str| lab.path(&format!("{nic}.wire"));
        let port = |nic: &str| format!("stream:listen={}", cable(nic).display());
        let mut toml = format!("control = {:?}\n", lab.path("control.sock"));
        if self == Self::IgbVf {
            let (sockets, port) = (lab.path("vf{}.sock"), port("p0"));
            toml += &format!(
                "[[nic]]\nname = \"p0\"\nmodel = \"82576\"\nvfs = {}\nvf-socket-path = {sockets:?}\n\
                 port = {port:?}\n{lines}\n",
                nics.len()
            );
            for (index, nic) in nics.iter().enumerate() {
                toml += &format!("[[nic.vf]]\nindex = {index}\nmac = \"{}\"\n", mac(nic));
            }
            return (toml, vec![cable("p0")]);
        }
        let model = match self {
            Self::Igb => "82576",
            Self::I82545 => "82545em",
            Self::R8169 => "r8168",
            Self::R8168H => "r8168h",
            Self::Virtio | Self::VirtioVhost => "virtio-net",
            _ => "e1000",
        };
        for nic in nics {
            let (socket, mac) = (lab.socket(nic), mac(nic));
            let mut port = port(nic);
            if switched {
                toml += &format!("[[switch]]\nname = \"lan\"\nports = [{port:?}]\n");
                port = "switch:lan".into();
            }
            toml += &format!(
                "[[nic]]\nname = \"{nic}\"\nmodel = \"{model}\"\nsocket-path = {socket:?}\nmac = \"{mac}\"\n\
                 port = {port:?}\n{lines}\n"
            );
        }
        (toml, nics.iter().map(|nic| cable(nic)).collect())
    }
}

/// What a [`Wired`] is made of.
#[derive(Debug, Clone, Copy)]
pub struct Wiring<'a> {
    /// What all NICs are.
    pub card: Card,
    /// The guest's NICs. The sockets of virtual functions are called `vf0`, `vf1` ...
    pub nics: &'a [&'a str],
    /// NICs that the daemon has for one more guest, which the test starts itself.
    pub spare: &'a [&'a str],
    /// Whether a switch has the cable of the only NIC. A switch does not wait for the NIC; a cable without one is
    /// only as fast as the NIC takes frames.
    pub switched: bool,
    /// More lines about each NIC, or the chip, in the daemon's configuration.
    pub lines: &'a str,
}

impl Wiring<'static> {
    /// One NIC with a cable of its own: `n0`, or `vf0`.
    #[must_use]
    pub fn one(card: Card) -> Self {
        Self {
            card,
            nics: match card {
                Card::IgbVf => &["vf0"],
                _ => &["n0"],
            },
            spare: &[],
            switched: false,
            lines: "",
        }
    }
}

/// One daemon, one guest with its NICs, and the test at the far end of their cables.
#[derive(Debug)]
pub struct Wired {
    /// What its NICs are.
    pub card: Card,
    /// The guest.
    pub guest: Guest,
    /// The far end of the cables.
    pub peer: Peer,
    /// The daemon.
    pub daemon: Daemon,
    /// The first NIC's interface in the guest.
    pub interface: String,
    /// The first NIC's station address.
    pub mac: [u8; 6],
    /// Where it all lives.
    pub lab: Lab,
}

/// The bytes of a station address as people write it.
///
/// # Panics
/// When it is none.
#[must_use]
pub fn mac_bytes(text: &str) -> [u8; 6] {
    let mut bytes = [0; 6];
    for (byte, word) in bytes.iter_mut().zip(text.split(':')) {
        *byte = u8::from_str_radix(word, 16).expect("a station address");
    }
    bytes
}

impl Wired {
    /// Resumes a guest with a NIC `n0`, with addresses of both families and the link up.
    ///
    /// # Errors
    /// When anything does not start.
    pub fn new(config: GuestConfig) -> Result<Self> {
        Self::with(config, "")
    }

    /// Gives the first NIC its addresses, takes it up and waits until the peer answers.
    ///
    /// # Errors
    /// When it does not.
    pub fn set_up(&self) -> Result<()> {
        let interface = &self.interface;
        // Or it would forget its IPv6 address whenever it goes down.
        let keep = format!("/proc/sys/net/ipv6/conf/{interface}/keep_addr_on_down");
        self.guest.run(&format!(
            "echo 1 > {keep}; ip addr add 10.9.0.{HOST}/24 dev {interface}; \
             ip -6 addr add fd09::{HOST}/64 dev {interface} nodad; ip link set {interface} up"
        ))?;
        self.settled()
    }

    /// Loads the driver again, with parameters, and sets the first NIC up again.
    ///
    /// # Errors
    /// When it does not come back.
    pub fn reload_driver(&self, parameters: &str) -> Result<()> {
        self.guest.run(&format!(
            "rmmod {0}; mp {0} {parameters}",
            self.card.driver()
        ))?;
        let [a, b, c, d, e, f] = self.mac;
        let mac = format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}");
        let interface = self.guest.interface(&mac, crate::patience::LONG)?;
        if interface != self.interface {
            return Err(Error::check(format!("{mac} is {interface} now")));
        }
        self.set_up()
    }

    /// Resumes a guest with these NICs, each with a cable of its own, and the driver loaded, and nothing set up.
    ///
    /// # Errors
    /// When anything does not start.
    pub fn bare(config: GuestConfig, nics: &[&str]) -> Result<Self> {
        let one = Wiring::one(Card::E1000);
        Self::start(config, Wiring { nics, ..one })
    }

    /// The same for one NIC `n0` on a switch, which has the cable.
    ///
    /// # Errors
    /// When anything does not start.
    pub fn switched(config: GuestConfig) -> Result<Self> {
        let one = Wiring::one(Card::E1000);
        Self::start(
            config,
            Wiring {
                switched: true,
                ..one
            },
        )
    }

    /// As [`Wired::new`], with more lines about the NIC in the daemon's configuration.
    ///
    /// # Errors
    /// When anything does not start.
    pub fn with(config: GuestConfig, lines: &str) -> Result<Self> {
        let one = Wiring::one(Card::E1000);
        Self::of(config, Wiring { lines, ..one })
    }

    /// As [`Wired::new`], with any card.
    ///
    /// # Errors
    /// When anything does not start.
    pub fn of(config: GuestConfig, wiring: Wiring<'_>) -> Result<Self> {
        let wired = Self::start(config, wiring)?;
        let noise = guests::noise(NOISE);
        wired.guest.push_file(FILE, 0o644, &noise)?;
        wired.set_up()?;
        Ok(wired)
    }

    fn start(config: GuestConfig, wiring: Wiring<'_>) -> Result<Self> {
        let Wiring {
            card, nics, spare, ..
        } = wiring;
        let lab = Lab::open(if spare.is_empty() { 1 } else { 2 })?;
        let all = [nics, spare].concat();
        let lines = match card {
            Card::Virtio => format!("queue-pairs = {}\n{}", config.smp, wiring.lines),
            Card::VirtioVhost => format!(
                "queue-pairs = {}\ntransport = \"vhost-user\"\n{}",
                config.smp, wiring.lines
            ),
            _ => wiring.lines.to_owned(),
        };
        let (toml, cables) = card.toml(&lab, &all, wiring.switched, &lines);
        let daemon = Daemon::serve(&lab.path("host.toml"), &toml)?;
        let peer = Peer::plug(&cables)?;
        if matches!(card, Card::Virtio | Card::VirtioVhost) {
            peer.take_short_frames();
        }
        let plugged = nics
            .iter()
            .fold(config, |config, nic| card.plug(&lab, config, nic));
        // What the socket is called is a word on QEMU's command line; and files of a guest may be libraries that its
        // programs use already once it runs.
        let guest = match card == Card::VirtioVhost || !plugged.files.is_empty() {
            true => lab.rig.start(plugged)?,
            false => lab.rig.resume(plugged)?,
        };
        if card.driver() == "r8169" {
            // It wants the PHY's driver before it comes.
            guest.run("mp realtek")?;
        }
        let interface = guests::load(&guest, card.driver(), &mac(nics[0]))?;
        Ok(Self {
            card,
            guest,
            peer,
            daemon,
            interface,
            mac: mac_bytes(&mac(nics[0])),
            lab,
        })
    }

    /// `hypernic vf`, with these words; returns what it prints.
    ///
    /// # Errors
    /// When the daemon refuses.
    pub fn vf(&self, words: &str) -> Result<String> {
        let command = format!("hypernic vf {words}");
        let output = Command::new(binary()?)
            .args(["vf", "--control"])
            .arg(self.lab.path("control.sock"))
            .args(words.split(' '))
            .output()
            .map_err(Error::io(&command))?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr);
            return Err(Error::check(format!("{command}: {why}")));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Sends these frames to the first NIC, and says how many it let through.
    ///
    /// # Errors
    /// When the guest does not answer.
    pub fn passed(&self, frames: &[Vec<u8>]) -> Result<u64> {
        let before = self.statistics()?.get("rx_packets");
        for frame in frames {
            self.peer.send(frame.clone());
        }
        // One that always passes and is answered comes last.
        let target = self.target(None);
        self.peer.ping(target, 1500, &[guests::noise(32)])?;
        Ok(self.statistics()?.get("rx_packets") - before - 1)
    }

    /// Has the guest say little of its own, so that the peer answers nothing.
    ///
    /// # Errors
    /// When the guest does not answer.
    pub fn hush(&self) -> Result<()> {
        let interface = &self.interface;
        let [a, b, c, d, e, f] = peer::MAC;
        let lladdr = format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}");
        self.guest.run(&format!(
            "echo 1 > /proc/sys/net/ipv6/conf/{interface}/disable_ipv6; \
             ip neigh replace {} lladdr {lladdr} dev {interface}",
            peer::IP
        ))?;
        Ok(())
    }

    /// Waits until the link is up and the peer answers.
    ///
    /// # Errors
    /// When they do not.
    pub fn settled(&self) -> Result<()> {
        guests::wait_carrier(&self.guest, &self.interface, true)?;
        let ping = format!("ping -n -c 1 -W 1 {} >/dev/null", peer::IP);
        if self
            .guest
            .wait_for(&ping, crate::patience::LONG / 3)
            .is_ok()
        {
            return Ok(());
        }
        // A race of the driver's own that e1000_down speaks of: its watchdog, running while the chip is reset, puts
        // the carrier back, and then nothing enables the transmitter "until the next IFF_DOWN+IFF_UP cycle".
        if self.card == Card::E1000 && !self.transmitter_is_on()? {
            let interface = &self.interface;
            println!("the driver has left {interface} with a carrier and no transmitter");
            // It notices itself that nothing is sent, and blames the chip; nothing else may have happened.
            guests::forgive(&self.guest, "Detected Tx Unit Hang")?;
            self.guest.run(&format!(
                "ip link set {interface} down; ip link set {interface} up"
            ))?;
            guests::wait_carrier(&self.guest, interface, true)?;
        }
        let answered = self.guest.wait_for(&ping, crate::patience::LONG);
        answered.map_err(|e| Error::check(format!("{e}\n{}", self.diagnosis())))
    }

    /// Whether the driver has the transmitter enabled (TCTL.EN), as `ethtool -d` shows it.
    ///
    /// # Errors
    /// When it does not show it.
    pub fn transmitter_is_on(&self) -> Result<bool> {
        let registers = self.ethtool("-d", "")?;
        let line = registers
            .lines()
            .find_map(|line| line.trim().strip_prefix("Transmitter:"));
        match line.map(str::trim) {
            Some("enabled") => Ok(true),
            Some("disabled") => Ok(false),
            _ => Err(Error::check(format!("no transmitter in\n{registers}"))),
        }
    }

    /// What both sides of the NIC know, for a message about a failure.
    #[must_use]
    pub fn diagnosis(&self) -> String {
        let ask = "ip -s link; ip neigh; for i in /sys/class/net/e*; do i=${i##*/}; \
                   ethtool -S $i | grep -v ': 0$'; ethtool -d $i; done";
        let inside = self.guest.sh(ask);
        format!(
            "{}\n{}\npeer: {:?}",
            inside.map_or_else(|e| e.to_string(), |output| output.text),
            self.daemon
                .counters()
                .map_or_else(|e| e.to_string(), |c| c.to_string()),
            self.peer,
        )
    }

    /// What the daemon calls the first NIC.
    #[must_use]
    pub fn nic(&self) -> String {
        let socket = if self.card == Card::IgbVf {
            "vf0"
        } else {
            "n0"
        };
        self.card.nic(socket)
    }

    /// The guest on a network.
    #[must_use]
    pub fn target(&self, tag: Option<u16>) -> Target {
        let mac = self.mac;
        Target {
            mac,
            tag,
            host: HOST,
        }
    }

    /// Sends a quarter of a megabyte by TCP to the peer at `address` and back, and compares it in the guest.
    ///
    /// # Errors
    /// When a byte is lost or changed.
    pub fn echo(&self, address: &str) -> Result<()> {
        let command = format!("nc {address} {ECHO} <{FILE} | cmp - {FILE}");
        Ok(self.guest.run(&command).map(drop)?)
    }

    /// Traffic of all kinds, both ways, every byte compared: TCP over IPv4 and IPv6, pings of any length up to the
    /// longest frame and beyond it.
    ///
    /// # Errors
    /// When a byte is lost or changed, or a frame on the wire is not as it must be.
    pub fn exchange(&self, mtu: usize) -> Result<()> {
        self.echo(peer::IP)?;
        self.echo(peer::IP6)?;
        self.peer
            .ping(self.target(None), mtu, &payloads(mtu, 20_000))?;
        self.no_faults()
    }

    /// Nothing was wrong with any frame that the NICs sent.
    ///
    /// # Errors
    /// What was wrong.
    pub fn no_faults(&self) -> Result<()> {
        let faults = self.peer.faults();
        if faults.is_empty() {
            return Ok(());
        }
        Err(Error::check(format!(
            "bad frames on the wire:\n{}",
            faults.join("\n")
        )))
    }

    /// Runs `ethtool` on the first NIC: an option, then its parameters.
    ///
    /// # Errors
    /// When it fails.
    pub fn ethtool(&self, option: &str, parameters: &str) -> Result<String> {
        let interface = &self.interface;
        let command = format!("ethtool {option} {interface} {parameters}");
        Ok(self.guest.run(&command)?)
    }

    /// A counter of `ethtool -S`.
    ///
    /// # Errors
    /// When the guest does not answer.
    pub fn statistics(&self) -> Result<Statistics> {
        Ok(Statistics(self.ethtool("-S", "")?))
    }

    /// The guest's kernel has nothing to complain about, and the wire neither.
    ///
    /// # Panics
    /// With what they say.
    pub fn assert_quiet(&self) {
        let complaints = guests::complaints(&self.guest).expect("the guest answers");
        assert_eq!(complaints, Vec::<String>::new());
        assert_eq!(self.peer.faults(), Vec::<String>::new());
    }
}

/// Payloads of pings around all lengths that mean something at an MTU: none, those that are padded, those of the
/// longest frame, and one of `beyond` bytes in fragments.
#[must_use]
pub fn payloads(mtu: usize, beyond: usize) -> Vec<Vec<u8>> {
    let longest = mtu - 28;
    let mut lengths = vec![0, 1, 17, 18, 19, longest / 2, longest - 1, longest];
    lengths.extend([longest + 1, longest.max(beyond)]);
    lengths.into_iter().map(guests::noise).collect()
}

/// What `ethtool -S` shows.
#[derive(Debug, Clone)]
pub struct Statistics(String);

impl Statistics {
    /// One of them.
    ///
    /// # Panics
    /// When the driver has none of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        let line = self
            .0
            .lines()
            .find_map(|line| line.trim().strip_prefix(&format!("{name}: ")));
        line.and_then(|value| value.parse().ok())
            .unwrap_or_else(|| panic!("no {name} in\n{}", self.0))
    }

    /// How much one of them grew.
    #[must_use]
    pub fn grown(&self, before: &Self, name: &str) -> u64 {
        self.get(name) - before.get(name)
    }

    /// The names of all that are not zero and not among these.
    #[must_use]
    pub fn others(&self, known: &[&str]) -> Vec<String> {
        let named = self
            .0
            .lines()
            .filter_map(|line| line.trim().split_once(": "));
        let rest = named.filter(|(name, value)| *value != "0" && !known.contains(name));
        rest.map(|(name, value)| format!("{name}={value}"))
            .collect()
    }
}
