//! What holds for all values of a function's arguments: [`proofs!`] makes a proof for Kani of it (`make kani`), and a test
//! with values from the edges of their types for all who have no Kani.

#![forbid(unsafe_code)]

use std::fmt::Debug;

use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::strategy::BoxedStrategy;

pub use proptest;

/// Times that a test draws its values.
pub const CASES: u32 = if cfg!(miri) { 16 } else { 4096 };

/// Values of which many lie where arithmetic breaks: small, near the greatest, and beside a power of two.
pub trait Edges: Sized + Debug {
    /// A strategy for them.
    fn edges() -> BoxedStrategy<Self>;
}

macro_rules! edges {
    ($($kind:ty),+) => {$(
        impl Edges for $kind {
            fn edges() -> BoxedStrategy<Self> {
                let beside = (0..<$kind>::BITS, 0..3_u8).prop_map(|(bit, beside)| {
                    let power: $kind = 1 << bit;
                    match beside {
                        0 => power - 1,
                        1 => power,
                        _ => power.wrapping_add(1),
                    }
                });
                prop_oneof![
                    3 => 0..24 as $kind,
                    1 => (0..24 as $kind).prop_map(|back| <$kind>::MAX - back),
                    2 => beside,
                    2 => any::<$kind>(),
                ]
                .boxed()
            }
        }
    )+};
}

edges!(u8, u16, u32, u64, usize);

impl Edges for bool {
    fn edges() -> BoxedStrategy<Self> {
        prop_oneof![Just(false), Just(true)].boxed()
    }
}

/// Functions that hold for all values of their arguments, or return early where the values are none they speak of.
///
/// Arguments are unsigned integers and truth values. Attributes for Kani alone are given as `cfg_attr(kani, …)`.
#[macro_export]
macro_rules! proofs {
    ($($(#[$about:meta])* fn $name:ident($($value:ident: $kind:ty),+ $(,)?) $body:block)+) => {$(
        $(#[$about])*
        #[cfg_attr(kani, kani::proof)]
        #[cfg_attr(not(kani), test)]
        fn $name() {
            fn holds($($value: $kind),+) $body

            #[cfg(kani)]
            holds($({
                let $value: $kind = kani::any();
                $value
            }),+);
            #[cfg(not(kani))]
            {
                use $crate::proptest;
                let config = proptest::test_runner::Config::with_cases($crate::CASES);
                proptest::proptest!(config, |($($value in <$kind as $crate::Edges>::edges()),+)| {
                    holds($($value),+);
                });
            }
        }
    )+};
}
