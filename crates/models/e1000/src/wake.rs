//! Wake-up (manual §6.4, §13.6): which frames and events wake a sleeping guest, and what it finds
//! when it is awake.
//!
//! With WUC.APME a magic packet wakes in any power state. With PME enabled (PMCSR or WUC) and the
//! function in D3, what WUFC enables does. The first match sets its bits in WUS, keeps the frame in
//! WUPL and WUPM and sets PME_Status; until that is cleared, nothing more is taken.

use std::sync::atomic::{AtomicBool, Ordering};

use frame::Frame;
use model::Env;
use parking_lot::Mutex;
use regs::File;

use crate::bits::{rctl, wuc, wufc};
use crate::filter;
use crate::regs as r;
use crate::shared::{Shared, count};

/// Bytes of a frame that are looked at. A magic packet that begins beyond them is not seen.
const WINDOW: usize = 2048;
/// Bytes that WUPM keeps.
const KEPT: usize = 128;
/// Filters that compare bytes under a mask, and how far they reach.
const FLEXIBLE: u32 = 4;
const REACH: usize = 128;

/// What wake-up needs besides the registers.
#[derive(Default)]
pub(crate) struct WakeUp {
    /// Something may match now.
    armed: AtomicBool,
    /// The function is in D3. The lock also guards WUC, WUS, WUPL and WUPM; it is a leaf but for
    /// [`model::Interrupts::set_pme`].
    pub(crate) d3: Mutex<bool>,
}

/// Registers that the guest must find again after it was woken (manual §13.6.2, §13.6.3, §13.6.7).
const KEPT_OVER_RESET: [regs::Id; 3] = [r::WUFC, r::WUS, r::WUPL];

impl Shared {
    /// Whether frames must be shown to [`Shared::wake_by`].
    pub(crate) fn wake_armed(&self) -> bool {
        self.wake.armed.load(Ordering::Relaxed)
    }

    /// The power state, and what software wrote to PMCSR.
    pub(crate) fn set_power(&self, env: &Env, d3: bool, pme: Option<model::PmeWrite>) {
        let mut state = self.wake.d3.lock();
        *state = d3;
        if let Some(pme) = pme {
            let mut value = self.file.get(r::WUC) & !wuc::PME_EN;
            if pme.enable {
                value |= wuc::PME_EN;
            }
            if pme.clear {
                value &= !wuc::PME_STATUS;
            }
            self.file.set(r::WUC, value);
        }
        self.settle_wake(env, *state);
    }

    /// The EEPROM wants a magic packet to wake from power-up on.
    pub(crate) fn enable_apm(&self) {
        let state = self.wake.d3.lock();
        let value = self.file.get(r::WUC) | wuc::APME;
        self.file.set(r::WUC, value);
        self.arm_wake(*state);
    }

    /// A write of WUC; PME_Status is cleared by a 1.
    pub(crate) fn write_wuc(&self, env: &Env, value: u32) {
        let state = self.wake.d3.lock();
        let status = self.file.get(r::WUC) & !value & wuc::PME_STATUS;
        self.file
            .write(r::WUC, 0, value & !wuc::PME_STATUS | status);
        self.settle_wake(env, *state);
    }

    /// A write of WUS; ones clear.
    pub(crate) fn write_wus(&self, value: u32) {
        let _state = self.wake.d3.lock();
        self.file.set(r::WUS, self.file.get(r::WUS) & !value);
    }

    /// A write of WUFC.
    pub(crate) fn write_wufc(&self, env: &Env, value: u32) {
        let state = self.wake.d3.lock();
        self.file.write(r::WUFC, 0, value);
        self.settle_wake(env, *state);
    }

    /// Resets all registers but those of the last wake-up.
    pub(crate) fn reset_file(&self, env: &Env) {
        let state = self.wake.d3.lock();
        let pme = self.file.get(r::WUC) & (wuc::PME_EN | wuc::PME_STATUS);
        let kept = KEPT_OVER_RESET.map(|id| self.file.get(id));
        let packet: [u32; KEPT / 4] = std::array::from_fn(|i| self.file.get_at(r::WUPM, i as u32));
        self.file.reset();
        for (id, value) in KEPT_OVER_RESET.into_iter().zip(kept) {
            self.file.set(id, value);
        }
        for (i, word) in (0..).zip(packet) {
            self.file.set_at(r::WUPM, i, word);
        }
        self.file.set(r::WUC, pme);
        self.settle_wake(env, *state);
    }

    /// Power-up: nothing is remembered.
    pub(crate) fn forget_wake(&self, env: &Env) {
        let mut state = self.wake.d3.lock();
        *state = false;
        for id in KEPT_OVER_RESET {
            self.file.set(id, 0);
        }
        for i in 0..(KEPT / 4) as u32 {
            self.file.set_at(r::WUPM, i, 0);
        }
        self.file.set(r::WUC, 0);
        self.settle_wake(env, false);
    }

    /// WUC or the power state may have changed.
    pub(crate) fn settle_wake(&self, env: &Env, d3: bool) {
        self.arm_wake(d3);
        let value = self.file.get(r::WUC);
        env.irq
            .set_pme(value & wuc::PME_EN != 0, value & wuc::PME_STATUS != 0);
    }

    fn arm_wake(&self, d3: bool) {
        let told = self.file.get(r::WUC) & wuc::PME_STATUS != 0;
        let armed = !told && self.filters(d3) != 0;
        self.wake.armed.store(armed, Ordering::Release);
    }

    /// The filters that may match now.
    fn filters(&self, d3: bool) -> u32 {
        let value = self.file.get(r::WUC);
        let mut filters = 0;
        if value & wuc::APME != 0 {
            filters |= wufc::MAG;
        }
        if d3 && value & wuc::PME_EN != 0 {
            filters |= self.file.get(r::WUFC);
        }
        filters
    }

    /// Shows a frame to the filters.
    pub(crate) fn wake_by(&self, env: &Env, frame: &Frame<'_>) {
        let mut bytes = [0u8; WINDOW + 4];
        let mut n = frame.copy_to(0, &mut bytes[..WINDOW]);
        let mut len = frame.len();
        if let Some(tci) = frame.notes().vlan
            && n >= 12
        {
            bytes.copy_within(12..n, 16);
            bytes[12..14].copy_from_slice(&0x8100u16.to_be_bytes());
            bytes[14..16].copy_from_slice(&tci.to_be_bytes());
            n += 4;
            len += 4;
        }
        let seen = Seen {
            file: &self.file,
            bytes: &bytes[..n],
        };
        let d3 = self.wake.d3.lock();
        let matched = seen.matched(self.filters(*d3));
        if matched != 0 {
            self.woken(env, *d3, matched, Some((seen.bytes, len)));
        }
    }

    /// The link has changed.
    pub(crate) fn wake_by_link(&self, env: &Env) {
        let d3 = self.wake.d3.lock();
        if self.filters(*d3) & wufc::LNKC != 0 {
            self.woken(env, *d3, wufc::LNKC, None);
        }
    }

    fn woken(&self, env: &Env, d3: bool, matched: u32, frame: Option<(&[u8], usize)>) {
        if self.file.get(r::WUC) & wuc::PME_STATUS != 0 {
            return;
        }
        count(&self.counters.wake_ups, 1);
        self.file.set(r::WUS, self.file.get(r::WUS) | matched);
        if let Some((bytes, len)) = frame {
            self.file.set(r::WUPL, len as u32);
            let mut kept = [0u8; KEPT];
            let n = bytes.len().min(KEPT);
            kept[..n].copy_from_slice(&bytes[..n]);
            for (i, word) in (0..).zip(kept.as_chunks::<4>().0) {
                self.file.set_at(r::WUPM, i, u32::from_le_bytes(*word));
            }
        }
        let value = self.file.get(r::WUC) | wuc::PME_STATUS;
        self.file.set(r::WUC, value);
        self.settle_wake(env, d3);
    }
}

/// A frame in front of the filters.
struct Seen<'a> {
    file: &'a File,
    bytes: &'a [u8],
}

impl Seen<'_> {
    /// Which of `filters` match.
    fn matched(&self, filters: u32) -> u32 {
        let Some(dst) = self.bytes.first_chunk::<6>() else {
            return 0;
        };
        let rctl = self.file.get(r::RCTL);
        let broadcast = *dst == [0xff; 6];
        let ours = broadcast || filter::address(self.file, rctl, *dst);
        let tests: [(u32, &dyn Fn() -> bool); 7] = [
            (wufc::MAG, &|| ours && self.magic()),
            (wufc::EX, &|| filter::exact(self.file, *dst)),
            (wufc::MC, &|| {
                dst[0] & 1 == 1 && !broadcast && {
                    rctl & rctl::MPE != 0 || filter::hashed(self.file, rctl, *dst)
                }
            }),
            (wufc::BC, &|| broadcast),
            (wufc::ARP, &|| ours && self.arp()),
            (wufc::IPV4, &|| ours && self.ipv4()),
            (wufc::IPV6, &|| ours && self.ipv6()),
        ];
        let mut matched = 0;
        for (bit, test) in tests {
            if filters & bit != 0 && test() {
                matched |= bit;
            }
        }
        for n in 0..FLEXIBLE {
            if filters & wufc::FLX0 << n != 0 && self.flexible(n) {
                matched |= wufc::FLX0 << n;
            }
        }
        matched
    }

    /// Six bytes of ones, and the station address sixteen times, anywhere behind the addresses.
    fn magic(&self) -> bool {
        let low = self.file.get_at(r::RAL, 0).to_le_bytes();
        let high = self.file.get_at(r::RAH, 0).to_le_bytes();
        let mut pattern = [0xff; 17 * 6];
        for copy in pattern[6..].as_chunks_mut::<6>().0 {
            copy[..4].copy_from_slice(&low);
            copy[4..].copy_from_slice(&high[..2]);
        }
        let body = self.bytes.get(12..).unwrap_or_default();
        body.windows(pattern.len()).any(|w| w == pattern)
    }

    /// What follows an Ethernet header of this type, behind a VLAN tag or without.
    fn payload(&self, kind: u16) -> Option<&[u8]> {
        let word = |at: usize| {
            let bytes = self.bytes.get(at..at + 2)?;
            Some(u16::from_be_bytes([bytes[0], bytes[1]]))
        };
        let at = if u32::from(word(12)?) == self.file.get(r::VET) {
            16
        } else {
            12
        };
        (word(at)? == kind).then(|| &self.bytes[at + 2..])
    }

    /// Whether one of the valid addresses of IP4AT is this.
    fn our_ipv4(&self, address: Option<&[u8]>) -> bool {
        let valid = self.file.get(r::IPAV);
        (0..4).any(|i| {
            let ours = self.file.get_at(r::IP4AT, i).to_le_bytes();
            valid >> i & 1 == 1 && address == Some(&ours[..])
        })
    }

    /// A request for one of our IPv4 addresses (manual §6.4.3.1.4).
    fn arp(&self) -> bool {
        let request = [0, 1, 8, 0, 6, 4, 0, 1];
        self.payload(0x0806)
            .is_some_and(|arp| arp.starts_with(&request) && self.our_ipv4(arp.get(24..28)))
    }

    fn ipv4(&self) -> bool {
        self.payload(0x0800).is_some_and(|ip| {
            ip.first().is_some_and(|b| b >> 4 == 4) && self.our_ipv4(ip.get(16..20))
        })
    }

    fn ipv6(&self) -> bool {
        let ours: [u8; 16] = {
            let words = [0, 1, 2, 3].map(|i| self.file.get_at(r::IP6AT, i).to_le_bytes());
            std::array::from_fn(|i| words[i / 4][i % 4])
        };
        let valid = self.file.get(r::IPAV) & 1 << 16 != 0;
        valid
            && self.payload(0x86dd).is_some_and(|ip| {
                ip.first().is_some_and(|b| b >> 4 == 6) && ip.get(24..40) == Some(&ours[..])
            })
    }

    /// The bytes under the mask are those of the table, over the whole length of the filter.
    fn flexible(&self, n: u32) -> bool {
        let len = self.file.get_at(r::FFLT, n) as usize;
        if len == 0 || len > REACH || len > self.bytes.len() {
            return false;
        }
        (0..).zip(&self.bytes[..len]).all(|(i, byte)| {
            let compared = self.file.get_at(r::FFMT, i) >> n & 1 == 1;
            let wanted = (self.file.get_at(r::FFVT, i) >> (8 * n)) as u8;
            !compared || *byte == wanted
        })
    }
}
