//! Writes to the common configuration (virtio 1.4 §4.1.4.3).

use std::sync::atomic::Ordering;

use datapath::counters::count;
use model::Env;

use crate::control::Registers;
use crate::control::common::{QueueRegisters, set_half, width};
use crate::core::device::Device;
use crate::core::ring::Position;
use crate::regs::{NO_VECTOR, common as c, feature, status};

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
        let mut add = value & !old & status::DRIVERS;
        let foreign = value & !(status::DRIVERS | status::NEEDS_RESET);
        if old & !status::NEEDS_RESET & !value | foreign != 0 {
            // Bits go by a reset only, and there are no others.
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
            Ok(()) => (queue.enabled, queue.place) = (true, place),
            Err(_) => count(&self.device.counters.queue_refused, 1),
        }
        // The driver may have filled it before a reset of the queue was over.
        if let Some(work) = self.device.work(at) {
            self.note(work);
        }
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
