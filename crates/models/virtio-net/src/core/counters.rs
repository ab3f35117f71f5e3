//! What happened, by name.

use datapath::counters::count;

use crate::core::ring::Broken;

datapath::counters! {
    /// Frames sent.
    tx_frames,
    /// Their bytes.
    tx_bytes,
    /// Those that left unsegmented, or were cut here.
    tx_tso_frames,
    /// Frames received.
    rx_frames,
    /// Their bytes.
    rx_bytes,
    /// Those that came unsegmented.
    rx_gso_frames,
    /// Frames the filter refused.
    rx_filtered,
    /// Frames that came while the driver did not receive.
    rx_disabled,
    /// Frames that came while the cable is out.
    rx_no_link,
    /// Times a sender found no buffer.
    rx_back_pressure,
    /// Frames that came while another sender held the receive queues for more than 2 ms.
    rx_held_up,
    /// Frames longer than the driver's buffers.
    rx_too_long,
    /// Frames whose notes contradict them.
    rx_invalid,
    /// Frames that found no buffer and were given up by their sender.
    rx_missed,
    /// Frames that found no buffer in their queue, and did not hold up those of others.
    rx_queue_full,
    /// Packets without room for the header and an Ethernet header.
    tx_runt,
    /// Packets longer than 64 KiB and headers.
    tx_too_long,
    /// Headers that ask for what was not agreed upon.
    tx_not_agreed,
    /// Headers whose checksum lies outside of the packet.
    tx_bad_csum,
    /// Headers that ask for a segmentation that cannot be.
    tx_bad_gso,
    /// Packets sent while the cable is out.
    tx_no_link,
    /// Frames that the sink could not finish.
    tx_unfinished,
    /// Commands done.
    ctrl_done,
    /// Commands refused: unknown, not agreed upon, or of a wrong length.
    ctrl_refused,
    /// Interrupts raised for queues.
    queue_calls,
    /// Interrupts raised for configuration changes.
    config_calls,
    /// Resets by the driver.
    device_resets,
    /// Resets of one queue.
    queue_resets,
    /// Feature sets that were refused.
    features_refused,
    /// Queues that were not enabled: their size or an address is impossible.
    queue_refused,
    /// Register accesses of another width, to what cannot be written, or out of turn.
    bad_register_access,
    /// Notifications of queues that there are not.
    bad_notify,
    /// Rings broken: more entries available than there are.
    broken_avail_index,
    /// Rings broken: a chain begins behind the table.
    broken_head,
    /// Rings broken: a chain goes on behind the table.
    broken_next,
    /// Rings broken: a chain is longer than its table.
    broken_loop,
    /// Rings broken: an indirect table without the feature.
    broken_no_indirect,
    /// Rings broken: an indirect descriptor that has a next one.
    broken_indirect_next,
    /// Rings broken: an indirect table in another.
    broken_nested,
    /// Rings broken: an indirect table of an impossible length.
    broken_indirect_length,
    /// Rings broken: buffers of one frame in too many parts.
    broken_parts,
    /// Rings broken: a part to read behind one to write.
    broken_order,
    /// Rings broken: not mapped.
    broken_unmapped,
    /// Rings broken: buffers that go the wrong way.
    broken_direction,
}

impl Counters {
    /// Counts a broken ring.
    pub fn broken(&self, why: Broken) {
        let counter = match why {
            Broken::AvailIndex => &self.broken_avail_index,
            Broken::Head => &self.broken_head,
            Broken::Next => &self.broken_next,
            Broken::Loop => &self.broken_loop,
            Broken::NoIndirect => &self.broken_no_indirect,
            Broken::IndirectNext => &self.broken_indirect_next,
            Broken::Nested => &self.broken_nested,
            Broken::IndirectLength => &self.broken_indirect_length,
            Broken::Parts => &self.broken_parts,
            Broken::Order => &self.broken_order,
            Broken::Unmapped => &self.broken_unmapped,
            Broken::Direction => &self.broken_direction,
        };
        count(counter, 1);
    }
}
