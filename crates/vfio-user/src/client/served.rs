//! Memory that the server reaches only by asking.

use rustix::io::Errno;

use crate::codec::{Command, DmaAccess, Header};
use crate::stream::Sender;
use peer::SharedMem;

struct Region {
    iova: u64,
    len: u64,
    memory: SharedMem,
    offset: usize,
}

#[derive(Default)]
pub(super) struct Served {
    regions: Vec<Region>,
}

impl Served {
    pub fn add(&mut self, iova: u64, memory: SharedMem, offset: usize, len: u64) {
        self.regions.push(Region {
            iova,
            len,
            memory,
            offset,
        });
    }

    pub fn remove(&mut self, iova: u64, len: u64) {
        self.regions.retain(|r| r.iova != iova || r.len != len);
    }

    pub fn clear(&mut self) {
        self.regions.clear();
    }

    fn find(&self, iova: u64, len: u64) -> Option<(&SharedMem, usize)> {
        let region = self.regions.iter().find(|r| {
            iova >= r.iova
                && iova
                    .checked_add(len)
                    .is_some_and(|end| end <= r.iova + r.len)
        })?;
        Some((
            &region.memory,
            region.offset + (iova - region.iova) as usize,
        ))
    }

    /// Answers a command of the server's.
    pub fn answer(&self, header: &Header, payload: &[u8], tx: &mut Sender) {
        let refuse = |tx: &mut Sender, errno: Errno| {
            tx.push(&header.error_reply(errno.raw_os_error() as u32), &[]);
        };
        let Ok(access) = DmaAccess::parse(payload) else {
            return refuse(tx, Errno::INVAL);
        };
        let data = &payload[DmaAccess::LEN..];
        let Some((memory, offset)) = self.find(access.iova, access.count) else {
            return refuse(tx, Errno::FAULT);
        };
        let len = access.count as usize;
        let fixed = access.to_bytes();
        match Command::from_u16(header.command) {
            Some(Command::DmaRead) if data.is_empty() => {
                let reply = header.reply(fixed.len() + len);
                memory.read(offset, tx.push_data(&reply, &fixed, len));
            }
            Some(Command::DmaWrite) if data.len() == len => {
                memory.write(offset, data);
                tx.push(&header.reply(fixed.len()), &fixed);
            }
            _ => refuse(tx, Errno::INVAL),
        }
    }
}
