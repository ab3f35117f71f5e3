//! A VM's side of a NIC, of either kind: poll-mode rings, and interrupts as the stock driver takes them.

use drivers::e1000::poll::TxFrame;
use drivers::e1000::regs;
use drivers::igbvf::{Masking, Poll, VfError};
use drivers::{Bus, Costs, SocketBus};
use vfio_user::EventFd;
use vfio_user::codec::irq;

use super::ours::Ours;
use crate::error::{Error, Result};
use crate::fabric::{Guest, driver};

/// Which NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VmNic {
    /// A virtual function of an 82576.
    Vf,
    /// An 82540EM.
    E1000,
    /// A virtio-net over vfio-user.
    Virtio,
    /// A virtio-net over vhost-user.
    Vhost,
}

impl VmNic {
    /// In tables and raw data.
    pub fn words(self) -> &'static str {
        match self {
            Self::Vf => "VF",
            Self::E1000 => "e1000",
            Self::Virtio => "virtio-net over vfio-user",
            Self::Vhost => "virtio-net over vhost-user",
        }
    }
}

enum Nic {
    Vf(Box<Poll<SocketBus>>),
    E1000(Box<Guest>),
    Ours(Box<Ours>),
}

/// A VM.
pub struct Machine {
    nic: Nic,
    event: EventFd,
    armed: bool,
    /// Its address.
    pub mac: [u8; 6],
    /// Interrupts it took.
    pub interrupts: u64,
    /// Frames it took since it was last asked how many.
    pub fresh: u32,
}

/// What the VF's driver said, in this program's words.
pub fn gone(error: VfError) -> Error {
    Error::Tool {
        tool: "the VF's driver",
        what: error.to_string(),
    }
}

fn no_event(error: std::io::Error) -> Error {
    Error::io("make an eventfd")(error)
}

/// What ends a handler of the e1000: received, overrun.
const CAUSES: u32 = regs::cause::RXT0 | regs::cause::RXDMT0 | regs::cause::RXO;

impl Machine {
    /// With a VF that is up.
    ///
    /// # Errors
    /// When this process has no descriptor left.
    pub fn vf(mut poll: Poll<SocketBus>) -> Result<Self> {
        let mac = poll.vf().mac();
        Self::new(Nic::Vf(Box::new(poll)), mac)
    }

    /// With an e1000 that is up.
    ///
    /// # Errors
    /// When this process has no descriptor left.
    pub fn e1000(guest: Guest) -> Result<Self> {
        let mac = guest.mac();
        Self::new(Nic::E1000(Box::new(guest)), mac)
    }

    /// With a virtio-net that is up.
    ///
    /// # Errors
    /// When this process has no descriptor left.
    pub fn ours(ours: Ours, mac: [u8; 6]) -> Result<Self> {
        Self::new(Nic::Ours(Box::new(ours)), mac)
    }

    fn new(nic: Nic, mac: [u8; 6]) -> Result<Self> {
        Ok(Self {
            nic,
            event: EventFd::new().map_err(no_event)?,
            armed: false,
            mac,
            interrupts: 0,
            fresh: 0,
        })
    }

    /// What interrupts it.
    pub fn event(&self) -> &EventFd {
        &self.event
    }

    /// What its side has cost so far.
    pub fn costs(&mut self) -> Costs {
        match &mut self.nic {
            Nic::Vf(poll) => poll.costs(),
            Nic::E1000(guest) => guest.costs(),
            Nic::Ours(ours) => ours.costs(),
        }
    }

    /// Puts a frame into all its transmit buffers.
    pub fn prepare(&mut self, frame: &[u8]) {
        match &mut self.nic {
            Nic::Vf(poll) => poll.prepare(frame),
            Nic::E1000(guest) => guest.prepare(|_, buffer| buffer.write(0, frame)),
            Nic::Ours(ours) => ours.prepare(frame),
        }
    }

    /// Sends `most` of them, of `len` bytes, frame n to `to(n)`, with one doorbell. Returns how many
    /// there was room for.
    ///
    /// # Errors
    /// When the device is gone.
    #[inline]
    pub fn send(&mut self, most: u32, len: u32, to: impl Fn(u32) -> [u8; 6]) -> Result<u32> {
        match &mut self.nic {
            Nic::Vf(poll) => poll.send(most, len, to).map_err(gone),
            Nic::E1000(guest) => guest
                .send(most, |n, buffer| {
                    buffer.put(0, to(n));
                    TxFrame::plain(len)
                })
                .map_err(driver),
            Nic::Ours(ours) => ours.send(most, len, to),
        }
    }

    /// Takes what has come.
    ///
    /// # Errors
    /// When the device is gone.
    #[inline]
    pub fn receive(&mut self, most: u32) -> Result<u32> {
        match &mut self.nic {
            Nic::Vf(poll) => poll.receive(most).map_err(gone),
            Nic::E1000(guest) => guest.receive(most, |_| {}).map_err(driver),
            Nic::Ours(ours) => ours.receive(most),
        }
    }

    /// Has received frames interrupt, at most every `gap` microseconds where the driver says so: an
    /// e1000 and a virtio-net here are told by their daemon.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn interrupt(&mut self, masking: Masking, gap: u32) -> Result<()> {
        let first = !std::mem::replace(&mut self.armed, true);
        self.event.take();
        match &mut self.nic {
            Nic::Vf(poll) => poll.interrupt(&self.event, masking, gap).map_err(gone),
            Nic::E1000(guest) => {
                if first {
                    let bus = guest.driver().bus_mut();
                    let armed = bus.client().arm(irq::INTX, 0, &[&self.event]);
                    armed.map_err(|e| driver(drivers::BusError::from(e).into()))?;
                }
                guest.driver().write(regs::IMS, CAUSES).map_err(driver)
            }
            Nic::Ours(ours) => ours.interrupt(&self.event),
        }
    }

    /// Changes the gap.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn set_gap(&mut self, gap: u32) -> Result<()> {
        match &mut self.nic {
            Nic::Vf(poll) => poll.set_gap(gap).map_err(gone),
            Nic::E1000(_) | Nic::Ours(_) => Ok(()),
        }
    }

    /// Handles an interrupt, if there is one: what keeps another away, what has come, and the end.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn handle(&mut self, most: u32) -> Result<u32> {
        if self.event.take() == 0 {
            return Ok(0);
        }
        self.interrupts += 1;
        let came = match &mut self.nic {
            Nic::Vf(poll) => {
                poll.mask().map_err(gone)?;
                let came = poll.receive(most).map_err(gone)?;
                poll.unmask().map_err(gone)?;
                came
            }
            Nic::E1000(guest) => {
                let device = guest.driver();
                device.read(regs::ICR).map_err(driver)?;
                device.write(regs::IMC, u32::MAX).map_err(driver)?;
                let bus = device.bus_mut();
                bus.unmask_irq().map_err(|e| driver(e.into()))?;
                let came = guest.receive(most, |_| {}).map_err(driver)?;
                guest.driver().write(regs::IMS, CAUSES).map_err(driver)?;
                came
            }
            Nic::Ours(ours) => ours.handle(most)?,
        };
        self.fresh += came;
        Ok(came)
    }

    /// Has nothing interrupt any more.
    ///
    /// # Errors
    /// When the device is gone.
    pub fn quiet(&mut self) -> Result<()> {
        match &mut self.nic {
            Nic::Vf(poll) => poll.quiet().map_err(gone)?,
            Nic::E1000(guest) => {
                guest.driver().write(regs::IMC, u32::MAX).map_err(driver)?;
                guest.driver().read(regs::ICR).map_err(driver)?;
                let bus = guest.driver().bus_mut();
                bus.unmask_irq().map_err(|e| driver(e.into()))?;
            }
            Nic::Ours(ours) => ours.quiet(),
        }
        self.event.take();
        Ok(())
    }
}
