//! The registers that may be memory shared with the guest: the pages at 2000h and 3000h, with both rings.
//!
//! RCTL.EN and TCTL.EN, which switch the rings on, are elsewhere and stay accesses, as do all registers that clear by reading. What
//! differs for a driver is in `docs/design/doorbells.md`.

use std::ops::Range;

use intel::doorbell::{self, Queues};
use model::Doorbells;

use crate::regs as r;
use crate::regs::bits::{rctl, tctl};
use crate::regs::variant::BAR_MMIO;

const PAGES: [(u32, u32); 2] = [(0x2000, 0x1000), (0x3000, 0x1000)];

/// CTRL and its second address: their RST bit resets the rings.
const CTRL: Range<u32> = 0..8;

pub(crate) fn layout() -> Doorbells {
    let receive = Queues {
        setup: &[r::RDBAL, r::RDBAH, r::RDLEN],
        head: r::RDH,
        enable: (r::RCTL, rctl::EN),
        tail: r::RDT,
    };
    let transmit = Queues {
        setup: &[r::TDBAL, r::TDBAH, r::TDLEN],
        head: r::TDH,
        enable: (r::TCTL, tctl::EN),
        tail: r::TDT,
    };
    doorbell::layout(
        &r::table(),
        BAR_MMIO,
        PAGES.to_vec(),
        [receive, transmit],
        CTRL,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_hold_both_rings_and_nothing_that_reading_changes() {
        let layout = layout();
        assert!(layout.valid());
        let [rx, tx] = &layout.queues[..] else {
            panic!("two rings");
        };
        assert_eq!(rx.setup, [0x2800, 0x2804, 0x2808]);
        assert_eq!(
            (rx.head, rx.enable, rx.tail),
            (0x2810, (0x100, rctl::EN), 0x2818)
        );
        assert_eq!(tx.setup, [0x3800, 0x3804, 0x3808]);
        assert_eq!(
            (tx.head, tx.enable, tx.tail),
            (0x3810, (0x400, tctl::EN), 0x3818)
        );
        // Every register of the pages is memory, and none has an effect when it is read.
        let known: Vec<u32> = layout.registers().collect();
        for at in (0x2000..0x4000).step_by(4) {
            assert_eq!(
                r::table().find(at).is_some(),
                known.contains(&at),
                "{at:#x}"
            );
        }
        assert_eq!(known.len(), 33);
        // Resets, what switches the rings, and the places of the 82542.
        for at in [
            0, 4, 0x100, 0x108, 0x110, 0x128, 0x160, 0x400, 0x420, 0x438, 0x440, 0x8000,
        ] {
            assert!(layout.touches(at), "{at:#x}");
        }
        for at in [0x08, 0xc0, 0xd0, 0x178, 0x458, 0x1000, 0x4000, 0x5400] {
            assert!(!layout.touches(at), "{at:#x}");
        }
    }
}
