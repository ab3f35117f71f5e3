//! What holds for all queues of a function, whoever has decided it.

use regs::File;
use wire::VLAN_TAG;

use crate::regs as r;
use crate::regs::pools::{self, vmolr};

/// Bits of the registers of a PF (§8.2, §8.10, §8.11).
pub(crate) mod bits {
    pub const CTRL_VME: u32 = 1 << 30;
    pub const TCTL_EN: u32 = 1 << 1;
    pub const TCTL_PSP: u32 = 1 << 3;

    pub mod rctl {
        pub const EN: u32 = 1 << 1;
        pub const SBP: u32 = 1 << 2;
        pub const UPE: u32 = 1 << 3;
        pub const MPE: u32 = 1 << 4;
        pub const LPE: u32 = 1 << 5;
        pub const MO_SHIFT: u32 = 12;
        pub const BAM: u32 = 1 << 15;
        pub const BSIZE_SHIFT: u32 = 16;
        pub const VFE: u32 = 1 << 18;
        pub const CFIEN: u32 = 1 << 19;
        pub const CFI: u32 = 1 << 20;
        pub const SECRC: u32 = 1 << 26;
    }

    pub mod rxcsum {
        pub const PCSS: u32 = 0xff;
        pub const IPOFL: u32 = 1 << 8;
        pub const TUOFL: u32 = 1 << 9;
        pub const CRCOFL: u32 = 1 << 11;
        pub const IPPCSE: u32 = 1 << 12;
        pub const PCSD: u32 = 1 << 13;
    }

    pub mod rfctl {
        pub const IPV6_DIS: u32 = 1 << 10;
        pub const IPV6_XSUM_DIS: u32 = 1 << 11;
        /// Fragments are not split.
        pub const IPFRSP_DIS: u32 = 1 << 14;
        /// SYN packets have their queue before other filters are looked at.
        pub const SYNQFP: u32 = 1 << 19;
    }
}

/// Longest frame where none longer are asked for, FCS included, tags not.
const STANDARD: usize = 1518;
/// What is taken out of received frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Strips {
    pub crc: bool,
    pub vlan: bool,
}

/// Read once per call of the data path, never in the midst of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// The receiver as a whole: RCTL.RXEN; of a VF its bit of VFRE.
    pub rx_on: bool,
    /// The transmitter as a whole: TCTL.EN; of a VF its bit of VFTE.
    pub tx_on: bool,
    /// Longest frame received, FCS included (§7.1.1.4).
    pub max_len: usize,
    /// The same of a frame with a tag, which RLPML counts as well and the standard length does not.
    pub max_tagged: usize,
    /// No FCS goes into the buffers: RCTL.SECRC; of a VF RPLOLR or VMOLR.STRCRC.
    pub strip_crc: bool,
    /// Tags are taken out of received frames and reported beside them: CTRL.VME; of a VF
    /// VMOLR.STRVLAN.
    pub strip_vlan: bool,
    /// The same of frames for many, whatever the two above say of others (RPLOLR). `None`: they are
    /// as others are.
    pub replicas: Option<Strips>,
    /// Tags are put into sent frames where descriptors ask for it: CTRL.VME.
    pub insert_vlan: bool,
    /// The type that makes a tag (VET).
    pub vet: u16,
    /// RXCSUM.
    pub rxcsum: u32,
    /// RFCTL.
    pub rfctl: u32,
    /// Bytes of a buffer where SRRCTL does not say: RCTL.BSIZE.
    pub buffer: usize,
    /// Short frames are padded on their way out (TCTL.PSP).
    pub pad: bool,
    /// Frames of bad length are received too (RCTL.SBP).
    pub store_bad: bool,
    /// Tag put into all that is sent, whatever descriptors ask for (VMVIR). Of a PF it is each queue's.
    pub tag: Option<u16>,
    /// Queues, bit by bit, that drop what finds no descriptor, whatever SRRCTL says (QDE).
    pub drop: u16,
    /// The first pool of a PF that has pools beside those of its VFs: what comes has passed their
    /// filters, at the switch, and is for a queue of a pool.
    pub pools: Option<u32>,
    /// A PF has several pools, or no VFs: nobody has looked yet for which of its pools a frame is.
    pub several: bool,
}

impl Rules {
    /// Longest frame the chip receives at all, FCS included (§7.1.1.4).
    pub(crate) const LONGEST: usize = 9728;

    /// Those of a VF that nobody has allowed anything yet. What a VF cannot choose itself is as
    /// Linux's PF driver has it.
    pub(crate) const VF: Rules = Rules {
        rx_on: false,
        tx_on: false,
        max_len: STANDARD,
        max_tagged: STANDARD + VLAN_TAG,
        strip_crc: true,
        strip_vlan: true,
        replicas: None,
        insert_vlan: true,
        vet: 0x8100,
        rxcsum: bits::rxcsum::IPOFL
            | bits::rxcsum::TUOFL
            | bits::rxcsum::CRCOFL
            | bits::rxcsum::PCSD,
        rfctl: 0,
        buffer: 2048,
        pad: true,
        store_bad: false,
        tag: None,
        drop: 0,
        pools: None,
        several: false,
    };

    /// Those of a PF that rules `vfs` VFs.
    pub(crate) fn of_pf(file: &File, vfs: u32) -> Rules {
        let rules = Self::of_port(file);
        if !pools::are_on(file) {
            return rules;
        }
        if vfs == 0 {
            return Rules {
                several: true,
                ..rules
            };
        }
        let vmolr = file.get_at(r::VMOLR, vfs);
        let (max_len, max_tagged) = pools::lengths(file, vfs);
        Rules {
            max_len,
            max_tagged,
            strip_crc: vmolr & vmolr::STRCRC != 0,
            strip_vlan: vmolr & vmolr::STRVLAN != 0,
            replicas: pools::replicas(file),
            pools: Some(vfs),
            several: pools::are_several(file, vfs),
            ..rules
        }
    }

    /// Those of one queue of a PF that has pools: the tag is its pool's (VMVIR).
    pub(crate) fn of_queue(&self, file: &File, queue: u32) -> Rules {
        if self.pools.is_none() && !self.several {
            return *self;
        }
        let pool = queue % pools::POOLS;
        Rules {
            tag: pools::tag(file, pool),
            insert_vlan: self.insert_vlan && pools::may_tag(file, pool),
            ..*self
        }
    }

    /// The pool of a queue of a PF, if what that sends may be for another one of them (DTXSWC).
    pub(crate) fn looks_inside(&self, file: &File, queue: u32) -> Option<u32> {
        let inside = self.several && pools::reach_others(file);
        inside.then_some(queue % pools::POOLS)
    }

    /// Whether the pool of a queue may send (VFTE). Where there is but one beside VFs the switch sees to
    /// it.
    pub(crate) fn pool_sends(&self, file: &File, queue: u32) -> bool {
        !self.several || file.get(r::VFTE) >> (queue % pools::POOLS) & 1 != 0
    }

    /// Those of a port without pools.
    pub(crate) fn of_port(file: &File) -> Rules {
        let (ctrl, rctl, tctl) = (file.get(r::CTRL), file.get(r::RCTL), file.get(r::TCTL));
        let vme = ctrl & bits::CTRL_VME != 0;
        let long = rctl & bits::rctl::LPE != 0;
        let (max_len, max_tagged) = if long {
            let most = Self::LONGEST.min((file.get(r::RLPML) & 0x3fff) as usize);
            (most, most)
        } else {
            (STANDARD, STANDARD + VLAN_TAG)
        };
        Rules {
            rx_on: rctl & bits::rctl::EN != 0,
            tx_on: tctl & bits::TCTL_EN != 0,
            max_len,
            max_tagged,
            strip_crc: rctl & bits::rctl::SECRC != 0,
            strip_vlan: vme,
            replicas: None,
            insert_vlan: vme,
            vet: file.get(r::VET) as u16,
            rxcsum: file.get(r::RXCSUM),
            rfctl: file.get(r::RFCTL),
            buffer: [2048, 1024, 512, 256][(rctl >> bits::rctl::BSIZE_SHIFT & 3) as usize],
            pad: tctl & bits::TCTL_PSP != 0,
            store_bad: rctl & bits::rctl::SBP != 0,
            tag: None,
            drop: file.get(r::QDE) as u16,
            pools: None,
            several: false,
        }
    }

    /// Those for a frame for many.
    pub(crate) fn of_many(&self) -> Rules {
        let strips = self.replicas.unwrap_or(Strips {
            crc: self.strip_crc,
            vlan: self.strip_vlan,
        });
        Rules {
            strip_crc: strips.crc,
            strip_vlan: strips.vlan,
            ..*self
        }
    }

    /// Whether one of these bits of RXCSUM is set.
    pub(crate) fn sums(&self, bits: u32) -> bool {
        self.rxcsum & bits != 0
    }
}
