//! A row of the table.

/// What a counter is a number of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Frames that were lost.
    Drop,
    /// Something that a guest, a VMM or a peer asked for and did not get.
    Refusal,
    /// Something broke.
    Fault,
    /// Times that something waited; nothing was lost.
    Delay,
    /// Things that went well.
    Count,
    /// How much there is now; it goes up and down.
    Gauge,
}

impl Class {
    /// As users read it.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Drop => "drop",
            Class::Refusal => "refusal",
            Class::Fault => "fault",
            Class::Delay => "delay",
            Class::Count => "count",
            Class::Gauge => "gauge",
        }
    }

    /// Whether an operator may want to do something about it.
    pub const fn needs_cure(self) -> bool {
        !matches!(self, Class::Count | Class::Gauge)
    }
}

/// A counter, explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    /// Whose counter it is: the kind of a [`Section`](crate::report::Section).
    pub kind: &'static str,
    /// Its name.
    pub name: &'static str,
    /// What it is a number of.
    pub class: Class,
    /// What it says, without a full stop.
    pub meaning: &'static str,
    /// The section of a manual, or the rule, that has it so. Empty where nothing is lost or refused, as are the next.
    pub rule: &'static str,
    /// Why it usually rises.
    pub cause: &'static str,
    /// What to do.
    pub cure: &'static str,
}

impl Reason {
    /// As it goes over the control socket; nobody has counted it yet.
    pub fn told(&self) -> control::Reason {
        control::Reason {
            kind: self.kind.into(),
            name: self.name.into(),
            class: self.class.name().into(),
            meaning: self.meaning.into(),
            rule: self.rule.into(),
            cause: self.cause.into(),
            cure: self.cure.into(),
            counted: Vec::new(),
        }
    }
}

/// A part of the table: `Class name "meaning"`, and for what needs a cure `"rule" "cause" "cure"`.
macro_rules! reasons {
    ($table:ident, $kind:literal: $($class:ident $name:ident $meaning:literal $($rule:literal $cause:literal $cure:literal)?,)*) => {
        pub(super) const $table: &[$crate::explain::reason::Reason] = &[$(
            $crate::explain::reason::Reason {
                kind: $kind,
                name: stringify!($name),
                class: $crate::explain::reason::Class::$class,
                meaning: $meaning,
                rule: concat!($($rule)?),
                cause: concat!($($cause)?),
                cure: concat!($($cure)?),
            },
        )*];
    };
}
pub(super) use reasons;
