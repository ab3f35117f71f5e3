//! A worker that stays awake for the next register access still does everything else.

use std::path::Path;
use std::time::{Duration, Instant};

use hypernic::config::{Cable, HostConfig, MAX_BUSY_POLL, NicConfig, SocketSpec, Virtio};
use hypernic::guard::Guard;
use hypernic::host::Host;
use hypernic::spec::{Moderation, NicMac, PortSpec, Transport};
use registry::MODELS;
use vfio_user::Client;

const BAR0: u32 = 0;
const CTRL: u64 = 0x0000;
const STATUS: u64 = 0x0008;
const MDIC: u64 = 0x0020;
const SLU: u32 = 1 << 6;
const LU: u32 = 1 << 1;
/// MDIC: write PHY register 0 (control) at PHY address 1.
const WRITE_PHY_CONTROL: u32 = 1 << 26 | 1 << 21;
/// Auto-negotiation on, and again.
const NEGOTIATE: u32 = 0x1340;

fn config(socket: &Path) -> HostConfig {
    let nic = NicConfig {
        name: "n0".into(),
        tenant: "n0".into(),
        cell: None,
        stays: false,
        transport: Transport::VfioUser,
        model: MODELS.default_model(),
        revision: None,
        socket: SocketSpec::Path(socket.to_owned()),
        mac: NicMac::from_name("n0"),
        port: PortSpec::Null,
        capture: None,
        capture_mib: hypernic::config::DEFAULT_CAPTURE_MIB,
        busy_poll: MAX_BUSY_POLL,
        moderation: Moderation::Adaptive,
        eeprom: None,
        pause: false,
        receive_throttling: false,
        csb: false,
        queue_pairs: 1,
        virtio: Virtio::default(),
        doorbell: hypernic::spec::Doorbell::Trap,
        mac_lock: false,
        back_pressure: true,
        cable: Cable::Up,
        guard: Guard::default(),
        vf: None,
        rules: None,
        pf_places_vf_rings: false,
    };
    HostConfig {
        nics: vec![nic],
        ..HostConfig::default()
    }
}

/// Hundreds of times, because what it looks for is a race: a NIC told to stop at the moment when its
/// thread is about to fall asleep.
#[test]
fn a_nic_can_be_stopped_at_any_moment() {
    let dir = tempfile::tempdir().expect("directory");
    let socket = dir.path().join("n0.sock");
    let config = config(&socket);
    for round in 0..300u64 {
        let host = Host::start(&config).expect("host");
        let mut client = Client::connect(&socket).expect("client");
        for _ in 0..20 {
            client.read_u32(BAR0, STATUS).expect("STATUS");
        }
        drop(client);
        // Anywhere within the time the thread stays awake, and a little after.
        std::thread::sleep(Duration::from_micros(round * 7 % 1200));
        host.stop();
    }
}

#[test]
fn a_timer_fires_while_register_accesses_keep_the_thread_awake() {
    let dir = tempfile::tempdir().expect("directory");
    let socket = dir.path().join("n0.sock");
    let config = config(&socket);
    let host = Host::start(&config).expect("host");
    let mut client = Client::connect(&socket).expect("client");
    client.write_u32(BAR0, CTRL, SLU).expect("CTRL");
    client
        .write_u32(BAR0, MDIC, WRITE_PHY_CONTROL | NEGOTIATE)
        .expect("MDIC");
    // Negotiation ends by the NIC's timer. The reads in between leave it no reason to sleep.
    let mut downs = 0;
    let patience = Instant::now() + Duration::from_secs(20);
    while client.read_u32(BAR0, STATUS).expect("STATUS") & LU == 0 {
        downs += 1;
        assert!(Instant::now() < patience, "the link never came back");
    }
    assert!(downs > 0, "the link never went down");
    drop(client);
    host.stop();
}
