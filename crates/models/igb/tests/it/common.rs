//! A guest, a wire and a clock for the physical function, all fake.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use guest_mem::Memory;
use hypernic_igb::{Config, pf};
use model::{Clock, Env, Interrupts, Nanos, Nic, PciState, Timer};

pub const MAC: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];

pub mod reg {
    pub const CTRL: u64 = 0x0;
    pub const STATUS: u64 = 0x8;
    pub const EECD: u64 = 0x10;
    pub const EERD: u64 = 0x14;
    pub const MDIC: u64 = 0x20;
    pub const RCTL: u64 = 0x100;
    pub const TCTL: u64 = 0x400;
    pub const EEMNGCTL: u64 = 0x1010;
    pub const ICR: u64 = 0x1500;
    pub const ICS: u64 = 0x1504;
    pub const IMS: u64 = 0x1508;
    pub const IMC: u64 = 0x150c;
    pub const IAM: u64 = 0x1510;
    pub const GPIE: u64 = 0x1514;
    pub const EICS: u64 = 0x1520;
    pub const EIMS: u64 = 0x1524;
    pub const EIMC: u64 = 0x1528;
    pub const EIAC: u64 = 0x152c;
    pub const EIAM: u64 = 0x1530;
    pub const EICR: u64 = 0x1580;
    pub const EITR: u64 = 0x1680;
    pub const IVAR: u64 = 0x1700;
    pub const IVAR_MISC: u64 = 0x1740;
    pub const RAL: u64 = 0x5400;
    pub const RAH: u64 = 0x5404;
    pub const SWSM: u64 = 0x5b50;
    pub const SW_FW_SYNC: u64 = 0x5b5c;
    pub const RXDCTL: u64 = 0xc028;
    pub const TXDCTL: u64 = 0xe028;
    pub const SYSTIML: u64 = 0xb600;
    pub const SYSTIMH: u64 = 0xb604;
    pub const TIMINCA: u64 = 0xb608;
}

/// What the guest hears.
#[derive(Default)]
pub struct Ears {
    pub level: AtomicBool,
    pub messages: AtomicU64,
    /// MSI-X vectors, in order.
    pub vectors: Mutex<Vec<u16>>,
    /// PME is enabled, and asserted.
    pub pme: Mutex<(bool, bool)>,
}

impl Interrupts for Ears {
    fn set_pme(&self, enabled: bool, status: bool) {
        *self.pme.lock().expect("ears") = (enabled, status);
    }
    fn set_line(&self, level: bool) {
        self.level.store(level, SeqCst);
    }
    fn msi(&self, vector: u16) {
        assert_eq!(vector, 0);
        self.messages.fetch_add(1, SeqCst);
    }
    fn msix(&self, vector: u16) {
        self.vectors.lock().expect("ears").push(vector);
    }
}

#[derive(Default)]
pub struct Time {
    pub now: AtomicU64,
    pub deadline: Mutex<Option<Nanos>>,
}

impl Clock for Time {
    fn now(&self) -> Nanos {
        self.now.load(SeqCst)
    }
}

impl Timer for Time {
    fn arm(&self, deadline: Option<Nanos>) {
        *self.deadline.lock().expect("time") = deadline;
    }
}

pub struct Machine {
    pub nic: Nic,
    pub env: Env,
    pub ears: Arc<Ears>,
    pub time: Arc<Time>,
}

impl Default for Machine {
    fn default() -> Self {
        Self::new(&Config::new(MAC))
    }
}

impl Machine {
    pub fn new(config: &Config) -> Self {
        let (ears, time) = (Arc::new(Ears::default()), Arc::new(Time::default()));
        time.now.store(10_000_000_000, SeqCst);
        let env = Env {
            memory: Memory::default(),
            irq: Arc::clone(&ears) as Arc<dyn Interrupts>,
            clock: Arc::clone(&time) as Arc<dyn Clock>,
            timer: Arc::clone(&time) as Arc<dyn Timer>,
        };
        Self {
            nic: pf(config),
            env,
            ears,
            time,
        }
    }

    /// With bus mastering on, and MSI-X if asked for.
    pub fn pci(&mut self, msi: bool, msix: bool) {
        let state = PciState {
            bus_master: true,
            msi,
            msix,
            ..PciState::default()
        };
        self.nic.control.pci(&self.env, state);
    }

    pub fn r(&mut self, at: u64) -> u32 {
        let mut bytes = [0; 4];
        self.nic.control.read(&self.env, 0, at, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    pub fn w(&mut self, at: u64, value: u32) {
        self.nic
            .control
            .write(&self.env, 0, at, &value.to_le_bytes());
    }

    /// Lets time pass, in steps of the timer's deadlines.
    pub fn pass(&mut self, nanos: Nanos) {
        let end = self.time.now.load(SeqCst) + nanos;
        loop {
            let due = *self.time.deadline.lock().expect("time");
            let Some(due) = due.filter(|due| *due <= end) else {
                break;
            };
            let now = self.time.now.load(SeqCst).max(due);
            self.time.now.store(now, SeqCst);
            *self.time.deadline.lock().expect("time") = None;
            self.nic.control.tick(&self.env);
        }
        self.time.now.store(end, SeqCst);
    }

    pub fn vectors(&self) -> Vec<u16> {
        std::mem::take(&mut *self.ears.vectors.lock().expect("ears"))
    }

    pub fn eerd(&mut self, word: u32) -> u16 {
        self.w(reg::EERD, word << 2 | 1);
        let value = self.r(reg::EERD);
        assert_eq!(value & 2, 2, "done");
        (value >> 16) as u16
    }

    pub fn phy(&mut self, register: u32) -> u16 {
        self.w(reg::MDIC, 2 << 26 | 1 << 21 | register << 16);
        self.mdic()
    }

    fn mdic(&mut self) -> u16 {
        let value = self.r(reg::MDIC);
        assert_eq!(value & 5 << 28, 1 << 28, "ready, without error");
        value as u16
    }
}
