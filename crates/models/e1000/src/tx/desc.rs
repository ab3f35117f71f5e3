//! Transmit descriptors (manual §3.3).

use intel::SIZE;

use crate::core::context::Context;

/// Command bits of transmit descriptors.
pub(crate) mod cmd {
    pub const EOP: u8 = 1;
    pub const IFCS: u8 = 1 << 1;
    /// Legacy descriptors: insert a checksum.
    pub const IC: u8 = 1 << 2;
    /// Data and context descriptors: segment.
    pub const TSE: u8 = 1 << 2;
    pub const RS: u8 = 1 << 3;
    pub const RPS: u8 = 1 << 4;
    pub const DEXT: u8 = 1 << 5;
    pub const VLE: u8 = 1 << 6;
    pub const IDE: u8 = 1 << 7;
}

/// A transmit descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TxDesc {
    pub cmd: u8,
    pub body: TxBody,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TxBody {
    Legacy {
        addr: u64,
        len: u32,
        cso: u8,
        css: u8,
        special: u16,
    },
    Context(Context),
    Data {
        addr: u64,
        len: u32,
        popts: u8,
        special: u16,
    },
    /// An extended descriptor of a type the chip does not have.
    Unknown,
}

impl TxDesc {
    pub(crate) fn parse(raw: &[u8; SIZE as usize]) -> TxDesc {
        let half = |at: usize| u16::from_le_bytes([raw[at], raw[at + 1]]);
        let addr = u64::from_le_bytes([
            raw[0], raw[1], raw[2], raw[3], raw[4], raw[5], raw[6], raw[7],
        ]);
        let cmd = raw[11];
        if cmd & cmd::DEXT == 0 {
            let body = TxBody::Legacy {
                addr,
                len: u32::from(half(8)),
                cso: raw[10],
                css: raw[13],
                special: half(14),
            };
            return TxDesc { cmd, body };
        }
        let body = match raw[10] >> 4 {
            0 => TxBody::Context(Context {
                ipcss: raw[0],
                ipcso: raw[1],
                ipcse: half(2),
                tucss: raw[4],
                tucso: raw[5],
                tucse: half(6),
                hdrlen: raw[13],
                mss: half(14),
                paylen: u32::from(half(8)) | u32::from(raw[10] & 0xf) << 16,
                tcp: cmd & 1 != 0,
                ipv4: cmd & 2 != 0,
            }),
            1 => TxBody::Data {
                addr,
                len: u32::from(half(8)) | u32::from(raw[10] & 0xf) << 16,
                popts: raw[13],
                special: half(14),
            },
            _ => TxBody::Unknown,
        };
        TxDesc { cmd, body }
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
        let TxBody::Data { len, .. } = TxDesc::parse(&raw).body else {
            panic!("a data descriptor");
        };
        assert_eq!(len, 0xf_2345);
    }
}
