//! What real clients need of a server, one test per fact. The numbers group them:
//! 6.1 own library, 6.2 asynchronous device, 6.3 interrupts, 6.4 regions, 6.5 robustness,
//! 6.6 life cycle.

mod asynchronous;
mod interrupts;
mod life_cycle;
mod regions;
mod robustness;

use crate::common::WAIT;
use hypernic_vfio_user::codec::{Command, Header, RegionAccess};
use hypernic_vfio_user::{Device, ResetCause, Work};

fn raw(command: Command, flags: u32, payload: &[u8]) -> Vec<u8> {
    let header = Header {
        flags,
        ..Header::command(7, command, payload.len())
    };
    [&header.to_bytes()[..], payload].concat()
}

fn access(region: u32, offset: u64, count: u32) -> [u8; 16] {
    RegionAccess {
        offset,
        region,
        count,
    }
    .to_bytes()
}

/// Its work waits until the client has had the answer to its read.
struct Patient {
    kicked: bool,
    answered: std::sync::mpsc::Receiver<()>,
    in_time: bool,
}

impl Device for Patient {
    fn bar_read(&mut self, _: u8, _: u64, data: &mut [u8]) {
        self.kicked = true;
        data.fill(1);
    }
    fn bar_write(&mut self, _: u8, _: u64, _: &[u8]) {}
    fn reset(&mut self, _: ResetCause) {}
    fn work(&mut self) -> Work {
        if std::mem::take(&mut self.kicked) {
            self.in_time = self.answered.recv_timeout(WAIT).is_ok();
        }
        Work::Idle
    }
}
