//! A guest whose NICs' cables end in the test: a [`Peer`] sees and says all there is.

use rig::{Guest, GuestConfig};

use crate::daemon::{Daemon, Launch};
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

/// One daemon, one guest with its NICs, and the test at the far end of their cables.
#[derive(Debug)]
pub struct Wired {
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
        self.guest
            .run(&format!("rmmod e1000; mp e1000 {parameters}"))?;
        let [a, b, c, d, e, f] = self.mac;
        let mac = format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}");
        let interface = self.guest.interface(&mac, crate::LONG)?;
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
        Self::start(config, nics, false, "")
    }

    /// The same for one NIC `n0` on a switch, which has the cable. A switch waits for nobody, where a cable of one's
    /// own is only as fast as the NIC takes frames.
    ///
    /// # Errors
    /// When anything does not start.
    pub fn switched(config: GuestConfig) -> Result<Self> {
        Self::start(config, &["n0"], true, "")
    }

    /// As [`Wired::new`], with more lines about the NIC in the daemon's configuration.
    ///
    /// # Errors
    /// When anything does not start.
    pub fn with(config: GuestConfig, lines: &str) -> Result<Self> {
        let wired = Self::start(config, &["n0"], false, lines)?;
        let noise = guests::noise(NOISE);
        wired.guest.push_file(FILE, 0o644, &noise)?;
        wired.set_up()?;
        Ok(wired)
    }

    fn start(config: GuestConfig, nics: &[&str], switched: bool, lines: &str) -> Result<Self> {
        let lab = Lab::open(1)?;
        let cable = |nic: &str| lab.path(&format!("{nic}.wire"));
        let mut toml = String::new();
        for nic in nics {
            let (socket, mac, wire) = (lab.socket(nic), mac(nic), cable(nic));
            let mut port = format!("stream:listen={}", wire.display());
            if switched {
                toml += &format!("[[switch]]\nname = \"lan\"\nports = [{port:?}]\n");
                port = "switch:lan".into();
            }
            toml += &format!(
                "[[nic]]\nname = \"{nic}\"\nsocket-path = {socket:?}\nmac = \"{mac}\"\nport = {port:?}\n{lines}\n"
            );
        }
        let file = lab.path("host.toml");
        std::fs::write(&file, toml).map_err(Error::io("write host.toml"))?;
        let daemon = Launch::new()?.arg("serve").arg(file).start()?;
        let cables: Vec<_> = nics.iter().map(|nic| cable(nic)).collect();
        let peer = Peer::plug(&cables)?;
        let config = nics
            .iter()
            .fold(config, |config, nic| config.nic(lab.nic(nic)));
        let guest = lab.rig.resume(config)?;
        let interface = guests::load_driver(&guest, &mac(nics[0]))?;
        Ok(Self {
            guest,
            peer,
            daemon,
            interface,
            mac: mac_bytes(&mac(nics[0])),
            lab,
        })
    }

    /// Waits until the link is up and the peer answers.
    ///
    /// # Errors
    /// When they do not.
    pub fn settled(&self) -> Result<()> {
        guests::wait_carrier(&self.guest, &self.interface, true)?;
        let ping = format!("ping -n -c 1 -W 1 {} >/dev/null", peer::IP);
        if self.guest.wait_for(&ping, crate::LONG / 3).is_ok() {
            return Ok(());
        }
        // A race of the driver's own that e1000_down speaks of: its watchdog, running while the chip is reset, puts
        // the carrier back, and then nobody enables the transmitter "until the next IFF_DOWN+IFF_UP cycle".
        if !self.transmitter_is_on()? {
            let interface = &self.interface;
            println!("the driver has left {interface} with a carrier and no transmitter");
            // It notices itself that nothing is sent, and blames the chip; nothing else may have happened.
            guests::forgive(&self.guest, "Detected Tx Unit Hang")?;
            self.guest.run(&format!(
                "ip link set {interface} down; ip link set {interface} up"
            ))?;
            guests::wait_carrier(&self.guest, interface, true)?;
        }
        let answered = self.guest.wait_for(&ping, crate::LONG);
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
