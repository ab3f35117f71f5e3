//! Stock Linux and its own igb driver on our 82576, and iPXE's. Times are printed, never asserted.

use std::path::Path;

use hypernic_tests::guests::{self, Direction, GATEWAY, Link};
use hypernic_tests::peer::{self, udp};
use hypernic_tests::{
    Card, Daemon, LONG, Lab, Launch, Wired, Wiring, host, mac, offloads, torture,
};
use rig::{Boot, Guest, GuestConfig};

fn lab() -> Lab {
    Lab::open(1).unwrap_or_else(|why| panic!("{why}"))
}

fn serve(lab: &Lab, port: &str) -> Daemon {
    lab.run_of("82576", "n0", port).unwrap()
}

fn boot(lab: &Lab) -> (Guest, Link) {
    let guest = lab
        .rig
        .resume(GuestConfig::new("igb").nic(lab.nic("n0")))
        .unwrap();
    let link = guests::bring_up_with(&guest, "igb", &mac("n0")).unwrap();
    (guest, link)
}

/// How often a vector of the interface has interrupted, by its name in `/proc/interrupts`.
fn interrupts(guest: &Guest, interface: &str) -> Vec<(String, u64)> {
    let table = guest
        .run(&format!("grep '{interface}' /proc/interrupts"))
        .unwrap();
    let line = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let counts = words[1..].iter().map_while(|word| word.parse::<u64>().ok());
        ((*words.last().unwrap()).to_owned(), counts.sum())
    };
    table.lines().map(line).collect()
}

#[test]
fn the_stock_igb_driver_gets_a_link_and_moves_traffic() {
    let lab = lab();
    let daemon = serve(&lab, "user");
    let (guest, link) = boot(&lab);
    let interface = &link.interface;
    let log = guest.run("dmesg | grep igb").unwrap();
    assert!(log.contains("Using MSI-X interrupts"), "{log}");
    let driver = guest.run(&format!("ethtool -i {interface}")).unwrap();
    assert!(driver.contains("firmware-version: 2.1.0"), "{driver}");
    let speed = guest.run(&format!("ethtool {interface}")).unwrap();
    assert!(
        speed.contains("Speed: 1000Mb/s") && speed.contains("Link detected: yes"),
        "{speed}"
    );

    println!("{:?}", guests::ping_all(&guest, GATEWAY, 20).unwrap());
    guests::round_trip(&guest, &guests::noise(2_000_000)).unwrap();
    let (_server, port) = host::serve_iperf3(&lab.rig, &lab.path("iperf3.log")).unwrap();
    for direction in [Direction::Out, Direction::In] {
        let rate = guests::tcp(&guest, GATEWAY, port, 20, direction).unwrap();
        println!("TCP {direction:?}: {rate:.0} Mbit/s");
    }
    let counts = interrupts(&guest, interface);
    println!("{counts:?}");
    assert!(
        counts
            .iter()
            .any(|(name, n)| name.to_lowercase().contains("rx") && *n > 0),
        "{counts:?}"
    );
    // Down, up, and the driver anew: every reset path it has.
    guest
        .run(&format!(
            "ip link set {interface} down && ip link set {interface} up"
        ))
        .unwrap();
    guests::wait_carrier(&guest, interface, true).unwrap();
    guests::round_trip(&guest, &guests::noise(100_000)).unwrap();
    guest.run("rmmod igb").unwrap();
    let link = guests::bring_up_with(&guest, "igb", &mac("n0")).unwrap();
    guests::ping_all(&guest, GATEWAY, 5).unwrap();
    assert_eq!(guests::complaints(&guest).unwrap(), Vec::<String>::new());
    println!("{link:?}\n{}", daemon.counters().unwrap());
}

#[test]
fn the_stock_igb_drivers_self_test_passes() {
    let lab = lab();
    let daemon = serve(&lab, "user");
    let (guest, link) = boot(&lab);
    let test = guests::self_test(&guest, &link.interface).unwrap();
    assert!(test.contains("The test result is PASS"), "{test}");
    for part in ["Register", "Eeprom", "Interrupt", "Loopback", "Link"] {
        let line = test.lines().find(|line| line.contains(part));
        let line = line.unwrap_or_else(|| panic!("no {part} in\n{test}"));
        assert!(line.trim_end().ends_with('0'), "{test}");
    }
    guests::wait_carrier(&guest, &link.interface, true).unwrap();
    guests::ping_all(&guest, GATEWAY, 5).unwrap();
    assert_eq!(guests::complaints(&guest).unwrap(), Vec::<String>::new());
    println!("{}", daemon.counters().unwrap());
}

/// The stock ROM of another chip of the same iPXE driver, made one of this chip by its id, as QEMU does it for its own
/// devices.
pub fn rom(stock: &[u8], id: u16) -> Vec<u8> {
    let mut rom = stock.to_vec();
    let pcir = usize::from(u16::from_le_bytes([rom[0x18], rom[0x19]]));
    assert_eq!(rom[pcir..pcir + 4], *b"PCIR");
    let device = pcir + 6..pcir + 8;
    let sum = |bytes: &[u8]| bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    let before = sum(&rom[device.clone()]);
    rom[device.clone()].copy_from_slice(&id.to_le_bytes());
    let after = sum(&rom[device]);
    // Byte 6 has no other use, and makes the sum of all bytes 0.
    rom[6] = rom[6].wrapping_add(before).wrapping_sub(after);
    rom
}

#[test]
fn ipxes_driver_gets_a_link_an_address_and_a_script() {
    let lab = lab();
    let tftp = lab.path("tftp");
    std::fs::create_dir(&tftp).unwrap();
    let padding = "# a script of some length\n".repeat(2000);
    std::fs::write(
        tftp.join("boot.ipxe"),
        format!("#!ipxe\n{padding}echo the script ${{net0/mac}} ${{ip}} arrived\n"),
    )
    .unwrap();
    let daemon = serve(
        &lab,
        &format!("user:tftp={},bootfile=boot.ipxe", tftp.display()),
    );
    let stock = lab.rig.root().dir().join("usr/share/qemu/pxe-e1000.rom");
    let file = lab.path("82576.rom");
    std::fs::write(&file, rom(&std::fs::read(stock).unwrap(), 0x10c9)).unwrap();
    let nic = lab.nic("n0").rom(&file).boot_index(0);
    let guest = lab
        .rig
        .start(GuestConfig::new("ipxe").boot(Boot::Firmware).nic(nic))
        .unwrap();
    guest.expect_console("iPXE", LONG).unwrap();
    guest
        .expect_console(&format!("the script {} 10.0.2.15 arrived", mac("n0")), LONG)
        .unwrap();
    let counters = daemon.counters().unwrap();
    println!("{counters}");
    assert!(counters.nic("n0", "rx_frames") > 30, "{counters}");
}

/// A guest with so many processors, on a cable that ends in the test.
fn plugged(name: &str, processors: u32, lines: &str) -> Wired {
    let mut config = GuestConfig::new(name);
    config.smp = processors;
    let wiring = Wiring {
        lines,
        ..Wiring::one(Card::Igb)
    };
    Wired::of(config, wiring).unwrap_or_else(|why| panic!("{why}"))
}

/// Nothing that a good driver does is refused or counted against it.
fn is_blameless(wired: &Wired) {
    let counters = wired.daemon.counters().unwrap();
    for counter in [
        "rx_bad_ring",
        "tx_bad_ring",
        "rx_dma_fault",
        "tx_dma_fault",
        "tx_bad_desc",
        "refused_bad_range",
        "refused_bad_irq",
    ] {
        assert_eq!(counters.nic("n0", counter), 0, "{counter}\n{counters}");
    }
    wired.assert_quiet();
}

/// How the driver has set the chip to spread what it receives.
struct Spread {
    /// What the kernel gave the driver as key (`netdev_rss_key_fill`).
    key: Vec<u8>,
    /// A queue for each value of the hash's last seven bits.
    table: Vec<usize>,
}

impl Spread {
    fn of(wired: &Wired) -> Self {
        let key = wired
            .guest
            .run("cat /proc/sys/net/core/netdev_rss_key")
            .unwrap();
        let bytes = key.trim().split(':');
        let key = bytes.map(|b| u8::from_str_radix(b, 16).unwrap()).collect();
        let said = wired.ethtool("-x", "").unwrap();
        let rows = said.lines().filter_map(|line| {
            let (at, row) = line.split_once(':')?;
            at.trim().parse::<usize>().ok().map(|_| row)
        });
        let table: Vec<usize> = rows
            .flat_map(str::split_whitespace)
            .map(|queue| queue.parse().unwrap())
            .collect();
        assert_eq!(table.len(), 128, "{said}");
        Self { key, table }
    }

    /// The queue of a packet with these addresses and ports, by Toeplitz's hash.
    fn queue(&self, fields: &[u8]) -> usize {
        let bit = |at: usize| u32::from(self.key[at / 8] >> (7 - at % 8) & 1);
        let mut window = (0..32).fold(0, |window, at| window << 1 | bit(at));
        let mut hash = 0;
        for (at, byte) in fields.iter().enumerate() {
            for n in 0..8 {
                if byte >> (7 - n) & 1 == 1 {
                    hash ^= window;
                }
                window = window << 1 | bit(32 + 8 * at + n);
            }
        }
        self.table[hash as usize % 128]
    }
}

/// A datagram of one of many senders: its frame, and its addresses and ports as the hash sees them.
fn datagram(wired: &Wired, number: usize) -> (Vec<u8>, Vec<u8>) {
    let mut frame = udp(wired.target(None), &guests::noise(20 + number % 900));
    frame[28..30].copy_from_slice(&[1 + (number / 250) as u8, number as u8]);
    frame[34..36].copy_from_slice(&(1000 + 7 * number as u16).to_be_bytes());
    // No checksum of UDP, and that of IPv4 anew.
    frame[40..42].fill(0);
    frame[24..26].fill(0);
    let words = frame[14..34].chunks(2);
    let sum: u32 = words.map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    let fields = frame[26..38].to_vec();
    (frame, fields)
}

/// Sends datagrams of many, and holds what each queue got against what it should have got. Returns how many queues there
/// were for them.
fn spreads(wired: &Wired, fields: usize) -> usize {
    const SENDERS: usize = 400;
    const FLIGHT: usize = 200;
    let spread = Spread::of(wired);
    let queues = spread.table.iter().max().unwrap() + 1;
    let mut wanted = vec![0; queues];
    let got = |before: Option<&[u64]>| -> Vec<u64> {
        let now = wired.statistics().unwrap();
        let of = |q: usize| now.get(&format!("rx_queue_{q}_packets"));
        (0..queues)
            .map(|q| of(q) - before.map_or(0, |before| before[q]))
            .collect()
    };
    let before = got(None);
    for number in 0..SENDERS {
        let (frame, all) = datagram(wired, number);
        wanted[spread.queue(&all[..fields])] += 1;
        wired.peer.send(frame);
        // Fewer on their way than a ring has buffers: with several queues the chip drops what finds none.
        let deadline = std::time::Instant::now() + LONG;
        while (number + 1) % FLIGHT == 0 && got(Some(&before)).iter().sum::<u64>() <= number as u64
        {
            assert!(
                std::time::Instant::now() < deadline,
                "{}",
                wired.diagnosis()
            );
        }
    }
    let got = got(Some(&before));
    println!("{fields} bytes hashed: {got:?}");
    assert_eq!(got, wanted, "{fields} bytes hashed");
    queues
}

/// Every queue of the driver works, and each packet comes by the one that the driver's key and table say.
#[test]
fn with_four_processors_every_queue_works_and_rss_spreads_as_its_table_says() {
    const ADDRESSES: usize = 8;
    const AND_PORTS: usize = 12;
    let wired = plugged("queues", 4, "");
    let quiet = || {
        wired.settled().unwrap();
        wired.hush().unwrap();
    };
    quiet();
    assert_eq!(spreads(&wired, ADDRESSES), 4);
    wired.ethtool("-N", "rx-flow-hash udp4 sdfn").unwrap();
    quiet();
    assert_eq!(spreads(&wired, AND_PORTS), 4);
    for (words, queues) in [("weight 1 0 5 2", 4), ("equal 1", 1), ("default", 4)] {
        wired.ethtool("-X", words).unwrap();
        assert_eq!(spreads(&wired, AND_PORTS), queues, "{words}");
    }
    // What is sent is spread by the kernel, by flows.
    let sent = |wired: &Wired| {
        let now = wired.statistics().unwrap();
        [0, 1, 2, 3].map(|q| now.get(&format!("tx_queue_{q}_packets")))
    };
    let before = sent(&wired);
    let deadline = std::time::Instant::now() + LONG;
    while sent(&wired)
        .iter()
        .zip(before)
        .any(|(now, then)| *now == then)
    {
        assert!(
            std::time::Instant::now() < deadline,
            "{}",
            wired.diagnosis()
        );
        wired.echo(peer::IP).unwrap();
    }
    let counts = interrupts(&wired.guest, &wired.interface);
    println!("{counts:?}");
    let busy = |kind: &str| {
        let of = |(name, n): &&(String, u64)| name.to_lowercase().contains(kind) && *n > 0;
        counts.iter().filter(of).count()
    };
    assert!(busy("rx") == 4 && busy("tx") == 4, "{counts:?}");
    for queues in [1, 3, 4] {
        wired.ethtool("-L", &format!("combined {queues}")).unwrap();
        quiet();
        assert_eq!(spreads(&wired, AND_PORTS), queues);
        wired.echo(peer::IP).unwrap();
    }
    is_blameless(&wired);
}

#[test]
#[ignore = "minutes: `make test-long`"]
fn long_every_offload_of_igb_on_and_off_moves_every_byte() {
    let wired = plugged("offloads", 2, "");
    let needed = ["rx", "tx", "sg", "tso", "rxvlan", "rx-all"];
    offloads::each_on_and_off(&wired, &needed, |_, _| wired.exchange(1500));
    assert_eq!(wired.peer.received().longest, 1514);
    is_blameless(&wired);
}

#[test]
#[ignore = "minutes: `make test-long`"]
fn long_igb_goes_down_and_up_a_hundred_times_under_traffic() {
    let wired = plugged("hundred", 2, "");
    torture::down_and_up(&wired, 100);
    torture::out_and_in(&wired, 10);
    is_blameless(&wired);
}

/// `ethtool -G`, `-C`, `-A`, `-s`, and the MTU, with every byte compared at each setting.
#[test]
#[ignore = "minutes: `make test-long`"]
fn long_every_setting_of_igb_moves_every_byte() {
    let wired = plugged("settings", 2, "");
    let check = |what: &str, mtu: usize| {
        let done = wired.settled().and_then(|()| wired.exchange(mtu));
        done.unwrap_or_else(|e| panic!("{what}: {e}\n{}", wired.diagnosis()));
        println!("{what}");
    };
    let interface = &wired.interface;
    for mtu in [1500, 1501, 2030, 4082, 9000, 9216] {
        let change = format!("ip link set {interface} mtu {mtu}");
        wired.guest.run(&change).unwrap();
        check(&change, mtu);
        assert_eq!(wired.peer.received().longest, mtu + 14);
        // Packets of one buffer, and of several.
        for way in ["on", "off"] {
            let words = format!("legacy-rx {way}");
            wired.ethtool("--set-priv-flags", &words).unwrap();
            check(&words, mtu);
        }
    }
    wired
        .guest
        .run(&format!("ip link set {interface} mtu 1500"))
        .unwrap();
    for (option, words) in [
        ("-G", "rx 80 tx 80"),
        ("-G", "rx 80 tx 4096"),
        ("-G", "rx 4096 tx 80"),
        ("-G", "rx 4096 tx 4096"),
        ("-G", "rx 256 tx 256"),
        ("-C", "rx-usecs 0"),
        ("-C", "rx-usecs 1"),
        ("-C", "rx-usecs 10 tx-usecs 10"),
        ("-C", "rx-usecs 1000 tx-usecs 250"),
        ("-C", "rx-usecs 3 tx-usecs 3"),
        ("-A", "autoneg off rx on tx on"),
        ("-A", "autoneg off rx off tx off"),
        ("-s", "autoneg off speed 100 duplex full"),
        ("-s", "autoneg off speed 10 duplex half"),
        ("-s", "autoneg on advertise 0x2f"),
        ("-r", ""),
        ("-N", "rx-flow-hash udp4 sdfn"),
        ("-K", "rx-all on"),
    ] {
        wired
            .guest
            .run(&format!("ethtool {option} {interface} {words}"))
            .unwrap();
        check(&format!("ethtool {option} {words}"), 1500);
    }
    for flags in ["promisc on", "promisc off", "allmulticast on"] {
        wired
            .guest
            .run(&format!("ip link set {interface} {flags}"))
            .unwrap();
        check(flags, 1500);
    }
    is_blameless(&wired);
}

/// With the tail registers in memory the stock driver goes on as it does, and all it writes besides is its interrupts'.
#[test]
fn the_stock_igb_driver_rings_doorbells_in_memory() {
    let wired = plugged("page", 1, "doorbell = \"page\"");
    let before = wired.daemon.counters().unwrap();
    for _ in 0..3 {
        wired.exchange(1500).unwrap();
    }
    let grown = wired.daemon.counters().unwrap().since(&before);
    println!("{grown}");
    let of = |name| grown.nic("n0", name);
    let frames = of("tx_frames") + of("rx_frames");
    assert!(of("doorbells") > 0 && frames > 500, "{grown}");
    assert!(of("reg_writes") <= 3 * of("irq_triggers") + 100, "{grown}");
    torture::down_and_up(&wired, 3);
    torture::out_and_in(&wired, 1);
    wired.exchange(1500).unwrap();
    is_blameless(&wired);
}

/// The clock runs as `phc2sys` would have it, from a second off and a hundredth too fast.
#[test]
#[ignore = "half a minute, and a download: `make test-long`"]
fn long_phc2sys_disciplines_the_clock_of_1588() {
    let lab = lab();
    let daemon = serve(&lab, "user");
    let root = lab.rig.packages("linuxptp", &["linuxptp"]).unwrap();
    let programs = ["usr/sbin/phc2sys", "usr/sbin/phc_ctl"].map(Path::new);
    let mut config = GuestConfig::new("ptp").nic(lab.nic("n0").rom(""));
    config.files = root.files(&programs).unwrap();
    let guest = lab.rig.start(config).unwrap();
    let link = guests::bring_up_with(&guest, "igb", &mac("n0")).unwrap();
    let said = guest
        .run(&format!("ethtool -T {}", link.interface))
        .unwrap();
    println!("{said}");
    assert!(
        said.contains("hardware-transmit") && said.contains("hardware-raw-clock"),
        "{said}"
    );
    // A hundredth too fast, in parts of a billion.
    guest
        .run("/usr/sbin/phc_ctl /dev/ptp0 set freq 10000000")
        .unwrap();
    guest.run("/usr/sbin/phc_ctl /dev/ptp0 adj 1.0").unwrap();
    let log = guest
        .sh_within(
            "timeout -s INT 20 /usr/sbin/phc2sys -s CLOCK_REALTIME -c /dev/ptp0 -O 0 -R 4 -N 5 -m -q",
            2 * LONG,
        )
        .unwrap();
    println!("{}", log.text);
    let (offset, freq) = disciplined(&log.text);
    // As near as a translated guest that shares its processors can tell.
    assert!(offset < 1_000_000 && freq.abs() < 1_000_000);
    assert_eq!(guests::complaints(&guest).unwrap(), Vec::<String>::new());
    println!("{}", daemon.counters().unwrap());
}

/// How a clock that was far off ended, by what linuxptp said: how far off, and how much too fast the driver has it run
/// (ns and parts of a billion), the median of the last ten.
fn disciplined(log: &str) -> (i64, i64) {
    // "... offset -123 s2 freq +456 delay 789"
    let samples: Vec<(i64, String, i64)> = log
        .lines()
        .filter_map(|line| {
            let mut words = line.split_once(" offset ")?.1.split_whitespace();
            let offset = words.next()?.parse().ok()?;
            let state = words.next()?.to_owned();
            let freq = words.nth(1)?.parse().ok()?;
            Some((offset, state, freq))
        })
        .collect();
    assert!(samples.len() > 20, "{log}");
    let first = samples[0].0.abs();
    assert!(first > 100_000_000, "a second off: {first}");
    let mut last: Vec<_> = samples[samples.len() - 10..].to_vec();
    assert!(last.iter().all(|(_, state, _)| state == "s2"), "locked");
    last.sort_by_key(|(offset, ..)| offset.abs());
    let (offset, _, freq) = &last[last.len() / 2];
    println!("median of the last ten: {offset} ns, {freq} ppb");
    (offset.abs(), *freq)
}

/// Two guests agree about the time by the stamps that their NICs put on packets, one five seconds off and a hundredth
/// too fast at first.
#[test]
#[ignore = "a minute, and a download: `make test-long`"]
fn long_ptp4l_disciplines_another_guests_clock_by_stamps_of_packets() {
    let lab = Lab::open(2).unwrap_or_else(|why| panic!("{why}"));
    let file = lab
        .config(&[("n0", "switch:lan"), ("n1", "switch:lan")], &[])
        .unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    let text = text.replace("[[nic]]\n", "[[nic]]\nmodel = \"82576\"\n");
    std::fs::write(&file, text).unwrap();
    let daemon = Launch::new()
        .unwrap()
        .arg("serve")
        .arg(file)
        .start()
        .unwrap();
    let root = lab.rig.packages("linuxptp", &["linuxptp"]).unwrap();
    let programs = ["usr/sbin/ptp4l", "usr/sbin/phc_ctl"].map(Path::new);
    // Eight times a second, so that it ends soon; a translated guest takes its time to ask for its stamps.
    let settings = "[global]\nnetwork_transport L2\ntime_stamping hardware\nlogSyncInterval -3\n\
                    logMinDelayReqInterval -3\nlogAnnounceInterval -1\nsummary_interval -3\n\
                    tx_timestamp_timeout 2000\n";
    let config = |name: &str| {
        let mut config = GuestConfig::new(name).nic(lab.nic(name).rom(""));
        config.files = root.files(&programs).unwrap();
        config.file("/ptp.cfg", 0o644, settings)
    };
    let pair = lab.rig.start_all(vec![config("n0"), config("n1")]).unwrap();
    let interfaces: Vec<String> = pair
        .iter()
        .zip(["n0", "n1"])
        .map(|(guest, name)| {
            let interface = guests::load(guest, "igb", &mac(name)).unwrap();
            guest.run(&format!("ip link set {interface} up")).unwrap();
            guests::wait_carrier(guest, &interface, true).unwrap();
            interface
        })
        .collect();
    for words in ["set freq 10000000", "adj 5.0"] {
        let command = format!("/usr/sbin/phc_ctl /dev/ptp0 {words}");
        pair[1].run(&command).unwrap();
    }
    let ptp4l = |interface: &str, words: &str| {
        format!("timeout -s INT 40 /usr/sbin/ptp4l -f /ptp.cfg -i {interface} -m -q {words}")
    };
    pair[0]
        .run(&format!(
            "({}) >/tmp/ptp.log 2>&1 </dev/null &",
            ptp4l(&interfaces[0], "")
        ))
        .unwrap();
    let log = pair[1]
        .sh_within(&ptp4l(&interfaces[1], "-s"), 2 * LONG)
        .unwrap();
    println!("{}", log.text);
    println!("{}", pair[0].run("cat /tmp/ptp.log").unwrap());
    let (offset, freq) = disciplined(&log.text);
    assert!(offset < 1_000_000 && freq.abs() < 1_000_000);
    let mut delays = log
        .text
        .lines()
        .filter_map(|line| line.split_once("path delay")?.1.trim().parse().ok());
    let delay: Option<i64> = delays.next_back();
    assert!(
        delay.is_some_and(|ns| ns > 0),
        "{delay:?} ns between the two"
    );
    for guest in &pair {
        assert_eq!(guests::complaints(guest).unwrap(), Vec::<String>::new());
    }
    println!("{}", daemon.counters().unwrap());
}
