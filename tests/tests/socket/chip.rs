//! What a guest can do with the chip beyond moving frames, over real sockets: MSI, power states and wake-up.

use std::time::{Duration, Instant};

use drivers::SocketBus;
use hypernic::config::HostConfig;
use hypernic::host::Host;
use tempfile::TempDir;
use vfio_user::codec::{irq, region};
use vfio_user::{Client, EventFd};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

const ICR: u64 = 0xc0;
const ICS: u64 = 0xc8;
const IMS: u64 = 0xd0;
const IMC: u64 = 0xd8;
const LSC: u32 = 4;
const RXT0: u32 = 0x80;

/// A host with one NIC, `more` being lines of its table.
fn host(dir: &TempDir, more: &str) -> Result<Host, String> {
    let socket = dir.path().join("n.sock");
    let text = format!(
        "[[nic]]\nname = \"n\"\nsocket-path = {socket:?}\nmac = \"52:54:00:00:78:01\"\n\
         port = \"null\"\n{more}\n"
    );
    let config = HostConfig::parse("n.toml".as_ref(), &text).map_err(|e| e.to_string())?;
    Host::start(&config).map_err(|e| e.to_string())
}

fn connect(dir: &TempDir) -> SocketBus {
    let path = dir.path().join("n.sock");
    let until = Instant::now() + PATIENCE;
    loop {
        match SocketBus::connect(&path) {
            Ok(bus) => return bus,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn read(client: &mut Client, at: u64) -> u32 {
    client.read_u32(0, at).expect("read")
}

fn write(client: &mut Client, at: u64, value: u32) {
    client
        .region_write(0, at, &value.to_le_bytes())
        .expect("write");
}

/// Where the capability `id` lies.
fn capability(client: &mut Client, id: u8) -> Option<u64> {
    let mut at = client.read_u8(region::CONFIG, 0x34).expect("config");
    while at != 0 {
        let found = client.read_u16(region::CONFIG, at.into()).expect("config");
        if found as u8 == id {
            return Some(at.into());
        }
        at = (found >> 8) as u8;
    }
    None
}

#[test]
fn messages_take_the_place_of_the_pin_and_none_is_lost() {
    let dir = tempfile::tempdir().expect("directory");
    let _host = host(&dir, "").expect("host");
    let mut bus = connect(&dir);
    let client = bus.client();
    assert_eq!(client.irq_info(irq::MSI).expect("info").count, 1);
    let msi = capability(client, 5).expect("an MSI capability");
    let control = client.read_u16(region::CONFIG, msi + 2).expect("config");
    assert_eq!(control, 0x80, "one message, 64-bit address, disabled");
    let enable = |client: &mut Client, on: u16| {
        let value = (control | on).to_le_bytes();
        client
            .region_write(region::CONFIG, msi + 2, &value)
            .expect("config");
    };
    let (pin, message) = (EventFd::new().expect("fd"), EventFd::new().expect("fd"));
    client.arm(irq::INTX, 0, &[&pin]).expect("arm");
    // Before MSI: the pin.
    write(client, IMS, LSC | RXT0);
    write(client, ICS, LSC);
    assert!(pin.wait(PATIENCE).is_some());
    // Enabled with the cause still pending, and before the VMM has armed the vector.
    enable(client, 1);
    client.disarm(irq::INTX).expect("disarm");
    client.arm(irq::MSI, 0, &[&message]).expect("arm");
    assert!(
        message.wait(PATIENCE).is_some(),
        "the pending cause is told"
    );
    assert_eq!(read(client, ICR), LSC);
    for _ in 0..100 {
        write(client, ICS, RXT0);
        assert!(message.wait(PATIENCE).is_some());
        write(client, IMC, !0);
        assert_eq!(read(client, ICR), RXT0);
        write(client, ICS, RXT0);
        assert_eq!(read(client, IMS), 0);
        assert_eq!(message.take(), 0, "masked");
        write(client, IMS, LSC | RXT0);
        assert!(message.wait(PATIENCE).is_some(), "told on unmask");
        assert_eq!(read(client, ICR), RXT0);
    }
    assert_eq!(pin.take(), 0, "the pin was silent");
    // Disabled with a cause pending: the pin tells it.
    write(client, ICS, LSC);
    assert!(message.wait(PATIENCE).is_some());
    enable(client, 0);
    client.disarm(irq::MSI).expect("disarm");
    client.arm(irq::INTX, 0, &[&pin]).expect("arm");
    assert!(pin.wait(PATIENCE).is_some());
    assert_eq!(read(client, ICR), LSC);
    // A machine reset turns MSI off.
    enable(client, 1);
    client.reset().expect("reset");
    assert_eq!(
        client.read_u16(region::CONFIG, msi + 2).expect("config"),
        control
    );
    write(client, IMS, LSC);
    write(client, ICS, LSC);
    client.unmask(irq::INTX, 0).expect("unmask");
    assert!(pin.wait(PATIENCE).is_some());
}

#[test]
fn a_frame_wakes_a_sleeping_guest_and_pmcsr_shows_it() {
    const WUC: u64 = 0x5800;
    const WUFC: u64 = 0x5808;
    const WUS: u64 = 0x5810;
    let dir = tempfile::tempdir().expect("directory");
    let far = dir.path().join("far.sock");
    let listener = std::os::unix::net::UnixListener::bind(&far).expect("far end");
    let socket = dir.path().join("n.sock");
    let text = format!(
        "[[nic]]\nname = \"n\"\nsocket-path = {socket:?}\nmac = \"52:54:00:00:78:01\"\n\
         port = \"stream:{}\"\n",
        far.display()
    );
    let config = HostConfig::parse("n.toml".as_ref(), &text).expect("configuration");
    let _host = Host::start(&config).expect("host");
    let mut bus = connect(&dir);
    let client = bus.client();
    let pm = capability(client, 1).expect("power management");
    let pmc = client.read_u16(region::CONFIG, pm + 2).expect("config");
    assert_eq!(pmc >> 11, 0b1_1001, "PME from D0, D3 hot and D3 cold");
    let pmcsr = |client: &mut Client| client.read_u16(region::CONFIG, pm + 4).expect("config");
    let set_pmcsr = |client: &mut Client, value: u16| {
        client
            .region_write(region::CONFIG, pm + 4, &value.to_le_bytes())
            .expect("config");
    };
    write(client, 0, 0x241);
    // Broadcast frames are to wake it; then to sleep with PME enabled.
    write(client, WUFC, 1 << 4);
    set_pmcsr(client, 1 << 8 | 3);
    assert_eq!(read(client, WUC) & 2, 2, "the same bit");
    assert_eq!(pmcsr(client), 1 << 8 | 3);
    let (mut peer, _) = listener.accept().expect("the port connects");
    let mut frame = vec![0xff; 6];
    frame.resize(60, 0x55);
    let until = Instant::now() + PATIENCE;
    while pmcsr(client) & 1 << 15 == 0 {
        assert!(Instant::now() < until, "PME_Status does not come");
        use std::io::Write;
        peer.write_all(&60u32.to_be_bytes()).expect("length");
        peer.write_all(&frame).expect("frame");
        std::thread::sleep(Duration::from_millis(10));
    }
    // Awake: the function has been reset, and still tells why.
    set_pmcsr(client, 1 << 8);
    assert_eq!(pmcsr(client), 1 << 15 | 1 << 8);
    assert_eq!(read(client, WUS), 1 << 4);
    assert_eq!(read(client, 0), 0x201, "reset");
    set_pmcsr(client, 1 << 15);
    assert_eq!(pmcsr(client), 0);
    assert_eq!(read(client, WUC), 0);
}
