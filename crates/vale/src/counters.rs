//! What a switch port counts.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of one port. `rx` is into the switch, `tx` out of it.
        #[derive(Debug, Default)]
        #[repr(C)]
        pub(crate) struct Counters {
            $($(#[$doc])* pub(crate) $name: AtomicU64,)*
        }

        impl Counters {
            pub(crate) fn visit(&self, visit: &mut dyn FnMut(&'static str, u64)) {
                $(visit(stringify!($name), self.$name.load(Relaxed));)*
            }
        }
    };
}

// What others count here is first, before what the port's own deliveries count: a cache line of each.
counters! {
    /// Frames the port's sink took; one that was segmented for it is one.
    tx_frames,
    /// Their bytes.
    tx_bytes,
    /// Frames that came in, dropped ones included.
    rx_frames,
    /// Their bytes.
    rx_bytes,
    /// Frames that came in for one known port.
    rx_unicast,
    /// Frames that came in for an unknown unicast address; flooded.
    rx_unknown_unicast,
    /// Frames that came in for a group; flooded.
    rx_multicast,
    /// Frames that came in for everybody; flooded.
    rx_broadcast,
    /// Copies of flooded frames the port's sink took.
    tx_flooded,
    /// Frames of a private port that went to uplinks instead of a neighbour.
    rx_to_uplink,
    /// Addresses first seen on this port.
    learned,
    /// Addresses that moved here from another port.
    moved,
    /// Frames whose source found no place in the table (or in this port's part of it).
    table_full,
    /// Times senders were held up because this port had no room.
    held_up,
    /// Times frames from here did not wait for a port without room, because others had waited with them long enough.
    patience_spent,
    /// Frames that came in too short for an Ethernet header.
    drop_runt,
    /// Frames that came in with offload notes that cannot be true.
    drop_bad_notes,
    /// Frames that came in asking for more segments than any NIC makes.
    drop_too_many_segments,
    /// Frames that came in from a group address.
    drop_source_is_group,
    /// Frames that came in from an address that is another port's, or not this port's only one.
    drop_spoofed,
    /// Frames that came in for an address no bridge forwards (IEEE 802.1Q table 8-1).
    drop_reserved,
    /// Frames that came in for an address on this very port.
    drop_hairpin,
    /// Frames that came in of a VLAN this port, or their destination, is no member of.
    drop_vlan,
    /// Frames that came in for a private port, which only an uplink may reach.
    drop_private,
    /// Frames that came in from the mesh for a station that is in the mesh too.
    drop_mesh,
    /// Flooded frames that came in beyond this port's storm limits.
    drop_storm,
    /// Frames that came in beyond this port's rate, and could not wait.
    drop_rate_in,
    /// Frames for this port beyond its rate that could not wait.
    drop_rate_out,
    /// Times a sender waited for its own rate.
    paced,
    /// Frames that came in after this port, or their destination, had been detached.
    drop_port_gone,
    /// Frames that came in from the wire for no pool.
    drop_no_pool,
    /// Frames that came in while this port's pool was off.
    drop_pool_off,
    /// Frames for this port alone that found no room in its sink.
    drop_no_room,
    /// Copies of flooded frames that found no room in its sink.
    drop_flood_no_room,
}

/// Adds where one lock keeps all who add apart: no locked instruction is needed. What comes into a
/// port is counted under the lock of its scratch.
#[inline]
pub(crate) fn add_alone(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(n), Relaxed);
}

/// Adds, sparing the shared cache line when there is nothing to add.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    if n != 0 {
        counter.fetch_add(n, Relaxed);
    }
}
