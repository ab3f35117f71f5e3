//! A client of QEMU's qtest protocol (docs/devel/testing/qtest.rst): pokes a machine without a guest in it.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A machine under test. Accesses go straight to the machine's I/O ports and physical memory.
#[derive(Debug)]
pub struct Qtest {
    stream: BufReader<UnixStream>,
    /// Answers that no caller has waited for yet.
    owed: usize,
}

/// Answers that may lie unread in the socket, which has room for a few hundred.
const OWED: usize = 64;

impl Qtest {
    pub(crate) fn connect(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        // A vfio-user access that its server leaves unanswered fails in QEMU after 5 s.
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Self {
            stream: BufReader::new(stream),
            owed: 0,
        })
    }

    fn command(&mut self, command: &str) -> io::Result<String> {
        self.catch_up()?;
        self.stream.get_mut().write_all(command.as_bytes())?;
        self.stream.get_mut().write_all(b"\n")?;
        self.answer(command)
    }

    /// Runs commands of the protocol, one a line, handed over in one piece; returns their answers.
    /// Their text must be shorter than a socket's buffer, or both sides may wait for each other.
    ///
    /// # Errors
    /// When QEMU has ended or refuses one of them.
    pub fn batch(&mut self, commands: &str) -> io::Result<Vec<String>> {
        self.catch_up()?;
        self.stream.get_mut().write_all(commands.as_bytes())?;
        commands
            .lines()
            .map(|command| self.answer(command))
            .collect()
    }

    fn answer(&mut self, command: &str) -> io::Result<String> {
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line)? == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "QEMU ended"));
            }
            let line = line.trim_end();
            // Interrupt reports may come between a command and its answer.
            if line.starts_with("IRQ ") {
                continue;
            }
            return match line.strip_prefix("OK") {
                Some(value) => Ok(value.trim_start().to_owned()),
                None => Err(io::Error::other(format!("qtest `{command}`: {line}"))),
            };
        }
    }

    /// Reads the answers that are still owed.
    fn catch_up(&mut self) -> io::Result<()> {
        while self.owed > 0 {
            self.answer("posted")?;
            self.owed -= 1;
        }
        Ok(())
    }

    /// Writes an I/O port, `size` bytes wide (1, 2 or 4), without waiting until it is done: as a
    /// processor does whose writes get no answer.
    ///
    /// # Errors
    /// When QEMU has ended or has refused an earlier one.
    pub fn port_post(&mut self, port: u16, size: usize, value: u32) -> io::Result<()> {
        if self.owed >= OWED {
            self.catch_up()?;
        }
        let command = format!("out{} {port:#x} {value:#x}\n", suffix(size));
        self.stream.get_mut().write_all(command.as_bytes())?;
        self.owed += 1;
        Ok(())
    }

    fn value(&mut self, command: &str) -> io::Result<u64> {
        let text = self.command(command)?;
        let digits = text.trim_start_matches("0x");
        u64::from_str_radix(digits, 16)
            .map_err(|_| io::Error::other(format!("qtest `{command}`: answer `{text}`")))
    }

    /// Reads an I/O port, `size` bytes wide (1, 2 or 4).
    ///
    /// # Errors
    /// When QEMU has ended or refuses.
    pub fn port_read(&mut self, port: u16, size: usize) -> io::Result<u32> {
        let value = self.value(&format!("in{} {port:#x}", suffix(size)))?;
        u32::try_from(value).map_err(io::Error::other)
    }

    /// Writes an I/O port, `size` bytes wide (1, 2 or 4).
    ///
    /// # Errors
    /// When QEMU has ended or refuses.
    pub fn port_write(&mut self, port: u16, size: usize, value: u32) -> io::Result<()> {
        self.command(&format!("out{} {port:#x} {value:#x}", suffix(size)))
            .map(drop)
    }

    /// Reads 1, 2, 4 or 8 bytes of physical memory as one access.
    ///
    /// # Errors
    /// When QEMU has ended or refuses.
    pub fn load(&mut self, address: u64, size: usize) -> io::Result<u64> {
        self.value(&format!("read{} {address:#x}", suffix(size)))
    }

    /// Writes 1, 2, 4 or 8 bytes of physical memory as one access.
    ///
    /// # Errors
    /// When QEMU has ended or refuses.
    pub fn store(&mut self, address: u64, size: usize, value: u64) -> io::Result<()> {
        self.command(&format!("write{} {address:#x} {value:#x}", suffix(size)))
            .map(drop)
    }

    /// Reads a stretch of physical memory.
    ///
    /// # Errors
    /// When QEMU has ended or refuses.
    pub fn read(&mut self, address: u64, length: usize) -> io::Result<Vec<u8>> {
        if length == 0 {
            return Ok(Vec::new());
        }
        let text = self.command(&format!("read {address:#x} {length:#x}"))?;
        unhex(text.trim_start_matches("0x")).ok_or_else(|| io::Error::other("qtest: bad hex"))
    }

    /// Writes a stretch of physical memory.
    ///
    /// # Errors
    /// When QEMU has ended or refuses.
    pub fn write(&mut self, address: u64, data: &[u8]) -> io::Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let mut command = format!("write {address:#x} {:#x} 0x", data.len());
        for byte in data {
            let _ = write!(command, "{byte:02x}");
        }
        self.command(&command).map(drop)
    }

    /// Lets the machine's virtual clock run on by `step`; returns its time.
    ///
    /// # Errors
    /// When QEMU has ended or refuses.
    pub fn clock_step(&mut self, step: Duration) -> io::Result<Duration> {
        let text = self.command(&format!("clock_step {}", step.as_nanos()))?;
        text.parse()
            .map(Duration::from_nanos)
            .map_err(io::Error::other)
    }

    /// Reads a 32-bit word of PCI configuration space by the 0xCF8/0xCFC mechanism.
    ///
    /// # Errors
    /// When QEMU has ended or refuses.
    pub fn pci_read(&mut self, bus: u8, slot: u8, function: u8, offset: u8) -> io::Result<u32> {
        self.port_write(0xcf8, 4, pci_address(bus, slot, function, offset))?;
        self.port_read(0xcfc, 4)
    }

    /// Writes a 32-bit word of PCI configuration space by the 0xCF8/0xCFC mechanism.
    ///
    /// # Errors
    /// When QEMU has ended or refuses.
    pub fn pci_write(
        &mut self,
        bus: u8,
        slot: u8,
        function: u8,
        offset: u8,
        value: u32,
    ) -> io::Result<()> {
        self.port_write(0xcf8, 4, pci_address(bus, slot, function, offset))?;
        self.port_write(0xcfc, 4, value)
    }
}

fn suffix(size: usize) -> char {
    match size {
        1 => 'b',
        2 => 'w',
        4 => 'l',
        8 => 'q',
        _ => panic!("an access is 1, 2, 4 or 8 bytes wide, not {size}"),
    }
}

fn pci_address(bus: u8, slot: u8, function: u8, offset: u8) -> u32 {
    assert!(
        slot < 32 && function < 8,
        "no such PCI device: {slot}.{function}"
    );
    0x8000_0000
        | u32::from(bus) << 16
        | u32::from(slot) << 11
        | u32::from(function) << 8
        | u32::from(offset & 0xfc)
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    digits
        .map(|d| u8::from_str_radix(std::str::from_utf8(d).ok()?, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_addresses() {
        assert_eq!(pci_address(0, 0, 0, 0), 0x8000_0000);
        assert_eq!(pci_address(1, 31, 7, 0x13), 0x8001_ff10);
    }

    #[test]
    fn posted_writes_are_in_order_and_their_answers_are_nobody_elses() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("qtest");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let machine = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut answers = stream.try_clone().unwrap();
            let mut seen = Vec::new();
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                let answer = if line.starts_with("in") {
                    "OK 0x2a\n"
                } else {
                    "OK\n"
                };
                answers.write_all(answer.as_bytes()).unwrap();
                seen.push(line);
            }
            seen
        });
        let mut qtest = Qtest::connect(&path).unwrap();
        for value in 0..3 * OWED as u32 {
            qtest.port_post(0xc010, 2, value).unwrap();
            if value % 100 == 99 {
                assert_eq!(qtest.port_read(0xc012, 1).unwrap(), 0x2a);
            }
        }
        assert_eq!(qtest.port_read(0xc012, 1).unwrap(), 0x2a);
        drop(qtest);
        let seen = machine.join().unwrap();
        let written = seen.iter().filter(|line| line.starts_with("outw"));
        let wanted = (0..3 * OWED).map(|value| format!("outw 0xc010 {value:#x}"));
        assert!(written.eq(&wanted.collect::<Vec<_>>()));
        assert_eq!(seen.len(), 3 * OWED + 2);
    }

    #[test]
    fn hex() {
        assert_eq!(unhex("00ff10"), Some(vec![0, 255, 16]));
        assert_eq!(unhex("0g"), None);
        assert_eq!(unhex(""), Some(vec![]));
    }
}
