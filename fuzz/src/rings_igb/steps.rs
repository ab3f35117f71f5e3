//! What a guest and its surroundings do, step by step.

use std::sync::atomic::Ordering;

use igb::Grant;
use model::{Clock, ResetKind, Timer};

use super::{BUFFERS, Guest, LEN, RING, RX_RINGS, TX_RINGS, reg};
use crate::input::Input;
use crate::machine::{HIGH, HIGH_LEN, RAM, RAM_LEN, some_frame};

impl Guest {
    /// Mostly in RAM, at its edges, or nowhere.
    fn address(&mut self, input: &mut Input<'_>) -> u64 {
        match input.u8() {
            0..160 => BUFFERS + u64::from(input.u16()) % (RAM_LEN - 0x2000),
            160..184 => BUFFERS,
            184..200 => TX_RINGS + u64::from(input.u8()) * 4,
            200..208 => RX_RINGS + u64::from(input.u8()) * 4,
            208..224 => HIGH + u64::from(input.u16()) % HIGH_LEN,
            224..232 => RAM + RAM_LEN - u64::from(input.u8()),
            232..240 => 0,
            _ => input.u64(),
        }
    }

    fn put(&mut self, queue: u64, low: u64, high: u64) {
        let next = &mut self.next[queue as usize];
        let at = TX_RINGS + queue * RING + u64::from(*next) * 16;
        *next = (*next + 1) % LEN;
        self.poke(at, &low.to_le_bytes());
        self.poke(at + 8, &high.to_le_bytes());
    }

    pub(super) fn step(&mut self, op: u8, input: &mut Input<'_>, room: &mut Vec<u8>) {
        let more = op >> 4;
        let queue = u64::from(more) % self.queues();
        match op & 15 {
            0..=2 => {
                let at = self.address(input);
                let len = match input.u8() {
                    n @ 0..160 => u64::from(n),
                    _ => u64::from(input.u16()),
                };
                let cmd = u64::from(input.u8());
                let (sta, paylen) = (u64::from(input.u8()), u64::from(input.u16()));
                let kind = if more & 8 == 0 { 3 << 20 | 1 << 29 } else { 0 };
                let last = (sta & 0x10) | (sta & 3) << 8 | paylen << 14;
                self.put(queue, at, len | cmd << 24 | kind | last << 32);
            }
            3 => self.context(queue, input),
            4 | 5 => {
                let next = self.next[queue as usize];
                self.write(self.tx(queue) + reg::TDT, next);
            }
            6 | 7 => {
                let mut count = usize::from(more) + 1;
                let notes = some_frame(input, room);
                if input.u8() & 1 == 0 {
                    count = 1;
                }
                self.receive(room, notes, count);
            }
            8 => {
                let tail = &mut self.tail[queue as usize];
                *tail = (*tail + u32::from(input.u8() & 15)) % LEN;
                let tail = *tail;
                self.write(self.rx(queue) + reg::RDT, tail);
            }
            9 => {
                let index = u64::from(input.u8()) % u64::from(LEN);
                let (packet, header) = (self.address(input), self.address(input));
                let at = RX_RINGS + queue * RING + index * 16;
                self.poke(at, &packet.to_le_bytes());
                self.poke(at + 8, &header.to_le_bytes());
            }
            10 => {
                // Any register of a queue.
                let base = [self.rx(queue), self.tx(queue)][usize::from(more >> 3)];
                let at = base + u64::from(input.u8() & 15) * 4;
                let value = match input.u8() {
                    0..64 => RAM as u32 + u32::from(input.u16()),
                    _ => input.value(),
                };
                self.write(at, value);
            }
            11 => {
                const SWITCHES: [u64; 12] = [
                    reg::RCTL,
                    reg::TCTL,
                    reg::RXCSUM,
                    reg::RLPML,
                    reg::RFCTL,
                    reg::MRQC,
                    reg::PSRTYPE,
                    reg::VET,
                    reg::RETA,
                    reg::ETQF,
                    reg::RX + 0xc,
                    reg::GPIE,
                ];
                if self.channel.is_some() {
                    return self.rule(more, input);
                }
                let at = SWITCHES[usize::from(more) % SWITCHES.len()];
                let flip = 1 << (input.u8() & 31);
                let old = self.read(at);
                self.write(at, old ^ flip);
            }
            12 => self.surroundings(more, queue, input),
            13 => {
                let at = RAM + u64::from(input.u16()) % RAM_LEN;
                let len = usize::from(input.u8() % 64);
                self.poke(at, input.bytes(len));
            }
            14 => {
                let now = self.time.now() + u64::from(input.u16()) * 1_000;
                self.time.now.store(now, Ordering::Relaxed);
                self.time.arm(None);
                self.access(|g| g.nic.control.tick(&g.env));
            }
            _ => match more {
                0..8 => self.turns(),
                _ => {
                    // Gaps, routes and masks of interrupts.
                    let base = [reg::EITR, reg::IVAR, reg::ICS, reg::EIMS - 4];
                    let at = base[usize::from(more & 3)] + u64::from(input.u8() & 15) * 4;
                    let value = input.value();
                    self.write(at, value);
                }
            },
        }
        self.work();
    }

    /// A context descriptor.
    fn context(&mut self, queue: u64, input: &mut Input<'_>) {
        let mut low: u64 = 14 << 9 | 20 | u64::from(input.u8()) << 16;
        let kind = u64::from(input.u8());
        let mss = [1460, 1, 8, u64::from(input.u16())][usize::from(kind as u8 >> 6)];
        let high = 2 << 20 | 1 << 29 | (kind & 7) << 10;
        let mut last = (kind & 8) << 1 | 20 << 8 | mss << 16;
        match kind >> 4 & 3 {
            0 | 1 => {}
            2 => low ^= 1 << (input.u8() & 31),
            _ => last ^= 1 << (input.u8() & 31),
        }
        self.put(queue, low, high | last << 32);
    }

    /// Starts a queue, or changes what is around the NIC: its wire, link, bus and budget.
    fn surroundings(&mut self, more: u8, queue: u64, input: &mut Input<'_>) {
        match more {
            0..4 => self.start_tx(queue),
            4..8 => {
                let srrctl = input.u32();
                self.start_rx(queue, srrctl);
            }
            8 => self.wire.room.store(usize::MAX, Ordering::Relaxed),
            9 | 10 => {
                let frames = input.u8();
                self.wire.room.store(frames.into(), Ordering::Relaxed);
            }
            11 => self.set_caps(input.u8()),
            12 => self.budget = [1, 2, 64, 256][usize::from(input.u8() & 3)],
            13 => match input.u8() & 3 {
                0 => self.access(|g| g.nic.control.reset(&g.env, ResetKind::Bus)),
                _ => self.reborn(),
            },
            14 => {
                let up = input.u8() & 1 == 0;
                self.mortal.note_link(up);
                self.access(|g| g.nic.control.set_link(&g.env, up));
            }
            _ => {
                let bits = input.u8();
                self.set_pci(bits & 3 != 0, bits & 4 != 0);
            }
        }
    }

    /// The PF of a VF changes its mind.
    fn rule(&mut self, more: u8, input: &mut Input<'_>) {
        let bits = input.u8();
        if let Some(channel) = &self.channel {
            channel.set_grant(Grant {
                enabled: bits & 7 != 0,
                link: bits >> 3 & 7 != 0,
                max_frame: match more & 3 {
                    0 => input.u16(),
                    _ => 9728,
                },
                tag: (more & 4 != 0).then(|| input.u16()),
                interrupt_gap: u64::from(bits >> 6) * 1_000_000,
            });
        }
        self.access(|g| g.nic.control.attend(&g.env));
        self.work();
    }
}
