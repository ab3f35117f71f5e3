//! Whoever moves a running guest is told what the device writes to its memory.

use std::sync::Arc;

/// Told of writes, after each and before the ring they belong to may end.
pub trait WriteLog: Send + Sync + std::fmt::Debug {
    /// A part of a buffer may have been written.
    fn wrote(&self, at: u64, len: u64);
    /// What the device shares with the driver of this queue may have been written: the used ring of a split ring, the
    /// descriptors and the device's event suppression of a packed one.
    fn used(&self, queue: usize);
}

/// Who is told, if anyone is, and what of.
#[derive(Debug, Default)]
pub struct Writes {
    /// Who is told.
    pub log: Option<Arc<dyn WriteLog>>,
    /// Parts of the buffers of one frame.
    parts: Vec<(u64, u32)>,
}

impl Writes {
    /// A frame begins.
    #[inline]
    pub fn begin(&mut self) {
        self.parts.clear();
    }

    /// So much of it goes here.
    #[inline]
    pub fn part(&mut self, at: u64, len: usize) {
        if self.log.is_some() {
            self.parts.push((at, len as u32));
        }
    }

    /// It is written.
    #[inline]
    pub fn end(&self) {
        if let Some(log) = &self.log {
            for &(at, len) in &self.parts {
                log.wrote(at, len.into());
            }
        }
    }

    /// Rings of these queues were written.
    #[inline]
    pub fn used(&self, queues: impl Iterator<Item = usize>) {
        if let Some(log) = &self.log {
            queues.for_each(|queue| log.used(queue));
        }
    }
}
