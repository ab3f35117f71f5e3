//! The registers by which a PF rules VFs (§8.14), where it has an [`Hub`](crate::Hub) for it.

use model::Env;
use regs::Id;

use crate::control::Registers;
use crate::core::irq::Causes;
use crate::regs as r;
use crate::regs::PF_QUEUES;
use crate::regs::bits::{ctrl_ext, icr};
use crate::sriov::mailbox::{WORDS, p2v};

/// How often the rules are worked out before the accesses of a turn have ended. A driver reads, and
/// so waits for its turn to end, more often than it needs them; for one that changes them without end
/// they are worked out once more, at the end.
const AT_ONCE: u32 = 2;

/// What the rules of VFs follow from.
const RULES: [Id; 30] = [
    r::CTRL_EXT,
    r::RCTL,
    r::TCTL,
    r::RXCSUM,
    r::RFCTL,
    r::RLPML,
    r::MRQC,
    r::VT_CTL,
    r::VFRE,
    r::VFTE,
    r::QDE,
    r::DTXSWC,
    r::RTTBCNRC,
    r::SCCRL,
    r::BSCTRH,
    r::MSCTRH,
    r::VMRCTL,
    r::VMRVLAN,
    r::VMRVM,
    r::VMVIR,
    r::VMOLR,
    r::RPLOLR,
    r::VLVF,
    r::VFTA,
    r::UTA,
    r::MTA,
    r::RAL,
    r::RAH,
    r::RAL2,
    r::RAH2,
];

impl Registers {
    /// Changes registers as one: a thread that applies them, or resets a VF meanwhile, finds all of
    /// them changed or none.
    pub(crate) fn change(&self, change: impl FnOnce()) {
        match &self.hub {
            Some(hub) => hub.change(change),
            None => change(),
        }
    }

    /// Reads a register that is about VFs. Whatever is read, what was written before it holds, or will
    /// at the end of the turn.
    pub(crate) fn read_vf_control(&mut self, id: Id, element: u32) -> Option<u32> {
        self.carry_out();
        if id == r::WVBR {
            let file = &self.function.file;
            let value = file.get(id);
            file.set(id, 0);
            return Some(value);
        }
        self.peek_vf_control(id, element)
    }

    /// The same without side effects.
    pub(crate) fn peek_vf_control(&self, id: Id, element: u32) -> Option<u32> {
        let hub = self.hub.as_ref()?;
        Some(match id {
            r::VMBMEM => {
                let channel = hub.channel(element / WORDS as u32)?;
                channel.mailbox(|mailbox| mailbox.word(element % WORDS as u32))
            }
            r::P2VMAILBOX => hub.channel(element)?.mailbox(|mailbox| mailbox.pf_read()),
            r::MBVFICR => hub.causes(),
            r::VFLRE => hub.were_reset(),
            _ => return None,
        })
    }

    /// Writes a register that is about VFs. `false`: it is kept as others are.
    pub(crate) fn write_vf_control(&mut self, id: Id, element: u32, value: u32) -> bool {
        let Some(hub) = self.hub.clone() else {
            return match id {
                // The other bits are signals to a VF, or a VF's own.
                r::P2VMAILBOX => {
                    let file = &self.function.file;
                    file.set_at(id, element, value & p2v::PFU);
                    true
                }
                // Where pools have no VFs it has a say, and what waited may go now.
                r::VFTE => {
                    let function = &self.function;
                    function.file.write(id, element, value);
                    (0..PF_QUEUES as u32).for_each(|queue| function.ring(queue));
                    self.work.tx = true;
                    true
                }
                _ => false,
            };
        };
        self.due.changed |= RULES.contains(&id);
        match id {
            r::VMBMEM => {
                let Some(channel) = hub.channel(element / WORDS as u32) else {
                    return false;
                };
                channel.mailbox(|mailbox| mailbox.set_word(element % WORDS as u32, value));
            }
            r::P2VMAILBOX => {
                // The VF that is notified relies on what was granted before.
                self.carry_out();
                let Some(channel) = hub.channel(element) else {
                    // The other bits are signals to a VF, or a VF's own.
                    let file = &self.function.file;
                    file.set_at(id, element, value & p2v::PFU);
                    return true;
                };
                channel.mailbox(|mailbox| mailbox.pf_write(value));
                if value & (p2v::STS | p2v::ACK) != 0 {
                    channel.ring();
                }
            }
            r::MBVFICR => hub.clear_causes(value),
            r::VFLRE => hub.clear_resets(value),
            r::VFRE | r::VFTE => {
                let file = &self.function.file;
                hub.change(|| {
                    file.write(id, 0, value);
                });
                // What waited in one of several pools may go now.
                (0..PF_QUEUES as u32).for_each(|queue| self.function.ring(queue));
                self.work.tx = true;
            }
            _ => return false,
        }
        true
    }

    /// SR-IOV's registers have enabled so many VFs, or none.
    pub(crate) fn enable_vfs(&mut self, vfs: u16) {
        if let Some(hub) = &self.hub
            && hub.enable(vfs.into())
        {
            self.due.changed = true;
            self.carry_out();
        }
    }

    /// CTRL_EXT was written.
    pub(crate) fn pf_reset_done(&mut self, value: u32) {
        if value & ctrl_ext::PFRSTD != 0 {
            self.due.changed = true;
            self.due.ready = true;
            self.carry_out();
        }
    }

    /// CTRL.RST, and what resets more.
    pub(crate) fn reset_vf_control(&mut self) {
        if let Some(hub) = &self.hub {
            self.due.changed = false;
            self.due.ready = false;
            hub.pf_reset();
            hub.carry_out();
        }
    }

    /// Goes on with registers from elsewhere.
    pub(crate) fn load_vf_control(&mut self) {
        if let Some(hub) = &self.hub {
            let ready = self.function.file.get(r::CTRL_EXT) & ctrl_ext::PFRSTD != 0;
            self.due.changed = false;
            self.due.ready = false;
            hub.carry_out();
            hub.pf_ready(ready);
        }
    }

    /// Has what was written come true, unless that was done often enough in this turn.
    fn carry_out(&mut self) {
        self.follow_speed();
        if self.due.changed && self.due.spent < AT_ONCE {
            self.due.spent += 1;
            self.carry_out_all();
        }
    }

    /// Has all of it come true: a turn has ended.
    pub(crate) fn end_turn(&mut self) {
        self.due.spent = 0;
        // What pauses last depends on it too.
        self.due.changed |= self.note_speed();
        self.carry_out_all();
    }

    /// Rates are parts of the link's speed, which follows from PHY, CTRL and CTRL_EXT.
    fn follow_speed(&mut self) {
        if self.hub.is_some() {
            self.due.changed |= self.note_speed();
        }
    }

    fn carry_out_all(&mut self) {
        if !std::mem::take(&mut self.due.changed) {
            return;
        }
        let ready = std::mem::take(&mut self.due.ready);
        if let Some(hub) = &self.hub {
            // The rules first: who sees RSTD goes on.
            hub.carry_out();
            if ready {
                hub.pf_ready(true);
            }
        }
    }

    /// Interrupts the PF for what VFs have done: a message or a reset by VMMB, spoofed frames by
    /// DOUTSYNC and WVBR (as the chip does; driver `igb_check_wvbr` reads them).
    pub(crate) fn hear(&mut self, env: &Env) {
        let Some(hub) = &self.hub else {
            return;
        };
        let news = hub.take_news();
        let file = &self.function.file;
        let mut other = 0;
        if news.mail & file.get(r::MBVFIMR) != 0 || news.resets != 0 {
            other |= icr::VMMB;
        }
        if news.spoofed != 0 {
            file.set(r::WVBR, file.get(r::WVBR) | news.spoofed);
            other |= icr::DOUTSYNC;
        }
        if other != 0 {
            let causes = Causes {
                other,
                ..Causes::default()
            };
            self.function.irq.lock().raise(env, causes);
        }
    }
}
