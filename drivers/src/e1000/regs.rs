//! Registers of the 82540EM, and its statistics.

pub use intel_offsets::e1000::*;

/// A statistics counter (13.7): cleared when read, stuck at its maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistic {
    /// The manual's name, in lower case.
    pub name: &'static str,
    /// Offset; of the low half for 64-bit counters, whose high half follows and clears both.
    pub offset: u32,
    /// 64 bits.
    pub wide: bool,
}

const fn narrow(name: &'static str, offset: u32) -> Statistic {
    Statistic {
        name,
        offset,
        wide: false,
    }
}

const fn wide(name: &'static str, offset: u32) -> Statistic {
    Statistic {
        name,
        offset,
        wide: true,
    }
}

/// All statistics counters.
pub const STATISTICS: [Statistic; 54] = [
    narrow("crcerrs", CRCERRS),
    narrow("algnerrc", ALGNERRC),
    narrow("symerrs", SYMERRS),
    narrow("rxerrc", RXERRC),
    narrow("mpc", MPC),
    narrow("scc", SCC),
    narrow("ecol", ECOL),
    narrow("mcc", MCC),
    narrow("latecol", LATECOL),
    narrow("colc", COLC),
    narrow("dc", DC),
    narrow("tncrs", TNCRS),
    narrow("sec", SEC),
    narrow("cexterr", CEXTERR),
    narrow("rlec", RLEC),
    narrow("xonrxc", XONRXC),
    narrow("xontxc", XONTXC),
    narrow("xoffrxc", XOFFRXC),
    narrow("xofftxc", XOFFTXC),
    narrow("fcruc", FCRUC),
    narrow("prc64", PRC64),
    narrow("prc127", PRC127),
    narrow("prc255", PRC255),
    narrow("prc511", PRC511),
    narrow("prc1023", PRC1023),
    narrow("prc1522", PRC1522),
    narrow("gprc", GPRC),
    narrow("bprc", BPRC),
    narrow("mprc", MPRC),
    narrow("gptc", GPTC),
    wide("gorc", GORCL),
    wide("gotc", GOTCL),
    narrow("rnbc", RNBC),
    narrow("ruc", RUC),
    narrow("rfc", RFC),
    narrow("roc", ROC),
    narrow("rjc", RJC),
    narrow("mgtprc", MGTPRC),
    narrow("mgtpdc", MGTPDC),
    narrow("mgtptc", MGTPTC),
    wide("tor", TORL),
    wide("tot", TOTL),
    narrow("tpr", TPR),
    narrow("tpt", TPT),
    narrow("ptc64", PTC64),
    narrow("ptc127", PTC127),
    narrow("ptc255", PTC255),
    narrow("ptc511", PTC511),
    narrow("ptc1023", PTC1023),
    narrow("ptc1522", PTC1522),
    narrow("mptc", MPTC),
    narrow("bptc", BPTC),
    narrow("tsctc", TSCTC),
    narrow("tsctfc", TSCTFC),
];
