//! Guests with an RTL8168C whose daemon's worker is killed at any instruction.

use std::sync::atomic::{Ordering, fence};

use csb::at;
use drivers::{Bus, Dma, SocketBus};
use hypernic_tests::scratch;

use crate::cli_crash::Lives;
use crate::cli_crash_igb::{Nic, ends};

/// Where registers are.
const BAR: u8 = 2;
const TX_RING: u64 = 0x20;
const CR: u64 = 0x37;
const TX_POLL: u64 = 0x38;
const ISR: u64 = 0x3e;
const RCR: u64 = 0x44;
const RX_RING: u64 = 0xe4;
const CSBAL: u64 = 0xa0;
const CSBAH: u64 = 0xa4;
const RX_KICK: u64 = 0xa8;

const OWN: u32 = 1 << 31;
const EOR: u32 = 1 << 30;
const BOTH: u32 = 3 << 28;
const SOFTWARE: u16 = 1 << 8;

/// Descriptors of a ring, and bytes of a buffer.
const RING: u32 = 64;
const BUFFER: u64 = 2048;

/// Descriptors and buffers of one direction.
struct Ring {
    descs: Dma,
    buffers: Dma,
    next: u32,
}

impl Ring {
    fn new(bus: &mut SocketBus) -> Self {
        let descs = bus.alloc(u64::from(RING) * 16).expect("memory");
        let buffers = bus.alloc(u64::from(RING) * BUFFER).expect("memory");
        Ring {
            descs,
            buffers,
            next: 0,
        }
    }

    fn buffer(&self, at: u32) -> u64 {
        self.buffers.iova + u64::from(at) * BUFFER
    }

    fn opts(&self, bus: &mut SocketBus, at: u32) -> u32 {
        let mut word = [0; 8];
        let from = self.descs.iova + u64::from(at) * 16;
        bus.dma_read(from, &mut word).expect("mapped");
        u64::from_le_bytes(word) as u32
    }

    /// Gives a descriptor to the chip.
    fn give(&self, bus: &mut SocketBus, at: u32, opts1: u32) {
        let desc = self.descs.iova + u64::from(at) * 16;
        let end = if at + 1 == RING { EOR } else { 0 };
        let mut put = |at: u64, bytes: &[u8]| bus.dma_write(at, bytes).expect("mapped");
        put(desc + 8, &self.buffer(at).to_le_bytes());
        put(desc + 4, &[0; 4]);
        put(desc, &(opts1 | end | OWN).to_le_bytes());
    }
}

/// A NIC with a small driver, which looks by itself.
pub(crate) struct Rtl {
    pub(crate) bus: SocketBus,
    mac: [u8; 6],
    tx: Ring,
    rx: Ring,
    /// The first descriptor that is not known to be sent.
    dirty: u32,
    /// Its CSB.
    page: Option<Dma>,
}

impl Rtl {
    pub(crate) fn new(mut bus: SocketBus, csb: bool) -> Self {
        // It masters the bus.
        bus.config_write(4, &[7, 0]).expect("it is there");
        let mut mac = [0; 6];
        bus.bar_read(BAR, 0, &mut mac).expect("it is there");
        let (tx, rx) = (Ring::new(&mut bus), Ring::new(&mut bus));
        (0..RING).for_each(|at| rx.give(&mut bus, at, BUFFER as u32));
        let mut write = |at: u64, bytes: &[u8]| bus.bar_write(BAR, at, bytes).expect("there");
        write(CR, &[1 << 4]);
        for (at, ring) in [(TX_RING, &tx), (RX_RING, &rx)] {
            write(at, &(ring.descs.iova as u32).to_le_bytes());
            write(at + 4, &((ring.descs.iova >> 32) as u32).to_le_bytes());
        }
        // To the own address and to all.
        write(RCR, &0xa_u32.to_le_bytes());
        write(CR, &[0xc]);
        let mut rtl = Rtl {
            bus,
            mac,
            tx,
            rx,
            dirty: 0,
            page: None,
        };
        if csb {
            let page = rtl.bus.alloc(csb::PAGE).expect("memory");
            rtl.page = Some(page);
            rtl.put(at::HOST_NEED_TXKICK, 1);
            rtl.put(at::HOST_RXKICK_AT, csb::NONE);
            rtl.put(at::GUEST_CSB_ON, 1);
            rtl.write(CSBAH, &((page.iova >> 32) as u32).to_le_bytes());
            rtl.write(CSBAL, &(page.iova as u32).to_le_bytes());
        }
        rtl
    }

    fn reclaim(&mut self) {
        while self.dirty != self.tx.next && self.tx.opts(&mut self.bus, self.dirty) & OWN == 0 {
            self.dirty = (self.dirty + 1) % RING;
        }
    }

    /// A word of the CSB.
    fn word(&mut self, at: u32) -> u32 {
        let mut word = [0; 4];
        if let Some(page) = self.page {
            let at = page.iova + u64::from(at);
            self.bus.dma_read(at, &mut word).expect("mapped");
        }
        u32::from_le_bytes(word)
    }

    fn put(&mut self, at: u32, value: u32) {
        if let Some(page) = self.page {
            let at = page.iova + u64::from(at);
            self.bus
                .dma_write(at, &value.to_le_bytes())
                .expect("mapped");
            fence(Ordering::SeqCst);
        }
    }

    /// There is something to send. The NIC may not need to be told.
    fn ring(&mut self) {
        self.put(at::GUEST_TDT, self.tx.next);
        if self.page.is_none() || self.word(at::HOST_NEED_TXKICK) != 0 {
            self.put(at::HOST_NEED_TXKICK, 0);
            self.write(TX_POLL, &[1 << 6]);
        }
    }

    /// There are buffers from this one on.
    fn gave(&mut self, from: u32) {
        self.put(at::GUEST_RDT, self.rx.next);
        let place = self.word(at::HOST_RXKICK_AT);
        if self.page.is_some() && csb::passes(from, self.rx.next, place, RING) {
            self.put(at::HOST_RXKICK_AT, csb::NONE);
            self.write(RX_KICK, &[1; 4]);
        }
    }

    fn isr(&mut self) -> u16 {
        let mut isr = [0; 2];
        self.bus.bar_read(BAR, ISR, &mut isr).expect("it is there");
        u16::from_le_bytes(isr)
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        self.bus.bar_write(BAR, at, bytes).expect("it is there");
    }
}

impl Nic for Rtl {
    fn mac(&self) -> [u8; 6] {
        self.mac
    }

    fn send(&mut self, frames: &[Vec<u8>]) -> usize {
        self.reclaim();
        let used = (self.tx.next + RING - self.dirty) % RING;
        let room = (RING - 1 - used) as usize;
        let frames = &frames[..frames.len().min(room)];
        for frame in frames {
            let at = self.tx.next;
            let to = self.tx.buffer(at);
            self.bus.dma_write(to, frame).expect("mapped");
            self.tx.give(&mut self.bus, at, BOTH | frame.len() as u32);
            self.tx.next = (at + 1) % RING;
        }
        if !frames.is_empty() {
            self.ring();
        }
        frames.len()
    }

    fn receive(&mut self) -> Vec<Vec<u8>> {
        let mut came = Vec::new();
        let from = self.rx.next;
        loop {
            let at = self.rx.next;
            let opts = self.rx.opts(&mut self.bus, at);
            if opts & OWN != 0 {
                break;
            }
            assert_eq!(opts & BOTH, BOTH, "a frame is in one buffer");
            // Without the FCS.
            let mut frame = vec![0; (opts & 0x3fff) as usize - 4];
            let place = self.rx.buffer(at);
            self.bus.dma_read(place, &mut frame).expect("mapped");
            came.push(frame);
            self.rx.give(&mut self.bus, at, BUFFER as u32);
            self.rx.next = (at + 1) % RING;
        }
        if !came.is_empty() {
            // It has been seen, and frames that wait find buffers.
            self.write(ISR, &0xff_u16.to_le_bytes());
            self.gave(from);
        }
        came
    }

    fn all_sent(&mut self) -> bool {
        self.reclaim();
        self.dirty == self.tx.next
    }

    fn ask(&mut self) {
        // An interrupt that the driver asks for and then acknowledges: once.
        assert_eq!(self.isr() & SOFTWARE, 0, "it was acknowledged");
        self.write(TX_POLL, &[1]);
        assert_ne!(self.isr() & SOFTWARE, 0, "it was asked for");
        self.write(ISR, &SOFTWARE.to_le_bytes());
    }
}

pub(crate) fn rtls((model, csb): (&str, bool), lives: &Lives) {
    let dir = scratch().unwrap();
    let names = ["n0", "n1"];
    let args = ["run", "--keeper", "--port", "switch:lan", "--model", model];
    let mut launch = lives.launch().args(args).args(csb.then_some("--csb"));
    for name in names {
        launch = launch.arg("--socket-path").arg(dir.path().join(name));
    }
    let mut daemon = launch.start().unwrap();
    let nic = |name: &str| -> Box<dyn Nic> {
        let bus = SocketBus::connect(dir.path().join(name)).unwrap();
        Box::new(Rtl::new(bus, csb))
    };
    ends(&mut daemon, names.map(nic), 2, lives);
    assert!(daemon.stop().unwrap().success());
}

#[test]
fn guests_with_an_rtl8168_go_on_whenever_the_worker_is_killed() {
    rtls(("r8168", false), &Lives::killed(8));
    rtls(("r8168h", false), &Lives::killed(2));
}

#[test]
fn guests_with_an_rtl8168_and_a_csb_go_on_whenever_the_worker_is_killed() {
    rtls(("r8168", true), &Lives::killed(8));
}

#[test]
#[ignore = "long: hundreds of kills"]
fn long_guests_with_an_rtl8168_go_on_whenever_the_worker_is_killed() {
    rtls(("r8168", false), &Lives::killed(250));
    rtls(("r8168", true), &Lives::killed(250));
}
