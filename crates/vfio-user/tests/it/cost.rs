//! What an access costs: no allocation, one receive, one send; and bounded work per call.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use hypernic_vfio_user::codec::{Command, Header, RegionAccess, Version};
use hypernic_vfio_user::{Device, EventSet, Listener, Look, Progress, ResetCause, Server, Work};

#[derive(Default)]
struct Silent {
    writes: usize,
    worked: usize,
}

impl Device for Silent {
    fn bar_read(&mut self, _: u8, _: u64, data: &mut [u8]) {
        data.fill(7);
    }
    fn bar_write(&mut self, _: u8, _: u64, _: &[u8]) {
        self.writes += 1;
    }
    fn reset(&mut self, _: ResetCause) {}
    fn work(&mut self) -> Work {
        self.worked += 1;
        Work::Idle
    }
}

fn message(command: Command, flags: u32, payload: &[u8]) -> Vec<u8> {
    let header = Header {
        flags,
        ..Header::command(1, command, payload.len())
    };
    [&header.to_bytes()[..], payload].concat()
}

fn access(flags: u32, command: Command, data: &[u8]) -> Vec<u8> {
    let access = RegionAccess {
        offset: 0x18,
        region: 0,
        count: 4,
    };
    message(command, flags, &[&access.to_bytes()[..], data].concat())
}

/// A server and a client's end of its socket, on one thread, negotiated.
fn pair() -> (Server, Silent, UnixStream) {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let description = crate::common::description(&crate::common::page(), false);
    let mut server = Server::new(description, Listener::from_connected(theirs.into())).unwrap();
    let mut device = Silent::default();
    let version = message(Command::Version, 0, &Version::default().to_bytes());
    ours.write_all(&version).unwrap();
    server.process(&mut device, 16).unwrap();
    assert!(ours.read(&mut [0; 1024]).unwrap() > 16);
    (server, device, ours)
}

fn count(server: &Server, wanted: &str) -> u64 {
    let mut found = None;
    server.counters(&mut |name, value| {
        if name == wanted {
            found = Some(value);
        }
    });
    found.unwrap()
}

#[test]
fn fact_6_1_a_register_access_allocates_nothing() {
    let (mut server, mut device, mut ours) = pair();
    let read = access(0, Command::RegionRead, &[]);
    let post = access(1 << 4, Command::RegionWrite, &[1, 2, 3, 4]);
    let mut reply = [0; 64];
    let mut round = || {
        ours.write_all(&post).unwrap();
        ours.write_all(&read).unwrap();
        server.process(&mut device, 16).unwrap();
        assert_eq!(ours.read(&mut reply).unwrap(), 36);
    };
    round();
    let info = allocation_counter::measure(|| {
        for _ in 0..100 {
            round();
        }
    });
    assert_eq!(info.count_total, 0);
}

#[test]
fn a_batch_is_one_receive_one_send_and_one_turn_of_work() {
    let (mut server, mut device, mut ours) = pair();
    let before = (count(&server, "recv_calls"), count(&server, "send_calls"));
    let worked = device.worked;
    for _ in 0..40 {
        ours.write_all(&access(1 << 4, Command::RegionWrite, &[0; 4]))
            .unwrap();
    }
    ours.write_all(&access(0, Command::RegionRead, &[]).repeat(3))
        .unwrap();
    let progress = server.process(&mut device, 1024).unwrap();
    assert_eq!(
        progress,
        Progress {
            more: false,
            messages: 43,
            connected: true,
            finished: false,
            doorbells: 0,
        }
    );
    assert_eq!(device.writes, 40);
    assert_eq!(device.worked, worked + 1);
    assert_eq!(count(&server, "recv_calls"), before.0 + 1);
    assert_eq!(count(&server, "send_calls"), before.1 + 1);
    assert_eq!(ours.read(&mut [0; 1024]).unwrap(), 3 * 36);
}

#[test]
fn the_owner_says_where_a_look_is_worth_its_call() {
    let (mut server, mut device, mut ours) = pair();
    let post = access(1 << 4, Command::RegionWrite, &[0; 4]);
    let calls = count(&server, "recv_calls");
    let worked = device.worked;
    ours.write_all(&post.repeat(3)).unwrap();
    for look in [Look::Nowhere, Look::Messages, Look::Nowhere, Look::Nowhere] {
        let looked = device.writes > 0 || look == Look::Messages;
        let progress = server.process_after(look, &mut device, 1).unwrap();
        // What was read is answered without another look.
        assert_eq!(progress.messages, usize::from(looked), "{look:?}");
    }
    assert_eq!((device.writes, device.worked - worked), (3, 4));
    assert_eq!(count(&server, "recv_calls"), calls + 1);
}

#[test]
fn a_client_cannot_take_more_than_its_budget_per_call() {
    let (mut server, mut device, mut ours) = pair();
    let post = access(1 << 4, Command::RegionWrite, &[0; 4]);
    ours.write_all(&post.repeat(100)).unwrap();
    let mut calls = 0;
    let mut progress = server.process(&mut device, 8).unwrap();
    while progress.more {
        assert_eq!(progress.messages, 8);
        calls += 1;
        progress = server.process(&mut device, 8).unwrap();
    }
    assert_eq!((calls, progress.messages), (12, 4));
    assert_eq!(device.writes, 100);
}

#[test]
fn the_owners_set_says_when_there_is_something_to_do() {
    use rustix::event::{PollFd, PollFlags, Timespec};
    let (mut server, mut device, mut ours) = pair();
    let set = EventSet::new().unwrap();
    server.watch(&set).unwrap();
    let ready = || {
        let mut fds = [PollFd::from_borrowed_fd(set.as_fd(), PollFlags::IN)];
        let now = Timespec::default();
        rustix::event::poll(&mut fds, Some(&now)).unwrap() == 1
    };
    assert!(!ready());
    ours.write_all(&access(0, Command::RegionRead, &[]))
        .unwrap();
    assert!(ready());
    server.process(&mut device, 16).unwrap();
    assert!(!ready());
    drop(ours);
    assert!(ready());
    let progress = server.process(&mut device, 16).unwrap();
    assert!(progress.finished && !progress.connected);
    assert!(!ready());
}

#[test]
fn replies_that_do_not_fit_wait_without_keeping_the_owner_awake() {
    use rustix::event::{PollFd, PollFlags, Timespec};
    let (mut server, mut device, mut ours) = pair();
    let set = EventSet::new().unwrap();
    server.watch(&set).unwrap();
    let big = message(
        Command::RegionRead,
        0,
        &RegionAccess {
            offset: 0,
            region: 7,
            count: 1 << 20,
        }
        .to_bytes(),
    );
    ours.write_all(&big.repeat(20)).unwrap();
    for _ in 0..50 {
        if !server.process(&mut device, 16).unwrap().more {
            break;
        }
    }
    let mut fds = [PollFd::from_borrowed_fd(set.as_fd(), PollFlags::IN)];
    let now = Timespec::default();
    assert_eq!(rustix::event::poll(&mut fds, Some(&now)).unwrap(), 0);
    // Once the client reads, all of it comes.
    ours.set_nonblocking(true).unwrap();
    let mut left = 20 * ((1 << 20) + 32);
    let mut buf = vec![0; 1 << 20];
    while left > 0 {
        match ours.read(&mut buf) {
            Ok(n) => left -= n,
            Err(_) => {
                server.process(&mut device, 16).unwrap();
            }
        }
    }
}
