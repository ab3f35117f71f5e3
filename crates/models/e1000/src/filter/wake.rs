//! Wake-up (manual §6.4, §13.6): what the 82540EM's registers say to what all chips have in common.

use frame::Frame;
use intel::wake::{At, Ids, REACH, Sieve};
use model::Env;
use regs::File;

use crate::core::chip::Chip;
use crate::filter::address as filter;
use crate::regs as r;
use crate::regs::bits::rctl;
use datapath::counters::count;

static IDS: Ids = Ids {
    wuc: r::WUC,
    wufc: r::WUFC,
    wus: r::WUS,
    wupl: r::WUPL,
    wupm: r::WUPM,
    ipav: r::IPAV,
    ip4at: r::IP4AT,
    ip6at: r::IP6AT,
    ral: r::RAL,
    rah: r::RAH,
};

/// What is ours, as the registers say.
struct Ours<'a>(&'a File);

impl Sieve for Ours<'_> {
    fn address(&self, dst: [u8; 6]) -> bool {
        filter::address(self.0, self.0.get(r::RCTL), dst)
    }

    fn exact(&self, dst: [u8; 6]) -> bool {
        filter::exact(self.0, dst)
    }

    fn group(&self, dst: [u8; 6]) -> bool {
        let rctl = self.0.get(r::RCTL);
        rctl & rctl::MPE != 0 || filter::hashed(self.0, rctl, dst)
    }

    fn tag(&self) -> u16 {
        self.0.get(r::VET) as u16
    }

    /// The bytes under the mask are those of the table, over the whole length of the filter.
    fn flexible(&self, n: u32, bytes: &[u8]) -> bool {
        let len = self.0.get_at(r::FFLT, n) as usize;
        if len == 0 || len > REACH || len > bytes.len() {
            return false;
        }
        (0..).zip(&bytes[..len]).all(|(i, byte)| {
            let compared = self.0.get_at(r::FFMT, i) >> n & 1 == 1;
            let wanted = (self.0.get_at(r::FFVT, i) >> (8 * n)) as u8;
            !compared || *byte == wanted
        })
    }
}

impl Chip {
    fn waking<T>(&self, env: &Env, act: impl FnOnce(At<'_>) -> T) -> T {
        act(At {
            file: &self.file,
            ids: &IDS,
            tell: &|enabled, status| env.irq.set_pme(enabled, status),
        })
    }

    /// The power state, and what software wrote to PMCSR.
    pub(crate) fn set_power(&self, env: &Env, d3: bool, pme: Option<model::PmeWrite>) {
        let pme = pme.map(|pme| (pme.enable, pme.clear));
        self.waking(env, |at| self.wake.set_power(at, d3, pme));
    }

    /// The EEPROM wants a magic packet to wake from power-up on.
    pub(crate) fn enable_apm(&self) {
        self.wake.enable_apm(At {
            file: &self.file,
            ids: &IDS,
            tell: &|_, _| {},
        });
    }

    /// A write of WUC, WUS or WUFC.
    pub(crate) fn write_wake(&self, env: &Env, id: regs::Id, value: u32) {
        self.waking(env, |at| match id {
            r::WUC => self.wake.write_wuc(at, value),
            r::WUS => self.wake.write_wus(at, value),
            _ => self.wake.write_wufc(at, value),
        });
    }

    /// Resets all registers but those of the last wake-up.
    pub(crate) fn reset_file(&self, env: &Env) {
        self.waking(env, |at| self.wake.over_reset(at, || self.file.reset()));
    }

    /// Power-up: nothing is remembered.
    pub(crate) fn forget_wake(&self, env: &Env) {
        self.waking(env, |at| self.wake.forget(at));
    }

    /// Shows a frame to the filters.
    pub(crate) fn wake_by(&self, env: &Env, frame: &Frame<'_>) {
        let sieve = Ours(&self.file);
        let woken = self.waking(env, |at| self.wake.frame(at, &sieve, frame));
        count(&self.counters.wake_ups, woken.into());
    }

    /// The link has changed.
    pub(crate) fn wake_by_link(&self, env: &Env) {
        let woken = self.waking(env, |at| self.wake.link(at));
        count(&self.counters.wake_ups, woken.into());
    }
}
