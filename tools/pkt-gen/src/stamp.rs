//! What a frame says about itself: which flow, which number in it, when it left, and a sum.
//!
//! 18 bytes, so that a frame of 60 holds Ethernet, IPv4, UDP and one of these to the byte.

/// The destination port of our frames unless told otherwise: discard.
pub const PORT: u16 = 9;
/// Bytes of a stamp.
pub const LEN: usize = 18;

/// What our frames begin with unless told otherwise.
pub const RUN: u16 = 0x6879;

/// Bits of [`Stamp::flow`] that number the flow; those above number the sender.
pub const FLOW_BITS: u32 = 20;

/// A stamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Which run it belongs to; frames of others are not judged.
    pub run: u16,
    /// Sender and flow.
    pub flow: u32,
    /// Number of the frame in its flow, from 0, modulo 2^32.
    pub number: u32,
    /// When it left ([`time`]).
    pub time: u32,
}

/// A point of the monotonic clock as stamps carry it: units of 16 ns, modulo 69 s.
#[inline]
pub fn time(nanoseconds: u64) -> u32 {
    (nanoseconds >> 4) as u32
}

/// Nanoseconds from the time of a stamp to `now`.
#[inline]
pub fn since(time: u32, now: u64) -> u64 {
    u64::from(self::time(now).wrapping_sub(time)) << 4
}

impl Stamp {
    /// As it stands in a frame of `len` bytes (which the sum covers too).
    #[inline]
    pub fn bytes(&self, len: u32) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[0..2].copy_from_slice(&self.run.to_le_bytes());
        bytes[2..6].copy_from_slice(&self.flow.to_le_bytes());
        bytes[6..10].copy_from_slice(&self.number.to_le_bytes());
        bytes[10..14].copy_from_slice(&self.time.to_le_bytes());
        bytes[14..18].copy_from_slice(&self.sum(len).to_le_bytes());
        bytes
    }

    /// Reads one; `None` when the sum is wrong.
    #[inline]
    pub fn parse(bytes: &[u8; LEN], len: u32) -> Option<Self> {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let stamp = Self {
            run: u16::from_le_bytes([bytes[0], bytes[1]]),
            flow: word(2),
            number: word(6),
            time: word(10),
        };
        (stamp.sum(len) == word(14)).then_some(stamp)
    }

    #[inline]
    fn sum(&self, len: u32) -> u32 {
        let a = u64::from(self.flow) << 32 | u64::from(self.number);
        let b = u64::from(self.time) << 32 | u64::from(self.run) << 16 ^ u64::from(len);
        let mixed = mix(a ^ mix(b));
        (mixed ^ mixed >> 32) as u32
    }

    /// What the bytes behind the stamp are made from when they are checked too.
    #[inline]
    pub fn key(&self) -> u64 {
        mix(u64::from(self.flow) << 32 | u64::from(self.number))
    }
}

/// Spreads a difference in any bit over all bits (the finaliser of splitmix64).
#[inline]
pub fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Step from one word of a payload to the next.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Fills `out` with what belongs there from byte `at` of the payload of `key` on.
pub fn fill(key: u64, at: u64, out: &mut [u8]) {
    let mut word = key.wrapping_add(STEP.wrapping_mul(at / 8));
    let skip = (at % 8) as usize;
    let mut out = out;
    if skip > 0 {
        let n = out.len().min(8 - skip);
        let (head, rest) = out.split_at_mut(n);
        head.copy_from_slice(&word.to_le_bytes()[skip..skip + n]);
        word = word.wrapping_add(STEP);
        out = rest;
    }
    let (words, tail) = out.as_chunks_mut::<8>();
    for chunk in words {
        *chunk = word.to_le_bytes();
        word = word.wrapping_add(STEP);
    }
    tail.copy_from_slice(&word.to_le_bytes()[..tail.len()]);
}

/// Whether `bytes` are what belongs there from byte `at` of the payload of `key` on.
pub fn holds(key: u64, at: u64, bytes: &[u8]) -> bool {
    let mut word = key.wrapping_add(STEP.wrapping_mul(at / 8));
    let skip = (at % 8) as usize;
    let mut bytes = bytes;
    let mut wrong = 0u64;
    if skip > 0 {
        let n = bytes.len().min(8 - skip);
        let (head, rest) = bytes.split_at(n);
        wrong |= u64::from(head != &word.to_le_bytes()[skip..skip + n]);
        word = word.wrapping_add(STEP);
        bytes = rest;
    }
    let (words, tail) = bytes.as_chunks::<8>();
    for chunk in words {
        wrong |= u64::from_le_bytes(*chunk) ^ word;
        word = word.wrapping_add(STEP);
    }
    wrong == 0 && tail == &word.to_le_bytes()[..tail.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_survives_and_no_changed_bit_does() {
        let stamp = Stamp {
            run: RUN,
            flow: 7 << FLOW_BITS | 3,
            number: 0xffff_fffe,
            time: 12345,
        };
        let bytes = stamp.bytes(60);
        assert_eq!(Stamp::parse(&bytes, 60), Some(stamp));
        assert_eq!(Stamp::parse(&bytes, 61), None);
        for bit in 0..LEN * 8 {
            let mut changed = bytes;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Stamp::parse(&changed, 60), None, "bit {bit}");
        }
    }

    #[test]
    fn a_payload_is_the_same_read_in_any_pieces() {
        let mut whole = [0; 100];
        fill(42, 0, &mut whole);
        for start in 0..100 {
            for end in start..=100 {
                let mut part = vec![0; end - start];
                fill(42, start as u64, &mut part);
                assert_eq!(part, whole[start..end]);
                assert!(holds(42, start as u64, &part));
                if let Some(last) = part.last_mut() {
                    *last ^= 0x10;
                    assert!(!holds(42, start as u64, &part));
                }
            }
        }
        assert!(!holds(43, 0, &whole));
    }

    #[test]
    fn time_goes_round_after_a_minute_and_differences_do_not() {
        let left = (1u64 << 36) - 160;
        assert_eq!(since(time(left), left + 320), 320);
    }
}
