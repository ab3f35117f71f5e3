//! VMMs that come, go, and hold on.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use drivers::Bus;
use drivers::e1000::regs;
use rustix::event::EventfdFlags;
use vfio_user::codec::{
    Command, DeviceInfo, DmaMap, RegionAccess, SetIrqs, dma_flags, irq, irq_set, region,
};
use vfio_user::{Client, ClientOptions};

use crate::stage::{Done, RING, Stage};
use crate::vmm::{Vmm, event, hello, memfd, message, own, refused};

fn set(index: u32, start: u32, count: u32, flags: u32) -> SetIrqs {
    SetIrqs {
        argsz: SetIrqs::LEN as u32,
        flags,
        index,
        start,
        count,
    }
}

pub(crate) fn interrupts_that_are_not(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    for index in [0, 1, 2, 3, 4, 5, 100, u32::MAX] {
        refused(client.irq_info(index))?;
        for (start, count) in [
            (0, 1),
            (0, 2),
            (1, 1),
            (1, 0),
            (0, 2048),
            (u32::MAX, 1),
            (1, u32::MAX),
            (u32::MAX, u32::MAX),
        ] {
            for data in [1, 2, 4, 7] {
                for action in [0, 1 << 3, 1 << 4, 1 << 5, 7 << 3] {
                    let set = set(index, start, count, data | action);
                    refused(client.request(Command::SetIrqs, &set.to_bytes(), &[]))?;
                }
            }
        }
    }
    Ok(())
}

pub(crate) fn wrong_number_of_eventfds(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    let event = event()?;
    let flags = irq_set::DATA_EVENTFD | irq_set::ACTION_TRIGGER;
    for index in 0..irq::COUNT {
        for count in [0, 1, 2, 16] {
            for fds in [0, 1, 2, 16] {
                let set = set(index, 0, count, flags);
                let fds = vec![event.as_fd(); fds];
                refused(client.request(Command::SetIrqs, &set.to_bytes(), &fds))?;
            }
        }
    }
    Ok(())
}

pub(crate) fn eventfds_that_are_none(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    let (read, write) = rustix::pipe::pipe().map_err(own)?;
    let memory = memfd(4096)?;
    let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC);
    let epoll = epoll.map_err(own)?;
    let socket = vmm.socket()?;
    let timer = rustix::time::timerfd_create(
        rustix::time::TimerfdClockId::Monotonic,
        rustix::time::TimerfdFlags::CLOEXEC,
    );
    let timer = timer.map_err(own)?;
    for fd in [&read, &write, &memory, &epoll, &socket, &timer] {
        for action in [
            irq_set::ACTION_TRIGGER,
            irq_set::ACTION_MASK,
            irq_set::ACTION_UNMASK,
        ] {
            let set = set(irq::INTX, 0, 1, irq_set::DATA_EVENTFD | action);
            refused(client.request(Command::SetIrqs, &set.to_bytes(), &[fd.as_fd()]))?;
        }
        raise(&mut client)?;
    }
    Ok(())
}

/// Sets in a set, and descriptors in each of them: so many entries the kernel goes through, with its lock of nested
/// sets held, whenever the outer set goes into another.
const NEST: usize = 250;

pub(crate) fn epoll_sets_in_epoll_sets(vmm: &mut Vmm) -> Done {
    use rustix::event::epoll;
    let new = || epoll::create(epoll::CreateFlags::CLOEXEC).map_err(own);
    let put = |set: &OwnedFd, fd: &OwnedFd| {
        let data = epoll::EventData::new_u64(0);
        epoll::add(set, fd, data, epoll::EventFlags::IN).map_err(own)
    };
    let leaves: Vec<_> = (0..NEST)
        .map(|_| rustix::event::eventfd(0, EventfdFlags::CLOEXEC).map_err(own))
        .collect::<Result<_, _>>()?;
    let middle = new()?;
    let mut sets = Vec::new();
    for _ in 0..NEST {
        let set = new()?;
        leaves.iter().try_for_each(|leaf| put(&set, leaf))?;
        put(&middle, &set)?;
        sets.push(set);
    }
    let outer = [new()?, new()?];
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for outer in &outer {
            let (middle, stop, put) = (&middle, &stop, &put);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let _ = put(outer, middle);
                    let _ = epoll::delete(outer, middle);
                }
            });
        }
        let done = (0..5).try_for_each(|_| signals_come_and_go(vmm));
        stop.store(true, Ordering::Relaxed);
        done
    })
}

/// Has the device raise its pin some times.
fn raise(client: &mut Client) -> Done {
    for _ in 0..20 {
        for (register, value) in [(regs::IMS, u32::MAX), (regs::ICS, 1)] {
            client
                .region_post(region::BAR0, register.into(), &value.to_le_bytes())
                .map_err(own)?;
        }
        client
            .region_read(region::BAR0, regs::ICR.into(), &mut [0; 4])
            .map_err(own)?;
        refused(client.unmask(irq::INTX, 0))?;
    }
    Ok(())
}

pub(crate) fn eventfd_filled_up(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    let full = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).map_err(own)?;
    let set = set(
        irq::INTX,
        0,
        1,
        irq_set::DATA_EVENTFD | irq_set::ACTION_TRIGGER,
    );
    refused(client.request(Command::SetIrqs, &set.to_bytes(), &[full.as_fd()]))?;
    rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).map_err(own)?;
    raise(&mut client)
}

pub(crate) fn eventfd_that_blocks(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    let full = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).map_err(own)?;
    let set = set(
        irq::INTX,
        0,
        1,
        irq_set::DATA_EVENTFD | irq_set::ACTION_TRIGGER,
    );
    refused(client.request(Command::SetIrqs, &set.to_bytes(), &[full.as_fd()]))?;
    rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).map_err(own)?;
    // The server's descriptor is the same open file: what it has set there, we take back.
    rustix::fs::fcntl_setfl(&full, rustix::fs::OFlags::empty()).map_err(own)?;
    raise(&mut client)
}

pub(crate) fn crowd_behind_an_eventfd(vmm: &mut Vmm) -> Done {
    use rustix::event::epoll;
    // Each set watches the same eventfd by each of its descriptors.
    const SETS: usize = 200;
    const NAMES: usize = 200;
    let event = event()?;
    let name = |_| rustix::io::dup(&event).map_err(own);
    let names: Vec<_> = (0..NAMES).map(name).collect::<Result<_, _>>()?;
    let mut sets = Vec::new();
    for _ in 0..SETS {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(own)?;
        for name in &names {
            let data = epoll::EventData::new_u64(0);
            epoll::add(&set, name, data, epoll::EventFlags::IN).map_err(own)?;
        }
        sets.push(set);
    }
    let mut client = vmm.client()?;
    client.arm(irq::INTX, 0, &[&event]).map_err(own)?;
    (0..20).try_for_each(|_| raise(&mut client))
}

pub(crate) fn signals_come_and_go(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    for _ in 0..100 {
        let events = [event()?, event()?, event()?];
        for (event, action) in events.iter().zip([
            irq_set::ACTION_TRIGGER,
            irq_set::ACTION_MASK,
            irq_set::ACTION_UNMASK,
        ]) {
            let set = set(irq::INTX, 0, 1, irq_set::DATA_EVENTFD | action);
            client
                .request(Command::SetIrqs, &set.to_bytes(), &[event.as_fd()])
                .map_err(own)?;
            event.signal();
        }
        raise(&mut client)?;
        client.disarm(irq::INTX).map_err(own)?;
        events.iter().for_each(vfio_user::EventFd::signal);
    }
    Ok(())
}

pub(crate) fn connect_storm(vmm: &mut Vmm) -> Done {
    for _ in 0..300 {
        drop(vmm.socket()?);
    }
    let mut there = vmm.client()?;
    for round in 0..300 {
        // While one is served, and sometimes saying something.
        let socket = vmm.socket()?;
        if round % 2 == 0 {
            let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
            let _ = rustix::net::send(&socket, &hello(), flags);
        }
    }
    // Its turn ends only when they have all been seen.
    for _ in 0..20 {
        there.info().map_err(own)?;
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

pub(crate) fn crowd_at_the_door(vmm: &mut Vmm) -> Done {
    let mut there = vmm.client()?;
    let crowd = (0..64)
        .map(|_| vmm.socket())
        .collect::<Result<Vec<_>, _>>()?;
    for _ in 0..50 {
        there.info().map_err(own)?;
    }
    drop(crowd);
    Ok(())
}

pub(crate) fn mute_client(vmm: &mut Vmm) -> Done {
    let mute = vmm.silent()?;
    // The next one is served all the same, after a second.
    let mut next = vmm.client()?;
    next.info().map_err(own)?;
    drop(mute);
    Ok(())
}

pub(crate) fn gone_at_every_step(vmm: &mut Vmm) -> Done {
    let file = memfd(0x10_0000)?;
    let event = event()?;
    let map = DmaMap {
        argsz: DmaMap::LEN as u32,
        flags: dma_flags::READ | dma_flags::WRITE,
        iova: 0,
        size: 0x10_0000,
        ..DmaMap::default()
    };
    let arm = set(
        irq::INTX,
        0,
        1,
        irq_set::DATA_EVENTFD | irq_set::ACTION_TRIGGER,
    );
    let write = |region: u32, offset: u32, value: u32| {
        let access = RegionAccess {
            offset: offset.into(),
            region,
            count: 4,
        };
        let payload = [&access.to_bytes()[..], &value.to_le_bytes()].concat();
        (message(Command::RegionWrite as u16, 0, &payload), None)
    };
    let bar = region::BAR0;
    let info = DeviceInfo {
        argsz: DeviceInfo::LEN as u32,
        ..DeviceInfo::default()
    };
    let steps = [
        (hello(), None),
        (message(Command::GetInfo as u16, 0, &info.to_bytes()), None),
        (
            message(Command::DmaMap as u16, 0, &map.to_bytes()),
            Some(file.as_fd()),
        ),
        (
            message(Command::SetIrqs as u16, 0, &arm.to_bytes()),
            Some(event.as_fd()),
        ),
        write(region::CONFIG, 4, 7),
        write(bar, regs::TDLEN, RING * 16),
        write(bar, regs::TCTL, 0xa),
        write(bar, regs::RDLEN, RING * 16),
        write(bar, regs::RCTL, 0x801a),
        write(bar, regs::RDT, RING - 1),
        write(bar, regs::TDT, RING - 1),
        write(bar, regs::IMS, u32::MAX),
        write(bar, regs::ICS, u32::MAX),
        (message(Command::Reset as u16, 0, &[]), None),
    ];
    for last in 1..=steps.len() {
        for part in [false, true] {
            let mut client = vmm.silent()?;
            for (n, (bytes, fd)) in steps[..last].iter().enumerate() {
                let fds: Vec<_> = fd.iter().copied().collect();
                let cut = part && n + 1 == last;
                let bytes = if cut {
                    &bytes[..bytes.len() / 2]
                } else {
                    bytes
                };
                refused(client.send_raw(bytes, &fds))?;
            }
        }
    }
    Ok(())
}

pub(crate) fn gone_in_the_middle_of_work(vmm: &mut Vmm) -> Done {
    for _ in 0..50 {
        let mut bus = vmm.machine()?;
        let mut stage = Stage::new(&mut bus)?;
        let raw = stage.legacy(1400).raw();
        stage.post(stage.buffer.iova)?;
        stage.send_on(&[raw; RING as usize - 1])?;
    }
    Ok(())
}

pub(crate) fn reset_storm(vmm: &mut Vmm) -> Done {
    let mut bus = vmm.machine()?;
    let mut stage = Stage::new(&mut bus)?;
    let raw = stage.legacy(1400).raw();
    stage.post(stage.buffer.iova)?;
    stage.send_on(&[raw; RING as usize - 1])?;
    let reset = message(Command::Reset as u16, 0, &[]);
    for _ in 0..20 {
        let client = bus.client();
        client.send_raw(&reset.repeat(100), &[]).map_err(own)?;
        for _ in 0..100 {
            client.next_reply().map_err(own)?;
        }
    }
    bus.read32(regs::STATUS)?;
    Ok(())
}

pub(crate) fn twin_socket_abused(vmm: &mut Vmm) -> Done {
    let options = ClientOptions {
        twin_socket: true,
        ..ClientOptions::default()
    };
    for deed in 0..4 {
        // The twin comes as a descriptor of the reply to VERSION.
        let mut client = vmm.silent_with(options)?;
        let version = vfio_user::codec::Version {
            major: 0,
            minor: 1,
            capabilities: vfio_user::codec::Capabilities {
                twin_socket: Some(vfio_user::codec::TwinSocket {
                    supported: true,
                    fd_index: None,
                }),
                ..Default::default()
            },
        };
        client
            .send_raw(
                &message(Command::Version as u16, 0, &version.to_bytes()),
                &[],
            )
            .map_err(own)?;
        let mut reply = client.next_reply().map_err(own)?;
        let Some(twin) = reply.fds.pop() else {
            continue;
        };
        let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
        let say = |bytes: &[u8]| rustix::net::send(&twin, bytes, flags);
        let _ = match deed {
            0 => say(&[0xff; 4096]),
            1 => say(&message(Command::DmaRead as u16, 1, &[0xff; 64])),
            2 => say(&message(Command::Reset as u16, 0, &[])),
            _ => say(&[0; 3]),
        };
        std::thread::sleep(Duration::from_millis(5));
        refused(client.info())?;
        drop(twin);
        refused(client.info())?;
    }
    Ok(())
}

pub(crate) fn slow_to_finish(vmm: &mut Vmm) -> Done {
    let mut client = vmm.client()?;
    let read = RegionAccess {
        offset: 8,
        region: region::BAR0,
        count: 4,
    };
    let bytes = message(Command::RegionRead as u16, 0, &read.to_bytes());
    for part in 1..bytes.len() {
        client.send_raw(&bytes[..part], &[]).map_err(own)?;
        std::thread::sleep(Duration::from_millis(2));
        client.send_raw(&bytes[part..], &[]).map_err(own)?;
        refused(client.next_reply())?;
    }
    Ok(())
}

/// One round of the soak: memory, state and connection each end while frames are sent and, if
/// a neighbour sends any, received (class 19 of the list: teardown while the backend runs).
pub(crate) fn ends_in_the_middle(vmm: &mut Vmm, round: u32) -> Done {
    let mut bus = vmm.machine()?;
    let mut stage = Stage::new(&mut bus)?;
    let raw = stage.legacy(60 + (round % 1400) as u16).raw();
    let begin = |stage: &mut Stage<'_>| {
        let (tx, rx) = (stage.tx.iova, stage.rx.iova);
        stage.tx_ring(tx, RING * 16)?;
        stage.rx_ring(rx, RING * 16)?;
        stage.post(stage.buffer.iova + 0x1_0000)?;
        stage.send_on(&[raw; RING as usize - 1])
    };
    begin(&mut stage)?;
    let buffer = stage.buffer;
    stage.bus.free(buffer)?;
    let buffer = stage.bus.alloc_at(buffer.iova, buffer.len)?;
    stage.buffer = buffer;
    begin(&mut stage)?;
    if round.is_multiple_of(2) {
        stage.bus.write32(regs::CTRL, regs::ctrl::RST)?;
    } else {
        stage.bus.config_write(4, &[(round % 8) as u8, 0])?;
    }
    begin(&mut stage)?;
    if round.is_multiple_of(3) {
        bus.bus_reset()?;
    }
    // And gone.
    Ok(())
}
