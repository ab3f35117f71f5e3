//! States, and a state on its way.

use std::time::Duration;

use hypernic_vfio_user::codec::feature::{self, GET, PROBE, SET};
use hypernic_vfio_user::codec::{Command, MigrationData, MigrationLimits, StateChange, irq};
use hypernic_vfio_user::pci::offset;

use super::*;

const STATES: [MigrationState; 4] = [Stop, Running, StopCopy, Resuming];

#[test]
fn features_are_asked_for_before_they_are_used() {
    let moving = Moving::new();
    let mut client = moving.client();
    assert_eq!(client.migration().unwrap(), feature::STOP_COPY);
    assert_eq!(client.migration_state().unwrap(), Running);
    let probes = [
        (feature::MIGRATION, GET),
        (feature::STATE, GET | SET),
        (feature::LOG_START, SET),
        (feature::LOG_STOP, SET),
        (feature::LOG_REPORT, GET),
        (feature::DATA_SIZE, GET),
    ];
    for (which, methods) in probes {
        assert!(client.feature(PROBE | which, &[]).unwrap().is_empty());
        for method in [GET, SET, GET | SET] {
            let answer = client.feature(PROBE | method | which, &[]);
            if method & !methods == 0 {
                assert!(answer.unwrap().is_empty());
            } else {
                assert_eq!(refused(answer), EINVAL, "{which} {method:#x}");
                assert_eq!(refused(client.feature(method | which, &[])), EINVAL);
            }
        }
        assert_eq!(refused(client.feature(which, &[])), EINVAL, "no method");
        assert_eq!(refused(client.feature(GET | 1 << 19 | which, &[])), EINVAL);
    }
    for unknown in [0, 3, 4, 5, 10, 0xffff] {
        for method in [GET, SET, PROBE] {
            let answer = client.feature(method | unknown, &[]);
            assert_eq!(refused(answer), ENOTSUP, "{unknown}");
        }
    }
    // The size of the structure itself is not there.
    let short = [[7, GET | feature::MIGRATION].map(u32::to_ne_bytes).concat()];
    let answer = client.request(Command::DeviceFeature, &short[0], &[]);
    assert_eq!(refused(answer), EINVAL);
    assert_eq!(moving.did(), [], "nobody asked the device");
}

#[test]
fn bounds_of_bitmaps_are_agreed_upon_where_a_client_offers_them() {
    let moving = Moving::new();
    let answer = |client: &Client| client.server_version().capabilities.migration;
    assert_eq!(answer(&moving.client()), None);
    let offers = [
        (Some(1 << 28), 1 << 19),
        (Some(4096), 4096),
        (None, 1 << 19),
    ];
    for (offered, agreed) in offers {
        let migration = Some(MigrationLimits {
            pgsize: Some(4096),
            max_bitmap_size: offered,
        });
        let options = ClientOptions {
            migration,
            ..ClientOptions::default()
        };
        let limits = answer(&moving.client_with(options)).unwrap();
        assert_eq!(limits.pgsize, Some(4096));
        assert_eq!(limits.max_bitmap_size, Some(agreed));
    }
}

#[test]
fn every_state_is_reached_from_every_other_on_the_shortest_way() {
    use Did::*;
    let moving = Moving::new();
    let mut client = moving.client();
    for from in STATES {
        for to in STATES {
            if from == Resuming && to != Resuming {
                // It has to come by a state.
                let state = take_state(&mut client);
                client.set_migration_state(Resuming).unwrap();
                client.write_state(&state, 4096).unwrap();
            }
            client.set_migration_state(from).unwrap();
            moving.did();
            assert_eq!(client.set_migration_state(to).unwrap(), to);
            assert_eq!(client.migration_state().unwrap(), to);
            let mut wanted = Vec::new();
            if from != to {
                wanted.extend((from == Running).then_some(Halt));
                if from == Resuming {
                    // Its configuration space was as it is.
                    wanted.push(Load);
                }
                wanted.extend((to == StopCopy).then_some(Save));
                wanted.extend((to == Running).then_some(Resume));
            }
            assert_eq!(moving.did(), wanted, "{from:?} to {to:?}");
            if to == Resuming {
                client.reset().unwrap();
            }
        }
    }
}

#[test]
fn states_that_are_none_are_refused_and_change_nothing() {
    let moving = Moving::new();
    let mut client = moving.client();
    for from in [Running, Stop, StopCopy, Resuming] {
        client.set_migration_state(from).unwrap();
        // An error, those with peers' DMA stopped, saving while it runs, and none at all.
        for state in [0, 5, 6, 7, 8, 0xabcd, u32::MAX] {
            let change = StateChange { state, fd: -1 };
            let answer = client.feature(SET | feature::STATE, &change.to_bytes());
            assert_eq!(refused(answer), EINVAL, "{from:?} to {state}");
            assert_eq!(client.migration_state().unwrap(), from);
        }
        for cut in 0..StateChange::LEN {
            let answer = client.feature(SET | feature::STATE, &[1; StateChange::LEN][..cut]);
            assert_eq!(refused(answer), EINVAL);
        }
    }
    drop(client);
    assert_eq!(moving.counters()("refused_bad_move"), 28);
}

#[test]
fn a_state_is_read_only_while_it_is_copied_and_written_only_while_it_resumes() {
    let moving = Moving::new();
    let options = ClientOptions {
        max_data_xfer_size: 512,
        ..ClientOptions::default()
    };
    let mut client = moving.client_with(options);
    let ask = |size: u32| {
        let argsz = MigrationData::LEN as u32;
        MigrationData { argsz, size }.to_bytes()
    };
    let with_data = |size: u32, data: usize| [&ask(size)[..], &vec![0; data]].concat();
    for state in STATES {
        client.set_migration_state(state).unwrap();
        let read = client.request(Command::MigrationRead, &ask(8), &[]);
        let write = client.request(Command::MigrationWrite, &with_data(8, 8), &[]);
        match state {
            StopCopy => assert_eq!(read.unwrap().payload.len(), MigrationData::LEN + 8),
            _ => assert_eq!(refused(read), EINVAL, "{state:?}"),
        }
        match state {
            Resuming => assert_eq!(write.unwrap().payload.len(), 0),
            _ => assert_eq!(refused(write), EINVAL, "{state:?}"),
        }
    }
    // More than was agreed upon, more or less than there is, and cut short.
    let wrong = [
        with_data(513, 513),
        with_data(8, 7),
        with_data(7, 8),
        ask(8)[..7].to_vec(),
    ];
    for payload in wrong {
        let answer = client.request(Command::MigrationWrite, &payload, &[]);
        assert_eq!(refused(answer), EINVAL);
    }
    client.reset().unwrap();
    client.set_migration_state(StopCopy).unwrap();
    for payload in [&ask(513)[..], &ask(8)[..7]] {
        let answer = client.request(Command::MigrationRead, payload, &[]);
        assert_eq!(refused(answer), EINVAL);
    }
    // The end is a read that gives less than it was asked for, and once more.
    let size = client.state_size().unwrap();
    let whole = client.read_state(512).unwrap();
    assert_eq!(whole.len() as u64, size);
    assert!(client.read_state(512).unwrap().is_empty());
    assert_eq!(client.state_size().unwrap(), 0);
    // And from its beginning, when it is copied anew.
    client.set_migration_state(Stop).unwrap();
    for at_once in [1, 7, 511] {
        client.set_migration_state(StopCopy).unwrap();
        assert_eq!(client.read_state(at_once).unwrap(), whole);
        client.set_migration_state(Stop).unwrap();
    }
    drop(client);
    assert_eq!(moving.counters()("states_read"), 4);
}

#[test]
fn a_device_goes_on_elsewhere_as_it_was() {
    let (near, far) = (Moving::new(), Moving::new());
    let (mut from, mut to) = (near.client(), far.client());
    from.region_write(0, 0x20, b"registers").unwrap();
    // Decodes memory, masters the bus; two vectors were told to wait, one of them has something to say.
    from.region_write(7, offset::COMMAND as u64, &6u16.to_le_bytes())
        .unwrap();
    let address = 0xfee0_1000u32.to_le_bytes();
    from.region_write(0, 0x800 + 16, &address).unwrap();
    for vector in [1, 3] {
        from.region_write(0, 0x800 + 16 * vector + 12, &1u32.to_le_bytes())
            .unwrap();
    }
    near.irq.msix(1);
    near.irq.msix(2);
    let state = take_state(&mut from);
    // What a program of version 1 wrote, once and for all.
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/moving/golden-v1.bin");
    let golden = std::fs::read(path).unwrap();
    assert!(state == golden, "the release before does not load it");
    to.set_migration_state(Resuming).unwrap();
    to.write_state(&state, 33).unwrap();
    assert_eq!(to.set_migration_state(Running).unwrap(), Running);
    let mut registers = [0; 9];
    to.region_read(0, 0x20, &mut registers).unwrap();
    assert_eq!(&registers, b"registers");
    let mut command = [0; 2];
    to.region_read(7, offset::COMMAND as u64, &mut command)
        .unwrap();
    assert_eq!(u16::from_le_bytes(command), 6);
    let mut entry = [0; 4];
    to.region_read(0, 0x800 + 16, &mut entry).unwrap();
    assert_eq!(entry, address);
    // What nobody had taken is still to come, once the guest lets it.
    let events = [(); 4].map(|()| EventFd::new().unwrap());
    to.arm(irq::MSIX, 0, &events.each_ref()).unwrap();
    assert!(events[2].wait(Duration::from_secs(5)).is_some());
    assert!([0, 1, 3].iter().all(|n| events[*n].take() == 0));
    to.region_write(0, 0x800 + 16 + 12, &0u32.to_le_bytes())
        .unwrap();
    assert!(events[1].wait(Duration::from_secs(5)).is_some());
    far.irq.msix(3);
    assert_eq!(events[3].take(), 0, "still told to wait");
    let did = far.did();
    assert_eq!(did[0], Did::Halt);
    assert_eq!(did[did.len() - 2..], [Did::Load, Did::Resume]);
    // The near one stands still until it is told otherwise: the VM may stay.
    assert_eq!(from.migration_state().unwrap(), StopCopy);
    assert_eq!(from.set_migration_state(Running).unwrap(), Running);
    from.region_read(0, 0x20, &mut registers).unwrap();
    assert_eq!(&registers, b"registers");
    drop((from, to));
    assert_eq!(near.counters()("states_read"), 1);
    assert_eq!(far.counters()("states_loaded"), 1);
}

#[test]
fn a_state_that_is_not_whole_or_of_another_device_is_refused_until_a_reset() {
    let (near, far, other) = (Moving::new(), Moving::new(), Moving::of(0x5678));
    let mut from = near.client();
    let good = take_state(&mut from);
    from.reset().unwrap();
    from.region_write(0, 0, &[BAD]).unwrap();
    let bad = take_state(&mut from);
    let foreign = take_state(&mut other.client());
    let mut damaged = good.clone();
    damaged[40] ^= 1;
    let cut = good[..good.len() - 1].to_vec();
    let longer = [&good[..], &[0]].concat();
    let refusals = [Vec::new(), bad, foreign, damaged, cut, longer];
    let mut to = far.client();
    let count = refusals.len() as u64;
    for state in refusals {
        far.did();
        to.set_migration_state(Resuming).unwrap();
        to.write_state(&state, 1000).unwrap();
        assert_eq!(refused(to.set_migration_state(Running)), EINVAL);
        assert!(far.did().contains(&Did::Refused));
        assert_eq!(to.migration_state().unwrap(), MigrationState::Error);
        for next in STATES {
            assert_eq!(refused(to.set_migration_state(next)), EINVAL);
        }
        to.reset().unwrap();
        assert_eq!(far.did(), [Did::Reset, Did::Resume]);
        assert_eq!(to.migration_state().unwrap(), Running);
    }
    to.set_migration_state(Resuming).unwrap();
    to.write_state(&good, 1000).unwrap();
    to.set_migration_state(Running).unwrap();
    drop(to);
    let counters = far.counters();
    assert_eq!(counters("refused_state"), count);
    assert_eq!(counters("states_loaded"), 1);
}

#[test]
fn nobody_fills_the_memory_of_the_server_with_a_state() {
    let moving = Moving::new();
    let mut client = moving.client();
    client.set_migration_state(Resuming).unwrap();
    let much = vec![0; 1 << 19];
    client.write_state(&much, 1 << 19).unwrap();
    client.write_state(&much, 1 << 19).unwrap();
    assert_eq!(refused(client.write_state(&much, 1 << 19)), ENOSPC);
    assert_eq!(client.migration_state().unwrap(), Resuming);
}

#[test]
fn a_stopped_device_notices_nothing_and_its_configuration_space_is_there() {
    let moving = Moving::new();
    let mut client = moving.client();
    client.region_write(0, 0x20, b"1234").unwrap();
    client.set_migration_state(Stop).unwrap();
    let mut read = [0; 4];
    client.region_read(0, 0x20, &mut read).unwrap();
    assert_eq!(read, [0xff; 4]);
    client.region_write(0, 0x20, b"5678").unwrap();
    client.region_post(0, STORE, &0u64.to_le_bytes()).unwrap();
    client.region_read(7, 0, &mut read).unwrap();
    assert_eq!(read, [0x86, 0x80, 0x34, 0x12]);
    client.set_migration_state(Running).unwrap();
    client.region_read(0, 0x20, &mut read).unwrap();
    assert_eq!(&read, b"1234");
    drop(client);
    assert_eq!(moving.counters()("accesses_while_halted"), 3);
}

#[test]
fn a_reset_and_the_end_of_the_client_let_it_run_again() {
    let moving = Moving::new();
    for state in [Stop, StopCopy, Resuming] {
        let mut client = moving.client();
        client.set_migration_state(state).unwrap();
        moving.did();
        client.reset().unwrap();
        assert_eq!(moving.did(), [Did::Reset, Did::Resume]);
        assert_eq!(client.migration_state().unwrap(), Running);
        client.set_migration_state(state).unwrap();
        drop(client);
        let mut next = moving.client();
        assert_eq!(next.migration_state().unwrap(), Running);
        assert_eq!(moving.did().last(), Some(&Did::Resume));
        next.region_write(0, 0, &[1]).unwrap();
    }
}
