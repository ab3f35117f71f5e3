//! How many flows guests have through a user network. Each costs the host a socket, and libslirp opens as many as
//! guests ask for.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::RawFd;

use wire::EtherType;

use crate::config::UserConfig;
use crate::count;
use crate::sys::Change;

const ETHERNET: usize = 14;
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const ECHO_REQUESTS: [u8; 2] = [8, 128];
const DHCP: u16 = 67;
const DHCPV6: u16 = 547;
/// Where DHCPv6 clients look for servers.
const DHCPV6_SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
/// TCP's header up to its flags: a fragment that ends before them, or begins within them, hides what it opens.
const TCP_FLAGS: usize = 13;
const SYN: u8 = 1 << 1;
const ACK: u8 = 1 << 4;

type Mac = [u8; 6];

/// What libslirp has one socket for: a station and port, with what is at the other end of a connection.
type Key = (u8, IpAddr, u16, Option<(IpAddr, u16)>);

/// What a frame opens, if it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opens {
    Nothing,
    /// A socket, unless it is open.
    Socket(Key),
    /// A socket, whatever is open: each ping has its own.
    Another,
    /// What only its other fragments would show (RFC 1858, RFC 3128).
    Hidden,
}

/// Whose frame libslirp gets, and which socket it may open for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct By {
    nic: Mac,
    key: Option<Key>,
}

/// Why a frame may not go to libslirp: the place of the counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The network has as many flows as it may have.
    Full = count::FLOW_REFUSED as isize,
    /// The NIC has.
    NicFull = count::NIC_FLOW_REFUSED as isize,
}

/// The flows of a user network: the sockets that libslirp has, and whose they are. A socket that the host opened, by a
/// forwarded port, is no NIC's.
#[derive(Debug)]
pub struct Flows {
    most: usize,
    most_of_nic: usize,
    /// The host's address, where libslirp's DHCP server answers without a socket.
    host: Ipv4Addr,
    open: HashMap<RawFd, Option<By>>,
    keys: HashSet<Key>,
    of_nic: HashMap<Mac, usize>,
}

impl Flows {
    /// As many as `config` says, of a network whose host has this address.
    pub fn new(config: &UserConfig, host: Ipv4Addr) -> Self {
        Self {
            most: config.flows,
            most_of_nic: config.nic_flows,
            host,
            open: HashMap::new(),
            keys: HashSet::new(),
            of_nic: HashMap::new(),
        }
    }

    /// Whether a frame may go to libslirp. What that opens is reported by [`Flows::changed`], with what this returns.
    pub fn admit(&self, frame: &[u8]) -> Result<By, Refused> {
        let source = frame.get(6..).and_then(<[u8]>::first_chunk);
        let nic = source.copied().unwrap_or_default();
        let by = |key| By { nic, key };
        let key = match self.opens(frame) {
            Opens::Nothing => return Ok(by(None)),
            Opens::Hidden => return Err(Refused::Full),
            Opens::Another => None,
            Opens::Socket(key) if self.keys.contains(&key) => return Ok(by(None)),
            Opens::Socket(key) => Some(key),
        };
        if self
            .of_nic
            .get(&nic)
            .is_some_and(|n| *n >= self.most_of_nic)
        {
            return Err(Refused::NicFull);
        }
        if self.open.len() >= self.most {
            return Err(Refused::Full);
        }
        Ok(by(key))
    }

    /// libslirp has opened or closed a socket, `by` a frame or by itself.
    pub fn changed(&mut self, change: Change, by: Option<By>) {
        let was = match change {
            Change::Opened(fd) => self.open.insert(fd, by),
            Change::Closed(fd) => self.open.remove(&fd),
        };
        if let Some(By { nic, key }) = was.flatten() {
            if let Some(key) = key {
                self.keys.remove(&key);
            }
            if let Entry::Occupied(mut entry) = self.of_nic.entry(nic) {
                *entry.get_mut() -= 1;
                if *entry.get() == 0 {
                    entry.remove();
                }
            }
        }
        if let (Change::Opened(_), Some(By { nic, key })) = (change, by) {
            self.keys.extend(key);
            *self.of_nic.entry(nic).or_default() += 1;
        }
    }

    /// Decided on the bytes alone; what libslirp will refuse opens nothing there and is refused there.
    fn opens(&self, frame: &[u8]) -> Opens {
        self.found(frame).unwrap_or(Opens::Nothing)
    }

    fn found(&self, frame: &[u8]) -> Option<Opens> {
        let packet = packet(frame)?;
        let rest = packet.payload;
        if packet.protocol == TCP
            && (packet.offset == 1 || packet.offset == 0 && rest.len() <= TCP_FLAGS)
        {
            return Some(Opens::Hidden);
        }
        if packet.offset != 0 {
            // The rest of a packet opens nothing by itself.
            return None;
        }
        let half = |at: usize| Some(u16::from_be_bytes(*rest.get(at..)?.first_chunk()?));
        Some(match packet.protocol {
            TCP if rest.get(TCP_FLAGS)? & (SYN | ACK) == SYN => {
                Opens::Socket((TCP, packet.from, half(0)?, Some((packet.to, half(2)?))))
            }
            UDP if self.is_dhcp(packet.to, half(2)?) => Opens::Nothing,
            UDP => Opens::Socket((UDP, packet.from, half(0)?, None)),
            ICMP | ICMPV6 if ECHO_REQUESTS.contains(rest.first()?) => Opens::Another,
            _ => Opens::Nothing,
        })
    }

    /// Whether libslirp's own DHCP server answers.
    fn is_dhcp(&self, to: IpAddr, port: u16) -> bool {
        match to {
            IpAddr::V4(to) => port == DHCP && (to == self.host || to == Ipv4Addr::BROADCAST),
            IpAddr::V6(to) => port == DHCPV6 && to == DHCPV6_SERVERS,
        }
    }
}

/// What of an IP packet decides.
struct Packet<'f> {
    protocol: u8,
    from: IpAddr,
    to: IpAddr,
    /// Of a fragment, in units of 8 bytes.
    offset: u16,
    payload: &'f [u8],
}

fn packet(frame: &[u8]) -> Option<Packet<'_>> {
    let kind = u16::from_be_bytes(*frame.get(12..)?.first_chunk()?);
    let packet = frame.get(ETHERNET..)?;
    Some(match EtherType(kind) {
        EtherType::IPV4 => {
            let header = usize::from(packet.first()? & 0xf) * 4;
            let address =
                |at: usize| Some(Ipv4Addr::from(*packet.get(at..)?.first_chunk::<4>()?).into());
            Packet {
                protocol: *packet.get(9)?,
                from: address(12)?,
                to: address(16)?,
                offset: u16::from_be_bytes(*packet.get(6..)?.first_chunk()?) & 0x1fff,
                payload: packet.get(header..)?,
            }
        }
        // libslirp knows no extension headers, so no fragments either.
        EtherType::IPV6 => {
            let address =
                |at: usize| Some(Ipv6Addr::from(*packet.get(at..)?.first_chunk::<16>()?).into());
            Packet {
                protocol: *packet.get(6)?,
                from: address(8)?,
                to: address(24)?,
                offset: 0,
                payload: packet.get(40..)?,
            }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);

    const NIC: Mac = [2, 0, 0, 0, 0, 1];
    const OTHER: Mac = [2, 0, 0, 0, 0, 2];

    fn flows() -> Flows {
        let config = UserConfig {
            flows: 5,
            nic_flows: 3,
            ..UserConfig::default()
        };
        Flows::new(&config, HOST)
    }

    impl Flows {
        /// A frame of a NIC, for which libslirp opens this socket, if it may have the frame.
        fn open(&mut self, nic: Mac, mut frame: Vec<u8>, fd: RawFd) -> Result<(), Refused> {
            frame[6..12].copy_from_slice(&nic);
            let by = self.admit(&frame)?;
            self.changed(Change::Opened(fd), Some(by));
            Ok(())
        }

        fn passes(&self, frame: &[u8]) -> bool {
            self.admit(frame).is_ok()
        }
    }

    fn v4(protocol: u8, rest: &[u8]) -> Vec<u8> {
        let mut frame = vec![0; ETHERNET + 20];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[ETHERNET] = 0x45;
        frame[ETHERNET + 9] = protocol;
        frame[ETHERNET + 12..ETHERNET + 16].copy_from_slice(&[10, 0, 2, 15]);
        frame.extend(rest);
        frame
    }

    fn udp(port: u16) -> Vec<u8> {
        v4(UDP, &[&port.to_be_bytes()[..], &[0; 6]].concat())
    }

    fn tcp(flags: u8) -> Vec<u8> {
        let mut rest = [0; 20];
        rest[13] = flags;
        v4(TCP, &rest)
    }

    #[test]
    fn known_flows_go_on_and_new_ones_wait_for_a_place() {
        let mut flows = flows();
        for port in [1, 2, 3] {
            assert_eq!(flows.open(NIC, udp(port), port.into()), Ok(()));
        }
        assert_eq!(flows.open(NIC, udp(4), 4), Err(Refused::NicFull));
        assert_eq!(flows.open(NIC, tcp(SYN), 4), Err(Refused::NicFull));
        for frame in [udp(2), tcp(ACK), v4(UDP, &[]), vec![0; 9]] {
            assert!(flows.passes(&frame), "it is open, or opens nothing");
        }
        // One that is closed leaves its place.
        flows.changed(Change::Closed(2), None);
        assert_eq!(flows.open(NIC, tcp(SYN), 2), Ok(()));
        assert!(flows.passes(&tcp(SYN)), "sent again");
        assert_eq!(flows.open(NIC, udp(2), 5), Err(Refused::NicFull));
    }

    #[test]
    fn a_nic_leaves_places_to_others_and_all_have_no_more_than_the_network() {
        let mut flows = flows();
        for port in [1, 2, 3] {
            assert_eq!(flows.open(NIC, udp(port), port.into()), Ok(()));
        }
        assert_eq!(flows.open(NIC, udp(4), 4), Err(Refused::NicFull));
        assert_eq!(flows.open(OTHER, udp(4), 4), Ok(()));
        // A connection to a forwarded port is no NIC's, but one of the network's.
        flows.changed(Change::Opened(5), None);
        assert_eq!(flows.open(OTHER, udp(5), 6), Err(Refused::Full));
        for fd in 1..=5 {
            flows.changed(Change::Closed(fd), None);
        }
        let Flows {
            open, keys, of_nic, ..
        } = &flows;
        assert!(open.is_empty() && keys.is_empty() && of_nic.is_empty());
    }

    #[test]
    fn a_number_that_is_opened_again_is_another_socket() {
        let mut flows = flows();
        assert_eq!(flows.open(NIC, udp(1), 7), Ok(()));
        assert_eq!(flows.open(OTHER, udp(2), 7), Ok(()));
        assert_eq!(flows.of_nic, HashMap::from([(OTHER, 1)]));
        assert_eq!(flows.keys.len(), 1);
    }

    /// libslirp has a socket for each ping until it is answered, whatever its identification.
    #[test]
    fn each_ping_is_a_flow() {
        let mut flows = flows();
        let mut ping = vec![8, 0, 0, 0, 7, 7, 0, 0];
        for fd in 1..=3 {
            assert_eq!(flows.open(NIC, v4(ICMP, &ping), fd), Ok(()));
        }
        assert_eq!(flows.open(NIC, v4(ICMP, &ping), 4), Err(Refused::NicFull));
        ping[0] = 0;
        assert_eq!(flows.opens(&v4(ICMP, &ping)), Opens::Nothing, "an answer");
    }

    #[test]
    fn version_6_has_flows_too() {
        let mut frame = vec![0; ETHERNET + 40 + 8];
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        frame[ETHERNET + 6] = UDP;
        frame[ETHERNET + 41] = 9;
        assert!(matches!(
            flows().opens(&frame),
            Opens::Socket((UDP, IpAddr::V6(_), 9, None))
        ));
    }

    #[test]
    fn dhcp_opens_nothing_at_its_server_and_a_socket_elsewhere() {
        let to = |address: Ipv4Addr, port: u8| {
            let mut frame = v4(UDP, &[0, 68, 0, port, 0, 0, 0, 0]);
            frame[ETHERNET + 16..ETHERNET + 20].copy_from_slice(&address.octets());
            flows().opens(&frame)
        };
        assert_eq!(to(HOST, 67), Opens::Nothing);
        assert_eq!(to(Ipv4Addr::BROADCAST, 67), Opens::Nothing);
        let elsewhere = Ipv4Addr::new(192, 0, 2, 1);
        for (address, port) in [(elsewhere, 67), (elsewhere, 69), (HOST, 53)] {
            assert!(
                matches!(to(address, port), Opens::Socket(_)),
                "{address}:{port}"
            );
        }
    }

    #[test]
    fn a_fragment_that_hides_the_flags_of_tcp_is_refused() {
        let mut first = v4(TCP, &[0; 8]);
        first[ETHERNET + 6] = 0x20;
        let mut second = v4(TCP, &[0; 12]);
        second[ETHERNET + 7] = 1;
        for frame in [&first, &second] {
            assert_eq!(flows().opens(frame), Opens::Hidden);
            assert_eq!(flows().admit(frame), Err(Refused::Full));
        }
        second[ETHERNET + 7] = 2;
        assert_eq!(flows().opens(&second), Opens::Nothing);
    }
}
