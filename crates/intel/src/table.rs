//! The registers that Intel's NICs have in common.

/// A model's register table, as [`regs::registers!`] writes it: with the registers that all chips have. A row is as
/// there, but for its section, of which there are two: in the 8254x manual and in the 82576 datasheet; the string behind
/// the visibility says which the chip goes by. Values are those of the 8254x; what another chip has otherwise stands in
/// `differs`. Rows of the chip's own follow, and come first in the table. The kinds of access (`RC`, `RO`, `RW`,
/// `W1C` and the long names of others), and the statuses `YES`, `Stored`, `NO_DIAG`, `NO_EVENT` and `NO_MANAGEMENT`, are
/// names the caller has in scope.
#[macro_export]
macro_rules! registers {
    (@of "8254x", $vis:vis, { $($own:tt)* } $($id:ident $offset:literal $([$($array:tt)*])? $access:ident
       $reset:literal $mask:literal [$section:literal $other:literal] $status:ident $(($why:literal))?;)*) => {
        $crate::regs::registers! { $vis, $($own)* $(
            $id $offset $([$($array)*])? $access $reset $mask $section $status $(($why))?;
        )* }
    };
    (@of "82576", $vis:vis, { $($own:tt)* } $($id:ident $offset:literal $([$($array:tt)*])? $access:ident
       $reset:literal $mask:literal [$other:literal $section:literal] $status:ident $(($why:literal))?;)*) => {
        $crate::regs::registers! { $vis, $($own)* $(
            $id $offset $([$($array)*])? $access $reset $mask $section $status $(($why))?;
        )* }
    };
    ($vis:vis, $manual:tt, $($own:tt)*) => {
        $crate::registers! { @of $manual, $vis, { $($own)* }
            CTRL     0x0000 RW 0x0000_0201 0xdbfc_3bed ["13.4.1" "8.2.1"] YES;
            STATUS   0x0008 RO 0x0000_0000 0x0000_0000 ["13.4.2" "8.2.2"] YES;
            EECD     0x0010 RW 0x0000_0100 0x0000_0077 ["13.4.3" "8.4.1"] YES;
            EERD     0x0014 Command 0x0000_0000 0x0000_0000 ["13.4.4" "8.4.2"] YES;
            CTRL_EXT 0x0018 RW 0x0000_0000 0x00c2_8fff ["13.4.6" "8.2.3"] Stored("no software-definable pins; EE_RST does reload the EEPROM");
            FLA      0x001c RW 0x0000_0000 0x0000_003f ["13.4.5" "8.4.3"] Stored("there is no flash memory");
            MDIC     0x0020 Command 0x0000_0000 0x0000_0000 ["13.4.7" "8.2.4"] YES;
            FCAL     0x0028 RW 0x0000_0000 0xffff_ffff ["13.4.8" "8.5.1"] YES;
            FCAH     0x002c RW 0x0000_0000 0x0000_ffff ["13.4.9" "8.5.2"] YES;
            FCT      0x0030 RW 0x0000_0000 0x0000_ffff ["13.4.10" "8.5.3"] YES;
            VET      0x0038 RW 0x0000_8100 0x0000_ffff ["13.4.11" "8.2.7"] YES;
            FCTTV    0x0170 RW 0x0000_0000 0x0000_ffff ["13.4.12" "8.5.4"] YES;
            LEDCTL   0x0e00 RW 0x0706_1302 0xcfcf_cfcf ["13.4.15" "8.2.8"] Stored("there is no LED to light");
            ICR      0x00c0 ReadClearWrite1Clear 0x0000_0000 0x0001_ffff ["13.4.17" "8.8.7"] YES;
            ICS      0x00c8 Write1Set 0x0000_0000 0x0001_ffff ["13.4.19" "8.8.8"] YES;
            IMS      0x00d0 Write1Set 0x0000_0000 0x0001_ffff ["13.4.20" "8.8.9"] YES;
            IMC      0x00d8 Write1Clear 0x0000_0000 0x0001_ffff ["13.4.21" "8.8.10"] YES;
            RCTL     0x0100 RW 0x0000_0000 0x06df_b3fe ["13.4.22" "8.10.1"] YES;
            FCRTL    0x2160 RW 0x0000_0000 0x8000_fff8 ["13.4.23" "8.5.5"] YES;
            FCRTH    0x2168 RW 0x0000_0000 0x8000_fff8 ["13.4.24" "8.5.6"] YES;
            RDBAL    0x2800 RW 0x0000_0000 0xffff_fff0 ["13.4.25" "8.10.5"] YES;
            RDBAH    0x2804 RW 0x0000_0000 0xffff_ffff ["13.4.26" "8.10.6"] YES;
            RDLEN    0x2808 RW 0x0000_0000 0x000f_ff80 ["13.4.27" "8.10.7"] YES;
            RDH      0x2810 RW 0x0000_0000 0x0000_ffff ["13.4.28" "8.10.8"] YES;
            RDT      0x2818 RW 0x0000_0000 0x0000_ffff ["13.4.29" "8.10.9"] YES;
            RXDCTL   0x2828 RW 0x0101_0000 0x013f_3f3f ["13.4.46" "8.10.10"] Stored("descriptors are fetched and written back per batch");
            TCTL     0x0400 RW 0x0000_0000 0x03bf_fffa ["13.4.33" "8.12.1"] YES;
            TIPG     0x0410 RW 0x0060_2008 0x3fff_ffff ["13.4.34" "8.12.3"] Stored("an emulated wire needs no gap between frames");
            TDBAL    0x3800 RW 0x0000_0000 0xffff_fff0 ["13.4.36" "8.12.9"] YES;
            TDBAH    0x3804 RW 0x0000_0000 0xffff_ffff ["13.4.37" "8.12.10"] YES;
            TDLEN    0x3808 RW 0x0000_0000 0x000f_ff80 ["13.4.38" "8.12.11"] YES;
            TDH      0x3810 RW 0x0000_0000 0x0000_ffff ["13.4.39" "8.12.12"] YES;
            TDT      0x3818 RW 0x0000_0000 0x0000_ffff ["13.4.40" "8.12.13"] YES;
            TXDCTL   0x3828 RW 0x0000_0000 0xff3f_3f3f ["13.4.43" "8.12.14"] YES;
            RXCSUM   0x5000 RW 0x0000_0000 0x0000_07ff ["13.4.47" "8.10.14"] YES;
            MTA      0x5200 [128 * 4] RW 0x0000_0000 0xffff_ffff ["13.5.1" "8.10.17"] YES;
            RAL      0x5400 [16 * 8] RW 0x0000_0000 0xffff_ffff ["13.5.2" "8.10.18"] YES;
            RAH      0x5404 [16 * 8] RW 0x0000_0000 0x8003_ffff ["13.5.3" "8.10.19"] YES;
            VFTA     0x5600 [128 * 4] RW 0x0000_0000 0xffff_ffff ["13.5.4" "8.10.20"] YES;
            WUC      0x5800 RW 0x0000_0000 0x8000_000f ["13.6.1" "8.20"] YES;
            WUFC     0x5808 RW 0x0000_0000 0x000f_80ff ["13.6.2" "8.20"] YES;
            WUS      0x5810 W1C 0x0000_0000 0x000f_00ff ["13.6.3" "8.20"] YES;
            IPAV     0x5838 RW 0x0000_0000 0x0001_000f ["13.6.4" "8.20"] YES;
            IP4AT    0x5840 [4 * 8] RW 0x0000_0000 0xffff_ffff ["13.6.5" "8.20"] YES;
            IP6AT    0x5880 [4 * 4] RW 0x0000_0000 0xffff_ffff ["13.6.6" "8.20"] YES;
            WUPL     0x5900 RO 0x0000_0000 0x0000_0000 ["13.6.7" "8.20"] YES;
            WUPM     0x5a00 [32 * 4] RO 0x0000_0000 0x0000_0000 ["13.6.8" "8.20"] YES;
            MGTPRC   0x40b4 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] NO_MANAGEMENT;
            MGTPDC   0x40b8 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] NO_MANAGEMENT;
            MGTPTC   0x40bc RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] NO_MANAGEMENT;
            RDFH     0x2410 RW 0x0000_0000 0x0000_1fff ["13.8.1" "8.24"] YES;
            RDFT     0x2418 RW 0x0000_0000 0x0000_1fff ["13.8.2" "8.24"] YES;
            RDFHS    0x2420 RW 0x0000_0000 0x0000_1fff ["13.8.3" "8.24"] YES;
            RDFTS    0x2428 RW 0x0000_0000 0x0000_1fff ["13.8.4" "8.24"] YES;
            RDFPC    0x2430 RW 0x0000_0000 0x0000_1fff ["13.8.5" "8.24"] YES;
            TDFH     0x3410 RW 0x0000_0000 0x0000_07ff ["13.8.6" "8.24"] NO_DIAG;
            TDFT     0x3418 RW 0x0000_0000 0x0000_07ff ["13.8.7" "8.24"] NO_DIAG;
            TDFHS    0x3420 RW 0x0000_0000 0x0000_1fff ["13.8.8" "8.24"] NO_DIAG;
            TDFTS    0x3428 RW 0x0000_0000 0x0000_1fff ["13.8.9" "8.24"] NO_DIAG;
            TDFPC    0x3430 RW 0x0000_0000 0x0000_1fff ["13.8.10" "8.24"] NO_DIAG;
            MANC     0x5820 RW 0x0000_0000 0xffff_ffff ["not in the summary; driver e1000_hw.h, E1000_MANC" "8.21"] NO_MANAGEMENT;
            SWSM     0x5b50 RW 0x0000_0000 0x0000_000f ["not in the summary; driver e1000_hw.c, e1000_get_software_semaphore" "8.7.1"] YES;
            CRCERRS  0x4000 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] NO_EVENT;
            ALGNERRC 0x4004 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] NO_EVENT;
            SYMERRS  0x4008 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] NO_EVENT;
            RXERRC   0x400c RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] NO_EVENT;
            MPC      0x4010 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            SCC      0x4014 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] NO_EVENT;
            ECOL     0x4018 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] NO_EVENT;
            MCC      0x401c RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] NO_EVENT;
            LATECOL  0x4020 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] NO_EVENT;
            COLC     0x4028 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] NO_EVENT;
            DC       0x4030 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] NO_EVENT;
            TNCRS    0x4034 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] NO_EVENT;
            RLEC     0x4040 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            XONRXC   0x4048 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            XONTXC   0x404c RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            XOFFRXC  0x4050 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            XOFFTXC  0x4054 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            FCRUC    0x4058 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            PRC64    0x405c RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            PRC127   0x4060 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            PRC255   0x4064 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            PRC511   0x4068 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            PRC1023  0x406c RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            PRC1522  0x4070 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            GPRC     0x4074 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            BPRC     0x4078 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            MPRC     0x407c RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            GPTC     0x4080 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            GORCL    0x4088 RO 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            GORCH    0x408c RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            GOTCL    0x4090 RO 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            GOTCH    0x4094 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            RNBC     0x40a0 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            RUC      0x40a4 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            RFC      0x40a8 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] NO_EVENT;
            ROC      0x40ac RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            RJC      0x40b0 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] NO_EVENT;
            TORL     0x40c0 RO 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            TORH     0x40c4 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            TOTL     0x40c8 RO 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            TOTH     0x40cc RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            TPR      0x40d0 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            TPT      0x40d4 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            PTC64    0x40d8 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            PTC127   0x40dc RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            PTC255   0x40e0 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            PTC511   0x40e4 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            PTC1023  0x40e8 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            PTC1522  0x40ec RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            MPTC     0x40f0 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            BPTC     0x40f4 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
            TSCTC    0x40f8 RC 0x0000_0000 0x0000_0000 ["13.7" "8.18"] YES;
        }
    };
}
