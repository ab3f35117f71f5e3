//! What every one of these NICs counts by name, for people.

// What the NIC's own thread counts for a run is in the first cache line, what senders count in it is in the second.
datapath::counters! {
    /// Frames the sink took, each segment for itself where we segmented.
    tx_frames,
    /// Their bytes, as the guest gave them.
    tx_bytes,
    /// Transmit descriptors read from guest memory.
    tx_desc_fetched,
    /// Writes of TDT.
    tx_doorbells,
    /// Writes of RDT.
    rx_doorbells,
    /// Register writes of the guest.
    reg_writes,
    /// Register reads of the guest.
    reg_reads,
    /// Packets with segmentation offload.
    tx_tso_frames,
    /// Frames put into receive buffers.
    rx_frames,
    /// Their bytes.
    rx_bytes,
    /// Receive descriptors read from guest memory.
    rx_desc_fetched,
    /// Times a sender had to keep its frames because there was no room for them.
    rx_back_pressure,
    /// Frames that came while another sender held the receive side for more than 2 ms.
    rx_held_up,
    /// Frames lost because there was no room for them.
    rx_missed,
    /// Frames for others.
    rx_filtered,
    /// Frames longer than allowed.
    rx_oversize,
    /// Frames shorter than an Ethernet header.
    rx_runt,
    /// Frames that came while the receiver (or the queue) was off, the link down or bus mastering disabled.
    rx_disabled,
    /// Frames that came while RDLEN, RDH or RDT described no ring.
    rx_bad_ring,
    /// Frames with offload notes that contradict them.
    rx_bad_offload,
    /// Frames that need more descriptors than the ring can ever hold, or whose buffers are null.
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
    /// Accesses to other BARs than there are.
    reg_bad_bar,
}
