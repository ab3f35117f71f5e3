//! Which VLANs a port is a member of.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;
use wire::Offload;

const LAST: u16 = 4094;

/// A set of VLANs, and whether frames without one belong to it.
#[derive(Clone, PartialEq, Eq)]
pub struct VlanSet {
    untagged: bool,
    members: Box<[u64; 64]>,
}

/// Why a text names no set of VLANs.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("bad VLAN \"{0}\": write untagged, a number from 1 to 4094, or a range such as 10-19")]
pub struct BadVlan(String);

impl VlanSet {
    /// The empty set: nothing passes.
    pub fn none() -> VlanSet {
        VlanSet {
            untagged: false,
            members: Box::new([0; 64]),
        }
    }

    /// Adds frames without a VLAN. Those tagged with VLAN 0 have only a priority (IEEE 802.1Q
    /// §6.9) and count as such.
    pub fn with_untagged(mut self) -> VlanSet {
        self.untagged = true;
        self
    }

    /// Adds a VLAN; numbers beyond 4094 are none.
    pub fn with(mut self, vlan: u16) -> VlanSet {
        if (1..=LAST).contains(&vlan) {
            self.members[usize::from(vlan / 64)] |= 1 << (vlan % 64);
        }
        self
    }

    /// Whether frames of this VLAN (0: without one) belong to it.
    pub fn contains(&self, vlan: u16) -> bool {
        match vlan & 0xfff {
            0 => self.untagged,
            vlan => self.members[usize::from(vlan / 64)] & 1 << (vlan % 64) != 0,
        }
    }
}

/// The VLAN of a frame that begins with `head`: of the tag beside it, or of the outermost one in it
/// (customer or service tag), or 0.
pub(crate) fn vlan_of(head: &[u8], notes: &Offload) -> u16 {
    if let Some(tci) = notes.vlan {
        return tci & 0xfff;
    }
    match head {
        [_, _, _, _, _, _, _, _, _, _, _, _, 0x81, 0x00, hi, lo, ..]
        | [_, _, _, _, _, _, _, _, _, _, _, _, 0x88, 0xa8, hi, lo, ..] => {
            u16::from_be_bytes([*hi, *lo]) & 0xfff
        }
        _ => 0,
    }
}

impl FromStr for VlanSet {
    type Err = BadVlan;

    /// `untagged`, numbers and ranges, with commas between them.
    fn from_str(text: &str) -> Result<VlanSet, BadVlan> {
        let mut set = VlanSet::none();
        for part in text.split(',').map(str::trim) {
            let bad = || BadVlan(part.to_owned());
            if part == "untagged" {
                set.untagged = true;
                continue;
            }
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: u16 = first.trim().parse().map_err(|_| bad())?;
            let last: u16 = last.trim().parse().map_err(|_| bad())?;
            if first == 0 || last > LAST || first > last {
                return Err(bad());
            }
            set = (first..=last).fold(set, VlanSet::with);
        }
        Ok(set)
    }
}

impl fmt::Display for VlanSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        if self.untagged {
            f.write_str("untagged")?;
            comma = ",";
        }
        let mut vlan = 1;
        while vlan <= LAST {
            if !self.contains(vlan) {
                vlan += 1;
                continue;
            }
            let first = vlan;
            while vlan < LAST && self.contains(vlan + 1) {
                vlan += 1;
            }
            write!(f, "{comma}{first}")?;
            if vlan > first {
                write!(f, "-{vlan}")?;
            }
            comma = ",";
            vlan += 1;
        }
        Ok(())
    }
}

impl fmt::Debug for VlanSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VlanSet({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sets_are_read_and_written() {
        for (text, back) in [
            ("untagged", "untagged"),
            ("untagged, 10,20-29", "untagged,10,20-29"),
            ("1-4094", "1-4094"),
            ("5,4,3,9", "3-5,9"),
        ] {
            let set: VlanSet = text.parse().expect(text);
            assert_eq!(set.to_string(), back);
        }
        for bad in ["", "0", "4095", "7-3", "x", "10,", "-3", "untaged"] {
            bad.parse::<VlanSet>().expect_err(bad);
        }
    }

    #[test]
    fn a_frame_is_of_the_vlan_of_its_outermost_tag() {
        let mut head = [0u8; 18];
        let beside = |vlan| Offload {
            vlan: Some(vlan),
            ..Offload::NONE
        };
        assert_eq!(vlan_of(&head, &Offload::NONE), 0);
        assert_eq!(vlan_of(&head, &beside(0x6005)), 5);
        for kind in [[0x81, 0x00], [0x88, 0xa8]] {
            head[12..14].copy_from_slice(&kind);
            head[14..16].copy_from_slice(&[0xe1, 0x02]);
            assert_eq!(vlan_of(&head, &Offload::NONE), 0x102);
            assert_eq!(vlan_of(&head, &beside(7)), 7);
            assert_eq!(vlan_of(&head[..15], &Offload::NONE), 0);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(vlans in proptest::collection::vec(1..=LAST, 1..40)) {
            let set = vlans.iter().fold(VlanSet::none(), |set, vlan| set.with(*vlan));
            prop_assert!(vlans.iter().all(|vlan| set.contains(*vlan)));
            prop_assert_eq!(set.to_string().parse::<VlanSet>().expect("read"), set);
        }
    }
}
