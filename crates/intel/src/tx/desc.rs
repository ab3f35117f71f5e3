//! Transmit descriptors (8254x manual §3.3, 82576 datasheet §7.2.2): what is alike in all formats, and what a
//! chip says about its own.

use std::fmt::Debug;

use datapath::Gather;
use datapath::offload::{Made, Places, Refused, Request};
use frame::{Batch, Caps};

use crate::ring::SIZE;

/// Command bits that mean the same in all formats.
pub mod cmd {
    /// The last descriptor of its packet.
    pub const EOP: u8 = 1;
    /// The chip appends the FCS.
    pub const IFCS: u8 = 1 << 1;
    /// Legacy descriptors: insert a checksum.
    pub const IC: u8 = 1 << 2;
    /// Report when it is done.
    pub const RS: u8 = 1 << 3;
    /// Not a legacy descriptor.
    pub const DEXT: u8 = 1 << 5;
    /// Insert a VLAN tag.
    pub const VLE: u8 = 1 << 6;
}

/// A transmit descriptor; `C` is what a context descriptor sets up, `A` what a data descriptor asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Desc<C, A> {
    /// DCMD or CMD.
    pub cmd: u8,
    /// Its buffer; of a context descriptor, nothing.
    pub addr: u64,
    /// Bytes there.
    pub len: u32,
    /// The rest.
    pub body: Body<C, A>,
}

/// What kind of descriptor it is, and what only this kind has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<C, A> {
    /// Without DEXT; alike in all chips.
    Legacy {
        /// Where the checksum goes.
        cso: u8,
        /// The first byte that it covers.
        css: u8,
        /// The VLAN tag.
        special: u16,
    },
    /// Sets up offloads for the packets behind it.
    Context(C),
    /// A part of a packet.
    Data(A),
    /// An extended descriptor of a type the chip does not have.
    Unknown,
}

impl<C, A> Body<C, A> {
    /// Whether it is a legacy descriptor.
    #[inline]
    pub fn is_legacy(&self) -> bool {
        matches!(self, Body::Legacy { .. })
    }
}

/// A function that makes frames of a packet, as [`datapath::offload::make`].
pub type Make =
    for<'v> fn(&Gather<'_, 'v>, &Request, Caps, usize, &mut Batch<'v>) -> Result<Made, Refused>;

/// How the extended descriptors of a chip read, and what follows from them.
pub trait Format {
    /// What a context descriptor sets up.
    type Context: Copy;
    /// What a data descriptor asks for besides the transfer of its bytes.
    type Asks: Copy;
    /// The contexts a ring keeps.
    type Contexts: Copy + Debug + Default + PartialEq;

    /// Command bits that ask for a report.
    const REPORT: u8;
    /// The command bit that delays the interrupt of a report; 0: there is none.
    const DELAY: u8;
    /// The command bit of data descriptors that asks for segmentation.
    const TSE: u8;
    /// The last data descriptor of a packet says whether it gets a tag and an FCS, unless it is segmented;
    /// else the first says so.
    const LAST_DECIDES: bool;
    /// A packet that is segmented ends where its context announces, even if more is there.
    const PAYLEN_CUTS: bool;

    /// [`datapath::offload::make`] with the room that this chip's offsets need.
    const MAKE: Make;

    /// An extended descriptor: buffer, bytes there, and the rest.
    fn extended(raw: &[u8; SIZE as usize]) -> (u64, u32, Body<Self::Context, Self::Asks>);

    /// The length in the second word of a data descriptor that asks for nothing but what command bits
    /// say. `None` for all others.
    fn plain(second: u64) -> Option<u32>;

    /// Keeps what a context descriptor has set up.
    fn keep(contexts: &mut Self::Contexts, cmd: u8, context: Self::Context);

    /// What a data descriptor asks for, without tag and padding, and the tag it gets with VLE.
    fn request(contexts: &Self::Contexts, cmd: u8, asks: &Self::Asks) -> (Request, u16);

    /// The time at which the packet leaves is wanted.
    #[inline]
    fn stamped(_: &Self::Asks) -> bool {
        false
    }
}

/// A descriptor as the guest wrote it.
pub(crate) fn parse<F: Format + ?Sized>(raw: &[u8; SIZE as usize]) -> Desc<F::Context, F::Asks> {
    let cmd = raw[11];
    if cmd & cmd::DEXT != 0 {
        let (addr, len, body) = F::extended(raw);
        return Desc {
            cmd,
            addr,
            len,
            body,
        };
    }
    let both = u128::from_le_bytes(*raw);
    let (addr, second) = (both as u64, (both >> 64) as u64);
    Desc {
        cmd,
        addr,
        // Without an address no data is transferred; all else about it holds (8254x manual §3.3.3).
        len: if addr == 0 { 0 } else { second as u32 & 0xffff },
        body: Body::Legacy {
            cso: (second >> 16) as u8,
            css: (second >> 40) as u8,
            special: (second >> 48) as u16,
        },
    }
}

/// The offsets of a legacy descriptor's checksum.
pub(crate) fn legacy_places(cso: u8, css: u8) -> Places {
    Places {
        tucss: css.into(),
        tucso: cso.into(),
        ..Places::default()
    }
}
