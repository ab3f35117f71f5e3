//! What the guest and its peers do.

use std::sync::atomic::Ordering;

use frame::{Batch, Caps, Run};
use guest_mem::ReadSlice;
use model::Clock;
use model_testkit::{Finished, in_groups};
use virtio_net::regs::{common as c, ctrl, feature, page};
use wire::Offload;

use super::{BUFFERS, CTRL, Guest, QUEUES, RAM, RAM_LEN, desc, device, driver};
use crate::input::Input;
use crate::machine::{MAC, PEER, some_frame};

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

impl Guest {
    pub(super) fn step(&mut self, op: u8, input: &mut Input<'_>, room: &mut Vec<u8>) {
        let queue = usize::from(op >> 4) % QUEUES;
        match op & 0xf {
            0 => self.give(queue, input),
            1 => {
                self.give(queue, input);
                self.kick(queue);
            }
            2 => self.kick(queue),
            3 => self.give_plain(queue, input),
            4 => self.receive(input, room),
            5 => self.receive_alike(input),
            6 => self.command(input),
            7 => {
                // Anywhere in the areas of a queue.
                let at = desc(queue) + u64::from(input.u16() % 0xc00);
                let n = usize::from(input.u8() % 32);
                self.poke(at, input.bytes(n));
            }
            8 => {
                let at = BUFFERS + u64::from(input.u16()) % (RAM + RAM_LEN - BUFFERS);
                let n = usize::from(input.u8() % 64);
                self.poke(at, input.bytes(n));
            }
            9 => self.register(input),
            10 => self.event(queue, input),
            11 => {
                let nanos = u64::from(input.u16()) * 100;
                self.sleep(nanos);
            }
            12 => self.reborn(),
            13 => self.surroundings(input),
            14 => {
                self.write(c::QUEUE_SELECT, &(queue as u16).to_le_bytes());
                self.write(c::QUEUE_RESET, &1u16.to_le_bytes());
                let size = u16::from(input.u8());
                self.enable(queue, size);
            }
            _ => self.start(input),
        }
    }

    fn sleep(&mut self, nanos: u64) {
        let end = self.time.now() + nanos;
        while self.time.step_to(end) {
            self.access(|g| g.nic.control.tick(&g.env));
            self.work();
        }
    }

    /// Writes a descriptor.
    fn desc(&self, at: u64, part: (u64, u32, u16), other: u16) {
        let (addr, len, flags) = part;
        // In a packed ring the id stands before the flags.
        let (third, fourth) = if self.is_packed() {
            (other, flags)
        } else {
            (flags, other)
        };
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&addr.to_le_bytes());
        bytes[8..12].copy_from_slice(&len.to_le_bytes());
        bytes[12..14].copy_from_slice(&third.to_le_bytes());
        bytes[14..].copy_from_slice(&fourth.to_le_bytes());
        self.poke(at, &bytes);
    }

    /// Gives a chain of these parts.
    fn chain(&mut self, queue: usize, parts: &[(u64, u32, u16)]) {
        let size = u32::from(self.queues[queue].size);
        let first = self.queues[queue].next;
        let packed = self.is_packed();
        for (i, &(at, len, flags)) in parts.iter().enumerate().rev() {
            let this = first.wrapping_add(i as u32);
            let slot = this % size;
            let more = if i + 1 < parts.len() { NEXT } else { 0 };
            let (flags, other) = if packed {
                let lap = if (this / size).is_multiple_of(2) {
                    1 << 7
                } else {
                    1 << 15
                };
                (flags ^ more ^ lap, (first % size) as u16)
            } else {
                (flags ^ more, ((this + 1) % size) as u16)
            };
            self.desc(desc(queue) + 16 * u64::from(slot), (at, len, flags), other);
        }
        self.queues[queue].next = first.wrapping_add(parts.len() as u32);
        if packed {
            return;
        }
        let slot = u64::from(self.queues[queue].given) % u64::from(size);
        let head = (first % size) as u16;
        self.poke(driver(queue) + 4 + 2 * slot, &head.to_le_bytes());
        self.queues[queue].given = self.queues[queue].given.wrapping_add(1);
        let given = self.queues[queue].given;
        self.poke(driver(queue) + 2, &given.to_le_bytes());
    }

    /// Gives a chain of any shape.
    fn give(&mut self, queue: usize, input: &mut Input<'_>) {
        let shape = input.u8();
        let to_write = queue.is_multiple_of(2) && queue != CTRL;
        let mut parts = Vec::new();
        for _ in 0..=shape & 7 {
            let bits = input.u8();
            let at = BUFFERS + u64::from(input.u16()) % (RAM + RAM_LEN - BUFFERS);
            let len = match bits & 3 {
                0 => 12,
                1 => 200,
                2 => u32::from(input.u8()),
                _ => input.value(),
            };
            let mut flags = if to_write { WRITE } else { 0 };
            // Now and then one that is wrong.
            if bits >> 2 == 1 {
                flags ^= input.u16() & (NEXT | WRITE | INDIRECT);
            }
            parts.push((at, len, flags));
        }
        if shape & 8 == 0 {
            return self.chain(queue, &parts);
        }
        let table = BUFFERS + u64::from(input.u8()) * 16;
        for (i, &(at, len, flags)) in parts.iter().enumerate() {
            let more = i + 1 < parts.len() && !self.is_packed();
            let flags = flags | if more { NEXT } else { 0 };
            self.desc(table + 16 * i as u64, (at, len, flags), i as u16 + 1);
        }
        let len = (16 * parts.len() as u32) ^ u32::from(shape >> 4 == 1);
        self.chain(queue, &[(table, len, INDIRECT)]);
    }

    /// Gives several packets that are alike, or buffers.
    fn give_plain(&mut self, queue: usize, input: &mut Input<'_>) {
        let n = input.u8();
        let len = 60 + u32::from(input.u8());
        let to_write = queue.is_multiple_of(2) && queue != CTRL;
        let front: u32 = if self.features & feature::HASH_REPORT != 0 {
            20
        } else {
            12
        };
        for i in 0..n % 32 {
            let at = BUFFERS + 0x200 * u64::from(i);
            let flags = if to_write {
                WRITE
            } else {
                let mut packet = vec![0; front as usize];
                packet.extend(PEER);
                packet.extend(MAC);
                packet.extend([0x88, 0xb5, i]);
                // One that is not like the others.
                packet[n as usize % 26] ^= u8::from(i == n >> 3);
                self.poke(at, &packet);
                0
            };
            let len = if to_write { 512 } else { front + len };
            self.chain(queue, &[(at, len, flags)]);
        }
        self.kick(queue);
    }

    /// What frames of so many bytes cost at most, with buffers in between.
    fn bounded(&mut self, frames: u64, bytes: u64, deliver: impl FnOnce(&mut Self)) {
        let before = self.env.memory.meter().totals();
        deliver(self);
        let after = self.env.memory.meter().totals();
        // Header and tag, used elements of a ring, indices and events, a checksum that is written behind it.
        let written = after.write_bytes - before.write_bytes;
        let most = 2 * bytes + frames * (64 + 16 * 64) + 1024;
        assert!(
            written <= most,
            "{written} bytes written for {frames} frames of {bytes}"
        );
        // Each frame looks through two rings and their tables at most, twice.
        let read = after.read_bytes - before.read_bytes;
        let most = 2 * bytes + (frames + 4) * 4 * 16 * 40 * 40;
        assert!(read <= most, "{read} bytes read for {frames} frames");
    }

    fn receive(&mut self, input: &mut Input<'_>, room: &mut Vec<u8>) {
        let bits = input.u8();
        let count = usize::from(bits % 8) + 1;
        let mut kept = Vec::new();
        for _ in 0..count {
            let notes = some_frame(input, room);
            kept.push((room.clone(), notes));
        }
        let mut batch = Batch::new();
        let mut bytes = 0;
        let mut frames = 0;
        for (frame, notes) in &kept {
            batch.push_slice(ReadSlice::from_bytes(frame));
            batch.end(*notes);
            let segments = notes.segments(frame.len()).min(wire::MAX_SEGMENTS) as u64;
            frames += segments;
            bytes += frame.len() as u64 + 128 * segments;
        }
        let mut picks = Vec::new();
        let picks = batch.all_picks(&mut picks);
        self.bounded(frames, bytes, |g| {
            let receive = &g.nic.receive;
            // As a switch does it: large frames are offered as cuts first.
            let dealt = match bits & 0x80 {
                0 => receive.deliver(&g.env, &batch, picks),
                _ => {
                    Finished::new(true)
                        .deliver(receive, &g.env, &batch, picks)
                        .0
                }
            };
            assert!(dealt <= picks.len(), "{dealt} of {}", picks.len());
        });
    }

    /// Receives frames as a run, and what that leaves as a batch.
    fn receive_alike(&mut self, input: &mut Input<'_>) {
        let n = usize::from(input.u8() % 40) + 1;
        let (len, kind) = (60 + usize::from(input.u8()), input.u8());
        let kind = [[0x88, 0xb5], [8, 0], [0x81, 0], [0x86, 0xdd]][usize::from(kind & 3)];
        let frames: Vec<_> = (0..n)
            .map(|i| {
                let mut frame = vec![i as u8; len];
                frame[..6].copy_from_slice(&MAC);
                frame[6..12].copy_from_slice(&PEER);
                frame[12..14].copy_from_slice(&kind);
                frame
            })
            .collect();
        let mut batch = Batch::new();
        for frame in &frames {
            batch.push_slice(ReadSlice::from_bytes(frame));
            batch.end(Offload::NONE);
        }
        self.bounded(2 * n as u64, (n * len) as u64, |g| {
            let (receive, env) = (&g.nic.receive, &g.env);
            let run = |run: &Run<'_>| receive.deliver_run(env, run);
            let deliver = |picks: &[u16]| receive.deliver(env, &batch, picks);
            let dealt = in_groups(&batch, deliver, Some(&run));
            assert!(dealt <= n, "{dealt} of {n}");
        });
    }

    /// A command, most often one that there is.
    fn command(&mut self, input: &mut Input<'_>) {
        let class = input.u8();
        let (class, number) = match class {
            0..32 => (ctrl::RX, class % 7),
            32..48 => (ctrl::MAC, class & 1),
            48..64 => (ctrl::VLAN, class & 1),
            64..96 => (ctrl::MQ, class % 3),
            96..112 => (ctrl::GUEST_OFFLOADS, 0),
            112..144 => (ctrl::NOTF_COAL, class & 3),
            144..176 => (ctrl::STATS, class & 1),
            176..180 => (ctrl::ANNOUNCE, 0),
            _ => (input.u8(), input.u8()),
        };
        let n = usize::from(input.u8());
        let payload = input.bytes(n);
        let at = BUFFERS + 0x800;
        self.poke(at, &[class, number]);
        self.poke(at + 2, payload);
        let answer = u32::from(input.u8()) * 4;
        let read = (at, 2 + payload.len() as u32, 0);
        self.chain(CTRL, &[read, (at + 0x1000, answer, WRITE)]);
        self.kick(CTRL);
    }

    /// A register, of the width that it has or another.
    fn register(&mut self, input: &mut Input<'_>) {
        let at = u64::from(input.u8());
        let bits = input.u8();
        let at = [0, page::ISR, page::DEVICE, page::NOTIFY][usize::from(bits & 3)] + at;
        let mut bytes = input.u64().to_le_bytes();
        let len = [1, 2, 4, 8][usize::from(bits >> 2 & 3)];
        if bits & 0x10 != 0 {
            self.read(at, &mut bytes[..len]);
        } else {
            self.write(at, &bytes[..len]);
        }
    }

    /// When the driver wants to be called, and what it leaves where only the device writes.
    fn event(&mut self, queue: usize, input: &mut Input<'_>) {
        let (word, bits) = (input.u16(), input.u8());
        let size = u64::from(self.queues[queue].size);
        let at = match bits & 3 {
            0 => driver(queue),
            1 => driver(queue) + 4 + 2 * size,
            2 => device(queue),
            _ => device(queue) + 2,
        };
        self.poke(at, &word.to_le_bytes());
    }

    /// Cable, bus and the network behind it.
    fn surroundings(&mut self, input: &mut Input<'_>) {
        let bits = input.u8();
        match bits & 3 {
            0 => {
                let up = bits & 4 != 0;
                self.mortal.note_link(up);
                self.access(|g| g.nic.control.set_link(&g.env, up));
            }
            1 => self.set_pci(bits & 4 != 0, bits & 8 != 0),
            2 => {
                self.net.caps = Caps {
                    csum: bits & 4 != 0,
                    tso4: bits & 8 != 0,
                    tso6: bits & 8 != 0,
                    uso4: bits & 16 != 0,
                    uso6: bits & 16 != 0,
                    ecn: bits & 8 != 0,
                    vlan: bits & 32 != 0,
                };
                self.budget = 1 + usize::from(input.u8());
            }
            _ => {
                let room = match bits >> 2 {
                    63 => usize::MAX,
                    few => few.into(),
                };
                self.net.room.store(room, Ordering::Relaxed);
                self.turns();
            }
        }
    }
}
