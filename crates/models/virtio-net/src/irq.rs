//! Interrupts: of queues and of the configuration (virtio 1.4 §4.1.4.5, §4.1.5.1).

use std::sync::atomic::Ordering;

use datapath::counters::count;
use model::{Env, Nanos, Through};

use crate::core::coalesce::Wait;
use crate::core::device::{Device, Role};
use crate::core::ring::Broken;
use crate::regs::status;

const QUEUE: u8 = 1;
const CONFIG: u8 = 2;

/// Tells the driver of a queue.
pub fn queue(device: &Device, env: &Env, role: Role) {
    count(&device.counters.queue_calls, 1);
    let lines = &device.lines;
    let queue = device.queue_of(role);
    lines.tallies[queue].called.fetch_add(1, Ordering::Relaxed);
    if lines.msix.load(Ordering::Acquire) {
        let vector = lines.queues[queue].load(Ordering::Acquire);
        if vector < device.vectors() {
            env.irq.msix(vector);
        }
        return;
    }
    let mut isr = lines.isr.lock();
    *isr |= QUEUE;
    env.irq.set_line(true);
}

/// Tells the driver of these receive queues, a bit for each.
pub fn pairs(device: &Device, env: &Env, mut calls: u32) {
    while calls != 0 {
        queue(device, env, Role::Rx(calls.trailing_zeros() as usize));
        calls &= calls - 1;
    }
}

/// Tells the driver, if there is one, that the configuration has changed.
pub fn config(device: &Device, env: &Env) {
    device.changed();
    if device.status() & status::DRIVER_OK == 0 {
        return;
    }
    count(&device.counters.config_calls, 1);
    let lines = &device.lines;
    let mut isr = lines.isr.lock();
    *isr |= CONFIG;
    if lines.msix.load(Ordering::Acquire) {
        let vector = lines.config.load(Ordering::Acquire);
        drop(isr);
        if vector < device.vectors() {
            env.irq.msix(vector);
        }
    } else {
        env.irq.set_line(true);
    }
}

/// Has the queues looked at again when that is due for which they wait; those that begin to wait are told of. `role` is that of a
/// pair.
#[inline]
pub fn wait(device: &Device, env: &Env, wait: Wait, role: fn(usize) -> Role) {
    arm(device, env, wait.due);
    if wait.began != 0 {
        delayed(device, env, wait.began, role);
    }
}

fn delayed(device: &Device, env: &Env, mut pairs: u32, role: fn(usize) -> Role) {
    let lines = &device.lines;
    while pairs != 0 {
        let queue = device.queue_of(role(pairs.trailing_zeros() as usize));
        pairs &= pairs - 1;
        if !lines.msix.load(Ordering::Acquire) {
            env.irq.delayed(Through::Pin);
            continue;
        }
        let vector = lines.queues[queue].load(Ordering::Acquire);
        if vector < device.vectors() {
            env.irq.delayed(Through::Msix(vector));
        }
    }
}

/// Has the queues looked at again at `due`.
pub fn arm(device: &Device, env: &Env, due: Option<Nanos>) {
    let Some(due) = due else { return };
    let mut armed = device.armed.lock();
    if armed.is_none_or(|armed| due < armed) {
        *armed = Some(due);
        env.timer.arm(Some(due));
    }
}

impl Device {
    /// The timer has come: what is due is looked at by [`Sender`](crate::Sender)'s `run` and [`Receiver`](crate::Receiver)'s
    /// `poll`.
    pub fn tick(&self, env: &Env) {
        disarm(self, env);
    }
}

/// The timer has come, or is called off.
pub fn disarm(device: &Device, env: &Env) {
    let mut armed = device.armed.lock();
    if armed.take().is_some() {
        env.timer.arm(None);
    }
}

/// A ring is broken: the device needs a reset, and says so.
pub fn broken(device: &Device, env: &Env, why: Broken) {
    device.counters.broken(why);
    device.unsaved.change();
    if device.add_status(status::NEEDS_RESET) & status::NEEDS_RESET == 0 {
        config(device, env);
    }
}

/// The interrupt status, which is 0 then.
pub fn take_isr(device: &Device, env: &Env) -> u8 {
    let mut isr = device.lines.isr.lock();
    let bits = std::mem::take(&mut *isr);
    env.irq.set_line(false);
    bits
}

/// Makes the line show the status, and sets this if it is given.
pub fn settle(device: &Device, env: &Env, bits: Option<u8>) {
    let mut isr = device.lines.isr.lock();
    if let Some(bits) = bits {
        *isr = bits;
    }
    env.irq
        .set_line(*isr != 0 && !device.lines.msix.load(Ordering::Acquire));
}
