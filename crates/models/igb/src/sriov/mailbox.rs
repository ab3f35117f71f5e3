//! The mailbox between a VF and its PF (datasheet §7.10.2.9.1, §8.14.2 to §8.14.6).
//!
//! Sixteen words that both sides may write, two bits that say which side has them, and bits by which each
//! side tells the other. Ownership is advice, as in the chip: a VF that writes without it harms only
//! its own messages.

/// Words of VMBMEM.
pub const WORDS: usize = 16;

/// Bits of V2PMAILBOX, as the VF sees the mailbox (§8.14.2).
pub(crate) mod v2p {
    /// Written: there is a message for the PF.
    pub const REQ: u32 = 1 << 0;
    /// Written: the PF's message was read.
    pub const ACK: u32 = 1 << 1;
    /// The buffer is the VF's.
    pub const VFU: u32 = 1 << 2;
    /// The buffer is the PF's.
    pub const PFU: u32 = 1 << 3;
    /// The PF has written a message. Cleared by reading.
    pub const PFSTS: u32 = 1 << 4;
    /// The PF has read the VF's message. Cleared by reading.
    pub const PFACK: u32 = 1 << 5;
    /// The PF is in reset.
    pub const RSTI: u32 = 1 << 6;
    /// The PF has come out of reset. Cleared by reading.
    pub const RSTD: u32 = 1 << 7;
}

/// Bits of P2VMAILBOX, as the PF sees it (§8.14.3).
pub(crate) mod p2v {
    /// Written: there is a message for the VF.
    pub const STS: u32 = 1 << 0;
    /// Written: the VF's message was read.
    pub const ACK: u32 = 1 << 1;
    /// The buffer is the VF's.
    pub const VFU: u32 = 1 << 2;
    /// The buffer is the PF's.
    pub const PFU: u32 = 1 << 3;
    /// Written: takes the buffer away from the VF.
    pub const RVFU: u32 = 1 << 4;
}

/// What a VF's write to V2PMAILBOX means for the other side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rung {
    /// There is a message.
    pub request: bool,
    /// A message was read.
    pub acknowledged: bool,
    /// The buffer is free now, and was not.
    pub freed: bool,
}

/// Bits of one VF in MBVFICR (§8.14).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Causes {
    /// VFREQ: the VF has sent a message.
    pub request: bool,
    /// VFACK: it has read one.
    pub acknowledged: bool,
}

/// The mailbox of one VF.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mailbox {
    pub(crate) memory: [u32; WORDS],
    /// VFU, PFU, PFSTS, PFACK, RSTI, RSTD, where V2PMAILBOX has them.
    pub(crate) bits: u32,
    /// What the PF has not been told of: the VF's bit of MBVFICR's two halves, and of VFLRE.
    pub(crate) request: bool,
    pub(crate) acknowledged: bool,
    pub(crate) reset: bool,
    /// The VF has not been told of PFSTS or PFACK.
    pub(crate) interrupt: bool,
}

impl Mailbox {
    /// A word of the memory, as either side reads it.
    pub fn word(&self, at: u32) -> u32 {
        self.memory.get(at as usize).copied().unwrap_or(0)
    }

    /// The same, written.
    pub fn set_word(&mut self, at: u32, value: u32) {
        if let Some(word) = self.memory.get_mut(at as usize) {
            *word = value;
        }
    }

    /// The VF reads V2PMAILBOX.
    pub(crate) fn vf_read(&mut self) -> u32 {
        let value = self.bits;
        self.bits &= !(v2p::PFSTS | v2p::PFACK | v2p::RSTD);
        value
    }

    /// V2PMAILBOX, with nothing cleared.
    pub(crate) fn vf_peek(&self) -> u32 {
        self.bits
    }

    /// The VF writes V2PMAILBOX.
    pub(crate) fn vf_write(&mut self, value: u32) -> Rung {
        let had = self.bits & v2p::VFU != 0;
        if value & v2p::VFU == 0 {
            self.bits &= !v2p::VFU;
        } else if self.bits & v2p::PFU == 0 {
            self.bits |= v2p::VFU;
        }
        let rung = Rung {
            request: value & v2p::REQ != 0,
            acknowledged: value & v2p::ACK != 0,
            freed: had && self.bits & v2p::VFU == 0,
        };
        self.request |= rung.request;
        self.acknowledged |= rung.acknowledged;
        rung
    }

    /// The VF was reset: its buffer is free, and it sees whether its PF is up.
    pub(crate) fn vf_reset(&mut self) {
        let rsti = self.bits & v2p::RSTI;
        *self = Mailbox {
            bits: if rsti == 0 { v2p::RSTD } else { rsti },
            reset: true,
            ..Mailbox::default()
        };
    }

    /// Whether the VF's mailbox interrupt is due, once.
    pub(crate) fn take_interrupt(&mut self) -> bool {
        std::mem::take(&mut self.interrupt)
    }

    /// The PF reads P2VMAILBOX.
    pub fn pf_read(&self) -> u32 {
        let has = |bit, shown| if self.bits & bit != 0 { shown } else { 0 };
        has(v2p::VFU, p2v::VFU) | has(v2p::PFU, p2v::PFU)
    }

    /// The PF writes P2VMAILBOX.
    pub fn pf_write(&mut self, value: u32) {
        if value & p2v::STS != 0 {
            self.bits |= v2p::PFSTS;
            self.interrupt = true;
        }
        if value & p2v::ACK != 0 {
            self.bits |= v2p::PFACK;
            self.interrupt = true;
        }
        if value & p2v::RVFU != 0 {
            self.bits &= !v2p::VFU;
            self.request = false;
            self.acknowledged = false;
        }
        if value & p2v::PFU == 0 {
            self.bits &= !v2p::PFU;
        } else if self.bits & v2p::VFU == 0 {
            self.bits |= v2p::PFU;
        }
    }

    /// The PF goes into reset, or has come out of it (CTRL_EXT.PFRSTD).
    pub fn set_pf_reset(&mut self, active: bool) {
        if active {
            self.bits = self.bits & !v2p::RSTD | v2p::RSTI;
        } else if self.bits & v2p::RSTI != 0 {
            self.bits = self.bits & !v2p::RSTI | v2p::RSTD;
        }
    }

    /// The PF is reset, and its side of the mailbox with it.
    pub(crate) fn pf_restart(&mut self) {
        self.bits &= !v2p::PFU;
        (self.request, self.acknowledged, self.reset) = (false, false, false);
        self.set_pf_reset(true);
    }

    /// The words as they are.
    pub(crate) fn words(&self) -> [u32; WORDS] {
        self.memory
    }

    /// This VF's bits of MBVFICR.
    pub fn pf_causes(&self) -> Causes {
        Causes {
            request: self.request,
            acknowledged: self.acknowledged,
        }
    }

    /// MBVFICR is written with ones for this VF.
    pub fn pf_clear(&mut self, causes: Causes) {
        self.request &= !causes.request;
        self.acknowledged &= !causes.acknowledged;
    }

    /// This VF's bit of VFLRE: it was reset.
    pub fn pf_reset_seen(&self) -> bool {
        self.reset
    }

    /// VFLRE is written with a one for this VF.
    pub fn pf_clear_reset(&mut self) {
        self.reset = false;
    }

    /// The PF takes the message: all of it, copied once. The VF sees that it was read.
    pub fn take(&mut self) -> [u32; WORDS] {
        self.request = false;
        self.memory
    }

    /// The PF has read the message.
    pub fn acknowledge(&mut self) {
        self.pf_write(p2v::ACK | self.pf_read() & p2v::PFU);
    }

    /// The PF puts a message into the first words. `false` when the VF has the buffer.
    pub fn put(&mut self, words: &[u32]) -> bool {
        if self.bits & v2p::VFU != 0 {
            return false;
        }
        for (word, value) in self.memory.iter_mut().zip(words) {
            *word = *value;
        }
        self.pf_write(p2v::STS);
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_question_and_its_answer_as_igbvf_and_igb_exchange_them() {
        let mut mailbox = Mailbox::default();
        // The VF takes the buffer, fills it, and lets it go with its request.
        mailbox.vf_write(v2p::VFU);
        assert_eq!(mailbox.vf_read() & v2p::VFU, v2p::VFU);
        assert!(!mailbox.put(&[1]), "not into the VF's hands");
        mailbox.set_word(0, 1);
        let rung = mailbox.vf_write(v2p::REQ);
        assert!(rung.request && rung.freed && !rung.acknowledged);
        let request = Causes {
            request: true,
            ..Causes::default()
        };
        assert_eq!(mailbox.pf_causes(), request);
        // The PF reads.
        mailbox.pf_clear(request);
        mailbox.pf_write(p2v::PFU);
        assert_eq!(mailbox.pf_read(), p2v::PFU);
        mailbox.vf_write(v2p::VFU);
        assert_eq!(mailbox.vf_read(), v2p::PFU, "the VF cannot take it now");
        assert_eq!(mailbox.take()[0], 1);
        mailbox.pf_write(p2v::ACK);
        assert!(mailbox.take_interrupt() && !mailbox.take_interrupt());
        assert_eq!(mailbox.vf_read(), v2p::PFACK);
        assert_eq!(mailbox.vf_read(), 0, "cleared by reading");
        // And answers.
        assert!(mailbox.put(&[7, 8]));
        assert!(mailbox.take_interrupt());
        assert_eq!(mailbox.vf_read(), v2p::PFSTS);
        assert_eq!((mailbox.word(1), mailbox.word(99)), (8, 0));
        assert!(mailbox.vf_write(v2p::ACK).acknowledged);
        let acknowledged = Causes {
            acknowledged: true,
            ..Causes::default()
        };
        assert_eq!(mailbox.pf_causes(), acknowledged);
        // The PF takes the buffer from a VF that keeps it.
        mailbox.vf_write(v2p::VFU);
        mailbox.pf_write(p2v::RVFU);
        assert_eq!(
            (mailbox.pf_read(), mailbox.pf_causes()),
            (0, Causes::default())
        );
    }

    #[test]
    fn resets_are_seen_by_either_side() {
        let mut mailbox = Mailbox::default();
        mailbox.vf_write(v2p::VFU | v2p::REQ);
        mailbox.vf_reset();
        assert!(mailbox.pf_reset_seen() && mailbox.pf_causes() == Causes::default());
        assert_eq!(mailbox.vf_read(), v2p::RSTD);
        assert_eq!(mailbox.vf_read(), 0);
        mailbox.pf_clear_reset();
        mailbox.set_pf_reset(true);
        mailbox.vf_reset();
        assert_eq!([mailbox.vf_read(), mailbox.vf_read()], [v2p::RSTI; 2]);
        mailbox.set_pf_reset(false);
        assert_eq!([mailbox.vf_read(), mailbox.vf_read()], [v2p::RSTD, 0]);
        mailbox.set_pf_reset(false);
        assert_eq!(mailbox.vf_read(), 0, "nothing has changed");
    }

    proptest! {
        #[test]
        fn the_buffer_is_never_both_sides(
            writes in proptest::collection::vec((any::<bool>(), 0..256u32), 0..100)
        ) {
            let mut mailbox = Mailbox::default();
            for (vf, value) in writes {
                if vf {
                    mailbox.vf_write(value);
                } else {
                    mailbox.pf_write(value);
                }
                let bits = mailbox.bits & (v2p::VFU | v2p::PFU);
                prop_assert!(bits != v2p::VFU | v2p::PFU);
                prop_assert!(mailbox.vf_read() & (v2p::REQ | v2p::ACK) == 0);
            }
        }
    }
}
