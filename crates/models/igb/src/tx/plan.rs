//! What the registers say to the transmitter, worked out once per generation of the set-up.

use intel::RingPlace;
use intel::tx::Settings;

use crate::core::function::{Function, FunctionKind};
use crate::regs::bits::tdwbal;

/// What they say about a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TxPlan {
    /// It may send.
    pub on: bool,
    /// Its packets may go in runs.
    pub plain: bool,
    pub place: RingPlace,
    pub settings: Settings,
    /// The pool that sends, if others of the PF may want what it sends.
    pub looks_inside: Option<u32>,
    /// Where the head is written to, in place of a bit in each descriptor (TDWBAL).
    pub head_to: Option<u64>,
}

impl TxPlan {
    #[cold]
    pub(crate) fn make(function: &Function, queue: u32) -> TxPlan {
        let (file, ids) = (&function.file, function.ids);
        let of_all = function.settings();
        let settings = of_all.of_queue(file, queue);
        let looks_inside = match function.kind {
            FunctionKind::Pf => of_all.looks_inside(file, queue),
            FunctionKind::Vf(_) => None,
        };
        let low = file.get_at(ids.tdwbal, queue);
        let high = file.get_at(ids.tdwbah, queue);
        let head_to = u64::from(high) << 32 | u64::from(low & tdwbal::ADDRESS);
        // Those that get a tag are not plain.
        let plain = function.fast_path && settings.tag.is_none();
        TxPlan {
            on: function.tx_enabled(queue) && of_all.pool_sends(file, queue),
            plain: plain && looks_inside.is_none(),
            place: RingPlace::of(file, &ids.tx_ring(), queue),
            settings: Settings {
                pad: settings.pad,
                vlan: settings.insert_vlan.then_some(settings.vet),
                tag: settings.tag.map(|tci| (settings.vet, tci)),
                fast_path: plain,
                ..Settings::default()
            },
            looks_inside,
            head_to: (low & tdwbal::HEAD_WB != 0).then_some(head_to),
        }
    }
}
