//! Bytes as text.

use std::fmt::Write as _;

/// Two digits for each.
pub(crate) fn of(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// `None`: it is not that.
pub(crate) fn bytes(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = |[high, low]: &[u8; 2]| Some((digit(*high)? << 4 | digit(*low)?) as u8);
    rest.is_empty()
        .then(|| pairs.iter().map(byte).collect())
        .flatten()
}

#[cfg(test)]
mod tests {
    #[test]
    fn text_and_bytes() {
        assert_eq!(super::of(&[0, 0x7f, 0xff]), "007fff");
        assert_eq!(super::bytes("007fFF"), Some(vec![0, 0x7f, 0xff]));
        for bad in ["0", "0g", "+1", "00 1"] {
            assert_eq!(super::bytes(bad), None);
        }
    }
}
