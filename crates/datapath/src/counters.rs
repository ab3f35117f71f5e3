//! Counters by name, for people.

use std::sync::atomic::{AtomicU64, Ordering};

/// Makes the struct `Counters` with these fields, in this order in memory, and its `visit`. With `all of TYPE;` before them it has those
/// of another such struct too, under their own names.
#[macro_export]
macro_rules! counters {
    (all of $common:ty; $($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters by name, for people; the guest's statistics registers are apart from them.
        #[derive(Debug, Default)]
        #[repr(C)]
        pub(crate) struct Counters {
            common: $common,
            $($(#[$doc])* pub $name: ::std::sync::atomic::AtomicU64,)*
        }

        impl Counters {
            pub(crate) fn visit(&self, visit: &mut dyn FnMut(&'static str, u64)) {
                self.common.visit(visit);
                $(visit(stringify!($name), self.$name.load(::std::sync::atomic::Ordering::Relaxed));)*
            }
        }

        impl ::std::ops::Deref for Counters {
            type Target = $common;

            #[inline]
            fn deref(&self) -> &$common {
                &self.common
            }
        }
    };
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters by name, for people; the guest's statistics registers are apart from them.
        #[derive(Debug, Default)]
        #[repr(C)]
        pub struct Counters {
            $($(#[$doc])* pub $name: ::std::sync::atomic::AtomicU64,)*
        }

        impl Counters {
            /// Calls `visit` with each name and what it has counted.
            pub fn visit(&self, visit: &mut dyn FnMut(&'static str, u64)) {
                $(visit(stringify!($name), self.$name.load(::std::sync::atomic::Ordering::Relaxed));)*
            }
        }
    };
}

/// Adds `n`; other threads may count at the same time.
#[inline]
pub fn count(counter: &AtomicU64, n: u64) {
    if n > 0 {
        counter.fetch_add(n, Ordering::Relaxed);
    }
}

/// As [`count`], where one lock (or one owner) keeps all who count apart: no locked instruction is
/// needed.
#[inline]
pub fn count_alone(counter: &AtomicU64, n: u64) {
    let sum = counter.load(Ordering::Relaxed).wrapping_add(n);
    counter.store(sum, Ordering::Relaxed);
}
