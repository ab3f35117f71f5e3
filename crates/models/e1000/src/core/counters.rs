//! Counters by name, for people; the guest's statistics registers are apart from them.

datapath::counters! {
    all of intel::Counters;
    /// Frames that waited in the packet FIFO because no receive descriptor was free.
    rx_no_buffer,
    /// Frames that waited there for the guest's sake: it is to have time for those it has.
    rx_rationed,
    /// Buffers that a sender filled under a lease, without the lock: others were at this NIC, too.
    rx_leased,
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
