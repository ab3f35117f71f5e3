//! Descriptors of the whole process, so the test runs in a process of its own.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use crate::common::{self, Rig, Seen};
use hypernic_vfio_user::codec::irq;
use hypernic_vfio_user::guest_mem::Prot;
use hypernic_vfio_user::{Client, ClientError, ClientEvent, ClientOptions, EventFd, SharedMem};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn visit(rig: &Rig, twin_socket: bool) {
    let mut c = rig.client_with(ClientOptions {
        twin_socket,
        ..ClientOptions::default()
    });
    let ram = SharedMem::new("ram", 0x4000).unwrap();
    let e = EventFd::new().unwrap();
    c.region_info(2).unwrap();
    c.dma_map(0, &ram, 0, 0x4000, Prot::RW).unwrap();
    c.arm(irq::INTX, 0, &[&e]).unwrap();
    c.arm(irq::MSIX, 0, &[&e, &e, &e]).unwrap();
    c.resample(&e).unwrap();
    // An odd end: descriptors of half a message.
    c.send_raw(&[1; 5], &[e.as_fd(), ram.as_fd()]).unwrap();
}

fn gone(rig: &Rig) {
    rig.wait_seen(|s| matches!(s, Seen::Client(ClientEvent::Gone(_))));
    rig.take_seen();
}

/// What is open once nothing changes any more: a peer's descriptors are closed on a thread of their
/// own.
fn at_rest() -> usize {
    let (mut last, mut same) = (usize::MAX, 0);
    while same < 20 {
        std::thread::sleep(Duration::from_millis(10));
        let now = open_descriptors();
        same = if now == last { same + 1 } else { 0 };
        last = now;
    }
    last
}

#[test]
fn fact_6_6_no_descriptor_outlives_its_client_and_running_out_is_survived() {
    const NAME: &str =
        "descriptors::fact_6_6_no_descriptor_outlives_its_client_and_running_out_is_survived";
    if !common::alone(NAME) {
        return;
    }
    let rig = Rig::with_mmap();
    visit(&rig, true);
    gone(&rig);
    let before = at_rest();
    for i in 0..20 {
        visit(&rig, i % 2 == 0);
        gone(&rig);
    }
    assert_eq!(at_rest(), before);

    // No descriptor left: the client that comes now is hung up on, not left in the backlog, where
    // it would keep the server awake for ever.
    let address = SocketAddrUnix::new(&rig.path).unwrap();
    let late = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    let limits = getrlimit(Resource::Nofile);
    let low = Rlimit {
        current: Some(before as u64 + 16),
        ..limits
    };
    setrlimit(Resource::Nofile, low).unwrap();
    let hoard: Vec<OwnedFd> =
        std::iter::from_fn(|| rustix::io::fcntl_dupfd_cloexec(&late, 0).ok()).collect();
    rustix::net::connect(&late, &address).unwrap();
    let mut late = Client::open(late, ClientOptions::default()).unwrap();
    let answer = late.negotiate();
    assert!(matches!(answer, Err(ClientError::Closed)), "{answer:?}");
    rig.wait_seen(
        |s| matches!(s, Seen::Client(ClientEvent::Refused(why)) if why.contains("ulimit")),
    );
    drop(hoard);
    setrlimit(Resource::Nofile, limits).unwrap();
    visit(&rig, false);
    gone(&rig);
    assert_eq!(rig.stop()("accept_errors"), 1);
}
