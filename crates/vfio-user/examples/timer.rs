//! A complete device: a scratch register and a down-counter that writes the number of its expiries
//! into guest memory and interrupts, driven by our own client.
//!
//! `cargo run -p hypernic-vfio-user --example timer` runs both ends; with a socket path as argument
//! it serves a VMM there.
#![forbid(unsafe_code)]

use std::error::Error;
use std::time::Duration;

use hypernic_vfio_user::codec::irq;
use hypernic_vfio_user::guest_mem::Prot;
use hypernic_vfio_user::pci::Bar;
use hypernic_vfio_user::{
    Client, ClientEvent, Device, DeviceDescription, Dma, EventFd, Interrupts, Listener, ResetCause,
    Server, SharedMem, Work,
};

/// Scratch register.
const SCRATCH: u64 = 0x00;
/// Ticks to count; writing starts the counter.
const COUNT: u64 = 0x04;
/// Guest address that the number of expiries goes to, 64 bits.
const TARGET: u64 = 0x08;
/// Interrupt cause; reading clears it.
const CAUSE: u64 = 0x10;

struct Timer {
    irq: Interrupts,
    dma: Dma,
    scratch: u32,
    count: u32,
    target: u64,
    cause: u32,
    expiries: u32,
}

impl Timer {
    fn new(server: &Server) -> Self {
        Self {
            irq: server.interrupts(),
            dma: server.dma().expect("a descriptor"),
            scratch: 0,
            count: 0,
            target: 0,
            cause: 0,
            expiries: 0,
        }
    }
}

impl Device for Timer {
    fn bar_read(&mut self, _bar: u8, offset: u64, data: &mut [u8]) {
        let value = match offset {
            SCRATCH => self.scratch,
            COUNT => self.count,
            CAUSE => {
                self.irq.set_line(false);
                std::mem::take(&mut self.cause)
            }
            _ => 0,
        };
        let bytes = u64::from(value).to_le_bytes();
        data.copy_from_slice(&bytes[..data.len()]);
    }

    fn bar_write(&mut self, _bar: u8, offset: u64, data: &[u8]) {
        let mut bytes = [0; 8];
        bytes[..data.len()].copy_from_slice(data);
        let value = u64::from_le_bytes(bytes);
        match offset {
            SCRATCH => self.scratch = value as u32,
            // Only noted: counting and guest memory are for `work`, after the reply.
            COUNT => self.count = value as u32,
            TARGET => self.target = value,
            _ => {}
        }
    }

    fn reset(&mut self, _why: ResetCause) {
        self.scratch = 0;
        self.count = 0;
        self.target = 0;
        self.cause = 0;
        self.expiries = 0;
    }

    fn client(&mut self, event: ClientEvent) {
        println!("client: {event:?}");
    }

    fn work(&mut self) -> Work {
        if self.count == 0 {
            return Work::Idle;
        }
        self.count -= 1;
        if self.count > 0 {
            return Work::More;
        }
        self.expiries += 1;
        // A guest that named memory it has not got gets no number: hardware would abort, too.
        let written = self
            .dma
            .memory()
            .view()
            .write(self.target, &self.expiries.to_le_bytes());
        self.cause = if written.is_ok() { 1 } else { 2 };
        self.irq.set_line(true);
        Work::Idle
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let description = DeviceDescription::new(0x1234, 0x11e8)
        .class(0x08_80_00)
        .bar(0, Bar::memory32(4096))
        .intx(1);

    if let Some(path) = std::env::args().nth(1) {
        let mut server = Server::new(description, Listener::bind(&path)?)?;
        let mut device = Timer::new(&server);
        println!(
            "-device '{{\"driver\":\"vfio-user-pci\",\"socket\":{{\"type\":\"unix\",\"path\":\"{path}\"}}}}'"
        );
        return Ok(server.run(&mut device, &EventFd::new()?)?);
    }

    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    let mut server = Server::new(description, Listener::from_connected(theirs.into()))?;
    let mut device = Timer::new(&server);
    let stop = EventFd::new()?;
    std::thread::scope(|scope| {
        let served = scope.spawn(|| server.run(&mut device, &stop));
        drive(Client::open(ours.into(), Default::default())?)?;
        // The client is gone, and it was the only one this server could have.
        served.join().map_err(|_| "the server panicked")??;
        Ok(())
    })
}

/// The guest's side.
fn drive(mut guest: Client) -> Result<(), Box<dyn Error>> {
    guest.negotiate()?;
    let ram = SharedMem::new("ram", 1 << 20)?;
    guest.dma_map(0, &ram, 0, 1 << 20, Prot::RW)?;
    let interrupt = EventFd::new()?;
    guest.arm(irq::INTX, 0, &[&interrupt])?;

    guest.write_u32(0, SCRATCH, 0xcafe)?;
    assert_eq!(guest.read_u32(0, SCRATCH)?, 0xcafe);

    for round in 1..=3 {
        guest.region_write(0, TARGET, &0x1000u64.to_le_bytes())?;
        guest.post_u32(0, COUNT, 100)?;
        interrupt
            .wait(Duration::from_secs(5))
            .ok_or("no interrupt")?;
        assert_eq!(guest.read_u32(0, CAUSE)?, 1);
        guest.unmask(irq::INTX, 0)?;
        let mut expiries = [0; 4];
        ram.read(0x1000, &mut expiries);
        assert_eq!(u32::from_le_bytes(expiries), round);
        println!("expired {round} times");
    }
    Ok(())
}
