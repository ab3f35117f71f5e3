//! A file that takes long to map.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use guest_mem::Memory;
use pci::Bar;

use super::{Listener, Server};
use crate::client::{Client, ClientOptions};
use crate::codec::{Command, DeviceInfo, DmaMap, dma_flags};
use crate::description::DeviceDescription;
use crate::device::{Device, ResetCause};
use peer::EventSet;
use peer::SharedMem;
use peer::event;

const PATIENCE: Duration = Duration::from_secs(20);
const LEN: usize = 0x10000;

struct Nothing;

impl Device for Nothing {
    fn bar_read(&mut self, _: u8, _: u64, data: &mut [u8]) {
        data.fill(0);
    }

    fn bar_write(&mut self, _: u8, _: u64, _: &[u8]) {}

    fn reset(&mut self, _: ResetCause) {}
}

/// Ends when it is told to, as an `mmap` that waits for a lock.
struct Slow(Receiver<()>);

impl Drop for Slow {
    fn drop(&mut self) {
        let _ = self.0.recv();
    }
}

/// A server, and its client in a thread.
fn served<T: Send + 'static>(
    set: &EventSet,
    client: impl FnOnce(Client) -> T + Send + 'static,
) -> (Server, JoinHandle<T>) {
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    let description = DeviceDescription::new(0x8086, 0x100e).bar(0, Bar::memory32(0x2000));
    let listener = Listener::from_connected(ours.into());
    let mut server = Server::new(description, listener).expect("server");
    server.watch(set).expect("watched");
    let client = std::thread::spawn(move || {
        let options = ClientOptions {
            timeout: PATIENCE,
            ..ClientOptions::default()
        };
        let mut opened = Client::open(theirs.into(), options).expect("client");
        opened.negotiate().expect("negotiated");
        client(opened)
    });
    (server, client)
}

/// Processes until something is so.
fn until(server: &mut Server, set: &EventSet, mut so: impl FnMut(&Server) -> bool) {
    let end = Instant::now() + PATIENCE;
    while !so(server) {
        assert!(Instant::now() < end, "too long");
        if !server.process(&mut Nothing, 64).expect("process").more {
            event::wait_readable(set.as_fd(), Duration::from_millis(10));
        }
    }
}

/// Keeps the thread that maps a server's files busy, until told.
fn delay(server: &Server) -> Sender<()> {
    let (go, wait) = channel();
    server.session.mapper.bury(Slow(wait));
    go
}

fn map() -> DmaMap {
    DmaMap {
        argsz: DmaMap::LEN as u32,
        flags: dma_flags::READ | dma_flags::WRITE,
        offset: 0,
        iova: 0x4_0000,
        size: LEN as u64,
    }
}

fn info(client: &mut Client) -> u16 {
    let ask = DeviceInfo {
        argsz: DeviceInfo::LEN as u32,
        flags: 0,
        num_regions: 0,
        num_irqs: 0,
    };
    let ask = ask.to_bytes();
    client.start(Command::GetInfo, &ask, &[]).expect("room")
}

fn mapped(memory: &Memory) -> Vec<(u64, u64, bool)> {
    let regions = memory.regions().into_iter();
    regions.map(|r| (r.iova, r.len, r.mapped)).collect()
}

#[test]
fn a_file_that_is_slow_to_map_holds_up_its_own_client_only() {
    let set = EventSet::new().expect("set");
    let (pending, is_pending) = channel::<()>();
    let (sent, is_sent) = channel();
    let (mut server, client) = served(&set, move |mut client| {
        let ram = SharedMem::new("ram", LEN).expect("memory");
        let payload = map().to_bytes();
        let first = client.start(Command::DmaMap, &payload, &[ram.as_fd()]);
        let second = info(&mut client);
        client.flush().expect("sent");
        is_pending.recv().expect("it is");
        let third = info(&mut client);
        client.flush().expect("sent");
        sent.send(()).expect("heard");
        let order = [(); 3].map(|()| client.next_reply().expect("a reply").header.id);
        assert_eq!(order, [first.expect("room"), second, third]);
        // The same file again, and one that is none.
        client.dma_unmap(0x4_0000, LEN as u64).expect("unmapped");
        let half = LEN as u64 / 2;
        let prot = guest_mem::Prot::RW;
        client.dma_map(0, &ram, 0, half, prot).expect("mapped");
        let beyond = client.dma_map(0x8_0000, &ram, half, 2 * half, prot);
        assert!(beyond.is_err(), "the file ends before");
    });
    let go = delay(&server);
    until(&mut server, &set, |s| s.session.pending_map.is_some());
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
    let (mut other, other_client) = served(&other_set, |mut client| {
        client.info().expect("an answer").num_regions
    });
    until(&mut other, &other_set, |_| other_client.is_finished());
    assert!(other_client.join().expect("served") > 0);
    go.send(()).expect("it waits");
    assert!(event::wait_readable(set.as_fd(), PATIENCE), "woken");
    until(&mut server, &set, |s| !mapped(&s.memory()).is_empty());
    let bell = |s: &Server| s.connection.as_ref().is_some_and(|c| c.map_bell.is_some());
    assert!(!bell(&server), "no descriptor stays for the next file");
    assert_eq!(mapped(&server.memory()), [(0x4_0000, LEN as u64, true)]);
    let memory = server.memory();
    until(&mut server, &set, |_| client.is_finished());
    client.join().expect("in order");
    // It has let go when it ended.
    until(&mut server, &set, |s| !s.connected());
    assert!(mapped(&memory).is_empty());
}

#[test]
fn a_client_that_leaves_meanwhile_leaves_nothing_mapped() {
    let set = EventSet::new().expect("set");
    let (mut server, client) = served(&set, |mut client| {
        let ram = SharedMem::new("ram", LEN).expect("memory");
        let payload = map().to_bytes();
        client
            .post(Command::DmaMap, &payload, &[ram.as_fd()])
            .expect("room");
        client.flush().expect("sent");
    });
    let go = delay(&server);
    until(&mut server, &set, |s| s.session.pending_map.is_some());
    client.join().expect("gone");
    go.send(()).expect("it waits");
    until(&mut server, &set, |s| !s.connected());
    assert!(server.session.pending_map.is_none());
    assert!(mapped(&server.memory()).is_empty());
}
