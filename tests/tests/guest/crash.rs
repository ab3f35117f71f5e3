//! A guest whose NIC's worker is killed under TCP in both directions.

use std::time::{Duration, Instant};

use hypernic_tests::guests;
use hypernic_tests::{Card, Daemon, LONG, Lab, Launch, mac};
use rig::{Error, Netns};
use rustix::process::{Signal, kill_process};
use vfio_user::{Client, ClientOptions};

/// A configuration of a VF whose socket is `n0`'s, under the daemon's own PF.
fn a_vf(lab: &Lab) -> std::path::PathBuf {
    // Its number is the one of the socket.
    let sockets = lab.path("n{}.sock");
    let toml = format!(
        "keeper = true\n[[nic]]\nname = \"p0\"\nmodel = \"82576\"\nvfs = 1\nvf-socket-path = {sockets:?}\n\
         port = \"tap:t0\"\n[[nic.vf]]\nindex = 0\nmac = \"{}\"\n",
        mac("n0")
    );
    let file = lab.path("host.toml");
    std::fs::write(&file, toml).expect("configuration");
    file
}

/// How often workers are killed: 40 times, or as `HYPERNIC_TEST_KILLS` says.
fn kills() -> u32 {
    let given = std::env::var("HYPERNIC_TEST_KILLS").ok();
    given.map_or(40, |kills| kills.parse().expect("a number of kills"))
}

/// Kills the worker again and again while a guest has TCP both ways, and a ping. The connections go on, and the driver sees nothing.
fn tcp_goes_on_over_kills(card: Card, doorbell: &str) {
    let kills = kills();
    let lab = Lab::open(1).unwrap_or_else(|why| panic!("{why}"));
    let skipped = |why| eprintln!("skipped: {why}");
    let Some(netns) = Netns::new(&lab.rig).map_err(skipped).ok() else {
        return;
    };
    match netns.tap("t0", Some("10.9.0.1/24")) {
        Ok(()) => {}
        Err(Error::CannotRun(why)) => return skipped(why),
        Err(other) => panic!("{other}"),
    }
    let launch = Launch::within(&netns)
        .unwrap()
        .env("HYPERNIC_TEST_LIFE_MS", "0");
    let launch = match card {
        Card::IgbVf => launch.arg("serve").arg(a_vf(&lab)),
        Card::Igb | Card::R8169 | Card::Virtio => {
            let model = match card {
                Card::Igb => "82576",
                Card::R8169 => "r8168",
                _ => "virtio-net",
            };
            let args = lab.run_args_of(model, "n0", "tap:t0");
            launch.args(args).args(["--keeper", "--doorbell", doorbell])
        }
        _ => launch.args(lab.run_args("n0", "tap:t0")).arg("--keeper"),
    };
    let mut daemon = launch.start().unwrap();
    let guest = lab.guest("n0").unwrap();
    let driver = card.driver();
    if matches!(card, Card::R8169) {
        guest.run("mp realtek").unwrap();
    }
    guests::bring_up_static_with(&guest, driver, &mac("n0"), "10.9.0.2/24").unwrap();
    guests::ping_all(&guest, "10.9.0.1", 5).unwrap();
    // Not every driver says a word of it.
    let links = "cat /sys/class/net/*/carrier_changes; dmesg | grep 'Link is' || true";
    let before = guest.run(links).unwrap();
    let mut server = netns.tool(&lab.rig, "iperf3").unwrap();
    server.args(["--server", "--forceflush"]);
    let mut server = rig::Daemon::start("iperf3", server, lab.path("iperf3.log")).unwrap();
    server.expect("listening", LONG).unwrap();
    // Ended by us: no kill comes after its time.
    let stream = guest
        .spawn("iperf3 -c 10.9.0.1 --bidir -t 86400 -i 1 --forceflush")
        .unwrap();
    let pings = guests::start_pings(&guest, "10.9.0.1").unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let mut chance = 0x2545_f491_4f6c_dd1d_u64 ^ u64::from(std::process::id());
    let mut waits = Vec::new();
    for _ in 0..kills {
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        std::thread::sleep(Duration::from_millis(300 + chance % 500));
        let lines = daemon.log_position();
        let begun = Instant::now();
        kill_process(daemon.worker().expect("a worker"), Signal::KILL).unwrap();
        daemon.wait_log_after(lines, "\"serving\"").unwrap();
        waits.push(begun.elapsed());
    }
    std::thread::sleep(Duration::from_secs(3));
    waits.sort();
    let of = |part: usize| waits[(waits.len() - 1) * part / 100];
    println!(
        "{kills} kills, unserved for {:?} at the median, {:?} at p99, at most {:?}",
        of(50),
        of(99),
        of(100)
    );
    let ping = guests::finish_pings(&guest, &pings).unwrap();
    println!("{ping:?}");
    guest.run("kill -INT $(pidof iperf3)").unwrap();
    let said = guest.finish(&stream, LONG).unwrap().text;
    println!("{said}");
    let log = daemon.log();
    assert_eq!(
        log.matches("goes on where").count(),
        kills as usize,
        "{log}"
    );
    // Seconds in which something came, at the end too.
    let rates = ["Mbits/sec", "Gbits/sec"];
    let ends = said
        .lines()
        .filter(|line| rates.iter().any(|rate| line.contains(rate)));
    let moved = ends.filter(|line| !line.contains(" 0.00 ")).count();
    assert!(moved > 4, "{said}");
    assert!(ping.received * 10 > ping.sent * 5, "{ping:?}");
    let after = guest.run(links).unwrap();
    let said = guest.run("dmesg | tail -20").unwrap();
    assert_eq!(after, before, "the link has changed: {said}");
    assert_eq!(guests::complaints(&guest).unwrap(), Vec::<String>::new());
    drop(guest);
    assert!(daemon.stop().unwrap().success());
}

#[test]
#[ignore = "long: a guest's TCP over many kills"]
fn long_a_guests_tcp_goes_on_whenever_the_worker_is_killed() {
    tcp_goes_on_over_kills(Card::E1000, "trap");
}

#[test]
#[ignore = "long: a guest's TCP over many kills"]
fn long_the_stock_igb_drivers_tcp_goes_on_whenever_the_worker_is_killed() {
    tcp_goes_on_over_kills(Card::Igb, "trap");
}

#[test]
#[ignore = "long: a guest's TCP over many kills"]
fn long_the_stock_igb_drivers_tcp_by_doorbell_pages_goes_on_over_kills() {
    tcp_goes_on_over_kills(Card::Igb, "page");
}

#[test]
#[ignore = "long: a guest's TCP over many kills"]
fn long_the_stock_vf_drivers_tcp_goes_on_whenever_the_worker_is_killed() {
    tcp_goes_on_over_kills(Card::IgbVf, "trap");
}

#[test]
#[ignore = "long: a guest's TCP over many kills"]
fn long_the_stock_r8169_drivers_tcp_goes_on_whenever_the_worker_is_killed() {
    tcp_goes_on_over_kills(Card::R8169, "trap");
}

#[test]
#[ignore = "long: a guest's TCP over many kills"]
fn long_the_stock_virtio_net_drivers_tcp_goes_on_whenever_the_worker_is_killed() {
    tcp_goes_on_over_kills(Card::Virtio, "trap");
}

/// Has the worker stand still, and kills it so that the next one serves after about this time.
fn serves_again_after(daemon: &mut Daemon, time: Duration) -> Duration {
    let worker = daemon.worker().expect("a worker");
    let lines = daemon.log_position();
    let begun = Instant::now();
    kill_process(worker, Signal::STOP).unwrap();
    // So long the next one takes.
    std::thread::sleep(time - Duration::from_millis(40));
    kill_process(worker, Signal::KILL).unwrap();
    daemon.wait_log_after(lines, "\"serving\"").unwrap();
    begun.elapsed()
}

/// QEMU waits for an answer for five seconds, if its arguments say nothing else. A guest that reads configuration space all the time notices
/// nothing if it is served just before that. Whatever QEMU makes of a little more, the VM lives, and nobody else has lost anything.
#[test]
#[ignore = "long: seconds without a worker"]
fn long_a_worker_that_is_away_for_almost_five_seconds_is_waited_for() {
    let lab = Lab::open(1).unwrap_or_else(|why| panic!("{why}"));
    let toml = format!(
        "keeper = true\n[[switch]]\nname = \"lan\"\n[[nic]]\nname = \"n0\"\nmodel = \"e1000\"\nmac = \"{}\"\nsocket-path = {:?}\n\
         port = \"switch:lan\"\n[[nic]]\nname = \"n1\"\nmodel = \"e1000\"\nsocket-path = {:?}\nport = \"switch:lan\"\n",
        mac("n0"),
        lab.path("n0.sock"),
        lab.path("n1.sock"),
    );
    let file = lab.path("host.toml");
    std::fs::write(&file, toml).expect("configuration");
    let launch = Launch::new().unwrap().env("HYPERNIC_TEST_LIFE_MS", "0");
    let mut daemon = launch.arg("serve").arg(&file).start().unwrap();
    let options = ClientOptions {
        timeout: LONG,
        ..ClientOptions::default()
    };
    let mut other = Client::connect_with(lab.path("n1.sock"), options).unwrap();
    let mut others_lives = || other.region_read(0, 8, &mut [0; 4]).is_ok();
    let guest = lab.guest("n0").unwrap();
    let driver = Card::E1000.driver();
    guests::bring_up_static_with(&guest, driver, &mac("n0"), "10.9.0.2/24").unwrap();
    let device = guest
        .run("ls /sys/class/net | grep -v lo | head -1")
        .unwrap();
    let device = device.trim().to_owned();
    // Registers as the driver reads them; a NIC that is gone reads as ones.
    let registers = format!("ethtool -d {device} raw on | od -An -tx4 -N64");
    // A shell's own, so that hardly any time is between two.
    let reads = format!("while :; do read -r x < /sys/class/net/{device}/device/config; done");
    let reading = guest.spawn(&reads).unwrap();
    let links = "cat /sys/class/net/*/carrier_changes";
    let before = guest.run(links).unwrap();

    let took = serves_again_after(&mut daemon, Duration::from_millis(4900));
    println!("unserved for {took:?}");
    assert!(
        took < Duration::from_secs(5),
        "{took:?}: the machine is too slow"
    );
    assert!(others_lives());
    let is_there = |guest: &rig::Guest| {
        let said = guest.run(&registers).unwrap();
        said.split_whitespace().any(|word| word != "ffffffff")
    };
    assert!(is_there(&guest), "QEMU has waited");
    assert_eq!(guest.run(links).unwrap(), before, "no link has changed");

    let took = serves_again_after(&mut daemon, Duration::from_millis(5100));
    println!("unserved for {took:?}");
    assert!(took > Duration::from_secs(5), "{took:?}");
    assert!(others_lives(), "others have lost nothing");
    println!("QEMU still has it: {}", is_there(&guest));
    assert_eq!(guest.run("echo lives").unwrap().trim(), "lives");
    drop((reading, guest));
    assert!(daemon.stop().unwrap().success());
}
