//! What a client says, made of input.

use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use vfio_user::codec::{
    Command, DeviceInfo, IrqInfo, RegionAccess, RegionInfo, RegionIoFds, SetIrqs, irq, irq_set,
    region,
};

use super::device::{ASK_READ, ASK_WRITE, PINS};
use crate::input::Input;

/// One of the questions that a client asks before it uses a device.
pub(super) fn question(more: u8, argsz: u32, input: &mut Input<'_>) -> (Command, Vec<u8>) {
    match more {
        0 | 1 => (
            Command::GetInfo,
            DeviceInfo {
                argsz,
                ..Default::default()
            }
            .to_bytes()
            .to_vec(),
        ),
        2 | 3 => {
            let index = input.value();
            (
                Command::GetRegionInfo,
                RegionInfo {
                    argsz,
                    index,
                    ..Default::default()
                }
                .to_bytes()
                .to_vec(),
            )
        }
        4 => {
            let index = input.value();
            (
                Command::GetRegionIoFds,
                RegionIoFds {
                    argsz,
                    index,
                    ..Default::default()
                }
                .to_bytes()
                .to_vec(),
            )
        }
        5 => (Command::DeviceFeature, input.bytes(8).to_vec()),
        _ => {
            let index = input.value();
            (
                Command::GetIrqInfo,
                IrqInfo {
                    argsz,
                    index,
                    ..Default::default()
                }
                .to_bytes()
                .to_vec(),
            )
        }
    }
}

pub(super) fn set_irqs(more: u8, argsz: u32, input: &mut Input<'_>) -> SetIrqs {
    SetIrqs {
        argsz,
        flags: [
            irq_set::DATA_EVENTFD | irq_set::ACTION_TRIGGER,
            irq_set::DATA_EVENTFD | irq_set::ACTION_UNMASK,
            irq_set::DATA_NONE | irq_set::ACTION_UNMASK,
            irq_set::DATA_NONE | irq_set::ACTION_MASK,
            irq_set::DATA_BOOL | irq_set::ACTION_TRIGGER,
            irq_set::DATA_NONE | irq_set::ACTION_TRIGGER,
            u32::from(input.u8()),
        ][usize::from(input.u8() % 7)],
        index: input.value() % (irq::COUNT + 1),
        start: u32::from(input.u8() & 31),
        count: if more == 7 {
            input.u32()
        } else {
            u32::from(input.u8() & 31)
        },
    }
}

/// A register write that asks the device to work its pins or to do DMA.
pub(super) fn ask(more: u8, input: &mut Input<'_>) -> Vec<u8> {
    let at = [ASK_READ, ASK_WRITE, PINS][usize::from(more % 3)];
    let access = RegionAccess {
        offset: at,
        region: region::BAR0,
        count: 8,
    };
    let value = if more < 4 {
        address(input)
    } else {
        input.u64()
    };
    [&access.to_bytes()[..], &value.to_ne_bytes()].concat()
}

pub(super) fn region_of(input: &mut Input<'_>) -> u32 {
    match input.u8() {
        0..100 => region::BAR0,
        100..140 => 1,
        140..220 => region::CONFIG,
        220..235 => region::ROM,
        _ => input.value(),
    }
}

/// Page numbers more often than not.
pub(super) fn address(input: &mut Input<'_>) -> u64 {
    match input.u8() {
        n @ 0..224 => u64::from(n) << 10,
        224..240 => u64::from(input.u32()),
        _ => input.u64(),
    }
}

pub(super) fn memfd(len: u64) -> Option<OwnedFd> {
    let fd = memfd_create("guest", MemfdFlags::CLOEXEC).ok()?;
    ftruncate(&fd, len).ok()?;
    Some(fd)
}
