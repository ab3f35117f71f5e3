//! Words that guest and host share for good: read and written whole, each by itself.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// A run of aligned 32-bit words of guest memory, little-endian, for as long as the view it came
/// from. The guest may change any of them at any time: load once what you decide upon.
#[derive(Clone, Copy)]
pub struct Words<'v> {
    base: NonNull<u8>,
    bytes: u32,
    #[cfg(feature = "meter")]
    iova: u64,
    #[cfg(feature = "meter")]
    meter: &'v crate::meter::Meter,
    life: PhantomData<&'v ()>,
}

impl<'v> Words<'v> {
    /// # Safety
    /// `base..base + bytes` must stay mapped, readable and writable for `'v`, and both must be multiples
    /// of 4. Others may write there meanwhile.
    pub(crate) unsafe fn new(
        base: NonNull<u8>,
        bytes: u32,
        #[cfg(feature = "meter")] (iova, meter): (u64, &'v crate::meter::Meter),
    ) -> Self {
        Words {
            base,
            bytes,
            #[cfg(feature = "meter")]
            iova,
            #[cfg(feature = "meter")]
            meter,
            life: PhantomData,
        }
    }

    #[inline]
    fn word(&self, offset: u32, _write: bool) -> &AtomicU32 {
        assert!(
            offset.is_multiple_of(4) && offset < self.bytes,
            "no word of the run is at {offset:#x}"
        );
        #[cfg(feature = "meter")]
        self.meter.note(self.iova + u64::from(offset), 4, _write);
        // SAFETY: `new` promises that the run is mapped and aligned; the offset was checked to be that
        // of a whole word in it (the length is a multiple of 4). What others write there is outside of
        // this program, or goes through the same kind of access.
        unsafe { AtomicU32::from_ptr(self.base.add(offset as usize).cast().as_ptr()) }
    }

    /// Reads the word at byte `offset`.
    ///
    /// # Panics
    /// `offset` is not that of a word of the run.
    #[inline]
    pub fn load(&self, offset: u32, order: Ordering) -> u32 {
        u32::from_le(self.word(offset, false).load(order))
    }

    /// Writes the word at byte `offset`.
    ///
    /// # Panics
    /// As [`Words::load`].
    #[inline]
    pub fn store(&self, offset: u32, value: u32, order: Ordering) {
        self.word(offset, true).store(value.to_le(), order);
    }

    /// Sets bits of the word at byte `offset`, and loses none that others set meanwhile.
    ///
    /// # Panics
    /// As [`Words::load`].
    #[inline]
    pub fn set_bits(&self, offset: u32, bits: u32, order: Ordering) {
        self.word(offset, true).fetch_or(bits.to_le(), order);
    }
}
