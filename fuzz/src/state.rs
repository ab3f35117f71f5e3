//! Saved state: a NIC that is saved and goes on as another, and states that no NIC saved.

use std::sync::LazyLock;

use e1000::state::{self, KIND, VERSION};

use crate::input::{Input, seldom};
use crate::machine::{Life, Machine, reg};
use crate::{registers, rings};

/// The first byte chooses: a script of `registers` or `rings` in which the NIC is saved and loaded
/// into a fresh one at any points, and the guest may not notice; or a state that was tampered with.
pub fn state(data: &[u8]) {
    let mut input = Input::new(data);
    let kind = input.u8();
    let all = seldom(data);
    match kind % 4 {
        0 => unnoticed(&mut input, all, registers::script),
        1 => unnoticed(&mut input, all, rings::script),
        2 => {
            let at = input.u8().into();
            let tampered = tampered(&mut input);
            taken_or_refused(&tampered, all, at, input.rest());
        }
        _ => taken_or_refused(data, all, 0, &[]),
    }
}

fn unnoticed(input: &mut Input<'_>, all: bool, script: fn(&[u8], Life) -> Machine) {
    let mut life = Life {
        reborn: input.u64(),
        save_again: all,
        ..Life::default()
    };
    let rest = input.rest();
    let mut stayed = script(rest, Life::default());
    if life.reborn == 0 {
        life.reborn = u64::MAX;
    }
    let mut moved = script(rest, life);
    let (a, b) = (stayed.seen(), moved.seen());
    assert!(a == b || moved.said_again, "the guest notices");
}

/// The state of a NIC at work.
static AT_WORK: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut m = Machine::new(false);
    m.tx_on(8);
    m.rx_on(8, 0x8002);
    m.write(reg::RDTR, 9);
    m.receive(&[(&[0xff; 60], wire::Offload::NONE)]);
    let blob = m.saved();
    let saved = snapshot::open(KIND, &blob).expect("just saved");
    saved.payload.to_vec()
});

/// [`AT_WORK`] with some bytes exchanged, in a container that is whole.
fn tampered(input: &mut Input<'_>) -> Vec<u8> {
    let mut payload = AT_WORK.clone();
    for _ in 0..usize::from(input.u8() % 8) {
        let at = usize::from(input.u16()) % payload.len();
        match input.u8() {
            0 => payload.truncate(at),
            1 => {
                payload.remove(at);
            }
            2 => payload.insert(at, input.u8()),
            _ => payload[at] = input.u8(),
        }
        if payload.is_empty() {
            break;
        }
    }
    let version = if input.u8() == 0 {
        input.u32()
    } else {
        VERSION
    };
    snapshot::wrap(KIND, version, &payload)
}

/// Offers a state to a NIC, and goes on with whatever it is then. What does not even decode is
/// offered to a NIC only if `all` is to be done.
fn taken_or_refused(blob: &[u8], all: bool, op: usize, script: &[u8]) {
    // As it is, and as the payload of a container that is whole.
    let wrapped = snapshot::wrap(KIND, VERSION, blob);
    for blob in [blob, &wrapped] {
        match state::read(blob) {
            Ok(state) => assert_eq!(state::write(&state), blob, "one encoding for each state"),
            Err(_) if !all => continue,
            Err(_) => {}
        }
        // A NIC with a past costs more than all else, so not every time.
        let mut m = Machine::new(op & 1 == 1 && all);
        m.load(blob, all);
        m.receive(&[(&[0xff; 60], wire::Offload::NONE)]);
        registers::go_on(&mut m, script, Life::default());
    }
}
