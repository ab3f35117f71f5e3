//! Files that are slow to map.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use guest_mem::Memory;
use peer::SharedMem;

use super::*;
use crate::backend::{Refused, Ring};
use crate::client::Client;
use crate::codec::{Log, MemRegion, MemTable, Message, feature};

const LEN: u64 = 0x1_0000;
const PATIENCE: Duration = Duration::from_secs(20);

struct Nothing;

impl Backend for Nothing {
    fn queues(&self) -> u16 {
        2
    }
    fn features(&self) -> u64 {
        0
    }
    fn set_features(&mut self, _: u64) -> Result<(), Refused> {
        Ok(())
    }
    fn start(&mut self, _: u16, _: &Ring) -> Result<(), Refused> {
        Ok(())
    }
    fn stop(&mut self, _: u16) -> u32 {
        0
    }
    fn enable(&mut self, _: u16, _: bool) {}
    fn kicked(&mut self, _: u16) {}
    fn reset(&mut self) {}
}

/// Another thread is busy until it is told.
struct Slow(Receiver<()>);

impl Drop for Slow {
    fn drop(&mut self) {
        let _ = self.0.recv_timeout(PATIENCE);
    }
}

fn delay(server: &Server) -> Sender<()> {
    let (go, wait) = channel();
    server.session.mapper.bury(Slow(wait));
    go
}

fn served<T: Send + 'static>(
    set: &EventSet,
    front: impl FnOnce(Client) -> T + Send + 'static,
) -> (Server, JoinHandle<T>) {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let mut server = Server::new(2, Listener::from_connected(ours.into())).expect("a server");
    server.watch(set).expect("watched");
    let client = std::thread::spawn(move || {
        let mut client = Client::from_connected(theirs.into());
        client.set_timeout(PATIENCE);
        client.set_owner().expect("owner");
        let offered = client.protocol_features().expect("answered");
        client.set_protocol_features(offered).expect("set");
        front(client)
    });
    (server, client)
}

fn until(server: &mut Server, set: &EventSet, done: impl Fn(&Server) -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done(server) {
        assert!(Instant::now() < end, "never");
        let progress = server.process(&mut Nothing, 64).expect("process");
        if !progress.more {
            event::wait_readable(set.as_fd(), Duration::from_millis(20));
        }
    }
}

fn region(guest: u64, mmap_offset: u64) -> MemRegion {
    MemRegion {
        guest,
        size: LEN,
        user: 0x7f00_0000 + guest,
        mmap_offset,
    }
}

fn mapped(memory: &Memory) -> Vec<u64> {
    let regions = memory.regions().into_iter();
    regions.filter(|r| r.mapped).map(|r| r.iova).collect()
}

#[test]
fn a_file_that_is_slow_to_map_holds_up_its_own_front_end_only() {
    let set = EventSet::new().expect("set");
    let (pending, is_pending) = channel::<()>();
    let (sent, is_sent) = channel();
    let (mut server, client) = served(&set, move |mut client| {
        let ram = SharedMem::new("ram", 3 * LEN as usize).expect("memory");
        let [a, b] = [region(0, LEN), region(0x10_0000, 2 * LEN)];
        let table = MemTable::new(&[a, b]).expect("two");
        client
            .send(
                &Message::SetMemTable(table),
                true,
                &[ram.as_fd(), ram.as_fd()],
            )
            .expect("sent");
        is_pending.recv().expect("it is");
        client
            .send(&Message::GetFeatures, false, &[])
            .expect("sent");
        sent.send(()).expect("heard");
        let order = [(); 2].map(|()| client.receive().expect("an answer").0.request);
        assert_eq!(order, [5, 1], "the table's first");
        // One of the same file, one of another, and one that is none.
        client
            .add_mem_reg(&region(0x20_0000, 0), ram.as_fd())
            .expect("added");
        let more = SharedMem::new("more", LEN as usize).expect("memory");
        client
            .add_mem_reg(&region(0x30_0000, 0), more.as_fd())
            .expect("added");
        let beyond = client.add_mem_reg(&region(0x40_0000, LEN), more.as_fd());
        assert!(beyond.is_err(), "the file ends before");
    });
    let go = delay(&server);
    until(&mut server, &set, |s| s.session.is_waiting());
    pending.send(()).expect("heard");
    is_sent.recv().expect("sent");
    // Neither its next messages nor anything else wakes the thread that serves it and others.
    for _ in 0..3 {
        let progress = server.process(&mut Nothing, 64).expect("process");
        assert!(!progress.more && progress.messages == 0);
        assert!(!event::wait_readable(
            set.as_fd(),
            Duration::from_millis(20)
        ));
    }
    assert!(mapped(&server.memory()).is_empty());
    let other_set = EventSet::new().expect("set");
    let (mut other, other_client) =
        served(&other_set, |mut client| client.queues().expect("an answer"));
    until(&mut other, &other_set, |_| other_client.is_finished());
    assert_eq!(other_client.join().expect("served"), 2);
    go.send(()).expect("it waits");
    assert!(event::wait_readable(set.as_fd(), PATIENCE), "woken");
    let memory = server.memory();
    until(&mut server, &set, |_| mapped(&memory).len() == 4);
    assert_eq!(mapped(&memory), [0, 0x10_0000, 0x20_0000, 0x30_0000]);
    until(&mut server, &set, |_| client.is_finished());
    client.join().expect("in order");
    until(&mut server, &set, |s| !s.connected());
    assert!(mapped(&memory).is_empty());
}

#[test]
fn a_front_end_that_leaves_meanwhile_leaves_nothing_mapped() {
    let set = EventSet::new().expect("set");
    let (mut server, client) = served(&set, |mut client| {
        let ram = SharedMem::new("ram", LEN as usize).expect("memory");
        client
            .send(&Message::AddMemReg(region(0, 0)), false, &[ram.as_fd()])
            .expect("sent");
    });
    let go = delay(&server);
    until(&mut server, &set, |s| s.session.is_waiting());
    client.join().expect("gone");
    until(&mut server, &set, |s| !s.connected());
    go.send(()).expect("it waits");
    assert!(!server.session.is_waiting());
    assert!(mapped(&server.memory()).is_empty());
}

#[test]
fn logs_and_inflight_buffers_are_mapped_by_another_thread_too() {
    let set = EventSet::new().expect("set");
    let (ready, is_ready) = channel::<()>();
    let (done, is_done) = channel();
    let (mut server, client) = served(&set, move |mut client| {
        let file = SharedMem::new("log", LEN as usize).expect("memory");
        let log = Log {
            size: LEN,
            offset: 0,
        };
        let next = || is_ready.recv().expect("held up");
        next();
        client.set_log_base(&log, file.as_fd()).expect("taken");
        done.send(()).expect("heard");
        client
            .set_features(feature::LOG_ALL | feature::PROTOCOL)
            .expect("set");
        let (given, file) = client.get_inflight_fd(2, 64).expect("given");
        next();
        client.set_inflight_fd(&given, file.as_fd()).expect("taken");
        done.send(()).expect("heard");
        let short = Log {
            size: 2 * LEN,
            ..log
        };
        let file = SharedMem::new("log", LEN as usize).expect("memory");
        next();
        client
            .set_log_base(&short, file.as_fd())
            .expect_err("the file ends before");
        done.send(()).expect("heard");
    });
    for _ in 0..3 {
        let go = delay(&server);
        ready.send(()).expect("it waits");
        until(&mut server, &set, |s| s.session.is_waiting());
        go.send(()).expect("it waits");
        until(&mut server, &set, |_| is_done.try_recv().is_ok());
    }
    client.join().expect("obeyed");
}
