//! What the on-chip switch and the VF itself must know of a VF.

use wire::MacAddr;

use crate::policy::{PortVlan, Storm};

/// The VLANs somebody is a member of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vlans(Box<[u64; 64]>);

impl Default for Vlans {
    fn default() -> Self {
        Vlans(Box::new([0; 64]))
    }
}

impl Vlans {
    /// Whether `id` (12 bits) is one of them.
    pub fn contains(&self, id: u16) -> bool {
        self.0[usize::from(id & 0xfff) / 64] >> (id % 64) & 1 != 0
    }

    /// Adds or removes one.
    pub(crate) fn set(&mut self, id: u16, on: bool) {
        let (word, bit) = (&mut self.0[usize::from(id & 0xfff) / 64], 1 << (id % 64));
        *word = if on { *word | bit } else { *word & !bit };
    }

    /// All of them, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u16> {
        (0..4096).filter(|id| self.contains(*id))
    }
}

/// Which groups' frames a VF gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Groups {
    /// All (VMOLR.MPME).
    All,
    /// Those whose address has one of these hashes of 12 bits (VMOLR.ROMPE and the MTA).
    Hashes(Vec<u16>),
}

/// The rules of one VF, as they are now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// It may send and receive (VFTE, VFRE).
    pub enabled: bool,
    /// Its link is up.
    pub link: bool,
    /// The addresses whose frames it gets, and from which it may send (RAL, RAH).
    pub macs: Vec<MacAddr>,
    /// It gets frames for everybody (VMOLR.BAM).
    pub broadcast: bool,
    /// The groups it gets.
    pub groups: Groups,
    /// It gets frames without a tag (VMOLR.AUPE).
    pub untagged: bool,
    /// The VLANs whose tagged frames it gets (VLVF).
    pub vlans: Vlans,
    /// Put into all it sends, and taken off what it gets (VMVIR).
    pub tag: Option<PortVlan>,
    /// Longest frame it gets, in bytes with FCS and without tag (VMOLR.RLPML).
    pub max_frame: u16,
    /// Frames from other addresses, or of other VLANs, than its own do not leave it (DTXSWC).
    pub spoof_check: bool,
    /// Most it may send, in bits a second.
    pub tx_rate: Option<u64>,
    /// Most it may send to all or to groups.
    pub storm: Storm,
    /// Most interrupts a second.
    pub interrupts: Option<u32>,
}
