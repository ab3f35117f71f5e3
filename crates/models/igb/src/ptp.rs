//! The clock of IEEE 1588 and its time stamps (§7.9, §8.16; driver `igb/igb_ptp.c`).

use model::Nanos;
use regs::File;

use crate::core::ptp::{Ptp, Stamp};
use crate::regs as r;
use crate::regs::bits::{etqf, ftqf, imir, timadjh, timinca, tsync, tsyncrxcfg};

/// Nanoseconds of the unit in which TIMINCA counts its period.
pub(crate) const TICK: Nanos = 16;

/// A PTP message in a received frame, as the parser found it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    /// EtherType, or the UDP port it was sent to.
    pub carrier: Carrier,
    /// The message from its first byte on.
    pub bytes: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    Ethernet(u16),
    Udp { to: u16 },
}

impl Ptp {
    /// SYSTIM at `now`, moving the base along so that no fraction is lost.
    pub(crate) fn time(&mut self, now: Nanos) -> u64 {
        let unit = self.period * TICK;
        let elapsed = now.saturating_sub(self.since);
        if unit == 0 {
            self.since = now;
            return self.base;
        }
        let steps = elapsed / unit;
        self.base = self.base.wrapping_add(steps.wrapping_mul(self.increment));
        self.since += steps * unit;
        self.base
    }

    pub(crate) fn set_timinca(&mut self, now: Nanos, value: u32) {
        self.time(now);
        self.increment = u64::from(value & timinca::INCREMENT);
        self.period = u64::from(value >> timinca::PERIOD_SHIFT);
        self.since = now;
    }

    /// SYSTIML; SYSTIMH is kept with it.
    pub(crate) fn read_low(&mut self, now: Nanos) -> u32 {
        let time = self.time(now);
        self.high = (time >> 32) as u32;
        time as u32
    }

    pub(crate) fn read_high(&self) -> u32 {
        self.high
    }

    pub(crate) fn write_low(&mut self, now: Nanos, value: u32) {
        let time = self.time(now);
        self.base = time & !0xffff_ffff | u64::from(value);
    }

    pub(crate) fn write_high(&mut self, now: Nanos, value: u32) {
        let time = self.time(now);
        self.base = time & 0xffff_ffff | u64::from(value) << 32;
    }

    pub(crate) fn set_adjust_low(&mut self, value: u32) {
        self.adjust_low = value;
    }

    /// TIMADJH was written, which adjusts: bit 31 is the sign.
    pub(crate) fn adjust(&mut self, now: Nanos, high: u32) {
        let amount = u64::from(high & timadjh::AMOUNT) << 32 | u64::from(self.adjust_low);
        let time = self.time(now);
        self.base = if high & timadjh::NEGATIVE != 0 {
            time.wrapping_sub(amount)
        } else {
            time.wrapping_add(amount)
        };
    }

    /// A frame whose descriptor asks for a time stamp leaves. One is kept until it is read.
    pub(crate) fn sent(&mut self, file: &File, now: Nanos) {
        if file.get(r::TSYNCTXCTL) & tsync::ENABLED != 0 && self.sent.is_none() {
            self.sent = Some(self.time(now));
        }
    }

    /// A PTP message came. Whether it is stamped, which its descriptor is to say.
    pub(crate) fn received(&mut self, file: &File, now: Nanos, message: Message<'_>) -> bool {
        let matches = self.received.is_none() && matches(file, message);
        if matches {
            self.received = Some(Stamp {
                time: self.time(now),
                ..identity(file, message.bytes)
            });
        }
        matches
    }

    /// Whether any frame can be stamped, so that others need not be looked at.
    pub(crate) fn listens(file: &File) -> bool {
        file.get(r::TSYNCRXCTL) & tsync::ENABLED != 0
    }

    /// TSYNCTXCTL's valid bit.
    pub(crate) fn sent_valid(&self) -> u32 {
        u32::from(self.sent.is_some()) * tsync::VALID
    }

    /// TSYNCRXCTL's valid bit.
    pub(crate) fn received_valid(&self) -> u32 {
        u32::from(self.received.is_some()) * tsync::VALID
    }

    pub(crate) fn sent_low(&self) -> u32 {
        self.sent.unwrap_or(0) as u32
    }

    /// TXSTMPH, which makes room for the next.
    pub(crate) fn take_sent_high(&mut self) -> u32 {
        (self.sent.take().unwrap_or(0) >> 32) as u32
    }

    pub(crate) fn received_low(&self) -> u32 {
        self.received.unwrap_or_default().time as u32
    }

    /// RXSATRL and RXSATRH: source and sequence number.
    pub(crate) fn attributes(&self) -> (u32, u32) {
        let stamp = self.received.unwrap_or_default();
        let [a, b, c, d, e, f] = stamp.source;
        (
            u32::from_be_bytes([c, d, e, f]),
            u32::from(u16::from_be_bytes([a, b])) | u32::from(stamp.sequence) << 16,
        )
    }

    /// RXSTMPH, which makes room for the next: drivers read source and sequence before, or not at
    /// all.
    pub(crate) fn take_received_high(&mut self) -> u32 {
        (self.received.take().unwrap_or_default().time >> 32) as u32
    }

    /// CTRL.RST: the clock stands at 0.
    pub(crate) fn reset(&mut self, now: Nanos) {
        *self = Self {
            since: now,
            ..Self::default()
        };
    }
}

/// Where a message of version 1 has its kind (IEEE 1588-2002 §8.2).
const V1_CONTROL_AT: usize = 32;
/// The bits of the first byte of version 2 that are its kind, and the first kind that is no event (IEEE 1588-2008
/// §13.3.2.2).
const V2_MESSAGE: u8 = 0xf;
const V2_GENERAL: u8 = 4;

/// Whether TSYNCRXCTL, its configuration and the filters want this message stamped.
fn matches(file: &File, Message { carrier, bytes }: Message<'_>) -> bool {
    if !Ptp::listens(file) {
        return false;
    }
    let (layer2, layer4, version1, event) =
        match file.get(r::TSYNCRXCTL) >> tsync::TYPE_SHIFT & tsync::TYPE {
            tsync::V2_L2 => (true, false, false, false),
            tsync::V1_L4 => (false, true, true, false),
            tsync::V2 => (true, true, false, false),
            tsync::V2_EVENTS => (true, true, false, true),
            _ => return false,
        };
    let filtered = match carrier {
        Carrier::Ethernet(kind) => {
            let wanted = etqf::FILTER | etqf::PTP;
            layer2
                && (0..8).any(|i| {
                    let filter = file.get_at(r::ETQF, i);
                    filter & wanted == wanted && filter & etqf::TYPE == u32::from(kind)
                })
        }
        // The port stands in its register as it does in the frame.
        Carrier::Udp { to } => {
            layer4
                && (0..8).any(|i| {
                    file.get_at(r::FTQF, i) & ftqf::PTP != 0
                        && file.get_at(r::IMIR, i) & imir::PORT == u32::from(to.swap_bytes())
                })
        }
    };
    if !filtered {
        return false;
    }
    let wanted = file.get(r::TSYNCRXCFG);
    if version1 {
        return bytes.get(V1_CONTROL_AT).map(|kind| u32::from(*kind))
            == Some(wanted & tsyncrxcfg::V1);
    }
    let Some(kind) = bytes.first().map(|byte| byte & V2_MESSAGE) else {
        return false;
    };
    if event {
        kind < V2_GENERAL
    } else {
        u32::from(kind) == wanted >> tsyncrxcfg::V2_SHIFT & tsyncrxcfg::V2
    }
}

/// Source and sequence number of a message: in version 1 at 22 and 30, in version 2 the clock
/// identity's ends at 20 and the sequence at 30 (IEEE 1588 §13.3).
fn identity(file: &File, bytes: &[u8]) -> Stamp {
    let version1 = file.get(r::TSYNCRXCTL) >> tsync::TYPE_SHIFT & tsync::TYPE == 1;
    let mut source = [0; 6];
    let at: [usize; 6] = if version1 {
        [22, 23, 24, 25, 26, 27]
    } else {
        // An EUI-64 made of a MAC has two bytes in its midst that are not of it.
        [20, 21, 22, 25, 26, 27]
    };
    for (to, at) in source.iter_mut().zip(at) {
        *to = bytes.get(at).copied().unwrap_or(0);
    }
    let half = [30, 31].map(|at| bytes.get(at).copied().unwrap_or(0));
    Stamp {
        time: 0,
        source,
        sequence: u16::from_be_bytes(half),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use frame::{Batch, Caps, Sink, Wake};
    use model::{Clock, Transmit};

    use super::*;
    use crate::testing::Guest;

    /// The driver's: 16 ns are 16 << 19.
    const NOMINAL: u32 = 1 << 24 | 16 << 19;

    fn file() -> File {
        File::new(r::table())
    }

    #[test]
    fn the_clock_runs_at_the_rate_it_is_given_and_loses_nothing() {
        let mut ptp = Ptp::default();
        ptp.set_timinca(1000, NOMINAL);
        // Looked at or not, 1 s is 1 s.
        for now in (1000..1_000_000).step_by(17) {
            ptp.time(now);
        }
        let now = 1000 + 1_000_000_000;
        let low = ptp.read_low(now);
        let time = u64::from(ptp.read_high()) << 32 | u64::from(low);
        assert_eq!(time >> 19, 1_000_000_000);
        // A little faster.
        ptp.set_timinca(now, NOMINAL + 8389);
        assert_eq!((ptp.time(now + 1_000_000_000) - time) >> 19, 1_001_000_046);
        ptp.set_timinca(now + 1_000_000_000, 0);
        let stood = ptp.time(now + 1_000_000_000);
        assert_eq!(ptp.time(now + 5_000_000_000), stood);
    }

    #[test]
    fn the_high_half_is_that_of_the_low_half_read_before() {
        let mut ptp = Ptp::default();
        ptp.set_timinca(0, NOMINAL);
        ptp.write_low(0, 0xffff_ffff);
        ptp.write_high(0, 7);
        assert_eq!(ptp.read_low(0), 0xffff_ffff);
        ptp.time(16);
        assert_eq!(ptp.read_high(), 7);
        assert_eq!(ptp.read_low(16), 0x7f_ffff);
        assert_eq!(ptp.read_high(), 8);
        ptp.set_adjust_low(0x7f_ffff);
        ptp.adjust(16, 1 << 31 | 8);
        assert_eq!(ptp.time(16), 0);
        ptp.adjust(16, 1);
        assert_eq!(ptp.time(16), 0x1_007f_ffff);
    }

    #[test]
    fn one_sent_frame_is_stamped_until_it_is_read() {
        let (mut ptp, file) = (Ptp::default(), file());
        ptp.set_timinca(0, NOMINAL);
        ptp.sent(&file, 16);
        assert_eq!(ptp.sent_valid(), 0);
        file.set(r::TSYNCTXCTL, tsync::ENABLED);
        ptp.sent(&file, 16);
        ptp.sent(&file, 32);
        assert_eq!(ptp.sent_valid(), tsync::VALID);
        assert_eq!(ptp.sent_low(), 16 << 19);
        assert_eq!(ptp.take_sent_high(), 0);
        assert_eq!(ptp.sent_valid(), 0);
    }

    /// The guest that subtracts both ends' stamps must not find that a frame came before it went.
    #[test]
    fn a_frame_is_stamped_before_it_can_have_arrived() {
        /// A wire that takes its time, by the clock that it is.
        #[derive(Default)]
        struct Slow(AtomicU64);
        impl Clock for Slow {
            fn now(&self) -> Nanos {
                self.0.load(Ordering::Relaxed)
            }
        }
        impl Sink for Slow {
            fn deliver(&self, _: &Batch<'_>, picks: &[u16]) -> usize {
                self.0.fetch_add(1600, Ordering::Relaxed);
                picks.len()
            }
            fn caps(&self) -> Caps {
                Caps::NONE
            }
            fn want_room(&self, _: &Arc<dyn Wake>) {}
        }
        let wire = Arc::new(Slow::default());
        let mut guest = Guest::pf();
        guest.env.clock = Arc::clone(&wire) as _;
        guest.function.file.set(r::TSYNCTXCTL, tsync::ENABLED);
        guest.function.ptp.lock().set_timinca(0, NOMINAL);
        guest.start_tx(0, 64);
        // Two frames before and one behind the one to be stamped; EOP, IFCS, RS, DEXT.
        let plain = 64 | 3 << 20 | 0x2b << 24 | 64 << 46;
        let stamped = plain | 1 << 19;
        guest.send(
            0,
            &[plain, plain, stamped, plain].map(|low| (0x40_0000, low)),
        );
        guest.sender.run(&guest.env, &*wire, 256);
        assert_eq!(wire.now(), 1600, "one delivery");
        let ptp = guest.function.ptp.lock();
        assert_eq!((ptp.sent_valid(), ptp.sent_low()), (tsync::VALID, 0));
    }

    #[test]
    fn received_messages_are_stamped_as_the_driver_asks_for() {
        let (mut ptp, file) = (Ptp::default(), file());
        ptp.set_timinca(0, NOMINAL);
        let mut sync = [0; 44];
        sync[20..28].copy_from_slice(&[0x52, 0x54, 0, 0xff, 0xfe, 0x12, 0x34, 0x56]);
        sync[30..32].copy_from_slice(&[0x12, 0x34]);
        let layer2 = |bytes| Message {
            carrier: Carrier::Ethernet(0x88f7),
            bytes,
        };
        assert!(!ptp.received(&file, 16, layer2(&sync)));
        file.set(r::TSYNCRXCTL, tsync::ENABLED | 0x0a);
        assert!(!ptp.received(&file, 16, layer2(&sync)));
        file.set_at(r::ETQF, 3, etqf::FILTER | etqf::PTP | 0x88f7);
        assert!(ptp.received(&file, 16, layer2(&sync)));
        assert!(!ptp.received(&file, 32, layer2(&sync)), "one at a time");
        assert_eq!(ptp.received_low(), 16 << 19);
        assert_eq!(ptp.attributes(), (0x0012_3456, 0x1234_5254));
        assert_eq!(ptp.received_valid(), tsync::VALID);
        ptp.take_received_high();
        assert_eq!(ptp.received_valid(), 0);
        let mut announce = sync;
        announce[0] = 0x0b;
        assert!(!ptp.received(&file, 48, layer2(&announce)));

        let udp = Message {
            carrier: Carrier::Udp { to: 319 },
            bytes: &sync,
        };
        assert!(!ptp.received(&file, 48, udp));
        file.set_at(r::FTQF, 3, ftqf::PTP);
        file.set_at(r::IMIR, 3, u32::from(319u16.swap_bytes()));
        assert!(ptp.received(&file, 48, udp));
        assert!(!matches(&file, layer2(&[])));
    }
}
