//! Counters by name, for people; the guest's statistics registers are apart from them.

datapath::counters! {
    /// Frames the sink took, each segment for itself where we segmented.
    tx_frames,
    tx_bytes,
    /// Packets with segmentation offload.
    tx_tso_frames,
    rx_frames,
    rx_bytes,
    reg_reads,
    reg_writes,
    tx_doorbells,
    rx_doorbells,
    /// Transmit descriptors read from guest memory.
    tx_desc_fetched,
    /// Receive descriptors read from guest memory.
    rx_desc_fetched,
    /// Frames that waited in the packet FIFO because no receive descriptor was free.
    rx_no_buffer,
    /// Frames that waited there for the guest's sake: it is to have time for those it has.
    rx_rationed,
    /// Times the packet FIFO was full too and a sender had to keep its frames.
    rx_back_pressure,
    /// Frames lost because the packet FIFO was full.
    rx_missed,
    /// Frames for others.
    rx_filtered,
    /// Frames longer than RCTL allows.
    rx_oversize,
    /// Frames shorter than an Ethernet header.
    rx_runt,
    /// Frames that came while the receiver was off, the link down or bus mastering disabled.
    rx_disabled,
    /// Frames that came while RDLEN, RDH or RDT described no ring.
    rx_bad_ring,
    /// Frames with offload notes that contradict them.
    rx_bad_offload,
    /// Frames that need more descriptors than the ring can ever hold.
    rx_too_large,
    /// Frames lost because a descriptor or buffer was not in reach.
    rx_dma_fault,
    /// Times TDLEN, TDH or TDT described no ring.
    tx_bad_ring,
    /// Packets or ring walks lost because a descriptor or buffer was not in reach.
    tx_dma_fault,
    /// Packets beyond the size the chip can send.
    tx_too_long,
    /// Packets of more descriptors than any driver uses, or a ring full without an end.
    tx_too_many_descs,
    /// Packets too short for an Ethernet header.
    tx_runt,
    /// Segmentation without header length, MSS or payload, or into too many frames.
    tx_bad_tso,
    /// Checksum insertion outside of the packet; it is sent without.
    tx_bad_checksum,
    /// Descriptors of an unknown type; skipped.
    tx_bad_desc,
    /// Times a wake-up filter matched and PME was asserted.
    wake_ups,
    /// Accesses to other BARs than the two there are.
    reg_bad_bar,
    /// Writes of TDT and RDT while the guest uses a CSB: its calls.
    csb_kicks,
    /// Calls of the transmitter with a CSB, those of them that found nothing new, and times it fell
    /// asleep after them.
    csb_tx_rounds,
    csb_tx_polls,
    csb_tx_sleeps,
    /// Times the receiver ran out of buffers and asked to be called.
    csb_rx_sleeps,
    /// Tails in a CSB that lay outside of their ring; ignored.
    csb_bad_tail,
    /// CSBs given up because their page was not in reach, or not aligned.
    csb_unmapped,
}
