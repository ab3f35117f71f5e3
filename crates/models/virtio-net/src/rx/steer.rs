//! Which pair receives a frame: one flow, one pair (virtio 1.4 §5.1.6.5.6: how is the device's choice).

use wire::{ETHERNET_HEADER, EtherType, VLAN_TAG};

/// TCP and UDP.
const WITH_PORTS: [u8; 2] = [6, 17];

/// The pair, of so many that are used, for a frame that begins like this.
#[inline]
pub fn pair(head: &[u8], pairs: usize) -> usize {
    if pairs <= 1 {
        return 0;
    }
    let hash = flow(head).unwrap_or(0);
    // The upper half of the product: every bit of the hash counts.
    ((u64::from(hash) * pairs as u64) >> 32) as usize
}

/// A hash of addresses, and of ports where there are some; `None` if it is not IP.
fn flow(head: &[u8]) -> Option<u32> {
    let ether_type = |at: usize| Some(u16::from_be_bytes([*head.get(at)?, *head.get(at + 1)?]));
    let mut at = ETHERNET_HEADER;
    let mut kind = ether_type(at - 2)?;
    if kind == EtherType::VLAN.0 {
        at += VLAN_TAG;
        kind = ether_type(at - 2)?;
    }
    let (addresses, protocol, ports) = if kind == EtherType::IPV4.0 {
        let [first, .., flags, fragment] = *head.get(at..at + 8)? else {
            return None;
        };
        let whole = u16::from_be_bytes([flags, fragment]) & 0x3fff == 0;
        let ports = whole.then_some(at + 4 * usize::from(first & 15));
        (head.get(at + 12..at + 20)?, *head.get(at + 9)?, ports)
    } else if kind == EtherType::IPV6.0 {
        let next = *head.get(at + 6)?;
        (head.get(at + 8..at + 40)?, next, Some(at + 40))
    } else {
        return None;
    };
    let mut hash = addresses
        .as_chunks()
        .0
        .iter()
        .fold(0, |hash, word| mix(hash, *word));
    if WITH_PORTS.contains(&protocol)
        && let Some(at) = ports
        && let Some(ports) = head.get(at..).and_then(|rest| rest.first_chunk())
    {
        hash = mix(hash, *ports);
    }
    Some(finish(hash))
}

fn mix(hash: u32, word: [u8; 4]) -> u32 {
    (hash ^ u32::from_le_bytes(word))
        .wrapping_mul(0x9e37_79b1)
        .rotate_left(13)
}

fn finish(hash: u32) -> u32 {
    let hash = (hash ^ hash >> 15).wrapping_mul(0x85eb_ca77);
    hash ^ hash >> 13
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TCP over IPv4 or IPv6 from this port.
    fn segment(v6: bool, tagged: bool, port: u16) -> Vec<u8> {
        let mut head = vec![2; 12];
        if tagged {
            head.extend([0x81, 0, 0, 7]);
        }
        if v6 {
            head.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 6, 64]);
            head.extend([7; 32]);
        } else {
            head.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0]);
            head.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        }
        head.extend(port.to_be_bytes());
        head.extend([0, 80]);
        head
    }

    #[test]
    fn flows_spread_over_all_pairs_and_each_keeps_to_its_own() {
        for (v6, tagged) in [(false, false), (false, true), (true, false), (true, true)] {
            for pairs in 1..=16 {
                let mut hits = vec![0; pairs];
                for port in 0..1600 {
                    let head = segment(v6, tagged, port);
                    hits[pair(&head, pairs)] += 1;
                    assert_eq!(pair(&head, pairs), pair(&head, pairs));
                }
                let even = 1600 / pairs;
                assert!(
                    hits.iter().all(|h| *h > even / 2),
                    "{v6} {tagged}: {hits:?}"
                );
            }
        }
    }

    #[test]
    fn fragments_of_a_datagram_go_where_their_addresses_say() {
        let mut first = segment(false, false, 1);
        first[20] = 0x20;
        let mut second = segment(false, false, 2);
        second[20] = 0;
        second[21] = 100;
        assert_eq!(flow(&first), flow(&second));
        assert_ne!(
            flow(&segment(false, false, 1)),
            flow(&segment(false, false, 2))
        );
    }

    #[test]
    fn whatever_is_cut_short_or_no_ip_has_a_pair() {
        for head in [segment(false, true, 1), segment(true, true, 1)] {
            for len in 0..head.len() {
                assert!(pair(&head[..len], 16) < 16);
            }
        }
        assert_eq!(pair(&[0xff; 64], 16), 0);
    }
}
