//! DPDK's drivers em on our 82540EM, igb on our 82576 and igb_vf on its virtual functions, driven by `dpdk-testpmd` in a guest: it polls, fills descriptors by the dozen and
//! never takes an interrupt. At the other end of a switch sits this test, on a NIC of the same daemon, and counts every
//! frame. Rates are printed, never asserted.

use std::time::{Duration, Instant};

use drivers::SocketBus;
use drivers::e1000::{Config, Driver, TxOpts};

use hypernic_tests::{Counters, Daemon, LONG, Lab, mac};
use rig::{Guest, GuestConfig};

/// Frames that may be on their way at once: far less than any ring or FIFO on it holds.
const WINDOW: usize = 64;

/// Frames a second of a sender that does not hear from its receiver.
const PACE: usize = 2000;

/// The NIC at the other end.
pub(crate) type Peer = Driver<SocketBus>;

/// What the guest gets.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Device {
    /// A NIC of this model, on the switch.
    Nic(&'static str),
    /// The same with doorbells in memory.
    Paged(&'static str),
    /// A virtio-net on the switch, with these lines of its own.
    Virtio(&'static str),
    /// The only virtual function of an 82576 that is on the switch.
    Vf,
}

impl Device {
    /// What the daemon calls it.
    fn nic(self) -> &'static str {
        match self {
            Self::Nic(_) | Self::Paged(_) | Self::Virtio(_) => "n0",
            Self::Vf => "p0vf0",
        }
    }

    /// The ports of switches on the way to it.
    fn ports(self) -> &'static [&'static str] {
        match self {
            Self::Nic(_) | Self::Paged(_) | Self::Virtio(_) => &["lan/n0"],
            Self::Vf => &["lan/p0", "p0/p0vf0"],
        }
    }

    /// Its lines in the daemon's configuration.
    fn toml(self, lab: &Lab) -> String {
        let (socket, mac) = (lab.socket("n0"), mac("n0"));
        let on_switch = |model: &str, more: &str| {
            format!(
                "[[nic]]\nname = \"n0\"\nmodel = \"{model}\"\nsocket-path = {socket:?}\nmac = \"{mac}\"\n\
                 port = \"switch:lan\"\n{more}\n"
            )
        };
        match self {
            Self::Nic(model) => on_switch(model, ""),
            Self::Paged(model) => on_switch(model, "doorbell = \"page\""),
            Self::Virtio(more) => on_switch("virtio-net", more),
            Self::Vf => format!(
                "[[nic]]\nname = \"p0\"\nmodel = \"82576\"\nvfs = 1\nvf-socket-path = {:?}\n\
                 port = \"switch:lan\"\n[[nic.vf]]\nindex = 0\nmac = \"{mac}\"\n",
                lab.path("n{}.sock")
            ),
        }
    }
}

/// What takes testpmd's commands.
pub(crate) trait Console: Send + Sync {
    /// Types a command and returns what it printed, up to the next prompt.
    fn command(&self, text: &str) -> String;
}

impl Console for Guest {
    fn command(&self, text: &str) -> String {
        self.type_text(&format!("{text}\n")).unwrap();
        self.expect_console("testpmd> ", LONG).unwrap()
    }
}

/// A guest with testpmd's prompt on its console, or testpmd itself.
pub(crate) struct TestPmd<C = Guest> {
    pub(crate) guest: C,
    pub(crate) device: Device,
}

/// What `stop` says of the port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Forwarded {
    pub(crate) received: u64,
    pub(crate) sent: u64,
}

impl TestPmd {
    fn start(lab: &Lab, on: Device, peer: [u8; 6]) -> Self {
        let guest = lab.rig.start(Self::guest(lab)).unwrap();
        let device = Self::bind(&guest, "8086");
        Self::prompt(guest, on, &format!("-a {device}"), "", peer)
    }

    /// Takes the only NIC of a vendor away from its driver; returns its place.
    pub(crate) fn bind(guest: &Guest, vendor: &str) -> String {
        let device = guest
            .run(&format!("lspci -Dn -d {vendor}::0200 | cut -d' ' -f1"))
            .unwrap();
        let device = device.trim();
        guest
            .run(&format!(
                "mp uio_pci_generic && cd /sys/bus/pci/devices/{device} && echo uio_pci_generic > driver_override && \
                 {{ [ ! -e driver ] || echo {device} > driver/unbind; }} && echo {device} > /sys/bus/pci/drivers_probe && ls /dev/uio0"
            ))
            .unwrap();
        device.to_owned()
    }

    /// A guest that has what testpmd needs.
    pub(crate) fn guest(lab: &Lab) -> GuestConfig {
        Self::guest_with(lab, lab.rig.testpmd().unwrap())
    }

    /// The same with these files.
    pub(crate) fn guest_with(lab: &Lab, files: Vec<(String, u32, Vec<u8>)>) -> GuestConfig {
        let mut config = GuestConfig::new("dpdk").nic(lab.nic("n0").rom(""));
        config.cpu = Some("max".to_owned());
        config.mem_mib = 512;
        config.files = files;
        config
    }

    /// Starts it on the NIC that `ports` names, with more options.
    pub(crate) fn prompt(
        guest: Guest,
        on: Device,
        ports: &str,
        options: &str,
        peer: [u8; 6],
    ) -> Self {
        guest
            .run(
                "chmod 755 / && mkdir -p /var/run && mkdir /dev/huge && mount -t hugetlbfs h /dev/huge && \
                 echo 64 > /proc/sys/vm/nr_hugepages && [ $(cat /proc/sys/vm/nr_hugepages) = 64 ]",
            )
            .unwrap();
        let [a, b, c, d, e, f] = peer;
        guest
            .type_text(&format!(
                "dpdk-testpmd --lcores 0@0,1@0 --in-memory --no-telemetry {ports} -- -i --nb-cores=1 --mask-event=intr_lsc \
                 --total-num-mbufs=4096 --rxd=1024 --txd=1024 {options} \
                 --eth-peer=0,{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}\n"
            ))
            .unwrap();
        let pmd = Self { guest, device: on };
        pmd.guest.expect_console("testpmd> ", LONG).unwrap();
        pmd
    }
}

impl<C: Console> TestPmd<C> {
    /// Types a command and returns what it printed, up to the next prompt.
    pub(crate) fn command(&self, text: &str) -> String {
        self.guest.command(text).replace('\r', "")
    }

    pub(crate) fn forward(&self, mode: &str) {
        self.command(&format!("set fwd {mode}"));
        let started = self.command("start");
        assert!(
            started.contains(&format!("{mode} packet forwarding")),
            "{started}"
        );
    }

    pub(crate) fn stop(&self) -> Forwarded {
        let text = self.command("stop");
        let (_, port) = text
            .split_once("Forward statistics for port 0")
            .unwrap_or_else(|| panic!("{text}"));
        let value = |name: &str| {
            let after = port.split(name).nth(1).unwrap_or_else(|| panic!("{text}"));
            after.split_whitespace().next().unwrap().parse().unwrap()
        };
        Forwarded {
            received: value("RX-packets:"),
            sent: value("TX-packets:"),
        }
    }
}

/// A daemon with two NICs on a switch and nothing else, and the test on one.
pub(crate) fn lan(lab: &Lab, device: Device) -> (Daemon, Peer) {
    let config = Config {
        rx_ring: 4096,
        ..Config::poll()
    };
    lan_with(lab, device, config)
}

/// The same with the test's NIC set up in another way.
pub(crate) fn lan_with(lab: &Lab, device: Device, config: Config) -> (Daemon, Peer) {
    let file = lab.config(&[("n1", "switch:lan")], &[]).unwrap();
    let text = std::fs::read_to_string(&file).unwrap() + &device.toml(lab);
    let daemon = Daemon::serve(&file, &text).unwrap();
    let bus = SocketBus::connect(lab.socket("n1")).unwrap();
    let mut peer = Driver::new(bus, config).unwrap();
    // The switch learns where this address is: a flooded frame waits for no receiver.
    let hello = numbered([0xff; 6], peer.mac(), 0);
    peer.send(&[&hello], &TxOpts::default()).unwrap();
    (daemon, peer)
}

/// The same with a guest on the other.
fn with_guest(lab: &Lab, device: Device) -> (Daemon, TestPmd, Peer) {
    let (daemon, peer) = lan(lab, device);
    let pmd = TestPmd::start(lab, device, peer.mac());
    (daemon, pmd, peer)
}

/// Looks at what has come until `enough`, or until nothing has come for two seconds; returns how many.
fn drain(
    daemon: &Daemon,
    peer: &mut Peer,
    mut each: impl FnMut(&[u8]),
    enough: Option<u64>,
) -> u64 {
    let (mut count, mut last) = (0, Instant::now());
    let patience = if enough.is_some() {
        LONG
    } else {
        Duration::from_secs(2)
    };
    while enough.is_none_or(|enough| count < enough) {
        let got = peer.poll_rx(256, |frame| each(&frame.to_vec())).unwrap();
        peer.refill_rx().unwrap();
        count += got as u64;
        if got > 0 {
            last = Instant::now();
        } else if last.elapsed() > patience {
            if enough.is_some() {
                panic!("only {count} frames came; {}", daemon.counters().unwrap());
            }
            break;
        } else {
            std::thread::yield_now();
        }
    }
    count
}

/// A frame of the peer for the guest's NIC: its number, and bytes that follow from it.
pub(crate) fn numbered(to: [u8; 6], from: [u8; 6], number: usize) -> Vec<u8> {
    // Every length from 60 to 1514, in no regular order.
    let length = 60 + number * 7919 % 1455;
    let mut frame = vec![number as u8; length];
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&from);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame[14..22].copy_from_slice(&(number as u64).to_be_bytes());
    frame
}

/// Every frame that testpmd sends arrives, is what it said, and is in the chip's statistics.
pub(crate) fn sends<C: Console>(
    daemon: &Daemon,
    pmd: &TestPmd<C>,
    peer: &mut Peer,
    frames: u64,
    lengths: &str,
) {
    pmd.command(&format!("set txpkts {lengths}"));
    pmd.command("clear port stats 0");
    let length: usize = lengths
        .split(',')
        .map(|n| n.parse::<usize>().unwrap())
        .sum();
    let to = peer.mac();
    let check = |frame: &[u8]| {
        assert_eq!(frame.len(), length);
        assert_eq!(frame[..6], to);
        assert_eq!(frame[12..14], [8, 0], "not IPv4");
    };
    let before = daemon.counters().unwrap();
    let start = Instant::now();
    pmd.forward("txonly");
    let mut arrived = drain(daemon, peer, check, Some(frames));
    // Its console is read by a thread of its own, so the peer goes on receiving meanwhile.
    let said = std::thread::scope(|scope| {
        let stop = scope.spawn(|| pmd.stop());
        while !stop.is_finished() {
            arrived += peer.poll_rx(256, |frame| check(&frame.to_vec())).unwrap() as u64;
            peer.refill_rx().unwrap();
        }
        stop.join().unwrap()
    });
    let rate = said.sent as f64 / start.elapsed().as_secs_f64();
    arrived += drain(daemon, peer, check, None);
    // testpmd asks the chip, which may have had more of them in its ring by then.
    let chip = pmd.command("show port stats 0");
    let sent = chip
        .split("TX-packets:")
        .nth(1)
        .unwrap_or_else(|| panic!("{chip}"));
    let sent: u64 = sent.split_whitespace().next().unwrap().parse().unwrap();
    let grown = daemon.counters().unwrap().since(&before);
    // A peer that gets no processor for long may lose some: then each is counted.
    let lost = lost(&grown, &["lan/n1"]);
    println!(
        "txonly {lengths}: {said:?}, {sent} sent, {arrived} arrived, {lost} lost, {rate:.0}/s"
    );
    assert!(said.sent <= sent, "{said:?} {chip}");
    assert_eq!(sent, arrived + lost, "{grown}");
    let nic = pmd.device.nic();
    assert_eq!(grown.nic(nic, "tx_frames"), sent, "{grown}");
}

/// Frames that a switch had for who is behind these ports, which took them neither at once nor in the time it was given.
fn lost(counters: &Counters, ports: &[&str]) -> u64 {
    let dropped = ports.iter().flat_map(|port| {
        ["drop_no_room", "drop_flood_no_room"]
            .map(|name| counters.find("switch-port", port, name).unwrap())
    });
    dropped.sum()
}

/// Every frame that is sent to testpmd at a modest pace is received by it.
pub(crate) fn receives<C: Console>(
    daemon: &Daemon,
    pmd: &TestPmd<C>,
    peer: &mut Peer,
    frames: usize,
) {
    pmd.command("clear port stats 0");
    let before = daemon.counters().unwrap();
    let guest = guest_mac();
    pmd.forward("rxonly");
    let start = Instant::now();
    let mut sent = 0;
    while sent < frames {
        let due = (start.elapsed().as_secs_f64() * PACE as f64) as usize;
        // After a pause the pace is kept, not caught up with.
        let end = due.clamp(sent, sent + WINDOW).min(frames);
        while sent < end {
            let frame = numbered(guest, peer.mac(), sent);
            sent += peer.send(&[&frame], &TxOpts::default()).unwrap();
            peer.reclaim().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let nic = pmd.device.nic();
    let arrived = |c: &Counters| c.since(&before).nic(nic, "rx_frames") == frames as u64;
    daemon
        .wait_counters("all frames are in the ring", arrived)
        .unwrap();
    let said = pmd.stop();
    println!("rxonly: {said:?} of {frames}");
    assert_eq!(said.received, frames as u64);
    let grown = daemon.counters().unwrap().since(&before);
    assert_eq!(lost(&grown, pmd.device.ports()), 0, "{grown}");
    let chip = pmd.command("show port stats 0");
    assert!(chip.contains(&format!("RX-packets: {frames} ")), "{chip}");
    assert!(chip.contains("RX-missed: 0 "), "{chip}");
}

/// Every frame that is sent to testpmd comes back from it, in order, unchanged but for its addresses.
pub(crate) fn swaps<C: Console>(daemon: &Daemon, pmd: &TestPmd<C>, peer: &mut Peer, frames: usize) {
    pmd.forward("macswap");
    let rate = come_back(daemon, peer, frames);
    let said = pmd.stop();
    println!("macswap: {said:?}, {rate:.0}/s");
    let all = frames as u64;
    assert_eq!((said.received, said.sent), (all, all));
}

/// Sends frames to the guest, which come back in order, unchanged but for their addresses; so many a second.
pub(crate) fn come_back(daemon: &Daemon, peer: &mut Peer, frames: usize) -> f64 {
    through(daemon, &mut Ends::One(peer), frames)
}

/// Every frame that is sent to the guest leaves it by another NIC, as it would come back, in order; returns how many a
/// second did.
pub(crate) fn arrive(daemon: &Daemon, near: &mut Peer, far: &mut Peer, frames: usize) -> f64 {
    through(daemon, &mut Ends::Two(near, far), frames)
}

/// Where frames for the guest are sent from, and where they come to.
enum Ends<'p> {
    One(&'p mut Peer),
    Two(&'p mut Peer, &'p mut Peer),
}

impl Ends<'_> {
    fn near(&mut self) -> &mut Peer {
        match self {
            Self::One(peer) | Self::Two(peer, _) => peer,
        }
    }

    fn far(&mut self) -> &mut Peer {
        match self {
            Self::One(peer) | Self::Two(_, peer) => peer,
        }
    }
}

fn through(daemon: &Daemon, ends: &mut Ends<'_>, frames: usize) -> f64 {
    let before = daemon.counters().unwrap();
    let (ours, guest) = (ends.near().mac(), guest_mac());
    let start = Instant::now();
    let (mut sent, mut back, mut last) = (0, 0, Instant::now());
    while back < frames {
        while sent < frames && sent - back < WINDOW {
            let frame = numbered(guest, ours, sent);
            sent += ends.near().send(&[&frame], &TxOpts::default()).unwrap();
        }
        ends.near().reclaim().unwrap();
        let old = back;
        ends.far()
            .poll_rx(WINDOW, |frame| {
                let (got, wanted) = (frame.to_vec(), numbered(ours, guest, back));
                assert!(
                    got == wanted,
                    "frame {back} changed, or came out of order: {} bytes, {:02x?}",
                    got.len(),
                    &got[..got.len().min(60)]
                );
                back += 1;
            })
            .unwrap();
        ends.far().refill_rx().unwrap();
        if back > old {
            last = Instant::now();
        } else {
            let grown = || daemon.counters().unwrap().since(&before);
            assert!(
                last.elapsed() < LONG,
                "{back} of {sent} came back\n{}",
                grown()
            );
            std::thread::yield_now();
        }
    }
    frames as f64 / start.elapsed().as_secs_f64()
}

/// The address of the guest's NIC.
pub(crate) fn guest_mac() -> [u8; 6] {
    let text = mac("n0");
    let mut bytes = text.split(':').map(|b| u8::from_str_radix(b, 16).unwrap());
    std::array::from_fn(|_| bytes.next().unwrap())
}

/// What holds after any of it: the driver polls (only a change of the link interrupts it), and did nothing that had
/// to be refused.
pub(crate) fn is_content(counters: &Counters, device: Device) {
    let nic = device.nic();
    for counter in [
        "rx_dma_fault",
        "rx_bad_ring",
        "tx_dma_fault",
        "tx_bad_ring",
        "tx_bad_desc",
        "tx_too_many_descs",
        "malformed_payload",
        "refused_bad_range",
    ] {
        assert_eq!(counters.nic(nic, counter), 0, "{counter}\n{counters}");
    }
    assert!(counters.nic(nic, "irq_triggers") <= 5, "{counters}");
}

/// A little of everything.
fn a_little(device: Device) {
    let lab = Lab::open(1).unwrap_or_else(|why| panic!("{why}"));
    let start = Instant::now();
    let (daemon, pmd, mut peer) = with_guest(&lab, device);
    println!("prompt: {:.1} s", start.elapsed().as_secs_f64());
    sends(&daemon, &pmd, &mut peer, 30_000, "64");
    receives(&daemon, &pmd, &mut peer, 6000);
    swaps(&daemon, &pmd, &mut peer, 10_000);
    let counters = daemon.counters().unwrap();
    is_content(&counters, device);
    println!("{counters}\nall: {:.1} s", start.elapsed().as_secs_f64());
}

/// Much of it.
fn millions(device: Device) {
    let lab = Lab::open(1).unwrap_or_else(|why| panic!("{why}"));
    let (daemon, pmd, mut peer) = with_guest(&lab, device);
    for lengths in ["64", "1514", "40,20,4", "64,700,750"] {
        // Several lengths are as many buffers of one frame, each with a descriptor of its own.
        sends(&daemon, &pmd, &mut peer, 500_000, lengths);
    }
    receives(&daemon, &pmd, &mut peer, 60_000);
    swaps(&daemon, &pmd, &mut peer, 500_000);
    // Stopped in full flight and started again, as often as a driver's rings go round.
    for _ in 0..20 {
        sends(&daemon, &pmd, &mut peer, 5000, "64");
        swaps(&daemon, &pmd, &mut peer, 1000);
    }
    pmd.command("port stop 0");
    pmd.command("port start 0");
    swaps(&daemon, &pmd, &mut peer, 10_000);
    is_content(&daemon.counters().unwrap(), device);
}

#[test]
fn testpmd_sends_receives_and_swaps_and_no_frame_is_lost() {
    a_little(Device::Nic("e1000"));
}

#[test]
#[ignore = "long: make test-long"]
fn long_testpmds_igb_driver_sends_receives_and_swaps_and_no_frame_is_lost() {
    a_little(Device::Nic("82576"));
}

#[test]
#[ignore = "long: make test-long"]
fn long_testpmds_igb_vf_driver_sends_receives_and_swaps_and_no_frame_is_lost() {
    a_little(Device::Vf);
}

#[test]
#[ignore = "minutes: `make test-long`"]
fn long_testpmd_moves_millions_and_no_frame_is_lost() {
    millions(Device::Nic("e1000"));
}

#[test]
#[ignore = "minutes: `make test-long`"]
fn long_testpmds_igb_driver_moves_millions_and_no_frame_is_lost() {
    millions(Device::Nic("82576"));
}

#[test]
#[ignore = "minutes: `make test-long`"]
fn long_testpmds_igb_vf_driver_moves_millions_and_no_frame_is_lost() {
    millions(Device::Vf);
}

#[test]
#[ignore = "a minute: `make test-long`"]
fn long_testpmd_drives_an_82545em_as_well() {
    let lab = Lab::open(1).unwrap_or_else(|why| panic!("{why}"));
    let (daemon, pmd, mut peer) = with_guest(&lab, Device::Nic("82545em"));
    sends(&daemon, &pmd, &mut peer, 100_000, "64,700,750");
    receives(&daemon, &pmd, &mut peer, 10_000);
    swaps(&daemon, &pmd, &mut peer, 50_000);
    is_content(&daemon.counters().unwrap(), pmd.device);
}
