//! The whole path over real sockets, shared memory and eventfds: driver, vfio-user, host loop,
//! 82540EM, switch, and back to another driver.

use std::time::{Duration, Instant};

use drivers::e1000::regs::{self, cause};
use drivers::e1000::{Config, Driver, RxSums, TxOffload, TxOpts};
use drivers::{Bus, SocketBus};
use hypernic::config::HostConfig;
use hypernic::host::Host;

type Nic = Driver<SocketBus>;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A host with one switch and NICs 1 to `count` on it.
struct Lan {
    host: Host,
    dir: tempfile::TempDir,
}

fn mac(n: u8) -> [u8; 6] {
    [0x52, 0x54, 0, 0, 0x77, n]
}

impl Lan {
    fn new(count: u8) -> Self {
        let dir = tempfile::tempdir().expect("directory");
        let mut text = String::from("[[switch]]\nname = \"lan\"\n");
        for n in 1..=count {
            let socket = dir.path().join(format!("n{n}.sock"));
            text += &format!(
                "[[nic]]\nname = \"n{n}\"\nmodel = \"e1000\"\nsocket-path = {socket:?}\n\
                 mac = \"52:54:00:00:77:{n:02x}\"\nport = \"switch:lan\"\n"
            );
        }
        let config = HostConfig::parse("lan.toml".as_ref(), &text).expect("configuration");
        let host = Host::start(&config).expect("host starts");
        Self { host, dir }
    }

    /// Connects; a server may need a moment to see that its last client has gone.
    fn bus(&self, n: u8) -> SocketBus {
        let path = self.dir.path().join(format!("n{n}.sock"));
        let until = Instant::now() + PATIENCE;
        loop {
            match SocketBus::connect(&path) {
                Ok(bus) => return bus,
                Err(error) => assert!(Instant::now() < until, "NIC {n}: {error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Every counter that is not zero, to look at when something has failed.
    fn counters(&self) -> String {
        let mut text = String::new();
        for section in self.host.counters() {
            text += &format!("\n{} {}:", section.kind, section.name);
            for (name, value) in section.values.iter().filter(|(_, value)| *value != 0) {
                text += &format!(" {name}={value}");
            }
        }
        text
    }

    fn driver(&self, n: u8, config: Config) -> Nic {
        Driver::new(self.bus(n), config).expect("driver comes up")
    }
}

fn frame(to: [u8; 6], from: [u8; 6], len: usize, number: u32) -> Vec<u8> {
    let mut frame = vec![number as u8; len];
    frame[0..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&from);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame[14..18].copy_from_slice(&number.to_be_bytes());
    frame
}

/// Polls until `wanted` says it has seen what it wants.
fn poll_until(driver: &mut Nic, mut wanted: impl FnMut(&[u8]) -> bool) {
    let until = Instant::now() + PATIENCE;
    let mut seen = false;
    while !seen {
        assert!(Instant::now() < until, "the frame did not come");
        driver
            .poll_rx(64, |got| seen |= wanted(&got.to_vec()))
            .expect("poll");
        driver.refill_rx().expect("refill");
        std::thread::yield_now();
    }
}

/// One frame from here to there.
fn pass(from: &mut Nic, to: &mut Nic, number: u32) {
    let one = frame(to.mac(), from.mac(), 100, number);
    assert_eq!(from.send(&[&one], &TxOpts::default()).expect("send"), 1);
    poll_until(to, |got| got == one);
    from.reclaim().expect("reclaim");
}

fn exchange(a: &mut Nic, b: &mut Nic, number: u32) {
    pass(a, b, number);
    pass(b, a, number);
}

#[test]
fn two_drivers_talk_by_interrupt() {
    let lan = Lan::new(2);
    let mut a = lan.driver(1, Config::linux());
    let mut b = lan.driver(2, Config::linux());
    assert_eq!((a.mac(), b.mac()), (mac(1), mac(2)));
    for number in 0..500u32 {
        let len = 60 + number as usize * 2;
        let request = frame(mac(2), mac(1), len, number);
        a.send(&[&request], &TxOpts::default()).expect("send");
        let mut got = None;
        while got.is_none() {
            b.service(PATIENCE, |one| got = Some(one.to_vec()))
                .expect("service")
                .expect("an interrupt");
        }
        assert_eq!(got, Some(request));
        let reply = frame(mac(1), mac(2), len, !number);
        b.send(&[&reply], &TxOpts::default()).expect("send");
        let mut got = None;
        while got.is_none() {
            a.service(PATIENCE, |one| got = Some(one.to_vec()))
                .expect("service")
                .expect("an interrupt");
        }
        assert_eq!(got, Some(reply));
    }
    a.shutdown().expect("shutdown");
    b.shutdown().expect("shutdown");
    lan.host.stop();
}

#[test]
fn a_cause_raised_while_masked_gives_one_interrupt_on_unmask() {
    let lan = Lan::new(2);
    let mut a = lan.driver(1, Config::poll());
    let mut b = lan.driver(2, Config::poll());
    let one = frame(mac(2), mac(1), 60, 0);
    a.send(&[&one], &TxOpts::default()).expect("send");
    poll_until(&mut b, |got| got == one);
    let no_time = Duration::from_millis(20);
    assert!(!b.bus_mut().wait_irq(no_time).expect("wait"));
    b.write(regs::IMS, cause::USUAL).expect("write");
    assert!(b.bus_mut().wait_irq(PATIENCE).expect("wait"));
    // Unread and not unmasked, however many frames come.
    for number in 1..50 {
        let one = frame(mac(2), mac(1), 60, number);
        a.send(&[&one], &TxOpts::default()).expect("send");
        poll_until(&mut b, |got| got == one);
    }
    assert!(!b.bus_mut().wait_irq(no_time).expect("wait"));
    // Unmasked and still unread: again. Read: never more.
    b.bus_mut().unmask_irq().expect("unmask");
    assert!(b.bus_mut().wait_irq(PATIENCE).expect("wait"));
    let causes = b.read(regs::ICR).expect("read");
    assert_eq!(causes & cause::RXT0, cause::RXT0);
    b.bus_mut().unmask_irq().expect("unmask");
    assert!(!b.bus_mut().wait_irq(no_time).expect("wait"));
}

#[test]
fn nothing_is_lost_doubled_or_reordered_within_the_window() {
    const FRAMES: u32 = 100_000;
    /// Less than the receiver's ring.
    const WINDOW: u32 = 512;
    let lan = Lan::new(2);
    let mut a = lan.driver(1, Config::poll());
    let mut b = lan.driver(2, Config::poll());
    // The switch learns where b is, so that nothing is flooded.
    exchange(&mut a, &mut b, 0);
    a.fill_buffers(&frame(mac(2), mac(1), 60, 0)).expect("fill");
    let (mut sent, mut got, mut given_back) = (0u32, 0u32, 0u32);
    let until = Instant::now() + PATIENCE;
    while got < FRAMES {
        if Instant::now() > until {
            let ring = |driver: &mut Nic, head, tail| {
                [head, tail].map(|register| driver.read(register).expect("read"))
            };
            let a = ring(&mut a, regs::TDH, regs::TDT);
            let b = ring(&mut b, regs::RDH, regs::RDT);
            panic!("{got} of {sent} came; {a:?} -> {b:?}{}", lan.counters());
        }
        let room = (WINDOW - (sent - given_back)).min(64).min(FRAMES - sent);
        let queued = a
            .queue_in_place(room as usize, 60, |n, addr, view| {
                let number = sent + n as u32;
                Ok(view.write(addr + 14, &number.to_be_bytes())?)
            })
            .expect("queue");
        sent += queued as u32;
        a.kick().expect("kick");
        b.poll_rx(64, |one| {
            let mut number = [0; 4];
            one.copy_to(14, &mut number).expect("copy");
            assert_eq!(u32::from_be_bytes(number), got);
            got += 1;
        })
        .expect("poll");
        if got - given_back >= WINDOW / 4 || got == sent {
            // Writes are posted: once a read is answered, the device knows of its buffers.
            b.read(regs::STATUS).expect("read");
            given_back = got;
        }
    }
    b.update_statistics().expect("read");
    assert_eq!(b.statistic("mpc"), Some(0));
}

#[test]
fn segments_cross_the_switch_with_good_sums() {
    let lan = Lan::new(2);
    let config = Config {
        rx_sums: true,
        ..Config::poll()
    };
    let mut a = lan.driver(1, config.clone());
    let mut b = lan.driver(2, config);
    exchange(&mut a, &mut b, 0);
    for len in [100usize, 1448, 1449, 10_000, 64_000] {
        let payload: Vec<u8> = (0..len).map(|i| (i * i / 7) as u8).collect();
        let builder = etherparse::PacketBuilder::ethernet2(mac(1), mac(2))
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .tcp(1, 2, 77, 4096);
        let mut whole = Vec::new();
        builder.write(&mut whole, &payload).expect("frame");
        let opts = TxOpts {
            offload: TxOffload::Tso { mss: 1448 },
            ..TxOpts::default()
        };
        a.send(&[&whole], &opts).expect("send");
        let mut joined = Vec::new();
        let until = Instant::now() + PATIENCE;
        while joined.len() < len {
            assert!(Instant::now() < until, "{} of {len} bytes", joined.len());
            b.poll_rx(64, |one| {
                assert_eq!(one.sums(), RxSums::Good { ip: true, l4: true });
                let bytes = one.to_vec();
                let total = 14 + usize::from(u16::from_be_bytes([bytes[16], bytes[17]]));
                joined.extend_from_slice(&bytes[54..total]);
            })
            .expect("poll");
            b.refill_rx().expect("refill");
        }
        assert!(joined == payload, "payload differs");
        a.reclaim().expect("reclaim");
    }
}

#[test]
fn the_next_client_finds_the_nic_usable_whatever_the_last_left() {
    let lan = Lan::new(2);
    let mut b = lan.driver(2, Config::poll());
    for number in 0..20 {
        let mut a = lan.driver(1, Config::poll());
        exchange(&mut a, &mut b, number);
        // Gone in the middle of sending, with everything enabled.
        let one = frame(mac(2), mac(1), 1514, number);
        let refs = vec![one.as_slice(); 200];
        a.send(&refs, &TxOpts::default()).expect("send");
        drop(a);
    }
}
