//! Packed rings of a daemon that dies.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use ::vhost_user::Client;
use ::vhost_user::codec::{Inflight, MemRegion, VringAddr};
use vfio_user::SharedMem;

use super::vmm::{BASE, HEADER, PROTOCOL, RAM, SIZE, Vmm, until};
use super::{Daemon, PLAIN, attach, frame};

/// A driver of a packed transmit ring of 64 descriptors, each a packet.
struct PackedSender {
    memory: SharedMem,
    given: u16,
    /// Where it says that the ring is.
    base: u32,
}

impl PackedSender {
    const RING: usize = 0x4000;

    fn new() -> Self {
        Self {
            memory: SharedMem::new("ram", RAM).expect("a memfd"),
            given: 0,
            base: 0x8000_8000,
        }
    }

    fn flags(lap: u16, is_used: bool) -> u16 {
        let (avail, used) = (1 << 7, 1 << 15);
        match (lap.is_multiple_of(2), is_used) {
            (true, true) => avail | used,
            (true, false) => avail,
            (false, true) => 0,
            (false, false) => used,
        }
    }

    fn send(&mut self, frame: &[u8]) {
        let slot = usize::from(self.given % SIZE);
        let at = 0x10_0000 + 0x800 * slot;
        self.memory.write(at, &[&[0; HEADER], frame].concat());
        let desc = [
            &(BASE + at as u64).to_le_bytes()[..],
            &((HEADER + frame.len()) as u32).to_le_bytes(),
            &self.given.to_le_bytes(),
        ];
        let place = Self::RING + 16 * slot;
        self.memory.write(place, &desc.concat());
        let flags = Self::flags(self.given / SIZE, false);
        self.memory.write(place + 14, &flags.to_le_bytes());
        self.given += 1;
    }

    /// All that was given is used.
    fn is_done(&self) -> bool {
        (self.given.saturating_sub(SIZE)..self.given).all(|n| {
            let mut bytes = [0; 2];
            let place = Self::RING + 16 * usize::from(n % SIZE);
            self.memory.read(place + 14, &mut bytes);
            u16::from_le_bytes(bytes) == Self::flags(n / SIZE, true)
        })
    }

    /// Connects with a buffer for what is in flight, and says that the ring begins.
    fn connect(&self, path: &Path, kept: &mut Option<(Inflight, OwnedFd)>) -> Client {
        let features = PLAIN | 1 << 34 | PROTOCOL;
        // One that comes before the daemon has seen the last one go is hung up on.
        let ask = || {
            let mut client = Client::connect(path).expect("connected");
            client.set_owner().ok()?;
            client.set_features(features).ok()?;
            let offered = client.protocol_features().ok()?;
            Some((client, offered))
        };
        let mut served = None;
        until("a front end is served", || {
            served = ask();
            served.is_some()
        });
        let (mut client, offered) = served.expect("it is");
        client.set_protocol_features(offered).expect("set");
        let (given, file) =
            kept.get_or_insert_with(|| client.get_inflight_fd(2, SIZE).expect("given"));
        client
            .set_inflight_fd(given, file.as_fd())
            .expect("taken back");
        let region = MemRegion {
            guest: BASE,
            size: RAM as u64,
            user: BASE,
            mmap_offset: 0,
        };
        client
            .set_mem_table(&[region], &[self.memory.as_fd()])
            .expect("taken");
        let at = BASE + Self::RING as u64;
        let addr = VringAddr {
            index: 1,
            flags: 0,
            descriptor: at,
            available: at + 0x1000,
            used: at + 0x2000,
            log: 0,
        };
        client.set_vring_num(1, SIZE.into()).expect("size");
        // Which is wrong after a crash.
        client.set_vring_base(1, self.base).expect("base");
        client.set_vring_addr(&addr).expect("address");
        client.set_vring_call(1, None).expect("call");
        client.set_vring_enable(1, true).expect("enabled");
        client.set_vring_kick(1, None).expect("kick");
        client
    }
}

#[test]
fn a_packed_ring_goes_on_with_the_next_daemon_where_its_front_end_keeps_a_note() {
    let mut daemon = Daemon::new(&["", ""]);
    let mut kept = None;
    let mut a = PackedSender::new();
    let (mut b, b_vmm) = attach(&daemon, 1);
    b.give(0, 60);
    b_vmm.kick(0);
    let client = a.connect(&daemon.socket(0), &mut kept);
    // Once around the ring and some.
    for number in 0..80 {
        a.send(&frame(2, 1, number));
        assert_eq!(b.receive(0), frame(2, 1, number));
        b.give(0, 1);
    }
    until("all is used", || a.is_done());
    daemon.end();
    // What the guest does meanwhile waits in its ring.
    for number in 80..84 {
        a.send(&frame(2, 1, number));
    }
    drop((client, b_vmm));
    daemon.begin();
    let mut b_vmm = Vmm::connect(&daemon.socket(1), &b, PLAIN);
    b_vmm.start(&b, 0, b.used(0));
    b_vmm.start(&b, 1, b.used(1));
    let mut client = a.connect(&daemon.socket(0), &mut kept);
    let mut came = Vec::new();
    until("all have come", || {
        came.extend(b.received(0));
        came.len() >= 4
    });
    a.send(&frame(2, 1, 84));
    came.push(b.receive(0));
    let expected: Vec<_> = (80..85).map(|number| frame(2, 1, number)).collect();
    assert_eq!(came, expected);
    until("all is used", || a.is_done());
    // One that is stopped goes on where its front end says.
    let at = 85 % u32::from(SIZE);
    assert_eq!(client.get_vring_base(1).expect("stopped"), at | at << 16);
    a.memory.fill(PackedSender::RING, 0x1000, 0);
    a.given = 0;
    a.send(&frame(2, 1, 99));
    drop(client);
    let _client = a.connect(&daemon.socket(0), &mut kept);
    assert_eq!(b.receive(0), frame(2, 1, 99));
    daemon.no_faults(0);
    daemon.no_faults(1);
}

/// DPDK's virtio-user names the entry that comes next, and says nothing of what is used.
#[test]
fn a_packed_ring_begins_where_its_front_end_says_only_what_comes_next() {
    let daemon = Daemon::new(&["", ""]);
    let (mut b, b_vmm) = attach(&daemon, 1);
    b.give(0, 60);
    b_vmm.kick(0);
    let mut a = PackedSender {
        base: 0x8000,
        ..PackedSender::new()
    };
    let _client = a.connect(&daemon.socket(0), &mut None);
    for number in 0..3 {
        a.send(&frame(2, 1, number));
        assert_eq!(b.receive(0), frame(2, 1, number));
    }
    until("all is used", || a.is_done());
    daemon.no_faults(0);
}
