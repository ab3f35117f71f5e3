//! Putting frames of any kind into the ring (manual §3.2.2–3.2.6).

use datapath::counters::count;
use frame::Frame;
use intel::rx::{Accepted, Done, End, Fcs, Format, Legacy, Put};
use intel::{DD, verdict};

use crate::filter::address::{FILTERS, buffer_size};
use crate::regs::bits::{rctl, rx_error, rx_status, rxcsum};
use crate::rx::call::{Call, Outcome, Rx};

/// What the last descriptor of a frame says.
#[derive(Clone, Copy, Default)]
pub(crate) struct Report {
    pub checksum: u16,
    pub status: u8,
    pub errors: u8,
    pub special: u16,
}

impl Report {
    /// Of a frame of which something is lost.
    const LOST: Report = Report {
        checksum: 0,
        status: rx_status::IXSM,
        errors: rx_error::RXE,
        special: 0,
    };

    /// The second word of a descriptor whose buffer holds `len` bytes (manual §3.2.3).
    #[inline]
    pub(crate) fn word(&self, len: usize, status: u8) -> u64 {
        let done = Legacy {
            len: len as u16,
            checksum: self.checksum,
            status: DD | status | self.status,
            errors: self.errors,
            special: self.special,
        };
        done.word()
    }
}

/// The buffer's address stays where it is.
impl Format for Report {
    fn done(&self, done: Done) -> (Option<u64>, u64) {
        let word = match done.end {
            End::No => Report::default().word(done.len, 0),
            End::Whole => self.word(done.len, rx_status::EOP),
            End::Lost => Report::LOST.word(done.len, rx_status::EOP),
        };
        (None, word)
    }
}

impl Call<'_, '_> {
    /// What stands behind a frame in its buffers.
    pub(crate) fn fcs(&self) -> Fcs {
        match (self.rctl & rctl::SECRC != 0, self.chip.true_fcs) {
            (true, _) => Fcs::Stripped,
            (false, true) => Fcs::True,
            (false, false) => Fcs::Zero,
        }
    }

    /// What the last descriptor of a frame says.
    fn report(&self, frame: &Frame<'_>, accepted: &Accepted, checksum: u16) -> Report {
        let (status, errors) = verdict(self.rxcsum, frame);
        let mut report = Report {
            checksum,
            status,
            errors,
            special: 0,
        };
        if accepted.strip {
            report.status |= rx_status::VP;
            report.special = accepted.tag.unwrap_or(0);
        }
        if FILTERS.inexact(&self.chip.file, self.rctl, accepted.dst) {
            report.status |= rx_status::PIF;
        }
        report
    }
}

impl Rx<'_, '_> {
    /// Copies a frame into buffers, if there are enough of them, and counts it.
    pub(crate) fn put(&mut self, frame: &Frame<'_>, accepted: &Accepted) -> Outcome {
        let (call, writer) = (&self.call, &mut self.writer);
        let put = Put {
            buffer: buffer_size(call.rctl),
            fcs: call.fcs(),
            sum_from: (call.rxcsum & rxcsum::PCSS) as usize,
            expected: call.expected,
        };
        let placed = writer
            .descs
            .put(&mut writer.room, &put, (frame, accepted), |laid| {
                (call.report(frame, accepted, laid.checksum), 0)
            });
        let counters = &call.chip.counters;
        count(&counters.rx_dma_fault, placed.faults);
        if placed.too_large {
            count(&counters.rx_too_large, 1);
            self.counts.miss(placed.len);
        }
        if placed.outcome == Outcome::Done {
            let account = &mut self.counts.account;
            accepted.count_received(&mut account.tally);
            account.frames += 1;
            account.bytes += frame.len() as u64;
            // With CRC and tag as far as they are not stripped (manual §3.2.7.2).
            account.small |= call.rsrpd != 0 && placed.len <= call.rsrpd;
        }
        placed.outcome
    }
}
