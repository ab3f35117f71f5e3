//! What a client says, made of input.

use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use vfio_user::codec::{
    Command, DeviceFeature, DeviceInfo, IrqInfo, LogControl, LogRange, LogReport, MigrationData,
    RegionAccess, RegionInfo, RegionIoFds, SetIrqs, StateChange, feature, irq, irq_set, region,
};

use super::device::{ASK_READ, ASK_WRITE, PINS};
use crate::input::Input;

/// One of the questions that a client asks before it uses a device.
pub(super) fn question(more: u8, argsz: u32, input: &mut Input<'_>) -> (Command, Vec<u8>) {
    match more {
        0 => (
            Command::GetInfo,
            DeviceInfo {
                argsz,
                ..Default::default()
            }
            .to_bytes()
            .to_vec(),
        ),
        1 => moved(argsz, input),
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
        5 => (Command::DeviceFeature, about_a_move(argsz, input)),
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

/// A piece of a state, there or back.
fn moved(argsz: u32, input: &mut Input<'_>) -> (Command, Vec<u8>) {
    let len = usize::from(input.u8());
    let size = match input.u8() {
        0..200 => len as u32,
        _ => input.u32(),
    };
    let head = MigrationData { argsz, size }.to_bytes();
    if input.u8() & 1 == 0 {
        return (Command::MigrationRead, head.to_vec());
    }
    (
        Command::MigrationWrite,
        [&head[..], input.bytes(len)].concat(),
    )
}

/// What a VMM says to a device that moves.
fn about_a_move(argsz: u32, input: &mut Input<'_>) -> Vec<u8> {
    let kind = input.u8();
    let (flags, data) = match kind & 7 {
        0 => (feature::GET | feature::STATE, Vec::new()),
        1 | 2 => {
            let state = u32::from(input.u8() & 7);
            let change = StateChange { state, fd: -1 };
            (feature::SET | feature::STATE, change.to_bytes().to_vec())
        }
        3 => {
            let ranges = u32::from(input.u8() & 3);
            let control = LogControl {
                page_size: 1 << (input.u8() & 63),
                ranges,
                reserved: 0,
            };
            let mut data = control.to_bytes().to_vec();
            for _ in 0..ranges {
                let (iova, len) = (address(input), address(input));
                data.extend(LogRange { iova, len }.to_bytes());
            }
            (feature::SET | feature::LOG_START, data)
        }
        4 => {
            let report = LogReport {
                iova: address(input),
                len: address(input),
                page_size: 1 << (input.u8() & 63),
            };
            (
                feature::GET | feature::LOG_REPORT,
                report.to_bytes().to_vec(),
            )
        }
        5 => (feature::SET | feature::LOG_STOP, Vec::new()),
        6 => (feature::GET | feature::DATA_SIZE, Vec::new()),
        _ => (input.u32(), input.bytes(8).to_vec()),
    };
    let mut all = DeviceFeature { argsz, flags }.to_bytes().to_vec();
    all.extend(data);
    if kind & 0x80 != 0 {
        all.truncate(usize::from(kind >> 2 & 31));
    }
    all
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
