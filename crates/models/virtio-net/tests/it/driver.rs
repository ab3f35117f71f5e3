//! A driver of split rings, as plain as possible.

use hypernic_virtio_net::regs::{common as c, feature, page, status};
use hypernic_virtio_net::{CTRL, Config, RX, TX};
use model::PciState;
use model_testkit::{Machine, Wire, memory};

pub const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// Where a test's buffers are.
pub const BUFFERS: u64 = 0x10_0000;
/// Bytes of memory.
pub const MEMORY: u64 = 0x40_0000;

pub const NEXT: u16 = 1;
pub const WRITE: u16 = 2;
pub const INDIRECT: u16 = 4;

/// What an ordinary test agrees upon.
pub const USUAL: u64 = feature::VERSION_1 | feature::MAC | feature::STATUS | feature::MRG_RXBUF;
pub const OFFLOADS: u64 = feature::CSUM
    | feature::HOST_TSO4
    | feature::HOST_TSO6
    | feature::HOST_ECN
    | feature::HOST_USO
    | feature::GUEST_USO4
    | feature::GUEST_USO6
    | feature::GUEST_CSUM
    | feature::GUEST_TSO4
    | feature::GUEST_TSO6
    | feature::GUEST_ECN;

#[derive(Clone, Copy, Debug, Default)]
pub struct Queue {
    pub size: u16,
    next: u16,
    pub avail: u16,
    pub used: u16,
}

pub struct Driver {
    pub m: Machine,
    pub queues: [Queue; 5],
    /// The number of its control queue.
    pub ctrl: usize,
    /// Rings are packed: descriptors of each buffer by its id, and where the driver is on its laps.
    pub packed: bool,
    pub slots: [Vec<u16>; 5],
    pub given: [u64; 5],
    pub taken: [u64; 5],
}

pub fn desc(queue: usize) -> u64 {
    0x2_0000 * (queue as u64 + 1)
}

pub fn avail(queue: usize) -> u64 {
    desc(queue) + 0x8000
}

pub fn used(queue: usize) -> u64 {
    desc(queue) + 0xa000
}

impl Driver {
    pub fn cold(config: Config, wire: Wire) -> Self {
        let nic = hypernic_virtio_net::new(config);
        let mut m = Machine::of(nic, memory(0, MEMORY), wire, 1_000_000_000);
        m.set_pci(PciState {
            bus_master: true,
            msix: true,
            ..PciState::default()
        });
        Driver {
            m,
            queues: [Queue::default(); 5],
            ctrl: CTRL,
            packed: false,
            slots: Default::default(),
            given: [0; 5],
            taken: [0; 5],
        }
    }

    pub fn new(features: u64) -> Self {
        Self::with(features, 64, Wire::default())
    }

    pub fn with(features: u64, size: u16, wire: Wire) -> Self {
        let mut driver = Self::cold(Config::new(MAC), wire);
        driver.start(features, size);
        driver
    }

    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.m.nic.control.write(&self.m.env, 0, offset, bytes);
        self.m.work();
    }

    pub fn w8(&mut self, offset: u64, value: u8) {
        self.write(offset, &[value]);
    }

    pub fn w16(&mut self, offset: u64, value: u16) {
        self.write(offset, &value.to_le_bytes());
    }

    pub fn w32(&mut self, offset: u64, value: u32) {
        self.write(offset, &value.to_le_bytes());
    }

    pub fn read<const N: usize>(&mut self, offset: u64) -> [u8; N] {
        let mut data = [0; N];
        self.m.nic.control.read(&self.m.env, 0, offset, &mut data);
        data
    }

    pub fn r8(&mut self, offset: u64) -> u8 {
        self.read::<1>(offset)[0]
    }

    pub fn r16(&mut self, offset: u64) -> u16 {
        u16::from_le_bytes(self.read(offset))
    }

    pub fn r32(&mut self, offset: u64) -> u32 {
        u32::from_le_bytes(self.read(offset))
    }

    pub fn negotiate(&mut self, features: u64) -> bool {
        self.w8(c::STATUS, 0);
        assert_eq!(self.r8(c::STATUS), 0);
        self.w8(c::STATUS, 1);
        self.w8(c::STATUS, 3);
        for half in 0..2 {
            self.w32(c::DRIVER_FEATURE_SELECT, half);
            self.w32(c::DRIVER_FEATURE, (features >> (32 * half)) as u32);
        }
        self.w8(c::STATUS, 3 | status::FEATURES_OK);
        self.r8(c::STATUS) & status::FEATURES_OK != 0
    }

    /// Sets up a queue; its memory is cleared.
    pub fn enable(&mut self, queue: usize, size: u16) {
        self.m.poke(desc(queue), &vec![0; 0x1_0000]);
        self.queues[queue] = Queue {
            size,
            ..Queue::default()
        };
        self.slots[queue] = vec![0; size.into()];
        (self.given[queue], self.taken[queue]) = (0, 0);
        self.w16(c::QUEUE_SELECT, queue as u16);
        self.w16(c::QUEUE_SIZE, size);
        self.w16(c::QUEUE_VECTOR, queue as u16 + 1);
        for (register, address) in [
            (c::QUEUE_DESC, desc(queue)),
            (c::QUEUE_DRIVER, avail(queue)),
            (c::QUEUE_DEVICE, used(queue)),
        ] {
            self.w32(register, address as u32);
            self.w32(register + 4, (address >> 32) as u32);
        }
        self.w16(c::QUEUE_ENABLE, 1);
    }

    pub fn start(&mut self, features: u64, size: u16) {
        assert!(self.negotiate(features), "{features:#x}");
        self.packed = features & feature::PACKED != 0;
        self.w16(c::CONFIG_VECTOR, 0);
        let mut queues = vec![RX, TX];
        self.ctrl = CTRL;
        if features & feature::MQ != 0 {
            // Of a device with two pairs.
            queues.extend([2, 3]);
            self.ctrl = 4;
        }
        queues.push(self.ctrl);
        for queue in queues {
            self.enable(queue, size.min(if queue == self.ctrl { 64 } else { 1024 }));
        }
        self.w8(c::STATUS, 3 | status::FEATURES_OK | status::DRIVER_OK);
    }

    /// Writes descriptor `at` of the table at `table`.
    pub fn desc_at(&self, table: u64, at: u16, part: (u64, u32, u16), next: u16) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&part.0.to_le_bytes());
        bytes[8..12].copy_from_slice(&part.1.to_le_bytes());
        bytes[12..14].copy_from_slice(&part.2.to_le_bytes());
        bytes[14..].copy_from_slice(&next.to_le_bytes());
        self.m.poke(table + 16 * u64::from(at), &bytes);
    }

    /// Makes `head` available.
    pub fn offer(&mut self, queue: usize, head: u16) {
        let q = &mut self.queues[queue];
        let slot = u64::from(q.avail % q.size);
        q.avail = q.avail.wrapping_add(1);
        let index = q.avail;
        self.m
            .poke(avail(queue) + 4 + 2 * slot, &head.to_le_bytes());
        self.m.poke(avail(queue) + 2, &index.to_le_bytes());
    }

    /// Gives a buffer of these parts: where, how many bytes, to be written or not. Returns its head.
    pub fn give(&mut self, queue: usize, parts: &[(u64, u32, bool)]) -> u16 {
        if self.packed {
            return self.give_packed(queue, parts, 0);
        }
        let size = self.queues[queue].size;
        let head = self.queues[queue].next % size;
        for (i, (at, len, write)) in parts.iter().enumerate() {
            let this = (head + i as u16) % size;
            let mut flags = if *write { WRITE } else { 0 };
            if i + 1 < parts.len() {
                flags |= NEXT;
            }
            self.desc_at(desc(queue), this, (*at, *len, flags), (this + 1) % size);
        }
        self.queues[queue].next = (head + parts.len() as u16) % size;
        self.offer(queue, head);
        head
    }

    /// The flags that make a descriptor available on lap `lap`.
    pub fn avail_flags(lap: u64) -> u16 {
        if lap.is_multiple_of(2) {
            1 << 7
        } else {
            1 << 15
        }
    }

    /// The same in a packed ring, with more flags; the first descriptor comes last. Returns its id, which is that of
    /// its slot.
    pub fn give_packed(&mut self, queue: usize, parts: &[(u64, u32, bool)], more: u16) -> u16 {
        let size = u64::from(self.queues[queue].size);
        let first = self.given[queue];
        let id = (first % size) as u16;
        for (i, (at, len, write)) in parts.iter().enumerate().rev() {
            let this = first + i as u64;
            let mut flags = more | Self::avail_flags(this / size);
            flags |= if *write { WRITE } else { 0 };
            flags |= if i + 1 < parts.len() { NEXT } else { 0 };
            // Id and flags stand the other way round than in a split ring.
            let slot = (this % size) as u16;
            self.desc_at(desc(queue), slot, (*at, *len, id), flags);
        }
        self.slots[queue][usize::from(id)] = parts.len() as u16;
        self.given[queue] += parts.len() as u64;
        id
    }

    fn used_packed(&mut self, queue: usize) -> Vec<(u32, u32)> {
        let size = u64::from(self.queues[queue].size);
        let mut found = Vec::new();
        loop {
            let at = self.taken[queue];
            let slot = self.m.peek(desc(queue) + 16 * (at % size), 16);
            let flags = u16::from_le_bytes([slot[14], slot[15]]);
            let both =
                [1 << 7, 1 << 15].map(|bit| (flags & bit != 0) == (at / size).is_multiple_of(2));
            if at == self.given[queue] || both != [true; 2] {
                return found;
            }
            let id = u16::from_le_bytes([slot[12], slot[13]]);
            let len = u32::from_le_bytes([slot[8], slot[9], slot[10], slot[11]]);
            found.push((id.into(), len));
            self.taken[queue] += u64::from(self.slots[queue][usize::from(id)]);
        }
    }

    pub fn kick(&mut self, queue: usize) {
        self.w16(page::NOTIFY + 4 * queue as u64, queue as u16);
    }

    /// Buffers used since the last call: id and bytes.
    pub fn used(&mut self, queue: usize) -> Vec<(u32, u32)> {
        if self.packed {
            return self.used_packed(queue);
        }
        let index = self.peek16(used(queue) + 2);
        let mut found = Vec::new();
        while self.queues[queue].used != index {
            let slot = u64::from(self.queues[queue].used % self.queues[queue].size);
            let element = self.m.peek(used(queue) + 4 + 8 * slot, 8);
            let word = |at: usize| {
                u32::from_le_bytes([
                    element[at],
                    element[at + 1],
                    element[at + 2],
                    element[at + 3],
                ])
            };
            found.push((word(0), word(4)));
            self.queues[queue].used = self.queues[queue].used.wrapping_add(1);
        }
        found
    }

    pub fn peek16(&self, at: u64) -> u16 {
        let bytes = self.m.peek(at, 2);
        u16::from_le_bytes([bytes[0], bytes[1]])
    }

    /// Sends a frame with this header, in one buffer of two parts.
    pub fn send(&mut self, header: [u8; 12], frame: &[u8]) {
        self.send_by(TX, header, frame);
    }

    /// The same by this queue.
    pub fn send_by(&mut self, queue: usize, header: [u8; 12], frame: &[u8]) {
        let turn = u64::from(self.queues[TX].avail) + self.given[TX];
        let at = BUFFERS + turn % 16 * 0x1_1000;
        self.m.poke(at, &header);
        self.m.poke(at + 64, frame);
        self.give(
            queue,
            &[(at, 12, false), (at + 64, frame.len() as u32, false)],
        );
        self.kick(queue);
    }

    /// Gives a receive buffer of `len` bytes at `at`.
    pub fn receive_at(&mut self, at: u64, len: u32) -> u16 {
        self.give(RX, &[(at, len, true)])
    }

    pub fn counter(&self, name: &str) -> u64 {
        self.m.counter(name)
    }

    pub fn needs_reset(&mut self) -> bool {
        self.r8(c::STATUS) & status::NEEDS_RESET != 0
    }

    /// A command; returns its answer.
    pub fn command(&mut self, class: u8, number: u8, payload: &[u8]) -> u8 {
        self.ask(class, number, payload, 0).0
    }

    /// A command with room for so many bytes behind its answer; returns both.
    pub fn ask(&mut self, class: u8, number: u8, payload: &[u8], room: u32) -> (u8, Vec<u8>) {
        let at = BUFFERS + 0x20_0000;
        self.m.poke(at, &[class, number]);
        self.m.poke(at + 16, payload);
        let answer = at - 0x1000;
        self.m.poke(answer, &[0xee]);
        let len = payload.len() as u32;
        self.give(
            self.ctrl,
            &[
                (at, 2, false),
                (at + 16, len, false),
                (answer, 1 + room, true),
            ],
        );
        self.kick(self.ctrl);
        let used = self.used(self.ctrl);
        assert_eq!(used.len(), 1);
        let rest = self.m.peek(answer + 1, used[0].1 as usize - 1);
        (self.m.peek(answer, 1)[0], rest)
    }
}

/// An Ethernet frame to `dst` of so many bytes.
pub fn frame(dst: [u8; 6], len: usize) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
    frame[..6].copy_from_slice(&dst);
    frame[6..12].copy_from_slice(&OTHER);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

/// A TCP segment over IPv4 with so many bytes of payload, its checksum field the sum over the pseudo-header.
pub fn tcp4(payload: usize) -> Vec<u8> {
    let mut frame = frame(OTHER, 54 + payload);
    frame[6..12].copy_from_slice(&MAC);
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14..54].fill(0);
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&((40 + payload) as u16).to_be_bytes());
    frame[22] = 64;
    frame[23] = 6;
    frame[26..30].copy_from_slice(&[10, 0, 0, 1]);
    frame[30..34].copy_from_slice(&[10, 0, 0, 2]);
    let sum = wire::Sum::of(&frame[14..34]).finish();
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame[46] = 0x50;
    frame[47] = 0x18;
    let layers = wire::Layers::parse(&frame).expect("headers");
    let seed = layers
        .pseudo_sum(&frame, 20 + payload)
        .expect("TCP")
        .value();
    frame[50..52].copy_from_slice(&seed.to_be_bytes());
    frame
}

/// A UDP datagram with so many bytes of payload, its checksum field the sum over the pseudo-header.
pub fn udp(v6: bool, payload: usize) -> Vec<u8> {
    let ip = if v6 { 40 } else { 20 };
    let mut frame = frame(OTHER, 14 + ip + 8 + payload);
    frame[6..12].copy_from_slice(&MAC);
    let span = (8 + payload) as u16;
    frame[14..14 + ip + 8].fill(0);
    if v6 {
        frame[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]);
        frame[18..20].copy_from_slice(&span.to_be_bytes());
        frame[20..22].copy_from_slice(&[17, 64]);
        frame[22..54].fill(0xfd);
    } else {
        frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        frame[16..18].copy_from_slice(&(20 + span).to_be_bytes());
        frame[22..24].copy_from_slice(&[64, 17]);
        frame[26..30].copy_from_slice(&[10, 0, 0, 1]);
        frame[30..34].copy_from_slice(&[10, 0, 0, 2]);
        let sum = wire::Sum::of(&frame[14..34]).finish();
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    let at = 14 + ip;
    frame[at..at + 4].copy_from_slice(&[0x30, 0, 0x40, 0]);
    frame[at + 4..at + 6].copy_from_slice(&span.to_be_bytes());
    let layers = wire::Layers::parse(&frame).expect("headers");
    let seed = layers.pseudo_sum(&frame, span.into()).expect("UDP").value();
    frame[at + 6..at + 8].copy_from_slice(&seed.to_be_bytes());
    frame
}

/// A header: flags, gso type, gso size, checksum start and offset.
pub fn header(flags: u8, gso: u8, size: u16, start: u16, offset: u16) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[0] = flags;
    bytes[1] = gso;
    // What the driver says of the headers is a hint, and wrong here.
    bytes[2..4].copy_from_slice(&0xfff0u16.to_le_bytes());
    bytes[4..6].copy_from_slice(&size.to_le_bytes());
    bytes[6..8].copy_from_slice(&start.to_le_bytes());
    bytes[8..10].copy_from_slice(&offset.to_le_bytes());
    bytes
}

pub const PLAIN: [u8; 12] = [0; 12];
