//! Messages that lie, and what comes with them.

use std::os::fd::{AsFd, OwnedFd};

use drivers::BusError;
use vhost_user::codec::{
    HEADER_LEN, Header, Inflight, Log, LogBase, MemRegion, MemTable, Message, Request, VringAddr,
    VringFd, VringState,
};
use vhost_user::{EventFd, SharedMem};

use super::stage::{Guest, RAM, SIZE, USER, addr, cut_off, lie, ram, region, say};
use crate::front_end::{ALL, FrontEnd, refused};
use crate::stage::{Dice, Done};
use crate::vmm::own;

fn table<'m>(regions: &[MemRegion]) -> Result<Message<'m>, BusError> {
    let table = MemTable::new(regions).ok_or_else(|| own("too many regions"))?;
    Ok(Message::SetMemTable(table))
}

pub(crate) fn memory_tables_lie(front: &mut FrontEnd) -> Done {
    let ram = ram()?;
    let good = MemRegion {
        guest: 1 << 40,
        user: 1 << 43,
        ..region()
    };
    for wrong in [
        MemRegion { size: 0, ..good },
        MemRegion {
            size: u64::MAX,
            ..good
        },
        MemRegion {
            size: RAM as u64 + 1,
            ..good
        },
        MemRegion {
            size: 1 << 40,
            ..good
        },
        MemRegion {
            guest: u64::MAX - 5,
            ..good
        },
        MemRegion {
            user: u64::MAX - 5,
            ..good
        },
        MemRegion {
            mmap_offset: u64::MAX - 5,
            ..good
        },
        MemRegion {
            mmap_offset: 1 << 40,
            ..good
        },
        MemRegion {
            mmap_offset: 0x1000,
            ..good
        },
        // Where there is memory already.
        MemRegion {
            user: 1 << 43,
            ..region()
        },
        MemRegion {
            guest: 1 << 40,
            user: USER + 0x1000,
            ..region()
        },
    ] {
        lie(front, &table(&[wrong])?, &[ram.as_fd()])?;
        lie(front, &Message::AddMemReg(wrong), &[ram.as_fd()])?;
        lie(front, &Message::RemMemReg(wrong), &[])?;
    }
    // Each region twice, and other numbers of descriptors.
    lie(front, &table(&[good; 2])?, &[ram.as_fd(); 2])?;
    lie(front, &table(&[good; 8])?, &[ram.as_fd(); 8])?;
    for fds in [0, 2, 8] {
        lie(front, &table(&[good])?, &vec![ram.as_fd(); fds])?;
    }
    Ok(())
}

/// Descriptors that are neither memory nor eventfds, and that block whoever reads them.
fn odd_ones() -> Result<Vec<OwnedFd>, BusError> {
    let (read, write) = rustix::pipe::pipe().map_err(own)?;
    let (a, b) = std::os::unix::net::UnixStream::pair().map_err(own)?;
    let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC);
    let timer = rustix::time::timerfd_create(
        rustix::time::TimerfdClockId::Monotonic,
        rustix::time::TimerfdFlags::CLOEXEC,
    );
    let file = std::fs::File::open("/proc/self/maps").map_err(own)?;
    let folder = std::fs::File::open("/").map_err(own)?;
    let null = std::fs::File::open("/dev/zero").map_err(own)?;
    Ok(vec![
        read,
        write,
        a.into(),
        b.into(),
        epoll.map_err(own)?,
        timer.map_err(own)?,
        file.into(),
        folder.into(),
        null.into(),
    ])
}

pub(crate) fn files_that_are_no_memory(front: &mut FrontEnd) -> Done {
    for fd in odd_ones()? {
        let fds = [fd.as_fd()];
        let region = MemRegion {
            guest: 1 << 40,
            user: 1 << 43,
            ..region()
        };
        lie(front, &table(&[region])?, &fds)?;
        lie(front, &Message::AddMemReg(region), &fds)?;
        let log = Log {
            size: 4096,
            offset: 0,
        };
        lie(front, &Message::SetLogBase(LogBase::Shared(log)), &fds)?;
        lie(front, &Message::SetInflightFd(inflight(4096)), &fds)?;
    }
    Ok(())
}

pub(crate) fn eventfds_that_are_none(front: &mut FrontEnd) -> Done {
    for fd in odd_ones()? {
        for index in [0, 1] {
            let ring = VringFd {
                index,
                without_fd: false,
            };
            for message in [
                Message::SetVringKick(ring),
                Message::SetVringCall(ring),
                Message::SetVringErr(ring),
            ] {
                lie(front, &message, &[fd.as_fd()])?;
            }
        }
    }
    Ok(())
}

fn inflight(size: u64) -> Inflight {
    Inflight {
        size,
        offset: 0,
        queues: 2,
        queue_size: SIZE,
    }
}

pub(crate) fn inflight_areas_lie(front: &mut FrontEnd) -> Done {
    let file = SharedMem::new("inflight", 0x1_0000).map_err(own)?;
    let good = inflight(0x1_0000);
    for wrong in [
        Inflight { size: 0, ..good },
        Inflight { size: 16, ..good },
        Inflight {
            size: u64::MAX,
            ..good
        },
        Inflight {
            offset: u64::MAX - 7,
            ..good
        },
        Inflight {
            offset: 0x1_0000,
            ..good
        },
        Inflight { offset: 3, ..good },
        Inflight { queues: 0, ..good },
        Inflight { queues: 3, ..good },
        Inflight {
            queues: u16::MAX,
            ..good
        },
        Inflight {
            queue_size: 0,
            ..good
        },
        Inflight {
            queue_size: u16::MAX,
            ..good
        },
    ] {
        lie(front, &Message::SetInflightFd(wrong), &[file.as_fd()])?;
        lie(front, &Message::GetInflightFd(wrong), &[])?;
    }
    // What is in it lies too: of what is in flight, and how much.
    let mut dice = Dice::new(9);
    for _ in 0..20 {
        let mut guest = Guest::new(front)?;
        let Ok((given, fd)) = guest.client.get_inflight_fd(2, SIZE) else {
            continue;
        };
        let whole = SharedMem::from_fd(fd, given.offset, given.size as usize).map_err(own)?;
        for at in (0..whole.len()).step_by(8) {
            let word = [0, u64::MAX, dice.next()][dice.below(3)];
            whole.write(at, &word.to_le_bytes()[..8.min(whole.len() - at)]);
        }
        refused(guest.client.get_vring_base(1))?;
        refused(guest.client.set_inflight_fd(&given, whole.as_fd()))?;
        if guest.begin(1).is_ok() {
            guest.send(&[0xff; 60])?;
        }
        guest.settle()?;
    }
    // Asked for again and again.
    let mut client = front.client()?;
    for _ in 0..200 {
        refused(client.get_inflight_fd(2, SIZE).map(drop))?;
    }
    Ok(())
}

pub(crate) fn logs_lie(front: &mut FrontEnd) -> Done {
    let file = SharedMem::new("log", 4096).map_err(own)?;
    for (size, offset) in [
        (0, 0),
        (8, 0),
        (4097, 0),
        (u64::MAX, 0),
        (4096, 4),
        (4096, 4096),
        (4096, u64::MAX - 3),
        (1 << 40, 0),
    ] {
        let log = LogBase::Shared(Log { size, offset });
        lie(front, &Message::SetLogBase(log), &[file.as_fd()])?;
    }
    lie(front, &Message::SetLogBase(LogBase::Address(1 << 40)), &[])?;
    // Too short for this guest's memory, whose used rings are logged nowhere; then the file itself is cut.
    for place in [0, 4096 * 8, u64::MAX - 7, 1 << 50] {
        let mut guest = Guest::new(front)?;
        let log = Log {
            size: 4096,
            offset: 0,
        };
        refused(guest.client.set_log_base(&log, file.as_fd()))?;
        for queue in [0, 1] {
            let logged = VringAddr {
                flags: 1,
                log: place,
                ..addr(queue)
            };
            refused(guest.client.set_vring_addr(&logged))?;
        }
        guest.send(&[0xff; 60])?;
        guest.settle()?;
        let cut = cut_off(4096)?;
        refused(guest.client.set_log_base(&log, cut.as_fd()))?;
        rustix::fs::ftruncate(cut.as_fd(), 0).map_err(own)?;
        for _ in 0..8 {
            guest.send(&[0xff; 60])?;
        }
        guest.settle()?;
    }
    Ok(())
}

pub(crate) fn ring_numbers(front: &mut FrontEnd) -> Done {
    for index in [2, 3, 0xff, 0x100, 0x1_0000, u32::MAX] {
        for num in [0, 1, 0x8000, u32::MAX] {
            let state = VringState { index, num };
            for message in [
                Message::SetVringNum(state),
                Message::SetVringBase(state),
                Message::GetVringBase(state),
                Message::SetVringEnable(state),
            ] {
                lie(front, &message, &[])?;
            }
        }
    }
    for num in [0, 3, 32769, 0x1_0000, u32::MAX] {
        let state = VringState { index: 0, num };
        lie(front, &Message::SetVringNum(state), &[])?;
        lie(front, &Message::SetVringEnable(state), &[])?;
    }
    let event = EventFd::new().map_err(own)?;
    for index in [2, 0x7f, 0xff] {
        let ring = VringFd {
            index,
            without_fd: false,
        };
        lie(front, &Message::SetVringKick(ring), &[event.as_fd()])?;
        lie(front, &Message::SetVringCall(ring), &[event.as_fd()])?;
    }
    Ok(())
}

pub(crate) fn rings_nowhere(front: &mut FrontEnd) -> Done {
    let good = addr(0);
    let end = USER + RAM as u64;
    for at in [
        0,
        1 << 20,
        end,
        end - 64,
        USER - 64,
        u64::MAX - 15,
        good.descriptor + 1,
    ] {
        for wrong in [
            VringAddr {
                descriptor: at,
                ..good
            },
            VringAddr {
                available: at,
                ..good
            },
            VringAddr { used: at, ..good },
        ] {
            lie(front, &Message::SetVringAddr(wrong), &[])?;
        }
    }
    lie(
        front,
        &Message::SetVringAddr(VringAddr {
            flags: u32::MAX,
            ..good
        }),
        &[],
    )?;
    // Started without a place, and without memory.
    let event = EventFd::new().map_err(own)?;
    let mut client = front.client()?;
    say(
        &mut client,
        &Message::SetVringKick(VringFd::default()),
        &[event.as_fd()],
    )?;
    event.signal();
    say(
        &mut client,
        &Message::SetVringEnable(VringState { index: 0, num: 1 }),
        &[],
    )
}

pub(crate) fn surplus_descriptors(front: &mut FrontEnd) -> Done {
    let event = EventFd::new().map_err(own)?;
    for n in [1, 2, 4, 8] {
        let mut client = front.client()?;
        let fds = vec![event.as_fd(); n];
        for message in [
            Message::GetFeatures,
            Message::GetInflightFd(inflight(0)),
            Message::SetInflightFd(inflight(0)),
            Message::GetVringBase(VringState { index: 0, num: 0 }),
        ] {
            say(&mut client, &message, &fds)?;
        }
    }
    Ok(())
}

pub(crate) fn noise(front: &mut FrontEnd) -> Done {
    let mut dice = Dice::new(77);
    let event = EventFd::new().map_err(own)?;
    for _ in 0..300 {
        let mut client = front.client()?;
        for _ in 0..1 + dice.below(6) {
            let len = dice.below(80);
            let header = Header {
                request: dice.below(48) as u32,
                flags: [1, 1, 1, 9, 5, dice.next() as u32][dice.below(6)],
                size: [len as u32, len as u32, len as u32, dice.next() as u32][dice.below(4)],
            };
            let mut bytes = header.to_bytes().to_vec();
            bytes.extend((0..len).map(|_| dice.next() as u8));
            let fds = vec![event.as_fd(); dice.below(3)];
            if client.send_raw(&bytes, &fds).is_err() {
                break;
            }
        }
    }
    Ok(())
}

pub(crate) fn half_messages(front: &mut FrontEnd) -> Done {
    let mut buffer = [0; HEADER_LEN + 4096];
    let ram = ram()?;
    let whole = table(&[region()])?;
    let bytes = whole.encode(false, &mut buffer).to_vec();
    for len in 0..bytes.len() {
        let mut client = front.client()?;
        refused(client.send_raw(&bytes[..len.max(1)], &[ram.as_fd()]))?;
    }
    // A message that claims more than there ever is, and waits.
    let mut client = front.client()?;
    let header = Header::request(Request::SetMemTable, 264);
    refused(client.send_raw(&header.to_bytes(), &[ram.as_fd(); 8]))?;
    std::thread::sleep(std::time::Duration::from_millis(50));
    Ok(())
}

pub(crate) fn questions_without_end(front: &mut FrontEnd) -> Done {
    let mut client = front.client()?;
    // Nothing is read of the answers; a back end that does not take more is right.
    client.set_timeout(std::time::Duration::from_millis(300));
    for _ in 0..20_000 {
        if client.send(&Message::GetFeatures, false, &[]).is_err() {
            break;
        }
    }
    Ok(())
}

pub(crate) fn others_at_the_door(front: &mut FrontEnd) -> Done {
    let mut guest = Guest::new(front)?;
    for _ in 0..200 {
        // Another has its turn already.
        front.knock()?;
    }
    guest.settle()?;
    refused(guest.client.set_protocol_features(ALL))?;
    refused(guest.client.set_features(u64::MAX))
}
