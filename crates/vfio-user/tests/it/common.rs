//! A device that remembers what it was told, and a server thread around it.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use guest_mem::quota::Tenant;
use hypernic_vfio_user::pci::{Bar, ConfigEvent, Msi, Msix};
use hypernic_vfio_user::{
    Client, ClientError, ClientEvent, ClientOptions, Device, DeviceDescription, Dma, DmaChange,
    DmaError, DmaToken, EventFd, Interrupts, Listener, ResetCause, Server, ServerError, SharedMem,
    SparseArea, Work,
};
use parking_lot::Mutex;

pub const WAIT: Duration = Duration::from_secs(5);

/// Offset in BAR 0 whose write asks for message DMA: the iova, 8 bytes.
pub const DMA_READ: u64 = 0x800;
/// Offset in BAR 0 that reads how many DMA reads are done.
pub const DMA_DONE: u64 = 0x808;
/// Writing here schedules work.
pub const KICK: u64 = 0x810;
/// Reads how often work was done.
pub const WORKED: u64 = 0x818;

/// What the device saw.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    Read(u8, u64, usize),
    Write(u8, u64, Vec<u8>),
    Config(ConfigEvent),
    Reset(ResetCause),
    Client(ClientEvent),
    Dma(DmaChange),
    DmaDone(DmaToken, Result<Vec<u8>, DmaError>),
    Work,
}

pub struct Notebook {
    pub seen: Arc<Mutex<Vec<Seen>>>,
    pub memory: Vec<u8>,
    pub page: SharedMem,
    pub dma: Dma,
    pub done: u32,
    pub worked: Arc<AtomicU32>,
    pub kicks: u32,
}

impl Notebook {
    fn note(&self, seen: Seen) {
        self.seen.lock().push(seen);
    }
}

impl Device for Notebook {
    fn bar_read(&mut self, bar: u8, offset: u64, data: &mut [u8]) {
        self.note(Seen::Read(bar, offset, data.len()));
        match (bar, offset) {
            (0, DMA_DONE) => {
                data.copy_from_slice(&u64::from(self.done).to_le_bytes()[..data.len()])
            }
            (0, WORKED) => {
                let worked = u64::from(self.worked.load(Ordering::SeqCst));
                data.copy_from_slice(&worked.to_le_bytes()[..data.len()]);
            }
            (2, _) => self.page.read(offset as usize, data),
            _ => {
                let at = offset as usize;
                data.copy_from_slice(&self.memory[at..at + data.len()]);
            }
        }
    }

    fn bar_write(&mut self, bar: u8, offset: u64, data: &[u8]) {
        self.note(Seen::Write(bar, offset, data.to_vec()));
        match (bar, offset) {
            (0, DMA_READ) => {
                if let Ok(iova) = data.try_into() {
                    self.dma.read(u64::from_le_bytes(iova), 64).unwrap();
                }
            }
            (0, KICK) => self.kicks += 1,
            (2, _) => self.page.write(offset as usize, data),
            _ => {
                let at = offset as usize;
                self.memory[at..at + data.len()].copy_from_slice(data);
            }
        }
    }

    fn config_event(&mut self, event: ConfigEvent) {
        self.note(Seen::Config(event));
    }

    fn reset(&mut self, why: ResetCause) {
        self.memory.fill(0);
        self.note(Seen::Reset(why));
    }

    fn client(&mut self, event: ClientEvent) {
        self.note(Seen::Client(event));
    }

    fn dma_map_changed(&mut self, change: DmaChange) {
        self.note(Seen::Dma(change));
    }

    fn dma_done(&mut self, token: DmaToken, result: Result<Vec<u8>, DmaError>) {
        self.done += 1;
        self.note(Seen::DmaDone(token, result));
    }

    fn work(&mut self) -> Work {
        if self.kicks > 0 {
            self.kicks = 0;
            self.worked.fetch_add(1, Ordering::SeqCst);
            self.note(Seen::Work);
        }
        Work::Idle
    }
}

pub const MSIX: Msix = Msix {
    vectors: 70,
    table_bar: 0,
    table_offset: 0x1000,
    pba_bar: 0,
    pba_offset: 0x1800,
};

pub fn page() -> SharedMem {
    SharedMem::new("page", 0x4000).unwrap()
}

/// BAR 0: memory with the MSI-X structures; BAR 1: I/O; BAR 2: mappable pages if `mmap`.
pub fn description(page: &SharedMem, mmap: bool) -> DeviceDescription {
    let d = DeviceDescription::new(0x8086, 0x100e)
        .class(0x02_00_00)
        .revision(3)
        .subsystem(0x8086, 0x001e)
        .bar(0, Bar::memory32(0x2000))
        .bar(1, Bar::io(64))
        .intx(1)
        .msi(Msi::new(2).address64().masking())
        .msix(MSIX)
        .rom(vec![0x55, 0xaa, 1, 2, 3]);
    if mmap {
        let areas = [
            SparseArea {
                offset: 0x1000,
                size: 0x1000,
            },
            SparseArea {
                offset: 0x3000,
                size: 0x1000,
            },
        ];
        d.bar(2, Bar::memory32(0x4000))
            .mmap(2, page.clone(), &areas)
    } else {
        d
    }
}

pub struct Rig {
    pub path: PathBuf,
    pub seen: Arc<Mutex<Vec<Seen>>>,
    pub irq: Interrupts,
    pub dma: Dma,
    pub page: SharedMem,
    pub worked: Arc<AtomicU32>,
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<Server>>,
    _dir: tempfile::TempDir,
}

impl Rig {
    pub fn new() -> Self {
        Self::start(|page| description(page, false))
    }

    pub fn with_mmap() -> Self {
        Self::start(|page| description(page, true))
    }

    pub fn start(describe: impl FnOnce(&SharedMem) -> DeviceDescription) -> Self {
        Self::make(describe, Server::new)
    }

    pub fn of_tenant(tenant: &Arc<Tenant>) -> Self {
        Self::make(
            |page| description(page, false),
            |description, listener| Server::of_tenant(description, listener, tenant),
        )
    }

    fn make(
        describe: impl FnOnce(&SharedMem) -> DeviceDescription,
        server: impl FnOnce(DeviceDescription, Listener) -> Result<Server, ServerError>,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nic.sock");
        let page = page();
        let listener = Listener::bind(&path).unwrap();
        let mut server = server(describe(&page), listener).unwrap();
        let (irq, dma) = (server.interrupts(), server.dma().unwrap());
        let (seen, worked) = (Arc::new(Mutex::new(Vec::new())), Arc::default());
        let mut device = Notebook {
            seen: Arc::clone(&seen),
            memory: vec![0; 0x2000],
            page: page.clone(),
            dma: dma.clone(),
            done: 0,
            worked: Arc::clone(&worked),
            kicks: 0,
        };
        let stop = Arc::new(EventFd::new().unwrap());
        let thread = {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                server.run(&mut device, &stop).unwrap();
                server
            })
        };
        Self {
            path,
            seen,
            irq,
            dma,
            page,
            worked,
            stop,
            thread: Some(thread),
            _dir: dir,
        }
    }

    pub fn client(&self) -> Client {
        self.client_with(ClientOptions::default())
    }

    pub fn client_with(&self, options: ClientOptions) -> Client {
        // A client that has just left may still be in place; a real VMM would be told so.
        for _ in 0..500 {
            match Client::connect_with(&self.path, options) {
                Err(ClientError::Refused { .. }) => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                result => return result.unwrap(),
            }
        }
        panic!("the server never became free");
    }

    /// Connected, but nothing said.
    pub fn silent(&self) -> Client {
        let socket = std::os::unix::net::UnixStream::connect(&self.path).unwrap();
        Client::open(socket.into(), ClientOptions::default()).unwrap()
    }

    pub fn take_seen(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.seen.lock())
    }

    /// Waits until the device has seen something.
    pub fn wait_seen(&self, wanted: impl Fn(&Seen) -> bool) -> Seen {
        for _ in 0..500 {
            if let Some(seen) = self.seen.lock().iter().find(|s| wanted(s)) {
                return seen.clone();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("never seen; but: {:?}", self.seen.lock());
    }

    /// Stops the server and returns a look-up of its counters.
    pub fn stop(mut self) -> impl Fn(&str) -> u64 {
        self.stop.signal();
        let server = self.thread.take().unwrap().join().unwrap();
        let mut counters = Vec::new();
        server.counters(&mut |name, value| counters.push((name, value)));
        move |name| {
            counters
                .iter()
                .find(|(n, _)| *n == name)
                .unwrap_or_else(|| panic!("no counter {name}"))
                .1
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.stop.signal();
            let joined = thread.join();
            if !std::thread::panicking() {
                joined.unwrap();
            }
        }
    }
}

/// Nothing happens for a moment.
pub fn silent(event: &EventFd) -> bool {
    event.wait(Duration::from_millis(20)).is_none()
}

/// Whether this process has only the test `name` to run. If not, a process that has only that runs it here and now.
pub fn alone(name: &str) -> bool {
    const ALONE: &str = "HYPERNIC_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let out = Command::new(std::env::current_exe().expect("our own path"))
        .args([name, "--exact", "--test-threads=1"])
        .env(ALONE, "1")
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(
        out.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&out.stderr)
    );
    false
}
