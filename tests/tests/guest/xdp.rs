//! XDP in the guest: programs that run in the stock drivers' receive path, and sockets that lend the NIC the buffers of
//! a program. testpmd sits on such a socket instead of on the NIC. Rates are printed, never asserted.

mod virtio;

use std::path::Path;

use hypernic_tests::guests;
use hypernic_tests::{LONG, Lab, mac};
use rig::{GuestConfig, Kernel, Rig, Root};

use super::dpdk::{Device, TestPmd, come_back, lan, receives, swaps};

/// DPDK's driver of AF_XDP sockets, what loads XDP programs, and a program that sends everything back.
const PACKAGES: [&str; 2] = ["librte-net-af-xdp25", "xdp-tools"];
const DRIVER: &str = "usr/lib/x86_64-linux-gnu/dpdk/pmds-25.0/librte_net_af_xdp.so.25.0";
/// What the loader puts in front of programs, and the one that leads into a socket.
const PROGRAMS: [&str; 3] = [
    "usr/lib/x86_64-linux-gnu/bpf/xdp-dispatcher.o",
    "usr/lib/x86_64-linux-gnu/bpf/xsk_def_xdp_prog.o",
    "usr/lib/x86_64-linux-gnu/bpf/xsk_def_xdp_prog_5.3.o",
];

/// Bytes of a buffer: what drivers take off for themselves leaves 2 KiB. With less, igb tells the NIC of buffers of
/// 1 KiB, and takes the two parts of a longer frame for two frames.
const MBUF: &str = "--mbuf-size=2688";

/// How frames get into the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copies {
    /// The kernel copies each.
    One,
    /// The NIC writes into the program's memory.
    Zero,
}

fn add(config: &mut GuestConfig, tools: &Root, program: &str) {
    let files = tools.files(&[Path::new(program)]).unwrap();
    config.files.extend(files);
    for program in PROGRAMS {
        let content = std::fs::read(tools.dir().join(program)).unwrap();
        config.files.push((program.into(), 0o644, content));
    }
}

/// What testpmd needs for a socket in front of a driver, and what tells of sockets.
fn add_driver(config: &mut GuestConfig, rig: &Rig, kernel: Kernel) {
    let tools = rig.packages("xdp", &PACKAGES).unwrap();
    add(config, &tools, DRIVER);
    let ss = rig.root().files(&[Path::new("usr/bin/ss")]).unwrap();
    config.files.extend(ss);
    let diag = rig.modules(kernel, &["xsk_diag"]).unwrap();
    config.files.extend(diag);
}

/// Where xdp-bench is in the guest.
fn tool(rig: &Rig) -> String {
    let tools = rig.packages("xdp", &PACKAGES).unwrap();
    let bench = tools.find("xdp-bench").expect("xdp-tools has it");
    let bench = bench.strip_prefix(tools.dir()).unwrap();
    bench.to_string_lossy().into_owned()
}

/// xdp-bench.
fn add_tools(config: &mut GuestConfig, rig: &Rig) {
    let tools = rig.packages("xdp", &PACKAGES).unwrap();
    add(config, &tools, &tool(rig));
}

/// testpmd on a socket in front of the stock igb.
fn af_xdp(kernel: Kernel, copies: Copies) {
    let lab = Lab::open(1).unwrap_or_else(|why| panic!("{why}"));
    let device = Device::Nic("82576");
    let (daemon, mut peer) = lan(&lab, device);
    let rig = &lab.rig;
    rig.image(kernel).unwrap();
    let mut config = TestPmd::guest(&lab).kernel(kernel);
    add_driver(&mut config, rig, kernel);
    let guest = rig.start(config).unwrap();
    guest
        .run("mp igb && mp xsk_diag && mount -t bpf b /sys/fs/bpf")
        .unwrap();
    let interface = guest.interface(&mac("n0"), LONG).unwrap();
    let up = format!("ip link set {interface} up promisc on");
    guest.run(&up).unwrap();
    // With one processor igb has a vector for each direction, and a socket that polls that of receiving sends nothing.
    let how = match copies {
        Copies::One => "force_copy=1",
        Copies::Zero => "busy_budget=0",
    };
    let ports = format!("--no-pci --vdev=net_af_xdp0,iface={interface},{how}");
    let pmd = TestPmd::prompt(guest, device, &ports, MBUF, peer.mac());
    let sockets = pmd.guest.run("ss --xdp -e").unwrap();
    let zero = sockets.contains("zc:1");
    assert_eq!(zero, copies == Copies::Zero, "{sockets}");
    receives(&daemon, &pmd, &mut peer, 3000);
    swaps(&daemon, &pmd, &mut peer, 20_000);
    println!("{}", daemon.counters().unwrap());
}

#[test]
#[ignore = "long: more packages"]
fn long_af_xdp_in_copy_mode_works_on_the_82576() {
    af_xdp(Kernel::Stable, Copies::One);
}

#[test]
#[ignore = "long: more packages, another kernel"]
fn long_af_xdp_in_zero_copy_mode_works_on_the_82576() {
    af_xdp(Kernel::Newest, Copies::Zero);
}

/// A program in the driver's receive path sends each frame back (XDP_TX).
fn an_xdp_program_sends_back(model: &'static str, driver: &str, mode: &str) {
    let lab = Lab::open(1).unwrap_or_else(|why| panic!("{why}"));
    let (daemon, mut peer) = lan(&lab, Device::Nic(model));
    let mut config = GuestConfig::new("xdp").nic(lab.nic("n0").rom(""));
    add_tools(&mut config, &lab.rig);
    let bench = tool(&lab.rig);
    let guest = lab.rig.start(config).unwrap();
    let load = format!("mp {driver} && mount -t bpf b /sys/fs/bpf");
    guest.run(&load).unwrap();
    let interface = guest.interface(&mac("n0"), LONG).unwrap();
    guest.run(&format!("ip link set {interface} up")).unwrap();
    let running = guest.spawn(&format!("/{bench} tx {interface} -m {mode}"));
    let running = running.unwrap();
    let show = format!("ip link show {interface}");
    guest
        .wait_for(&format!("{show} | grep -q xdp"), LONG)
        .unwrap();
    guests::wait_carrier(&guest, &interface, true).unwrap();
    let link = guest.run(&show).unwrap();
    assert_eq!(link.contains("xdpgeneric"), mode == "skb", "{link}");
    let rate = come_back(&daemon, &mut peer, 20_000);
    guest.run("kill -INT $(pidof xdp-bench)").unwrap();
    let said = guest.finish(&running, LONG).unwrap();
    println!("{model} {mode}: {rate:.0}/s\n{}", said.text);
    assert_eq!(guests::complaints(&guest).unwrap(), Vec::<String>::new());
}

#[test]
#[ignore = "long: more packages"]
fn long_an_xdp_program_sends_every_frame_back_on_the_82576() {
    an_xdp_program_sends_back("82576", "igb", "native");
}

/// The stock e1000 driver knows no XDP: the kernel runs the program on what the driver hands up.
#[test]
#[ignore = "long: more packages"]
fn long_an_xdp_program_sends_every_frame_back_on_the_82540em() {
    an_xdp_program_sends_back("e1000", "e1000", "skb");
}
