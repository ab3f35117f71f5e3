//! Migration, version 2: the states of a device that moves, its state as a stream, and the log of what it writes.
//!
//! A state is read whole when `STOP_COPY` begins and checked whole when `RESUMING` ends, so what comes between is bytes.

use pci::ConfigEvent;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use snapshot::{Kind, StateError};

use super::journey::Migration;
use super::session::{Refusal, Session};
use crate::codec::feature::{self, MigrationState};
use crate::codec::{
    DeviceFeature, Header, LogControl, LogRange, LogReport, MigrationData, StateChange, irq,
};
use crate::device::Device;
use crate::interrupts::saved::Vector;
use crate::stream::Sender;
use guest_mem::{LogError, MAX_LOG_CHUNKS, log_bytes};

/// Bytes that a state has at most: a client cannot make us keep more. It is as much as is looked at.
const MAX_STATE: usize = snapshot::MAX_PAYLOAD + 4096;

/// Pages of a report that count as one register access: a word of its bitmap.
const PAGES_PER_COST: usize = 8;

/// A device as it moves: what the server knows of it, and what it says of itself.
#[derive(Serialize, Deserialize)]
struct V1 {
    config: Vec<u8>,
    table: Vec<u8>,
    pme: [bool; 2],
    /// Those with something that the guest must not miss, or is not to hear yet.
    vectors: Vec<Vector>,
    device: Vec<u8>,
}

impl snapshot::State for V1 {
    const KIND: Kind = Kind::new("vfiomove");
    const VERSION: u32 = 1;
}

fn impossible(field: &'static str, value: u64, why: &'static str) -> StateError {
    StateError::Field { field, value, why }
}

impl Session {
    /// The device is not to notice anything.
    pub fn is_halted(&self) -> bool {
        self.migration.state != MigrationState::Running
    }

    /// Something of a migration goes on that no other server could go on with.
    pub fn is_moving(&self) -> bool {
        self.is_halted() || self.memory.logged().is_some()
    }

    /// It runs, whatever it was about: it was reset, or its client is gone.
    pub fn run_again(&mut self, device: &mut dyn Device) {
        if self.is_halted() {
            self.migration = Migration::default();
            device.resume();
        }
    }

    fn bad_move<T>(&mut self, errno: Errno) -> Result<T, Refusal> {
        self.counters.bad_move += 1;
        Err(errno)
    }

    fn unsupported<T>(&mut self) -> Result<T, Refusal> {
        self.counters.unsupported += 1;
        Err(Errno::NOTSUP)
    }

    fn must_be_movable(&mut self, device: &dyn Device) -> Result<(), Refusal> {
        if device.can_move() {
            return Ok(());
        }
        self.unsupported()
    }

    pub(super) fn feature(
        &mut self,
        device: &mut dyn Device,
        header: &Header,
        payload: &[u8],
        tx: &mut Sender,
        cost: &mut usize,
    ) -> Result<(), Refusal> {
        let ask = self.parse(DeviceFeature::parse(payload))?;
        self.must_be_movable(device)?;
        let method = ask.flags & (feature::GET | feature::SET);
        let known = feature::INDEX | feature::GET | feature::SET | feature::PROBE;
        let probe = ask.flags & feature::PROBE != 0;
        let both = method == feature::GET | feature::SET;
        let clear = probe || method != 0 && !both;
        if (ask.argsz as usize) < DeviceFeature::LEN || ask.flags & !known != 0 || !clear {
            return self.malformed();
        }
        let methods = match ask.flags & feature::INDEX {
            feature::STATE => Some(feature::GET | feature::SET),
            feature::MIGRATION | feature::LOG_REPORT | feature::DATA_SIZE => Some(feature::GET),
            feature::LOG_START | feature::LOG_STOP => Some(feature::SET),
            _ => None,
        };
        let Some(methods) = methods else {
            return self.unsupported();
        };
        if method & !methods != 0 {
            return self.malformed();
        }
        if probe {
            // As it was asked.
            tx.push(&header.reply(DeviceFeature::LEN), &ask.to_bytes());
            return Ok(());
        }
        let data = &payload[DeviceFeature::LEN..];
        let data = match ask.flags & feature::INDEX {
            feature::MIGRATION => feature::STOP_COPY.to_ne_bytes().to_vec(),
            feature::DATA_SIZE => self.state_size(device).to_ne_bytes().to_vec(),
            feature::STATE if method == feature::SET => self.change_state(device, data)?,
            feature::STATE => self.shown_state(),
            feature::LOG_START => self.log_start(data, cost)?,
            feature::LOG_STOP => {
                self.memory.stop_log();
                Vec::new()
            }
            _ => self.log_report(data, cost)?,
        };
        let whole = DeviceFeature::LEN + data.len();
        let reply = DeviceFeature {
            argsz: whole as u32,
            ..ask
        };
        let reply = [&reply.to_bytes()[..], &data].concat();
        tx.push(&header.reply(whole), &reply);
        Ok(())
    }

    fn shown_state(&self) -> Vec<u8> {
        let state = self.migration.state as u32;
        StateChange { state, fd: -1 }.to_bytes().to_vec()
    }

    fn state_size(&mut self, device: &mut dyn Device) -> u64 {
        match self.migration.state {
            MigrationState::StopCopy => (self.migration.data.len() - self.migration.read) as u64,
            MigrationState::Resuming | MigrationState::Error => 0,
            _ => self.saved(device).len() as u64,
        }
    }

    fn change_state(&mut self, device: &mut dyn Device, data: &[u8]) -> Result<Vec<u8>, Refusal> {
        let change = self.parse(StateChange::parse(data))?;
        let now = self.migration.state;
        let to = MigrationState::from_u32(change.state);
        let Some(to) = to.filter(|to| *to == now || now.towards(*to).is_some()) else {
            return self.bad_move(Errno::INVAL);
        };
        if to == MigrationState::Error {
            return self.bad_move(Errno::INVAL);
        }
        if now == MigrationState::Running && to != now && !self.engine.is_idle() {
            // Only the client can end it, and it may be asked by what waits behind this.
            return self.bad_move(Errno::BUSY);
        }
        while let Some(next) = self.migration.state.towards(to) {
            self.step(device, next)?;
        }
        Ok(self.shown_state())
    }

    /// One arc between two states.
    fn step(&mut self, device: &mut dyn Device, next: MigrationState) -> Result<(), Refusal> {
        use MigrationState::{Resuming, Running, Stop, StopCopy};
        match (self.migration.state, next) {
            (Running, Stop) => {
                // What the guest has stored in its doorbells until now is heard by who goes on: it is in the registers.
                self.look_at_doorbells(device);
                device.halt();
            }
            (Stop, Running) => {
                self.migration.state = Running;
                self.migration.held = false;
                device.resume();
                self.changed = true;
            }
            (Stop, StopCopy) => {
                self.migration.data = self.saved(device);
                self.migration.read = 0;
            }
            (Stop, Resuming) => self.migration.data = Vec::new(),
            (Resuming, Stop) => {
                let data = std::mem::take(&mut self.migration.data);
                if let Err(why) = self.load(device, &data) {
                    device.load_refused(&why);
                    self.counters.state_refused += 1;
                    self.migration.state = MigrationState::Error;
                    return Err(Errno::INVAL);
                }
                self.counters.moved_in += 1;
            }
            // Out of `StopCopy`.
            _ => self.migration.data = Vec::new(),
        }
        self.migration.state = next;
        Ok(())
    }

    pub(super) fn saved(&mut self, device: &mut dyn Device) -> Vec<u8> {
        let mut vectors = Vec::new();
        self.irq.0.each_vector(&mut |vector, _| {
            // The pin follows its device, which says so again, and whose turn it is to speak is the client's business.
            if vector.index != irq::INTX && (vector.pending || vector.guest_masked) {
                vectors.push(Vector {
                    masked: false,
                    ..vector
                });
            }
        });
        let pme = self.irq.0.pme();
        let table = self.table.as_ref().map(|table| table.entries().to_vec());
        let state = device.save();
        // A NIC is made for it by what its outside says.
        let revision = snapshot::revision_of(&state).unwrap_or(1);
        let whole = snapshot::seal(&V1 {
            config: self.config.save(),
            table: table.unwrap_or_default(),
            pme: [pme.enabled, pme.status],
            vectors,
            device: state,
        });
        snapshot::stamp(whole, revision)
    }

    /// Becomes what came. Nothing has changed before all that the server knows of was checked.
    pub(super) fn load(&mut self, device: &mut dyn Device, data: &[u8]) -> Result<(), String> {
        let said = |error: StateError| error.to_string();
        let revision = snapshot::revision_of(data).unwrap_or(1);
        let data = &*snapshot::stamped(data, revision).map_err(said)?;
        let saved = snapshot::open(<V1 as snapshot::State>::KIND, data).map_err(said)?;
        let V1 {
            config,
            table,
            pme,
            vectors,
            device: state,
        } = saved.decode().map_err(said)?;
        let entries = self.table.as_ref().map_or(0, |table| table.entries().len());
        if table.len() != entries {
            let len = table.len() as u64;
            return Err(said(impossible("table", len, "another number of vectors")));
        }
        if let Some(vector) = vectors.iter().find(|vector| !self.irq.0.has(vector)) {
            let number = vector.vector.into();
            return Err(said(impossible("vector", number, "there is none")));
        }
        let events: Vec<ConfigEvent> = self.config.load(&config).map_err(said)?.to_vec();
        for event in &events {
            device.config_event(*event);
        }
        if let Some(mine) = &mut self.table {
            mine.put(&table);
        }
        self.irq.set_pme(pci::Pme {
            enabled: pme[0],
            status: pme[1],
        });
        self.follow_config();
        device.load(&state)?;
        for vector in vectors {
            self.irq
                .0
                .guest_mask(vector.index, vector.vector, vector.guest_masked);
            if vector.pending {
                match vector.index {
                    irq::MSI => self.irq.msi(vector.vector as u16),
                    irq::MSIX => self.irq.msix(vector.vector as u16),
                    _ => {}
                }
            }
        }
        if let Some(doorbells) = &mut self.shape.doorbells {
            doorbells.refresh(device);
        }
        Ok(())
    }

    pub(super) fn state_read(
        &mut self,
        device: &mut dyn Device,
        header: &Header,
        payload: &[u8],
        tx: &mut Sender,
    ) -> Result<(), Refusal> {
        let ask = self.parse(MigrationData::parse(payload))?;
        self.must_be_movable(device)?;
        let size = ask.size as usize;
        if size > self.max_data || (ask.argsz as usize) < MigrationData::LEN {
            return self.malformed();
        }
        let migration = &mut self.migration;
        if migration.state != MigrationState::StopCopy {
            return self.bad_move(Errno::INVAL);
        }
        let left = &migration.data[migration.read..];
        let some = &left[..left.len().min(size)];
        let whole = MigrationData::LEN + some.len();
        let reply = MigrationData {
            argsz: whole as u32,
            size: some.len() as u32,
        };
        tx.push_data(&header.reply(whole), &reply.to_bytes(), some.len())
            .copy_from_slice(some);
        let ends = some.len() < size || some.len() == left.len();
        self.counters.moved_out += u64::from(ends && !left.is_empty());
        migration.read += some.len();
        Ok(())
    }

    pub(super) fn state_write(
        &mut self,
        device: &mut dyn Device,
        header: &Header,
        payload: &[u8],
        tx: &mut Sender,
    ) -> Result<(), Refusal> {
        let given = self.parse(MigrationData::parse(payload))?;
        self.must_be_movable(device)?;
        let data = &payload[MigrationData::LEN..];
        if data.len() != given.size as usize || data.len() > self.max_data {
            return self.malformed();
        }
        let migration = &mut self.migration;
        if migration.state != MigrationState::Resuming {
            return self.bad_move(Errno::INVAL);
        }
        if migration.data.len() + data.len() > MAX_STATE {
            return self.bad_move(Errno::NOSPC);
        }
        migration.data.extend_from_slice(data);
        tx.push(&header.reply(0), &[]);
        Ok(())
    }

    fn log_refused<T>(&mut self, why: LogError) -> Result<T, Refusal> {
        self.bad_move(match why {
            LogError::TooLarge => Errno::NOMEM,
            LogError::TooMany => Errno::TOOBIG,
            _ => Errno::INVAL,
        })
    }

    fn log_start(&mut self, data: &[u8], cost: &mut usize) -> Result<Vec<u8>, Refusal> {
        let control = self.parse(LogControl::parse(data))?;
        let (ranges, _) = data[LogControl::LEN..].as_chunks::<{ LogRange::LEN }>();
        let Some(ranges) = ranges.get(..control.ranges as usize) else {
            return self.malformed();
        };
        if ranges.len() > guest_mem::MAX_LOG_RANGES {
            return self.log_refused(LogError::TooMany);
        }
        *cost += ranges.len();
        let parsed = |bytes: &[u8; LogRange::LEN]| {
            let range = LogRange::parse(bytes).unwrap_or_default();
            (range.iova, range.len)
        };
        let asked: Vec<_> = ranges.iter().map(parsed).collect();
        let page_size = match self.memory.start_log(control.page_size, &asked) {
            Ok(page_size) => page_size,
            Err(why) => {
                if why == LogError::TooLarge {
                    // It was made as far as it may be.
                    *cost += MAX_LOG_CHUNKS;
                }
                return self.log_refused(why);
            }
        };
        *cost += self.memory.log_cost();
        let reply = LogControl {
            page_size,
            ..control
        };
        Ok([&reply.to_bytes()[..], ranges.as_flattened()].concat())
    }

    fn log_report(&mut self, data: &[u8], cost: &mut usize) -> Result<Vec<u8>, Refusal> {
        let ask = self.parse(LogReport::parse(data))?;
        let LogReport {
            iova,
            len,
            page_size,
        } = ask;
        let most = self
            .max_data
            .saturating_sub(LogReport::LEN + DeviceFeature::LEN);
        let bytes = log_bytes(iova, len, page_size);
        let Some(bytes) = bytes.filter(|bytes| *bytes <= most as u64) else {
            return self.malformed();
        };
        let mut reply = ask.to_bytes().to_vec();
        reply.resize(LogReport::LEN + bytes as usize, 0);
        *cost += bytes as usize / PAGES_PER_COST;
        let bitmap = &mut reply[LogReport::LEN..];
        match self.memory.take_log((iova, len), page_size, bitmap) {
            Ok(chunks) => {
                *cost += chunks;
                Ok(reply)
            }
            Err(why) => self.log_refused(why),
        }
    }
}
