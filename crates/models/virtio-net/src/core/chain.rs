//! A chain of descriptors, copied once.

/// A part of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it is.
    pub at: u64,
    /// Its bytes.
    pub len: u32,
}

/// A buffer of one part.
#[derive(Clone, Copy, Debug, Default)]
pub struct One {
    /// By what it is given back.
    pub id: u16,
    /// Where it is.
    pub at: u64,
    /// Its bytes.
    pub len: u32,
}

/// A part to read stands behind one to write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutOfOrder;

/// A buffer as the driver gave it: parts for the device to read, then parts to write. Its storage is used again.
#[derive(Debug, Default)]
pub struct Chain {
    /// By what it is given back.
    pub id: u16,
    /// Its parts.
    pub parts: Vec<Part>,
    /// How many of them are to be read; the others are to be written.
    pub to_read: usize,
}

impl Chain {
    /// Parts to read.
    pub fn readable(&self) -> &[Part] {
        &self.parts[..self.to_read]
    }

    /// Parts to write.
    pub fn writable(&self) -> &[Part] {
        &self.parts[self.to_read..]
    }

    /// Adds a part. Those to read come first.
    pub(crate) fn add(&mut self, part: Part, write: bool) -> Result<(), OutOfOrder> {
        if !write && self.parts.len() > self.to_read {
            return Err(OutOfOrder);
        }
        self.parts.push(part);
        self.to_read += usize::from(!write);
        Ok(())
    }

    /// Begins another.
    pub(crate) fn clear(&mut self, id: u16) {
        self.id = id;
        self.parts.clear();
        self.to_read = 0;
    }
}

/// Bytes of these parts.
pub fn len(parts: &[Part]) -> u64 {
    // No more parts than two rings have entries, so this does not wrap.
    parts.iter().map(|part| u64::from(part.len)).sum()
}
