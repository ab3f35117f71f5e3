//! A device that moves: what a client says to it, and what becomes of it.

mod held;
mod log;
mod states;

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;

use hypernic_vfio_user::codec::feature::MigrationState;
use hypernic_vfio_user::pci::{Bar, ConfigEvent, Msi, Msix};
use hypernic_vfio_user::{
    Client, ClientError, ClientOptions, Device, DeviceDescription, Dma, EventFd, Interrupts,
    Listener, ResetCause, Server, Work,
};
use parking_lot::Mutex;

use MigrationState::{Resuming, Running, Stop, StopCopy};

const EINVAL: u32 = 22;
const ENOTSUP: u32 = 95;
const ENOSPC: u32 = 28;

/// Offset in BAR 0 whose write has the device write a word to that address, from its next work on.
const STORE: u64 = 0x100;
/// The word that it writes.
const WORD: [u8; 8] = *b"written!";
/// A state that begins so is refused by the device.
const BAD: u8 = 0xee;

/// What became of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Did {
    Halt,
    Resume,
    Save,
    Load,
    Refused,
    Reset,
    Config,
}

/// 256 bytes of registers, and work.
struct Mover {
    registers: Vec<u8>,
    stores: Vec<u64>,
    dma: Dma,
    halted: bool,
    did: Arc<Mutex<Vec<Did>>>,
}

impl Device for Mover {
    fn bar_read(&mut self, _: u8, offset: u64, data: &mut [u8]) {
        assert!(!self.halted, "it was read while it was stopped");
        data.copy_from_slice(&self.registers[offset as usize..][..data.len()]);
    }

    fn bar_write(&mut self, _: u8, offset: u64, data: &[u8]) {
        assert!(!self.halted, "it was written while it was stopped");
        match (offset, data.try_into()) {
            (STORE, Ok(iova)) => self.stores.push(u64::from_le_bytes(iova)),
            _ => self.registers[offset as usize..][..data.len()].copy_from_slice(data),
        }
    }

    fn config_event(&mut self, _: ConfigEvent) {
        self.did.lock().push(Did::Config);
    }

    fn reset(&mut self, _: ResetCause) {
        self.registers.fill(0);
        self.did.lock().push(Did::Reset);
    }

    fn can_move(&self) -> bool {
        true
    }

    fn halt(&mut self) {
        assert!(!std::mem::replace(&mut self.halted, true));
        self.did.lock().push(Did::Halt);
    }

    fn resume(&mut self) {
        assert!(std::mem::replace(&mut self.halted, false));
        self.did.lock().push(Did::Resume);
    }

    fn save(&mut self) -> Vec<u8> {
        self.did.lock().push(Did::Save);
        self.registers.clone()
    }

    fn load(&mut self, state: &[u8]) -> Result<(), String> {
        assert!(self.halted);
        self.did.lock().push(Did::Load);
        if state.len() != self.registers.len() || state[0] == BAD {
            return Err("no state of a mover".to_owned());
        }
        self.registers.copy_from_slice(state);
        Ok(())
    }

    fn load_refused(&mut self, why: &str) {
        assert!(!why.is_empty());
        self.did.lock().push(Did::Refused);
    }

    fn work(&mut self) -> Work {
        assert!(!self.halted, "it worked while it was stopped");
        let memory = self.dma.memory();
        for iova in self.stores.drain(..) {
            let _ = memory.view().write(iova, &WORD);
        }
        Work::Idle
    }
}

const MSIX: Msix = Msix {
    vectors: 4,
    table_bar: 0,
    table_offset: 0x800,
    pba_bar: 0,
    pba_offset: 0xc00,
};

/// A mover, served.
struct Moving {
    path: PathBuf,
    did: Arc<Mutex<Vec<Did>>>,
    irq: Interrupts,
    dma: Dma,
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<(Server, Mover)>>,
    _dir: tempfile::TempDir,
}

impl Moving {
    fn new() -> Self {
        Self::of(0x1234)
    }

    fn of(device: u16) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mover.sock");
        let description = DeviceDescription::new(0x8086, device)
            .class(0x02_00_00)
            .bar(0, Bar::memory32(0x1000))
            .intx(1)
            .msi(Msi::new(2).address64().masking())
            .msix(MSIX);
        let server = Server::new(description, Listener::bind(&path).unwrap()).unwrap();
        let (irq, dma) = (server.interrupts(), server.dma().unwrap());
        let did = Arc::<Mutex<Vec<Did>>>::default();
        let device = Mover {
            registers: vec![0; 0x100],
            stores: Vec::new(),
            dma: dma.clone(),
            halted: false,
            did: Arc::clone(&did),
        };
        let mut moving = Self {
            path,
            did,
            irq,
            dma,
            stop: Arc::new(EventFd::new().unwrap()),
            thread: None,
            _dir: dir,
        };
        moving.serve(server, device);
        moving
    }

    fn serve(&mut self, mut server: Server, mut device: Mover) {
        let stop = Arc::clone(&self.stop);
        self.thread = Some(std::thread::spawn(move || {
            server.run(&mut device, &stop).unwrap();
            (server, device)
        }));
    }

    /// Serves no longer.
    fn end(&mut self) -> (Server, Mover) {
        self.stop.signal();
        self.thread.take().unwrap().join().unwrap()
    }

    fn client(&self) -> Client {
        self.client_with(ClientOptions::default())
    }

    fn client_with(&self, options: ClientOptions) -> Client {
        let mut tries = 0..500;
        loop {
            match Client::connect_with(&self.path, options) {
                Err(ClientError::Refused { .. }) if tries.next().is_some() => {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                result => return result.unwrap(),
            }
        }
    }

    fn did(&self) -> Vec<Did> {
        std::mem::take(&mut *self.did.lock())
    }

    /// Stops the server and returns a look-up of its counters.
    fn counters(mut self) -> impl Fn(&str) -> u64 {
        let (server, _) = self.end();
        let mut counters = std::collections::BTreeMap::new();
        server.counters(&mut |name, value| {
            counters.insert(name, value);
        });
        move |name| counters[name]
    }
}

impl Drop for Moving {
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

/// The errno of a refusal.
#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, ClientError>) -> u32 {
    match result {
        Err(ClientError::Refused { errno, .. }) => errno,
        other => panic!("{other:?}"),
    }
}

/// The state of a device, which stands still from then on.
fn take_state(client: &mut Client) -> Vec<u8> {
    client.set_migration_state(StopCopy).unwrap();
    client.read_state(100).unwrap()
}
