//! A window of 32-bit registers, reached by accesses of any size and alignment.

use std::ops::Range;

use datapath::counters::{count, count_alone};
use model::{Env, Peeked};
use regs::{Found, Table};

use crate::counters::Counters;
use crate::io;

/// Splits an access to a window of `span` bytes into words: offset of the word, first byte in it,
/// range of the caller's bytes. Bytes beyond the window are left out.
pub fn each_word(
    span: u32,
    offset: u64,
    len: usize,
    mut visit: impl FnMut(u32, usize, Range<usize>),
) {
    let mut done = 0;
    while done < len {
        let Some(at) = offset.checked_add(done as u64) else {
            return;
        };
        if at >= u64::from(span) {
            return;
        }
        let first = (at % 4) as usize;
        let n = (4 - first).min(len - done);
        visit(at as u32 & !3, first, done..done + n);
        done += n;
    }
}

/// Shows each register of a table, with the value that `value` finds without effect.
pub fn peek(
    table: &Table,
    visit: &mut dyn FnMut(Peeked),
    mut value: impl FnMut(Found, u32) -> u32,
) {
    table.each(|found, offset| {
        let register = table.register(found.id);
        visit(Peeked {
            name: register.name,
            element: (register.count > 1).then_some(found.element),
            offset,
            access: register.access.short(),
            section: register.section,
            value: value(found, offset),
        });
    });
}

/// The control part of a NIC, whose registers are a window of words.
pub trait Window {
    /// Bytes of the window.
    const SPAN: u32;

    /// Reads the word at `offset` (a multiple of 4), with its side effects.
    fn read_word(&mut self, env: &Env, offset: u32) -> u32;
    /// Writes the word at `offset` (a multiple of 4).
    fn write_word(&mut self, env: &Env, offset: u32, value: u32);
    /// What the bytes of a word are that a write does not reach: registers that can be written in part
    /// keep them; for those that act on ones they are zeros.
    fn partial_base(&self, offset: u32) -> u32;

    /// Reads `data.len()` bytes.
    fn read_bytes(&mut self, env: &Env, offset: u64, data: &mut [u8]) {
        each_word(Self::SPAN, offset, data.len(), |word, first, range| {
            let bytes = self.read_word(env, word).to_le_bytes();
            let n = range.len();
            data[range].copy_from_slice(&bytes[first..first + n]);
        });
    }

    /// Writes `data`.
    fn write_bytes(&mut self, env: &Env, offset: u64, data: &[u8]) {
        each_word(Self::SPAN, offset, data.len(), |word, first, range| {
            let n = range.len();
            let mut bytes = if n == 4 {
                [0; 4]
            } else {
                self.partial_base(word).to_le_bytes()
            };
            bytes[first..first + n].copy_from_slice(&data[range]);
            self.write_word(env, word, u32::from_le_bytes(bytes));
        });
    }
}

/// One that is reached through an I/O BAR too, and whose accesses are counted.
pub trait Bars: Window {
    /// The BAR of the window.
    const MMIO: u8;

    /// The BAR of the way through I/O.
    fn io_bar(&self) -> u8;

    /// The state of that way.
    fn io(&mut self) -> &mut io::Window;

    /// Where accesses are counted; by nothing else.
    fn counted(&self) -> &Counters;

    /// Reads from the I/O BAR.
    fn io_read(&mut self, env: &Env, offset: u64, data: &mut [u8]) {
        match self.io().target(offset, data.len()) {
            Some(at) => self.read_bytes(env, at, data),
            None => self.io().read(offset, data),
        }
    }

    /// Writes to it.
    fn io_write(&mut self, env: &Env, offset: u64, data: &[u8]) {
        match self.io().target(offset, data.len()) {
            Some(at) => self.write_bytes(env, at, data),
            None => self.io().write(offset, data),
        }
    }

    /// Reads from a BAR; where there is none, zeros.
    fn read_bar(&mut self, env: &Env, bar: u8, offset: u64, data: &mut [u8]) {
        count_alone(&self.counted().reg_reads, 1);
        data.fill(0);
        match bar {
            _ if bar == Self::MMIO => self.read_bytes(env, offset, data),
            _ if bar == self.io_bar() => self.io_read(env, offset, data),
            _ => count(&self.counted().reg_bad_bar, 1),
        }
    }

    /// Writes to a BAR.
    fn write_bar(&mut self, env: &Env, bar: u8, offset: u64, data: &[u8]) {
        count_alone(&self.counted().reg_writes, 1);
        match bar {
            _ if bar == Self::MMIO => self.write_bytes(env, offset, data),
            _ if bar == self.io_bar() => self.io_write(env, offset, data),
            _ => count(&self.counted().reg_bad_bar, 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_is_cut_at_words_and_at_the_windows_end() {
        let of = |offset, len| {
            let mut words = Vec::new();
            each_word(16, offset, len, |at, first, range| {
                words.push((at, first, range));
            });
            words
        };
        assert_eq!(of(4, 4), [(4, 0, 0..4)]);
        assert_eq!(of(3, 6), [(0, 3, 0..1), (4, 0, 1..5), (8, 0, 5..6)]);
        assert_eq!(of(14, 8), [(12, 2, 0..2)]);
        assert_eq!(of(16, 1), []);
        assert_eq!(of(u64::MAX, 2), []);
    }
}
