//! QEMU's NIC behind `-accel qtest`: one process for all scripts. Between scripts the bus below
//! its PCIe port is reset, which takes the NIC back to power-up within one register write.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rig::{Boot, Guest, GuestConfig, Netdev, Qtest, Rig};
use serde_json::json;
use tempfile::TempDir;

use super::base64;
use crate::oracle::chip::Chip;
use crate::oracle::layout::{
    ARENA, ARENA_LEN, BAR, LOW_ZEROS, MAC, MESSAGE_LEN, MESSAGES, MSIX_TABLE, RING_LEN, RX_BUFFERS,
    RX_RING, SETTLE, TX_RING, VECTORS, VF_TABLES, VF_VECTORS, VF_WINDOW, VF_WINDOWS,
};
use crate::oracle::script::{Op, Script};
use crate::oracle::trace::{End, Look, Trace};

/// The capability of MSI-X in configuration space.
const MSIX: u32 = 0x70;
/// The PCIe port (device 1c.0 of bus 0) and the NIC (device 0 of bus 1) in configuration mechanism 1.
const PORT: u32 = 0x8000_0000 | 0x1c << 11;
const NIC: u32 = 0x8001_0000;
/// The first virtual function, and how far it is to the next.
const VF: u32 = NIC | 0x80 << 8;
const NEXT_VF: u32 = 2 << 8;
/// The host bridge's register that says where all of configuration space is mapped, which is here, and
/// the NIC's there.
const PCIEXBAR: u32 = 0x8000_0060;
const ECAM: u64 = 0xb000_0000;
const NIC_ECAM: u64 = ECAM + (1 << 20);
/// The capability of SR-IOV: its control, the number of functions, where their BARs 0 and 3 are.
const SRIOV: u64 = NIC_ECAM + 0x160;
const SRIOV_CONTROL: u64 = SRIOV + 8;
const SRIOV_NUMBER: u64 = SRIOV + 0x10;
const SRIOV_BARS: [(u64, u64); 2] = [
    (SRIOV + 0x24, BAR + VF_WINDOWS as u64),
    (SRIOV + 0x30, VF_TABLES),
];
/// They are there, and their memory is decoded.
const SRIOV_ON: u32 = 1 | 1 << 3;
/// Longest text handed to QEMU before its answers are read: it must fit into the socket's buffer, or
/// both sides could wait for each other.
const BURST: usize = 0x8000;
const RCTL: u64 = 0x100;
const RDBAL: u64 = 0x2800;
const RDLEN: u64 = 0x2808;
const RDH: u64 = 0x2810;
const RDT: u64 = 0x2818;
const RXDCTL: u64 = 0x2828;
const RAL: u64 = 0x5400;
/// Whom the last frame of a script is for.
const LAST: [u8; 6] = [0x02, 0xee, 0xee, 0xee, 0xee, 0xee];

/// A machine whose only device is QEMU's NIC.
pub struct Theirs {
    chip: &'static Chip,
    qtest: Qtest,
    wire: UnixStream,
    /// The script before sent frames to the NIC.
    waiting: bool,
    /// Bytes of sent frames that have come so far.
    inbox: Vec<u8>,
    _guest: Guest,
    _scratch: TempDir,
}

impl Theirs {
    /// Starts QEMU.
    ///
    /// # Errors
    /// When it does not start or behaves in no way that is known.
    pub fn start(chip: &'static Chip, rig: &Rig) -> io::Result<Self> {
        let scratch = tempfile::Builder::new().prefix("hn-oracle-").tempdir()?;
        let path = scratch.path().join("wire");
        let mac = MAC.map(|b| format!("{b:02x}")).join(":");
        let netdev = Netdev::Stream {
            path: path.clone(),
            server: true,
        };
        let nic = rig::Nic::qemu("n0", chip.peer, Some(netdev))
            .mac(&mac)
            .rom("")
            .property("bus", json!("rp0"));
        let mut config = GuestConfig::new("oracle").boot(Boot::Qtest).nic(nic);
        config.mem_mib = 32;
        config.hotplug_ports = 1;
        let guest = rig.start(config).map_err(io::Error::other)?;
        let qtest = guest.qtest().map_err(io::Error::other)?;
        let wire = UnixStream::connect(&path)?;
        wire.set_nonblocking(true)?;
        let mut theirs = Self {
            chip,
            qtest,
            wire,
            // QEMU dies when it has a frame to send before it has accepted the connection; once it
            // has received one, it has.
            waiting: true,
            inbox: Vec::new(),
            _guest: guest,
            _scratch: scratch,
        };
        theirs.open_port()?;
        Ok(theirs)
    }

    /// Gives the port a bus behind it and windows to it.
    fn open_port(&mut self) -> io::Result<()> {
        let mut text = String::new();
        for (at, value) in [
            (0x18, 0x0001_0100),
            (0x1c, 0x0000_c0c0),
            (0x20, 0xe000_e000),
            (0x24, 0x0000_fff0),
            (0x04, 0x0000_0007),
        ] {
            config_write(&mut text, PORT, at, value);
        }
        config_write(&mut text, PCIEXBAR, 0, ECAM as u32 | 1);
        config_read(&mut text, NIC, 0);
        let answers = self.ask(&text)?;
        let found = answers.last().map(|a| value(a)).transpose()?;
        if found == Some(self.chip.id.into()) {
            return Ok(());
        }
        let peer = self.chip.peer;
        Err(io::Error::other(format!("no {peer} there: {answers:?}")))
    }

    /// Runs a script.
    ///
    /// # Errors
    /// When QEMU has ended or refuses.
    pub fn run(&mut self, script: &Script) -> io::Result<Trace> {
        self.reset()?;
        let mut looks = Vec::new();
        let (mut text, mut reads) = (String::new(), Vec::new());
        for op in script.ops.iter().chain([&Op::Look]) {
            match op {
                Op::Frames(frames) => {
                    self.waiting = true;
                    let _ = writeln!(text, "clock_step {SETTLE}");
                    self.ask_reads(&mut text, &mut reads)?;
                    for frame in frames {
                        let len = (frame.len() as u32).to_be_bytes();
                        self.send(&len)?;
                        self.send(frame)?;
                    }
                    // QEMU looks at both sockets in each turn of its loop: once it has answered
                    // here, the frames were taken before the next command is.
                    self.qtest.clock_step(Duration::from_nanos(1))?;
                }
                Op::Look => {
                    let look = self.look(&mut text, &mut reads)?;
                    looks.push(look);
                }
                other => self.note(other, &mut text),
            }
        }
        let offsets = (self.chip.sweep)(script);
        let mut text = String::new();
        for at in &offsets {
            let _ = writeln!(text, "readl {:#x}", BAR + u64::from(*at));
        }
        let _ = writeln!(text, "b64read {ARENA:#x} {ARENA_LEN:#x}");
        let mut answers = self.ask(&text)?;
        let arena = memory(answers.pop())?;
        let registers: io::Result<_> = answers.iter().map(|a| Ok(value(a)? as u32)).collect();
        let end = End {
            registers: registers?,
            arena,
        };
        Ok(Trace { looks, end })
    }

    /// Takes the NIC back to power-up and memory to zero.
    fn reset(&mut self) -> io::Result<()> {
        let mut text = String::new();
        self.bus_reset(&mut text);
        if std::mem::take(&mut self.waiting) {
            self.ask(&text)?;
            self.receive_what_waits()?;
            self.bus_reset(&mut text);
        }
        for (at, value) in self.chip.forgotten {
            let _ = writeln!(text, "writel {:#x} {value:#x}", BAR + u64::from(*at));
        }
        // Null addresses reach the lowest memory.
        let _ = writeln!(
            text,
            "memset 0 {LOW_ZEROS:#x} 0\nmemset {ARENA:#x} {ARENA_LEN:#x} 0"
        );
        self.clear_messages(&mut text);
        for op in (self.chip.prologue)() {
            self.note(&op, &mut text);
        }
        self.ask(&text)?;
        self.sent()?;
        self.inbox.clear();
        Ok(())
    }

    /// Frames that found the receiver off or without buffers wait in QEMU and in the socket to it.
    /// A frame behind them, for an address of its own, shows when all are through.
    fn receive_what_waits(&mut self) -> io::Result<()> {
        let mut text = String::new();
        store(&mut text, RX_RING, &RX_BUFFERS.to_le_bytes());
        for (at, value) in [
            (
                RAL,
                u32::from_le_bytes([LAST[0], LAST[1], LAST[2], LAST[3]]),
            ),
            (RAL + 4, u32::from_le_bytes([LAST[4], LAST[5], 0, 0x80])),
            (RDBAL, RX_RING as u32),
            (RDLEN, 128),
            (RDT, 1),
            (RCTL, 2),
        ] {
            let _ = writeln!(text, "writel {:#x} {value:#x}", BAR + at);
        }
        if self.chip.vfs > 0 {
            // Of a VF, the queue is off, and its tail tells that it has buffers.
            for (at, value) in [(RXDCTL, 1 << 25), (RDT, 1)] {
                let _ = writeln!(text, "writel {:#x} {value:#x}", BAR + at);
            }
        }
        self.ask(&text)?;
        let mut frame = LAST.to_vec();
        frame.resize(60, 0);
        self.send(&(frame.len() as u32).to_be_bytes())?;
        self.send(&frame)?;
        for _ in 0..1000 {
            let answers = self.ask(&format!("clock_step {SETTLE}\nreadl {:#x}\n", BAR + RDH))?;
            if answers.last().map(|a| value(a)).transpose()? == Some(1) {
                return Ok(());
            }
        }
        Err(io::Error::other("QEMU does not take the last frame"))
    }

    /// Resets the bus behind the port, maps the NIC again and brings its link up.
    fn bus_reset(&self, text: &mut String) {
        text.clear();
        config_write(text, PORT, 0x3c, 0x0040_0000);
        config_write(text, PORT, 0x3c, 0);
        for (at, value) in self.chip.config {
            config_write(text, NIC, *at, *value);
        }
        self.enable_vfs(text);
        for op in (self.chip.link_up)() {
            self.note(&op, text);
        }
        let _ = writeln!(text, "clock_step {SETTLE}");
    }

    /// Brings the virtual functions to life, and has them master the bus.
    fn enable_vfs(&self, text: &mut String) {
        if self.chip.vfs == 0 {
            return;
        }
        for (bar, place) in SRIOV_BARS {
            let _ = writeln!(text, "writel {bar:#x} {place:#x}\nwritel {:#x} 0", bar + 4);
        }
        let _ = writeln!(text, "writew {SRIOV_NUMBER:#x} {}", self.chip.vfs);
        let _ = writeln!(text, "writew {SRIOV_CONTROL:#x} {SRIOV_ON:#x}");
        for vf in 0..self.chip.vfs {
            config_write(text, VF + NEXT_VF * vf, 4, 6);
        }
    }

    /// Bytes of memory that messages are written to.
    fn messages_len(&self) -> u64 {
        let vectors = u64::from(VECTORS) + u64::from(VF_VECTORS) * u64::from(self.chip.vfs);
        vectors * MESSAGE_LEN
    }

    fn clear_messages(&self, text: &mut String) {
        let _ = writeln!(text, "memset {MESSAGES:#x} {:#x} 0", self.messages_len());
    }

    /// Adds the commands of a step that needs nothing else.
    fn note(&self, op: &Op, text: &mut String) {
        match op {
            Op::Write { at, size, value } => {
                let to = BAR + u64::from(*at);
                let _ = writeln!(text, "write{} {to:#x} {value:#x}", suffix(*size));
            }
            Op::Read { at, size } => {
                let from = BAR + u64::from(*at);
                let _ = writeln!(text, "clock_step {SETTLE}\nread{} {from:#x}", suffix(*size));
            }
            Op::Mem { at, bytes } => {
                for (i, part) in bytes.chunks(BURST / 2).enumerate() {
                    store(text, at + (i * BURST / 2) as u64, part);
                }
            }
            Op::Msix => {
                messages_on(text, NIC, MSIX_TABLE, (0, VECTORS));
                for vf in 0..self.chip.vfs {
                    let table = VF_TABLES + u64::from(VF_WINDOW * vf);
                    let first = VECTORS + VF_VECTORS * vf as u16;
                    messages_on(text, VF + NEXT_VF * vf, table, (first, VF_VECTORS));
                }
            }
            Op::Frames(_) | Op::Look => {}
        }
    }

    /// Runs what is noted in `text` and keeps what its reads gave.
    fn ask_reads(&mut self, text: &mut String, reads: &mut Vec<u64>) -> io::Result<()> {
        let commands = std::mem::take(text);
        let answers = self.ask(&commands)?;
        for (command, answer) in commands.lines().zip(answers) {
            if command.starts_with("read") {
                reads.push(value(&answer)?);
            }
        }
        Ok(())
    }

    fn look(&mut self, text: &mut String, reads: &mut Vec<u64>) -> io::Result<Look> {
        self.ask_reads(text, reads)?;
        let mut text = String::new();
        let _ = writeln!(text, "clock_step {SETTLE}");
        self.ask(&text)?;
        // Frames that waited for that time to pass may have started timers of their own.
        let _ = writeln!(text, "clock_step {SETTLE}");
        let watched = self.chip.watched;
        for (at, _) in watched {
            let _ = writeln!(text, "readl {:#x}", BAR + u64::from(*at));
        }
        config_read(&mut text, NIC, 4);
        let len = self.messages_len();
        let _ = writeln!(text, "b64read {MESSAGES:#x} {len:#x}");
        self.clear_messages(&mut text);
        let _ = writeln!(text, "b64read {TX_RING:#x} {RING_LEN:#x}");
        let _ = writeln!(text, "b64read {RX_RING:#x} {RING_LEN:#x}");
        let mut answers = self.ask(&text)?;
        let rx_ring = memory(answers.pop())?;
        let tx_ring = memory(answers.pop())?;
        // To the clearing of the messages there is no value.
        answers.pop();
        let places = memory(answers.pop())?;
        let sent = places.chunks(MESSAGE_LEN as usize).enumerate();
        let messages = sent.fold(0, |all, (i, place)| all | u32::from(place[0] != 0) << i);
        let status = value(&answers.pop().unwrap_or_default())? >> 16;
        // And to the choice of the place in configuration space neither.
        answers.pop();
        let values = &answers[answers.len() - watched.len()..];
        let watched: io::Result<_> = values.iter().map(|a| Ok(value(a)? as u32)).collect();
        Ok(Look {
            reads: std::mem::take(reads),
            line: status & 8 != 0,
            messages,
            watched: watched?,
            tx_ring,
            rx_ring,
            sent: self.sent()?,
        })
    }

    /// Runs commands, one a line; returns their answers.
    fn ask(&mut self, text: &str) -> io::Result<Vec<String>> {
        let mut answers = Vec::new();
        let mut burst = String::new();
        for line in text.lines() {
            if !burst.is_empty() && burst.len() + line.len() >= BURST {
                answers.extend(self.qtest.batch(&burst)?);
                self.drain()?;
                burst.clear();
            }
            burst.push_str(line);
            burst.push('\n');
        }
        if !burst.is_empty() {
            answers.extend(self.qtest.batch(&burst)?);
            self.drain()?;
        }
        Ok(answers)
    }

    fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.wire.write(bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    // One more turn of QEMU's loop empties the socket.
                    self.qtest.clock_step(Duration::from_nanos(1))?;
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Reads what QEMU has sent so far.
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

    /// The frames that were sent, once no more come.
    fn sent(&mut self) -> io::Result<Vec<Vec<u8>>> {
        // What QEMU could not write at once, it writes in later turns of its loop.
        loop {
            self.qtest.clock_step(Duration::from_nanos(1))?;
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

fn suffix(size: u8) -> char {
    match size {
        1 => 'b',
        2 => 'w',
        4 => 'l',
        _ => 'q',
    }
}

/// Turns MSI-X on in a function, with all vectors open; its messages are so many from the first on.
fn messages_on(text: &mut String, function: u32, table: u64, (first, vectors): (u16, u16)) {
    for vector in 0..u64::from(vectors) {
        let entry = table + 16 * vector;
        let place = MESSAGES + MESSAGE_LEN * (u64::from(first) + vector);
        for (at, value) in [(0, place), (4, 0), (8, 1), (12, 0)] {
            let _ = writeln!(text, "writel {:#x} {value:#x}", entry + at);
        }
    }
    config_write(text, function, MSIX, 0x8000_0000);
}

fn config_write(text: &mut String, function: u32, at: u32, value: u32) {
    let _ = writeln!(
        text,
        "outl 0xcf8 {:#x}\noutl 0xcfc {value:#x}",
        function | at
    );
}

fn config_read(text: &mut String, function: u32, at: u32) {
    let _ = writeln!(text, "outl 0xcf8 {:#x}\ninl 0xcfc", function | at);
}

fn store(text: &mut String, at: u64, bytes: &[u8]) {
    if !bytes.is_empty() {
        let data = base64::encode(bytes);
        let _ = writeln!(text, "b64write {at:#x} {:#x} {data}", bytes.len());
    }
}

fn value(answer: &str) -> io::Result<u64> {
    let bad = |_| io::Error::other(format!("qtest: `{answer}` is no number"));
    u64::from_str_radix(answer.trim_start_matches("0x"), 16).map_err(bad)
}

fn memory(answer: Option<String>) -> io::Result<Vec<u8>> {
    let bytes = answer.and_then(|text| base64::decode(text.trim()));
    bytes.ok_or_else(|| io::Error::other("qtest: no base 64"))
}
