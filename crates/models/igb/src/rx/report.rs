//! What the descriptors of a received frame report (§7.1.4, §7.1.5, §7.1.11).

use std::sync::atomic::Ordering;

use frame::{Frame, sum_range};
use intel::rx::Legacy;
use intel::verdict::{rx_error, rx_status};
use intel::{DD, verdict};
use wire::{Crc32c, Fragment, L3Kind, L4Kind};

use crate::filter::headers::{Headers, is_sctp};
use crate::filter::rss::{Class, ptype};
use crate::ptp::{Carrier, Message};
use crate::regs::bits::{psrtype, rfctl, rxcsum};
use crate::rx::call::Call;
use crate::rx::shape::ShapeKind;

/// Status and errors beside those that [`verdict`] knows, as the second word of a descriptor has
/// them. Bits 20 on exist in advanced descriptors only.
pub(crate) mod desc_status {
    pub const EOP: u32 = 1 << 1;
    pub const VP: u32 = 1 << 3;
    pub const UDPCS: u32 = 1 << 4;
    pub const PIF: u32 = 1 << 7;
    /// The identification of an IPv4 packet is reported.
    pub const IPIDV: u32 = 1 << 9;
    /// The checksum of a fragment of UDP is reported.
    pub const UDPV: u32 = 1 << 10;
    /// The time of arrival was taken.
    pub const TS: u32 = 1 << 16;
    /// The header was longer than its buffer.
    pub const HBO: u32 = 1 << 23;
    /// Bit 7 of the errors of a legacy descriptor.
    pub const RXE: u32 = 1 << 31;
}

/// Where the errors are in status and errors, and the checksum of a fragment in the value.
pub(crate) const ERRORS_AT: u32 = 24;
const CHECKSUM_AT: u32 = 16;
/// The second word of an advanced descriptor: PKT_LEN and VLAN behind the status (§7.1.5.2).
pub(crate) const PKT_LEN_AT: u32 = 32;
const VLAN_AT: u32 = 48;
/// A legacy descriptor has eight status bits, and eight error bits.
const LEGACY: u32 = 0xff00_00ff;

/// What the descriptors of a frame report.
#[derive(Clone, Copy, Default)]
pub(crate) struct Report {
    /// Status and errors, without DD and EOP.
    pub status: u32,
    /// Types of hash and packet.
    pub info: u16,
    /// Hash, or identification and checksum.
    pub value: u32,
    /// The checksum a legacy descriptor reports.
    pub checksum: u16,
    pub tag: u16,
}

impl Report {
    /// The report of a frame that was lost in part.
    pub(crate) const LOST: Report = Report {
        status: rx_status::IXSM as u32 | desc_status::RXE,
        info: 0,
        value: 0,
        checksum: 0,
        tag: 0,
    };

    /// The first word of an advanced descriptor, without what is said of its header: types, then hash or
    /// identification and checksum (§7.1.5.2).
    #[inline]
    pub(crate) fn first_word(&self) -> u64 {
        u64::from(self.info) | u64::from(self.value) << 32
    }
}

impl Call<'_> {
    /// Checksums, types and hash of a frame.
    pub(crate) fn report(
        &self,
        frame: &Frame<'_>,
        headers: &Headers,
        class: &Class,
        timed: Option<bool>,
    ) -> Report {
        let settings = &self.settings;
        let mut report = Report {
            info: class.info,
            ..Report::default()
        };
        let (low, errors) = self.sums(frame, headers);
        report.status = low | u32::from(errors) << ERRORS_AT;
        if timed.unwrap_or_else(|| self.timed(headers)) {
            report.status |= desc_status::TS;
        }
        if settings.sums(rxcsum::PCSD) {
            report.value = class.hash;
            return report;
        }
        // No hash is reported, so it has no type.
        report.info &= !ptype::RSS_TYPE;
        if let Some(id) = headers.ip_id() {
            report.value = u32::from(id);
            report.status |= desc_status::IPIDV;
        }
        if let Some(sum) = self.fragment_sum(frame, headers) {
            report.value |= u32::from(sum) << CHECKSUM_AT;
            report.status |= desc_status::UDPV;
        }
        report
    }

    /// Status and error bits of checksums (§7.1.11).
    fn sums(&self, frame: &Frame<'_>, headers: &Headers) -> (u32, u8) {
        let settings = &self.settings;
        let layers = headers.layers.as_ref();
        let l3 = layers.and_then(|l| l.l3);
        let l4 = layers.and_then(|l| l.l4).map(|l4| l4.kind);
        let six = l3.is_some_and(|l3| l3.kind == L3Kind::V6);
        let skipped = rfctl::IPV6_DIS | rfctl::IPV6_XSUM_DIS;
        if six && settings.rfctl & skipped != 0 {
            return (rx_status::IXSM.into(), 0);
        }
        let (mut status, mut errors) = verdict(settings.rxcsum, frame);
        if status & rx_status::TCPCS != 0 && l4 == Some(L4Kind::Udp) {
            return (u32::from(status) | desc_status::UDPCS, errors);
        }
        if settings.sums(rxcsum::CRCOFL)
            && l4.is_some_and(is_sctp)
            && let Some(intact) = sctp_intact(frame, headers)
        {
            status = status & !rx_status::IXSM | rx_status::TCPCS;
            if !intact {
                errors |= rx_error::TCPE;
            }
        }
        (status.into(), errors)
    }

    /// The sum over the payload of a UDP fragment over IPv4 (§7.1.11.2).
    fn fragment_sum(&self, frame: &Frame<'_>, headers: &Headers) -> Option<u16> {
        if !self.settings.sums(rxcsum::IPPCSE) || !self.settings.sums(rxcsum::TUOFL) {
            return None;
        }
        let l3 = headers.layers?.l3?;
        let udp = headers.bytes().get(l3.offset + 9) == Some(&17);
        if l3.kind != L3Kind::V4 || l3.fragment == Fragment::Whole || !udp {
            return None;
        }
        let carried = l3.total.checked_sub(l3.len)?;
        Some(sum_range(frame, l3.offset + l3.len, carried).finish())
    }

    /// Whether the frame is a PTP message whose time of arrival has been taken (§7.9).
    pub(crate) fn timed(&self, headers: &Headers) -> bool {
        let Some(layers) = headers.layers.filter(|_| self.listens) else {
            return false;
        };
        let bytes = headers.bytes();
        let (carrier, at) = match layers.l4 {
            Some(l4) if l4.kind == L4Kind::Udp => {
                let port = bytes.get(l4.offset + 2..).and_then(<[u8]>::first_chunk);
                let to = port.map_or(0, |port| u16::from_be_bytes(*port));
                (Carrier::Udp { to }, l4.offset + l4.len)
            }
            _ => (Carrier::Ethernet(layers.ether_type.0), layers.l2_len),
        };
        let message = Message {
            carrier,
            bytes: bytes.get(at..).unwrap_or(&[]),
        };
        let now = self.env.clock.now();
        let function = self.function;
        let stamped = function.ptp.lock().received(&function.file, now, message);
        if stamped {
            function.touched.store(true, Ordering::Release);
        }
        stamped
    }

    /// Bytes of the headers of the frame, if PSRTYPE asks for packets of its kind (§7.1.10).
    pub(crate) fn header(&self, queue: u32, headers: &Headers) -> Option<usize> {
        let function = self.function;
        let id = function.ids.psrtype;
        let pools = function.file.table().register(id).count;
        let types = function.file.get_at(id, queue % pools);
        let layers = headers.layers?;
        let l3 = layers.l3?;
        let [ip, tcp, udp] = match l3.kind {
            L3Kind::V4 => [psrtype::IPV4, psrtype::IPV4_TCP, psrtype::IPV4_UDP],
            L3Kind::V6 => [psrtype::IPV6, psrtype::IPV6_TCP, psrtype::IPV6_UDP],
        };
        if l3.fragment != Fragment::Whole {
            let wanted = types & ip != 0 && self.settings.rfctl & rfctl::IPFRSP_DIS == 0;
            return wanted.then_some(l3.offset + l3.len);
        }
        let l4 = layers.l4?;
        let bit = match l4.kind {
            L4Kind::Tcp => tcp,
            L4Kind::Udp => udp,
            L4Kind::Other(_) => return None,
        };
        (types & bit != 0).then_some(l4.offset + l4.len)
    }
}

/// The second word of a descriptor whose packet buffer holds `len` bytes.
pub(crate) fn word(kind: ShapeKind, len: usize, more: u32, report: &Report) -> u64 {
    let status = u32::from(DD) | more | report.status;
    if kind != ShapeKind::Legacy {
        let (len, tag) = (u64::from(len as u16), u64::from(report.tag));
        return u64::from(status) | len << PKT_LEN_AT | tag << VLAN_AT;
    }
    let status = status & LEGACY;
    let done = Legacy {
        len: len as u16,
        checksum: report.checksum,
        status: status as u8,
        errors: (status >> ERRORS_AT) as u8,
        special: report.tag,
    };
    done.word()
}

/// Whether the CRC32c of an SCTP packet is right; `None` if not all of it is here (RFC 9260 §6.8).
fn sctp_intact(frame: &Frame<'_>, headers: &Headers) -> Option<bool> {
    let layers = headers.layers?;
    let l4 = layers.l4?;
    let len = layers.l4_span(frame.len())?;
    let given = headers.bytes().get(l4.offset + 8..)?.first_chunk::<4>()?;
    let mut crc = Crc32c::new();
    let (mut done, mut copy) = (0, [0; 512]);
    while done < len {
        let most = copy.len().min(len - done);
        let n = frame.copy_to(l4.offset + done, &mut copy[..most]);
        if n == 0 {
            return None;
        }
        if done == 0 {
            copy.get_mut(8..12)?.fill(0);
        }
        crc.add(&copy[..n]);
        done += n;
    }
    Some(crc.finish() == u32::from_le_bytes(*given))
}
