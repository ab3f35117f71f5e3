//! A client whose server is exchanged again and again, and who must not notice.

use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use guest_mem::Memory;
use pci::Bar;

use super::*;
use crate::client::{Client, ClientOptions};
use crate::codec::{Command, irq};
use crate::device::{ResetCause, Work};
use crate::{DeviceDescription, EventFd, Interrupts, Listener, SharedMem};

const PATIENCE: Duration = Duration::from_secs(20);
const LEN: usize = 0x2000;
const AT: u64 = 0x10_0000;

/// Reads count; a write to 8 is added up in guest memory; one to 16 is the level of the pin, one to 24 a message.
struct Adder {
    reads: u64,
    todo: Vec<u64>,
    master: bool,
    connected: u32,
    irq: Interrupts,
    memory: Memory,
    /// The registers of a queue, whose head follows its tail.
    queue: [u32; 16],
}

impl Device for Adder {
    fn bar_read(&mut self, bar: u8, offset: u64, data: &mut [u8]) {
        if bar == 2 {
            let word = self.queue[(offset as usize & 0x3f) / 4].to_le_bytes();
            return data.copy_from_slice(&word[..data.len()]);
        }
        self.reads += u64::from(bar == 0);
        data.copy_from_slice(&self.reads.to_le_bytes()[..data.len()]);
    }

    fn bar_write(&mut self, bar: u8, offset: u64, data: &[u8]) {
        if bar == 2 {
            let word = data.try_into().map_or(0, u32::from_le_bytes);
            self.queue[(offset as usize & 0x3f) / 4] = word;
            return;
        }
        let value = data.try_into().map_or(0, u64::from_le_bytes);
        match offset {
            8 => self.todo.push(value),
            16 => self.irq.set_line(value != 0),
            _ => self.irq.msix(value as u16),
        }
    }

    fn config_event(&mut self, event: ConfigEvent) {
        if let ConfigEvent::Command { master, .. } = event {
            self.master = master;
        }
    }

    fn client(&mut self, event: ClientEvent) {
        self.connected += u32::from(matches!(event, ClientEvent::Connected));
    }

    fn reset(&mut self, _: ResetCause) {}

    fn work(&mut self) -> Work {
        assert!(self.master || self.todo.is_empty(), "told of COMMAND");
        let view = self.memory.view();
        for value in self.todo.drain(..) {
            let mut word = [0; 8];
            view.read(AT, &mut word).expect("mapped");
            let sum = u64::from_le_bytes(word) + value;
            view.write(AT, &sum.to_le_bytes()).expect("mapped");
        }
        if self.queue[ENABLE as usize / 4] & ON != 0 {
            self.queue[HEAD as usize / 4] = self.queue[TAIL as usize / 4];
        }
        Work::Idle
    }
}

const HEAD: u32 = 0x10;
const TAIL: u32 = 0x18;
const ENABLE: u32 = 0x28;
const ON: u32 = 1;

fn doorbells() -> pci::Doorbells {
    pci::Doorbells {
        bar: 2,
        pages: vec![(0, 0x1000)],
        queues: vec![pci::QueueDoorbell {
            setup: vec![0],
            head: HEAD,
            enable: (ENABLE, ON),
            tail: TAIL,
        }],
        others: Vec::new(),
        touched_by: Vec::new(),
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Pin,
    Page,
}

fn server(listener: Listener) -> Server {
    server_of(Kind::Pin, listener)
}

fn server_of(what: Kind, listener: Listener) -> Server {
    let msix = pci::Msix {
        vectors: 3,
        table_bar: 1,
        table_offset: 0,
        pba_bar: 1,
        pba_offset: 0x800,
    };
    let description = DeviceDescription::new(0x1234, 0x5678)
        .bar(0, Bar::memory32(0x1000))
        .bar(1, Bar::memory32(0x1000))
        .msix(msix);
    let description = match what {
        Kind::Pin => description.intx(1),
        Kind::Page => description
            .bar(2, Bar::memory32(0x1000))
            .doorbells(doorbells()),
    };
    let mut server = Server::new(description, listener).expect("a server");
    server.keep_files();
    server
}

/// One that has no client, and nothing to listen on.
fn next() -> Server {
    next_of(Kind::Pin)
}

fn next_of(what: Kind) -> Server {
    let (end, _) = UnixStream::pair().expect("a pair");
    let mut server = server_of(what, Listener::from_connected(end.into()));
    let mut nobody = Adder::of(&server);
    while server.connection.is_some() {
        server.process(&mut nobody, 1).expect("process");
    }
    server
}

impl Adder {
    fn of(server: &Server) -> Self {
        Self {
            reads: 0,
            todo: Vec::new(),
            master: false,
            connected: 0,
            irq: server.interrupts(),
            memory: server.memory(),
            queue: [0; 16],
        }
    }
}

/// What a client does; it fails if a reply is missing, wrong or out of order.
fn use_it(mut client: Client) {
    let ram = SharedMem::new("ram", LEN).expect("memory");
    let (pin, message, late) = (event(), event(), event());
    let config = crate::codec::region::CONFIG;
    client
        .region_write(config, 4, &6u16.to_le_bytes())
        .expect("written");
    client
        .dma_map(AT, &ram, 0x1000, 0x1000, Prot::RW)
        .expect("mapped");
    client.arm(irq::INTX, 0, &[&pin]).expect("armed");
    client.arm(irq::MSIX, 0, &[&message]).expect("armed");
    let mut sum = 0;
    for n in 1..=600u64 {
        // Several messages at once, one with a file among them.
        for value in [n, 2 * n] {
            client
                .region_post(0, 8, &value.to_le_bytes())
                .expect("room");
            sum += value;
        }
        let other = SharedMem::new("other", LEN).expect("memory");
        let map = crate::codec::DmaMap {
            argsz: crate::codec::DmaMap::LEN as u32,
            flags: dma_flags::READ | dma_flags::WRITE,
            offset: 0,
            iova: 0x40_0000,
            size: LEN as u64,
        };
        let mapped = client.start(Command::DmaMap, &map.to_bytes(), &[other.as_fd()]);
        client.flush().expect("sent");
        let reply = client.next_reply().expect("a reply");
        assert_eq!(reply.header.id, mapped.expect("room"));
        assert!(
            !reply.header.is_error(),
            "it was mapped already, or not unmapped"
        );
        let mut count = [0; 8];
        client.region_read(0, 0, &mut count).expect("read");
        assert_eq!(u64::from_le_bytes(count), n, "read twice, or not");
        client.dma_unmap(0x40_0000, LEN as u64).expect("unmapped");
        // What was posted is done before the next turn's answers are given.
        client.region_read(1, 0xff0, &mut [0; 8]).expect("read");
        let mut there = [0; 8];
        ram.read(0x1000, &mut there);
        assert_eq!(u64::from_le_bytes(there), sum);
        interrupts(&mut client, n, (&pin, &message, &late));
    }
}

fn event() -> EventFd {
    EventFd::new().expect("an eventfd")
}

/// The pin, a vector that is armed, and one that is armed only after its message.
fn interrupts(client: &mut Client, n: u64, (pin, message, late): (&EventFd, &EventFd, &EventFd)) {
    let write = |client: &mut Client, at: u64, value: u64| {
        client
            .region_write(0, at, &value.to_le_bytes())
            .expect("written");
    };
    write(client, 16, 1);
    assert!(pin.wait(PATIENCE).is_some(), "the line is up");
    if n.is_multiple_of(2) {
        // Still up.
        client.unmask(irq::INTX, 0).expect("unmasked");
        assert!(pin.wait(PATIENCE).is_some(), "it is up again");
    }
    write(client, 16, 0);
    client.unmask(irq::INTX, 0).expect("unmasked");
    write(client, 24, 0);
    assert_eq!(message.wait(PATIENCE), Some(1));
    write(client, 24, 2);
    client.arm(irq::MSIX, 2, &[late]).expect("armed");
    assert_eq!(late.wait(PATIENCE), Some(1), "it waited for its eventfd");
    client.disarm(irq::MSIX).expect("disarmed");
    client.arm(irq::MSIX, 0, &[message]).expect("armed");
    assert_eq!(pin.take(), 0, "once is enough");
}

#[test]
fn a_client_does_not_notice_that_its_server_is_exchanged() {
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    let mut old = server(Listener::from_connected(ours.into()));
    let mut device = Adder::of(&old);
    let client = std::thread::spawn(move || {
        let options = ClientOptions {
            timeout: PATIENCE,
            ..ClientOptions::default()
        };
        let mut client = Client::open(theirs.into(), options).expect("a client");
        client.negotiate().expect("negotiated");
        use_it(client);
    });
    let (mut exchanges, mut busy) = (0, 0);
    let mut turns = 0u64;
    loop {
        // One message at a time, so that others wait in the buffer.
        let progress = old.process(&mut device, 1).expect("process");
        turns += 1;
        if progress.finished {
            break;
        }
        if turns.is_multiple_of(5) {
            match old.hand_over() {
                Ok(handover) => {
                    let mut new = next();
                    let (reads, todo) = (device.reads, std::mem::take(&mut device.todo));
                    device = Adder {
                        reads,
                        todo,
                        ..Adder::of(&new)
                    };
                    new.take_over(&mut device, handover).expect("taken over");
                    assert_eq!(device.connected, 1);
                    old = new;
                    exchanges += 1;
                }
                Err(HandoverError::Busy(_) | HandoverError::NoClient) => busy += 1,
                Err(error) => panic!("{error}"),
            }
        }
    }
    client.join().expect("it noticed");
    println!("{exchanges} exchanges, {busy} refused, {turns} turns");
    assert!(exchanges > 500, "{exchanges}");
}

/// What the guest stores into the memory of its doorbells is found by whichever server has it then; what it is asked for by DMA
/// goes over the second socket.
#[test]
fn doorbells_in_memory_and_a_second_socket_go_along() {
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    let mut old = server_of(Kind::Page, Listener::from_connected(ours.into()));
    let mut device = Adder::of(&old);
    let (tails, reads) = (1..=400u32, std::sync::atomic::AtomicU64::new(0));
    let seen = &reads;
    std::thread::scope(|scope| {
        let client = scope.spawn(move || {
            let options = ClientOptions {
                timeout: PATIENCE,
                twin_socket: true,
                ..ClientOptions::default()
            };
            let mut client = Client::open(theirs.into(), options).expect("a client");
            client.negotiate().expect("negotiated");
            let region = client.region_info(2).expect("a region");
            let page = region.map(&region.areas[0]).expect("its memory");
            let ram = SharedMem::new("ram", LEN).expect("memory");
            client
                .dma_map(AT, &ram, 0, LEN as u64, Prot::RW)
                .expect("mapped");
            page.store_u32(ENABLE as usize, ON, Ordering::Release);
            for tail in tails {
                page.store_u32(TAIL as usize, tail, Ordering::Release);
                let until = Instant::now() + PATIENCE;
                while page.load_u32(HEAD as usize, Ordering::Acquire) != tail {
                    assert!(Instant::now() < until, "tail {tail} was not seen");
                    std::thread::yield_now();
                }
                if tail.is_multiple_of(3) {
                    client.region_read(0, 0, &mut [0; 8]).expect("read");
                    seen.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let mut exchanges = 0;
        loop {
            let progress = old.process(&mut device, 1).expect("process");
            if progress.finished {
                break;
            }
            assert!(!old.connected() || old.connection.as_ref().is_some_and(|c| c.twin.is_some()));
            match old.hand_over() {
                Ok(handover) => {
                    let mut new = next_of(Kind::Page);
                    let (reads, queue) = (device.reads, device.queue);
                    device = Adder {
                        reads,
                        queue,
                        ..Adder::of(&new)
                    };
                    new.take_over(&mut device, handover).expect("taken over");
                    old = new;
                    exchanges += 1;
                }
                Err(HandoverError::Busy(_) | HandoverError::NoClient) => {}
                Err(error) => panic!("{error}"),
            }
        }
        client.join().expect("it noticed");
        assert!(exchanges > 300, "{exchanges}");
    });
    assert_eq!(device.reads, reads.into_inner());
}

/// All regions are described whenever something changes, also those without a file.
#[test]
fn a_client_with_very_many_regions_is_served_and_not_handed_over() {
    use super::super::kept_maps::{KeptMap, KeptMaps, MOST_MAPS};
    let mut maps = KeptMaps::default();
    maps.begin();
    let map = |n: usize| KeptMap {
        iova: n as u64 * 4096,
        len: 4096,
        offset: 0,
        prot: Prot::RW,
        file: None,
    };
    for n in 0..MOST_MAPS {
        assert!(maps.push(map(n)).is_empty() && maps.keeps());
    }
    assert_eq!(maps.all().map(<[_]>::len), Some(MOST_MAPS));
    assert!(maps.push(map(MOST_MAPS)).is_empty());
    assert!(!maps.keeps() && maps.all().is_none());
    // It has let go of some: what else there is was forgotten.
    assert!(maps.forget(0, 4096).is_empty() && maps.all().is_none());
    assert!(maps.forget(0, u64::MAX).is_empty());
    assert_eq!(maps.all().map(<[_]>::len), Some(0));
}

/// Descriptors are for all clients: one with very many files keeps none of them, and is not handed over until it has let go.
#[test]
fn a_client_with_very_many_files_is_served_and_not_handed_over() {
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    let mut first = server(Listener::from_connected(ours.into()));
    let mut device = Adder::of(&first);
    let most = super::super::kept_maps::MOST_FILES as u64;
    let open = || std::fs::read_dir("/proc/self/fd").expect("proc").count();
    let asked = Ordering::SeqCst;
    let step = std::sync::atomic::AtomicU32::new(0);
    let done = &step;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut client =
                Client::open(theirs.into(), ClientOptions::default()).expect("a client");
            client.negotiate().expect("negotiated");
            let ram = SharedMem::new("ram", LEN).expect("memory");
            let mut map = |from: u64, to: u64| {
                for at in from..to {
                    let at = AT + at * LEN as u64;
                    client
                        .dma_map(at, &ram, 0, LEN as u64, Prot::RW)
                        .expect("mapped");
                }
            };
            let wait = |n: u32| {
                done.store(n, asked);
                while done.load(asked) == n {
                    std::thread::yield_now();
                }
            };
            map(0, most);
            wait(1);
            map(most, most + 1);
            wait(3);
            client.dma_unmap_all().expect("unmapped");
            client
                .dma_map(AT, &ram, 0, LEN as u64, Prot::RW)
                .expect("mapped");
            wait(5);
        });
        let mut until = |n: u32| {
            while done.load(asked) != n {
                first.process(&mut device, 8).expect("process");
            }
            let outcome = first.hand_over().map(drop);
            let held = open();
            done.store(n + 1, asked);
            (outcome, held)
        };
        let (outcome, many) = until(1);
        assert!(outcome.is_ok(), "{outcome:?}");
        let (outcome, few) = until(3);
        assert!(
            matches!(outcome, Err(HandoverError::Cannot(_))),
            "{outcome:?}"
        );
        // Another thread closes them, and other tests have files, too.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(4);
        let mut few = few;
        while few + most as usize > many + 8 {
            assert!(std::time::Instant::now() < end, "{many} then {few}");
            std::thread::yield_now();
            few = open();
        }
        assert!(until(5).0.is_ok());
    });
}

#[test]
fn a_state_that_is_not_whole_or_of_another_device_is_refused() {
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    let mut first = server(Listener::from_connected(ours.into()));
    let mut device = Adder::of(&first);
    let client = std::thread::spawn(move || {
        let mut client = Client::open(theirs.into(), ClientOptions::default()).expect("a client");
        client.negotiate().expect("negotiated");
        client
    });
    while !first.connected() {
        first.process(&mut device, 8).expect("process");
    }
    let _client = client.join().expect("negotiated");
    let Handover { state, files } = first.hand_over().expect("a client");
    let again = || {
        let files = files
            .iter()
            .map(|file| file.try_clone().expect("a descriptor"));
        files.collect::<Vec<_>>()
    };
    let take = |state: Vec<u8>, files: Vec<OwnedFd>| {
        let mut new = next();
        let mut device = Adder::of(&new);
        let taken = new.take_over(&mut device, Handover { state, files });
        (taken, new.connected())
    };
    for at in 0..state.len() {
        let mut bad = state.clone();
        bad[at] ^= 1;
        let (taken, connected) = take(bad, again());
        assert!(
            matches!(taken, Err(HandoverError::State(_))) && !connected,
            "byte {at}"
        );
    }
    let (taken, connected) = take(state.clone(), Vec::new());
    assert!(matches!(taken, Err(HandoverError::Files(_))) && !connected);
    // A sound state with numbers that no server writes.
    let whole: V1 = snapshot::open(V1::KIND, &state)
        .expect("sound")
        .decode()
        .expect("V1");
    let spoilt: [fn(&mut V1); 5] = [
        |v| v.max_data = 0,
        |v| v.table.truncate(3),
        |v| {
            v.vectors.push((
                Vector {
                    index: irq::MSIX,
                    vector: 3,
                    ..v.vectors[0].0
                },
                None,
            ))
        },
        |v| v.unread = vec![0; 4 << 20],
        |v| {
            v.maps.push(Map {
                iova: u64::MAX,
                len: 2,
                offset: 0,
                flags: 3,
                file: None,
            })
        },
    ];
    for (at, spoil) in spoilt.iter().enumerate() {
        let mut bad: V1 = snapshot::open(V1::KIND, &snapshot::seal(&whole))
            .and_then(|saved| saved.decode())
            .expect("sound");
        spoil(&mut bad);
        // Too long for the container is refused there.
        let (taken, connected) = take(snapshot::seal(&bad), again());
        assert!(taken.is_err() && !connected, "{at}");
    }
    let (taken, connected) = take(state, again());
    assert!(taken.is_ok() && connected);
}
