//! A function set up just enough to be misused. What holds for both kinds is found by the device id.

use std::time::Duration;

use drivers::{Bus, BusError, Dma};

/// Descriptors of the villain's rings.
pub(super) const RING: u32 = 32;
/// Bytes of either ring.
pub(super) const LEN: u32 = RING * 16;
/// Bytes of the villain's buffer; frames start at its beginning.
pub(super) const BUFFER: u64 = 0x2_0000;

pub(super) use intel_offsets::igb::queue::{
    BASE, BASE_HIGH, HEAD, HEAD_WB, LEN as SIZE, SRRCTL, TAIL, XDCTL,
};
pub(super) use intel_offsets::igb::{
    CTRL, EICR, EICS, EITR, IVAR, IVAR_MISC, RAL, RCTL, STATUS, TCTL, VMBMEM,
};
pub(super) use intel_offsets::igbvf::V2PMAILBOX;
pub(super) use intel_offsets::igbvf::mailbox::{ACK, PFSTS, REQ, RSTD, RSTI, VFU};

pub(super) const RST: u32 = 1 << 26;
pub(super) const ENABLE: u32 = 1 << 25;
/// SRRCTL: advanced descriptors of one buffer of 2 KiB.
pub(super) const ONE_BUFFER: u32 = 1 << 25 | 2;

/// Bits of a descriptor's command.
pub(super) mod cmd {
    pub const EOP: u8 = 1;
    pub const IFCS: u8 = 1 << 1;
    pub const IC: u8 = 1 << 2;
    pub const RS: u8 = 1 << 3;
    pub const DEXT: u8 = 1 << 5;
    pub const VLE: u8 = 1 << 6;
    pub const TSE: u8 = 1 << 7;
}

pub(super) type Raw = [u8; 16];
pub(super) type Done = Result<(), BusError>;

/// A function with its first queue running in both directions, and one buffer.
pub(super) struct Stage<'b> {
    pub bus: &'b mut dyn Bus,
    pub virtual_one: bool,
    pub mac: [u8; 6],
    pub tx: Dma,
    pub rx: Dma,
    pub buffer: Dma,
    tail: u32,
}

/// Whether this is a virtual function.
pub(super) fn is_virtual(bus: &mut dyn Bus) -> Result<bool, BusError> {
    let mut id = [0; 2];
    bus.config_read(2, &mut id)?;
    Ok(u16::from_le_bytes(id) == 0x10ca)
}

/// Puts a message into the mailbox, and does not wait.
pub(super) fn post(bus: &mut dyn Bus, words: &[u32]) -> Done {
    bus.write32(V2PMAILBOX, VFU)?;
    for (at, word) in (VMBMEM..).step_by(4).zip(words) {
        bus.write32(at, *word)?;
    }
    bus.write32(V2PMAILBOX, REQ)
}

/// Puts a message into the mailbox, and returns three words of the answer. `None`: there is none.
pub(super) fn ask(bus: &mut dyn Bus, words: &[u32]) -> Result<Option<[u32; 3]>, BusError> {
    post(bus, words)?;
    for _ in 0..3000 {
        if bus.read32(V2PMAILBOX)? & PFSTS != 0 {
            let mut reply = [0; 3];
            for (at, word) in (VMBMEM..).step_by(4).zip(&mut reply) {
                *word = bus.read32(at)?;
            }
            bus.write32(V2PMAILBOX, ACK)?;
            return Ok(Some(reply));
        }
        bus.delay(Duration::from_micros(500))?;
    }
    Ok(None)
}

/// Resets a VF and has it greet its PF. `None`: it is not let up.
pub(super) fn greet(bus: &mut dyn Bus) -> Result<Option<[u8; 6]>, BusError> {
    bus.write32(CTRL, RST)?;
    for _ in 0..200 {
        if bus.read32(V2PMAILBOX)? & (RSTI | RSTD) == 0 {
            let reply = ask(bus, &[1])?.filter(|reply| reply[0] == 0x8000_0001);
            return Ok(reply.map(|[_, low, high]| {
                let [a, b, c, d] = low.to_le_bytes();
                let [e, f, ..] = high.to_le_bytes();
                [a, b, c, d, e, f]
            }));
        }
    }
    Ok(None)
}

impl<'b> Stage<'b> {
    /// Resets the function, enables bus mastering, both directions and honest rings. Receive
    /// descriptors are given to the device by [`Stage::post`] only.
    pub(super) fn new(bus: &'b mut dyn Bus) -> Result<Self, BusError> {
        bus.config_write(4, &7u16.to_le_bytes())?;
        let virtual_one = is_virtual(bus)?;
        let mac = if virtual_one {
            greet(bus)?.ok_or_else(|| BusError::Gone("its PF does not let it up".into()))?
        } else {
            start_port(bus)?
        };
        let tx = bus.alloc(LEN.into())?;
        let rx = bus.alloc(LEN.into())?;
        let buffer = bus.alloc(BUFFER)?;
        let mut stage = Self {
            bus,
            virtual_one,
            mac,
            tx,
            rx,
            buffer,
            tail: 0,
        };
        let frame = stage.frame(1400);
        stage.bus.dma_write(buffer.iova, &frame)?;
        stage.rings_back()?;
        Ok(stage)
    }

    /// How many queues there are in each direction.
    pub(super) fn queues(&self) -> u32 {
        if self.virtual_one { 2 } else { 16 }
    }

    /// A register of a receive queue.
    pub(super) fn rxq(&self, queue: u32, register: u32) -> u32 {
        match self.virtual_one {
            true => 0x2800 + 0x100 * queue + register,
            false => 0xc000 + 0x40 * queue + register,
        }
    }

    /// A register of a transmit queue.
    pub(super) fn txq(&self, queue: u32, register: u32) -> u32 {
        match self.virtual_one {
            true => 0x3800 + 0x100 * queue + register,
            false => 0xe000 + 0x40 * queue + register,
        }
    }

    pub(super) fn tx_ring(&mut self, queue: u32, base: u64, len: u32) -> Done {
        for (register, value) in [
            (XDCTL, 0),
            (BASE, base as u32),
            (BASE_HIGH, (base >> 32) as u32),
            (SIZE, len),
            (HEAD, 0),
            (TAIL, 0),
            (XDCTL, ENABLE),
        ] {
            self.bus.write32(self.txq(queue, register), value)?;
        }
        if queue == 0 {
            self.tail = 0;
        }
        Ok(())
    }

    pub(super) fn rx_ring(&mut self, queue: u32, base: u64, len: u32) -> Done {
        for (register, value) in [
            (XDCTL, 0),
            (BASE, base as u32),
            (BASE_HIGH, (base >> 32) as u32),
            (SIZE, len),
            (SRRCTL, ONE_BUFFER),
            (HEAD, 0),
            (TAIL, 0),
            (XDCTL, ENABLE),
        ] {
            self.bus.write32(self.rxq(queue, register), value)?;
        }
        Ok(())
    }

    /// The first queue's rings as they were at the start.
    pub(super) fn rings_back(&mut self) -> Done {
        let (tx, rx) = (self.tx.iova, self.rx.iova);
        self.tx_ring(0, tx, LEN)?;
        self.rx_ring(0, rx, LEN)
    }

    /// Puts descriptors down, rings the bell once and lets the device finish with them.
    pub(super) fn send(&mut self, raws: &[Raw]) -> Done {
        self.send_on(raws)?;
        self.settle()
    }

    /// Puts descriptors down, rings the bell and goes on at once.
    pub(super) fn send_on(&mut self, raws: &[Raw]) -> Done {
        for raw in raws {
            let at = self.tx.iova + u64::from(self.tail) * 16;
            self.bus.dma_write(at, raw)?;
            self.tail = (self.tail + 1) % RING;
        }
        self.bus.write32(self.txq(0, TAIL), self.tail)
    }

    /// Lets the device finish what it has been told: done when the heads of the first queue have
    /// stood still for a while.
    pub(super) fn settle(&mut self) -> Done {
        const STILL: u32 = 3;
        let (mut last, mut same) = (None, 0);
        for _ in 0..1000 {
            let tx = self.bus.read32(self.txq(0, HEAD))?;
            let now = Some((tx, self.bus.read32(self.rxq(0, HEAD))?));
            same = if now == last { same + 1 } else { 0 };
            if same == STILL {
                break;
            }
            last = now;
        }
        Ok(())
    }

    /// Points every receive descriptor at `packet` and `header`, and gives all but one to the device.
    pub(super) fn post(&mut self, packet: u64, header: u64) -> Done {
        let raw = (u128::from(header) << 64 | u128::from(packet)).to_le_bytes();
        for index in 0..u64::from(RING) {
            self.bus.dma_write(self.rx.iova + index * 16, &raw)?;
        }
        self.bus.write32(self.rxq(0, TAIL), RING - 1)
    }

    /// Has frames of many sizes arrive from the far end, where there is one.
    pub(super) fn traffic(&mut self) -> Done {
        self.settle()?;
        for len in [60, 61, 255, 256, 257, 1400, 1514, 4000, 9014] {
            self.arrive(len)?;
        }
        Ok(())
    }

    /// Has one frame of `len` bytes for this function arrive.
    pub(super) fn arrive(&mut self, len: usize) -> Done {
        let mut frame = tcp_frame(len, [2, 0, 0, 0, 0, 0x66]);
        frame[..6].copy_from_slice(&self.mac);
        self.bus.inject(&frame)?;
        Ok(())
    }

    /// An advanced data descriptor for `len` bytes of the buffer that ends a frame.
    pub(super) fn data(&self, len: u32) -> Raw {
        data(self.buffer.iova, len, cmd::EOP | cmd::IFCS | cmd::RS, 0)
    }

    /// A legacy descriptor for `len` bytes of the buffer that ends a frame.
    pub(super) fn legacy(&self, len: u16) -> Raw {
        let mut raw = [0; 16];
        raw[..8].copy_from_slice(&self.buffer.iova.to_le_bytes());
        raw[8..10].copy_from_slice(&len.to_le_bytes());
        raw[11] = cmd::EOP | cmd::IFCS | cmd::RS;
        raw
    }

    /// A TCP/IPv4 frame of its own, for everybody.
    pub(super) fn frame(&self, len: usize) -> Vec<u8> {
        tcp_frame(len, self.mac)
    }

    /// Sends one frame of these bytes and waits until it is dealt with.
    pub(super) fn say(&mut self, frame: &[u8]) -> Done {
        self.say_times(frame, 1)
    }

    /// The same, up to a ring of them.
    pub(super) fn say_times(&mut self, frame: &[u8], times: usize) -> Done {
        let at = self.buffer.iova;
        self.bus.dma_write(at, frame)?;
        let raw = self.data(frame.len() as u32);
        self.send(&vec![raw; times.min(RING as usize - 1)])
    }

    /// Gives the villain's memory back.
    pub(super) fn leave(mut self) -> Done {
        self.settle()?;
        for dma in [self.tx, self.rx, self.buffer] {
            self.bus.free(dma)?;
        }
        Ok(())
    }
}

/// Resets a physical function, waits for its link and enables both directions. Returns its address.
fn start_port(bus: &mut dyn Bus) -> Result<[u8; 6], BusError> {
    bus.write32(CTRL, RST)?;
    bus.delay(Duration::from_millis(5))?;
    // Set link up, full duplex.
    bus.write32(CTRL, 1 << 6 | 1)?;
    for _ in 0..500 {
        if bus.read32(STATUS)? & 2 != 0 {
            break;
        }
        bus.delay(Duration::from_millis(10))?;
    }
    let [a, b, c, d] = bus.read32(RAL)?.to_le_bytes();
    let [e, f, ..] = bus.read32(RAL + 4)?.to_le_bytes();
    // Receiver on, for everything, long frames, no FCS in buffers.
    bus.write32(RCTL, 1 << 1 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 15 | 1 << 26)?;
    bus.write32(TCTL, 1 << 1 | 1 << 3)?;
    Ok([a, b, c, d, e, f])
}

/// An advanced data descriptor.
pub(super) fn data(addr: u64, len: u32, command: u8, popts: u8) -> Raw {
    let mut raw = [0; 16];
    raw[..8].copy_from_slice(&addr.to_le_bytes());
    raw[8..10].copy_from_slice(&(len as u16).to_le_bytes());
    raw[10] = 3 << 4;
    raw[11] = command | cmd::DEXT;
    raw[12..].copy_from_slice(&(len << 14 | u32::from(popts) << 8).to_le_bytes());
    raw
}

/// An advanced context descriptor.
#[derive(Clone, Copy, Default)]
pub(super) struct Context {
    pub maclen: u32,
    pub iplen: u32,
    pub l4len: u32,
    pub mss: u32,
    pub vlan: u32,
    /// UDP, TCP, SCTP, reserved.
    pub l4: u32,
    pub slot: u32,
}

impl Context {
    /// An honest one for [`tcp_frame`].
    pub(super) fn tcp(mss: u32) -> Self {
        Self {
            maclen: 14,
            iplen: 20,
            l4len: 20,
            mss,
            l4: 1,
            ..Self::default()
        }
    }

    pub(super) fn raw(self) -> Raw {
        let first = self.vlan << 16 | (self.maclen & 0x7f) << 9 | self.iplen & 0x1ff;
        let kind = 1 << 29 | 2 << 20 | (self.l4 & 3) << 11 | 1 << 10;
        let last = self.mss << 16 | (self.l4len & 0xff) << 8 | (self.slot & 7) << 4;
        let mut raw = [0; 16];
        raw[..4].copy_from_slice(&first.to_le_bytes());
        raw[8..12].copy_from_slice(&u32::to_le_bytes(kind));
        raw[12..].copy_from_slice(&last.to_le_bytes());
        raw
    }
}

/// A broadcast TCP/IPv4 frame of `len` bytes (at least 54) from `mac`, without checksums.
pub(super) fn tcp_frame(len: usize, mac: [u8; 6]) -> Vec<u8> {
    let mut frame = crate::stage::tcp_frame(len);
    frame[6..12].copy_from_slice(&mac);
    frame
}
