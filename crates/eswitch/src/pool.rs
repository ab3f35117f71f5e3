//! What one function receives and may send.

use wire::MacAddr;

use crate::vlans::VlanSet;

/// A set of hashes of 12 bits, as the chip's tables of 4096 bits hold them (MTA, UTA).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashSet12 {
    words: Box<[u64; 64]>,
    /// How far the address is shifted for its hash.
    shift: u8,
}

impl HashSet12 {
    /// Of these hashes; more than 12 bits of one are not looked at.
    pub fn of(hashes: impl IntoIterator<Item = u16>) -> HashSet12 {
        let mut words = Box::new([0; 64]);
        for hash in hashes {
            words[usize::from(hash & 0xfff) / 64] |= 1u64 << (hash % 64);
        }
        HashSet12 { words, shift: 4 }
    }

    /// Of a table as the chip has it, 32 hashes in a word; `offset` (RCTL.MO, 0 to 3) chooses the bits
    /// of the address.
    pub fn of_table(table: &[u32; 128], offset: u8) -> HashSet12 {
        let pairs = table.as_chunks::<2>().0;
        let word = |n: usize| u64::from(pairs[n][0]) | u64::from(pairs[n][1]) << 32;
        HashSet12 {
            words: Box::new(std::array::from_fn(word)),
            shift: [4, 3, 2, 0][usize::from(offset & 3)],
        }
    }

    /// The hash that Linux's drivers and the chip after its reset use: bits 47 to 36 of the address
    /// (RCTL.MO = 0).
    pub fn hash(mac: MacAddr) -> u16 {
        Self::shifted(mac, 4)
    }

    fn shifted(mac: MacAddr, shift: u8) -> u16 {
        let [.., e, f] = mac.0;
        u16::from_be_bytes([f, e]) >> shift & 0xfff
    }

    /// Whether the hash of an address is in the set.
    pub fn has(&self, mac: MacAddr) -> bool {
        let hash = Self::shifted(mac, self.shift);
        self.words[usize::from(hash) / 64] >> (hash % 64) & 1 != 0
    }

    /// Number of hashes in the set.
    pub fn count(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }
}

/// Which of many addresses a pool gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AddressFilter {
    /// None.
    #[default]
    None,
    /// Those with one of these hashes.
    Hashes(HashSet12),
    /// All.
    All,
}

impl AddressFilter {
    /// Whether an address passes.
    pub fn has(&self, mac: MacAddr) -> bool {
        match self {
            AddressFilter::None => false,
            AddressFilter::Hashes(set) => set.has(mac),
            AddressFilter::All => true,
        }
    }
}

/// What a function of a chip receives, and what it may send (82576 datasheet §7.10.3.3 to §7.10.3.8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// It is there, and its stations are its own: where it does not receive, what is for them ends
    /// here. A pool that is not there neither receives nor sends.
    pub enabled: bool,
    /// It receives (VFRE, RCTL.RXEN).
    pub receives: bool,
    /// It sends (VFTE, TCTL.EN).
    pub sends: bool,
    /// Its stations (RAL, RAH.POOLSEL).
    pub macs: Vec<MacAddr>,
    /// It gets broadcasts (VMOLR.BAM).
    pub broadcast: bool,
    /// The groups it gets (VMOLR.ROMPE with the MTA, VMOLR.MPME).
    pub groups: AddressFilter,
    /// The stations it gets besides its own, which are on the wire all the same (VMOLR.ROPE with
    /// the UTA).
    pub stations: AddressFilter,
    /// VLANs are filtered (RCTL.VFE). If not, it gets all of them.
    pub filters_vlans: bool,
    /// Its VLANs, and whether frames without a tag are its own (VLVF, VMOLR.AUPE).
    pub vlans: VlanSet,
    /// It sends from its own stations only (DTXSWC, MAC anti-spoofing).
    pub check_mac: bool,
    /// It sends into its own VLANs only (DTXSWC, VLAN anti-spoofing).
    pub check_vlan: bool,
    /// All it sends has a tag of this VLAN (VMVIR).
    pub only_vlan: Option<u16>,
    /// What it sends goes to the wire alone, also what is for another pool (DTXSWC, loopback off).
    pub outward: bool,
    /// It gets what comes from the wire for no other pool, whatever its VLANs are (VT_CTL.DEF_PL).
    pub default: bool,
    /// It gets what it has sent itself and is for it (DTXSWC.LLE).
    pub own: bool,
}

impl Default for Pool {
    /// Of no pool: it neither sends nor receives.
    fn default() -> Pool {
        Pool {
            enabled: false,
            receives: false,
            sends: false,
            macs: Vec::new(),
            broadcast: false,
            groups: AddressFilter::None,
            stations: AddressFilter::None,
            filters_vlans: true,
            vlans: VlanSet::none(),
            check_mac: true,
            check_vlan: true,
            only_vlan: None,
            outward: false,
            default: false,
            own: false,
        }
    }
}

impl Pool {
    /// Whether it gets frames of this VLAN (0: without a tag), so far as VLANs go.
    #[inline]
    pub fn in_vlan(&self, vlan: u16) -> bool {
        !self.filters_vlans || self.vlans.contains(vlan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_and_a_list_of_hashes_mean_the_same() {
        let mac = MacAddr([0x01, 0, 0x5e, 0, 0x12, 0x34]);
        let hash = HashSet12::hash(mac);
        assert_eq!(hash, 0x341);
        let mut table = [0; 128];
        table[usize::from(hash / 32)] = 1 << (hash % 32);
        let set = HashSet12::of_table(&table, 0);
        assert_eq!(set, HashSet12::of([hash, hash | 0x1000]));
        assert!(set.has(mac) && set.count() == 1);
        // Another offset looks at other bits.
        let other = HashSet12::of_table(&table, 3);
        assert!(!other.has(mac) && other != set);
        assert!(AddressFilter::All.has(mac) && !AddressFilter::None.has(mac));
        assert!(AddressFilter::Hashes(set).has(mac));
    }
}
