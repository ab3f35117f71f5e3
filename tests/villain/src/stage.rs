//! A NIC set up just enough to be misused.

use drivers::e1000::desc::{self, Context, Data, Legacy, Raw, Receive, cmd, popts, tucmd};
use drivers::e1000::regs::{self, ctrl, rctl, tctl};
use drivers::{Bus, BusError, Dma};

/// Descriptors of the villain's rings.
pub(crate) const RING: u32 = 32;

/// Bytes of the villain's buffer; frames start at its beginning.
pub(crate) const BUFFER: u64 = 0x2_0000;

/// A transmit ring, a receive ring and one buffer.
pub(crate) struct Stage<'b> {
    pub bus: &'b mut dyn Bus,
    pub tx: Dma,
    pub rx: Dma,
    pub buffer: Dma,
    tail: u32,
}

impl<'b> Stage<'b> {
    /// Resets the NIC, enables bus mastering and both sides, with honest rings. The receive
    /// ring is given to the device only by [`Stage::post`].
    pub(crate) fn new(bus: &'b mut dyn Bus) -> Result<Self, BusError> {
        bus.config_write(4, &7u16.to_le_bytes())?;
        bus.write32(regs::CTRL, ctrl::RST)?;
        bus.delay(std::time::Duration::from_millis(5))?;
        bus.write32(regs::CTRL, ctrl::SLU | ctrl::ASDE | ctrl::FD)?;
        for _ in 0..500 {
            if bus.read32(regs::STATUS)? & regs::status::LU != 0 {
                break;
            }
            bus.delay(std::time::Duration::from_millis(10))?;
        }
        let tx = bus.alloc(u64::from(RING) * desc::SIZE)?;
        let rx = bus.alloc(u64::from(RING) * desc::SIZE)?;
        let buffer = bus.alloc(BUFFER)?;
        let mut stage = Self {
            bus,
            tx,
            rx,
            buffer,
            tail: 0,
        };
        let frame = tcp_frame(1400);
        stage.bus.dma_write(buffer.iova, &frame)?;
        stage.tx_ring(tx.iova, RING * desc::SIZE as u32)?;
        stage.rx_ring(rx.iova, RING * desc::SIZE as u32)?;
        stage.bus.write32(regs::TCTL, tctl::EN | tctl::PSP)?;
        stage.receive_control(0)?;
        Ok(stage)
    }

    pub(crate) fn tx_ring(&mut self, base: u64, len: u32) -> Result<(), BusError> {
        self.bus.write32(regs::TDBAL, base as u32)?;
        self.bus.write32(regs::TDBAH, (base >> 32) as u32)?;
        self.bus.write32(regs::TDLEN, len)?;
        self.bus.write32(regs::TDH, 0)?;
        self.bus.write32(regs::TDT, 0)
    }

    pub(crate) fn rx_ring(&mut self, base: u64, len: u32) -> Result<(), BusError> {
        self.bus.write32(regs::RDBAL, base as u32)?;
        self.bus.write32(regs::RDBAH, (base >> 32) as u32)?;
        self.bus.write32(regs::RDLEN, len)?;
        self.bus.write32(regs::RDH, 0)?;
        self.bus.write32(regs::RDT, 0)
    }

    /// Promiscuous reception with these further bits of RCTL.
    pub(crate) fn receive_control(&mut self, bits: u32) -> Result<(), BusError> {
        let all = rctl::EN | rctl::UPE | rctl::MPE | rctl::BAM | rctl::LPE;
        self.bus.write32(regs::RCTL, all | bits)
    }

    /// Puts descriptors down, rings the bell once and lets the device finish with them.
    pub(crate) fn send(&mut self, raws: &[Raw]) -> Result<(), BusError> {
        self.send_on(raws)?;
        self.settle()
    }

    /// Lets the device finish what it has been told: a bell is a posted write, and the work behind
    /// it begins after the next answer. Done when both heads have stood still for a while.
    pub(crate) fn settle(&mut self) -> Result<(), BusError> {
        const STILL: u32 = 3;
        let (mut last, mut same) = (None, 0);
        for _ in 0..1000 {
            let now = Some((self.bus.read32(regs::TDH)?, self.bus.read32(regs::RDH)?));
            same = if now == last { same + 1 } else { 0 };
            if same == STILL {
                break;
            }
            last = now;
        }
        Ok(())
    }

    /// Puts descriptors down, rings the bell and goes on at once.
    pub(crate) fn send_on(&mut self, raws: &[Raw]) -> Result<(), BusError> {
        for raw in raws {
            let at = self.tx.iova + u64::from(self.tail) * desc::SIZE;
            self.bus.dma_write(at, raw)?;
            self.tail = (self.tail + 1) % RING;
        }
        self.bus.write32(regs::TDT, self.tail)
    }

    /// Points every receive descriptor at `addr` and gives all but one to the device.
    pub(crate) fn post(&mut self, addr: u64) -> Result<(), BusError> {
        for index in 0..RING {
            let at = self.rx.iova + u64::from(index) * desc::SIZE;
            self.bus.dma_write(at, &Receive::empty(addr))?;
        }
        self.bus.write32(regs::RDT, RING - 1)
    }

    /// Has frames of many sizes arrive from the far end, where there is one.
    pub(crate) fn traffic(&mut self) -> Result<(), BusError> {
        self.settle()?;
        for len in [60, 61, 255, 256, 257, 1400, 1514, 4000, 9014, 16110] {
            self.bus.inject(&tcp_frame(len))?;
        }
        Ok(())
    }

    /// A legacy descriptor for `len` bytes of the buffer that ends a frame.
    pub(crate) fn legacy(&self, len: u16) -> Legacy {
        Legacy {
            addr: self.buffer.iova,
            len,
            cmd: cmd::EOP | cmd::IFCS | cmd::RS,
            ..Legacy::default()
        }
    }

    /// A data descriptor for `len` bytes of the buffer that ends a frame.
    pub(crate) fn data(&self, len: u32, command: u8, popts: u8) -> Data {
        Data {
            addr: self.buffer.iova,
            len,
            cmd: cmd::EOP | cmd::IFCS | cmd::RS | command,
            popts,
            special: 0,
        }
    }

    /// Gives the villain's memory back.
    pub(crate) fn leave(mut self) -> Result<(), BusError> {
        self.settle()?;
        for dma in [self.tx, self.rx, self.buffer] {
            self.bus.free(dma)?;
        }
        Ok(())
    }
}

pub(crate) type Done = Result<(), BusError>;

/// Sends the buffer's first `len` bytes by these contexts, segmented.
pub(crate) fn segment(stage: &mut Stage<'_>, len: u32, context: Context) -> Done {
    let data = stage.data(len, cmd::TSE, popts::IXSM | popts::TXSM);
    stage.send(&[context.raw(), data.raw()])
}

/// An honest context for [`tcp_frame`], for segmentation.
pub(crate) fn tso_context(mss: u16, hdrlen: u8, paylen: u32) -> Context {
    Context {
        ipcss: 14,
        ipcso: 24,
        ipcse: 33,
        tucss: 34,
        tucso: 50,
        tucse: 0,
        paylen,
        tucmd: tucmd::TCP | tucmd::IP | tucmd::TSE,
        hdrlen,
        mss,
    }
}

/// A broadcast TCP/IPv4 frame of `len` bytes (at least 54), without checksums.
pub(crate) fn tcp_frame(len: usize) -> Vec<u8> {
    let mut frame = vec![0u8; len];
    frame[0..6].fill(0xff);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 0x66]);
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14] = 0x45;
    let total = (len - 14) as u16;
    frame[16..18].copy_from_slice(&total.to_be_bytes());
    frame[22] = 64;
    frame[23] = 6;
    frame[26..30].copy_from_slice(&[10, 0, 0, 1]);
    frame[30..34].copy_from_slice(&[10, 0, 0, 2]);
    frame[46] = 5 << 4;
    frame
}

/// Numbers that look random and are the same in every run.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number (xorshift64*).
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// One below `n`, which is not 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() >> 33) as usize % n
    }
}
