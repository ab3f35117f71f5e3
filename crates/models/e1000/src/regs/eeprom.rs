//! The size of the EEPROM (manual §5.6).

/// Its 16-bit words.
pub(crate) const WORDS: usize = 64;

/// Bytes of an EEPROM image.
pub const NVM_LEN: usize = 2 * WORDS;
