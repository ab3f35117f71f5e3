//! Ethernet addresses.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A 48-bit Ethernet address (IEEE 802-2014 §8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// All stations: `ff:ff:ff:ff:ff:ff`.
    pub const BROADCAST: MacAddr = MacAddr([0xff; 6]);
    /// No station: `00:00:00:00:00:00`.
    pub const ZERO: MacAddr = MacAddr([0; 6]);

    /// The first six bytes of `bytes`; `None` when there are fewer.
    pub fn from_prefix(bytes: &[u8]) -> Option<MacAddr> {
        bytes.first_chunk().map(|six| MacAddr(*six))
    }

    /// Its bytes in the order of transmission.
    pub const fn as_bytes(&self) -> &[u8; 6] {
        &self.0
    }

    /// The address as the low 48 bits of a number, first byte on the wire highest.
    pub const fn to_u64(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }

    /// The address whose [`MacAddr::to_u64`] is the low 48 bits of `value`.
    pub const fn from_u64(value: u64) -> MacAddr {
        let [_, _, a, b, c, d, e, f] = value.to_be_bytes();
        MacAddr([a, b, c, d, e, f])
    }

    /// Whether it names a group of stations; broadcast is one of them.
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether it names every station.
    pub const fn is_broadcast(self) -> bool {
        self.to_u64() == Self::BROADCAST.to_u64()
    }

    /// Whether it may be the address of one station: neither a group nor zero.
    pub const fn is_unicast(self) -> bool {
        !self.is_multicast() && self.to_u64() != 0
    }

    /// Whether it was given out locally rather than by a manufacturer.
    pub const fn is_local(self) -> bool {
        self.0[0] & 2 != 0
    }

    /// Whether it is one of `01-80-C2-00-00-00` to `-0F`, which no bridge forwards
    /// (IEEE 802.1Q-2018 §8.6.3, table 8-1).
    pub const fn is_bridge_reserved(self) -> bool {
        self.to_u64() & !0xf == 0x0180_c200_0000
    }
}

impl From<[u8; 6]> for MacAddr {
    fn from(bytes: [u8; 6]) -> Self {
        MacAddr(bytes)
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Text that is no Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("an Ethernet address is six pairs of hex digits such as 52:54:00:12:34:56")]
pub struct MacParseError;

impl FromStr for MacAddr {
    type Err = MacParseError;

    /// Reads `52:54:00:12:34:56` or `52-54-00-12-34-56`, either case, one separator throughout.
    fn from_str(text: &str) -> Result<Self, MacParseError> {
        let separator = match text.as_bytes().get(2) {
            Some(b':') => ':',
            Some(b'-') => '-',
            _ => return Err(MacParseError),
        };
        let mut bytes = [0; 6];
        let mut parts = text.split(separator);
        for byte in &mut bytes {
            let part = parts.next().ok_or(MacParseError)?;
            // from_str_radix alone would take "+1".
            if part.len() != 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(MacParseError);
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| MacParseError)?;
        }
        match parts.next() {
            None => Ok(MacAddr(bytes)),
            Some(_) => Err(MacParseError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_the_usual_spellings_only() {
        let want = MacAddr([0x52, 0x54, 0, 0x12, 0xab, 0xff]);
        assert_eq!("52:54:00:12:ab:ff".parse(), Ok(want));
        assert_eq!("52-54-00-12-AB-FF".parse(), Ok(want));
        for bad in [
            "",
            "52",
            "52:54:00:12:ab",
            "52:54:00:12:ab:ff:00",
            "52:54:00:12:ab-ff",
            "52:54:00:12:ab:+f",
            "5254.0012.abff",
            "52:54:0:12:ab:ff",
            "52:54:00:12:ab:fé",
            "é2:54:00:12:ab:ff",
        ] {
            assert_eq!(bad.parse::<MacAddr>(), Err(MacParseError), "{bad}");
        }
    }

    #[test]
    fn kinds_of_address() {
        assert!(MacAddr::BROADCAST.is_broadcast() && MacAddr::BROADCAST.is_multicast());
        assert!(!MacAddr::ZERO.is_unicast());
        assert!(MacAddr([0x52, 0, 0, 0, 0, 1]).is_unicast());
        assert!(MacAddr([0x52, 0, 0, 0, 0, 1]).is_local());
        assert!(MacAddr([1, 0x80, 0xc2, 0, 0, 0]).is_bridge_reserved());
        assert!(MacAddr([1, 0x80, 0xc2, 0, 0, 0xf]).is_bridge_reserved());
        assert!(!MacAddr([1, 0x80, 0xc2, 0, 0, 0x10]).is_bridge_reserved());
        assert!(!MacAddr([1, 0x80, 0xc2, 0, 1, 0]).is_bridge_reserved());
    }

    proptest! {
        #[test]
        fn text_and_number_lead_back(bytes: [u8; 6]) {
            let mac = MacAddr(bytes);
            prop_assert_eq!(mac.to_string().parse(), Ok(mac));
            prop_assert_eq!(MacAddr::from_u64(mac.to_u64()), mac);
            prop_assert_eq!(MacAddr::from(*mac.as_bytes()), mac);
        }

        #[test]
        fn a_prefix_is_an_address_if_it_is_long_enough(bytes in prop::collection::vec(any::<u8>(), 0..20)) {
            let want = bytes.get(..6).map(|six| six.to_vec());
            let got = MacAddr::from_prefix(&bytes).map(|mac| mac.as_bytes().to_vec());
            prop_assert_eq!(got, want);
        }

        #[test]
        fn any_text_is_read_or_refused(text: String) {
            let _ = text.parse::<MacAddr>();
        }
    }
}
