//! Transmit and receive rings: descriptors of every kind, valid and not, in rings that are moved,
//! shortened and overlapped under a NIC that works.

use csb::at;
use model::{PciState, Progress};
use wire::Offload;

use crate::input::{Input, seldom};
use crate::machine::{
    BUFFERS, HIGH, HIGH_LEN, Life, MAC, Machine, PEER, RAM, RAM_LEN, RX_RING, TX_RING, reg,
    some_frame,
};

/// The transmit and receive sides of an e1000 whose rings the guest misuses.
///
/// The first bytes choose how the NIC is set up and what the wire takes; bit 0 of the first runs
/// the script on a second NIC that has had another life before, and both must look the same from
/// outside.
pub fn rings(data: &[u8]) {
    let twice = data.first().is_some_and(|b| b & 1 != 0) && seldom(data);
    let mut first = script(data, Life::default());
    if twice {
        let used = Life {
            used: true,
            ..Life::default()
        };
        let mut second = script(data, used);
        assert_eq!(
            first.seen(),
            second.seen(),
            "bytes of an earlier life are visible"
        );
    }
}

/// What the guest has set up and remembers.
struct Guest {
    m: Machine,
    tx_len: u32,
    rx_len: u32,
    /// Next transmit descriptor to fill.
    next: u32,
    rx_tail: u32,
    budget: usize,
    /// Where its CSB is.
    block: u64,
}

pub(crate) fn script(data: &[u8], life: Life) -> Machine {
    let mut input = Input::new(data);
    let mut m = life.begin();
    let setup = input.u8();
    let tx_len = [8, 16, 64, 256][usize::from(setup >> 1 & 3)];
    let rx_len = [8, 16, 64, 128][usize::from(setup >> 3 & 3)];
    m.set_caps(setup >> 5);
    let rctl = u32::from(input.u8()) << 16 | u32::from(input.u8()) << 8 | 0x8022;
    // A page of headers that make sense: TCP over IPv4 and IPv6.
    m.poke(BUFFERS, &TCP4);
    m.poke(BUFFERS + 0x80, &TCP6);
    m.tx_on(tx_len);
    // Loopback (bits 7:6) only where the input asks for it by its own operation.
    m.rx_on(rx_len, rctl & !0xc0);
    m.write(reg::IMS, 0x1_ffff);
    let mut g = Guest {
        m,
        tx_len,
        rx_len,
        next: 0,
        rx_tail: rx_len - 1,
        budget: 256,
        block: 0,
    };
    let mut room = Vec::new();
    for operation in 0..160 {
        let Some(op) = input.op() else { break };
        g.step(op, &mut input, &mut room);
        life.after(operation, &mut g.m);
    }
    g.m
}

impl Guest {
    fn step(&mut self, op: u8, input: &mut Input<'_>, room: &mut Vec<u8>) {
        let more = op >> 4;
        match op & 15 {
            0 | 1 => self.tx_desc(input),
            2 => self.context(input),
            3 => {
                self.m.write(reg::TDT, self.next % self.tx_len);
                self.turn();
            }
            4 => self.m.write(reg::TDT, input.value()),
            5 => {
                let mut count = usize::from(more) + 1;
                let notes = some_frame(input, room);
                // The same frame many times: what fills a ring.
                if input.u8() & 1 == 0 {
                    count = 1;
                }
                let frames: Vec<(&[u8], Offload)> = vec![(room, notes); count];
                self.m.receive(&frames);
            }
            6 => {
                self.rx_tail = (self.rx_tail + u32::from(more) + 1) % self.rx_len;
                self.m.write(reg::RDT, self.rx_tail);
            }
            7 => {
                // A receive descriptor, with a buffer anywhere.
                let index = u32::from(input.u8()) % self.rx_len;
                let at = self.address(input);
                self.m.desc(RX_RING, index, at, input.u64());
            }
            8 => self.place(more, input),
            9 => self.switch(more, input),
            10 => {
                const DELAYS: [u64; 4] = [reg::TIDV, reg::TADV, reg::RDTR, reg::RADV];
                self.m
                    .write(DELAYS[usize::from(more & 3)], u32::from(input.u8()));
            }
            11 => match input.u8() {
                0 => self.m.tick(),
                n => self.m.sleep(u64::from(n) << more),
            },
            12 => {
                // What the wire takes, and how much is done in a turn.
                let n = input.u8();
                match more & 3 {
                    0 => self.m.unlimited(),
                    1 => self.m.set_room(n.into()),
                    2 => self.m.set_caps(n),
                    _ => self.budget = [1, 2, 64, 256][usize::from(n & 3)],
                }
            }
            13 => {
                let at = RAM + u64::from(input.u16()) % RAM_LEN;
                let len = usize::from(input.u8() % 64);
                self.m.poke(at, input.bytes(len));
            }
            14 => match more {
                0 => self.m.reset(),
                1 => self.m.set_link(false),
                2 => self.m.set_link(true),
                3..6 => self.m.set_pci(PciState {
                    bus_master: more != 3,
                    ..PciState::default()
                }),
                6 => self.ring_full(input),
                7 => {
                    self.m.read(0xc0);
                }
                _ => self.block(more, input),
            },
            _ => self.kept_to_its_buffers(more, input),
        }
    }

    /// Writes a register that says where a ring is.
    fn place(&mut self, more: u8, input: &mut Input<'_>) {
        const PLACES: [u64; 10] = [
            reg::TDBAL,
            reg::TDBAH,
            reg::TDLEN,
            reg::TDH,
            reg::RDBAL,
            reg::RDBAH,
            reg::RDLEN,
            reg::RDH,
            reg::RDT,
            reg::TDT,
        ];
        let at = PLACES[usize::from(more) % PLACES.len()];
        let value = if at == reg::TDBAL || at == reg::RDBAL {
            RAM as u32 + u32::from(input.u16())
        } else {
            input.value()
        };
        self.m.write(at, value);
    }

    /// Flips a bit of a register that says how the NIC works.
    fn switch(&mut self, more: u8, input: &mut Input<'_>) {
        const SWITCHES: [u64; 8] = [
            reg::CTRL,
            reg::RCTL,
            reg::TCTL,
            reg::RXCSUM,
            reg::VET,
            reg::RAL,
            reg::RAH,
            reg::IMS,
        ];
        let at = SWITCHES[usize::from(more) % SWITCHES.len()];
        let flip = 1 << (input.u8() & 31);
        let old = self.m.read(at);
        // Not CTRL.RST and PHY_RST every time: they end most programs.
        self.m.write(at, old ^ flip);
    }

    fn turn(&mut self) {
        if self.budget != 256 {
            for _ in 0..64 {
                if self.m.transmit(self.budget) != Progress::More {
                    break;
                }
            }
        } else {
            self.m.transmit(self.budget);
        }
    }

    /// A communication status block: given, written, and used as a driver does or otherwise.
    fn block(&mut self, more: u8, input: &mut Input<'_>) {
        match more {
            8 | 9 => {
                let page = match input.u8() {
                    0..128 => BUFFERS + 0x8000,
                    128..144 => TX_RING,
                    144..160 => RX_RING - 0x800,
                    160..176 => HIGH,
                    176..192 => RAM + RAM_LEN - 0x1000,
                    192..208 => 0,
                    208..240 => RAM + u64::from(input.u16()),
                    _ => input.u64(),
                };
                self.block = page;
                self.m.write(reg::CSBAH, (page >> 32) as u32);
                self.m.write(reg::CSBAL, page as u32);
                self.say(at::GUEST_CSB_ON, 1);
                self.say(at::GUEST_RDT, self.rx_tail);
                self.say(at::GUEST_TDT, self.next % self.tx_len);
            }
            10 => {
                let word = u32::from(input.u8() % 0x1c) * 4;
                let value = input.value();
                self.say(word, value);
            }
            11 => {
                // Whether it calls, when it is to.
                self.say(at::GUEST_TDT, self.next % self.tx_len);
                if input.u8() & 7 != 0 {
                    self.m.write(reg::TDT, self.next % self.tx_len);
                }
                self.turn();
            }
            12 => {
                self.rx_tail = (self.rx_tail + u32::from(input.u8() & 15)) % self.rx_len;
                self.say(at::GUEST_RDT, self.rx_tail);
                if input.u8() & 7 != 0 {
                    self.m.write(reg::RDT, self.rx_tail);
                }
            }
            13 => {
                let needs = input.u8();
                self.say(at::GUEST_NEED_TXKICK, (needs & 1).into());
                self.say(at::GUEST_NEED_RXKICK, (needs >> 1 & 1).into());
                self.say(at::GUEST_CSB_ON, (needs >> 2 & 3).into());
                self.say(at::HOST_TXCYCLES_LIM, (needs >> 4).into());
            }
            14 => self.m.write(reg::CSBAL, input.value()),
            _ => self.m.write(reg::CSBAH, input.value()),
        }
    }

    /// Writes a word of the block.
    fn say(&mut self, word: u32, value: u32) {
        let at = self.block.wrapping_add(word.into());
        if (RAM..HIGH + HIGH_LEN).contains(&at) {
            self.m.poke(at, &value.to_le_bytes());
        }
    }

    /// Mostly in RAM, at its edges, or nowhere.
    fn address(&mut self, input: &mut Input<'_>) -> u64 {
        match input.u8() {
            0..160 => BUFFERS + u64::from(input.u16()) % (RAM_LEN - 0x2000),
            160..176 => BUFFERS,
            176..184 => BUFFERS + 0x80,
            184..200 => TX_RING + u64::from(input.u8()) * 4,
            200..208 => RX_RING + u64::from(input.u8()) * 4,
            208..224 => HIGH + u64::from(input.u16()) % HIGH_LEN,
            224..232 => RAM + RAM_LEN - u64::from(input.u8()),
            232..240 => 0,
            _ => input.u64(),
        }
    }

    fn put(&mut self, low: u64, high: u64) {
        self.m.tx_desc(self.next % self.tx_len, low, high);
        self.next = (self.next + 1) % self.tx_len;
    }

    /// A legacy or data descriptor, or any sixteen bytes.
    fn tx_desc(&mut self, input: &mut Input<'_>) {
        let kind = input.u8();
        let at = self.address(input);
        let len = match input.u8() {
            n @ 0..128 => u64::from(n),
            128..192 => u64::from(input.u16() % 2048),
            192..224 => u64::from(input.u16()),
            224..240 => 14 + 40 + 1460,
            _ => u64::from(input.u32() & 0xf_ffff),
        };
        let cmd = u64::from(input.u8());
        let (popts, special) = (u64::from(input.u8()), u64::from(input.u16()));
        let high = len | cmd << 24 | special << 48;
        match kind & 3 {
            0 => self.put(at, high & !(1 << 29) & !0xf_0000 | popts << 40),
            1 | 2 => self.put(at, high | 1 << 20 | 1 << 29 | popts << 40),
            _ => self.put(at, input.u64()),
        }
    }

    /// A context descriptor: one that fits the headers in memory with something changed, or any.
    fn context(&mut self, input: &mut Input<'_>) {
        let kind = input.u8();
        let v4 = kind & 1 == 0;
        let (ip, tu, hdr): (u64, u64, u64) = if v4 {
            (14 | 24 << 8 | 33 << 16, 34 | 50 << 8, 54)
        } else {
            (14, 54 | 70 << 8, 74)
        };
        let mss = [1460, 1, 8, u64::from(input.u16())][usize::from(kind >> 1 & 3)];
        let paylen = u64::from(input.u16());
        let tse = if kind & 8 == 0 { 4 } else { 0 };
        let cmd: u64 = 0x20 | tse | if v4 { 3 } else { 1 } | u64::from(kind & 0x80);
        let mut low = ip | tu << 32;
        let mut high = paylen | cmd << 24 | hdr << 40 | mss << 48;
        match kind >> 4 & 7 {
            0..4 => {}
            4 => low ^= 1 << (input.u8() & 63),
            5 => high ^= 1 << (input.u8() & 63),
            _ => (low, high) = (input.u64(), input.u64() & !(0xf << 20) | 1 << 29),
        }
        self.put(low, high);
    }

    /// Fills the whole ring with one descriptor.
    fn ring_full(&mut self, input: &mut Input<'_>) {
        let at = self.address(input);
        let high = input.u64();
        let all = (0..self.tx_len).map(|_| (at, high));
        self.m.descs(TX_RING, 0, all);
    }

    /// Receives into buffers that lie apart from the rings: the device writes those buffers and
    /// the second half of descriptors, and nothing else.
    fn kept_to_its_buffers(&mut self, more: u8, input: &mut Input<'_>) {
        let base = BUFFERS + 0x4000;
        // It would be written too.
        self.m.write(reg::CSBAL, 0);
        let mut frame = [0x33; 1514];
        frame[..6].copy_from_slice(&MAC);
        frame[6..12].copy_from_slice(&PEER);
        let len = 14 + usize::from(input.u16()) % 1500;
        self.m.write(reg::CTRL, 0x40);
        self.m.rx_on(8, 0x0000_8002);
        let written = self.m.recorded(|m| {
            for _ in 0..=more {
                m.receive(&[(&frame[..len], Offload::NONE)]);
            }
        });
        self.rx_len = 8;
        self.rx_tail = 7;
        for access in written {
            let end = access.iova + access.len;
            let ring = RX_RING <= access.iova && end <= RX_RING + 8 * 16;
            let in_desc = ring && access.iova % 16 == 8 && access.len == 8;
            let at = access.iova.wrapping_sub(base);
            let in_buffer = at < 8 * 0x800 && at % 0x800 + access.len <= 0x800;
            assert!(in_desc || in_buffer, "the device wrote {access:x?}");
        }
    }
}

/// Ethernet, IPv4, TCP.
const TCP4: [u8; 54] = [
    0x52, 0x54, 0, 0x12, 0x34, 0x57, 0x52, 0x54, 0, 0x12, 0x34, 0x56, 8, 0, // Ethernet
    0x45, 0, 0, 40, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, // IPv4
    0, 80, 0x10, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x99, 1, 0, 0, 0, 0,
    0, // TCP: CWR, ACK, PSH, FIN
];

/// Ethernet, IPv6, TCP.
const TCP6: [u8; 74] = [
    0x52, 0x54, 0, 0x12, 0x34, 0x57, 0x52, 0x54, 0, 0x12, 0x34, 0x56, 0x86, 0xdd, // Ethernet
    0x60, 0, 0, 0, 0, 20, 6, 64, // IPv6
    0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, // source
    0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, // destination
    0, 80, 0x10, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x99, 1, 0, 0, 0, 0, 0, // TCP
];
