//! What holds for all queues of a function, whoever has decided it.

/// Read once per call of the data path, never in the midst of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// The receiver as a whole: RCTL.RXEN; of a VF its bit of VFRE.
    pub rx_on: bool,
    /// The transmitter as a whole: TCTL.EN; of a VF its bit of VFTE.
    pub tx_on: bool,
    /// Longest frame received, FCS included and tags of up to four bytes not counted (§7.1.1.4).
    pub max_len: usize,
    /// No FCS goes into the buffers: RCTL.SECRC; of a VF RPLOLR or VMOLR.STRCRC.
    pub strip_crc: bool,
    /// Tags are taken out of received frames and reported beside them: CTRL.VME; of a VF
    /// VMOLR.STRVLAN.
    pub strip_vlan: bool,
    /// Tags are put into sent frames where descriptors ask for it: CTRL.VME.
    pub insert_vlan: bool,
    /// The type that makes a tag (VET).
    pub vet: u16,
    /// RXCSUM.
    pub rxcsum: u32,
    /// Bytes of a buffer where SRRCTL does not say: RCTL.BSIZE.
    pub buffer: usize,
    /// Short frames are padded on their way out (TCTL.PSP).
    pub pad: bool,
    /// Frames of bad length are received too (RCTL.SBP).
    pub store_bad: bool,
}

impl Rules {
    /// Those of a VF that nobody has allowed anything yet.
    pub(crate) const VF: Rules = Rules {
        rx_on: false,
        tx_on: false,
        max_len: 1518,
        strip_crc: true,
        strip_vlan: true,
        insert_vlan: true,
        vet: 0x8100,
        rxcsum: 0x300,
        buffer: 2048,
        pad: true,
        store_bad: false,
    };
}
