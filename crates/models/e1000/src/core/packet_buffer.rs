//! The packet buffer: 64 KiB that hold frames between wire and rings, and that a guest can read and
//! write as memory (manual §13.8.11, PBM).
//!
//! What stands here may have been written by the guest: nothing is believed of it but that it is
//! bytes. Where frames lie and how long they are is kept elsewhere.

use parking_lot::{Mutex, MutexGuard};

/// Bytes of the buffer; PBA divides them between receiving and sending.
pub(crate) const SIZE: usize = 64 * 1024;

/// The memory. Its lock is a leaf: nothing but copying is done under it.
#[derive(Default)]
pub(crate) struct PacketBuffer {
    /// Empty until something is put there: most NICs never let a frame wait, and of many NICs they
    /// would be most of the memory.
    pub(crate) bytes: Mutex<Box<[u8]>>,
}

impl PacketBuffer {
    /// All [`SIZE`] bytes.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Box<[u8]>> {
        let mut bytes = self.bytes.lock();
        if bytes.is_empty() {
            *bytes = vec![0; SIZE].into_boxed_slice();
        }
        bytes
    }

    /// The word at `index`; 0 beyond the end.
    pub(crate) fn word(&self, index: u32) -> u32 {
        let bytes = self.bytes.lock();
        bytes
            .as_chunks::<4>()
            .0
            .get(index as usize)
            .map_or(0, |word| u32::from_le_bytes(*word))
    }

    /// Writes the word at `index`; nothing beyond the end.
    pub(crate) fn set_word(&self, index: u32, value: u32) {
        let mut bytes = self.lock();
        if let Some(word) = bytes.as_chunks_mut::<4>().0.get_mut(index as usize) {
            *word = value.to_le_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_bytes_are_the_same_memory() {
        let buffer = PacketBuffer::default();
        buffer.set_word(1, 0x4433_2211);
        assert_eq!(buffer.lock()[4..8], [0x11, 0x22, 0x33, 0x44]);
        buffer.lock()[SIZE - 1] = 0x80;
        assert_eq!(buffer.word(SIZE as u32 / 4 - 1), 0x8000_0000);
    }

    #[test]
    fn beyond_the_end_there_is_nothing() {
        let buffer = PacketBuffer::default();
        buffer.set_word(SIZE as u32 / 4, 1);
        assert_eq!(buffer.word(SIZE as u32 / 4), 0);
        assert_eq!(buffer.word(7), 0);
        assert!(buffer.lock().iter().all(|byte| *byte == 0));
    }
}
