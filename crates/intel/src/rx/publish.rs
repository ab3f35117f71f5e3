//! How descriptors that are done become the guest's.

use guest_mem::View;

use crate::rx::words::Says;

/// Is told before descriptors are written back, and after that.
///
/// Who wants to find out later how far a write-back came that was cut off has the first descriptor written last: a driver goes
/// through its ring in order, so that this one store gives it all of them.
pub trait Publish {
    /// How many of the descriptors with these second words are published at once: all, or a part at the front.
    #[inline(always)]
    fn cut(&self, second: &[u64]) -> usize {
        second.len()
    }
    /// `n` descriptors are about to be written back, the first of which has this number and is at this address. Whether the
    /// first of them is to be written last.
    fn begins<'s>(
        &self,
        view: &View<'_>,
        first: (u32, u64),
        n: usize,
        says: impl FnOnce() -> Says<'s>,
    ) -> bool;
    /// They are written back. The next descriptor of the device is `next`.
    fn ended(&self, next: u32);
}

/// Nobody wants to know.
impl Publish for () {
    #[inline(always)]
    fn begins<'s>(
        &self,
        _: &View<'_>,
        _: (u32, u64),
        _: usize,
        _: impl FnOnce() -> Says<'s>,
    ) -> bool {
        false
    }

    #[inline(always)]
    fn ended(&self, _: u32) {}
}
