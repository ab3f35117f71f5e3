//! A device that its owner moves: no client asks for it.

use hypernic_vfio_user::HoldError;

use super::*;

/// A register, and configuration space as a driver leaves it.
fn set_up(client: &mut Client) {
    client.region_write(0, 0x20, &[1, 2, 3, 4]).unwrap();
    client.region_write(7, 4, &[6, 0]).unwrap();
}

fn is_set_up(client: &mut Client) -> bool {
    let (mut register, mut command) = ([0; 4], [0; 2]);
    client.region_read(0, 0x20, &mut register).unwrap();
    client.region_read(7, 4, &mut command).unwrap();
    (register, command) == ([1, 2, 3, 4], [6, 0])
}

#[test]
fn a_device_that_is_held_goes_on_here_or_elsewhere() {
    let [mut near, mut far] = [Moving::new(), Moving::new()];
    let mut client = near.client();
    set_up(&mut client);
    let (mut server, mut device) = near.end();
    assert_eq!(server.hold(&mut device, false), Err(HoldError::InUse));
    assert_eq!(
        near.did().last(),
        Some(&Did::Config),
        "it has noticed nothing"
    );
    // Its client stays connected, and is answered when it goes on.
    let state = server.hold(&mut device, true).expect("it stands still");
    assert_eq!(near.did(), [Did::Halt, Did::Save]);
    assert_eq!(server.hold(&mut device, true).as_ref(), Ok(&state), "still");
    server.release(&mut device);
    server.release(&mut device);
    assert_eq!(near.did(), [Did::Save, Did::Resume]);
    near.serve(server, device);
    assert!(is_set_up(&mut client));
    // It is gone, and what it has left stays.
    drop(client);
    let (mut server, mut device) = loop {
        let (mut server, mut device) = near.end();
        if server.process(&mut device, 1).is_ok() && !server.connected() {
            break (server, device);
        }
        near.serve(server, device);
    };
    let again = server.hold(&mut device, false).expect("nobody has it");
    assert_eq!(again, state);
    near.did();
    // The far one becomes it; a client that is there already would not have seen that.
    let early = far.client();
    let (mut there, mut other) = far.end();
    assert!(there.become_held(&mut other, &state).is_err());
    far.serve(there, other);
    drop(early);
    let (mut there, mut other) = loop {
        let (mut server, mut device) = far.end();
        if server.process(&mut device, 1).is_ok() && !server.connected() {
            break (server, device);
        }
        far.serve(server, device);
    };
    far.did();
    for bad in [&state[..state.len() - 1], &[]] {
        assert!(there.become_held(&mut other, bad).is_err());
        assert_eq!(far.did(), [Did::Halt, Did::Reset, Did::Resume]);
    }
    there.become_held(&mut other, &state).expect("as it was");
    // Once more is as once.
    there.become_held(&mut other, &state).expect("as it was");
    assert_eq!(far.did().iter().filter(|did| **did == Did::Halt).count(), 1);
    there.release(&mut other);
    assert_eq!(far.did(), [Did::Resume]);
    far.serve(there, other);
    assert!(is_set_up(&mut far.client()));
}

#[test]
fn what_a_client_has_stopped_can_be_held_and_what_it_loads_cannot() {
    let mut moving = Moving::new();
    let mut client = moving.client();
    set_up(&mut client);
    client.set_migration_state(Stop).unwrap();
    let (mut server, mut device) = moving.end();
    server.hold(&mut device, false).expect("it stands still");
    // It was not stopped here.
    server.release(&mut device);
    assert!(device.halted);
    moving.serve(server, device);
    client.set_migration_state(Running).unwrap();
    assert!(is_set_up(&mut client));
    client.set_migration_state(Resuming).unwrap();
    let (mut server, mut device) = moving.end();
    let busy = server.hold(&mut device, true);
    assert_eq!(busy, Err(HoldError::Busy("a migration by its VMM")));
    moving.serve(server, device);
}

#[test]
fn the_crates_client_finds_what_was_moved() {
    let [mut near, mut far] = [Moving::new(), Moving::new()];
    let mut client = peer_vfio_user::Client::new(&near.path).unwrap();
    client.region_write(0, 0x20, &[1, 2, 3, 4]).unwrap();
    client.region_write(7, 4, &[6, 0]).unwrap();
    // Its guest is paused: it says nothing, and stays connected.
    let (mut server, mut device) = near.end();
    let state = server.hold(&mut device, true).expect("it stands still");
    let (mut there, mut other) = far.end();
    there.become_held(&mut other, &state).expect("as it was");
    there.release(&mut other);
    far.serve(there, other);
    drop((client, server));
    far.did();
    let mut client = peer_vfio_user::Client::new(&far.path).unwrap();
    // As cloud-hypervisor does when it makes the device; this crate's answer is the opposite of the flag.
    if client.resettable() {
        client.reset().unwrap();
    }
    let (mut register, mut command) = ([0; 4], [0; 2]);
    client.region_read(0, 0x20, &mut register).unwrap();
    client.region_read(7, 4, &mut command).unwrap();
    assert_eq!((register, command), ([1, 2, 3, 4], [6, 0]));
    assert!(!far.did().contains(&Did::Reset));
}
