//! The order in which Linux's drivers give registers to `ethtool -d` (`e1000_get_regs` and `igb_get_regs`): what
//! `ethtool -d DEV file FILE` decodes.

use control::{Register, Registers};

/// From a word of the dump on: a register, its first element that is there, and how many.
struct Words(usize, &'static str, u32, usize);

/// A driver's dump.
struct Layout {
    models: &'static [&'static str],
    words: usize,
    places: &'static [Words],
}

/// Words 12 to 25 are of the PHY, which has no registers here; the driver's 0 at 12 says that it is an M88.
const E1000: Layout = Layout {
    models: &["e1000", "82545em", "82544gc"],
    words: 32,
    places: &[
        Words(0, "CTRL", 0, 1),
        Words(1, "STATUS", 0, 1),
        Words(2, "RCTL", 0, 1),
        Words(3, "RDLEN", 0, 1),
        Words(4, "RDH", 0, 1),
        Words(5, "RDT", 0, 1),
        Words(6, "RDTR", 0, 1),
        Words(7, "TCTL", 0, 1),
        Words(8, "TDLEN", 0, 1),
        Words(9, "TDH", 0, 1),
        Words(10, "TDT", 0, 1),
        Words(11, "TIDV", 0, 1),
        Words(26, "MANC", 0, 1),
    ],
};

/// The driver gives sums of the statistics that it has read; here they are what the registers show. Registers that the
/// 82576 does not have (PBA, PBS) and flexible filters are 0.
const IGB: Layout = Layout {
    models: &["82576"],
    words: 739,
    places: IGB_PLACES,
};

#[rustfmt::skip]
const IGB_PLACES: &[Words] = &[
    Words(0, "CTRL", 0, 1), Words(1, "STATUS", 0, 1), Words(2, "CTRL_EXT", 0, 1), Words(3, "MDIC", 0, 1),
    Words(4, "SERDESCTL", 0, 1), Words(5, "CONNSW", 0, 1), Words(6, "VET", 0, 1), Words(7, "LEDCTL", 0, 1),
    Words(10, "FRTIMER", 0, 1), Words(11, "TCPTIMER", 0, 1), Words(12, "EECD", 0, 1),
    // Causes as the driver reads them, so that none is acknowledged.
    Words(13, "EICS", 0, 1), Words(14, "EICS", 0, 1), Words(15, "EIMS", 0, 1), Words(16, "EIMC", 0, 1),
    Words(17, "EIAC", 0, 1), Words(18, "EIAM", 0, 1), Words(19, "ICS", 0, 1), Words(20, "ICS", 0, 1),
    Words(21, "IMS", 0, 1), Words(22, "IMC", 0, 1), Words(23, "IAC", 0, 1), Words(24, "IAM", 0, 1),
    Words(25, "IMIRVP", 0, 1),
    Words(26, "FCAL", 0, 1), Words(27, "FCAH", 0, 1), Words(28, "FCTTV", 0, 1), Words(29, "FCRTL0", 0, 1),
    Words(30, "FCRTH0", 0, 1), Words(31, "FCRTV", 0, 1),
    Words(32, "RCTL", 0, 1), Words(33, "RXCSUM", 0, 1), Words(34, "RLPML", 0, 1), Words(35, "RFCTL", 0, 1),
    Words(36, "MRQC", 0, 1), Words(37, "VT_CTL", 0, 1),
    Words(38, "TCTL", 0, 1), Words(39, "TCTL_EXT", 0, 1), Words(40, "TIPG", 0, 1), Words(41, "DTXCTL", 0, 1),
    Words(42, "WUC", 0, 1), Words(43, "WUFC", 0, 1), Words(44, "WUS", 0, 1), Words(45, "IPAV", 0, 1),
    Words(46, "WUPL", 0, 1),
    Words(47, "PCS_CFG", 0, 1), Words(48, "PCS_LCTL", 0, 1), Words(49, "PCS_LSTS", 0, 1), Words(50, "PCS_ANADV", 0, 1),
    Words(51, "PCS_LPAB", 0, 1), Words(52, "PCS_NPTX", 0, 1), Words(53, "PCS_LPABNP", 0, 1),
    Words(54, "CRCERRS", 0, 1), Words(55, "ALGNERRC", 0, 1), Words(56, "SYMERRS", 0, 1), Words(57, "RXERRC", 0, 1),
    Words(58, "MPC", 0, 1), Words(59, "SCC", 0, 1), Words(60, "ECOL", 0, 1), Words(61, "MCC", 0, 1),
    Words(62, "LATECOL", 0, 1), Words(63, "COLC", 0, 1), Words(64, "DC", 0, 1), Words(65, "TNCRS", 0, 1),
    Words(67, "HTDPMC", 0, 1), Words(68, "RLEC", 0, 1), Words(69, "XONRXC", 0, 1), Words(70, "XONTXC", 0, 1),
    Words(71, "XOFFRXC", 0, 1), Words(72, "XOFFTXC", 0, 1), Words(73, "FCRUC", 0, 1),
    Words(74, "PRC64", 0, 1), Words(75, "PRC127", 0, 1), Words(76, "PRC255", 0, 1), Words(77, "PRC511", 0, 1),
    Words(78, "PRC1023", 0, 1), Words(79, "PRC1522", 0, 1), Words(80, "GPRC", 0, 1), Words(81, "BPRC", 0, 1),
    Words(82, "MPRC", 0, 1), Words(83, "GPTC", 0, 1), Words(84, "GORCL", 0, 1), Words(86, "GOTCL", 0, 1),
    Words(88, "RNBC", 0, 1), Words(89, "RUC", 0, 1), Words(90, "RFC", 0, 1), Words(91, "ROC", 0, 1),
    Words(92, "RJC", 0, 1), Words(93, "MNGPRC", 0, 1), Words(95, "MNGPTC", 0, 1),
    Words(96, "TORL", 0, 1), Words(98, "TOTL", 0, 1), Words(100, "TPR", 0, 1), Words(101, "TPT", 0, 1),
    Words(102, "PTC64", 0, 1), Words(103, "PTC127", 0, 1), Words(104, "PTC255", 0, 1), Words(105, "PTC511", 0, 1),
    Words(106, "PTC1023", 0, 1), Words(107, "PTC1522", 0, 1), Words(108, "MPTC", 0, 1), Words(109, "BPTC", 0, 1),
    Words(110, "TSCTC", 0, 1), Words(111, "IAC", 0, 1), Words(112, "RPTHC", 0, 1), Words(113, "HGPTC", 0, 1),
    Words(114, "HGORCL", 0, 1), Words(116, "HGOTCL", 0, 1), Words(118, "LENERRS", 0, 1), Words(119, "SCVPC", 0, 1),
    // Of the first four queues; the other twelve come last.
    Words(121, "SRRCTL", 0, 4), Words(125, "PSRTYPE", 0, 4), Words(129, "RDBAL", 0, 4), Words(133, "RDBAH", 0, 4),
    Words(137, "RDLEN", 0, 4), Words(141, "RDH", 0, 4), Words(145, "RDT", 0, 4), Words(149, "RXDCTL", 0, 4),
    Words(153, "EITR", 0, 10), Words(163, "IMIR", 0, 8), Words(171, "IMIREXT", 0, 8), Words(179, "RAL", 0, 16),
    Words(195, "RAH", 0, 16),
    Words(211, "TDBAL", 0, 4), Words(215, "TDBAH", 0, 4), Words(219, "TDLEN", 0, 4), Words(223, "TDH", 0, 4),
    Words(227, "TDT", 0, 4), Words(231, "TXDCTL", 0, 4), Words(235, "TDWBAL", 0, 4), Words(239, "TDWBAH", 0, 4),
    Words(243, "DCA_TXCTRL", 0, 4),
    Words(247, "IP4AT", 0, 4), Words(251, "IP6AT", 0, 4), Words(255, "WUPM", 0, 32),
    Words(547, "TDFH", 0, 1), Words(548, "TDFT", 0, 1), Words(549, "TDFHS", 0, 1), Words(550, "TDFPC", 0, 1),
    Words(555, "SRRCTL", 4, 12), Words(567, "PSRTYPE", 4, 4), Words(571, "RDBAL", 4, 12), Words(583, "RDBAH", 4, 12),
    Words(595, "RDLEN", 4, 12), Words(607, "RDH", 4, 12), Words(619, "RDT", 4, 12), Words(631, "RXDCTL", 4, 12),
    Words(643, "TDBAL", 4, 12), Words(655, "TDBAH", 4, 12), Words(667, "TDLEN", 4, 12), Words(679, "TDH", 4, 12),
    Words(691, "TDT", 4, 12), Words(703, "TXDCTL", 4, 12), Words(715, "TDWBAL", 4, 12), Words(727, "TDWBAH", 4, 12),
];

/// A NIC's registers as its driver would have given them. `None`: no driver's order is known.
pub(super) fn dump(registers: &Registers) -> Option<Vec<u8>> {
    let of_model = |layout: &&Layout| layout.models.contains(&registers.model.as_str());
    let layout = [&E1000, &IGB].into_iter().find(of_model)?;
    // A VF has another driver, which gives others.
    let all = &registers.registers;
    all.iter().find(|register| register.name == "CTRL")?;
    let mut words = vec![0u32; layout.words];
    for Words(at, name, first, count) in layout.places {
        let elements = (*first..).zip(words.iter_mut().skip(*at).take(*count));
        for (element, word) in elements {
            let is = |r: &&Register| r.name == *name && r.element.unwrap_or(0) == element;
            *word = all.iter().find(is).map_or(0, |register| register.value);
        }
    }
    Some(words.into_iter().flat_map(u32::to_le_bytes).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_word_has_two_registers_and_none_is_beyond_the_end() {
        for layout in [&E1000, &IGB] {
            let mut taken = BTreeSet::new();
            for Words(at, name, _, count) in layout.places {
                for word in *at..at + count {
                    assert!(
                        word < layout.words && taken.insert(word),
                        "{name} at {word}"
                    );
                }
            }
        }
    }

    /// A name that the model does not have would be a 0 for ever.
    #[test]
    fn each_register_of_a_layout_is_one_of_the_models() {
        let tables = [
            (&E1000, e1000::regs::REGISTERS),
            (&IGB, igb::regs::REGISTERS),
        ];
        for (layout, table) in tables {
            for Words(_, name, first, count) in layout.places {
                let there = table.iter().find(|register| register.name == *name);
                let there = there.unwrap_or_else(|| panic!("no register {name}"));
                assert!(first + *count as u32 <= there.count, "{name}");
            }
        }
    }
}
