//! Rings and memory that change under a back end.

use std::io::{Read, Write};
use std::os::fd::AsFd;

use vhost_user::EventFd;
use vhost_user::codec::{Direction, MemRegion};

use super::stage::{BUFFER, GUEST, Guest, RAM, RX, SIZE, TX, addr, region};
use crate::front_end::{FrontEnd, refused};
use crate::races::beside;
use crate::stage::{Dice, Done};
use crate::vmm::own;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

pub(crate) fn broken_rings(front: &mut FrontEnd) -> Done {
    let buffer = GUEST + BUFFER;
    for queue in [TX, RX] {
        for (desc, next) in [
            ((buffer, 16, NEXT), 0),
            ((buffer, 16, NEXT), SIZE),
            ((0, 100, 0), 0),
            ((u64::MAX - 8, 100, 0), 0),
            ((GUEST + RAM as u64 - 8, 100, 0), 0),
            ((buffer, 100, WRITE), 0),
            ((buffer, 8, INDIRECT), 0),
            ((buffer, 16, INDIRECT), 0),
            ((buffer, u32::MAX, NEXT), 0),
        ] {
            let mut guest = Guest::new(front)?;
            guest.put(queue, 0, desc, next);
            guest.offer(queue, 0);
            guest.settle()?;
            guest.offer(queue, SIZE + 1);
            guest.settle()?;
            let ahead = if queue == TX { 0x7000 } else { 0x9000 };
            guest.index(queue, ahead);
            guest.settle()?;
        }
    }
    Ok(())
}

pub(crate) fn rings_start_and_stop(front: &mut FrontEnd) -> Done {
    let mut guest = Guest::new(front)?;
    for round in 0..300u32 {
        let queue = [RX, TX][round as usize % 2];
        guest.send(&[0xff; 100])?;
        refused(guest.client.get_vring_base(queue as u32))?;
        guest.kicks[queue].signal();
        guest.begin(queue)?;
        let enabled = round % 3 != 0;
        refused(guest.client.set_vring_enable(TX as u32, enabled))?;
        // Somewhere else while it runs.
        let mut other = addr(queue);
        other.used += 0x400;
        refused(guest.client.set_vring_addr(&other))?;
        guest.begin(queue)?;
    }
    guest.settle()
}

pub(crate) fn bases_that_cannot_be(front: &mut FrontEnd) -> Done {
    for base in [1, SIZE.into(), 0x7fff, 0x8000, 0xffff, 0x1_0000, u32::MAX] {
        for queue in [RX, TX] {
            let mut guest = Guest::new(front)?;
            refused(guest.client.get_vring_base(queue as u32))?;
            refused(guest.client.set_vring_base(queue as u32, base))?;
            let event = EventFd::new().map_err(own)?;
            refused(guest.client.set_vring_kick(queue as u8, Some(&event)))?;
            event.signal();
            guest.settle()?;
        }
    }
    Ok(())
}

pub(crate) fn memory_comes_and_goes(front: &mut FrontEnd) -> Done {
    let mut guest = Guest::new(front)?;
    let ram = guest.ram.as_fd().try_clone_to_owned().map_err(own)?;
    for round in 0..100u64 {
        guest.send(&[0xff; 1000])?;
        let other = MemRegion {
            guest: 1 << 40,
            user: 1 << 43,
            ..region()
        };
        refused(guest.client.add_mem_reg(&other, ram.as_fd()))?;
        guest.put(TX, 0, ((1 << 40) + BUFFER, 500, 0), 0);
        guest.offer(TX, 0);
        refused(guest.client.rem_mem_reg(&other))?;
        if round % 10 == 9 {
            // All of it, under running rings.
            refused(guest.client.rem_mem_reg(&region()))?;
            guest.kicks[TX].signal();
            drop(guest);
            guest = Guest::new(front)?;
        }
    }
    guest.settle()
}

pub(crate) fn memory_shrinks(front: &mut FrontEnd) -> Done {
    for len in [0, 0x1000, 0x4000, BUFFER] {
        let mut guest = Guest::new(front)?;
        guest.send(&[0xff; 60])?;
        guest.settle()?;
        for slot in 1..32 {
            guest.put(TX, slot, (GUEST + BUFFER, 1000, 0), 0);
            guest.offer(TX, slot);
        }
        rustix::fs::ftruncate(guest.ram.as_fd(), len).map_err(own)?;
        guest.kicks[TX].signal();
        guest.kicks[RX].signal();
        guest.settle()?;
        // Before the villain itself looks there.
        rustix::fs::ftruncate(guest.ram.as_fd(), RAM as u64).map_err(own)?;
    }
    Ok(())
}

pub(crate) fn rewritten_underway(front: &mut FrontEnd) -> Done {
    let mut guest = Guest::new(front)?;
    let memory = guest_mem::Memory::new();
    let scribble = {
        let ram = vhost_user::SharedMem::from_fd(
            guest.ram.as_fd().try_clone_to_owned().map_err(own)?,
            0,
            RAM,
        );
        ram.map_err(own)?
    };
    beside(
        &memory,
        |_, dice: &mut Dice| {
            let at = dice.below(0x8000);
            scribble.write(at, &[dice.next() as u8]);
        },
        |round| {
            for slot in 0..8 {
                guest.put(TX, slot, (GUEST + BUFFER, 500, 0), 0);
                guest.offer(TX, slot);
                guest.put(RX, slot, (GUEST + BUFFER, 2048, WRITE), 0);
                guest.offer(RX, slot);
            }
            if round % 10 == 9 {
                refused(guest.client.reset_device())?;
                for queue in [RX, TX] {
                    refused(guest.client.get_vring_base(queue as u32))?;
                    guest.begin(queue)?;
                }
            }
            guest.settle()
        },
    )
}

pub(crate) fn kicks_without_end(front: &mut FrontEnd) -> Done {
    let mut guest = Guest::new(front)?;
    for round in 0..50_000u32 {
        guest.kicks[round as usize % 2].signal();
    }
    guest.settle()
}

pub(crate) fn states_without_end(front: &mut FrontEnd) -> Done {
    // One that never ends, one that ends in the middle, one that nobody takes.
    for how in 0..3 {
        let mut client = front.client()?;
        let (mut read, mut write) = std::io::pipe().map_err(own)?;
        let direction = if how == 2 {
            Direction::Save
        } else {
            Direction::Load
        };
        let fd = if how == 2 {
            write.as_fd()
        } else {
            read.as_fd()
        };
        refused(client.set_device_state_fd(direction, fd))?;
        match how {
            0 => {
                let _ = write.write(&[0x5a; 4096]).map_err(own)?;
                refused(client.features())?;
            }
            1 => {
                let _ = write.write(&[0x5a; 100]).map_err(own)?;
                drop(write);
                refused(client.check_device_state())?;
            }
            _ => {
                refused(client.features())?;
                drop(write);
                let _ = read.read(&mut [0; 16]).map_err(own)?;
            }
        }
    }
    Ok(())
}
