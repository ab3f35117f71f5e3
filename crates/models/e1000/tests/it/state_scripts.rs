//! Running, saving, loading into a fresh NIC and going on is the same as never stopping, at any
//! point of any script.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::common::*;
use crate::ops::{Op, interrupt_op, op, serial_op};
use crate::script::{Rig, difference};
use frame::Caps;
use hypernic_e1000::{Config, Moderation, Variant};
use proptest::prelude::*;

/// Runs the script on two NICs, one of which is saved and loaded before the steps named.
fn compare(config: Config, caps: Caps, script: &[Op], moves: &[usize]) -> Result<(), String> {
    let mut stays = Rig::new(config, caps);
    let mut moves_on = Rig::new(config, caps);
    for (step, op) in script.iter().enumerate() {
        for (n, _) in moves.iter().enumerate().filter(|(_, at)| **at == step) {
            // Clocks before and behind the first.
            let origin = [1_000_000_000, 77_000_000_000_000, u64::MAX >> 2][n % 3];
            moves_on = moves_on.move_to(origin);
            // Work that was noted is done by both, here and there.
            stays.try_again();
            stays.work();
            moves_on.work();
        }
        let at = |what: &str| format!("step {step}, {op:x?}: {what} differs");
        let (a, b) = (stays.apply(op), moves_on.apply(op));
        if a != b {
            return Err(format!("{}:\n{a:x?}\n{b:x?}", at("what is seen")));
        }
        if stays.pins() != moves_on.pins() {
            let (a, b) = (stays.pins(), moves_on.pins());
            return Err(format!("{}: {a:?} / {b:?}", at("line or timer")));
        }
        let (a, b) = (stays.memory(), moves_on.memory());
        if a != b {
            let i = (0..a.len()).find(|i| a[*i] != b[*i]).unwrap_or(0);
            let place = crate::ops::BASE + i as u64;
            let (a, b) = (a[i], b[i]);
            return Err(format!("{}: {place:#x}: {a:#x} / {b:#x}", at("memory")));
        }
        let (a, b) = (
            stays.nic.control.save(&stays.env),
            moves_on.nic.control.save(&moves_on.env),
        );
        let fields = difference(&a, &b);
        if !fields.is_empty() {
            return Err(format!("{}: {fields:#?}", at("state")));
        }
    }
    let (a, b) = (stays.everything(), moves_on.everything());
    for ((name, a), (_, b)) in a.iter().zip(&b) {
        if a != b {
            return Err(format!("at the end: {name} differs: {a:#x} / {b:#x}"));
        }
    }
    Ok(())
}

fn check(
    config: Config,
    caps: Caps,
    begin: Op,
    script: Vec<Op>,
    moves: &[usize],
) -> Result<(), TestCaseError> {
    let mut whole = vec![begin];
    whole.extend(script);
    // Each place once: what is done between two moves is the history of a host that is gone.
    let moves: BTreeSet<_> = moves.iter().map(|at| at % whole.len()).collect();
    let moves = Vec::from_iter(moves);
    compare(config, caps, &whole, &moves).map_err(TestCaseError::fail)
}

fn config() -> impl Strategy<Value = (Config, Caps)> {
    let negotiation = prop_oneof![Just(0), Just(10)];
    let variants = [Variant::I82540Em, Variant::I82545Em, Variant::I82544Gc];
    let variant = prop::sample::select(variants.to_vec());
    let rate = NonZeroU32::new(3000).expect("a rate");
    let moderation = [
        Moderation::Guest,
        Moderation::Adaptive,
        Moderation::Fixed(rate),
    ];
    let moderation = prop::sample::select(moderation.to_vec());
    (negotiation, any::<[bool; 3]>(), variant, moderation).prop_map(
        |(negotiation, [fcs, offloads, pause], variant, moderation)| {
            let mut config = Config::new(MAC);
            config.variant = variant;
            config.pause = pause;
            config.negotiation = Duration::from_millis(negotiation);
            config.true_fcs = fcs;
            config.moderation = moderation;
            let caps = Caps {
                csum: offloads,
                tso4: offloads,
                ecn: offloads,
                ..Caps::NONE
            };
            (config, caps)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 150 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn saving_and_loading_anywhere_changes_nothing(
        (config, caps) in config(),
        begin in (any::<u32>(), 0..3000u16),
        script in prop::collection::vec(op(), 1..60),
        moves in prop::collection::vec(0..60usize, 1..4),
    ) {
        let (rctl, itr) = begin;
        check(config, caps, Op::Driver { rctl, delays: [0; 4], itr }, script, &moves)?;
    }

    #[test]
    fn nothing_is_lost_on_the_serial_buses(
        (config, caps) in config(),
        script in prop::collection::vec(serial_op(), 1..60),
        moves in prop::collection::vec(0..60usize, 1..4),
    ) {
        let begin = Op::Driver { rctl: 0, delays: [0; 4], itr: 0 };
        check(config, caps, begin, script, &moves)?;
    }

    #[test]
    fn interrupts_come_when_they_would_have_come(
        (config, caps) in config(),
        (delays, itr) in ([0..100u16, 0..200, 0..100, 0..200], 0..3000u16),
        script in prop::collection::vec(interrupt_op(), 1..60),
        moves in prop::collection::vec(0..60usize, 1..4),
    ) {
        let begin = Op::Driver { rctl: 0, delays, itr };
        check(config, caps, begin, script, &moves)?;
    }
}
