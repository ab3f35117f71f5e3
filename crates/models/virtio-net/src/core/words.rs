//! Words of 16 bits that both sides change: seen and stored whole.

use guest_mem::{Fault, View};

/// The word at `at`, which is even, and nothing read later is older. It is taken from the eight aligned bytes around it,
/// which are one load.
pub fn load(view: &View<'_>, at: u64) -> Result<u16, Fault> {
    let mut around = [0; 8];
    view.read_acquire(at & !7, &mut around)?;
    let inside = (at & 6) as usize;
    Ok(u16::from_le_bytes([around[inside], around[inside + 1]]))
}

/// Stores the word at `at`, which is even, after everything written before.
pub fn store(view: &View<'_>, at: u64, value: u16) -> Result<(), Fault> {
    view.write_release(at, &value.to_le_bytes())
}

/// Two words from `at` on, which is a multiple of 4: one load.
pub fn pair(view: &View<'_>, at: u64) -> Result<(u16, u16), Fault> {
    let mut around = [0; 8];
    view.read_acquire(at & !7, &mut around)?;
    let inside = (at & 4) as usize;
    let [a, b, c, d] = [0, 1, 2, 3].map(|byte| around[inside + byte]);
    Ok((u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d])))
}

/// Stores two words at `at`, which is a multiple of 4, at once and after everything written before.
pub fn store_pair(view: &View<'_>, at: u64, (low, high): (u16, u16)) -> Result<(), Fault> {
    let both = u32::from(low) | u32::from(high) << 16;
    view.write_release(at, &both.to_le_bytes())
}
