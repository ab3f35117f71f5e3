//! The words by which users name MACs, models and ports, on the command line and in files alike.

use std::fmt;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, de};

/// A station address that a NIC may have: unicast, not zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NicMac(pub [u8; 6]);

impl NicMac {
    /// A stable, locally administered address made from a name: the same NIC keeps its address
    /// from run to run without being written down.
    pub fn from_name(name: &str) -> Self {
        // FNV-1a; any spread will do.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
            (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
        });
        let [.., a, b, c] = (hash ^ (hash >> 24)).to_be_bytes();
        NicMac([0x52, 0x54, 0x00, a, b, c])
    }
}

impl FromStr for NicMac {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = |why: &str| {
            format!("bad MAC address \"{text}\": {why}; write six bytes like 52:54:00:12:34:56")
        };
        let mut mac = [0u8; 6];
        let mut parts = text.split([':', '-']);
        for byte in &mut mac {
            let part = parts.next().ok_or_else(|| bad("too few bytes"))?;
            if part.len() != 2 {
                return Err(bad("each byte is two hexadecimal digits"));
            }
            *byte = u8::from_str_radix(part, 16)
                .map_err(|_| bad("each byte is two hexadecimal digits"))?;
        }
        if parts.next().is_some() {
            return Err(bad("too many bytes"));
        }
        if mac[0] & 1 == 1 {
            return Err(bad("it is a group address (the first byte must be even)"));
        }
        if mac == [0; 6] {
            return Err(bad("all zero is not a valid address"));
        }
        Ok(NicMac(mac))
    }
}

impl fmt::Display for NicMac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for NicMac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// When a NIC raises interrupts. Changes nothing but timing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moderation {
    /// As the guest's driver has set the chip's registers, to the letter.
    Guest,
    /// Not more often than pays for this guest; sooner where buffers could run out, and at once
    /// where traffic is sparse or a program waits for an answer.
    Adaptive,
    /// At most so many a second, whatever the driver has set; [`INTERRUPTS`] says how many.
    Fixed(NonZeroU32),
}

/// Interrupts a second that can be asked for.
pub const INTERRUPTS: RangeInclusive<u32> = 100..=1_000_000;

impl FromStr for Moderation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fixed = |rate: &str| {
            let rate = rate.parse().ok().filter(|rate| INTERRUPTS.contains(rate));
            rate.and_then(NonZeroU32::new).map(Moderation::Fixed)
        };
        let (name, rate) = match text.split_once(':') {
            Some((name, rate)) => (name, Some(rate)),
            None => (text, None),
        };
        match (name, rate) {
            ("guest", None) => Ok(Moderation::Guest),
            ("adaptive", None) => Ok(Moderation::Adaptive),
            ("fixed", rate) => rate.and_then(fixed).ok_or_else(|| {
                format!(
                    "moderation \"{text}\" needs a number of interrupts per second, {} to {}, as \
                     in fixed:8000",
                    INTERRUPTS.start(),
                    INTERRUPTS.end()
                )
            }),
            _ => Err(format!(
                "unknown moderation \"{text}\"; write guest, adaptive or fixed:N (interrupts per \
                 second)"
            )),
        }
    }
}

impl From<registry::Moderation> for Moderation {
    fn from(how: registry::Moderation) -> Self {
        match how {
            registry::Moderation::Guest => Moderation::Guest,
            registry::Moderation::Adaptive => Moderation::Adaptive,
            registry::Moderation::Fixed(rate) => Moderation::Fixed(rate),
        }
    }
}

impl From<Moderation> for registry::Moderation {
    fn from(how: Moderation) -> Self {
        match how {
            Moderation::Guest => registry::Moderation::Guest,
            Moderation::Adaptive => registry::Moderation::Adaptive,
            Moderation::Fixed(rate) => registry::Moderation::Fixed(rate),
        }
    }
}

impl fmt::Display for Moderation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Moderation::Guest => f.write_str("guest"),
            Moderation::Adaptive => f.write_str("adaptive"),
            Moderation::Fixed(rate) => write!(f, "fixed:{rate}"),
        }
    }
}

/// How a guest tells its NIC that a ring has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Doorbell {
    /// Its register accesses are messages.
    #[default]
    Trap,
    /// The tail registers are memory that the guest shares, and the worker looks at them.
    Page,
}

impl FromStr for Doorbell {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "trap" => Ok(Doorbell::Trap),
            "page" => Ok(Doorbell::Page),
            _ => Err(format!("unknown doorbell \"{text}\"; write trap or page")),
        }
    }
}

impl fmt::Display for Doorbell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Doorbell::Trap => "trap",
            Doorbell::Page => "page",
        })
    }
}

/// By which protocol a VMM has a NIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// A PCI function.
    #[default]
    VfioUser,
    /// The rings of a virtio device, whose registers the VMM has.
    VhostUser,
}

impl FromStr for Transport {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "vfio-user" => Ok(Transport::VfioUser),
            "vhost-user" => Ok(Transport::VhostUser),
            _ => Err(format!(
                "unknown transport \"{text}\"; write vfio-user or vhost-user"
            )),
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::VfioUser => "vfio-user",
            Transport::VhostUser => "vhost-user",
        })
    }
}

/// Where frames go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortSpec {
    /// The user-mode network, with its options in order.
    User(Vec<(String, String)>),
    /// A TAP interface by name.
    Tap(String),
    /// The same with several queues.
    TapQueues(String, usize),
    /// An inherited TAP descriptor.
    TapFd(i32),
    /// A switch of this process by name.
    Switch(String),
    /// Length-prefixed frames over a Unix socket we connect to.
    Stream(PathBuf),
    /// The same over a Unix socket we listen on.
    StreamListen(PathBuf),
    /// The same over an inherited, connected descriptor.
    StreamFd(i32),
    /// The device of a vhost-user back end that listens on a Unix socket, and how many pairs of its rings.
    VhostUser(PathBuf, usize),
    /// The same of one that connects to a Unix socket of ours.
    VhostUserListen(PathBuf, usize),
    /// Frames end here.
    Null,
    /// Frames come back.
    Loopback,
}

const PORT_HELP: &str = "write user, tap:NAME[,queues=N], tap:fd=N, switch:NAME, stream:PATH, \
                         stream:listen=PATH, stream:fd=N, vhost-user:PATH[,pairs=N], \
                         vhost-user:listen=PATH[,pairs=N], null or loopback";

impl FromStr for PortSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = |why: String| format!("bad port \"{text}\": {why}; {PORT_HELP}");
        let (kind, rest) = match text.split_once(':') {
            Some((kind, rest)) => (kind, Some(rest)),
            None => (text, None),
        };
        let fd = |digits: &str| {
            digits
                .parse::<i32>()
                .ok()
                .filter(|n| *n >= 0)
                .ok_or_else(|| bad(format!("\"{digits}\" is not a file descriptor number")))
        };
        let named = |what: &str| {
            rest.filter(|r| !r.is_empty())
                .ok_or_else(|| bad(format!("{kind} needs {what}")))
        };
        match kind {
            "user" => {
                let mut options = Vec::new();
                for pair in rest.unwrap_or("").split(',').filter(|p| !p.is_empty()) {
                    let (key, value) = pair
                        .split_once('=')
                        .ok_or_else(|| bad(format!("option \"{pair}\" is not KEY=VALUE")))?;
                    options.push((key.to_owned(), value.to_owned()));
                }
                Ok(PortSpec::User(options))
            }
            "tap" => match named("an interface name")?.split_once('=') {
                Some(("fd", digits)) => fd(digits).map(PortSpec::TapFd),
                _ => tap(named("an interface name")?).map_err(bad),
            },
            "switch" => Ok(PortSpec::Switch(named("a switch name")?.to_owned())),
            "stream" => match named("a socket path")?.split_once('=') {
                Some(("fd", digits)) => fd(digits).map(PortSpec::StreamFd),
                Some(("listen", path)) => Ok(PortSpec::StreamListen(path.into())),
                _ => Ok(PortSpec::Stream(named("a socket path")?.into())),
            },
            "vhost-user" => vhost_user(named("a socket path")?).map_err(bad),
            "null" if rest.is_none() => Ok(PortSpec::Null),
            "loopback" if rest.is_none() => Ok(PortSpec::Loopback),
            "null" | "loopback" => Err(bad(format!("{kind} takes nothing after it"))),
            _ => Err(bad(format!("there is no port \"{kind}\""))),
        }
    }
}

impl PortSpec {
    /// The inherited descriptor that it is made of.
    pub fn fd(&self) -> Option<i32> {
        match self {
            PortSpec::TapFd(fd) | PortSpec::StreamFd(fd) => Some(*fd),
            _ => None,
        }
    }

    /// The same, if it is of a descriptor, of another one.
    #[must_use]
    pub fn with_fd(&self, fd: i32) -> Self {
        match self {
            PortSpec::TapFd(_) => PortSpec::TapFd(fd),
            PortSpec::StreamFd(_) => PortSpec::StreamFd(fd),
            other => other.clone(),
        }
    }
}

/// `PATH` or `listen=PATH`, and behind it perhaps `,pairs=N`.
fn vhost_user(text: &str) -> Result<PortSpec, String> {
    const MOST: usize = port_vhost_user::MAX_PAIRS;
    // A comma in a path is one, unless it looks like an option.
    let option = text
        .rsplit_once(',')
        .filter(|(_, option)| option.contains('=') && !option.contains('/'));
    let (path, pairs) = match option {
        None => (text, 1),
        Some((path, option)) => match option.split_once('=') {
            Some(("pairs", number)) => match number.parse() {
                Ok(n @ 1..=MOST) => (path, n),
                _ => return Err(format!("pairs={number} is not a number from 1 to {MOST}")),
            },
            _ => return Err(format!("there is no option \"{option}\", only pairs=N")),
        },
    };
    match path.strip_prefix("listen=") {
        Some("") => Err("listen= needs a socket path".to_owned()),
        None if path.is_empty() => Err("vhost-user needs a socket path".to_owned()),
        Some(path) => Ok(PortSpec::VhostUserListen(path.into(), pairs)),
        None => Ok(PortSpec::VhostUser(path.into(), pairs)),
    }
}

/// As a port's option, if there is more than one.
fn pairs(n: usize) -> String {
    if n > 1 {
        format!(",pairs={n}")
    } else {
        String::new()
    }
}

/// `NAME` or `NAME,queues=N`.
fn tap(text: &str) -> Result<PortSpec, String> {
    let Some((name, option)) = text.split_once(',') else {
        return Ok(PortSpec::Tap(text.to_owned()));
    };
    let queues = option
        .strip_prefix("queues=")
        .ok_or_else(|| format!("there is no option \"{option}\", only queues=N"))?;
    match queues.parse() {
        Ok(n @ 1..=port_tap::MAX_QUEUES) if !name.is_empty() => {
            Ok(PortSpec::TapQueues(name.to_owned(), n))
        }
        _ => Err(format!(
            "\"{text}\" is not an interface name with 1 to {} queues",
            port_tap::MAX_QUEUES
        )),
    }
}

impl fmt::Display for PortSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortSpec::User(options) if options.is_empty() => f.write_str("user"),
            PortSpec::User(options) => {
                let words: Vec<_> = options.iter().map(|(k, v)| format!("{k}={v}")).collect();
                write!(f, "user:{}", words.join(","))
            }
            PortSpec::Tap(name) => write!(f, "tap:{name}"),
            PortSpec::TapQueues(name, queues) => write!(f, "tap:{name},queues={queues}"),
            PortSpec::TapFd(fd) => write!(f, "tap:fd={fd}"),
            PortSpec::Switch(name) => write!(f, "switch:{name}"),
            PortSpec::Stream(path) => write!(f, "stream:{}", path.display()),
            PortSpec::StreamListen(path) => write!(f, "stream:listen={}", path.display()),
            PortSpec::StreamFd(fd) => write!(f, "stream:fd={fd}"),
            PortSpec::VhostUser(path, n) => {
                write!(f, "vhost-user:{}{}", path.display(), pairs(*n))
            }
            PortSpec::VhostUserListen(path, n) => {
                write!(f, "vhost-user:listen={}{}", path.display(), pairs(*n))
            }
            PortSpec::Null => f.write_str("null"),
            PortSpec::Loopback => f.write_str("loopback"),
        }
    }
}

/// `deserialize_with` for anything users write as one word.
pub(crate) fn word<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err = String>,
{
    String::deserialize(deserializer)?
        .parse()
        .map_err(de::Error::custom)
}

macro_rules! from_word {
    ($($type:ty),*) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                word(deserializer)
            }
        }
    )*};
}
from_word!(Doorbell, NicMac, Moderation, PortSpec, Transport);

#[cfg(test)]
mod tests {
    use super::*;
    use registry::MODELS;

    #[test]
    fn macs_are_checked_and_say_what_is_wrong() {
        let mac: NicMac = "52:54:00:12:34:5f".parse().expect("good");
        assert_eq!(mac.to_string(), "52:54:00:12:34:5f");
        for (bad, why) in [
            ("52:54:00:12:34", "too few"),
            ("52:54:00:12:34:56:78", "too many"),
            ("52:54:00:12:34:zz", "hexadecimal"),
            ("52:54:0:12:34:56", "hexadecimal"),
            ("01:00:5e:00:00:01", "group address"),
            ("00:00:00:00:00:00", "all zero"),
        ] {
            let error = bad.parse::<NicMac>().expect_err(bad);
            assert!(
                error.contains(why) && error.contains("52:54:00:12:34:56"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_name_gives_a_stable_unicast_mac() {
        let (a, b) = (NicMac::from_name("n0"), NicMac::from_name("n1"));
        assert_ne!(a, b);
        assert_eq!(a, NicMac::from_name("n0"));
        assert_eq!(a.to_string().parse::<NicMac>(), Ok(a));
    }

    #[test]
    fn moderations_read_and_print_alike_and_errors_are_one_line() {
        for text in [
            "guest",
            "adaptive",
            "fixed:100",
            "fixed:8000",
            "fixed:1000000",
        ] {
            let mode: Moderation = text.parse().expect(text);
            assert_eq!(mode.to_string(), text);
        }
        for (bad, why) in [
            ("", "write guest, adaptive or fixed:N"),
            ("none", "write guest, adaptive or fixed:N"),
            ("guest:1", "write guest, adaptive or fixed:N"),
            ("adaptive:", "write guest, adaptive or fixed:N"),
            ("fixed", "as in fixed:8000"),
            ("fixed:", "as in fixed:8000"),
            ("fixed:99", "100 to 1000000"),
            ("fixed:1000001", "100 to 1000000"),
            ("fixed:-5", "100 to 1000000"),
            ("fixed:99999999999", "100 to 1000000"),
            ("fixed:8k", "as in fixed:8000"),
        ] {
            let error = bad.parse::<Moderation>().expect_err(bad);
            assert!(error.contains(why) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn ports_read_and_print_alike() {
        for text in [
            "user",
            "user:tftp=/srv/tftp,bootfile=x.ipxe",
            "tap:vm0",
            "tap:vm0,queues=4",
            "tap:fd=7",
            "switch:lan",
            "stream:/run/passt.sock",
            "stream:listen=/run/s.sock",
            "stream:fd=3",
            "vhost-user:/run/ovs/vhost0.sock",
            "vhost-user:listen=/run/h.sock",
            "vhost-user:/run/a,b=c/h.sock,pairs=4",
            "vhost-user:listen=/run/h,1.sock,pairs=16",
            "null",
            "loopback",
        ] {
            let spec: PortSpec = text.parse().expect(text);
            assert_eq!(spec.to_string(), text);
        }
        for bad in [
            "",
            "tap",
            "tap:",
            "switch:",
            "vhost-user",
            "vhost-user:",
            "vhost-user:listen=",
            "vhost-user:,pairs=2",
            "vhost-user:/run/h.sock,pairs=0",
            "vhost-user:/run/h.sock,pairs=17",
            "vhost-user:/run/h.sock,queues=2",
            "bridge:br0",
            "null:x",
            "tap:fd=-1",
            "tap:vm0,queues=0",
            "tap:vm0,queues=33",
            "tap:vm0,queue=2",
            "tap:,queues=2",
            "user:x",
        ] {
            let error = bad.parse::<PortSpec>().expect_err(bad);
            assert!(error.contains("write user, tap:NAME"), "{error}");
        }
    }

    #[test]
    fn an_unknown_model_lists_the_known_ones() {
        let error = MODELS.parse("e1001").expect_err("unknown");
        assert!(error.contains("e1001") && error.contains("e1000 (Intel 82540EM)"));
        for known in MODELS.0 {
            assert!(error.contains(known.name));
            assert_eq!(MODELS.parse(known.name), Ok(*known));
        }
        for name in ["82545em", "82544gc", "82576"] {
            assert!(error.contains(name) && MODELS.find(name).is_some());
        }
        assert_eq!(MODELS.parse("82540em"), Ok(MODELS.default_model()));
        assert_eq!(MODELS.parse("e1000"), Ok(MODELS.default_model()));
    }
}
