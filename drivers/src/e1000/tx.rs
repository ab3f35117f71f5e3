//! Sending.

use std::collections::VecDeque;

use guest_mem::View;

use super::desc::{self, Data, Legacy, Raw, cmd};
use super::headers::{self, MAX_HEADERS};
use super::regs::{self, tctl};
use super::{Config, Driver, DriverError};
use crate::bus::{Bus, BusError, Dma};

/// Descriptors put down in one go.
const BLOCK: usize = 64;

/// What the device shall do to a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TxOffload {
    /// Nothing: legacy descriptors.
    #[default]
    None,
    /// Nothing, but data descriptors.
    Extended,
    /// A legacy descriptor's checksum: the sum from byte `start` to the end, stored at `store`.
    LegacySum {
        /// CSS.
        start: u8,
        /// CSO.
        store: u8,
    },
    /// Checksums by context.
    Sums {
        /// The IPv4 header's; IPv6 has none.
        ip: bool,
        /// TCP's or UDP's.
        l4: bool,
    },
    /// TCP segmentation.
    Tso {
        /// Payload bytes per segment.
        mss: u16,
    },
}

impl TxOffload {
    pub(super) fn ip_sum(self) -> bool {
        matches!(self, Self::Sums { ip: true, .. } | Self::Tso { .. })
    }

    pub(super) fn l4_sum(self) -> bool {
        matches!(self, Self::Sums { l4: true, .. } | Self::Tso { .. })
    }

    fn wants_context(self) -> bool {
        self.ip_sum() || self.l4_sum()
    }
}

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
pub(super) struct Ring {
    ring: Dma,
    buffers: Dma,
    /// Bytes per buffer.
    slot: u32,
    /// From one buffer to the next.
    stride: u32,
    count: u32,
    /// Next descriptor to fill.
    tail: u32,
    /// First descriptor still with the device.
    clean: u32,
    /// What TDT was last set to.
    kicked: u32,
    /// Descriptors that will be reported, oldest first.
    reports: VecDeque<u32>,
    /// Descriptors since the last report was asked for.
    unreported: u32,
}

impl Ring {
    pub(super) fn new<B: Bus>(bus: &mut B, config: &Config) -> Result<Self, DriverError> {
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

    pub(super) fn memory(&self) -> [Dma; 2] {
        [self.ring, self.buffers]
    }

    fn after(&self, index: u32) -> u32 {
        let next = index + 1;
        if next == self.count { 0 } else { next }
    }

    fn in_use(&self) -> u32 {
        (self.tail + self.count - self.clean) % self.count
    }

    fn free(&self) -> u32 {
        self.count - 1 - self.in_use()
    }

    fn buffer(&self, index: u32) -> u64 {
        self.buffers.iova + u64::from(index) * u64::from(self.stride)
    }

    fn push(&mut self, view: &View<'_>, raw: &Raw, reported: bool) -> Result<(), BusError> {
        view.write(self.ring.iova + u64::from(self.tail) * desc::SIZE, raw)?;
        self.note(reported);
        Ok(())
    }

    /// Moves the tail over a descriptor.
    fn note(&mut self, reported: bool) {
        if reported {
            self.reports.push_back(self.tail);
            self.unreported = 0;
        } else {
            self.unreported += 1;
        }
        self.tail = self.after(self.tail);
    }

    /// Whether the frame that ends now shall be reported, and with which bit.
    fn report_bit(&self, report: Report, descriptors: u32, every: u32) -> u8 {
        match report {
            Report::Sent => cmd::RPS,
            Report::Every if self.unreported + descriptors >= every => cmd::RS,
            _ => 0,
        }
    }

    /// Puts a frame and its descriptors down. `false` when there is no room.
    fn queue(
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
    fn reclaim(&mut self, view: &View<'_>) -> Result<u32, BusError> {
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

impl<B: Bus> Driver<B> {
    /// Programs the transmit side with the current ring, and enables it.
    pub(super) fn start_tx(&mut self) -> Result<(), DriverError> {
        let ring = self.tx.ring;
        let length = self.tx.count * desc::SIZE as u32;
        for (register, value) in [
            (regs::TDBAL, ring.iova as u32),
            (regs::TDBAH, (ring.iova >> 32) as u32),
            (regs::TDLEN, length),
            (regs::TDH, 0),
            (regs::TDT, 0),
            // Copper: 8, 8, 6 (13.4.34).
            (regs::TIPG, 8 | 8 << 10 | 6 << 20),
            (regs::TIDV, self.config.tidv),
            (regs::TADV, self.config.tadv),
        ] {
            self.bus.write32(register, value)?;
        }
        let control =
            tctl::EN | tctl::PSP | tctl::RTLC | 15 << tctl::CT_SHIFT | 64 << tctl::COLD_SHIFT;
        Ok(self.bus.write32(regs::TCTL, control)?)
    }

    /// Stops transmitting and starts again with a new ring of `count` descriptors elsewhere in
    /// memory, without a reset. Frames still in the old ring are lost.
    ///
    /// # Errors
    /// When there is no memory or the device is gone.
    pub fn restart_tx(&mut self, count: u32) -> Result<(), DriverError> {
        let value = self.bus.read32(regs::TCTL)?;
        self.bus.write32(regs::TCTL, value & !tctl::EN)?;
        self.bus.read32(regs::STATUS)?;
        self.config.tx_ring = count;
        let old = self.tx.memory();
        self.tx = Ring::new(&mut self.bus, &self.config)?;
        self.start_tx()?;
        for dma in old {
            self.bus.free(dma)?;
        }
        Ok(())
    }

    /// Queues as many of `frames` as there is room for and tells the device once. Returns how
    /// many were taken.
    ///
    /// # Errors
    /// When a frame cannot be sent this way, or the device is gone.
    pub fn send(&mut self, frames: &[&[u8]], opts: &TxOpts) -> Result<usize, DriverError> {
        let taken = self.queue(frames, opts)?;
        self.kick()?;
        Ok(taken)
    }

    /// As [`Driver::send`], without telling the device ([`Driver::kick`] does).
    ///
    /// # Errors
    /// When a frame cannot be sent this way.
    pub fn queue(&mut self, frames: &[&[u8]], opts: &TxOpts) -> Result<usize, DriverError> {
        let view = self.memory.view();
        let every = self.config.report_every;
        let mut taken = 0;
        for frame in frames {
            if !self.tx.queue(&view, frame, opts, every)? {
                self.tx.reclaim(&view)?;
                if !self.tx.queue(&view, frame, opts, every)? {
                    break;
                }
            }
            taken += 1;
        }
        Ok(taken)
    }

    /// Queues `count` frames of `len` bytes whose bytes already lie in the buffers
    /// ([`Driver::fill_buffers`]), after `patch` had a look at each: it gets the frame's number
    /// and its address. The way of a packet generator: nothing is copied. Returns how many there
    /// was room for.
    ///
    /// # Errors
    /// When `len` does not fit one buffer or the driver's memory is gone.
    pub fn queue_in_place(
        &mut self,
        count: usize,
        len: u32,
        mut patch: impl FnMut(usize, u64, &View<'_>) -> Result<(), BusError>,
    ) -> Result<usize, DriverError> {
        if len == 0 || len > self.tx.slot {
            return Err(DriverError::Frame("it does not fit a buffer"));
        }
        let view = self.memory.view();
        let every = self.config.report_every;
        if (self.tx.free() as usize) < count {
            self.tx.reclaim(&view)?;
        }
        let count = count.min(self.tx.free() as usize);
        let mut block = [0u8; BLOCK * desc::SIZE as usize];
        let mut number = 0;
        while number < count {
            // Descriptors are put down in runs, up to the end of the ring.
            let first = self.tx.tail;
            let run = BLOCK
                .min(count - number)
                .min((self.tx.count - first) as usize);
            let block = &mut block[..run * desc::SIZE as usize];
            for raw in block.chunks_exact_mut(desc::SIZE as usize) {
                let addr = self.tx.buffer(self.tx.tail);
                patch(number, addr, &view)?;
                let report = self.tx.report_bit(Report::Every, 1, every);
                let legacy = Legacy {
                    addr,
                    len: len as u16,
                    cmd: cmd::EOP | cmd::IFCS | report,
                    ..Legacy::default()
                };
                raw.copy_from_slice(&legacy.raw());
                self.tx.note(report != 0);
                number += 1;
            }
            let at = self.tx.ring.iova + u64::from(first) * desc::SIZE;
            view.write(at, block).map_err(BusError::from)?;
        }
        Ok(count)
    }

    /// Copies `bytes` to the start of every transmit buffer. Only while nothing is queued.
    ///
    /// # Errors
    /// When `bytes` do not fit one buffer or the driver's memory is gone.
    pub fn fill_buffers(&mut self, bytes: &[u8]) -> Result<(), DriverError> {
        if bytes.len() > self.tx.slot as usize {
            return Err(DriverError::Frame("it does not fit a buffer"));
        }
        let view = self.memory.view();
        for index in 0..self.tx.count {
            view.write(self.tx.buffer(index), bytes)
                .map_err(BusError::from)?;
        }
        Ok(())
    }

    /// Puts one descriptor of the caller's making into the ring; `reported` when it asks for
    /// status. `false` when there is no room.
    ///
    /// # Errors
    /// When the driver's memory is gone.
    pub fn queue_raw(&mut self, raw: &Raw, reported: bool) -> Result<bool, DriverError> {
        if self.tx.free() == 0 {
            return Ok(false);
        }
        let view = self.memory.view();
        self.tx.push(&view, raw, reported)?;
        Ok(true)
    }

    /// Tells the device of what was queued since the last time: one write of TDT, or none.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn kick(&mut self) -> Result<(), DriverError> {
        if self.tx.kicked != self.tx.tail {
            self.tx.kicked = self.tx.tail;
            self.bus.write32(regs::TDT, self.tx.tail)?;
        }
        Ok(())
    }

    /// Takes back descriptors reported done. Returns how many.
    ///
    /// # Errors
    /// When the driver's memory is gone.
    pub fn reclaim(&mut self) -> Result<u32, DriverError> {
        let view = self.memory.view();
        Ok(self.tx.reclaim(&view)?)
    }

    /// Takes back everything before TDH, reported or not. Returns how many.
    ///
    /// # Errors
    /// When the device is gone or TDH lies outside the ring.
    pub fn reclaim_by_head(&mut self) -> Result<u32, DriverError> {
        let value = self.bus.read32(regs::TDH)?;
        if value >= self.tx.count {
            return Err(DriverError::Timeout {
                what: "TDH within the ring",
                value,
            });
        }
        let before = self.tx.in_use();
        self.tx.clean = value;
        // Reports asked for before the head have been passed.
        let (count, tail, used) = (self.tx.count, self.tx.tail, self.tx.in_use());
        self.tx
            .reports
            .retain(|&index| (tail + count - index - 1) % count < used);
        Ok(before.saturating_sub(used))
    }

    /// Descriptors the device has not reported done yet.
    pub fn tx_pending(&self) -> u32 {
        self.tx.in_use()
    }

    /// Descriptors that can be queued now.
    pub fn tx_free(&self) -> u32 {
        self.tx.free()
    }
}
