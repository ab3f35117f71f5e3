//! Transmit descriptors (manual §3.3).

use datapath::offload::{self, Request};
use intel::SIZE;
use intel::tx::{Body, Format, Make};

use crate::core::context::{Context, Contexts};

/// Command bits of transmit descriptors.
pub(crate) mod cmd {
    pub use intel::tx::cmd::*;

    /// Context descriptors: TCP rather than UDP; IPv4 rather than IPv6 (TUCMD).
    pub const TCP: u8 = 1;
    pub const IP: u8 = 1 << 1;
    /// Data and context descriptors: segment.
    pub const TSE: u8 = 1 << 2;
    pub const RPS: u8 = 1 << 4;
    pub const IDE: u8 = 1 << 7;
}

/// Types of extended descriptors (DTYP).
mod dtyp {
    pub const CONTEXT: u8 = 0;
    pub const DATA: u8 = 1;
}

/// Checksums that a data descriptor asks for (POPTS).
mod popts {
    pub const IXSM: u8 = 1;
    pub const TXSM: u8 = 1 << 1;
}

/// Bytes copied of a packet that needs work: all places a descriptor's 8-bit offsets reach.
const HEADERS: usize = 320;
/// DTALEN and PAYLEN have 20 bits, the last four beside DTYP.
const LENGTH: u32 = 0xf_ffff;

/// The descriptors of the 8254x.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descs;

/// What a data descriptor asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asks {
    popts: u8,
    special: u16,
}

impl Format for Descs {
    type Context = Context;
    type Asks = Asks;
    type Contexts = Contexts;

    const REPORT: u8 = cmd::RS | cmd::RPS;
    const DELAY: u8 = cmd::IDE;
    const TSE: u8 = cmd::TSE;
    const LAST_DECIDES: bool = true;
    const PAYLEN_CUTS: bool = false;
    const MAKE: Make = offload::make::<HEADERS>;

    fn extended(raw: &[u8; SIZE as usize]) -> (u64, u32, Body<Context, Asks>) {
        let half = |at: usize| u16::from_le_bytes([raw[at], raw[at + 1]]);
        let both = u128::from_le_bytes(*raw);
        let len = (both >> 64) as u32 & LENGTH;
        match raw[10] >> 4 {
            dtyp::CONTEXT => {
                let context = Context {
                    ipcss: raw[0],
                    ipcso: raw[1],
                    ipcse: half(2),
                    tucss: raw[4],
                    tucso: raw[5],
                    tucse: half(6),
                    hdrlen: raw[13],
                    mss: half(14),
                    paylen: len,
                    tcp: raw[11] & cmd::TCP != 0,
                    ipv4: raw[11] & cmd::IP != 0,
                };
                (0, 0, Body::Context(context))
            }
            dtyp::DATA => {
                let asks = Asks {
                    popts: raw[13],
                    special: half(14),
                };
                (both as u64, len, Body::Data(asks))
            }
            _ => (0, 0, Body::Unknown),
        }
    }

    #[inline]
    fn plain(second: u64) -> Option<u32> {
        let (kind, popts) = ((second >> 20) as u8 & 0xf, (second >> 40) as u8);
        (kind == dtyp::DATA && popts == 0).then_some(second as u32 & LENGTH)
    }

    fn keep(contexts: &mut Contexts, cmd: u8, context: Context) {
        if cmd & cmd::TSE != 0 {
            contexts.segmenting = context;
        } else {
            contexts.plain = context;
        }
    }

    fn request(contexts: &Contexts, cmd: u8, asks: &Asks) -> (Request, u16) {
        let segment = cmd & cmd::TSE != 0;
        let context = if segment {
            &contexts.segmenting
        } else {
            &contexts.plain
        };
        let request = Request {
            segment,
            ip_sum: asks.popts & popts::IXSM != 0,
            l4_sum: asks.popts & popts::TXSM != 0,
            places: context.places(),
            ..Request::default()
        };
        (request, asks.special)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_length_has_twenty_bits() {
        let mut raw = [0u8; 16];
        raw[8..12].copy_from_slice(&0x2510_2345u32.to_le_bytes());
        raw[10] = 0x1f;
        let (_, len, body) = Descs::extended(&raw);
        assert!(matches!(body, Body::Data(_)), "a data descriptor");
        assert_eq!(len, 0xf_2345);
    }
}
