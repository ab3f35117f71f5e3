//! What the register tables of Intel's NICs have in common.

/// A model's register table, as [`regs::registers!`] writes it: with the statistics registers that all
/// chips count alike (8254x manual §13.7, 82576 datasheet §8.18), whose section in this chip's manual stands
/// behind `statistics`. They come after all others. The access kinds `RC` and `RO`, and the statuses `YES`,
/// `NO_EVENT` and `NO_MANAGEMENT`, are names the caller has in scope.
#[macro_export]
macro_rules! registers {
    ($vis:vis, statistics $section:literal, $($own:tt)*) => {
        $crate::regs::registers! { $vis, $($own)*
            CRCERRS  0x4000 RC 0x0000_0000 0x0000_0000 $section NO_EVENT;
            ALGNERRC 0x4004 RC 0x0000_0000 0x0000_0000 $section NO_EVENT;
            SYMERRS  0x4008 RC 0x0000_0000 0x0000_0000 $section NO_EVENT;
            RXERRC   0x400c RC 0x0000_0000 0x0000_0000 $section NO_EVENT;
            MPC      0x4010 RC 0x0000_0000 0x0000_0000 $section YES;
            SCC      0x4014 RC 0x0000_0000 0x0000_0000 $section NO_EVENT;
            ECOL     0x4018 RC 0x0000_0000 0x0000_0000 $section NO_EVENT;
            MCC      0x401c RC 0x0000_0000 0x0000_0000 $section NO_EVENT;
            LATECOL  0x4020 RC 0x0000_0000 0x0000_0000 $section NO_EVENT;
            COLC     0x4028 RC 0x0000_0000 0x0000_0000 $section NO_EVENT;
            DC       0x4030 RC 0x0000_0000 0x0000_0000 $section NO_EVENT;
            TNCRS    0x4034 RC 0x0000_0000 0x0000_0000 $section NO_EVENT;
            RLEC     0x4040 RC 0x0000_0000 0x0000_0000 $section YES;
            XONRXC   0x4048 RC 0x0000_0000 0x0000_0000 $section YES;
            XONTXC   0x404c RC 0x0000_0000 0x0000_0000 $section YES;
            XOFFRXC  0x4050 RC 0x0000_0000 0x0000_0000 $section YES;
            XOFFTXC  0x4054 RC 0x0000_0000 0x0000_0000 $section YES;
            FCRUC    0x4058 RC 0x0000_0000 0x0000_0000 $section YES;
            PRC64    0x405c RC 0x0000_0000 0x0000_0000 $section YES;
            PRC127   0x4060 RC 0x0000_0000 0x0000_0000 $section YES;
            PRC255   0x4064 RC 0x0000_0000 0x0000_0000 $section YES;
            PRC511   0x4068 RC 0x0000_0000 0x0000_0000 $section YES;
            PRC1023  0x406c RC 0x0000_0000 0x0000_0000 $section YES;
            PRC1522  0x4070 RC 0x0000_0000 0x0000_0000 $section YES;
            GPRC     0x4074 RC 0x0000_0000 0x0000_0000 $section YES;
            BPRC     0x4078 RC 0x0000_0000 0x0000_0000 $section YES;
            MPRC     0x407c RC 0x0000_0000 0x0000_0000 $section YES;
            GPTC     0x4080 RC 0x0000_0000 0x0000_0000 $section YES;
            GORCL    0x4088 RO 0x0000_0000 0x0000_0000 $section YES;
            GORCH    0x408c RC 0x0000_0000 0x0000_0000 $section YES;
            GOTCL    0x4090 RO 0x0000_0000 0x0000_0000 $section YES;
            GOTCH    0x4094 RC 0x0000_0000 0x0000_0000 $section YES;
            RNBC     0x40a0 RC 0x0000_0000 0x0000_0000 $section YES;
            RUC      0x40a4 RC 0x0000_0000 0x0000_0000 $section YES;
            RFC      0x40a8 RC 0x0000_0000 0x0000_0000 $section NO_EVENT;
            ROC      0x40ac RC 0x0000_0000 0x0000_0000 $section YES;
            RJC      0x40b0 RC 0x0000_0000 0x0000_0000 $section NO_EVENT;
            TORL     0x40c0 RO 0x0000_0000 0x0000_0000 $section YES;
            TORH     0x40c4 RC 0x0000_0000 0x0000_0000 $section YES;
            TOTL     0x40c8 RO 0x0000_0000 0x0000_0000 $section YES;
            TOTH     0x40cc RC 0x0000_0000 0x0000_0000 $section YES;
            TPR      0x40d0 RC 0x0000_0000 0x0000_0000 $section YES;
            TPT      0x40d4 RC 0x0000_0000 0x0000_0000 $section YES;
            PTC64    0x40d8 RC 0x0000_0000 0x0000_0000 $section YES;
            PTC127   0x40dc RC 0x0000_0000 0x0000_0000 $section YES;
            PTC255   0x40e0 RC 0x0000_0000 0x0000_0000 $section YES;
            PTC511   0x40e4 RC 0x0000_0000 0x0000_0000 $section YES;
            PTC1023  0x40e8 RC 0x0000_0000 0x0000_0000 $section YES;
            PTC1522  0x40ec RC 0x0000_0000 0x0000_0000 $section YES;
            MPTC     0x40f0 RC 0x0000_0000 0x0000_0000 $section YES;
            BPTC     0x40f4 RC 0x0000_0000 0x0000_0000 $section YES;
            TSCTC    0x40f8 RC 0x0000_0000 0x0000_0000 $section YES;
        }
    };
}
