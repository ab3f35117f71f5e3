//! A guest moves from one daemon to another.

use std::path::Path;
use std::time::{Duration, Instant};

use hypernic_tests::guests::{self, GATEWAY};
use hypernic_tests::{Daemon, LONG, Lab, Launch, mac};
use rig::{Boot, Guest, GuestConfig, Kernel};
use serde_json::{Value, json};

use super::{behind, is_blameless, lab};

pub(super) const MIB: usize = 160;

fn daemon(lab: &Lab, socket: &str) -> Daemon {
    let launch = Launch::new()
        .unwrap()
        .args(["run", "--model", "virtio-net"]);
    let launch = launch.args(["--transport", "vhost-user", "--port", "user", "--mac"]);
    let launch = launch.arg(mac("n0")).arg("--socket-path");
    launch.arg(lab.socket(socket)).start().unwrap()
}

/// The guest; it is the same there and here, but for its socket.
fn machine(lab: &Lab, socket: &str, packed: bool) -> GuestConfig {
    let properties = [("packed", json!(packed))];
    let mut machine = behind(
        GuestConfig::new(socket),
        "n0",
        &lab.socket(socket),
        &properties,
    );
    machine.mem_mib = MIB as u32;
    machine
}

/// The machine that the guest comes to: the same, with its agent's ports unconnected.
pub(super) fn arriving(lab: &Lab, machine: GuestConfig, incoming: &str) -> GuestConfig {
    let image = lab.rig.image(Kernel::default()).unwrap();
    let mut agent = vec![
        "-device".to_owned(),
        "virtio-serial-pci,id=rig,addr=1d".to_owned(),
    ];
    for (number, port) in [(1, "ctl"), (2, "data")] {
        let place = format!("bus=rig.0,nr={number},chardev={port},name=rig.{port}");
        agent.extend([
            "-chardev".to_owned(),
            format!("null,id={port}"),
            "-device".to_owned(),
            format!("virtserialport,{place}"),
        ]);
    }
    machine
        .boot(Boot::Kernel {
            kernel: image.kernel(),
            initrd: Some(image.initramfs()),
            append: rig::CMDLINE.to_owned(),
        })
        .args(agent)
        .args(["-S", "-incoming", incoming])
}

pub(super) fn status(guest: &Guest, command: &str) -> Option<String> {
    let answer: Value = guest.qmp(command, json!({})).unwrap();
    answer["status"].as_str().map(str::to_owned)
}

pub(super) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !done() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// All of a paused guest's RAM, as QEMU has it.
fn ram(guest: &Guest, file: &Path) -> Vec<u8> {
    let asked = json!({"val": 0, "size": MIB << 20, "filename": file});
    guest.qmp("pmemsave", asked).unwrap();
    std::fs::read(file).unwrap()
}

#[test]
fn a_guest_moves_to_another_daemon_under_traffic_and_no_page_is_stale() {
    for packed in [false, true] {
        let lab = lab(2);
        let (from, to) = (daemon(&lab, "from"), daemon(&lab, "to"));
        let here = lab.rig.start(machine(&lab, "from", packed)).unwrap();
        let incoming = format!("unix:{}", lab.path("incoming").display());
        let there = arriving(&lab, machine(&lab, "to", packed), &incoming);
        let there = lab.rig.start(there).unwrap();
        guests::bring_up_with(&here, "virtio_net", &mac("n0")).unwrap();
        guests::ping_all(&here, GATEWAY, 20).unwrap();
        here.run(&format!(
            "ping -i 0.001 -s 1400 {GATEWAY} >/dev/null 2>&1 </dev/null &"
        ))
        .unwrap();
        // Slow enough that traffic goes on between the passes.
        let slow = json!({"max-bandwidth": 20 << 20, "downtime-limit": 100});
        here.qmp("migrate-set-parameters", slow).unwrap();
        here.qmp("migrate", json!({"uri": incoming})).unwrap();
        until("the guest has moved", || {
            let status = status(&here, "query-migrate");
            let why = here.qemu_messages();
            assert_ne!(status.as_deref(), Some("failed"), "{why}");
            status.as_deref() == Some("completed")
        });
        until("it waits", || {
            status(&there, "query-status").as_deref() == Some("paused")
        });
        let counters = from.counters().unwrap();
        println!("{counters}");
        assert!(counters.nic("n0", "log_pages_marked") > 0, "{counters}");
        is_blameless(&counters, "n0");
        let (before, after) = (
            ram(&here, &lab.path("before")),
            ram(&there, &lab.path("after")),
        );
        let pages = before.chunks(4096).zip(after.chunks(4096));
        let stale: Vec<_> = (0..).zip(pages).filter(|(_, (a, b))| a != b).collect();
        let first: Vec<usize> = stale.iter().take(8).map(|(page, _)| *page).collect();
        assert!(stale.is_empty(), "{} pages, {first:x?}", stale.len());
        // It goes on there, and is answered.
        there.qmp("cont", json!({})).unwrap();
        let answered = to.wait_counters("it is answered there", |c| {
            c.nic("n0", "rx_frames") > 200 && c.nic("n0", "tx_frames") > 200
        });
        let counters = answered.unwrap();
        println!("{counters}");
        assert_eq!(counters.nic("n0", "ring_bases_corrected"), 0, "{counters}");
        is_blameless(&counters, "n0");
    }
}
