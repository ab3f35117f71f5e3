//! The settings of all queues of a function, from its own registers or from its PF.

use regs::File;
use wire::VLAN_TAG;

use crate::regs as r;
use crate::regs::bits::{ctrl, rctl, rlpml, rxcsum, tctl};

/// Longest frame where none longer are asked for, FCS included, tags not.
const STANDARD: usize = 1518;

/// What is taken out of received frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Strips {
    pub crc: bool,
    pub vlan: bool,
}

/// The settings of all queues of a function. Read once per call of the data path, never in the midst of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
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
    /// A PF has several pools, or no VFs: the pools of a frame are still to be found.
    pub several: bool,
}

impl Settings {
    /// Longest frame the chip receives at all, FCS included (§7.1.1.4).
    pub(crate) const LONGEST: usize = 9728;

    /// Those of a VF before its PF grants anything. What a VF cannot choose itself is as Linux's PF driver
    /// sets it.
    pub(crate) const VF: Settings = Settings {
        rx_on: false,
        tx_on: false,
        max_len: STANDARD,
        max_tagged: STANDARD + VLAN_TAG,
        strip_crc: true,
        strip_vlan: true,
        replicas: None,
        insert_vlan: true,
        vet: 0x8100,
        rxcsum: rxcsum::IPOFL | rxcsum::TUOFL | rxcsum::CRCOFL | rxcsum::PCSD,
        rfctl: 0,
        buffer: 2048,
        pad: true,
        store_bad: false,
        tag: None,
        drop: 0,
        pools: None,
        several: false,
    };

    /// Those of a port without pools.
    pub(crate) fn of_port(file: &File) -> Settings {
        let (ctrl, rctl, tctl) = (file.get(r::CTRL), file.get(r::RCTL), file.get(r::TCTL));
        let vme = ctrl & ctrl::VME != 0;
        let long = rctl & rctl::LPE != 0;
        let (max_len, max_tagged) = if long {
            let most = Self::LONGEST.min((file.get(r::RLPML) & rlpml::LENGTH) as usize);
            (most, most)
        } else {
            (STANDARD, STANDARD + VLAN_TAG)
        };
        Settings {
            rx_on: rctl & rctl::EN != 0,
            tx_on: tctl & tctl::EN != 0,
            max_len,
            max_tagged,
            strip_crc: rctl & rctl::SECRC != 0,
            strip_vlan: vme,
            replicas: None,
            insert_vlan: vme,
            vet: file.get(r::VET) as u16,
            rxcsum: file.get(r::RXCSUM),
            rfctl: file.get(r::RFCTL),
            buffer: [2048, 1024, 512, 256][(rctl >> rctl::BSIZE_SHIFT & rctl::BSIZE) as usize],
            pad: tctl & tctl::PSP != 0,
            store_bad: rctl & rctl::SBP != 0,
            tag: None,
            drop: file.get(r::QDE) as u16,
            pools: None,
            several: false,
        }
    }

    /// Those for a group frame (RPLOLR).
    pub(crate) fn of_replicas(&self) -> Settings {
        let strips = self.replicas.unwrap_or(Strips {
            crc: self.strip_crc,
            vlan: self.strip_vlan,
        });
        Settings {
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

/// The settings of a VF's queues beside what is granted: those that a PF's registers have and a software
/// PF lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VfSettings {
    /// VFRE.
    pub receives: bool,
    /// VFTE.
    pub sends: bool,
    /// VMOLR.STRVLAN.
    pub strip_vlan: bool,
    /// VMOLR.STRCRC.
    pub strip_crc: bool,
    /// The same of what is for many (RPLOLR).
    pub replicas: Option<Strips>,
    /// It may put in tags (VMVIR).
    pub insert_vlan: bool,
    /// Its queues, bit by bit, that drop what finds no descriptor (QDE).
    pub drop: u16,
    /// The speed of the port's link, Mbit/s.
    pub mbps: u32,
    /// RXCSUM.
    pub rxcsum: u32,
    /// RFCTL.
    pub rfctl: u32,
    /// Bytes of a buffer where SRRCTL does not say (RCTL.BSIZE).
    pub buffer: usize,
    /// Short frames are padded on their way out (TCTL.PSP).
    pub pad: bool,
}

impl Default for VfSettings {
    /// As Linux's PF driver sets them.
    fn default() -> VfSettings {
        VfSettings {
            receives: true,
            sends: true,
            strip_vlan: true,
            strip_crc: true,
            replicas: None,
            insert_vlan: true,
            drop: 0,
            mbps: 1000,
            rxcsum: Settings::VF.rxcsum,
            rfctl: Settings::VF.rfctl,
            buffer: Settings::VF.buffer,
            pad: Settings::VF.pad,
        }
    }
}
