//! The I/O BAR: a window of two words through which all registers are reached (manual §13.2.2).

use model::Env;

use crate::control::Registers;

const IOADDR: u64 = 0;
const IODATA: u64 = 4;
/// Bits of IOADDR that exist.
pub(crate) const ADDRESS_BITS: u32 = 0x000f_ffff;

/// The state of the window.
#[derive(Debug, Default)]
pub(crate) struct Window {
    pub(crate) address: u32,
}

/// Which register byte an access at `offset` reaches.
fn target(window: &Window, offset: u64, len: usize) -> Option<u64> {
    let inside = offset.checked_sub(IODATA)?;
    let end = inside.checked_add(len as u64)?;
    (end <= 4).then(|| u64::from(window.address & !3) + inside)
}

impl Registers {
    pub(crate) fn io_read(&mut self, env: &Env, offset: u64, data: &mut [u8]) {
        if let Some(at) = target(&self.io, offset, data.len()) {
            self.read_bytes(env, at, data);
        } else if offset < IODATA {
            let bytes = self.io.address.to_le_bytes();
            let from = &bytes[offset as usize..];
            let n = from.len().min(data.len());
            data[..n].copy_from_slice(&from[..n]);
        }
    }

    /// IOADDR takes whole words only; shorter writes are ignored.
    pub(crate) fn io_write(&mut self, env: &Env, offset: u64, data: &[u8]) {
        if let Some(at) = target(&self.io, offset, data.len()) {
            self.write_bytes(env, at, data);
        } else if offset == IOADDR
            && let Ok(bytes) = <[u8; 4]>::try_from(data)
        {
            self.io.address = u32::from_le_bytes(bytes) & ADDRESS_BITS;
        }
    }
}
