//! Numbers of the standard: feature bits, registers, the header of a packet, commands (virtio 1.4 §2, §4.1, §5.1).

/// Feature bits.
pub mod feature {
    /// Frames may leave with their checksum still to be written.
    pub const CSUM: u64 = 1 << 0;
    /// The driver takes frames whose checksum is still to be written.
    pub const GUEST_CSUM: u64 = 1 << 1;
    /// The driver switches its receive offloads while it runs.
    pub const CTRL_GUEST_OFFLOADS: u64 = 1 << 2;
    /// The device has an MTU.
    pub const MTU: u64 = 1 << 3;
    /// The device has an address.
    pub const MAC: u64 = 1 << 5;
    /// The driver takes unsegmented TCP over IPv4.
    pub const GUEST_TSO4: u64 = 1 << 7;
    /// The driver takes unsegmented TCP over IPv6.
    pub const GUEST_TSO6: u64 = 1 << 8;
    /// The same with CWR set.
    pub const GUEST_ECN: u64 = 1 << 9;
    /// Unsegmented TCP over IPv4 may leave.
    pub const HOST_TSO4: u64 = 1 << 11;
    /// Unsegmented TCP over IPv6 may leave.
    pub const HOST_TSO6: u64 = 1 << 12;
    /// The same with CWR set.
    pub const HOST_ECN: u64 = 1 << 13;
    /// A received frame may lie in several buffers.
    pub const MRG_RXBUF: u64 = 1 << 15;
    /// The configuration has a status.
    pub const STATUS: u64 = 1 << 16;
    /// There is a control queue.
    pub const CTRL_VQ: u64 = 1 << 17;
    /// It sets what is received.
    pub const CTRL_RX: u64 = 1 << 18;
    /// It filters VLANs.
    pub const CTRL_VLAN: u64 = 1 << 19;
    /// More of what `CTRL_RX` is for.
    pub const CTRL_RX_EXTRA: u64 = 1 << 20;
    /// The device asks the driver to announce itself.
    pub const GUEST_ANNOUNCE: u64 = 1 << 21;
    /// Several pairs of queues.
    pub const MQ: u64 = 1 << 22;
    /// The control queue sets the address.
    pub const CTRL_MAC_ADDR: u64 = 1 << 23;
    /// Descriptors may stand in a table elsewhere.
    pub const INDIRECT_DESC: u64 = 1 << 28;
    /// Both sides say from which entry on they want to be told.
    pub const EVENT_IDX: u64 = 1 << 29;
    /// The device follows the standard, not its drafts.
    pub const VERSION_1: u64 = 1 << 32;
    /// Addresses are those that the bus translates.
    pub const ACCESS_PLATFORM: u64 = 1 << 33;
    /// Rings are packed, not split.
    pub const PACKED: u64 = 1 << 34;
    /// Buffers are used in the order in which they were given.
    pub const IN_ORDER: u64 = 1 << 35;
    /// A notification says how far the ring is filled.
    pub const NOTIFICATION_DATA: u64 = 1 << 38;
    /// A queue can be reset by itself.
    pub const RING_RESET: u64 = 1 << 40;
    /// The driver asks for counters.
    pub const DEVICE_STATS: u64 = 1 << 50;
    /// The driver sets for each queue by itself when it is called.
    pub const VQ_NOTF_COAL: u64 = 1 << 52;
    /// The driver sets when it is called.
    pub const NOTF_COAL: u64 = 1 << 53;
    /// The driver takes unsegmented UDP over IPv4.
    pub const GUEST_USO4: u64 = 1 << 54;
    /// The driver takes unsegmented UDP over IPv6.
    pub const GUEST_USO6: u64 = 1 << 55;
    /// Unsegmented UDP may leave.
    pub const HOST_USO: u64 = 1 << 56;
    /// The header has the hash of a frame's flow.
    pub const HASH_REPORT: u64 = 1 << 57;
    /// The driver says which pair is for which flow.
    pub const RSS: u64 = 1 << 60;
    /// The device stands in for another with the same address.
    pub const STANDBY: u64 = 1 << 62;
    /// The configuration has speed and duplex.
    pub const SPEED_DUPLEX: u64 = 1 << 63;

    /// A feature, and those of which it needs one (§5.1.3.1).
    pub const NEEDS: &[(u64, u64)] = &[
        (GUEST_TSO4, GUEST_CSUM),
        (GUEST_TSO6, GUEST_CSUM),
        (GUEST_ECN, GUEST_TSO4 | GUEST_TSO6),
        (GUEST_USO4, GUEST_CSUM),
        (GUEST_USO6, GUEST_CSUM),
        (HOST_TSO4, CSUM),
        (HOST_TSO6, CSUM),
        (HOST_ECN, HOST_TSO4 | HOST_TSO6),
        (HOST_USO, CSUM),
        (CTRL_RX, CTRL_VQ),
        (CTRL_VLAN, CTRL_VQ),
        (CTRL_RX_EXTRA, CTRL_VQ),
        (GUEST_ANNOUNCE, CTRL_VQ),
        (MQ, CTRL_VQ),
        (RSS, CTRL_VQ),
        (HASH_REPORT, CTRL_VQ),
        (DEVICE_STATS, CTRL_VQ),
        (VQ_NOTF_COAL, CTRL_VQ),
        (NOTF_COAL, CTRL_VQ),
        (CTRL_MAC_ADDR, CTRL_VQ),
        (CTRL_GUEST_OFFLOADS, CTRL_VQ),
    ];

    /// With either there are several pairs.
    pub const SEVERAL: u64 = MQ | RSS;

    /// What `CTRL_GUEST_OFFLOADS` may switch.
    pub const GUEST_OFFLOADS: u64 =
        GUEST_CSUM | GUEST_TSO4 | GUEST_TSO6 | GUEST_ECN | GUEST_USO4 | GUEST_USO6;
}

/// Bits of the device status (§2.1).
pub mod status {
    /// A driver has found the device.
    pub const ACKNOWLEDGE: u8 = 1;
    /// A driver knows how to drive the device.
    pub const DRIVER: u8 = 2;
    /// It is set up.
    pub const DRIVER_OK: u8 = 4;
    /// Features are agreed upon.
    pub const FEATURES_OK: u8 = 8;
    /// The device cannot go on.
    pub const NEEDS_RESET: u8 = 0x40;
    /// The driver has given up.
    pub const FAILED: u8 = 0x80;
    /// What a driver sets.
    pub const DRIVERS: u8 = ACKNOWLEDGE | DRIVER | DRIVER_OK | FEATURES_OK | FAILED;
}

/// Bits of the network status (§5.1.4).
pub mod net_status {
    /// The link is up.
    pub const LINK_UP: u16 = 1;
    /// The driver shall announce its addresses.
    pub const ANNOUNCE: u16 = 2;
}

/// The common configuration (§4.1.4.3).
pub mod common {
    /// Bytes of it.
    pub const LEN: u64 = 0x40;
    /// Which word of the device's features `DEVICE_FEATURE` shows.
    pub const DEVICE_FEATURE_SELECT: u64 = 0x00;
    /// A word of the features offered.
    pub const DEVICE_FEATURE: u64 = 0x04;
    /// Which word of the driver's features `DRIVER_FEATURE` shows.
    pub const DRIVER_FEATURE_SELECT: u64 = 0x08;
    /// A word of the features taken.
    pub const DRIVER_FEATURE: u64 = 0x0c;
    /// Vector of configuration changes.
    pub const CONFIG_VECTOR: u64 = 0x10;
    /// Queues there are.
    pub const NUM_QUEUES: u64 = 0x12;
    /// The device status.
    pub const STATUS: u64 = 0x14;
    /// Changes with the configuration.
    pub const GENERATION: u64 = 0x15;
    /// Which queue the rest shows.
    pub const QUEUE_SELECT: u64 = 0x16;
    /// Entries.
    pub const QUEUE_SIZE: u64 = 0x18;
    /// Vector.
    pub const QUEUE_VECTOR: u64 = 0x1a;
    /// Enabled.
    pub const QUEUE_ENABLE: u64 = 0x1c;
    /// Where it is notified.
    pub const QUEUE_NOTIFY_OFF: u64 = 0x1e;
    /// The descriptor area, in two halves.
    pub const QUEUE_DESC: u64 = 0x20;
    /// The driver area.
    pub const QUEUE_DRIVER: u64 = 0x28;
    /// The device area.
    pub const QUEUE_DEVICE: u64 = 0x30;
    /// What a notification carries; not offered.
    pub const QUEUE_NOTIFY_DATA: u64 = 0x38;
    /// Resets the queue.
    pub const QUEUE_RESET: u64 = 0x3a;
}

/// The vector that is none.
pub const NO_VECTOR: u16 = 0xffff;

/// Pages of the memory BAR.
pub mod page {
    /// Bytes of each.
    pub const LEN: u64 = 0x1000;
    /// The common configuration.
    pub const COMMON: u64 = 0;
    /// The interrupt status.
    pub const ISR: u64 = 0x1000;
    /// The device's configuration.
    pub const DEVICE: u64 = 0x2000;
    /// Notifications, alone on their page so that it can be mapped.
    pub const NOTIFY: u64 = 0x3000;
    /// Bytes between those of two queues.
    pub const NOTIFY_STEP: u32 = 4;
    /// Bytes of all.
    pub const ALL: u64 = 0x4000;
}

/// The header in front of each packet (§5.1.6).
pub mod header {
    /// Bytes, always with `num_buffers`.
    pub const LEN: usize = 12;
    /// Bytes with the hash and what it is of.
    pub const LONG: usize = 20;
    /// A checksum is still to be written.
    pub const NEEDS_CSUM: u8 = 1;
    /// The checksum is right.
    pub const DATA_VALID: u8 = 2;
    /// TCP over IPv4.
    pub const GSO_TCPV4: u8 = 1;
    /// TCP over IPv6.
    pub const GSO_TCPV6: u8 = 4;
    /// UDP: each part of the payload is a datagram of its own.
    pub const GSO_UDP_L4: u8 = 5;
    /// CWR is set.
    pub const GSO_ECN: u8 = 0x80;
}

/// Commands of the control queue (§5.1.6.5).
pub mod ctrl {
    /// What is received.
    pub const RX: u8 = 0;
    /// Addresses.
    pub const MAC: u8 = 1;
    /// VLANs.
    pub const VLAN: u8 = 2;
    /// Announcements.
    pub const ANNOUNCE: u8 = 3;
    /// Pairs of queues.
    pub const MQ: u8 = 4;
    /// Receive offloads.
    pub const GUEST_OFFLOADS: u8 = 5;

    /// When the driver is called.
    pub const NOTF_COAL: u8 = 6;

    /// Sets it for all transmit queues.
    pub const COAL_TX_SET: u8 = 0;
    /// Sets it for all receive queues.
    pub const COAL_RX_SET: u8 = 1;
    /// Sets it for one queue.
    pub const COAL_VQ_SET: u8 = 2;
    /// Shows it of one queue.
    pub const COAL_VQ_GET: u8 = 3;
    /// Sets the table of addresses.
    pub const MAC_TABLE_SET: u8 = 0;
    /// Sets the own address.
    pub const MAC_ADDR_SET: u8 = 1;
    /// Lets a VLAN in.
    pub const VLAN_ADD: u8 = 0;
    /// Shuts it out.
    pub const VLAN_DEL: u8 = 1;
    /// The announcement is on its way.
    pub const ANNOUNCE_ACK: u8 = 0;
    /// Sets how many pairs are used.
    pub const VQ_PAIRS_SET: u8 = 0;
    /// Sets which pair is for which flow.
    pub const RSS_CONFIG: u8 = 1;
    /// Sets which hashes are reported.
    pub const HASH_CONFIG: u8 = 2;
    /// Counters.
    pub const STATS: u8 = 8;
    /// Shows which there are.
    pub const STATS_QUERY: u8 = 0;
    /// Shows them.
    pub const STATS_GET: u8 = 1;
    /// Sets the offloads.
    pub const GUEST_OFFLOADS_SET: u8 = 0;

    /// Done.
    pub const OK: u8 = 0;
    /// Not done.
    pub const ERR: u8 = 1;
}

/// Types of hash (§5.1.6.4.3).
pub mod hash {
    /// Addresses of IPv4.
    pub const IP4: u32 = 1 << 0;
    /// The same, and ports of TCP.
    pub const TCP4: u32 = 1 << 1;
    /// The same, and ports of UDP.
    pub const UDP4: u32 = 1 << 2;
    /// Addresses of IPv6.
    pub const IP6: u32 = 1 << 3;
    /// The same, and ports of TCP.
    pub const TCP6: u32 = 1 << 4;
    /// The same, and ports of UDP.
    pub const UDP6: u32 = 1 << 5;
    /// All there are.
    pub const TYPES: u32 = 0x3f;

    /// As the header of a received frame has them; 0 is none.
    pub mod report {
        /// See [`IP4`](super::IP4).
        pub const IP4: u16 = 1;
        /// See [`TCP4`](super::TCP4).
        pub const TCP4: u16 = 2;
        /// See [`UDP4`](super::UDP4).
        pub const UDP4: u16 = 3;
        /// See [`IP6`](super::IP6).
        pub const IP6: u16 = 4;
        /// See [`TCP6`](super::TCP6).
        pub const TCP6: u16 = 5;
        /// See [`UDP6`](super::UDP6).
        pub const UDP6: u16 = 6;
    }
}

/// Types of counters (§5.1.6.5.8).
pub mod stats {
    /// Bytes in front of the counters of a type.
    pub const HEADER: usize = 8;
    /// Of receive queues.
    pub const RX_BASIC: u64 = 1 << 0;
    /// Their checksums.
    pub const RX_CSUM: u64 = 1 << 1;
    /// Their unsegmented frames.
    pub const RX_GSO: u64 = 1 << 2;
    /// Of transmit queues.
    pub const TX_BASIC: u64 = 1 << 16;
    /// Their checksums.
    pub const TX_CSUM: u64 = 1 << 17;
    /// Their unsegmented frames.
    pub const TX_GSO: u64 = 1 << 18;
    /// Of the control queue.
    pub const CTRL: u64 = 1 << 32;
    /// Types of receive queues.
    pub const RX: u64 = RX_BASIC | RX_CSUM | RX_GSO;
    /// Types of transmit queues.
    pub const TX: u64 = TX_BASIC | TX_CSUM | TX_GSO;

    /// The same, as replies have them.
    pub mod reply {
        /// See [`RX_BASIC`](super::RX_BASIC).
        pub const RX_BASIC: u8 = 0;
        /// See [`RX_CSUM`](super::RX_CSUM).
        pub const RX_CSUM: u8 = 1;
        /// See [`RX_GSO`](super::RX_GSO).
        pub const RX_GSO: u8 = 2;
        /// See [`TX_BASIC`](super::TX_BASIC).
        pub const TX_BASIC: u8 = 16;
        /// See [`TX_CSUM`](super::TX_CSUM).
        pub const TX_CSUM: u8 = 17;
        /// See [`TX_GSO`](super::TX_GSO).
        pub const TX_GSO: u8 = 18;
        /// See [`CTRL`](super::CTRL).
        pub const CTRL: u8 = 32;
    }
}
