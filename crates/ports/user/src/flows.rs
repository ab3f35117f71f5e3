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
/// DHCP and TFTP, which libslirp answers without a socket.
const ANSWERED_WITHIN: [u16; 2] = [67, 69];
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
}

/// The flows of a user network.
pub struct Flows {
    most: usize,
    /// When those without an end were used last. No more than `most`.
    sockets: HashMap<Key, Instant>,
}

impl Flows {
    /// At most so many.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            sockets: HashMap::new(),
        }
    }

    /// Whether a frame may go to libslirp, which has `open` descriptors; one that it will open is added to them.
    pub fn admit(&mut self, frame: &[u8], open: &mut usize, now: Instant) -> bool {
        let key = match opens(frame) {
            Opens::Nothing => return true,
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
}

/// Decided on the bytes alone; what libslirp will refuse opens nothing there and is refused there.
fn opens(frame: &[u8]) -> Opens {
    found(frame).unwrap_or(Opens::Nothing)
}

fn found(frame: &[u8]) -> Option<Opens> {
    let kind = u16::from_be_bytes(*frame.get(12..)?.first_chunk()?);
    let packet = frame.get(ETHERNET..)?;
    let (protocol, from, rest) = match EtherType(kind) {
        EtherType::IPV4 => {
            let header = usize::from(packet.first()? & 0xf) * 4;
            let offset = u16::from_be_bytes(*packet.get(6..)?.first_chunk()?) & 0x1fff;
            // The rest of a packet opens nothing by itself.
            if offset != 0 {
                return None;
            }
            let from: [u8; 4] = *packet.get(12..)?.first_chunk()?;
            (
                *packet.get(9)?,
                Ipv4Addr::from(from).into(),
                packet.get(header..)?,
            )
        }
        EtherType::IPV6 => {
            let from: [u8; 16] = *packet.get(8..)?.first_chunk()?;
            (
                *packet.get(6)?,
                Ipv6Addr::from(from).into(),
                packet.get(40..)?,
            )
        }
        _ => return None,
    };
    let half = |at: usize| Some(u16::from_be_bytes(*rest.get(at..)?.first_chunk()?));
    Some(match protocol {
        TCP if rest.get(13)? & (SYN | ACK) == SYN => Opens::Connection,
        UDP if ANSWERED_WITHIN.contains(&half(2)?) => Opens::Nothing,
        UDP => Opens::Socket((UDP, from, half(0)?)),
        ICMP | ICMPV6 if ECHO_REQUESTS.contains(rest.first()?) => {
            Opens::Socket((protocol, from, half(4)?))
        }
        _ => Opens::Nothing,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let mut flows = Flows::new(3);
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
            opens(&v4(ICMP, &ping)),
            Opens::Socket((ICMP, _, 0x707))
        ));
        ping[0] = 0;
        assert_eq!(opens(&v4(ICMP, &ping)), Opens::Nothing, "an answer");
        let mut frame = vec![0; ETHERNET + 40 + 8];
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        frame[ETHERNET + 6] = UDP;
        frame[ETHERNET + 41] = 9;
        assert!(matches!(
            opens(&frame),
            Opens::Socket((UDP, IpAddr::V6(_), 9))
        ));
    }
}
