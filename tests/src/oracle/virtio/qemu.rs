//! QEMU's virtio-net behind `-accel qtest`, reset with the bus that it is on.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rig::{Boot, Guest, GuestConfig, Netdev, Qtest, Rig};
use serde_json::json;
use tempfile::TempDir;

use super::{Machine, RAM, RAM_LEN};
use crate::oracle::layout::{BAR, MAC};

/// The PCIe port (device 1c.0 of bus 0) and the NIC (device 0 of bus 1).
const PORT: u32 = 0x8000_0000 | 0x1c << 11;
const NIC: u32 = 0x8001_0000;
/// Where its table of MSI-X is.
const MSIX: u64 = BAR + 0x1_0000;

/// Turns of its loop after which it has accepted the connection.
const TURNS: usize = 32;
/// Longer than it takes to listen on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// QEMU's.
pub struct Qemu {
    qtest: Qtest,
    wire: UnixStream,
    inbox: Vec<u8>,
    _guest: Guest,
    _scratch: TempDir,
}

/// Connects once QEMU listens.
fn connect(path: &Path) -> io::Result<UnixStream> {
    let end = Instant::now() + PATIENCE;
    loop {
        match UnixStream::connect(path) {
            Err(why) if Instant::now() > end => return Err(why),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
            connected => return connected,
        }
    }
}

impl Qemu {
    /// Starts QEMU.
    ///
    /// # Errors
    /// When it does not start, or has no such device.
    pub fn start(rig: &Rig) -> io::Result<Self> {
        let scratch = tempfile::Builder::new().prefix("hn-oracle-").tempdir()?;
        let path = scratch.path().join("wire");
        let mac = MAC.map(|b| format!("{b:02x}")).join(":");
        let netdev = Netdev::Stream {
            path: path.clone(),
            server: true,
        };
        let nic = rig::Nic::qemu("n0", "virtio-net-pci", Some(netdev))
            .mac(&mac)
            .rom("")
            .property("bus", json!("rp0"))
            .property("packed", json!(true));
        let mut config = GuestConfig::new("oracle").boot(Boot::Qtest).nic(nic);
        config.mem_mib = 32;
        config.hotplug_ports = 1;
        let guest = rig.start(config).map_err(io::Error::other)?;
        let qtest = guest.qtest().map_err(io::Error::other)?;
        let wire = connect(&path)?;
        wire.set_nonblocking(true)?;
        let mut qemu = Self {
            qtest,
            wire,
            inbox: Vec::new(),
            _guest: guest,
            _scratch: scratch,
        };
        for (at, value) in [
            (0x18, 0x0001_0100),
            (0x1c, 0x0000_c0c0),
            (0x20, 0xe000_e000),
            (0x24, 0x0000_fff0),
            (0x04, 0x0000_0007),
        ] {
            qemu.config(PORT, at, value)?;
        }
        let found = qemu.ask(&format!("outl 0xcf8 {NIC:#x}\ninl 0xcfc\n"))?;
        if found.last().map(String::as_str) != Some("0x10411af4") {
            return Err(io::Error::other(format!("no virtio-net there: {found:?}")));
        }
        // It accepts the connection in one turn of its loop, and listens to it in another.
        for _ in 0..TURNS {
            qemu.step()?;
        }
        Ok(qemu)
    }

    fn config(&mut self, function: u32, at: u32, value: u32) -> io::Result<()> {
        let at = function | at;
        self.ask(&format!("outl 0xcf8 {at:#x}\noutl 0xcfc {value:#x}\n"))?;
        Ok(())
    }

    fn ask(&mut self, text: &str) -> io::Result<Vec<String>> {
        self.qtest.batch(text)
    }

    fn step(&mut self) -> io::Result<()> {
        self.qtest.clock_step(Duration::from_nanos(1))?;
        Ok(())
    }

    fn drain(&mut self) -> io::Result<usize> {
        let mut buffer = [0; 0x1_0000];
        let mut total = 0;
        loop {
            match self.wire.read(&mut buffer) {
                Ok(0) => return Err(io::Error::other("QEMU closed the wire")),
                Ok(n) => {
                    self.inbox.extend_from_slice(&buffer[..n]);
                    total += n;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(total),
                Err(e) => return Err(e),
            }
        }
    }
}

impl Machine for Qemu {
    fn restart(&mut self) -> io::Result<()> {
        self.config(PORT, 0x3c, 0x0040_0000)?;
        self.config(PORT, 0x3c, 0)?;
        for (at, value) in [
            (0x14, MSIX as u32),
            (0x20, BAR as u32),
            (0x24, 0),
            (0x04, 0x0000_0006),
        ] {
            self.config(NIC, at, value)?;
        }
        let mut text = String::new();
        let _ = writeln!(text, "memset {RAM:#x} {RAM_LEN:#x} 0");
        self.ask(&text)?;
        self.sent()?;
        Ok(())
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut value = [0; 8];
        value[..bytes.len()].copy_from_slice(bytes);
        self.qtest
            .store(BAR + at, bytes.len(), u64::from_le_bytes(value))?;
        // What it puts off to the next turn of its loop.
        self.step()?;
        self.step()
    }

    fn read(&mut self, at: u64, len: usize) -> io::Result<u64> {
        self.step()?;
        self.qtest.load(BAR + at, len)
    }

    fn poke(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.qtest.write(at, bytes)
    }

    fn peek(&mut self, at: u64, len: usize) -> io::Result<Vec<u8>> {
        self.qtest.read(at, len)
    }

    fn frame(&mut self, frame: &[u8]) -> io::Result<()> {
        let len = (frame.len() as u32).to_be_bytes();
        self.wire.write_all(&len)?;
        self.wire.write_all(frame)?;
        // It looks at both sockets in each turn of its loop.
        self.step()?;
        self.step()
    }

    fn sent(&mut self) -> io::Result<Vec<Vec<u8>>> {
        loop {
            self.step()?;
            if self.drain()? == 0 {
                break;
            }
        }
        let (mut frames, mut at) = (Vec::new(), 0);
        while let Some(head) = self.inbox.get(at..at + 4) {
            let len = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
            let Some(frame) = self.inbox.get(at + 4..at + 4 + len) else {
                break;
            };
            frames.push(frame.to_vec());
            at += 4 + len;
        }
        self.inbox.drain(..at);
        Ok(frames)
    }
}
