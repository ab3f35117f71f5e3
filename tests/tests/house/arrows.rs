//! Which crate may see which: the table, that it holds, and that ARCHITECTURE.md shows it.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// A crate, the crates of ours that it uses (beyond tests), and what it is.
struct Room {
    name: &'static str,
    uses: &'static [&'static str],
    is: &'static str,
}

const fn room(name: &'static str, uses: &'static [&'static str], is: &'static str) -> Room {
    Room { name, uses, is }
}

/// From the ground up. Not listed: [`EVERYBODY`].
#[rustfmt::skip]
const ROOMS: &[Room] = &[
    room("wire", &[], "frames as bytes: headers, checksums, segments"),
    room("regs", &[], "register tables"),
    room("snapshot", &[], "saved state as bytes"),
    room("threads", &[], "threads by what they may do, made where they inherit nothing"),
    room("jail", &["threads"], "what a process gives up: files, system calls, capabilities"),
    room("guest-mem", &["threads"], "guest memory: views, copy once"),
    room("lease", &[], "descriptors lent to senders"),
    room("csb", &[], "the Communication Status Block"),
    room("scheduler", &[], "ready list, wake flags, timers"),
    room("control", &[], "what a daemon can be asked, and the client"),
    room("keeper", &[], "a parent that keeps descriptors open while its worker dies and comes again"),
    room("program", &["threads"], "what every program has: log lines, exit codes"),
    room("intel-offsets", &[], "where registers are, for drivers, fuzzers and oracles"),
    room("rig", &[], "real guests"),
    room("ceiling", &[], "the raw copy loop that bench compares with"),
    room("pci", &["snapshot"], "configuration space as data"),
    room("frame", &["guest-mem", "wire"], "batches, sinks, finishing offloads"),
    room("eswitch", &["wire"], "one vocabulary for pools, mirrors, storm and rate limits"),
    room("pf", &["eswitch", "wire"], "the software PF: mailbox messages, policy"),
    room("vale", &["eswitch", "frame", "threads", "wire"], "the switch"),
    room("port", &["frame", "guest-mem", "threads", "wire"], "a port: sink, inlet, capture"),
    room("port-tap", &["frame", "guest-mem", "port", "wire"], "a TAP interface"),
    room("port-user", &["frame", "port", "threads", "wire"], "user-mode network, no root needed"),
    room("port-null", &["frame", "port"], "frames to nowhere"),
    room("port-loopback", &["frame", "port"], "frames back to their sender"),
    room("model", &["frame", "guest-mem", "pci", "snapshot"], "what a NIC model is and may ask for"),
    room("proofs", &[], "what holds for all values: proofs for Kani, and tests"),
    room("model-testkit", &["frame", "guest-mem", "intel-offsets", "model", "wire"], "what is around a model in tests, all fake; scripts for several models"),
    room("datapath", &["csb", "frame", "guest-mem", "model", "wire"], "what any NIC with rings needs and no vendor owns"),
    room("intel", &["datapath", "frame", "guest-mem", "model", "regs", "snapshot", "wire"], "what Intel's NICs share"),
    room("e1000", &["csb", "datapath", "frame", "guest-mem", "intel", "lease", "model", "regs", "snapshot", "wire"],
        "82540EM, 82545EM, 82544GC"),
    room("igb", &["datapath", "eswitch", "frame", "guest-mem", "intel", "lease", "model", "pci", "regs", "snapshot", "wire"],
        "82576: PF and VFs"),
    room("virtio-net", &["datapath", "frame", "guest-mem", "lease", "model", "snapshot", "wire"], "a virtio-net device"),
    room("r8169", &["csb", "datapath", "frame", "guest-mem", "lease", "model", "regs", "snapshot", "wire"], "RTL8168C, RTL8168H, RTL8169S"),
    room("registry", &["e1000", "igb", "model", "r8169", "virtio-net"], "the table of models"),
    room("embed", &["frame", "guest-mem", "model", "pci", "registry", "snapshot", "wire"], "a NIC in another program"),
    room("embed-c", &["embed", "guest-mem"], "the same for C"),
    room("peer", &["guest-mem", "threads"], "descriptors, eventfds and streams of a process that is not trusted"),
    room("port-stream", &["frame", "peer", "port", "threads", "wire"], "QEMU's stream sockets"),
    room("port-ring", &["frame", "guest-mem", "peer", "port", "threads", "wire"], "another process's switch, over shared memory"),
    room("vfio-user", &["guest-mem", "pci", "peer", "snapshot", "threads"], "codec, server, client"),
    room("vhost-user", &["guest-mem", "peer"], "codec, back end, front end"),
    room("port-vhost-user", &["datapath", "frame", "guest-mem", "peer", "port", "threads", "vhost-user", "wire"], "the driver of another switch's virtio device"),
    room("drivers", &["csb", "frame", "guest-mem", "intel-offsets", "model", "model-testkit", "vfio-user", "wire"], "the guest side of each NIC"),
    room("villain", &["csb", "drivers", "guest-mem", "intel-offsets", "vfio-user", "vhost-user"], "hostile guests and VMMs"),
    room("pkt-gen", &["drivers", "frame", "guest-mem", "program", "vfio-user", "wire"], "packet generator, a program of its own"),
];

/// See everything.
const EVERYBODY: &[&str] = &["hypernic", "bench", "fuzz", "tests"];

/// The crates of ours that a package uses beyond its tests.
fn uses(package: &serde_json::Value) -> BTreeSet<String> {
    let all = package["dependencies"].as_array().expect("dependencies");
    let ours = all
        .iter()
        .filter(|d| d["path"].is_string() && d["kind"] != "dev");
    ours.map(|d| super::short(d["name"].as_str().expect("name")))
        .collect()
}

#[test]
fn arrows_point_one_way_only() {
    let mut seen = 0;
    for package in super::packages() {
        let name = super::short(package["name"].as_str().expect("name"));
        if EVERYBODY.contains(&name.as_str()) {
            continue;
        }
        let at = ROOMS.iter().position(|room| room.name == name);
        let at = at.unwrap_or_else(|| panic!("{name} is not in ROOMS: which crates may it see?"));
        let may: BTreeSet<String> = ROOMS[at].uses.iter().map(|&to| to.to_owned()).collect();
        assert_eq!(
            uses(&package),
            may,
            "{name}: left what it uses, right what ROOMS says"
        );
        for to in &may {
            let below = ROOMS[..at].iter().any(|room| room.name == to);
            assert!(below, "{name} uses {to}, which does not stand before it");
        }
        seen += 1;
    }
    assert_eq!(seen, ROOMS.len(), "a crate of ROOMS is gone");
}

/// The table as ARCHITECTURE.md shows it.
fn shown() -> String {
    let width = |of: fn(&Room) -> usize| ROOMS.iter().map(of).max().unwrap_or(0);
    let name = width(|room| room.name.len());
    let mut text = String::from("```\n");
    for room in ROOMS {
        let _ = write!(text, "{:<name$}  {}", room.name, room.is);
        if !room.uses.is_empty() {
            let _ = write!(text, "\n{:<name$}  -> {}", "", room.uses.join(", "));
        }
        text.push('\n');
    }
    let _ = writeln!(text, "{}: see everything", EVERYBODY.join(", "));
    text + "```\n"
}

/// `HYPERNIC_WRITE=1` (`make docs`) writes it.
#[test]
fn the_architecture_page_shows_the_table() {
    const BEGIN: &str = "<!-- arrows: generated by tests/tests/house/arrows.rs -->\n";
    const END: &str = "<!-- /arrows -->";
    let file = super::root().join("ARCHITECTURE.md");
    let page = std::fs::read_to_string(&file).expect("readable");
    let (before, rest) = page.split_once(BEGIN).expect("the block begins");
    let (block, after) = rest.split_once(END).expect("the block ends");
    if std::env::var_os("HYPERNIC_WRITE").is_some() {
        let page = format!("{before}{BEGIN}{}{END}{after}", shown());
        std::fs::write(&file, page).expect("written");
        return;
    }
    assert_eq!(block, shown(), "run `make docs`");
}
