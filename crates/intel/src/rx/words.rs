//! What done receive descriptors say.

/// What a done descriptor of a run says, where all say the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Words {
    /// The address stays; this is the second word.
    Second(u64),
    /// Both words.
    Both([u64; 2]),
}

/// What descriptors say that are written back together.
#[derive(Clone, Copy, Debug)]
pub enum Says<'s> {
    /// All the same.
    Same(Words),
    /// All the same, but for the second word of the last.
    ButLast(Words, Words),
    /// Each its own second word.
    Each(Firsts<'s>, &'s [u64]),
}

/// Their first words.
#[derive(Clone, Copy, Debug)]
pub enum Firsts<'s> {
    /// They stay as they are.
    Stay,
    /// All the same.
    Same(u64),
    /// Each its own.
    Each(&'s [u64]),
}
