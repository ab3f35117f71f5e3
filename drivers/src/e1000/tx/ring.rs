//! The transmit ring.

use std::collections::VecDeque;

use guest_mem::View;

use crate::bus::{Bus, BusError, Dma};
use crate::e1000::config::{Config, DriverError};
use crate::e1000::desc::{self, Data, Legacy, Raw, cmd};
use crate::e1000::headers::{self, MAX_HEADERS, TxOffload};

/// When the device shall report a descriptor done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Report {
    /// As [`Config::report_every`] says, with RS.
    #[default]
    Every,
    /// With RPS instead of RS, every frame.
    Sent,
    /// Never: only TDH tells ([`Driver::reclaim_by_head`]).
    Never,
}

/// How to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxOpts {
    /// Offload.
    pub offload: TxOffload,
    /// 802.1Q tag to insert.
    pub vlan: Option<u16>,
    /// Most bytes per descriptor; 0: the buffer size.
    pub split: u32,
    /// Delay the interrupt (IDE).
    pub delay: bool,
    /// Report.
    pub report: Report,
}

/// The transmit ring.
pub(in crate::e1000) struct Ring {
    pub(in crate::e1000) ring: Dma,
    pub(in crate::e1000) buffers: Dma,
    /// Bytes per buffer.
    pub(in crate::e1000) slot: u32,
    /// From one buffer to the next.
    pub(in crate::e1000) stride: u32,
    pub(in crate::e1000) count: u32,
    /// Next descriptor to fill.
    pub(in crate::e1000) tail: u32,
    /// First descriptor still with the device.
    pub(in crate::e1000) clean: u32,
    /// What TDT was last set to.
    pub(in crate::e1000) kicked: u32,
    /// Descriptors that will be reported, oldest first.
    pub(in crate::e1000) reports: VecDeque<u32>,
    /// Descriptors since the last report was asked for.
    pub(in crate::e1000) unreported: u32,
}

impl Ring {
    pub(in crate::e1000) fn new<B: Bus>(bus: &mut B, config: &Config) -> Result<Self, DriverError> {
        let count = config.tx_ring;
        if count == 0 || !count.is_multiple_of(8) || count > 4096 {
            return Err(DriverError::Config(
                "a ring has 8 to 4096 descriptors, by eights",
            ));
        }
        if config.tx_buffer == 0 || config.tx_buffer > 0x4000 {
            return Err(DriverError::Config(
                "a transmit buffer has 1 to 16384 bytes",
            ));
        }
        let stride = config.tx_stride.max(config.tx_buffer);
        if config.report_every == 0 || config.report_every > count / 2 {
            return Err(DriverError::Config(
                "reports are asked for at least twice per ring",
            ));
        }
        let ring = bus.alloc(u64::from(count) * desc::SIZE)?;
        let buffers = bus.alloc(u64::from(count) * u64::from(stride))?;
        Ok(Self {
            ring,
            buffers,
            slot: config.tx_buffer,
            stride,
            count,
            tail: 0,
            clean: 0,
            kicked: 0,
            reports: VecDeque::with_capacity(count as usize),
            unreported: 0,
        })
    }

    pub(in crate::e1000) fn memory(&self) -> [Dma; 2] {
        [self.ring, self.buffers]
    }

    pub(in crate::e1000) fn after(&self, index: u32) -> u32 {
        let next = index + 1;
        if next == self.count { 0 } else { next }
    }

    pub(in crate::e1000) fn in_use(&self) -> u32 {
        (self.tail + self.count - self.clean) % self.count
    }

    pub(in crate::e1000) fn free(&self) -> u32 {
        self.count - 1 - self.in_use()
    }

    pub(in crate::e1000) fn buffer(&self, index: u32) -> u64 {
        self.buffers.iova + u64::from(index) * u64::from(self.stride)
    }

    pub(in crate::e1000) fn push(
        &mut self,
        view: &View<'_>,
        raw: &Raw,
        reported: bool,
    ) -> Result<(), BusError> {
        view.write(self.ring.iova + u64::from(self.tail) * desc::SIZE, raw)?;
        self.note(reported);
        Ok(())
    }

    /// Moves the tail over a descriptor.
    pub(in crate::e1000) fn note(&mut self, reported: bool) {
        if reported {
            self.reports.push_back(self.tail);
            self.unreported = 0;
        } else {
            self.unreported += 1;
        }
        self.tail = self.after(self.tail);
    }

    /// Whether the frame that ends now shall be reported, and with which bit.
    pub(in crate::e1000) fn report_bit(&self, report: Report, descriptors: u32, every: u32) -> u8 {
        match report {
            Report::Sent => cmd::RPS,
            Report::Every if self.unreported + descriptors >= every => cmd::RS,
            _ => 0,
        }
    }

    /// Puts a frame and its descriptors down. `false` when there is no room.
    pub(in crate::e1000) fn queue(
        &mut self,
        view: &View<'_>,
        frame: &[u8],
        opts: &TxOpts,
        every: u32,
    ) -> Result<bool, DriverError> {
        if frame.is_empty() {
            return Err(DriverError::Frame("it is empty"));
        }
        let chunk = match opts.split {
            0 => self.slot,
            n => n.min(self.slot),
        };
        let pieces = frame.len().div_ceil(chunk as usize) as u32;
        let context = u32::from(opts.offload.wants_context());
        let needed = pieces + context;
        if needed > self.count - 1 {
            return Err(DriverError::Frame(
                "it needs more descriptors than there are",
            ));
        }
        if needed > self.free() {
            return Ok(false);
        }
        let mut headers = [0; MAX_HEADERS];
        let (mut patched, mut options) = (0, 0);
        if opts.offload.wants_context() {
            let mut prepared = headers::prepare(frame, frame.len(), opts.offload, &mut headers)?;
            (patched, options) = (prepared.len, prepared.popts);
            if opts.delay {
                prepared.context.tucmd |= cmd::IDE;
            }
            self.push(view, &prepared.context.raw(), false)?;
        }
        let report = self.report_bit(opts.report, pieces, every);
        for (at, bytes) in (0..)
            .step_by(chunk as usize)
            .zip(frame.chunks(chunk as usize))
        {
            let addr = self.buffer(self.tail);
            let split = patched.saturating_sub(at).min(bytes.len());
            if split > 0 {
                view.write(addr, &headers[at..at + split])
                    .map_err(BusError::from)?;
            }
            view.write(addr + split as u64, &bytes[split..])
                .map_err(BusError::from)?;
            let last = at + bytes.len() == frame.len();
            let end = if last { cmd::EOP | report } else { 0 };
            let raw = descriptor(addr, bytes.len(), opts, options, end);
            self.push(view, &raw, last && report != 0)?;
        }
        Ok(true)
    }

    /// Takes back what the device has reported done.
    pub(in crate::e1000) fn reclaim(&mut self, view: &View<'_>) -> Result<u32, BusError> {
        let before = self.in_use();
        while let Some(&index) = self.reports.front() {
            let mut status = [0];
            let at = self.ring.iova + u64::from(index) * desc::SIZE + 12;
            view.read_acquire(at, &mut status)?;
            if status[0] & desc::DD == 0 {
                break;
            }
            self.reports.pop_front();
            self.clean = self.after(index);
        }
        Ok(before - self.in_use())
    }
}

fn descriptor(addr: u64, len: usize, opts: &TxOpts, options: u8, end: u8) -> Raw {
    let mut command = cmd::IFCS | end;
    if opts.delay && end & cmd::EOP != 0 {
        command |= cmd::IDE;
    }
    if opts.vlan.is_some() {
        command |= cmd::VLE;
    }
    let special = opts.vlan.unwrap_or(0);
    match opts.offload {
        TxOffload::None => Legacy {
            addr,
            len: len as u16,
            cmd: command,
            special,
            ..Legacy::default()
        }
        .raw(),
        TxOffload::LegacySum { start, store } => Legacy {
            addr,
            len: len as u16,
            cmd: command | cmd::IC,
            css: start,
            cso: store,
            special,
        }
        .raw(),
        TxOffload::Extended | TxOffload::Sums { .. } | TxOffload::Tso { .. } => {
            if matches!(opts.offload, TxOffload::Tso { .. }) {
                command |= cmd::TSE;
            }
            Data {
                addr,
                len: len as u32,
                cmd: command,
                popts: options,
                special,
            }
            .raw()
        }
    }
}
