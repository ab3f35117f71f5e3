//! Which VLANs a port or a pool is a member of (IEEE 802.1Q).

use std::fmt;
use std::str::FromStr;

use thiserror::Error;
use wire::Offload;

const LAST: u16 = 4094;
/// What [`tag_of`] calls VLAN 0, which is not the same as none.
const TAG_0: u16 = 0x1000;

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
    pub fn with_untagged(self) -> VlanSet {
        self.with_bare().with_tag(0)
    }

    /// Adds frames without any tag, also of VLAN 0: to a chip's filters that is a VLAN as others are.
    pub fn with_bare(mut self) -> VlanSet {
        self.untagged = true;
        self
    }

    /// Adds what has a tag of this VLAN, 0 to 4095.
    pub fn with_tag(mut self, vlan: u16) -> VlanSet {
        let vlan = vlan & 0xfff;
        self.members[usize::from(vlan / 64)] |= 1 << (vlan % 64);
        self
    }

    /// Of a table as the chip has it (VFTA): a bit for each tag, 32 in a word.
    pub fn of_table(table: &[u32; 128]) -> VlanSet {
        let pairs = table.as_chunks::<2>().0;
        let word = |n: usize| u64::from(pairs[n][0]) | u64::from(pairs[n][1]) << 32;
        VlanSet {
            untagged: false,
            members: Box::new(std::array::from_fn(word)),
        }
    }

    /// Adds a VLAN; numbers beyond 4094 are none.
    pub fn with(self, vlan: u16) -> VlanSet {
        match vlan {
            1..=LAST => self.with_tag(vlan),
            _ => self,
        }
    }

    /// Takes a VLAN out; numbers beyond 4094 are none.
    pub fn without(mut self, vlan: u16) -> VlanSet {
        if let 1..=LAST = vlan {
            self.members[usize::from(vlan / 64)] &= !(1 << (vlan % 64));
        }
        self
    }

    /// Its VLANs, 1 to 4094, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u16> {
        (1..=LAST).filter(|vlan| self.contains(*vlan))
    }

    /// Whether frames of this VLAN (0: without one) belong to it. What [`tag_of`] says of a tag of
    /// VLAN 0 is looked up as a tag.
    #[inline]
    pub fn contains(&self, vlan: u16) -> bool {
        match vlan {
            0 => self.untagged,
            vlan => self.members[usize::from(vlan % 0x1000 / 64)] & 1 << (vlan % 64) != 0,
        }
    }
}

/// The VLAN of a frame that begins with `head`: of the tag beside it, or of the outermost one in it
/// (customer or service tag), or 0.
#[inline]
pub fn vlan_of(head: &[u8], notes: &Offload) -> u16 {
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

/// The same as a chip's filters look at it, to which a tag of VLAN 0 is a tag.
#[inline]
pub fn tag_of(head: &[u8], notes: &Offload) -> u16 {
    match vlan_of(head, notes) {
        0 if notes.vlan.is_some() || has_tag(head) => TAG_0,
        vlan => vlan,
    }
}

/// Whether a tag stands where the type is.
fn has_tag(head: &[u8]) -> bool {
    matches!(head.get(12..16), Some([0x81, 0x00, ..] | [0x88, 0xa8, ..]))
}

impl FromStr for VlanSet {
    type Err = BadVlan;

    /// `untagged`, numbers and ranges, with commas between them.
    fn from_str(text: &str) -> Result<VlanSet, BadVlan> {
        let mut set = VlanSet::none();
        for part in text.split(',').map(str::trim) {
            let bad = || BadVlan(part.to_owned());
            if part == "untagged" {
                set = set.with_untagged();
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

    #[test]
    fn a_tag_of_vlan_0_is_none_to_people_and_one_to_a_chip() {
        let mut head = [0u8; 18];
        let beside = |vlan| Offload {
            vlan: Some(vlan),
            ..Offload::NONE
        };
        let bare = VlanSet::none().with_bare();
        let [usual, tagged] = [VlanSet::with_untagged, |set| VlanSet::with_tag(set, 0)]
            .map(|with: fn(VlanSet) -> VlanSet| with(VlanSet::none()));
        let of = |head: &[u8], notes: &Offload| {
            let vlan = tag_of(head, notes);
            [&bare, &usual, &tagged].map(|set| set.contains(vlan))
        };
        assert_eq!(of(&head, &Offload::NONE), [true, true, false]);
        assert_eq!(of(&head, &beside(0xe000)), [false, true, true]);
        assert_eq!(of(&head, &beside(5)), [false; 3]);
        for kind in [[0x81, 0x00], [0x88, 0xa8]] {
            head[12..14].copy_from_slice(&kind);
            assert_eq!(of(&head, &Offload::NONE), [false, true, true]);
            assert_eq!(of(&head[..15], &Offload::NONE), [true, true, false]);
            assert_eq!(vlan_of(&head, &Offload::NONE), 0);
        }
        assert_eq!("untagged".parse::<VlanSet>().expect("read"), usual);
        // Other tags are the same to both.
        assert_eq!(tag_of(&head, &beside(0x6fff)), 4095);
        assert!(tagged.with_tag(4095).contains(4095));
    }

    #[test]
    fn a_table_is_the_set_of_its_tags() {
        let mut table = [0; 128];
        for vlan in [0u16, 7, 63, 64, 4095] {
            table[usize::from(vlan / 32)] |= 1 << (vlan % 32);
        }
        let set = VlanSet::of_table(&table);
        let tags = [0, 7, 63, 64, 4095].into_iter();
        assert_eq!(set, tags.fold(VlanSet::none(), VlanSet::with_tag));
        assert!(set.iter().eq([7, 63, 64]) && !set.contains(0) && set.contains(TAG_0));
        let less = set.without(63).without(0).without(4095);
        assert!(less.iter().eq([7, 64]) && less.contains(TAG_0) && less.contains(4095));
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
