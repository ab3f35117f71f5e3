//! QEMU's vhost-user netdev as front end, and Linux's virtio-net in its guest as driver.

use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hypernic_vhost_user::ClientEvent;
use rig::{Boot, Guest, GuestConfig, Kernel, Netdev, Nic};
use serde_json::{Value, json};

use crate::common::{SCRIBBLED, Seen, WAIT, serve, serve_in};

static RIG: LazyLock<rig::Rig> =
    LazyLock::new(|| rig::Rig::prepare().unwrap_or_else(|why| panic!("{why}")));

fn config(socket: &Path) -> GuestConfig {
    let netdev = json!({"type": "vhost-user", "chardev": "front", "queues": 1});
    GuestConfig::new("vhost-user")
        .nic(Nic::qemu(
            "n0",
            "virtio-net-pci",
            Some(Netdev::Json(netdev)),
        ))
        .args([
            "-chardev".to_owned(),
            format!("socket,id=front,path={},reconnect-ms=100", socket.display()),
        ])
}

/// Sends 20 frames to a neighbour that the device plays; gives frames sent and received so far.
fn ping(guest: &Guest) -> (u64, u64) {
    let script = "echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6; ip addr add 10.9.0.1/24 dev eth0 2>/dev/null; ip link set eth0 up;
        ip neigh replace 10.9.0.2 lladdr 02:00:00:00:00:02 dev eth0;
        ping -c 20 -i 0.05 -W 1 10.9.0.2 >/dev/null; cd /sys/class/net/eth0/statistics;
        cat tx_packets rx_packets";
    let said = guest.run(script).expect("the guest answers");
    let mut numbers = said
        .split_whitespace()
        .map(|n| n.parse().expect("a number"));
    (
        numbers.next().expect("sent"),
        numbers.next().expect("received"),
    )
}

#[test]
fn linux_on_qemu_sends_and_receives_and_its_driver_comes_and_goes() {
    let serving = serve();
    let guest = RIG.start(config(&serving.path)).expect("started");
    guest.run("mp virtio_net").expect("loaded");
    let (sent, received) = ping(&guest);
    assert!(
        sent >= 20 && received == sent,
        "{sent} sent, {received} back"
    );
    // The driver goes and comes: rings stop, and start at 0 again.
    serving.seen.lock().clear();
    guest
        .run("rmmod virtio_net && mp virtio_net")
        .expect("loaded again");
    let (sent, received) = ping(&guest);
    assert!(
        sent >= 20 && received == sent,
        "{sent} sent, {received} back"
    );
    let seen = serving.seen.lock().clone();
    for wanted in [
        Seen::Stop(0),
        Seen::Stop(1),
        Seen::Start(0, 0),
        Seen::Start(1, 0),
    ] {
        assert!(seen.contains(&wanted), "{wanted:?} in {seen:?}");
    }
    drop(guest);
    serving.wait_for(|s| matches!(s, Seen::Client(ClientEvent::Gone(_))));
    let counters = serving.end();
    for fault in [
        "refused_violations",
        "refused_requests",
        "malformed",
        "surplus_fds",
        "rings_lost",
    ] {
        assert_eq!(counters(fault), 0, "{fault}");
    }
}

#[test]
fn a_guest_goes_on_with_the_next_back_end_in_the_same_place() {
    let serving = serve();
    let guest = RIG.start(config(&serving.path)).expect("started");
    guest.run("mp virtio_net").expect("loaded");
    let (sent, received) = ping(&guest);
    assert_eq!(sent, received);
    let dir = std::sync::Arc::clone(&serving.dir);
    drop(serving);
    let serving = serve_in(dir);
    // QEMU's chardev connects again, and starts both rings where their used indices are.
    let goes_on = |s: &Seen| matches!(s, Seen::Start(1, base) if u64::from(*base) >= sent);
    serving.wait_for(goes_on);
    let (sent_then, received_then) = ping(&guest);
    assert!(sent_then >= sent + 20, "{sent_then} sent");
    assert_eq!(sent_then, received_then, "none lost, none twice");
}

/// The machine that the guest comes to: the same, with its agent's ports unconnected.
fn destination(socket: &Path, incoming: &str) -> GuestConfig {
    let image = RIG.image(Kernel::default()).expect("an image");
    let mut agent = vec![
        "-device".to_owned(),
        "virtio-serial-pci,id=rig,addr=1d".to_owned(),
    ];
    for (number, port) in [(1, "ctl"), (2, "data")] {
        agent.extend([
            "-chardev".to_owned(),
            format!("null,id={port}"),
            "-device".to_owned(),
        ]);
        let place = format!("bus=rig.0,nr={number},chardev={port},name=rig.{port}");
        agent.push(format!("virtserialport,{place}"));
    }
    config(socket)
        .boot(Boot::Kernel {
            kernel: image.kernel(),
            initrd: Some(image.initramfs()),
            append: rig::CMDLINE.to_owned(),
        })
        .args(agent)
        .args(["-S", "-incoming", incoming])
}

fn status(guest: &Guest, command: &str) -> Option<String> {
    let answer: Value = guest.qmp(command, json!({})).expect("answered");
    answer["status"].as_str().map(str::to_owned)
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + 3 * WAIT;
    while !done() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// All of a paused guest's RAM, as QEMU has it.
fn ram(guest: &Guest, file: &Path, bytes: usize) -> Vec<u8> {
    let asked = json!({"val": 0, "size": bytes, "filename": file});
    guest.qmp("pmemsave", asked).expect("saved");
    std::fs::read(file).expect("read")
}

#[test]
fn a_guest_moves_under_traffic_and_no_page_is_stale() {
    const MIB: usize = 144;
    /// What Linux is told that there is. The device writes to pages beyond it, which nothing else does.
    const LINUX: &str = "mem=128M";
    const BEYOND: usize = 130 << 20;
    let (from, to) = (serve(), serve());
    let mut here = config(&from.path);
    here.mem_mib = MIB as u32;
    here.boot = Boot::Linux {
        append: LINUX.to_owned(),
    };
    from.scribble.store(BEYOND as u64, Ordering::Relaxed);
    let here = RIG.start(here).expect("started");
    let incoming = format!("unix:{}", to.dir.path().join("incoming").display());
    let mut there = destination(&to.path, &incoming);
    there.mem_mib = MIB as u32;
    let there = RIG.start(there).expect("started");
    here.run("mp virtio_net").expect("loaded");
    ping(&here);
    here.run("ping -i 0.001 -s 1400 10.9.0.2 >/dev/null 2>&1 </dev/null &")
        .expect("begun");
    // Slow enough that traffic goes on between the passes.
    let slow = json!({"max-bandwidth": 20 << 20, "downtime-limit": 100});
    here.qmp("migrate-set-parameters", slow).expect("set");
    here.qmp("migrate", json!({"uri": incoming}))
        .expect("begun");
    until("the guest has moved", || {
        let status = status(&here, "query-migrate");
        assert_ne!(
            status.as_deref(),
            Some("failed"),
            "{}",
            here.qemu_messages()
        );
        status.as_deref() == Some("completed")
    });
    until("it waits", || {
        status(&there, "query-status").as_deref() == Some("paused")
    });
    let file = to.dir.path().join("ram");
    let before = ram(&here, &file, MIB << 20);
    let after = ram(&there, &file, MIB << 20);
    let scribbles = &before[BEYOND..BEYOND + SCRIBBLED as usize * 4096];
    assert!(
        scribbles
            .chunks(4096)
            .all(|page| page[0] != 0 || page[1] != 0)
    );
    let pages = before.chunks(4096).zip(after.chunks(4096));
    let stale: Vec<_> = (0..)
        .zip(pages)
        .filter(|(_, (a, b))| a != b)
        .map(|(n, _)| n)
        .collect();
    let stale: &[usize] = &stale;
    assert!(
        stale.is_empty(),
        "{} pages are stale: {:x?}",
        stale.len(),
        &stale[..stale.len().min(8)]
    );
    // It goes on there, where its rings were here.
    let stopped = |s: &Seen| matches!(s, Seen::Stop(1));
    from.wait_for(stopped);
    there.qmp("cont", json!({})).expect("it runs");
    to.wait_for(|s| matches!(s, Seen::Start(1, base) if *base > 20));
    let kicks = |s: &Seen| *s == Seen::Kick(1);
    until("it sends there", || {
        to.seen.lock().iter().filter(|s| kicks(s)).count() > 100
    });
    drop((here, there));
    let logged = from.seen.lock().contains(&Seen::Log(true));
    assert!(logged);
    for serving in [from, to] {
        let counters = serving.end();
        for fault in [
            "refused_violations",
            "refused_requests",
            "malformed",
            "surplus_fds",
        ] {
            assert_eq!(counters(fault), 0, "{fault}");
        }
    }
}
