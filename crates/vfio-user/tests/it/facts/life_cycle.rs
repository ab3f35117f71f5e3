//! 6.6: the life cycle of clients and sockets.

use std::time::{Duration, Instant};

use super::{Patient, access, raw};
use crate::common::{KICK, Rig, Seen, silent};
use hypernic_vfio_user::codec::{Command, irq, region};
use hypernic_vfio_user::guest_mem::Prot;
use hypernic_vfio_user::{
    Client, ClientError, ClientEvent, EventFd, GoneReason, Listener, Server, SharedMem,
};

#[test]
fn fact_6_6_device_state_outlives_the_client_and_its_memory_does_not() {
    let rig = Rig::new();
    let mut c = rig.client();
    let ram = SharedMem::new("ram", 0x1000).unwrap();
    let e = EventFd::new().unwrap();
    c.dma_map(0, &ram, 0, 0x1000, Prot::RW).unwrap();
    c.arm(irq::MSIX, 0, &[&e]).unwrap();
    c.write_u32(0, 0x40, 0xabcd).unwrap();
    c.region_write(region::CONFIG, 4, &[6, 0]).unwrap();
    assert!(rig.dma.memory().view().read(0, &mut [0; 4]).is_ok());
    drop(c);
    rig.wait_seen(|s| *s == Seen::Client(ClientEvent::Gone(let_go())));
    assert!(rig.dma.memory().regions().is_empty());
    rig.irq.msix(0);
    assert!(silent(&e), "the old client's eventfd is gone");

    let mut c = rig.client();
    assert_eq!(c.read_u32(0, 0x40).unwrap(), 0xabcd);
    assert_eq!(c.read_u16(region::CONFIG, 4).unwrap(), 6);
    c.dma_map(0, &ram, 0, 0x1000, Prot::RW).unwrap();
    c.arm(irq::MSIX, 0, &[&e]).unwrap();
    assert_eq!(e.take(), 1, "what happened in between was latched");
}

#[test]
fn fact_6_6_clients_come_and_go() {
    let rig = Rig::new();
    for i in 0..50 {
        let mut c = rig.client();
        assert_eq!(c.read_u32(0, 0x10).unwrap(), i);
        c.write_u32(0, 0x10, i + 1).unwrap();
    }
    let count = rig.stop();
    assert_eq!(count("clients"), 50);
}

/// Often, because what it looks for is a race: the last client's end lies behind writes that are
/// still to be served when the next one comes.
#[test]
fn fact_6_6_a_client_may_come_as_soon_as_the_last_has_closed() {
    let rig = Rig::new();
    for _ in 0..300 {
        let mut c = rig.client();
        for value in 0..8 {
            c.post_u32(0, 0x10, value).unwrap();
        }
    }
    let count = rig.stop();
    assert_eq!(count("clients"), 300);
    assert_eq!(count("refused_busy"), 0);
}

#[test]
fn fact_6_6_a_second_client_is_refused_at_once_and_the_first_does_not_notice() {
    let rig = Rig::new();
    let mut first = rig.client();
    let start = Instant::now();
    for _ in 0..3 {
        let second = Client::connect(&rig.path);
        // EBUSY, long before any client's time-out of 5 s.
        assert!(matches!(
            second,
            Err(ClientError::Refused {
                command: Command::Version,
                errno: 16
            })
        ));
        assert_eq!(first.read_u32(region::CONFIG, 0).unwrap(), 0x100e_8086);
    }
    assert!(start.elapsed() < Duration::from_secs(4));
    // Some that say nothing must not stand in the way of one that speaks.
    let mute: Vec<Client> = (0..6).map(|_| rig.silent()).collect();
    assert!(matches!(
        Client::connect(&rig.path),
        Err(ClientError::Refused { errno: 16, .. })
    ));
    assert_eq!(first.read_u32(region::CONFIG, 0).unwrap(), 0x100e_8086);
    drop(mute);
    rig.wait_seen(|s| {
        *s == Seen::Client(ClientEvent::Refused(
            "the device is in use by another client",
        ))
    });
    assert_eq!(rig.stop()("refused_busy"), 10);
}

#[test]
fn fact_6_6_a_client_that_leaves_in_the_middle_of_a_message_is_replaced() {
    let rig = Rig::new();
    let message = raw(Command::RegionRead, 0, &access(0, 0, 4));
    for cut in 1..message.len() {
        let mut c = rig.client();
        c.send_raw(&message[..cut], &[]).unwrap();
    }
    assert_eq!(rig.client().info().unwrap().num_regions, 9);
}

#[test]
fn fact_6_6_a_client_that_says_nothing_does_not_hold_the_device_for_ever() {
    let rig = Rig::new();
    let _mute = rig.silent();
    // Retries while it is told "busy"; after a second the mute one has to go.
    assert_eq!(rig.client().info().unwrap().num_regions, 9);
    rig.wait_seen(|s| *s == Seen::Client(ClientEvent::Refused("it said nothing")));
}

/// The client is this very process, which runs on.
fn let_go() -> GoneReason {
    GoneReason::LetGo {
        pid: rustix::process::getpid().as_raw_nonzero().get(),
    }
}

#[test]
fn fact_6_6_a_look_at_the_socket_is_no_client() {
    let rig = Rig::new();
    for _ in 0..3 {
        drop(rig.silent());
    }
    rig.client().info().unwrap();
    rig.wait_seen(|s| matches!(s, Seen::Client(ClientEvent::Gone(_))));
    let clients: Vec<Seen> = rig
        .take_seen()
        .into_iter()
        .filter(|s| matches!(s, Seen::Client(_)))
        .filter(|s| !matches!(s, Seen::Client(ClientEvent::Refused(why)) if why.contains("in use")))
        .collect();
    assert_eq!(
        clients,
        [
            Seen::Client(ClientEvent::Connected),
            Seen::Client(ClientEvent::Gone(let_go()))
        ]
    );
}

#[test]
fn fact_6_6_the_socket_path_is_taken_over_from_the_dead_and_not_from_the_living() {
    use hypernic_vfio_user::ListenError;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    // A process that was killed leaves its socket file behind.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let alive = Listener::bind(&path).unwrap();
    assert!(matches!(Listener::bind(&path), Err(ListenError::InUse(_))));
    drop(alive);
    assert!(!path.exists(), "a clean end leaves nothing behind");
    std::fs::write(&path, "precious").unwrap();
    assert!(matches!(
        Listener::bind(&path),
        Err(ListenError::NotASocket(_))
    ));
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    let long = dir.path().join("x".repeat(120));
    assert!(matches!(Listener::bind(long), Err(ListenError::TooLong(_))));
    let nowhere = dir.path().join("no/such/dir");
    assert!(matches!(
        Listener::bind(nowhere),
        Err(ListenError::Path { .. })
    ));
}

#[test]
fn fact_6_6_an_inherited_listening_socket_serves_one_client_after_another() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let inherited = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let listener = Listener::from_fd(inherited.into()).unwrap();
    let mut server = Server::new(
        crate::common::description(&crate::common::page(), false),
        listener,
    )
    .unwrap();
    let stop = EventFd::new().unwrap();
    let (_, answered) = std::sync::mpsc::channel();
    let mut device = Patient {
        kicked: false,
        answered,
        in_time: false,
    };
    std::thread::scope(|s| {
        s.spawn(|| server.run(&mut device, &stop).unwrap());
        for _ in 0..3 {
            let mut c = loop {
                match Client::connect(&path) {
                    Err(ClientError::Refused { .. }) => std::thread::yield_now(),
                    result => break result.unwrap(),
                }
            };
            c.post_u32(0, KICK, 1).unwrap();
            assert_eq!(c.info().unwrap().num_irqs, 5);
        }
        stop.signal();
    });
    assert!(path.exists(), "an inherited socket is not ours to remove");
}
