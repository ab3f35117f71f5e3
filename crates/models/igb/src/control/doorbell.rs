//! Which registers of a function may be memory shared with its guest: the two pages at 2000h and
//! 3000h, where drivers write the registers of the first four queues (driver `igb/e1000_regs.h`,
//! `E1000_TDT` and its like) and a VF has all of its own. Queues 4 to 15 of a PF, at C000h and E000h,
//! stay accesses.
//!
//! What a driver loses with it: a register that cuts what is written (RDBAL, RDLEN) reads back cut
//! only when the device has looked, so that the register test of `ethtool -t` finds it wrong; and
//! what clears by reading (RQDPC, WVBR, LVMMC) reads 0. RTTBCNRC stands for the queue in RTTDQSEL: of
//! rates stored for several queues between two looks only the last would arrive. A PF's driver sets the
//! rates of its VFs so (driver `igb_set_vf_rate_limit`), and for such a PF the page at 3000h stays
//! accesses.

use std::ops::Range;

use intel::doorbell::{self, Queues};
use model::Doorbells;

use crate::core::function::Function;
use crate::regs::BAR_MMIO;
use crate::regs::bits::xdctl;

const RECEIVE: (u32, u32) = (0x2000, 0x1000);
const TRANSMIT: (u32, u32) = (0x3000, 0x1000);

/// CTRL and its second address: their RST bit resets the queues.
const CTRL: Range<u32> = 0..8;

/// The registers of `function` on the two pages, or on the first if it `controls_vfs`.
pub(crate) fn layout(function: &Function, controls_vfs: bool) -> Doorbells {
    let mut pages = vec![RECEIVE];
    if !controls_vfs {
        pages.push(TRANSMIT);
    }
    let ids = function.ids;
    let receive = Queues {
        setup: &[ids.rdbal, ids.rdbah, ids.rdlen, ids.srrctl, ids.rxctl],
        head: ids.rdh,
        enable: (ids.rxdctl, xdctl::ENABLE),
        tail: ids.rdt,
    };
    let transmit = Queues {
        setup: &[
            ids.tdbal, ids.tdbah, ids.tdlen, ids.tdwbal, ids.tdwbah, ids.txctl,
        ],
        head: ids.tdh,
        enable: (ids.txdctl, xdctl::ENABLE),
        tail: ids.tdt,
    };
    let table = function.file.table();
    doorbell::layout(table, BAR_MMIO, pages, [receive, transmit], CTRL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::function::FunctionKind;
    use crate::core::queue::QUEUES_OF_PAGE;
    use crate::regs as r;
    use crate::regs::PF_QUEUES;

    #[test]
    fn the_pages_hold_what_a_driver_writes_of_four_queues() {
        let function = Function::new(FunctionKind::Pf, r::table(), &r::QUEUES, PF_QUEUES, true);
        let layout = layout(&function, false);
        assert!(layout.valid());
        assert_eq!(layout.queues.len(), 2 * QUEUES_OF_PAGE as usize);
        let (rx, tx) = (&layout.queues[1], &layout.queues[4 + 3]);
        assert_eq!((rx.head, rx.enable.0, rx.tail), (0x2910, 0x2928, 0x2918));
        assert_eq!((tx.head, tx.enable.0, tx.tail), (0x3b10, 0x3b28, 0x3b18));
        assert_eq!(rx.setup, [0x2900, 0x2904, 0x2908, 0x290c, 0x2914]);
        assert_eq!(tx.setup, [0x3b00, 0x3b04, 0x3b08, 0x3b14, 0x3b38, 0x3b3c]);
        // Whatever else keeps what is written is memory too; the rest is told in this module's head.
        let known: Vec<u32> = layout.registers().collect();
        let mut lost = Vec::new();
        for at in (0x2000..0x4000).step_by(4) {
            if let Some(found) = function.file.table().find(at)
                && !known.contains(&at)
            {
                lost.push(function.file.table().register(found.id).name);
            }
        }
        lost.dedup();
        assert_eq!(lost, ["FCSTS0", "RQDPC", "LVMMC", "WVBR"]);
        for at in [0, 0x2818, 0x3b18, 0xc018, 0xe0d8] {
            assert!(layout.touches(at), "{at:#x}");
        }
        for at in [0x1524, 0xc118, 0xe3d8] {
            assert!(!layout.touches(at), "{at:#x}");
        }
    }
    #[test]
    fn a_pf_with_vfs_sets_their_rates_by_accesses() {
        let function = Function::new(FunctionKind::Pf, r::table(), &r::QUEUES, PF_QUEUES, true);
        let layout = layout(&function, true);
        assert!(layout.valid());
        assert_eq!(layout.pages, [RECEIVE]);
        assert_eq!(layout.queues.len(), 4);
        let rates = [r::RTTDQSEL, r::RTTBCNRC].map(|id| r::table().register(id).offset);
        assert!(layout.registers().all(|at| !rates.contains(&at)));
    }
}
