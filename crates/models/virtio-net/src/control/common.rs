//! The common configuration (virtio 1.4 §4.1.4.3).

use std::sync::atomic::Ordering;

use crate::core::device::Device;
use crate::core::ring::Place;
use crate::regs::{NO_VECTOR, common as c};

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
pub(super) fn width(offset: u64) -> usize {
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
pub(super) fn set_half(address: &mut u64, half: u64, value: u32) {
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
