//! Two guests whose tails are in doorbell pages, each behind a real vfio-user server and its client: what a page costs lies partly
//! there. The servers are driven by one thread, as a worker drives them that has found a doorbell rung.

mod line;

use std::os::fd::OwnedFd;
use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;

use guest_mem::Prot;
use intel_offsets::e1000::long::{CTRL, RAL, RCTL, TCTL};
use intel_offsets::igb::legacy::long::{RDBAL, TDBAL};
use intel_offsets::igb::queue::long::{BASE, LEN, SRRCTL, TAIL, XDCTL};
use model::{Control, Env, Nic, PciState, Progress, Receive, ResetKind, Transmit};
use model_testkit::Silent;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use vale::{Keeper, PortConfig, Switch, SwitchConfig, SwitchPort};
#[cfg(test)]
use vfio_user::Lifeline;
use vfio_user::codec::region;
use vfio_user::pci::ConfigEvent;
use vfio_user::{
    Client, ClientOptions, Device, DeviceDescription, Listener, ResetCause, Server, SharedMem, Work,
};

use self::line::Line;
use super::{
    BUFFERS, DEXT, ENABLE, EOP, IFCS, NicSink, RAM, RS, RX_RING, RealTime, TX_RING, frame, mac,
};
use crate::spec::Spec;

/// Bytes of a buffer.
const STRIDE: u64 = 2048;
/// Messages answered in one turn, as in the daemon.
const MESSAGES: usize = 1024;

/// What the guests have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chip {
    /// An 82540EM: one queue in either direction.
    E1000,
    /// An 82576: four queues of each direction on the pages, of which one is used.
    Igb,
}

/// A model as the server's device.
struct Board {
    control: Box<dyn Control>,
    transmit: Box<dyn Transmit>,
    receive: Arc<dyn Receive>,
    env: Env,
    port: Arc<SwitchPort>,
    pci: PciState,
}

impl Device for Board {
    fn bar_read(&mut self, bar: u8, offset: u64, data: &mut [u8]) {
        self.control.read(&self.env, bar, offset, data);
    }

    fn bar_write(&mut self, bar: u8, offset: u64, data: &[u8]) {
        self.control.write(&self.env, bar, offset, data);
    }

    fn config_event(&mut self, event: ConfigEvent) {
        if let ConfigEvent::Command { master, .. } = event {
            self.pci.bus_master = master;
            self.control.pci(&self.env, self.pci);
        }
    }

    fn reset(&mut self, why: ResetCause) {
        let kind = match why {
            ResetCause::PowerUp => ResetKind::PowerUp,
            _ => ResetKind::Bus,
        };
        self.control.reset(&self.env, kind);
    }

    fn has_changed(&mut self) -> bool {
        self.control.take_changed()
    }

    fn state(&mut self) -> Option<Vec<u8>> {
        Some(self.control.save(&self.env))
    }

    fn settled(&mut self) {
        self.control.settled();
    }

    fn work(&mut self) -> Work {
        let noted = self.control.take_work();
        if noted.rx {
            self.receive.poll(&self.env);
        }
        if !noted.tx {
            return Work::Idle;
        }
        let run = |board: &mut Self| {
            let (env, to) = (&board.env, &*board.port);
            board.transmit.run(env, to, frame::MAX_BATCH)
        };
        while run(self) == Progress::More {}
        Work::Idle
    }
}

/// What a driver has of its NIC.
struct Driver {
    /// Held: without it the server has no client.
    client: Client,
    /// Pages of registers that are memory, by their offset.
    pages: Vec<(u64, SharedMem)>,
    ram: SharedMem,
}

impl Driver {
    fn connect(socket: OwnedFd, len: usize) -> Driver {
        let options = ClientOptions {
            timeout: Duration::from_secs(600),
            ..ClientOptions::default()
        };
        let mut client = Client::open(socket, options).expect("a socket");
        client.negotiate().expect("a version");
        let registers = client.region_info(0).expect("registers");
        let map = |area| registers.map(area).expect("a page");
        let pages = registers.areas.iter().map(|area| (area.offset, map(area)));
        let pages: Vec<_> = pages.collect();
        assert!(!pages.is_empty(), "it has doorbell pages");
        let ram = SharedMem::new("ram", len).expect("memory");
        let mapped = client.dma_map(RAM, &ram, 0, len as u64, Prot::RW);
        mapped.expect("it is mapped");
        // COMMAND: memory and bus mastering.
        let on = client.region_write(region::CONFIG, 4, &[6, 0]);
        on.expect("it is on");
        Driver { client, pages, ram }
    }

    /// Stores a register where it is memory, and sends a message where not.
    #[inline]
    fn write(&mut self, at: u64, value: u32) {
        for (page, memory) in &self.pages {
            if let Some(offset) = at.checked_sub(*page)
                && offset < memory.len() as u64
            {
                memory.store_u32(offset as usize, value, Ordering::Release);
                return;
            }
        }
        self.client.post_u32(0, at, value).expect("it is there");
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        self.ram.write((at - RAM) as usize, bytes);
    }

    /// Has the NIC do all that was said.
    fn is_heard(&mut self) {
        self.client.read_u32(0, CTRL).expect("it answers");
    }

    fn set_up(&mut self, number: u16, chip: Chip, ring: u32) {
        let address = mac(number);
        let low = u32::from_le_bytes([address[0], address[1], address[2], address[3]]);
        let high = u32::from_le_bytes([address[4], address[5], 0, 0x80]);
        self.write(CTRL, 1 << 6);
        self.write(RAL, low);
        self.write(RAL + 4, high);
        for (queue, at) in [(RDBAL, RX_RING), (TDBAL, TX_RING)] {
            self.write(queue + BASE, at as u32);
            self.write(queue + LEN, ring * 16);
        }
        if chip == Chip::Igb {
            self.write(RDBAL + SRRCTL, 1 << 25 | 2);
            self.write(RDBAL + XDCTL, ENABLE);
            self.write(TDBAL + XDCTL, ENABLE);
        }
        self.is_heard();
        self.write(RDBAL + TAIL, ring - 1);
        // EN, BAM, SECRC.
        self.write(RCTL, 1 << 1 | 1 << 15 | 1 << 26);
        self.write(TCTL, 1 << 1 | 1 << 3);
        self.is_heard();
    }

    /// Puts frames for `to` into the whole transmit ring.
    fn load(&self, (from, to): (u16, u16), chip: Chip, spec: &Spec) {
        let bytes = frame(from, to, spec.size, spec);
        for i in 0..u64::from(spec.ring) {
            let at = BUFFERS + i * STRIDE;
            self.put(at, &bytes);
            let len = spec.size as u64;
            let kind = match chip {
                Chip::E1000 => 0,
                Chip::Igb => 3 << 20 | DEXT | len << 46,
            };
            let desc = [at, len | EOP | IFCS | RS | kind];
            self.put(TX_RING + i * 16, &desc.map(u64::to_le_bytes).concat());
        }
    }
}

/// A guest, its NIC and its server.
struct Guest {
    server: Server,
    board: Board,
    driver: Driver,
    /// The receive ring as it is given to the device.
    given: Vec<u8>,
    tail: u32,
    room: u32,
    /// What outlives a worker of the heads; nothing without a keeper.
    #[cfg(test)]
    heads: &'static [AtomicU64],
}

fn model(chip: Chip, number: u16) -> Nic {
    match chip {
        Chip::E1000 => {
            let mut config = e1000::Config::new(mac(number));
            config.negotiation = Duration::ZERO;
            e1000::new(config)
        }
        Chip::Igb => {
            let mut config = igb::Config::new(mac(number));
            config.negotiation = Duration::ZERO;
            igb::pf(&config)
        }
    }
}

impl Guest {
    fn new(switch: &Switch, (number, to): (u16, u16), chip: Chip, spec: &Spec) -> Guest {
        let nic = model(chip, number);
        let pages = nic.control.doorbells().expect("it can have pages");
        let description = DeviceDescription::from_config(nic.identity.config()).doorbells(pages);
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .expect("sockets");
        let listener = Listener::from_connected(ours);
        let mut server = Server::new(description, listener).expect("a server");
        let env = Env {
            memory: server.memory(),
            irq: Arc::new(Silent),
            clock: Arc::new(RealTime::begin()),
            timer: Arc::new(Silent),
        };
        let mut control = nic.control;
        #[cfg(test)]
        let mut heads: &[AtomicU64] = &[];
        if spec.kept {
            let line = Line::new();
            #[cfg(test)]
            {
                heads = line.heads();
            }
            assert!(control.keep(line.words()), "it can");
            server.keep_files();
            server.hold_on(Box::new(line));
        }
        let sink = NicSink {
            receive: Arc::clone(&nic.receive),
            env: env.clone(),
        };
        let port = switch
            .attach(&format!("n{number}"), Arc::new(sink), PortConfig::default())
            .expect("a free port");
        let mut board = Board {
            control,
            transmit: nic.transmit,
            receive: nic.receive,
            env,
            port,
            pci: PciState::default(),
        };
        let ring = u64::from(spec.ring);
        let len = (BUFFERS - RAM + 2 * ring * STRIDE) as usize;
        let buffers = (0..ring).map(|i| u128::from(BUFFERS + (ring + i) * STRIDE));
        let given: Vec<u8> = buffers.flat_map(u128::to_le_bytes).collect();
        let driver = served(&mut server, &mut board, || {
            let mut driver = Driver::connect(theirs, len);
            driver.put(RX_RING, &given);
            driver.load((number, to), chip, spec);
            driver.set_up(number, chip, spec.ring);
            driver
        });
        Guest {
            server,
            board,
            driver,
            given,
            tail: 0,
            room: spec.ring - 1,
            #[cfg(test)]
            heads,
        }
    }

    /// A turn, and what it leaves.
    fn turn(&mut self) {
        let board = &mut self.board;
        while self.server.process(board, MESSAGES).expect("serves").more {}
    }

    /// Sends the next `n` of its frames.
    fn send(&mut self, n: u32, ring: u32) {
        self.tail = (self.tail + n) % ring;
        self.driver.write(TDBAL + TAIL, self.tail);
        self.turn();
    }

    /// Gives so many buffers back.
    fn give(&mut self, chip: Chip, n: u32, ring: u32) {
        if chip == Chip::Igb {
            // What is written back stands where the address was.
            let first = (self.room + 1) % ring;
            let straight = n.min(ring - first);
            for (from, n) in [(first, straight), (0, n - straight)] {
                let bytes = from as usize * 16..(from + n) as usize * 16;
                let at = RX_RING + bytes.start as u64;
                self.driver.put(at, &self.given[bytes]);
            }
        }
        self.room = (self.room + n) % ring;
        self.driver.write(RDBAL + TAIL, self.room);
        self.turn();
    }

    #[cfg(test)]
    fn counter(&self, name: &str) -> u64 {
        model_testkit::counter(|visit| self.server.counters(visit), name)
    }
}

/// Has a driver talk to a NIC that is served meanwhile.
fn served<T: Send>(server: &mut Server, board: &mut Board, talk: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let talks = scope.spawn(talk);
        while !talks.is_finished() {
            server.process(board, MESSAGES).expect("serves");
            std::thread::yield_now();
        }
        talks.join().expect("a driver that is served")
    })
}

/// Two guests on a switch.
pub struct PagedPair {
    chip: Chip,
    ring: u32,
    burst: u32,
    from: Guest,
    to: Guest,
    clock: RealTime,
    _keeper: Keeper,
}

impl PagedPair {
    /// What valgrind is to count, and nothing else: what sets up takes now more and now less.
    pub const COUNTED: &str = "*PagedPair*counted_bursts*";

    /// Sets everything up and has the switch learn both addresses.
    ///
    /// # Panics
    /// When the machine has no memory, thread or descriptor left.
    pub fn new(chip: Chip, spec: Spec) -> PagedPair {
        let clock = RealTime::begin();
        let switch = Switch::new(SwitchConfig::default(), clock.of_turns());
        let keeper = Keeper::start(&switch).expect("a thread");
        let from = Guest::new(&switch, (1, 2), chip, &spec);
        let mut to = Guest::new(&switch, (2, 1), chip, &spec);
        to.send(1, spec.ring);
        let mut pair = PagedPair {
            chip,
            ring: spec.ring,
            burst: spec.burst(),
            from,
            to,
            clock,
            _keeper: keeper,
        };
        for _ in 0..2 * spec.ring {
            pair.burst();
        }
        pair
    }

    /// So many bursts: what is counted.
    #[inline(never)]
    pub fn counted_bursts(&mut self, bursts: u32) {
        for _ in 0..bursts {
            self.burst();
        }
    }

    /// One store of either tail and one turn of either NIC: the sender hands over a burst, the receiver gives as many buffers back.
    #[inline(never)]
    fn burst(&mut self) {
        let (chip, ring, burst) = (self.chip, self.ring, self.burst);
        let (from, to) = (&mut self.from, &mut self.to);
        self.clock.in_turn(|| from.send(burst, ring));
        self.clock.in_turn(|| to.give(chip, burst, ring));
    }

    /// Frames that have arrived so far.
    pub fn arrived(&self) -> u64 {
        model_testkit::counter(|visit| self.to.board.control.counters(visit), "rx_frames")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_sent_arrives_and_no_tail_is_a_message() {
        for chip in [Chip::E1000, Chip::Igb] {
            for (size, burst) in [(60, 1), (60, 32), (1514, 32), (60, 128)] {
                let plain = Spec::frames(size, 256, burst);
                for spec in [plain, plain.kept()] {
                    let mut pair = PagedPair::new(chip, spec);
                    let messages = |pair: &PagedPair| {
                        [&pair.from, &pair.to].map(|guest| guest.counter("messages"))
                    };
                    let (before, said) = (pair.arrived(), messages(&pair));
                    let rung = pair.from.counter("doorbells");
                    pair.counted_bursts(50);
                    let arrived = pair.arrived() - before;
                    assert_eq!(arrived, 50 * u64::from(burst), "{chip:?} {spec:?}");
                    assert_eq!(messages(&pair), said);
                    assert_eq!(pair.from.counter("doorbells") - rung, 50);
                    let noted = |guest: &Guest| {
                        guest
                            .heads
                            .iter()
                            .any(|head| head.load(Ordering::Relaxed) != 0)
                    };
                    assert_eq!([&pair.from, &pair.to].map(noted), [spec.kept; 2]);
                }
            }
        }
    }
}
