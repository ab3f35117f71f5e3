//! What the registers of a script say.

pub(super) use crate::oracle::context::Context;

/// Registers by their offset. Those of queues are of the first; [`QUEUE`] leads to the next.
pub(super) mod reg {
    pub const CTRL: u32 = 0x0;
    pub const STATUS: u32 = 0x8;
    pub const EECD: u32 = 0x10;
    pub const EERD: u32 = 0x14;
    pub const CTRL_EXT: u32 = 0x18;
    pub const MDIC: u32 = 0x20;
    pub const VET: u32 = 0x38;
    pub const RCTL: u32 = 0x100;
    pub const TCTL: u32 = 0x400;
    pub const ICR: u32 = 0xc0;
    pub const ICS: u32 = 0xc8;
    pub const IMS: u32 = 0xd0;
    pub const IMC: u32 = 0xd8;
    pub const IAM: u32 = 0xe0;
    pub const GPIE: u32 = 0x1514;
    pub const EICS: u32 = 0x1520;
    pub const EIMS: u32 = 0x1524;
    pub const EIMC: u32 = 0x1528;
    pub const EIAC: u32 = 0x152c;
    pub const EIAM: u32 = 0x1530;
    pub const EICR: u32 = 0x1580;
    pub const EITR: u32 = 0x1680;
    pub const IVAR: u32 = 0x1700;
    pub const IVAR_MISC: u32 = 0x1740;
    pub const IAC: u32 = 0x4100;
    pub const RXCSUM: u32 = 0x5000;
    pub const RLPML: u32 = 0x5004;
    pub const MTA: u32 = 0x5200;
    pub const RAL: u32 = 0x5400;
    pub const RAL2: u32 = 0x54e0;
    pub const PSRTYPE: u32 = 0x5480;
    pub const VFTA: u32 = 0x5600;
    pub const MRQC: u32 = 0x5818;
    pub const RETA: u32 = 0x5c00;
    pub const RSSRK: u32 = 0x5c80;
    pub const VFRE: u32 = 0xc8c;
    pub const VFTE: u32 = 0xc90;
    pub const DTXSWC: u32 = 0x3500;
    pub const VMVIR: u32 = 0x3700;
    pub const VT_CTL: u32 = 0x581c;
    pub const VMOLR: u32 = 0x5ad0;
    pub const RPLOLR: u32 = 0x5af0;
    pub const ETQF: u32 = 0x5cb0;
    pub const VLVF: u32 = 0x5d00;
    pub const TSYNCRXCFG: u32 = 0x5f50;
    pub const TIMINCA: u32 = 0xb608;
    pub const TSYNCTXCTL: u32 = 0xb614;
    pub const TXSTMPL: u32 = 0xb618;
    pub const TSYNCRXCTL: u32 = 0xb620;
    pub const RXSTMPL: u32 = 0xb624;
    pub const RXSATRL: u32 = 0xb62c;
    pub const RDBAL: u32 = 0xc000;
    pub const RDBAH: u32 = 0xc004;
    pub const RDLEN: u32 = 0xc008;
    pub const SRRCTL: u32 = 0xc00c;
    pub const RDH: u32 = 0xc010;
    pub const RDT: u32 = 0xc018;
    pub const RXDCTL: u32 = 0xc028;
    pub const TDBAL: u32 = 0xe000;
    pub const TDBAH: u32 = 0xe004;
    pub const TDLEN: u32 = 0xe008;
    pub const TDH: u32 = 0xe010;
    pub const TDT: u32 = 0xe018;
    pub const TXDCTL: u32 = 0xe028;
    pub const TDWBAL: u32 = 0xe038;

    /// Bytes from a register of a queue to that of the next.
    pub const QUEUE: u32 = 0x40;
}
