//! Descriptors: 16 bytes, little-endian (manual 3.2.3, 3.3.3, 3.3.6, 3.3.7).

/// Bytes of a descriptor of any kind.
pub const SIZE: u64 = 16;

/// A descriptor as it lies in memory.
pub type Raw = [u8; 16];

/// Transmit command bits: byte 11 of legacy and data descriptors.
pub mod cmd {
    /// End of packet.
    pub const EOP: u8 = 1 << 0;
    /// Insert the FCS.
    pub const IFCS: u8 = 1 << 1;
    /// Legacy: insert a checksum.
    pub const IC: u8 = 1 << 2;
    /// Data: segment.
    pub const TSE: u8 = 1 << 2;
    /// Report status.
    pub const RS: u8 = 1 << 3;
    /// Report packet sent.
    pub const RPS: u8 = 1 << 4;
    /// Not a legacy descriptor.
    pub const DEXT: u8 = 1 << 5;
    /// Insert a VLAN tag.
    pub const VLE: u8 = 1 << 6;
    /// Delay the interrupt.
    pub const IDE: u8 = 1 << 7;
}

/// Context command bits: byte 11 of context descriptors, beside RS, DEXT and IDE of [`cmd`].
pub mod tucmd {
    /// TCP rather than UDP.
    pub const TCP: u8 = 1 << 0;
    /// IPv4 rather than IPv6.
    pub const IP: u8 = 1 << 1;
    /// This is the context for segmentation.
    pub const TSE: u8 = 1 << 2;
}

/// Packet options: byte 13 of data descriptors.
pub mod popts {
    /// Insert the IP checksum.
    pub const IXSM: u8 = 1 << 0;
    /// Insert the TCP or UDP checksum.
    pub const TXSM: u8 = 1 << 1;
}

/// Descriptor done: bit 0 of byte 12, transmit and receive alike.
pub const DD: u8 = 1;

/// A legacy transmit descriptor (3.3.3).
#[derive(Clone, Copy, Debug, Default)]
pub struct Legacy {
    /// Buffer.
    pub addr: u64,
    /// Bytes in it.
    pub len: u16,
    /// Checksum offset: where it is stored.
    pub cso: u8,
    /// Command.
    pub cmd: u8,
    /// Checksum start.
    pub css: u8,
    /// VLAN tag.
    pub special: u16,
}

impl Legacy {
    /// As it lies in memory.
    pub fn raw(&self) -> Raw {
        let mut raw = [0; 16];
        raw[0..8].copy_from_slice(&self.addr.to_le_bytes());
        raw[8..10].copy_from_slice(&self.len.to_le_bytes());
        raw[10] = self.cso;
        raw[11] = self.cmd;
        raw[13] = self.css;
        raw[14..16].copy_from_slice(&self.special.to_le_bytes());
        raw
    }
}

/// A context descriptor (3.3.6).
#[derive(Clone, Copy, Debug, Default)]
pub struct Context {
    /// IP checksum: start.
    pub ipcss: u8,
    /// IP checksum: where it is stored.
    pub ipcso: u8,
    /// IP checksum: last byte.
    pub ipcse: u16,
    /// TCP/UDP checksum: start.
    pub tucss: u8,
    /// TCP/UDP checksum: where it is stored.
    pub tucso: u8,
    /// TCP/UDP checksum: last byte; 0 for the end of the packet.
    pub tucse: u16,
    /// Payload to segment, 20 bits.
    pub paylen: u32,
    /// Command: [`tucmd`] and RS, IDE of [`cmd`]; DEXT is added.
    pub tucmd: u8,
    /// Bytes of headers.
    pub hdrlen: u8,
    /// Maximum segment size.
    pub mss: u16,
}

impl Context {
    /// As it lies in memory.
    pub fn raw(&self) -> Raw {
        let mut raw = [0; 16];
        raw[0] = self.ipcss;
        raw[1] = self.ipcso;
        raw[2..4].copy_from_slice(&self.ipcse.to_le_bytes());
        raw[4] = self.tucss;
        raw[5] = self.tucso;
        raw[6..8].copy_from_slice(&self.tucse.to_le_bytes());
        let low = (self.paylen & 0xf_ffff) | u32::from(self.tucmd | cmd::DEXT) << 24;
        raw[8..12].copy_from_slice(&low.to_le_bytes());
        raw[13] = self.hdrlen;
        raw[14..16].copy_from_slice(&self.mss.to_le_bytes());
        raw
    }
}

/// A data descriptor (3.3.7).
#[derive(Clone, Copy, Debug, Default)]
pub struct Data {
    /// Buffer.
    pub addr: u64,
    /// Bytes in it, 20 bits.
    pub len: u32,
    /// Command; DEXT is added.
    pub cmd: u8,
    /// Packet options.
    pub popts: u8,
    /// VLAN tag.
    pub special: u16,
}

impl Data {
    /// As it lies in memory.
    pub fn raw(&self) -> Raw {
        const DTYP_DATA: u32 = 1 << 20;
        let mut raw = [0; 16];
        raw[0..8].copy_from_slice(&self.addr.to_le_bytes());
        let low = (self.len & 0xf_ffff) | DTYP_DATA | u32::from(self.cmd | cmd::DEXT) << 24;
        raw[8..12].copy_from_slice(&low.to_le_bytes());
        raw[13] = self.popts;
        raw[14..16].copy_from_slice(&self.special.to_le_bytes());
        raw
    }
}

/// Receive status bits: byte 12.
pub mod rx_status {
    /// End of packet.
    pub const EOP: u8 = 1 << 1;
    /// Ignore the checksum bits.
    pub const IXSM: u8 = 1 << 2;
    /// The frame had a VLAN tag.
    pub const VP: u8 = 1 << 3;
    /// TCP or UDP checksum calculated.
    pub const TCPCS: u8 = 1 << 5;
    /// IP checksum calculated.
    pub const IPCS: u8 = 1 << 6;
    /// Passed an inexact filter.
    pub const PIF: u8 = 1 << 7;
}

/// Receive error bits: byte 13.
pub mod rx_error {
    /// CRC or alignment error.
    pub const CE: u8 = 1 << 0;
    /// TCP or UDP checksum error.
    pub const TCPE: u8 = 1 << 5;
    /// IP checksum error.
    pub const IPE: u8 = 1 << 6;
}

/// A receive descriptor (3.2.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Receive {
    /// Buffer.
    pub addr: u64,
    /// Bytes written into it.
    pub len: u16,
    /// Packet checksum.
    pub checksum: u16,
    /// Status.
    pub status: u8,
    /// Errors.
    pub errors: u8,
    /// VLAN tag.
    pub special: u16,
}

impl Receive {
    /// Reads it as it lies in memory.
    pub fn parse(raw: &Raw) -> Self {
        let half = |at: usize| u16::from_le_bytes([raw[at], raw[at + 1]]);
        let mut addr = [0; 8];
        addr.copy_from_slice(&raw[0..8]);
        Self {
            addr: u64::from_le_bytes(addr),
            len: half(8),
            checksum: half(10),
            status: raw[12],
            errors: raw[13],
            special: half(14),
        }
    }

    /// An empty one for the buffer at `addr`.
    pub fn empty(addr: u64) -> Raw {
        let mut raw = [0; 16];
        raw[0..8].copy_from_slice(&addr.to_le_bytes());
        raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The two double words of a descriptor as the manual's figures draw them.
    fn words(raw: &Raw) -> (u64, u64) {
        let (low, high) = raw.split_at(8);
        let word = |bytes: &[u8]| {
            bytes
                .iter()
                .rev()
                .fold(0u64, |word, &byte| word << 8 | u64::from(byte))
        };
        (word(low), word(high))
    }

    #[test]
    fn legacy_fields_are_where_the_manual_draws_them() {
        let raw = Legacy {
            addr: 0x0123_4567_89ab_cdef,
            len: 0x1234,
            cso: 0x56,
            cmd: cmd::EOP | cmd::RS,
            css: 0x9a,
            special: 0xbcde,
        }
        .raw();
        // Special 63:48, CSS 47:40, STA 35:32, CMD 31:24, CSO 23:16, length 15:0.
        let high = 0xbcde << 48 | 0x9a << 40 | 0x09 << 24 | 0x56 << 16 | 0x1234;
        assert_eq!(words(&raw), (0x0123_4567_89ab_cdef, high));
    }

    #[test]
    fn context_fields_are_where_the_manual_draws_them() {
        let raw = Context {
            ipcss: 0x11,
            ipcso: 0x22,
            ipcse: 0x3344,
            tucss: 0x55,
            tucso: 0x66,
            tucse: 0x7788,
            paylen: 0xf_1234,
            tucmd: tucmd::TCP | tucmd::IP | tucmd::TSE,
            hdrlen: 0x99,
            mss: 0xaabb,
        }
        .raw();
        // TUCSE 63:48, TUCSO 47:40, TUCSS 39:32, IPCSE 31:16, IPCSO 15:8, IPCSS 7:0.
        let low = 0x7788 << 48 | 0x66 << 40 | 0x55 << 32 | 0x3344 << 16 | 0x22 << 8 | 0x11;
        // MSS 63:48, HDRLEN 47:40, STA 35:32, TUCMD 31:24, DTYP 23:20, PAYLEN 19:0.
        let high = 0xaabb << 48 | 0x99 << 40 | 0x27 << 24 | 0xf_1234;
        assert_eq!(words(&raw), (low, high));
    }

    #[test]
    fn data_fields_are_where_the_manual_draws_them() {
        let raw = Data {
            addr: 0x0123_4567_89ab_cdef,
            len: 0xa_bcde,
            cmd: cmd::EOP | cmd::TSE | cmd::VLE | cmd::IDE,
            popts: popts::IXSM | popts::TXSM,
            special: 0x4321,
        }
        .raw();
        // Special 63:48, POPTS 47:40, STA 35:32, DCMD 31:24, DTYP 23:20, DTALEN 19:0.
        let high = 0x4321 << 48 | 0x03 << 40 | 0xe5 << 24 | 1 << 20 | 0xa_bcde;
        assert_eq!(words(&raw), (0x0123_4567_89ab_cdef, high));
    }

    #[test]
    fn receive_fields_are_where_the_manual_draws_them() {
        // Special 63:48, errors 47:40, status 39:32, packet checksum 31:16, length 15:0.
        let high: u64 = 0x1111 << 48 | 0x22 << 40 | 0x33 << 32 | 0x4444 << 16 | 0x5555;
        let mut raw = Receive::empty(7);
        raw[8..].copy_from_slice(&high.to_le_bytes());
        let expected = Receive {
            addr: 7,
            len: 0x5555,
            checksum: 0x4444,
            status: 0x33,
            errors: 0x22,
            special: 0x1111,
        };
        assert_eq!(Receive::parse(&raw), expected);
    }
}
