//! The mailbox as plain data.

use crate::sriov::mailbox::{Mailbox, v2p};
use crate::state::{StateError, check, vf as state};

/// Bits of V2PMAILBOX that are kept.
const KEPT: u32 = v2p::VFU | v2p::PFU | v2p::PFSTS | v2p::PFACK | v2p::RSTI | v2p::RSTD;

intel::mirrored!(Mailbox as state::Mailbox {
    memory, bits, request, acknowledged, reset, interrupt,
});

impl Mailbox {
    pub(crate) fn load(state: &state::Mailbox) -> Result<Mailbox, StateError> {
        let bits = state.bits;
        check(bits & !KEPT == 0, "mailbox.bits", bits, "no such bits")?;
        for (both, why) in [
            (v2p::VFU | v2p::PFU, "the buffer is of one side only"),
            (v2p::RSTI | v2p::RSTD, "a reset has ended or has not"),
        ] {
            check(bits & both != both, "mailbox.bits", bits, why)?;
        }
        Ok(Mailbox::of_saved(state))
    }
}
