//! Wake-up: which frames and events wake a sleeping guest, and what it finds when it is awake.
//!
//! With WUC.APME a magic packet wakes in any power state. With PME enabled (PMCSR or WUC) and the
//! function in D3, what WUFC enables does. The first match sets its bits in WUS, keeps the frame in
//! WUPL and WUPM and sets PME_Status; until that is cleared, nothing more is taken.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use datapath::counters::count;
use datapath::is_magic;
use frame::Frame;
use model::{Env, Pme, PmeWrite};
use parking_lot::Mutex;
use regs::{File, Id};

use crate::bits::rctl;
use crate::filter::Filters;

/// Bits of WUC.
pub mod wuc {
    /// A magic packet wakes, whatever else is set.
    pub const APME: u32 = 1;
    /// PMCSR.PME_En.
    pub const PME_EN: u32 = 1 << 1;
    /// PMCSR.PME_Status.
    pub const PME_STATUS: u32 = 1 << 2;
}

/// Wake-up filters, as WUFC enables and WUS reports them.
pub mod wufc {
    #![allow(missing_docs)]
    pub const LNKC: u32 = 1;
    pub const MAG: u32 = 1 << 1;
    pub const EX: u32 = 1 << 2;
    pub const MC: u32 = 1 << 3;
    pub const BC: u32 = 1 << 4;
    pub const ARP: u32 = 1 << 5;
    pub const IPV4: u32 = 1 << 6;
    pub const IPV6: u32 = 1 << 7;
    pub const FLX0: u32 = 1 << 16;
}

/// Bytes of a frame that are looked at. A magic packet that begins beyond them is not seen.
const WINDOW: usize = 2048;
/// Bytes that WUPM keeps.
const KEPT: usize = 128;
/// Filters that compare bytes under a mask, and how far they reach.
const FLEXIBLE: u32 = 4;
/// The longest of them.
pub const REACH: usize = 128;

/// The registers of wake-up in a table.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Ids {
    pub wuc: Id,
    pub wufc: Id,
    pub wus: Id,
    pub wupl: Id,
    pub wupm: Id,
    pub ipav: Id,
    pub ip4at: Id,
    pub ip6at: Id,
    pub ral: Id,
    pub rah: Id,
}

/// The registers, and whom to tell what PMCSR shows.
#[derive(Clone, Copy)]
pub struct At<'a> {
    /// Where they are.
    pub file: &'a File,
    /// Which they are.
    pub ids: &'a Ids,
    /// The address filters among them.
    pub filters: &'a Filters,
    /// Called under the lock of [`WakeUp`].
    pub tell: &'a dyn Fn(Pme),
}

impl At<'_> {
    fn get(&self, id: Id) -> u32 {
        self.file.get(id)
    }
}

/// What wake-up needs besides the registers.
#[derive(Default)]
pub struct WakeUp {
    /// Something may match now.
    armed: AtomicBool,
    /// The function is in D3. The lock also guards WUC, WUS, WUPL and WUPM; it is a leaf but for
    /// [`At::tell`].
    d3: Mutex<bool>,
}

impl WakeUp {
    /// Whether frames must be shown to [`WakeUp::frame`].
    pub fn armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed)
    }

    /// Whether the function is in D3.
    pub fn d3(&self) -> bool {
        *self.d3.lock()
    }

    /// The power state, and what software wrote to PMCSR.
    pub fn set_power(&self, at: At<'_>, d3: bool, pme: Option<PmeWrite>) {
        let mut state = self.d3.lock();
        *state = d3;
        if let Some(PmeWrite { enable, clear }) = pme {
            let mut value = at.get(at.ids.wuc) & !wuc::PME_EN;
            if enable {
                value |= wuc::PME_EN;
            }
            if clear {
                value &= !wuc::PME_STATUS;
            }
            at.file.set(at.ids.wuc, value);
        }
        self.settle(at, *state);
    }

    /// The EEPROM wants a magic packet to wake from power-up on.
    pub fn enable_apm(&self, at: At<'_>) {
        let state = self.d3.lock();
        at.file.set(at.ids.wuc, at.get(at.ids.wuc) | wuc::APME);
        self.arm(at, *state);
    }

    /// A write of WUC; PME_Status is cleared by a 1.
    pub fn write_wuc(&self, at: At<'_>, value: u32) {
        let state = self.d3.lock();
        let status = at.get(at.ids.wuc) & !value & wuc::PME_STATUS;
        let value = value & !wuc::PME_STATUS | status;
        at.file.write(at.ids.wuc, 0, value);
        self.settle(at, *state);
    }

    /// A write of WUS; ones clear.
    pub fn write_wus(&self, at: At<'_>, value: u32) {
        let _state = self.d3.lock();
        at.file.set(at.ids.wus, at.get(at.ids.wus) & !value);
    }

    /// A write of WUFC.
    pub fn write_wufc(&self, at: At<'_>, value: u32) {
        let state = self.d3.lock();
        at.file.write(at.ids.wufc, 0, value);
        self.settle(at, *state);
    }

    /// Has `reset` reset all registers but those that the guest must find again after it was woken.
    pub fn over_reset(&self, at: At<'_>, reset: impl FnOnce()) {
        let state = self.d3.lock();
        let kept_over = [at.ids.wufc, at.ids.wus, at.ids.wupl];
        let pme = at.get(at.ids.wuc) & (wuc::PME_EN | wuc::PME_STATUS);
        let kept = kept_over.map(|id| at.get(id));
        let packet: [u32; KEPT / 4] =
            std::array::from_fn(|i| at.file.get_at(at.ids.wupm, i as u32));
        reset();
        for (id, value) in kept_over.into_iter().zip(kept) {
            at.file.set(id, value);
        }
        for (i, word) in (0..).zip(packet) {
            at.file.set_at(at.ids.wupm, i, word);
        }
        at.file.set(at.ids.wuc, pme);
        self.settle(at, *state);
    }

    /// Power-up: nothing is remembered.
    pub fn forget(&self, at: At<'_>) {
        let mut state = self.d3.lock();
        *state = false;
        for id in [at.ids.wufc, at.ids.wus, at.ids.wupl, at.ids.wuc] {
            at.file.set(id, 0);
        }
        for i in 0..(KEPT / 4) as u32 {
            at.file.set_at(at.ids.wupm, i, 0);
        }
        self.settle(at, false);
    }

    /// WUC or the power state may have changed.
    fn settle(&self, at: At<'_>, d3: bool) {
        self.arm(at, d3);
        let value = at.get(at.ids.wuc);
        (at.tell)(Pme {
            enabled: value & wuc::PME_EN != 0,
            status: value & wuc::PME_STATUS != 0,
        });
    }

    fn arm(&self, at: At<'_>, d3: bool) {
        let told = at.get(at.ids.wuc) & wuc::PME_STATUS != 0;
        let armed = !told && filters(at, d3) != 0;
        self.armed.store(armed, Ordering::Release);
    }

    /// Shows a frame to the filters. Whether it woke the guest.
    /// `flexible` says whether the flexible filter with this number matches these bytes.
    pub fn frame(
        &self,
        at: At<'_>,
        flexible: &dyn Fn(u32, &[u8]) -> bool,
        frame: &Frame<'_>,
    ) -> bool {
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
            at,
            flexible,
            bytes: &bytes[..n],
        };
        let d3 = self.d3.lock();
        let matched = seen.matched(filters(at, *d3));
        matched != 0 && self.woken(at, *d3, matched, Some((seen.bytes, len)))
    }

    /// The link has changed. Whether that woke the guest.
    pub fn link(&self, at: At<'_>) -> bool {
        let d3 = self.d3.lock();
        filters(at, *d3) & wufc::LNKC != 0 && self.woken(at, *d3, wufc::LNKC, None)
    }

    fn woken(&self, at: At<'_>, d3: bool, matched: u32, frame: Option<(&[u8], usize)>) -> bool {
        let ids = at.ids;
        if at.get(ids.wuc) & wuc::PME_STATUS != 0 {
            return false;
        }
        at.file.set(ids.wus, at.get(ids.wus) | matched);
        if let Some((bytes, len)) = frame {
            at.file.set(ids.wupl, len as u32);
            let mut kept = [0u8; KEPT];
            let n = bytes.len().min(KEPT);
            kept[..n].copy_from_slice(&bytes[..n]);
            for (i, word) in (0..).zip(kept.as_chunks::<4>().0) {
                at.file.set_at(ids.wupm, i, u32::from_le_bytes(*word));
            }
        }
        at.file.set(ids.wuc, at.get(ids.wuc) | wuc::PME_STATUS);
        self.settle(at, d3);
        true
    }
}

/// The filters that may match now.
fn filters(at: At<'_>, d3: bool) -> u32 {
    let value = at.get(at.ids.wuc);
    let mut filters = 0;
    if value & wuc::APME != 0 {
        filters |= wufc::MAG;
    }
    if d3 && value & wuc::PME_EN != 0 {
        filters |= at.get(at.ids.wufc);
    }
    filters
}

/// A frame in front of the filters.
struct Seen<'a> {
    at: At<'a>,
    flexible: &'a dyn Fn(u32, &[u8]) -> bool,
    bytes: &'a [u8],
}

impl Seen<'_> {
    /// Which of `filters` match.
    fn matched(&self, filters: u32) -> u32 {
        let Some(dst) = self.bytes.first_chunk::<6>() else {
            return 0;
        };
        let broadcast = *dst == [0xff; 6];
        let (file, lists) = (self.at.file, self.at.filters);
        let rctl = file.get(lists.rctl);
        let ours = broadcast || lists.address(file, rctl, *dst);
        let group = || rctl & rctl::MPE != 0 || lists.hashed(file, rctl, *dst);
        let tests: [(u32, &dyn Fn() -> bool); 7] = [
            (wufc::MAG, &|| ours && self.magic()),
            (wufc::EX, &|| lists.exact(file, *dst)),
            (wufc::MC, &|| dst[0] & 1 == 1 && !broadcast && group()),
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
            if filters & wufc::FLX0 << n != 0 && (self.flexible)(n, self.bytes) {
                matched |= wufc::FLX0 << n;
            }
        }
        matched
    }

    fn magic(&self) -> bool {
        let [a, b, c, d] = self.at.file.get_at(self.at.ids.ral, 0).to_le_bytes();
        let [e, f, ..] = self.at.file.get_at(self.at.ids.rah, 0).to_le_bytes();
        is_magic(self.bytes, [a, b, c, d, e, f])
    }

    /// What follows an Ethernet header of this type, behind a VLAN tag or without.
    fn payload(&self, kind: u16) -> Option<&[u8]> {
        let word = |at: usize| {
            let bytes = self.bytes.get(at..at + 2)?;
            Some(u16::from_be_bytes([bytes[0], bytes[1]]))
        };
        let tagged = word(12)? == self.at.get(self.at.filters.vet) as u16;
        let at = if tagged { 16 } else { 12 };
        (word(at)? == kind).then(|| &self.bytes[at + 2..])
    }

    /// Whether one of the valid addresses of IP4AT is this.
    fn our_ipv4(&self, address: Option<&[u8]>) -> bool {
        let valid = self.at.file.get(self.at.ids.ipav);
        (0..4).any(|i| {
            let ours = self.at.file.get_at(self.at.ids.ip4at, i).to_le_bytes();
            valid >> i & 1 == 1 && address == Some(&ours[..])
        })
    }

    /// A request for one of our IPv4 addresses.
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
            let words =
                [0, 1, 2, 3].map(|i| self.at.file.get_at(self.at.ids.ip6at, i).to_le_bytes());
            std::array::from_fn(|i| words[i / 4][i % 4])
        };
        let valid = self.at.file.get(self.at.ids.ipav) & 1 << 16 != 0;
        valid
            && self.payload(0x86dd).is_some_and(|ip| {
                ip.first().is_some_and(|b| b >> 4 == 6) && ip.get(24..40) == Some(&ours[..])
            })
    }
}

/// The parts of a NIC that wake-up needs.
#[derive(Clone, Copy)]
pub struct Parts<'a> {
    /// Its registers.
    pub file: &'a File,
    /// Which of them wake-up has.
    pub ids: &'static Ids,
    /// The address filters among them.
    pub filters: &'static Filters,
    /// What it remembers.
    pub wake: &'a WakeUp,
    /// Times a filter matched.
    pub count: &'a AtomicU64,
}

/// A NIC that wakes its guest.
pub trait Wakes {
    /// Its parts.
    fn parts(&self) -> Parts<'_>;
    /// Whether flexible filter `n` matches the first bytes of a frame.
    fn flexible(&self, n: u32, bytes: &[u8]) -> bool;

    /// Calls `act` with its registers; the bus hears of PME.
    fn waking<T>(&self, env: &Env, act: impl FnOnce(&WakeUp, At<'_>) -> T) -> T {
        let parts = self.parts();
        let at = At {
            file: parts.file,
            ids: parts.ids,
            filters: parts.filters,
            tell: &|pme| env.irq.set_pme(pme),
        };
        act(parts.wake, at)
    }

    /// The power state, and what software wrote to PMCSR.
    fn set_power(&self, env: &Env, d3: bool, pme: Option<PmeWrite>) {
        self.waking(env, |wake, at| wake.set_power(at, d3, pme));
    }

    /// The NVM wants a magic packet to wake from power-up on.
    fn enable_apm(&self) {
        let parts = self.parts();
        parts.wake.enable_apm(At {
            file: parts.file,
            ids: parts.ids,
            filters: parts.filters,
            tell: &|_| {},
        });
    }

    /// A write of WUC, WUS or WUFC.
    fn write_wake(&self, env: &Env, id: Id, value: u32) {
        self.waking(env, |wake, at| {
            if id == at.ids.wuc {
                wake.write_wuc(at, value);
            } else if id == at.ids.wus {
                wake.write_wus(at, value);
            } else {
                wake.write_wufc(at, value);
            }
        });
    }

    /// Resets all registers but those of the last wake-up.
    fn reset_file(&self, env: &Env) {
        self.waking(env, |wake, at| wake.over_reset(at, || at.file.reset()));
    }

    /// Power-up: nothing is remembered.
    fn forget_wake(&self, env: &Env) {
        self.waking(env, |wake, at| wake.forget(at));
    }

    /// Shows a frame to the filters.
    fn wake_by(&self, env: &Env, frame: &Frame<'_>) {
        let flexible = |n, bytes: &[u8]| self.flexible(n, bytes);
        let woken = self.waking(env, |wake, at| wake.frame(at, &flexible, frame));
        count(self.parts().count, woken.into());
    }

    /// The link has changed.
    fn wake_by_link(&self, env: &Env) {
        let woken = self.waking(env, |wake, at| wake.link(at));
        count(self.parts().count, woken.into());
    }
}

/// The registers of wake-up as all chips name them, in the module `$r`.
#[macro_export]
macro_rules! wake_ids {
    ($r:ident) => {
        $crate::wake::Ids {
            wuc: $r::WUC,
            wufc: $r::WUFC,
            wus: $r::WUS,
            wupl: $r::WUPL,
            wupm: $r::WUPM,
            ipav: $r::IPAV,
            ip4at: $r::IP4AT,
            ip6at: $r::IP6AT,
            ral: $r::RAL,
            rah: $r::RAH,
        }
    };
}
