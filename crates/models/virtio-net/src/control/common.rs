//! The common configuration (virtio 1.4 §4.1.4.3).

use std::sync::atomic::Ordering;

use datapath::counters::count;
use model::Env;

use crate::control::Registers;
use crate::core::device::Device;
use crate::core::ring::{Place, Position};
use crate::regs::{NO_VECTOR, common as c, feature, status};

/// A queue as the driver sets it up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueueRegisters {
    /// Its size is 0 until the driver says one: the most there can be.
    pub place: Place,
    pub enabled: bool,
}

/// What the structure keeps beside the device.
#[derive(Clone, Debug, Default)]
pub(crate) struct Common {
    pub device_select: u32,
    pub driver_select: u32,
    pub queue_select: u16,
    pub driver: u64,
    pub queues: Vec<QueueRegisters>,
}

/// Bytes of the field at `offset`; 64-bit fields are two halves. 0: no field begins there.
fn width(offset: u64) -> usize {
    match offset {
        c::DEVICE_FEATURE_SELECT
        | c::DEVICE_FEATURE
        | c::DRIVER_FEATURE_SELECT
        | c::DRIVER_FEATURE => 4,
        c::CONFIG_VECTOR..=0x13 | c::QUEUE_SELECT..=0x1f | c::QUEUE_NOTIFY_DATA..=0x3f
            if offset.is_multiple_of(2) =>
        {
            2
        }
        c::STATUS | c::GENERATION => 1,
        c::QUEUE_DESC..=0x37 if offset.is_multiple_of(4) => 4,
        _ => 0,
    }
}

/// A word of a set of features.
fn word(features: u64, select: u32) -> u32 {
    match select {
        0 => features as u32,
        1 => (features >> 32) as u32,
        _ => 0,
    }
}

/// Sets half `half` of `address`.
fn set_half(address: &mut u64, half: u64, value: u32) {
    let shift = 32 * half;
    *address = *address & !(0xffff_ffff << shift) | u64::from(value) << shift;
}

impl Common {
    /// As after a reset.
    pub fn new(device: &Device) -> Self {
        Self {
            queues: vec![QueueRegisters::default(); device.queues()],
            ..Self::default()
        }
    }

    fn selected(&self) -> Option<(usize, QueueRegisters)> {
        let at = usize::from(self.queue_select);
        Some((at, *self.queues.get(at)?))
    }

    /// `false`: no field of this width is there.
    pub fn read(&self, device: &Device, offset: u64, data: &mut [u8]) -> bool {
        if width(offset) != data.len() {
            return false;
        }
        let value = self.value(device, offset).to_le_bytes();
        data.copy_from_slice(&value[..data.len()]);
        true
    }

    fn value(&self, device: &Device, offset: u64) -> u32 {
        match offset {
            c::DEVICE_FEATURE_SELECT => self.device_select,
            c::DEVICE_FEATURE => word(device.offered(), self.device_select),
            c::DRIVER_FEATURE_SELECT => self.driver_select,
            c::DRIVER_FEATURE => word(self.driver, self.driver_select),
            c::CONFIG_VECTOR => device.lines.config.load(Ordering::Acquire).into(),
            c::NUM_QUEUES => device.queues() as u32,
            c::STATUS => device.status().into(),
            c::GENERATION => device.generation().into(),
            c::QUEUE_SELECT => self.queue_select.into(),
            _ => self.queue_value(device, offset),
        }
    }

    fn queue_value(&self, device: &Device, offset: u64) -> u32 {
        let Some((at, queue)) = self.selected() else {
            return match offset {
                c::QUEUE_VECTOR => NO_VECTOR.into(),
                _ => 0,
            };
        };
        let half = |address: u64| (address >> (8 * (offset & 4))) as u32;
        match offset {
            c::QUEUE_SIZE => match queue.place.size {
                0 => device.most(at).into(),
                size => size.into(),
            },
            c::QUEUE_VECTOR => device.lines.queues[at].load(Ordering::Acquire).into(),
            c::QUEUE_ENABLE => queue.enabled.into(),
            c::QUEUE_NOTIFY_OFF => at as u32,
            c::QUEUE_DESC..c::QUEUE_DRIVER => half(queue.place.desc),
            c::QUEUE_DRIVER..c::QUEUE_DEVICE => half(queue.place.driver),
            c::QUEUE_DEVICE..c::QUEUE_NOTIFY_DATA => half(queue.place.device),
            // A reset is over before it can be looked at, and no field behind it is offered.
            _ => 0,
        }
    }
}

impl Registers {
    pub(super) fn write_common(&mut self, env: &Env, offset: u64, data: &[u8]) {
        if width(offset) != data.len() {
            return self.refuse_access();
        }
        let mut value = [0; 4];
        value[..data.len()].copy_from_slice(data);
        let value = u32::from_le_bytes(value);
        let common = &mut self.common;
        match offset {
            c::DEVICE_FEATURE_SELECT => common.device_select = value,
            c::DRIVER_FEATURE_SELECT => common.driver_select = value,
            c::DRIVER_FEATURE => match common.driver_select {
                // What was agreed upon stays.
                _ if self.device.status() & status::FEATURES_OK != 0 => self.refuse_access(),
                half @ (0 | 1) => set_half(&mut common.driver, half.into(), value),
                // There are no such features.
                _ if value != 0 => self.refuse_access(),
                _ => {}
            },
            c::CONFIG_VECTOR => {
                let vector = vector(&self.device, value);
                self.device.lines.config.store(vector, Ordering::Release);
            }
            c::STATUS => self.write_status(env, value as u8),
            c::QUEUE_SELECT => common.queue_select = value as u16,
            _ => self.write_queue(offset, value),
        }
    }

    fn write_status(&mut self, env: &Env, value: u8) {
        if value == 0 {
            count(&self.device.counters.device_resets, 1);
            return self.reset_all(env);
        }
        let old = self.device.status();
        let mut add = value & !old & !status::NEEDS_RESET;
        if old & !status::NEEDS_RESET & !value != 0 {
            // Bits go by a reset only.
            self.refuse_access();
        }
        if add & status::FEATURES_OK != 0 && !self.device.agree(self.common.driver) {
            add &= !status::FEATURES_OK;
            count(&self.device.counters.features_refused, 1);
        }
        if add & status::DRIVER_OK != 0 && (old | add) & status::FEATURES_OK == 0 {
            add &= !status::DRIVER_OK;
            self.refuse_access();
        }
        self.device.add_status(add);
        if add & status::DRIVER_OK != 0 {
            self.note_all();
        }
    }

    fn write_queue(&mut self, offset: u64, value: u32) {
        let at = usize::from(self.common.queue_select);
        let Some(queue) = self.common.queues.get_mut(at) else {
            return self.refuse_access();
        };
        match offset {
            c::QUEUE_VECTOR => {
                let vector = vector(&self.device, value);
                self.device.lines.queues[at].store(vector, Ordering::Release);
            }
            c::QUEUE_RESET => self.reset_queue(at, value),
            c::QUEUE_ENABLE => self.enable_queue(at, value),
            // An enabled queue stays where it is.
            _ if queue.enabled => self.refuse_access(),
            c::QUEUE_SIZE => {
                let size = value as u16;
                if self.device.may_have(at, size) {
                    queue.place.size = size;
                } else {
                    self.refuse_access();
                }
            }
            c::QUEUE_DESC..c::QUEUE_NOTIFY_DATA => {
                let address = match offset {
                    c::QUEUE_DESC..c::QUEUE_DRIVER => &mut queue.place.desc,
                    c::QUEUE_DRIVER..c::QUEUE_DEVICE => &mut queue.place.driver,
                    _ => &mut queue.place.device,
                };
                set_half(address, offset >> 2 & 1, value);
            }
            _ => self.refuse_access(),
        }
    }

    fn enable_queue(&mut self, at: usize, value: u32) {
        let queue = &mut self.common.queues[at];
        let agreed = self.device.status() & status::FEATURES_OK != 0;
        if value != 1 || queue.enabled || !agreed {
            return self.refuse_access();
        }
        let start = Position::start(self.device.format());
        let mut place = queue.place;
        if place.size == 0 {
            place.size = self.device.most(at);
        }
        let enabled = self.device.enable(at, place, start);
        match enabled {
            Ok(()) => queue.enabled = true,
            Err(_) => count(&self.device.counters.queue_refused, 1),
        }
        // The driver may have filled it before a reset of the queue was over.
        self.notify(at as u64);
    }

    fn reset_queue(&mut self, at: usize, value: u32) {
        let queue = &mut self.common.queues[at];
        if value != 1 || !queue.enabled || !self.device.has(feature::RING_RESET) {
            return self.refuse_access();
        }
        count(&self.device.counters.queue_resets, 1);
        self.device.disable(at);
        *queue = QueueRegisters::default();
        self.device.lines.queues[at].store(NO_VECTOR, Ordering::Release);
    }
}

/// A vector as it reads back: one that there is not is none.
fn vector(device: &Device, value: u32) -> u16 {
    match value as u16 {
        vector if vector < device.vectors() => vector,
        _ => NO_VECTOR,
    }
}
