//! What a VF does to the others of its chip, and to the outside, with frames.

use std::time::Duration;

use drivers::Bus;

use super::stage::{Done, RING, Stage, ask, data};
use crate::functions::stage::cmd;
use crate::stage::Dice;

const EVERYBODY: [u8; 6] = [0xff; 6];

fn with(mut frame: Vec<u8>, dst: [u8; 6], src: [u8; 6]) -> Vec<u8> {
    frame[..6].copy_from_slice(&dst);
    frame[6..12].copy_from_slice(&src);
    frame
}

/// From the addresses of all its neighbours, inside and outside, of groups and of no NIC.
pub(crate) fn forged_senders(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let (own, frame) = (stage.mac, stage.frame(200));
    for last in 0..32u8 {
        for inside in [own, [0x52, 0x54, 0, 0, 0x77, 0]] {
            let mut src = inside;
            src[5] = last;
            if src != own {
                stage.say_times(&with(frame.clone(), EVERYBODY, src), 20)?;
            }
        }
    }
    for src in [[0; 6], EVERYBODY, [1, 0, 0x5e, 0, 0, 1]] {
        stage.say_times(&with(frame.clone(), EVERYBODY, src), 20)?;
    }
    stage.leave()
}

/// Tags of VLANs that it has not joined, once and twice, in the frame and by descriptor.
pub(crate) fn forged_vlans(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    for id in [1u16, 7, 100, 4094, 4095, 0xffff] {
        let mut frame = stage.frame(300);
        let tag = [0x81, 0, (id >> 8) as u8, id as u8];
        frame.splice(12..12, [tag, tag].concat());
        stage.say_times(&frame, 20)?;
        let context = super::stage::Context {
            vlan: id.into(),
            ..super::stage::Context::tcp(1000)
        };
        let command = cmd::EOP | cmd::IFCS | cmd::RS | cmd::VLE;
        let raw = data(stage.buffer.iova, 300, command, 0);
        stage.send(&[context.raw(), raw, raw])?;
    }
    stage.leave()
}

fn storm(bus: &mut dyn Bus, group: impl Fn(u32) -> [u8; 6]) -> Done {
    let mut stage = Stage::new(bus)?;
    let (own, frame) = (stage.mac, stage.frame(60));
    for round in 0..100 {
        stage.say_times(&with(frame.clone(), group(round), own), RING as usize)?;
    }
    // For what comes next there is room again.
    stage.bus.delay(Duration::from_millis(200))?;
    stage.leave()
}

pub(crate) fn broadcast_storm(bus: &mut dyn Bus) -> Done {
    storm(bus, |_| EVERYBODY)
}

pub(crate) fn multicast_storm(bus: &mut dyn Bus) -> Done {
    storm(bus, |n| [1, 0, 0x5e, 0, (n >> 8) as u8, n as u8])
}

pub(crate) fn ever_new_receivers(bus: &mut dyn Bus) -> Done {
    storm(bus, |n| [2, 0x66, 0, 0, (n >> 8) as u8, n as u8])
}

/// To itself, from and to.
pub(crate) fn to_itself(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let (own, frame) = (stage.mac, stage.frame(1000));
    let buffer = stage.buffer.iova + 0x1_0000;
    stage.post(buffer, 0)?;
    for _ in 0..40 {
        stage.say_times(&with(frame.clone(), own, own), RING as usize)?;
    }
    stage.leave()
}

/// For bridges, and pause frames of the longest time among them.
pub(crate) fn bridge_and_pause_frames(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let own = stage.mac;
    for last in 0..16u8 {
        let mut frame = with(stage.frame(60), [1, 0x80, 0xc2, 0, 0, last], own);
        frame[12..18].copy_from_slice(&[0x88, 8, 0, 1, 0xff, 0xff]);
        stage.say_times(&frame, RING as usize)?;
    }
    stage.leave()
}

/// As long as they can be, for those who take 1522 bytes.
pub(crate) fn jumbo_storm(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let frame = stage.frame(9700);
    for _ in 0..20 {
        stage.say_times(&frame, RING as usize)?;
    }
    stage.leave()
}

/// Large segmented packets for everybody, one after the other.
pub(crate) fn segments_for_everybody(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    let context = super::stage::Context::tcp(536);
    let command = cmd::IFCS | cmd::RS | cmd::TSE;
    for _ in 0..10 {
        let len = 0xf000;
        let mut raw = data(stage.buffer.iova, len, command | cmd::EOP, 3);
        let announced = (len - 54) << 14 | 3 << 8;
        raw[12..].copy_from_slice(&announced.to_le_bytes());
        stage.send(&[context.raw(), raw, raw])?;
    }
    stage.leave()
}

/// Its link is up and its addresses are known, and it takes a frame only now and then.
pub(crate) fn takes_one_at_a_time(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    ask(stage.bus, &[6 | 2 << 16])?;
    let buffer = stage.buffer.iova;
    stage.post(buffer, 0)?;
    let first = stage.bus.read32(stage.rxq(0, super::stage::HEAD))?;
    stage.bus.write32(stage.rxq(0, super::stage::TAIL), first)?;
    for round in 0..30u32 {
        for _ in 0..4 {
            stage.arrive(60)?;
        }
        let tail = (first + round / 4) % RING;
        stage.bus.write32(stage.rxq(0, super::stage::TAIL), tail)?;
    }
    stage.leave()
}

/// Resets among frames that it sends and is sent.
pub(crate) fn resets_among_frames(bus: &mut dyn Bus) -> Done {
    let mut dice = Dice::new(59);
    for _ in 0..30 {
        let mut stage = Stage::new(bus)?;
        let buffer = stage.buffer.iova + 0x1_0000;
        stage.post(buffer, 0)?;
        let raw = stage.data(60 + dice.below(1000) as u32);
        stage.send_on(&[raw; RING as usize - 1])?;
        stage.arrive(1000)?;
        stage.bus.write32(super::stage::CTRL, super::stage::RST)?;
        stage.arrive(60)?;
        stage.leave()?;
    }
    Ok(())
}

/// Sends before it has completed a reset, with rings that are as good as any.
pub(crate) fn sends_before_it_may(bus: &mut dyn Bus) -> Done {
    let mut stage = Stage::new(bus)?;
    stage.bus.write32(super::stage::CTRL, super::stage::RST)?;
    stage.rings_back()?;
    let raw = stage.data(600);
    let buffer = stage.buffer.iova + 0x1_0000;
    stage.post(buffer, 0)?;
    for _ in 0..20 {
        stage.send(&[raw; RING as usize - 1])?;
        stage.arrive(600)?;
        stage.rings_back()?;
    }
    stage.leave()
}
