//! Which frames belong together: a number that is the same for all frames of a flow.

const TAGS: [u16; 2] = [0x8100, 0x88a8];
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// TCP, UDP, DCCP, SCTP, UDP-Lite: their headers begin with the ports.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];

/// One of `among` places for the flow that the frame beginning with `head` belongs to.
///
/// That is addresses, protocol and ports; of fragments, of which only the first has ports, and
/// behind IPv6 extension headers the addresses alone. Whatever is no IP goes by its station
/// addresses. What does not fit the head is left out: a flow's frames are all of one make.
pub fn spread(head: &[u8], among: usize) -> usize {
    let hash = over(key(head).unwrap_or((head.get(..12).unwrap_or(head), &[])));
    // The high bits are the well mixed ones.
    ((hash >> 32) as usize * among) >> 32
}

/// The bytes that tell a flow: addresses, ports.
fn key(head: &[u8]) -> Option<(&[u8], &[u8])> {
    let word = |at: usize| Some(u16::from_be_bytes(*head.get(at..)?.first_chunk()?));
    let mut at = 12;
    for _ in 0..2 {
        if TAGS.contains(&word(at)?) {
            at += 4;
        }
    }
    let ip = at + 2;
    let (addresses, protocol, next) = match word(at)? {
        IPV4 => {
            let len = usize::from(head.get(ip)? & 0xf) * 4;
            let whole = word(ip + 6)? & 0x3fff == 0;
            let protocol = Some(*head.get(ip + 9)?).filter(|_| whole);
            (head.get(ip + 12..ip + 20)?, protocol, ip + len)
        }
        IPV6 => (
            head.get(ip + 8..ip + 40)?,
            head.get(ip + 6).copied(),
            ip + 40,
        ),
        _ => return None,
    };
    let ports = match protocol {
        Some(protocol) if WITH_PORTS.contains(&protocol) => head.get(next..next + 4),
        _ => None,
    };
    Some((addresses, ports.unwrap_or(&[])))
}

/// A multiplicative hash, word by word; both parts have an even length in words.
fn over((addresses, ports): (&[u8], &[u8])) -> u64 {
    let words = addresses.chunks(4).chain(ports.chunks(4));
    words.fold(0, |hash, word| {
        let mut four = [0; 4];
        four[..word.len()].copy_from_slice(word);
        let mixed: u64 = hash ^ u64::from(u32::from_le_bytes(four));
        (mixed ^ mixed >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn udp(ports: [u8; 4], fragment: u16, rest: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0, 0, 99, 1, 2]);
        frame.extend(fragment.to_be_bytes());
        frame.extend([64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend(ports);
        frame.extend(rest);
        frame
    }

    #[test]
    fn flows_are_spread_and_stay_together() {
        let mut places = [0; 4];
        for port in 0..400u16 {
            let [a, b] = port.to_be_bytes();
            let ports = [a, b, 0, 80];
            let at = spread(&udp(ports, 0, &[]), 4);
            places[at] += 1;
            // Length, identification and payload change from frame to frame.
            let mut other = udp(ports, 0, &[port as u8; 30]);
            other[16..20].copy_from_slice(&[1, 2, a, b]);
            assert_eq!(spread(&other, 4), at);
            let mut tagged = udp(ports, 0x4000, &[]);
            tagged.splice(12..12, [0x81, 0, 0, 7]);
            assert_eq!(spread(&tagged, 4), at);
        }
        assert!(places.iter().all(|n| (60..140).contains(n)), "{places:?}");
    }

    #[test]
    fn fragments_of_a_datagram_stay_together() {
        for at in 0..50u8 {
            // The first has the ports, the later ones have data in their place.
            let first = spread(&udp([1, 2, 3, at], 0x2000, &[]), 8);
            assert_eq!(spread(&udp([at, 9, 8, 7], 185, &[]), 8), first);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_place(
            head in proptest::collection::vec(any::<u8>(), 0..90), kind in 0..4, among in 1usize..33,
        ) {
            let mut head = head;
            if let Some(at) = head.get_mut(12..14) {
                at.copy_from_slice(&[[8, 0], [0x86, 0xdd], [0x81, 0], [9, 9]][kind as usize]);
            }
            prop_assert!(spread(&head, among) < among);
        }
    }
}
