//! A device that checks what the server promises to devices.

use vfio_user::pci::Msix;
use vfio_user::{Device, Dma, DmaError, DmaToken, Interrupts, ResetCause, Work};

pub(super) const BAR0: u64 = 0x2000;
pub(super) const MSIX: Msix = Msix {
    vectors: 20,
    table_bar: 0,
    table_offset: 0x1000,
    pba_bar: 0,
    pba_offset: 0x1800,
};
/// A write of an address here asks for message DMA.
pub(super) const ASK_READ: u64 = 0x100;
pub(super) const ASK_WRITE: u64 = 0x108;
/// A write here works the interrupt pins.
pub(super) const PINS: u64 = 0x110;

/// Checks what the server promises to devices.
pub(super) struct Registers {
    pub(super) dma: Dma,
    pub(super) irq: Interrupts,
    pub(super) accesses: u64,
    pub(super) asked: u64,
    pub(super) answered: u64,
    /// It is stopped.
    pub(super) halted: bool,
}

impl Registers {
    fn access(&mut self, bar: u8, offset: u64, len: usize) {
        self.accesses += 1;
        assert!(!self.halted, "an access while it is stopped");
        let size = [BAR0, 64][usize::from(bar)];
        let len = len as u64;
        assert!(matches!(len, 1 | 2 | 4 | 8), "an access of {len} bytes");
        assert!(offset.is_multiple_of(len) && offset + len <= size);
    }
}

impl Device for Registers {
    fn bar_read(&mut self, bar: u8, offset: u64, data: &mut [u8]) {
        self.access(bar, offset, data.len());
        data.fill(offset as u8);
    }

    fn bar_write(&mut self, bar: u8, offset: u64, data: &[u8]) {
        self.access(bar, offset, data.len());
        let mut word = [0; 8];
        word[..data.len()].copy_from_slice(data);
        let value = u64::from_le_bytes(word);
        match offset {
            ASK_READ => {
                let len = (value & 0xffff) as usize;
                self.asked += u64::from(self.dma.read(value, len).is_ok());
            }
            ASK_WRITE => {
                let data = vec![7; (value & 0xfff) as usize];
                self.asked += u64::from(self.dma.write(value, data).is_ok());
            }
            PINS => {
                self.irq.set_line(value & 1 != 0);
                self.irq.msi((value >> 8) as u16 & 0xff);
                self.irq.msix((value >> 16) as u16 & 0xff);
            }
            _ => {}
        }
    }

    fn reset(&mut self, _: ResetCause) {
        self.irq.set_line(false);
    }

    fn dma_done(&mut self, _: DmaToken, _: Result<Vec<u8>, DmaError>) {
        self.answered += 1;
        assert!(self.answered <= self.asked, "an answer nobody asked for");
    }

    fn can_move(&self) -> bool {
        true
    }

    fn halt(&mut self) {
        assert!(!std::mem::replace(&mut self.halted, true), "stopped twice");
    }

    fn resume(&mut self) {
        assert!(
            std::mem::replace(&mut self.halted, false),
            "it runs already"
        );
    }

    fn save(&mut self) -> Vec<u8> {
        vec![7; 300]
    }

    fn load(&mut self, state: &[u8]) -> Result<(), String> {
        assert!(self.halted, "another state while it runs");
        let good = state.len() == 300 && state.iter().all(|byte| *byte == 7);
        good.then_some(()).ok_or_else(|| "no state of mine".into())
    }

    fn work(&mut self) -> Work {
        assert!(!self.halted, "work while it is stopped");
        Work::Idle
    }
}
