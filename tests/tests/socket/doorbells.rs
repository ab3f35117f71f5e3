//! NICs whose tail registers are memory, over a real socket: they send and receive without a
//! register access. What is promised is counted, not timed.

use std::path::Path;
use std::time::{Duration, Instant};

use drivers::e1000::poll::{Poll, PollConfig, TxFrame};
use drivers::igb::Igb;
use drivers::{Bus, SocketBus};
use hypernic::config::HostConfig;
use hypernic::host::Host;
use intel_offsets::e1000::long as reg;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A host with one NIC whose frames come back.
fn host(dir: &tempfile::TempDir, model: &str, doorbell: &str) -> Result<Host, String> {
    let socket = dir.path().join("n.sock");
    let text = format!(
        "[[nic]]\nname = \"n\"\nmodel = \"{model}\"\nsocket-path = {socket:?}\n\
         mac = \"52:54:00:00:76:01\"\nport = \"loopback\"\ndoorbell = \"{doorbell}\"\n"
    );
    let config = HostConfig::parse("n.toml".as_ref(), &text).map_err(|e| e.to_string())?;
    Host::start(&config).map_err(|e| e.to_string())
}

fn counter(host: &Host, name: &str) -> u64 {
    let sections = host.counters();
    let of = sections.iter().find(|s| s.kind == "nic");
    let values = &of.expect("a NIC").values;
    let found = values.iter().find(|(n, _)| *n == name);
    found.unwrap_or_else(|| panic!("no counter {name}")).1
}

/// A driver with one ring each way.
trait Driver: Sized {
    const MODEL: &str;
    /// Buffers it gives back at once.
    const LOT: u64;
    /// With tails in memory, or by accesses.
    fn connect(path: &Path, memory: bool) -> Option<Self>;
    /// Sends so many frames to all, or none.
    fn send(&mut self, count: u32) -> bool;
    /// Frames that have come.
    fn receive(&mut self) -> u32;
}

const FRAME: [u8; 60] = [0xff; 60];

impl Driver for Igb {
    const MODEL: &str = "82576";
    const LOT: u64 = 16;

    fn connect(path: &Path, memory: bool) -> Option<Self> {
        Igb::connect(path, memory).ok()
    }

    fn send(&mut self, count: u32) -> bool {
        Igb::send(self, &FRAME, count).expect("it is there")
    }

    fn receive(&mut self) -> u32 {
        Igb::receive(self, FRAME.len()).expect("it is there")
    }
}

impl Driver for Poll<SocketBus> {
    const MODEL: &str = "e1000";
    const LOT: u64 = 32;

    fn connect(path: &Path, memory: bool) -> Option<Self> {
        let mut bus = SocketBus::connect(path).ok()?;
        if memory {
            bus.share_pages().expect("it shares its doorbells");
        }
        let mut nic = Poll::new(bus, &PollConfig::new()).expect("it comes up");
        // Answered after all that it has written.
        nic.driver().read(reg::STATUS as u32).expect("it is there");
        Some(nic)
    }

    fn send(&mut self, count: u32) -> bool {
        if self.room() < count {
            self.reclaim().expect("it is there");
        }
        if self.room() < count {
            return false;
        }
        let make = |_, buffer: &drivers::e1000::poll::Buffer<'_>| {
            buffer.write(0, &FRAME);
            TxFrame::plain(60)
        };
        Poll::send(self, count, make).expect("it is there") == count
    }

    fn receive(&mut self) -> u32 {
        Poll::receive(self, 256, |_| {}).expect("it is there")
    }
}

/// `count` frames there and back, a few at a time.
fn stream(nic: &mut impl Driver, count: u32) {
    let (mut sent, mut came) = (0, 0);
    let until = Instant::now() + PATIENCE;
    while came < count {
        assert!(Instant::now() < until, "{came} of {sent} came");
        let some = (count - sent).min(8);
        if some > 0 && sent - came < 128 && nic.send(some) {
            sent += some;
        }
        came += nic.receive();
        std::thread::yield_now();
    }
    assert_eq!(came, count);
}

fn frames_go_both_ways<D: Driver>() {
    let dir = tempfile::tempdir().expect("directory");
    let socket = dir.path().join("n.sock");
    let host = host(&dir, D::MODEL, "page").expect("host starts");
    let mut nic = D::connect(&socket, true).expect("it comes up");
    let accesses = |host: &Host| counter(host, "region_writes") + counter(host, "region_reads");
    let before = (accesses(&host), counter(&host, "doorbells"));
    stream(&mut nic, 20_000);
    assert_eq!(accesses(&host), before.0);
    let rung = counter(&host, "doorbells") - before.1;
    assert!(
        rung > 0 && rung <= 20_000 / 8 + 20_000 / D::LOT + 1,
        "{rung} times rung"
    );
    assert_eq!(counter(&host, "tx_frames"), 20_000);
    // After a rest it is heard as well.
    for _ in 0..5 {
        std::thread::sleep(Duration::from_millis(40));
        stream(&mut nic, 1);
    }
    // The next one that comes finds the NIC as it is, and may do without memory.
    drop(nic);
    let mut next = None;
    let until = Instant::now() + PATIENCE;
    while next.is_none() {
        assert!(Instant::now() < until, "the first never left");
        next = D::connect(&socket, false);
    }
    let mut next = next.expect("it comes up");
    let rung = counter(&host, "doorbells");
    stream(&mut next, 1000);
    assert_eq!(counter(&host, "doorbells"), rung);
    host.stop();
}

#[test]
fn frames_go_both_ways_without_a_register_access() {
    frames_go_both_ways::<Igb>();
}

#[test]
fn an_82540em_sends_and_receives_without_a_register_access() {
    frames_go_both_ways::<Poll<SocketBus>>();
}

/// More frames are under way than the ring has buffers, and those come back in memory.
fn a_short_receiver_loses_no_frame<D: Driver>() {
    let dir = tempfile::tempdir().expect("directory");
    let host = host(&dir, D::MODEL, "page").expect("host starts");
    let mut nic = D::connect(&dir.path().join("n.sock"), true).expect("it comes up");
    let (mut sent, mut came) = (0, 0);
    let until = Instant::now() + PATIENCE;
    // Twice what the ring has.
    while came < 20_000 {
        assert!(Instant::now() < until, "{came} of {sent} came");
        if sent - came < 512 && sent < 20_000 && nic.send(32) {
            sent += 32;
        }
        came += nic.receive();
    }
    assert_eq!(counter(&host, "rx_frames"), 20_000);
    host.stop();
}

#[test]
fn a_receiver_that_is_short_of_buffers_loses_no_frame_of_its_own_stream() {
    a_short_receiver_loses_no_frame::<Igb>();
}

#[test]
fn an_82540em_that_is_short_of_buffers_loses_no_frame_of_its_own_stream() {
    a_short_receiver_loses_no_frame::<Poll<SocketBus>>();
}

/// One access of the guest: a store where its registers are memory, or a message.
#[derive(Clone, Debug)]
struct Step {
    register: u32,
    value: u32,
    /// Even so by a message: some of its bytes, and to the register's second address if it has one.
    by_message: Option<(usize, bool)>,
}

fn steps(registers: Vec<u32>) -> impl Strategy<Value = Vec<Step>> {
    let value = prop_oneof![any::<u32>(), 0u32..16, Just(u32::MAX), Just(1u32 << 31)];
    let by_message = prop::option::weighted(
        0.3,
        (prop::sample::select(vec![1usize, 2, 4]), any::<bool>()),
    );
    let step = (prop::sample::select(registers), value, by_message);
    let step = step.prop_map(|(register, value, by_message)| Step {
        register,
        value,
        by_message,
    });
    prop::collection::vec(step, 1..40)
}

/// Where the 82542 had a register (manual 13.4).
fn second(register: u64) -> u64 {
    match register {
        reg::RDBAL => 0x110,
        reg::RDLEN => 0x118,
        reg::RDT => 0x128,
        reg::TDBAL => 0x420,
        reg::TDLEN => 0x428,
        reg::TDT => 0x438,
        other => other,
    }
}

/// All registers of both pages, rings off: whatever is written, in memory, by message, in part or to a second address, both NICs end
/// up with the same, and the memory with it.
#[test]
fn an_82540ems_pages_say_what_accesses_say() {
    let nics = ["page", "trap"].map(|how| {
        let dir = tempfile::tempdir().expect("directory");
        let host = host(&dir, "e1000", how).expect("host starts");
        let mut bus = SocketBus::connect(dir.path().join("n.sock")).expect("it is there");
        assert_eq!(bus.share_pages().is_ok(), how == "page");
        (dir, host, bus)
    });
    let layout = registry::MODELS.usual("e1000", [2, 0, 0, 0, 0, 1]);
    let layout = layout.expect("it is made").control.doorbells();
    let registers: Vec<u32> = layout.expect("it has pages").registers().collect();
    let mut runner = TestRunner::new(Config::with_cases(64));
    let [(_a, paged, page), (_b, trapped, trap)] = nics;
    let buses = std::cell::RefCell::new([page, trap]);
    let run = |steps: Vec<Step>| {
        let mut buses = buses.borrow_mut();
        for bus in buses.iter_mut() {
            bus.bus_reset().expect("it is there");
            for step in &steps {
                let at = u64::from(step.register);
                let bytes = step.value.to_le_bytes();
                match step.by_message {
                    None => bus.bar_write(0, at, &bytes),
                    Some((len, elsewhere)) => {
                        let at = if elsewhere { second(at) } else { at };
                        let client = bus.client();
                        client
                            .region_write(0, at, &bytes[..len])
                            .map_err(Into::into)
                    }
                }
                .expect("it is there");
            }
        }
        for &at in &registers {
            let read = |bus: &mut SocketBus| bus.client().read_u32(0, at.into());
            let [page, trap] = &mut *buses;
            let (told, mapped) = (read(page).expect("there"), page.read32(at).expect("there"));
            prop_assert_eq!(told, read(trap).expect("there"), "{:#x}", at);
            prop_assert_eq!(mapped, told, "{:#x} in memory", at);
        }
        Ok(())
    };
    runner
        .run(&steps(registers.clone()), run)
        .expect("the same");
    drop(buses);
    assert!(counter(&paged, "doorbell_page_writes") > 0);
    assert_eq!(counter(&trapped, "doorbell_page_writes"), 0);
    paged.stop();
    trapped.stop();
}

#[test]
fn a_nic_without_doorbells_for_memory_says_so() {
    let dir = tempfile::tempdir().expect("directory");
    let refused = host(&dir, "r8168", "page").map(drop).expect_err("refused");
    assert!(refused.contains("doorbell = \"trap\""), "{refused}");
    let both = host(&dir, "e1000", "page\"\ncsb = true\n#\"");
    let both = both.map(drop).expect_err("refused");
    assert!(both.contains("exclude each other"), "{both}");
    let words = host(&dir, "e1000", "shout").map(drop).expect_err("refused");
    assert!(words.contains("trap or page"), "{words}");
    host(&dir, "e1000", "trap").expect("host starts").stop();
}
