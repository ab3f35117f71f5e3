//! The I/O BAR: a window of two words through which all registers are reached (IOADDR, IODATA).

const IOADDR: u64 = 0;
const IODATA: u64 = 4;
/// Bits of IOADDR that exist.
pub const ADDRESS_BITS: u32 = 0x000f_ffff;

/// The state of the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// IOADDR: the register that IODATA is.
    pub address: u32,
}

impl Window {
    /// Which byte of the registers an access at `offset` reaches. `None`: none.
    pub fn target(&self, offset: u64, len: usize) -> Option<u64> {
        let inside = offset.checked_sub(IODATA)?;
        let end = inside.checked_add(len as u64)?;
        (end <= 4).then(|| u64::from(self.address & !3) + inside)
    }

    /// Reads what is not reached through it: IOADDR itself, as far as the access covers it.
    pub fn read(&self, offset: u64, data: &mut [u8]) {
        if offset < IODATA {
            let bytes = self.address.to_le_bytes();
            let from = &bytes[offset as usize..];
            let n = from.len().min(data.len());
            data[..n].copy_from_slice(&from[..n]);
        }
    }

    /// Writes IOADDR, which takes whole words only; shorter writes are ignored.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        if offset == IOADDR
            && let Ok(bytes) = <[u8; 4]>::try_from(data)
        {
            self.address = u32::from_le_bytes(bytes) & ADDRESS_BITS;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_takes_whole_words_and_the_data_stays_inside_of_one() {
        let mut window = Window::default();
        window.write(0, &[1, 2]);
        window.write(1, &[1, 2, 3, 4]);
        window.write(8, &[1, 2, 3, 4]);
        assert_eq!(window, Window::default());
        window.write(0, &[0x0b, 0x15, 0xf0, 0xff]);
        assert_eq!(window.address, 0x0_150b);
        let mut bytes = [0; 8];
        window.read(1, &mut bytes);
        assert_eq!(bytes, [0x15, 0, 0, 0, 0, 0, 0, 0]);
        let reached = |offset, len| window.target(offset, len);
        assert_eq!(reached(4, 4), Some(0x1508), "words begin at multiples of 4");
        assert_eq!(reached(6, 2), Some(0x150a));
        for (offset, len) in [(0, 4), (3, 2), (6, 4), (8, 1), (u64::MAX, 4), (4, 8)] {
            assert_eq!(reached(offset, len), None, "{offset} {len}");
        }
    }
}
