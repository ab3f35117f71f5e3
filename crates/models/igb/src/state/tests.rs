//! A function that is saved, and another that goes on.

use std::sync::Arc;
use std::time::Duration;

use intel::link::Port;
use intel::phy::PhyModel;
use model::{Control, Progress, Work};
use proptest::prelude::*;

use crate::control::Registers;
use crate::control::nvm::Nvm;
use crate::control::stat_regs::StatRegs;
use crate::core::irq::Causes;
use crate::regs::QUEUES;
use crate::regs::bits::icr;
use crate::state::{State, StateError};
use crate::testing::{Guest, Wire, packet, packet_buffer};
use crate::tx::tests::descs::{TSO_SEGMENTS, send_tso};
use crate::{regs as r, state};

/// A field, and what makes it impossible.
type Case = (&'static str, fn(&mut State));

fn control(guest: &Guest) -> Registers {
    Registers {
        changed: false,
        function: Arc::clone(&guest.function),
        nvm: Nvm::new([2, 0, 0, 0, 0, 1], 0x10c9, 0xa03c, false),
        port: Port::new(PhyModel::Igp03, true, false, Duration::ZERO),
        io: intel::io::Window { address: 0x1500 },
        reading: StatRegs::default(),
        work: Work::default(),
        phy_was_reset: false,
        may_master: true,
        hub: None,
        due: Default::default(),
        places_vf_rings: false,
    }
}

/// A function in the midst of its life: a packet sent in part, buffers used, causes pending, counters
/// read and not.
fn busy() -> (Guest, Registers) {
    let mut guest = Guest::pf();
    let mut control = control(&guest);
    let file = &guest.function.file;
    file.set(r::MRQC, 0x0037_0002);
    guest.start_rx(0, 16, 1 << 25);
    let frame = packet::v4([1; 4], [2; 4], true, 3, 4);
    guest.receive(&vec![frame.clone(); 5]);
    assert_eq!(control.reading.read(&guest.function, r::GPRC, 0), Some(5));
    guest.receive(&vec![frame; 2]);
    assert!(control.reading.read(&guest.function, r::GORCL, 0).is_some());
    let mut irq = guest.function.irq.lock();
    irq.set_eims(&guest.env, 0x1f);
    let causes = Causes {
        rx: 1,
        other: icr::LSC,
        ..Causes::default()
    };
    irq.raise(&guest.env, causes);
    drop(irq);
    send_tso(&guest, 3);
    let wire = Wire::default();
    wire.set_room(4);
    assert_eq!(guest.run(&wire), Progress::Blocked);
    (guest, control)
}

/// Another function in the same guest.
fn successor(guest: &Guest) -> (Guest, Registers) {
    let other = Guest {
        env: guest.env.clone(),
        ..Guest::pf()
    };
    let control = control(&other);
    (other, control)
}

#[test]
fn another_goes_on_where_one_was_saved() {
    let (first, control) = busy();
    let blob = control.save(&first.env);
    let (mut second, mut control) = successor(&first);
    control.load(&second.env, &blob).expect("its own state");
    assert_eq!(control.save(&second.env), blob, "saved, loaded and saved");
    assert_eq!(control.take_work(), Work { tx: true, rx: true });
    // What was sent is not sent again, and what was not is.
    let wire = Wire::default();
    assert_eq!(second.run(&wire), Progress::Idle);
    let frames = wire.take();
    assert_eq!(frames.len(), TSO_SEGMENTS - 4);
    assert_eq!(frames[0][38..42], 400u32.to_be_bytes());
    assert_eq!(second.get(QUEUES.tdh, 3), second.get(QUEUES.tdt, 3));
    // The next frame goes into the next buffer.
    let frame = packet::v4([1; 4], [2; 4], true, 3, 5);
    second.receive(std::slice::from_ref(&frame));
    assert_eq!(second.read(packet_buffer(0, 7), frame.len()), frame);
    // Two were not read, and one has come.
    let mut read = |id| control.reading.read(&second.function, id, 0);
    assert_eq!(read(r::GPRC), Some(3));
    assert_eq!(read(r::RPTHC), Some(8));
    let irq = second.function.irq.lock();
    assert_ne!(irq.causes() & icr::LSC, 0);
}

#[test]
fn a_state_of_version_1_is_loaded_by_every_later_program() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/state/golden/pf-v1.bin");
    let (first, control) = busy();
    let blob = model_testkit::golden(path, &control.save(&first.env));
    let (mut second, mut control) = successor(&first);
    control.load(&second.env, &blob).expect("its own state");
    assert_eq!(control.save(&second.env), blob, "loaded and saved");
    let wire = Wire::default();
    assert_eq!(second.run(&wire), Progress::Idle);
    assert_eq!(wire.take().len(), TSO_SEGMENTS - 4);
}

#[test]
fn interrupts_told_before_a_load_are_counted_behind_it() {
    let guest = Guest::pf();
    let first = control(&guest);
    let mut irq = guest.function.irq.lock();
    irq.set_ims(&guest.env, icr::LSC);
    let causes = Causes {
        other: icr::LSC,
        ..Causes::default()
    };
    irq.raise(&guest.env, causes);
    irq.read_icr(&guest.env);
    // This one stands, and is told again.
    irq.raise(&guest.env, causes);
    drop(irq);
    let blob = first.save(&guest.env);
    let (second, mut control) = successor(&guest);
    control.load(&second.env, &blob).expect("its own state");
    assert_eq!(control.save(&second.env), blob, "saved, loaded and saved");
    let mut irq = second.function.irq.lock();
    assert_eq!([irq.take_asserted(), irq.take_asserted()], [2, 0]);
}

/// A message that is told again after a load is none that another has to keep its distance from.
#[test]
fn what_is_told_again_moves_no_gap() {
    let guest = Guest::pf();
    let first = control(&guest);
    let mut irq = guest.function.irq.lock();
    irq.set_ims(&guest.env, icr::LSC);
    let causes = Causes {
        other: icr::LSC,
        ..Causes::default()
    };
    irq.raise(&guest.env, causes);
    // There was no gap when it was told; there is one now.
    let kept = guest.function.file.write(r::EITR, 0, 1000 << 2);
    irq.set_eitr(&guest.env, 0, kept);
    drop(irq);
    let blob = first.save(&guest.env);
    let (second, mut control) = successor(&guest);
    control.load(&second.env, &blob).expect("its own state");
    assert!(control.save(&second.env) == blob, "saved, loaded and saved");
}

/// A state with something changed.
fn spoiled(change: impl FnOnce(&mut State)) -> Vec<u8> {
    let (guest, control) = busy();
    let mut state = state::read(&control.save(&guest.env)).expect("a state");
    change(&mut state);
    state::write(&state)
}

#[test]
fn what_cannot_be_is_refused_and_leaves_no_trace() {
    let cases: &[Case] = &[
        ("io", |s| s.io = 1 << 20),
        ("registers.offset", |s| s.registers[0].offset = 3),
        ("registers.offset", |s| s.registers.swap(0, 1)),
        ("registers.values", |s| s.registers[0].values.push(0)),
        ("statistics.offset", |s| s.statistics[0].offset = 0),
        ("statistics.value", |s| s.statistics[0].value = u64::MAX),
        ("latched.value", |s| s.latched[0].value += 1 << 40),
        ("nvm.bytes", |s| s.nvm.bytes.truncate(9)),
        ("nvm.bits", |s| s.nvm.bits = 8),
        ("nvm.phase", |s| s.nvm.phase = state::Phase::Write(1024)),
        ("phy.regs", |s| s.phy.regs.truncate(31)),
        ("queues", |s| s.queues.truncate(15)),
        ("turn", |s| s.turn = 16),
        ("queues.taken", |s| s.queues[0].taken = u32::MAX),
        ("context.maclen", |s| s.queues[3].contexts[1].maclen = 128),
        ("context.iplen", |s| s.queues[3].contexts[0].iplen = 512),
        ("context.l4t", |s| s.queues[3].contexts[0].l4t = 3),
        ("interrupts.causes", |s| s.interrupts.causes = u32::MAX),
        ("interrupts.extended", |s| s.interrupts.extended = u32::MAX),
        ("interrupts.last", |s| s.interrupts.last.truncate(3)),
        ("interrupts.last", |s| s.interrupts.last[0] = Some(i64::MIN)),
        ("interrupts.negotiation", |s| {
            s.interrupts.negotiation = Some(i64::MAX);
        }),
        ("clock.since", |s| s.clock.since = u64::MAX),
        ("flow.until", |s| s.flow.until = Some(4_000_000_001)),
    ];
    for (name, change) in cases {
        let blob = spoiled(change);
        let (guest, mut control) = busy();
        let before = control.save(&guest.env);
        match control.load(&guest.env, &blob) {
            Err(StateError::Field { field, .. }) => assert_eq!(field, *name),
            other => panic!("{name}: {other:?}"),
        }
        assert_eq!(control.save(&guest.env), before, "{name} leaves a trace");
    }
    let blob = spoiled(|s| s.device = 0x10ca);
    let (guest, mut control) = busy();
    let refused = control.load(&guest.env, &blob);
    assert!(matches!(refused, Err(StateError::Device { .. })));
    assert!(control.load(&guest.env, &[]).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 24 }))]
    /// Rings and heads may hold anything: what is taken is what would be saved now, and the function
    /// stays within its bounds.
    #[test]
    fn any_registers_that_are_taken_are_borne(
        spoil in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u32>()), 1..20),
        taken in 0..2048u32,
        skipping: bool,
    ) {
        let blob = spoiled(|s| {
            for (at, value) in spoil {
                let words = at.get(&s.registers).offset;
                let words = s.registers.iter_mut().find(|w| w.offset == words).expect("there");
                let n = words.values.len();
                words.values[value as usize % n] = value;
            }
            for queue in &mut s.queues {
                queue.taken = taken;
                queue.skipping = skipping;
            }
        });
        let (first, _) = busy();
        let (mut guest, mut control) = successor(&first);
        if control.load(&guest.env, &blob).is_ok() {
            let again = control.save(&guest.env);
            prop_assert_eq!(state::read(&again), state::read(&blob));
        }
        let wire = Wire::default();
        let mut calls = 0;
        while guest.run(&wire) == Progress::More {
            calls += 1;
            prop_assert!(calls < 100);
        }
        let frame = packet::v4([1; 4], [2; 4], true, 3, 5);
        prop_assert!(guest.receive(&[frame]) <= 1);
    }
}
