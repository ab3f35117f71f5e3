//! The dirty log, what is in flight, and the device's state.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use hypernic_vhost_user::codec::{Direction, Inflight, Log, Message, feature, vring_flags};
use hypernic_vhost_user::{ClientError, LOG_PAGE, SharedMem};

use crate::common::{GUEST, Guest, Seen, USER, pair, serve};

const LOGGED: u64 = 1 << 32 | feature::PROTOCOL | feature::LOG_ALL;
/// A log that covers guest memory.
const LOG_BYTES: u64 = (GUEST + (1 << 20)) / LOG_PAGE / 8;

/// Pages marked in a log, by guest physical address.
fn dirty(log: &SharedMem) -> Vec<u64> {
    let mut bytes = vec![0; log.len()];
    log.read(0, &mut bytes);
    let bit = |page: &u64| bytes[(page / 8) as usize] >> (page % 8) & 1 != 0;
    let pages = (0..log.len() as u64 * 8).filter(bit);
    pages.map(|page| page * LOG_PAGE).collect()
}

/// As QEMU does it: the log comes first, then the feature, then each ring's address again, all while
/// the rings run.
#[test]
fn what_is_written_while_logging_is_on_is_marked_and_nothing_else() {
    let (serving, mut client, mut guest) = pair();
    let log = SharedMem::new("log", LOG_BYTES as usize).expect("a memfd");
    let part = Log {
        size: LOG_BYTES,
        offset: 0,
    };
    client.set_log_base(&part, log.as_fd()).expect("answered");
    guest.round_trip(0, b"before");
    assert!(dirty(&log).is_empty());
    client.set_features(LOGGED).expect("set");
    for queue in [0, 1] {
        let mut addr = Guest::addr(queue);
        addr.flags = vring_flags::LOG;
        addr.log = addr.used - USER + GUEST;
        client.set_vring_addr(&addr).expect("taken");
    }
    guest.round_trip(0, b"while");
    let used = |queue| (Guest::addr(queue).used - USER + GUEST) & !(LOG_PAGE - 1);
    assert_eq!(dirty(&log), [used(0), Guest::buffer(0, 3), used(1)]);
    assert!(
        !serving
            .seen
            .lock()
            .iter()
            .any(|s| matches!(s, Seen::Stop(_)))
    );
    // A larger log takes the place of the first, which is written no more.
    let larger = SharedMem::new("log", 2 * LOG_BYTES as usize).expect("a memfd");
    let part = Log {
        size: 2 * LOG_BYTES,
        offset: 0,
    };
    client
        .set_log_base(&part, larger.as_fd())
        .expect("answered");
    log.fill(0, log.len(), 0);
    guest.round_trip(0, b"in the next");
    assert!(dirty(&log).is_empty());
    assert_eq!(dirty(&larger), [used(0), Guest::buffer(0, 3), used(1)]);
    client
        .set_features(1 << 32 | feature::PROTOCOL)
        .expect("off");
    larger.fill(0, larger.len(), 0);
    guest.round_trip(0, b"after");
    let still: Vec<_> = dirty(&larger);
    assert!(still.is_empty(), "{still:x?}");
    assert!(serving.seen.lock().contains(&Seen::Log(false)));
}

#[test]
fn what_is_in_flight_survives_a_reconnection() {
    let (serving, mut client, guest) = pair();
    let (given, file) = client.get_inflight_fd(4, 64).expect("given");
    assert_eq!((given.offset, given.queues, given.queue_size), (0, 4, 64));
    assert!(given.size >= 4 * (16 + 64 * 16));
    client.set_inflight_fd(&given, file.as_fd()).expect("taken");
    // QEMU gives it back in a new connection.
    drop(client);
    serving.wait_for(|s| *s == Seen::Enable(1, false));
    let mut client = serving.client();
    guest.share(&mut client);
    client.set_inflight_fd(&given, file.as_fd()).expect("taken");
    for (why, wrong) in [
        ("no rings", Inflight { queues: 0, ..given }),
        ("more rings", Inflight { queues: 5, ..given }),
        (
            "too small",
            Inflight {
                size: given.size - 64,
                ..given
            },
        ),
        ("beyond the file", Inflight { offset: 8, ..given }),
        (
            "no descriptors",
            Inflight {
                queue_size: 0,
                ..given
            },
        ),
        (
            "too many descriptors",
            Inflight {
                queue_size: 32769,
                ..given
            },
        ),
    ] {
        let refused = client.set_inflight_fd(&wrong, file.as_fd());
        assert!(refused.is_err(), "{why}");
        let line = serving.fault();
        assert!(line.starts_with("SET_INFLIGHT_FD: "), "{line}");
        client = serving.client();
    }
}

#[test]
fn a_state_is_saved_and_loaded_through_pipes() {
    let serving = serve();
    let mut client = serving.client();
    let (mut read, write) = std::io::pipe().expect("a pipe");
    client
        .set_device_state_fd(Direction::Save, write.as_fd())
        .expect("begun");
    drop(write);
    let mut state = Vec::new();
    read.read_to_end(&mut state).expect("read");
    assert_eq!(state, vec![7; 100_000]);
    client.check_device_state().expect("saved");

    let (read, mut write) = std::io::pipe().expect("a pipe");
    client
        .set_device_state_fd(Direction::Load, read.as_fd())
        .expect("begun");
    drop(read);
    // The question waits for the end of the state, and no other message overtakes it.
    client
        .send(&Message::CheckDeviceState, false, &[])
        .expect("sent");
    client
        .send(&Message::GetFeatures, false, &[])
        .expect("sent");
    client.set_timeout(Duration::from_millis(50));
    assert!(matches!(client.receive(), Err(ClientError::TimedOut)));
    client.set_timeout(Duration::from_secs(10));
    write.write_all(&[7, 8, 9]).expect("written");
    drop(write);
    let (header, payload, _) = client.receive().expect("answered");
    assert_eq!((header.request, payload), (43, 0u64.to_ne_bytes().to_vec()));
    let (header, _, _) = client.receive().expect("answered");
    assert_eq!(header.request, 1);
    assert!(serving.seen.lock().contains(&Seen::Loaded(vec![7, 8, 9])));

    let (read, mut write) = std::io::pipe().expect("a pipe");
    client
        .set_device_state_fd(Direction::Load, read.as_fd())
        .expect("begun");
    write.write_all(b"something else").expect("written");
    drop(write);
    let failed = client.check_device_state().expect_err("not of this device");
    assert!(matches!(failed, ClientError::Refused(_)));
    assert!(client.check_device_state().is_err(), "there is none");
    assert_eq!(serving.end()("transfers_failed"), 1);
}

#[test]
fn a_front_end_whose_state_never_ends_holds_up_only_itself() {
    let serving = serve();
    let mut client = serving.client();
    let (read, write) = std::io::pipe().expect("a pipe");
    client
        .set_device_state_fd(Direction::Load, read.as_fd())
        .expect("begun");
    client
        .send(&Message::CheckDeviceState, false, &[])
        .expect("sent");
    drop(client);
    // Its end is noticed though its question is not answered, and the next one is served.
    let mut next = serving.client();
    next.features().expect("answered");
    next.check_device_state().expect_err("it has none");
    drop(write);
}

#[test]
fn a_state_moves_while_no_ring_runs() {
    let (serving, mut client, _guest) = pair();
    let (_read, write) = std::io::pipe().expect("a pipe");
    let refused = client.set_device_state_fd(Direction::Save, write.as_fd());
    assert!(refused.is_err());
    assert_eq!(serving.fault(), "SET_DEVICE_STATE_FD: a ring runs");
}

/// A guest that goes on before its state is there would have two.
#[test]
fn a_state_that_comes_while_a_ring_runs_is_not_loaded() {
    let serving = serve();
    let (mut client, guest) = serving.shared();
    let (read, mut write) = std::io::pipe().expect("a pipe");
    client
        .set_device_state_fd(Direction::Load, read.as_fd())
        .expect("begun");
    guest.start(&mut client, 0, 0);
    client.set_vring_enable(0, true).expect("enabled");
    serving.wait_for(|s| *s == Seen::Enable(0, true));
    write.write_all(&[7, 8, 9]).expect("written");
    drop(write);
    let failed = client.check_device_state().expect_err("ring 0 runs");
    assert!(matches!(failed, ClientError::Refused(_)));
    let loaded = |s: &Seen| matches!(s, Seen::Loaded(_));
    assert!(!serving.seen.lock().iter().any(loaded));
    assert_eq!(serving.end()("transfers_failed"), 1);
}
