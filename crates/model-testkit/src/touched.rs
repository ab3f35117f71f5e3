//! Cache lines that a piece of work touches, counted in tests of a layout.

use std::collections::BTreeSet;
use std::mem::size_of_val;

use guest_mem::LINE;

/// Lines by their number in memory.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Touched(BTreeSet<usize>);

impl Touched {
    /// No lines.
    pub fn new() -> Touched {
        Touched::default()
    }

    /// Those of a value.
    pub fn of<T: ?Sized>(&mut self, value: &T) -> &mut Self {
        self.part(value, 0, size_of_val(value))
    }

    /// That of its first byte.
    pub fn first<T: ?Sized>(&mut self, value: &T) -> &mut Self {
        self.part(value, 0, 1)
    }

    /// Those of some of its bytes.
    pub fn part<T: ?Sized>(&mut self, value: &T, from: usize, len: usize) -> &mut Self {
        let at = std::ptr::from_ref(value).cast::<u8>().addr() + from;
        self.0.extend(at / LINE..(at + len).div_ceil(LINE));
        self
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Which they are.
    pub fn numbers(&self) -> &BTreeSet<usize> {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(64))]
    struct Two([u8; 128]);

    #[test]
    fn a_line_counts_once() {
        let two = Two([0; 128]);
        let mut touched = Touched::new();
        touched.first(&two).of(&two.0[..64]);
        assert_eq!(touched.count(), 1);
        touched.part(&two, 63, 1).of(&two.0[63..65]);
        assert_eq!(touched.count(), 2);
        assert_eq!(touched.numbers().len(), 2);
    }
}
