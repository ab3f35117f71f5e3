//! A few thousand random inputs for every target, for machines without a fuzzer.

use crate::TARGETS;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn no_input_breaks_a_promise(data in proptest::collection::vec(any::<u8>(), 0..600)) {
        for (_, target) in TARGETS {
            target(&data);
        }
    }
}
