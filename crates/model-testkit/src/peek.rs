//! Looks at registers without effect.

use model::{Env, Nic, Peeked};

/// All registers as a look finds them.
pub fn peeked(nic: &Nic, env: &Env) -> Vec<Peeked> {
    let mut found = Vec::new();
    nic.control.peek(env, &mut |one| found.push(one));
    found
}

/// A look at the registers changes nothing, and finds what a read would: each register is read by a NIC that is in the
/// same state as the one that was looked at. Returns how many registers there are.
///
/// # Panics
/// It is not so.
pub fn a_look_is_a_read_without_effect(nic: &mut Nic, env: &Env) -> usize {
    let state = nic.control.save(env);
    nic.control.load(env, &state).expect("its own state");
    // What it shares with others may have settled.
    let state = nic.control.save(env);
    let found = peeked(nic, env);
    assert_eq!(found, peeked(nic, env), "a look has an effect");
    assert_eq!(nic.control.save(env), state, "a look changes the state");
    for one in &found {
        nic.control.load(env, &state).expect("its own state");
        let mut data = [0; 4];
        nic.control.read(env, 0, one.offset.into(), &mut data);
        let read = u32::from_le_bytes(data);
        assert_eq!(
            read, one.value,
            "{} {:?} read, and looked at",
            one.name, one.element
        );
    }
    nic.control.load(env, &state).expect("its own state");
    found.len()
}
