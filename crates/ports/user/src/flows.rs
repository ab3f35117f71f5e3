//! How many flows guests have through a user network. Each costs the host a socket, and libslirp opens as many as
//! guests ask for.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use wire::EtherType;

/// How long libslirp keeps a UDP or ping socket after its last packet (its `SO_EXPIRE`).
const IDLE: Duration = Duration::from_secs(240);

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

/// A socket as libslirp keeps them: one for each station and port, or each identification of pings.
type Key = (u8, IpAddr, u16);

/// What a frame opens, if it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opens {
    Nothing,
    /// A connection, whatever is open.
    Connection,
    /// A socket, unless it is open.
    Socket(Key),
    /// What only its other fragments would show (RFC 1858, RFC 3128).
    Hidden,
}

/// The flows of a user network.
pub struct Flows {
    most: usize,
    /// The host's address, where libslirp's DHCP server answers without a socket.
    host: Ipv4Addr,
    /// When those without an end were used last. No more than `most`.
    sockets: HashMap<Key, Instant>,
}

impl Flows {
    /// At most so many, of a network whose host has this address.
    pub fn new(most: usize, host: Ipv4Addr) -> Self {
        Self {
            most,
            host,
            sockets: HashMap::new(),
        }
    }

    /// Whether a frame may go to libslirp, which has `open` descriptors; one that it will open is added to them.
    pub fn admit(&mut self, frame: &[u8], open: &mut usize, now: Instant) -> bool {
        let key = match self.opens(frame) {
            Opens::Nothing => return true,
            Opens::Hidden => return false,
            Opens::Connection => None,
            Opens::Socket(key) => Some(key),
        };
        if let Some(key) = key
            && let Some(used) = self.sockets.get_mut(&key)
        {
            *used = now;
            return true;
        }
        if *open >= self.most {
            return false;
        }
        if let Some(key) = key {
            if self.sockets.len() >= self.most {
                self.sockets
                    .retain(|_, used| now.saturating_duration_since(*used) < IDLE);
            }
            if self.sockets.len() >= self.most {
                return false;
            }
            self.sockets.insert(key, now);
        }
        *open += 1;
        true
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
            TCP if rest.get(TCP_FLAGS)? & (SYN | ACK) == SYN => Opens::Connection,
            UDP if self.is_dhcp(packet.to, half(2)?) => Opens::Nothing,
            UDP => Opens::Socket((UDP, packet.from, half(0)?)),
            ICMP | ICMPV6 if ECHO_REQUESTS.contains(rest.first()?) => {
                Opens::Socket((packet.protocol, packet.from, half(4)?))
            }
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

    fn flows() -> Flows {
        Flows::new(3, HOST)
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
        let start = Instant::now();
        let mut open = 0;
        for port in [1, 2, 3] {
            assert!(flows.admit(&udp(port), &mut open, start));
        }
        assert_eq!(open, 3);
        assert!(!flows.admit(&udp(4), &mut open, start));
        assert!(!flows.admit(&tcp(SYN), &mut open, start));
        assert!(flows.admit(&udp(2), &mut open, start), "it is open");
        assert!(flows.admit(&tcp(ACK), &mut open, start), "it opens nothing");
        assert!(
            flows.admit(&[0; 9], &mut open, start) && flows.admit(&v4(UDP, &[]), &mut open, start)
        );
        // libslirp has closed some: there is room for connections, and for sockets once theirs have expired.
        open = 1;
        assert!(flows.admit(&tcp(SYN), &mut open, start));
        assert!(!flows.admit(&udp(4), &mut open, start));
        assert!(flows.admit(&udp(4), &mut open, start + IDLE));
        assert_eq!(open, 3);
    }

    #[test]
    fn pings_and_version_6_are_flows_too() {
        let mut ping = vec![8, 0, 0, 0, 7, 7, 0, 0];
        assert!(matches!(
            flows().opens(&v4(ICMP, &ping)),
            Opens::Socket((ICMP, _, 0x707))
        ));
        ping[0] = 0;
        assert_eq!(flows().opens(&v4(ICMP, &ping)), Opens::Nothing, "an answer");
        let mut frame = vec![0; ETHERNET + 40 + 8];
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        frame[ETHERNET + 6] = UDP;
        frame[ETHERNET + 41] = 9;
        assert!(matches!(
            flows().opens(&frame),
            Opens::Socket((UDP, IpAddr::V6(_), 9))
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
            assert!(!flows().admit(frame, &mut 0, Instant::now()));
        }
        second[ETHERNET + 7] = 2;
        assert_eq!(flows().opens(&second), Opens::Nothing);
    }
}
