//! How descriptors that are done become the guest's.

use guest_mem::View;

/// Is told before descriptors are written back, and after that.
///
/// Who wants to find out later how far a write-back came that was cut off has the first descriptor written last: a driver goes
/// through its ring in order, so that this one store gives it all of them.
pub trait Publish {
    /// `n` descriptors are about to be written back, the first of which has this number and is at this address. Whether the
    /// first of them is to be written last.
    fn begins(&self, view: &View<'_>, first: (u32, u64), n: usize) -> bool;
    /// They are written back. The next descriptor of the device is `next`.
    fn ended(&self, next: u32);
}

/// Nobody wants to know.
impl Publish for () {
    #[inline(always)]
    fn begins(&self, _: &View<'_>, _: (u32, u64), _: usize) -> bool {
        false
    }

    #[inline(always)]
    fn ended(&self, _: u32) {}
}
