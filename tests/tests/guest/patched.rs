//! The stock e1000 and r8169 drivers with the patches of `guest/linux/`, built for the guest's kernel and loaded there: with every
//! combination of its parameters, on NICs that know the communication status block and on those that do not. Counts
//! are asserted, times never. Tests whose names begin with `long_` are run by `make test-long`.

use std::path::Path;
use std::time::{Duration, Instant};

use hypernic_tests::guests::{self, GATEWAY};
use hypernic_tests::{Card, Counters, Error, LONG, Lab, Result, Wired, Wiring, peer};
use rig::{GuestConfig, Kernel, Netdev, Nic, Rig};
use serde_json::json;

/// All there is to switch.
const PARAMETERS: [&str; 4] = ["", "send_combining=1", "csb=1", "send_combining=1 csb=1"];

/// How often the far end sends a frame while the driver is tortured.
const PAUSE: Duration = Duration::from_millis(1);

/// A guest with the patched driver in place of the stock one.
fn patched(card: Card, name: &str, kernel: Kernel) -> GuestConfig {
    let rig = Rig::prepare().unwrap_or_else(|why| panic!("{why}"));
    let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest/linux");
    let module = rig.module(kernel, &recipe, card.driver());
    let module = module.unwrap_or_else(|why| panic!("{why}"));
    GuestConfig::new(name)
        .kernel(kernel)
        .file(&format!("/mod/{}.ko", card.driver()), 0o644, module)
}

/// It with a NIC whose daemon has these lines about it.
fn wired(card: Card, config: GuestConfig, lines: &str) -> Wired {
    let one = Wiring::one(card);
    Wired::of(config, Wiring { lines, ..one }).unwrap()
}

/// What a stream of small packets cost, per packet.
#[derive(Debug)]
struct Cost {
    writes: f64,
    reads: f64,
    interrupts: f64,
    /// Writes to tail registers in place of words in a status block: calls.
    kicks: f64,
}

impl Cost {
    fn since(before: &Counters, wired: &Wired, packets: &str) -> Result<Self> {
        let grown = wired.daemon.counters()?.since(before);
        let number = |counter| grown.nic("n0", counter) as f64;
        let per_packet = |counter| number(counter) / number(packets);
        Ok(Self {
            writes: per_packet("region_writes"),
            reads: per_packet("region_reads"),
            interrupts: per_packet("irq_triggers"),
            kicks: per_packet("csb_kicks"),
        })
    }

    fn accesses(&self) -> f64 {
        self.writes + self.reads
    }

    /// Calls of either side to the other.
    fn notifications(&self) -> f64 {
        self.interrupts + self.kicks
    }
}

impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:.4} writes, {:.4} reads, {:.4} interrupts, {:.4} kicks",
            self.writes, self.reads, self.interrupts, self.kicks
        )
    }
}

/// Has the guest's kernel send `count` packets of 60 bytes as fast as it can, and waits until the last has come out.
fn stream(wired: &Wired, count: u64) -> Result<Cost> {
    let (before, seen) = (wired.daemon.counters()?, wired.peer.received().frames);
    let interface = &wired.interface;
    wired.guest.run(&format!(
        "mp pktgen; p() {{ echo \"$2\" >/proc/net/pktgen/$1; }}\n\
         p kpktgend_0 rem_device_all; p kpktgend_0 'add_device {interface}'; p {interface} 'count {count}'\n\
         p {interface} 'clone_skb 0'; p {interface} 'pkt_size 60'; p {interface} 'delay 0'\n\
         p {interface} 'dst 10.9.0.77'; p {interface} 'dst_mac 02:00:00:00:00:77'; p pgctrl start\n\
         grep -q 'Result: OK' /proc/net/pktgen/{interface}"
    ))?;
    wired
        .peer
        .wait_received("all packets", |now| now.frames >= seen + count)?;
    Cost::since(&before, wired, "tx_frames")
}

/// Sends the guest `count` short frames of a kind that no program in it receives, as fast as the NIC takes them, and
/// waits until its kernel has had them all: on a cable without a switch none is lost.
fn shower(wired: &Wired, count: u64) -> Result<Cost> {
    let interface = &wired.interface;
    let packets = format!("$(cat /sys/class/net/{interface}/statistics/rx_packets)");
    let had = wired.guest.run(&format!("echo {packets}"))?;
    let before = wired.daemon.counters()?;
    let had: u64 = had.trim().parse().expect("a number");
    let mut frame = wired.mac.to_vec();
    frame.extend([2, 0, 0, 0, 0, 0x77, 0x88, 0xb5]);
    frame.resize(60, 0);
    for _ in 0..count {
        wired.peer.send(frame.clone());
    }
    if wired.card == Card::R8169 {
        // Asking its driver costs accesses: it has the NIC write its statistics to memory.
        let start = Instant::now();
        while wired
            .daemon
            .counters()?
            .since(&before)
            .nic("n0", "rx_frames")
            < count
        {
            if start.elapsed() > LONG {
                return Err(Error::check("frames that were sent have not arrived"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let cost = Cost::since(&before, wired, "rx_frames")?;
        let all = format!("[ {packets} -ge {} ]", had + count);
        wired.guest.wait_for(&all, LONG)?;
        return Ok(cost);
    }
    let all = format!("[ {packets} -ge {} ]", had + count);
    wired.guest.wait_for(&all, LONG)?;
    Cost::since(&before, wired, "rx_frames")
}

/// Loads the driver with parameters, and everything works: all kinds of traffic, and streams both ways, whose costs are
/// returned.
fn works_with(wired: &Wired, parameters: &str, packets: u64) -> [Cost; 2] {
    let start = Instant::now();
    let costs = wired
        .reload_driver(parameters)
        .and_then(|()| wired.exchange(1500))
        .and_then(|()| Ok([stream(wired, packets)?, shower(wired, packets)?]))
        .and_then(|costs| wired.exchange(1500).map(|()| costs))
        .unwrap_or_else(|e| panic!("{parameters}: {e}\n{}", wired.diagnosis()));
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{parameters:23} per packet sent {}; received {}; {seconds:.1} s",
        costs[0], costs[1]
    );
    costs
}

/// What each combination of parameters costs, in the order of [`PARAMETERS`].
fn every_combination(card: Card, kernel: Kernel, packets: u64) -> [[Cost; 2]; 4] {
    let wired = wired(card, patched(card, "patched", kernel), "csb = true");
    let [stock, combining, csb, both] = PARAMETERS.map(|p| works_with(&wired, p, packets));
    let log = wired.guest.run("dmesg").unwrap();
    assert_eq!(
        log.matches("shares a communication status block").count(),
        2,
        "{log}"
    );
    wired.assert_quiet();
    // As it is, the driver writes the tail for every packet.
    assert!(stock[0].writes >= 1.0, "{stock:?}");
    assert!(combining[0].writes < stock[0].writes / 4.0, "{combining:?}");
    for [sent, received] in [&csb, &both] {
        assert!(sent.accesses() < stock[0].accesses() / 4.0, "{sent:?}");
        // The stock r8169 writes no register for a buffer that it gives back.
        let most = match card {
            Card::R8169 => 0.01,
            _ => stock[1].accesses() / 2.0,
        };
        assert!(received.accesses() < most, "{received:?}");
    }
    [stock, combining, csb, both]
}

#[test]
fn the_patched_driver_works_with_every_combination_and_writes_fewer_tails() {
    every_combination(Card::E1000, Kernel::Stable, 5000);
}

#[test]
#[ignore = "long: make test-long"]
fn long_the_patched_r8169_works_with_every_combination_and_calls_less() {
    every_combination(Card::R8169, Kernel::Stable, 5000);
}

/// One processor sends packets while another sends segments, and frames come in: senders and the poll meet at every
/// instruction. Nothing may be left behind in the ring when they stop, which they do again and again.
fn from_two_processors(card: Card, kernel: Kernel, rounds: u64) {
    let mut config = patched(card, "two", kernel);
    config.smp = 2;
    let wired = wired(card, config, "csb = true");
    let interface = &wired.interface;
    for parameters in PARAMETERS {
        let start = Instant::now();
        wired.reload_driver(parameters).unwrap();
        wired
            .guest
            .run(&format!(
                "mp pktgen; p() {{ echo \"$2\" >/proc/net/pktgen/$1; }}\n\
                 p kpktgend_1 rem_device_all; p kpktgend_1 'add_device {interface}'; p {interface} 'pkt_size 60'\n\
                 p {interface} 'dst 10.9.0.77'; p {interface} 'dst_mac 02:00:00:00:00:77'"
            ))
            .unwrap();
        let mut slowest = Duration::ZERO;
        for round in 0..rounds {
            // Few and many, so that the last of them finds the ring in every state.
            let count = 1 + round * round * 7 % 1900;
            let seen = wired.peer.received().frames;
            // Frames that come in have the driver look at its rings; without them it must do so by itself.
            let flood =
                (round % 2 == 0).then(|| wired.peer.flood(wired.target(None), 1500, PAUSE / 4));
            let began = Instant::now();
            // In the background, as a signal (of a child's end) would stop it.
            let run = wired.guest.run(&format!(
                "p() {{ echo \"$2\" >/proc/net/pktgen/$1; }}\n\
                 p {interface} 'count {count}'; p pgctrl start & nc {} {} </tmp/noise | cmp - /tmp/noise; r=$?; \
                 wait; exit $r",
                peer::IP,
                peer::ECHO
            ));
            // It may return before its thread has begun.
            let sent = format!("grep -q 'pkts-sofar: {count} ' /proc/net/pktgen/{interface}");
            let all = run
                .and_then(|_| wired.guest.wait_for(&sent, LONG))
                .map_err(Into::into)
                .and_then(|()| {
                    let came = |now: &peer::Traffic| now.frames >= seen + count;
                    wired.peer.wait_received("all packets", came)
                });
            if flood.is_none() {
                slowest = slowest.max(began.elapsed());
            }
            drop(flood);
            all.and_then(|_| wired.echo(peer::IP)).unwrap_or_else(|e| {
                panic!("{parameters}, round {round}: {e}\n{}", wired.diagnosis())
            });
        }
        wired.exchange(1500).unwrap();
        println!(
            "{parameters:23} {:.1} s, slowest round {:.1} s",
            start.elapsed().as_secs_f64(),
            slowest.as_secs_f64()
        );
    }
    wired.assert_quiet();
}

#[test]
#[ignore = "long: make test-long"]
fn long_two_processors_leave_nothing_behind() {
    from_two_processors(Card::E1000, Kernel::Stable, 20);
}

#[test]
#[ignore = "long: make test-long"]
fn long_two_processors_leave_nothing_behind_in_an_r8169() {
    from_two_processors(Card::R8169, Kernel::Stable, 20);
}

/// QEMU's own e1000 is one that has never heard of a status block: its subsystem id is another.
fn on_qemus_own(kernel: Kernel, parameters: &[&str]) {
    let lab = Lab::open(1).unwrap_or_else(|why| panic!("{why}"));
    let mac = "52:54:00:12:34:56";
    let netdev = Netdev::User { options: json!({}) };
    let nic = Nic::qemu("q0", "e1000", Some(netdev)).mac(mac);
    let guest = lab
        .rig
        .resume(patched(Card::E1000, "old", kernel).nic(nic))
        .unwrap();
    for parameters in parameters {
        guest
            .run(&format!("rmmod e1000 2>/dev/null; mp e1000 {parameters}"))
            .unwrap();
        let interface = guest.interface(mac, LONG).unwrap();
        guests::dhcp(&guest, &interface).unwrap();
        guests::ping_all(&guest, GATEWAY, 20).unwrap();
        guests::round_trip(&guest, &guests::noise(1_000_000))
            .unwrap_or_else(|e| panic!("{parameters}: {e}"));
    }
    let log = guest.run("dmesg").unwrap();
    assert!(!log.contains("status block"), "{log}");
    assert_eq!(guests::complaints(&guest).unwrap(), Vec::<String>::new());
}

#[test]
fn the_patched_driver_works_on_a_nic_that_knows_no_status_block() {
    on_qemus_own(Kernel::Stable, &PARAMETERS[3..]);
}

/// Of another RTL8168C there is no model: ours without a block.
fn on_an_r8169_without_a_block(kernel: Kernel) {
    let card = Card::R8169;
    let wired = wired(card, patched(card, "old", kernel), "");
    for parameters in &PARAMETERS[2..] {
        wired.reload_driver(parameters).unwrap();
        wired.exchange(1500).unwrap();
    }
    let log = wired.guest.run("dmesg").unwrap();
    assert!(!log.contains("status block"), "{log}");
    wired.assert_quiet();
}

#[test]
fn the_patched_r8169_works_on_a_nic_that_knows_no_status_block() {
    on_an_r8169_without_a_block(Kernel::Stable);
}

/// Down and up, out and in, rings and offloads, all while frames keep coming from both ends.
fn under_traffic(kernel: Kernel) {
    let card = Card::E1000;
    let mut config = patched(card, "tortured", kernel);
    config.smp = 2;
    let wired = wired(card, config, "csb = true");
    for parameters in PARAMETERS {
        let start = Instant::now();
        wired.reload_driver(parameters).unwrap();
        let interface = &wired.interface;
        let job = wired
            .guest
            .spawn(&format!(
                "rm -f /tmp/stop; while [ ! -e /tmp/stop ]; do \
                 ping -q -n -i 0.005 -c 200 -s 1000 {} >/dev/null 2>&1 || usleep 50000; done",
                peer::IP
            ))
            .unwrap();
        let flood = wired.peer.flood(wired.target(None), 1500, PAUSE);
        // Linux's own driver wakes its queue once more while it goes down, and a packet of another processor then
        // goes to a new ring whose tail register is not known yet: it writes CTRL. So not while it is up.
        let rings = |n: u32| {
            format!(
                "ip link set {interface} down; ethtool -G {interface} rx {n} tx {n}; \
                 ip link set {interface} up"
            )
        };
        for round in 0..2 {
            for change in [
                format!("ip link set {interface} down; ip link set {interface} up"),
                rings(80),
                rings(4096),
                rings(256),
                format!("ip link set {interface} mtu 9000"),
                format!("ip link set {interface} mtu 1500"),
                format!("ethtool -K {interface} tso off tx off sg off rx off"),
                format!("ethtool -K {interface} rx on tx on sg on tso on"),
            ] {
                wired.guest.run(&change).unwrap();
                wired
                    .settled()
                    .and_then(|()| wired.echo(peer::IP))
                    .unwrap_or_else(|e| panic!("{parameters}, {change}, round {round}: {e}"));
            }
            wired
                .reload_driver(parameters)
                .and_then(|()| wired.echo(peer::IP))
                .unwrap_or_else(|e| panic!("{parameters}, reload {round}: {e}"));
        }
        drop(flood);
        wired.guest.run("touch /tmp/stop").unwrap();
        wired.guest.finish(&job, 3 * LONG).unwrap();
        wired.exchange(1500).unwrap();
        stream(&wired, 20_000).unwrap();
        wired.exchange(1500).unwrap();
        let tested = wired.ethtool("-t", "offline").unwrap();
        assert!(tested.contains("The test result is PASS"), "{tested}");
        wired.settled().unwrap();
        wired.exchange(1500).unwrap();
        println!("{parameters:26} {:.1} s", start.elapsed().as_secs_f64());
    }
    wired.assert_quiet();
}

#[test]
#[ignore = "long: make test-long"]
fn long_the_patched_driver_is_tortured_under_traffic() {
    under_traffic(Kernel::Stable);
}

#[test]
#[ignore = "long: make test-long"]
fn long_on_the_newest_linux_the_patched_driver_is_tortured_under_traffic() {
    under_traffic(Kernel::Newest);
}

#[test]
#[ignore = "long: make test-long"]
fn long_streams_through_the_patched_driver_cost_what_they_should() {
    every_combination(Card::E1000, Kernel::Stable, 200_000);
}

/// What the patched r8169 may cost with a status block.
fn streams_cost_little(kernel: Kernel) {
    let [_, _, csb, both] = every_combination(Card::R8169, kernel, 200_000);
    for [sent, received] in [csb, both] {
        for cost in [sent, received] {
            assert!(cost.accesses() <= 0.01, "{cost:?}");
            assert!(cost.notifications() <= 0.002, "{cost:?}");
        }
    }
}

#[test]
#[ignore = "long: make test-long"]
fn long_streams_through_the_patched_r8169_cost_what_they_should() {
    streams_cost_little(Kernel::Stable);
}

#[test]
#[ignore = "long: make test-long"]
fn long_the_patches_apply_to_linux_6_1_and_work_there() {
    every_combination(Card::E1000, Kernel::Oldest, 5000);
    on_qemus_own(Kernel::Oldest, &PARAMETERS);
}

#[test]
#[ignore = "long: make test-long"]
fn long_the_r8169_patches_apply_to_linux_6_1_and_work_there() {
    streams_cost_little(Kernel::Oldest);
    on_an_r8169_without_a_block(Kernel::Oldest);
}

#[test]
#[ignore = "long: make test-long"]
fn long_the_patches_apply_to_the_newest_linux_and_work_there() {
    every_combination(Card::E1000, Kernel::Newest, 5000);
    on_qemus_own(Kernel::Newest, &PARAMETERS);
}

#[test]
#[ignore = "long: make test-long"]
fn long_the_r8169_patches_apply_to_the_newest_linux_and_work_there() {
    streams_cost_little(Kernel::Newest);
    on_an_r8169_without_a_block(Kernel::Newest);
}
