//! DPDK's own driver on our RTL8168H, in `dpdk-testpmd` of DPDK 24.11 or newer. Debian builds DPDK without it, so
//! `HYPERNIC_DPDK_R8169` names a program that has it (CONTRIBUTING.md says how to build one). Without it these tests say so
//! and do nothing. Rates are printed, never asserted.

use std::time::{Duration, Instant};

use drivers::e1000::{Config, TxOpts};
use hypernic_tests::{Daemon, LONG, Lab};
use model_testkit::packet::{large, sums, v4_with, v6_tcp};
use wire::Layers;

use crate::dpdk::{Device, Peer, TestPmd, guest_mac, lan_with, receives, sends, swaps};

const GIVEN: &str = "HYPERNIC_DPDK_R8169";
const ON: Device = Device::Nic("r8168h");

/// What a driver may do without notice: cables and speeds change by interrupt, everything else is polled.
const INTERRUPTS: u64 = 16;
/// MSS of segmentation.
const MSS: usize = 1000;

struct Setup {
    daemon: Daemon,
    pmd: TestPmd,
    peer: Peer,
}

impl Setup {
    /// testpmd with these options, and the test at the other end of a switch; `None` without a testpmd.
    fn new(lab: &Lab, options: &str) -> Option<Self> {
        let Some(path) = std::env::var_os(GIVEN) else {
            println!("not tried: {GIVEN} names no dpdk-testpmd with the driver net_r8169");
            return None;
        };
        let program = std::fs::read(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
        let config = Config {
            rx_ring: 1024,
            rx_buffer: 16384,
            long_packets: true,
            ..Config::poll()
        };
        let (daemon, peer) = lan_with(lab, ON, config);
        let files = vec![("usr/bin/dpdk-testpmd".to_owned(), 0o755, program)];
        let guest = lab.rig.start(TestPmd::guest_with(lab, files)).unwrap();
        let device = TestPmd::bind(&guest, "10ec");
        // Its handler never tells uio_pci_generic that it is done, so it would hear of the first change of the link alone.
        let options = format!("--no-lsc-interrupt {options}");
        let pmd = TestPmd::prompt(guest, ON, &format!("-a {device}"), &options, peer.mac());
        Some(Self { daemon, pmd, peer })
    }

    /// Commands that want the port stopped.
    fn reconfigure(&self, commands: &[&str]) {
        self.pmd.command("port stop 0");
        for command in commands {
            let said = self.pmd.command(command);
            for word in ["rror", "not support", "nvalid", "Bad", "ailed"] {
                assert!(!said.contains(word), "{command}: {said}");
            }
        }
        let said = self.pmd.command("port start 0");
        assert!(said.contains("Done") && !said.contains("ail"), "{said}");
    }

    /// Sends frames to the guest, and returns what comes back of them: `count` frames, or what has come after a second
    /// without one.
    fn exchange(&mut self, frames: &[Vec<u8>], count: Option<usize>) -> Vec<Vec<u8>> {
        for frame in frames {
            assert_eq!(self.peer.send(&[frame], &TxOpts::default()).unwrap(), 1);
        }
        let (mut back, mut last) = (Vec::new(), Instant::now());
        let patience = match count {
            Some(_) => LONG,
            None => Duration::from_secs(1),
        };
        while count.is_none_or(|count| back.len() < count) && last.elapsed() < patience {
            let got = self
                .peer
                .poll_rx(64, |frame| back.push(frame.to_vec()))
                .unwrap();
            self.peer.refill_rx().unwrap();
            if got > 0 {
                last = Instant::now();
            } else {
                std::thread::yield_now();
            }
        }
        if let Some(count) = count {
            let lengths: Vec<_> = back.iter().map(Vec::len).collect();
            let counters = self.daemon.counters().unwrap();
            assert_eq!(back.len(), count, "{lengths:?}\n{counters}");
        }
        back
    }

    /// Nothing had to be refused, and hardly anything interrupted.
    fn is_content(&self) {
        let counters = self.daemon.counters().unwrap();
        println!("{counters}");
        super::is_blameless(&counters);
        assert!(
            counters.nic("n0", "irq_triggers") <= INTERRUPTS,
            "{counters}"
        );
    }
}

/// Waits until testpmd says so of its port.
fn until(pmd: &TestPmd, wanted: &str) {
    let start = Instant::now();
    while !pmd.command("show port info 0").contains(wanted) {
        assert!(start.elapsed() < LONG, "never: {wanted}");
    }
}

fn lab() -> Lab {
    Lab::open(1).unwrap_or_else(|why| panic!("{why}"))
}

/// From the test to the guest.
fn to_guest(peer: &Peer, mut frame: Vec<u8>) -> Vec<u8> {
    frame[..6].copy_from_slice(&guest_mac());
    frame[6..12].copy_from_slice(&peer.mac());
    frame
}

/// Its transport's checksum is wrong, and that of IPv4.
fn spoilt(mut frame: Vec<u8>) -> Vec<u8> {
    let layers = Layers::parse(&frame).unwrap();
    let (l3, l4) = (layers.l3.unwrap(), layers.l4.unwrap());
    if l3.kind == wire::L3Kind::V4 {
        frame[l3.offset + 10] ^= 0x55;
    }
    frame[l4.offset + l4.kind.checksum_offset().unwrap()] ^= 0x55;
    frame
}

/// All sums are what they are to be; returns what is behind the headers.
fn intact(frame: &[u8]) -> &[u8] {
    let layers = Layers::parse(frame).unwrap();
    let (l3, l4) = (layers.l3.unwrap(), layers.l4.unwrap());
    assert_eq!(layers.l4_intact(frame), Some(true), "{frame:02x?}");
    if l3.kind == wire::L3Kind::V4 {
        let header = &frame[l3.offset..l3.offset + l3.len];
        assert!(wire::ipv4_header_intact(header), "{frame:02x?}");
    }
    let end = l4.offset + layers.l4_span(frame.len()).unwrap();
    &frame[l4.offset + l4.len..end]
}

/// A frame of no protocol.
fn plain(peer: &Peer, len: usize) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..len).map(|i| (i / 255 + i) as u8).collect();
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    to_guest(peer, frame)
}

#[test]
#[ignore = "minutes, and a DPDK of yours: `make test-long`"]
fn long_dpdks_driver_moves_frames_both_ways_and_none_is_lost() {
    let lab = lab();
    let Some(Setup {
        daemon,
        pmd,
        mut peer,
    }) = Setup::new(&lab, "")
    else {
        return;
    };
    until(&pmd, "Link status: up");
    let port = pmd.command("show port info 0");
    for said in ["Driver name: net_r8169", "Link speed: 1 Gbps"] {
        assert!(port.contains(said), "{port}");
    }
    for lengths in ["64", "1514", "40,20,4", "64,700,750"] {
        sends(&daemon, &pmd, &mut peer, 50_000, lengths);
    }
    receives(&daemon, &pmd, &mut peer, 10_000);
    swaps(&daemon, &pmd, &mut peer, 50_000);
    // Stopped in full flight and started again.
    for _ in 0..5 {
        sends(&daemon, &pmd, &mut peer, 5000, "64");
        pmd.command("port stop 0");
        pmd.command("port start 0");
        swaps(&daemon, &pmd, &mut peer, 2000);
    }
    // Its PHY sleeps, and the link with it.
    pmd.command("set link-down port 0");
    until(&pmd, "Link status: down");
    pmd.command("set link-up port 0");
    until(&pmd, "Link status: up");
    swaps(&daemon, &pmd, &mut peer, 2000);
    let reset = pmd.command("port stop 0") + &pmd.command("port reset 0");
    pmd.command("port start 0");
    assert!(!reset.contains("ail"), "{reset}");
    swaps(&daemon, &pmd, &mut peer, 2000);
    Setup { daemon, pmd, peer }.is_content();
}

#[test]
#[ignore = "minutes, and a DPDK of yours: `make test-long`"]
fn long_dpdks_driver_sums_segments_tags_and_long_frames() {
    let lab = lab();
    // Sums of IPv4, UDP and TCP, segmentation, packets in pieces.
    let options = "--enable-rx-cksum --enable-hw-vlan-strip --enable-scatter --tx-offloads=0x802e";
    let Some(mut setup) = Setup::new(&lab, options) else {
        return;
    };
    setup.reconfigure(&[
        "port config mtu 0 8000",
        "csum set ip hw 0",
        "csum set udp hw 0",
        "csum set tcp hw 0",
    ]);
    sums_are_written(&mut setup);
    good_sums_are_told_from_bad(&mut setup);
    packets_are_segmented(&mut setup);
    frames_of_8_kib_come_back(&mut setup);
    tags_are_taken_out_and_put_in(&mut setup);
    setup.is_content();
    longer_frames_are_refused(&mut setup);
}

/// What the engine sends without sums leaves with them.
fn sums_are_written(setup: &mut Setup) {
    setup.pmd.forward("csum");
    let (v4, v6) = (([10, 9, 0, 1], [10, 9, 0, 2]), ([0xfd; 16], [0xfe; 16]));
    let mut sent = Vec::new();
    for len in [20, 21, 700, 1400] {
        for tcp in [true, false] {
            sent.push(v4_with(v4.0, v4.1, tcp, 7, 9, len));
        }
        sent.push(v6_tcp(v6.0.into(), v6.1.into(), 7, 9));
    }
    let sent = sent.into_iter().map(|f| to_guest(&setup.peer, f));
    let sent: Vec<_> = sent.collect();
    let wrong: Vec<_> = sent.iter().cloned().map(spoilt).collect();
    let back = setup.exchange(&wrong, Some(wrong.len()));
    for (sent, back) in sent.iter().zip(&back) {
        assert_eq!(intact(back), intact(sent));
    }
    setup.pmd.stop();
}

/// The driver knows which sums were right.
fn good_sums_are_told_from_bad(setup: &mut Setup) {
    let good = v4_with([10, 9, 0, 1], [10, 9, 0, 2], true, 7, 9, 100);
    let good = to_guest(&setup.peer, good);
    let mut bad = good.clone();
    bad[60] ^= 1;
    for (frame, fine) in [(good, true), (bad, false)] {
        setup.pmd.command("set verbose 1");
        setup.pmd.forward("rxonly");
        let none = setup.exchange(&[frame], None);
        assert!(none.is_empty(), "{none:02x?}");
        let said = setup.pmd.command("stop");
        setup.pmd.command("set verbose 0");
        assert!(said.contains("RX_IP_CKSUM_GOOD"), "{said}");
        assert_eq!(said.contains("RX_L4_CKSUM_GOOD"), fine, "{said}");
    }
}

/// A long frame comes in several buffers, and leaves as segments.
fn packets_are_segmented(setup: &mut Setup) {
    setup.reconfigure(&[&format!("tso set {MSS} 0")]);
    setup.pmd.forward("csum");
    for v6 in [false, true] {
        let before = setup.daemon.counters().unwrap();
        let (mut frame, _) = large(guest_mac(), v6, 0, 5300, MSS as u16);
        sums(&mut frame);
        let frame = to_guest(&setup.peer, frame);
        let back = setup.exchange(std::slice::from_ref(&frame), Some(6));
        let mut all = Vec::new();
        for segment in &back {
            let payload = intact(segment);
            assert!(payload.len() <= MSS, "{}", payload.len());
            let at = Layers::parse(segment).unwrap().l4.unwrap().offset + 4;
            let sequence = u32::from_be_bytes(segment[at..at + 4].try_into().unwrap());
            assert_eq!(sequence as usize, all.len());
            all.extend_from_slice(payload);
        }
        assert_eq!(all, intact(&frame));
        let grown = setup.daemon.counters().unwrap().since(&before);
        assert_eq!(grown.nic("n0", "tx_tso_frames"), 1, "{grown}");
    }
    setup.pmd.stop();
    setup.reconfigure(&["tso set 0 0"]);
}

fn frames_of_8_kib_come_back(setup: &mut Setup) {
    setup.pmd.forward("macswap");
    let frames: Vec<_> = [60, 1514, 2048, 2049, 4096, 8014]
        .map(|len| plain(&setup.peer, len))
        .to_vec();
    let back = setup.exchange(&frames, Some(frames.len()));
    for (sent, back) in frames.iter().zip(&back) {
        assert_eq!(back[12..], sent[12..]);
    }
    setup.pmd.stop();
}

/// What the MTU does not allow is cut off by the chip, and counted.
fn longer_frames_are_refused(setup: &mut Setup) {
    setup.pmd.forward("macswap");
    let longer = plain(&setup.peer, 8200);
    assert_eq!(setup.exchange(&[longer], None), Vec::<Vec<u8>>::new());
    let counters = setup.daemon.counters().unwrap();
    assert_eq!(counters.nic("n0", "rx_too_long"), 1, "{counters}");
}

fn tags_are_taken_out_and_put_in(setup: &mut Setup) {
    setup.reconfigure(&["tx_vlan set 0 7"]);
    setup.pmd.forward("macswap");
    for len in [60, 1000, 8014] {
        let sent = plain(&setup.peer, len);
        let mut tagged = sent.clone();
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        let back = setup.exchange(&[tagged], Some(1));
        assert_eq!(back[0][12..16], [0x81, 0, 0, 7]);
        assert_eq!(back[0][16..], sent[12..]);
    }
    setup.pmd.stop();
}

#[test]
#[ignore = "a minute, and a DPDK of yours: `make test-long`"]
fn long_dpdks_driver_filters_by_address_and_group() {
    let lab = lab();
    let Some(mut setup) = Setup::new(&lab, "") else {
        return;
    };
    let frame = |to: [u8; 6]| {
        let mut frame = plain(&setup.peer, 60);
        frame[..6].copy_from_slice(&to);
        frame
    };
    let (mine, others) = (frame(guest_mac()), frame([2, 0, 0, 0, 0, 0x99]));
    let (group, all) = (frame([0x33, 0x33, 0, 0, 0, 0x77]), frame([0xff; 6]));
    setup.pmd.forward("macswap");
    for (promiscuous, groups, wanted) in [
        (true, false, [true; 4]),
        (false, true, [true, false, true, true]),
        (false, false, [true, false, false, true]),
        (true, true, [true; 4]),
    ] {
        let word = |on| if on { "on" } else { "off" };
        setup
            .pmd
            .command(&format!("set promisc 0 {}", word(promiscuous)));
        setup
            .pmd
            .command(&format!("set allmulti 0 {}", word(groups)));
        for (frame, wanted) in [&mine, &others, &group, &all].into_iter().zip(wanted) {
            // It comes back from that address, which is a group's or not.
            let before = setup.daemon.counters().unwrap();
            setup.exchange(std::slice::from_ref(frame), None);
            let grown = setup.daemon.counters().unwrap().since(&before);
            let came = grown.nic("n0", "rx_frames");
            let which = (promiscuous, groups, &frame[..6]);
            assert_eq!(came, u64::from(wanted), "{which:02x?}: {grown}");
        }
    }
    setup.pmd.stop();
    setup.is_content();
}
