//! Magic packets, which wake a sleeping machine.

/// Six bytes of ones and sixteen times an address.
const LEN: usize = 17 * 6;
/// Destination and source come before it.
const ADDRESSES: usize = 12;

/// Whether a frame has the pattern of `station` anywhere behind its addresses.
pub fn is_magic(frame: &[u8], station: [u8; 6]) -> bool {
    let mut pattern = [0xff; LEN];
    for copy in pattern[6..].as_chunks_mut::<6>().0 {
        *copy = station;
    }
    let body = frame.get(ADDRESSES..).unwrap_or_default();
    body.windows(LEN).any(|window| window == pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pattern_is_found_behind_the_addresses_alone() {
        let station = [2, 0, 0, 0, 0, 9];
        let mut pattern = vec![0xff; 6];
        (0..16).for_each(|_| pattern.extend(station));
        for before in [12, 13, 14, 300] {
            let mut frame = vec![7; before];
            frame.extend(&pattern);
            assert!(is_magic(&frame, station), "{before}");
            assert!(!is_magic(&frame, [2, 0, 0, 0, 0, 8]));
            // All but the last byte.
            assert!(!is_magic(&frame[..frame.len() - 1], station));
        }
        let mut frame = vec![7; 11];
        frame.extend(&pattern);
        assert!(
            !is_magic(&frame, station),
            "a byte of it is of the addresses"
        );
        assert!(!is_magic(&[], station));
    }
}
