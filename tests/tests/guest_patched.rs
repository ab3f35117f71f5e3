//! The stock e1000 driver with the patches of `guest/linux/`, built for the guest's kernel and loaded there: with every
//! combination of its parameters, on NICs that know the communication status block and on those that do not. Counts
//! are asserted, times never. Tests whose names begin with `long_` are run by `make test-long`.
#![forbid(unsafe_code)]

use std::path::Path;
use std::time::{Duration, Instant};

use hypernic_tests::guests::{self, GATEWAY};
use hypernic_tests::{Counters, LONG, Lab, Result, Wired, peer};
use rig::{GuestConfig, Kernel, Netdev, Nic, Rig};
use serde_json::json;

/// All there is to switch.
const PARAMETERS: [&str; 4] = ["", "send_combining=1", "csb=1", "send_combining=1 csb=1"];

/// How often the far end sends a frame while the driver is tortured.
const PAUSE: Duration = Duration::from_millis(1);

/// A guest with the patched driver in place of the stock one.
fn patched(name: &str, kernel: Kernel) -> GuestConfig {
    let rig = Rig::prepare().unwrap_or_else(|why| panic!("{why}"));
    let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest/linux");
    let module = rig.module(kernel, &recipe, "e1000");
    let module = module.unwrap_or_else(|why| panic!("{why}"));
    GuestConfig::new(name)
        .kernel(kernel)
        .file("/mod/e1000.ko", 0o644, module)
}

/// What a stream of small packets cost.
struct Cost {
    counters: Counters,
    frames: f64,
}

impl Cost {
    fn per_frame(&self, counter: &str) -> f64 {
        self.counters.nic("n0", counter) as f64 / self.frames
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
    wired.peer.wait_received("all packets", |now| {
        now.frames as u64 >= seen as u64 + count
    })?;
    let counters = wired.daemon.counters()?.since(&before);
    let frames = counters.nic("n0", "tx_frames");
    Ok(Cost {
        counters,
        frames: frames as f64,
    })
}

/// Loads the driver with parameters, and everything works: all kinds of traffic, a stream, the self-test.
fn works_with(wired: &Wired, parameters: &str) -> Cost {
    let start = Instant::now();
    wired.reload_driver(parameters).unwrap();
    wired
        .exchange(1500)
        .unwrap_or_else(|e| panic!("{parameters}: {e}\n{}", wired.diagnosis()));
    let cost =
        stream(wired, 5000).unwrap_or_else(|e| panic!("{parameters}: {e}\n{}", wired.diagnosis()));
    println!(
        "{parameters:26} per packet sent: {:.4} writes, {:.4} reads, {:.4} interrupts; {:.1} s",
        cost.per_frame("region_writes"),
        cost.per_frame("region_reads"),
        cost.per_frame("irq_triggers"),
        start.elapsed().as_secs_f64()
    );
    cost
}

fn every_combination(kernel: Kernel) {
    let wired = Wired::new(patched("patched", kernel)).unwrap();
    let costs = PARAMETERS.map(|parameters| works_with(&wired, parameters));
    wired.assert_quiet();
    let writes = costs.each_ref().map(|cost| cost.per_frame("region_writes"));
    // As it is, the driver writes the tail for every packet.
    assert!(writes[0] >= 1.0, "{writes:?}");
    assert!(writes[1] < writes[0] / 4.0, "{writes:?}");
}

#[test]
fn the_patched_driver_works_with_every_combination_and_writes_fewer_tails() {
    every_combination(Kernel::Stable);
}

/// QEMU's own e1000 is one that has never heard of a status block: its subsystem id is another.
fn on_qemus_own(kernel: Kernel, parameters: &[&str]) {
    let lab = Lab::open(1).unwrap_or_else(|why| panic!("{why}"));
    let mac = "52:54:00:12:34:56";
    let netdev = Netdev::User { options: json!({}) };
    let nic = Nic::qemu("q0", "e1000", Some(netdev)).mac(mac);
    let guest = lab.rig.resume(patched("old", kernel).nic(nic)).unwrap();
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

/// Down and up, out and in, rings and offloads, all while frames keep coming from both ends.
fn under_traffic(kernel: Kernel) {
    let wired = Wired::new(patched("tortured", kernel)).unwrap();
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
        for round in 0..5 {
            for change in [
                format!("ip link set {interface} down; ip link set {interface} up"),
                format!("ethtool -G {interface} rx 80 tx 80"),
                format!("ethtool -G {interface} rx 4096 tx 4096"),
                format!("ethtool -G {interface} rx 256 tx 256"),
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
fn long_the_patches_apply_to_the_newest_linux_and_work_there() {
    every_combination(Kernel::Newest);
    on_qemus_own(Kernel::Newest, &PARAMETERS);
}
