//! What becomes of a packet that is sent.

/// What became of a packet that was taken from the transmit ring.
#[derive(Clone, Copy, Debug)]
pub enum Fate {
    /// It is the next frame of the batch, of so many bytes.
    Frame {
        /// Bytes.
        len: u32,
        /// Its checksum is still to be written.
        csum: bool,
    },
    /// The same, unsegmented, of so many segments. They are cut here if they are `narrow`.
    Segments {
        /// Bytes.
        len: u32,
        /// Segments.
        segments: u32,
        /// They are too short for a sink to be burdened with the cutting.
        narrow: bool,
    },
    /// It is dropped.
    Dropped(Bad),
}

/// Why a packet is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// No room for the header and an Ethernet header.
    Runt,
    /// Longer than 64 KiB and headers.
    TooLong,
    /// Something that was not agreed upon.
    NotAgreed,
    /// The checksum is outside of the packet.
    Csum,
    /// A segmentation that cannot be.
    Gso,
    /// The cable is out.
    NoLink,
}
