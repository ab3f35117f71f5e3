//! What happened, by name.

datapath::counters! {
    /// Frames sent.
    tx_frames,
    /// Their bytes.
    tx_bytes,
    /// Packets of them that were to be segmented.
    tx_tso_frames,
    /// Times that TPPoll asked to send.
    tx_doorbells,
    /// Times that TPPoll asked for the ring of high priority, which there is not.
    tx_high_priority,
    /// Packets without room for an Ethernet header.
    tx_runt,
    /// Packets longer than the chip sends.
    tx_too_long,
    /// Packets whose descriptors do not begin with FS, or begin twice.
    tx_bad_chain,
    /// Times that all of a ring was one packet without an end.
    tx_endless,
    /// Packets that ask for a checksum that their headers have no place for. They were sent without.
    tx_bad_csum,
    /// Packets that ask for a segmentation that cannot be.
    tx_bad_gso,
    /// Packets, or rings, that are not in memory.
    tx_dma_fault,
    /// Frames that the sink could not finish.
    tx_unfinished,
    /// Frames received.
    rx_frames,
    /// Their bytes.
    rx_bytes,
    /// Frames the filter refused.
    rx_filtered,
    /// Frames that came while the receiver was off.
    rx_disabled,
    /// Times a sender found too few descriptors.
    rx_back_pressure,
    /// Frames that came while another sender held the ring for more than 2 ms.
    rx_held_up,
    /// Frames longer than RMS, or than a whole ring.
    rx_too_long,
    /// Descriptors whose buffer has no bytes.
    rx_empty_buffer,
    /// Frames whose notes contradict them.
    rx_invalid,
    /// Frames that were given up by their sender for want of a descriptor.
    rx_missed,
    /// Buffers, or rings, that are not in memory.
    rx_dma_fault,
    /// Looks at the ring because frames waited.
    rx_looks,
    /// Writes of TPPoll and RXKICK while the guest uses a CSB.
    csb_kicks,
    /// Runs of the transmitter that looked into a CSB.
    csb_tx_rounds,
    /// Those of them that found nothing.
    csb_tx_polls,
    /// Times that the transmitter fell asleep and asked for a call.
    csb_tx_sleeps,
    /// Times that the receiver ran out of descriptors and asked for a call.
    csb_rx_sleeps,
    /// Places in a CSB that are in no ring.
    csb_bad_tail,
    /// CSBs that were given up because their page is not in memory, or not aligned.
    csb_unmapped,
    /// Times that a frame or the link woke the guest.
    wake_ups,
    /// Times that interrupts were signalled.
    interrupts,
    /// Statistics written to memory.
    stats_dumps,
    /// Statistics that could not be written.
    stats_dma_fault,
    /// Writes to locked registers.
    locked_writes,
    /// Commands to change the EEPROM.
    eeprom_writes_refused,
    /// Resets by the driver.
    device_resets,
}
