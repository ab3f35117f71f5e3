//! A model with MSI-X in another project's program: messages, masks, pending bits, saved state.

use std::sync::{Arc, Mutex};

use frame::{Batch, Caps, Counted, Sink, Wake};
use hypernic_embed::{Host, Nic};
use model::{
    Bar, Control, Env, Identity, Msix, PciState, Progress, Receive, ResetKind, Space, StateError,
    Transmit, Work,
};

#[derive(Default)]
struct Machine {
    messages: Mutex<Vec<(u64, u32)>>,
    levels: Mutex<Vec<bool>>,
}

impl Machine {
    fn messages(&self) -> Vec<(u64, u32)> {
        std::mem::take(&mut self.messages.lock().expect("lock"))
    }
}

impl Host for Machine {
    fn send(&self, _frame: &[u8]) -> bool {
        true
    }
    fn dma_read(&self, _address: u64, _out: &mut [u8]) -> bool {
        false
    }
    fn dma_write(&self, _address: u64, _bytes: &[u8]) -> bool {
        false
    }
    fn interrupt(&self, level: bool) {
        self.levels.lock().expect("lock").push(level);
    }
    fn message(&self, address: u64, data: u32) {
        self.messages.lock().expect("lock").push((address, data));
    }
    fn set_timer(&self, _deadline: Option<u64>) {}
    fn now(&self) -> u64 {
        1_000_000_000
    }
}

/// Raises the vector that is written to its register, and its pin too.
struct Bells;

impl Counted for Bells {
    fn counters(&self, _visit: &mut dyn FnMut(&'static str, u64)) {}
}

impl Control for Bells {
    fn read(&mut self, _env: &Env, _bar: u8, _offset: u64, data: &mut [u8]) {
        data.fill(0x5a);
    }
    fn write(&mut self, env: &Env, _bar: u8, _offset: u64, data: &[u8]) {
        env.irq.set_line(true);
        env.irq.msix(data[0].into());
    }
    fn take_work(&mut self) -> Work {
        Work::default()
    }
    fn reset(&mut self, env: &Env, _kind: ResetKind) {
        env.irq.set_line(false);
    }
    fn pci(&mut self, _env: &Env, _state: PciState) {}
    fn tick(&mut self, _env: &Env) {}
    fn set_link(&mut self, _env: &Env, _up: bool) {}
    fn save(&self, _env: &Env) -> Vec<u8> {
        Vec::new()
    }
    fn load(&mut self, _env: &Env, _blob: &[u8]) -> Result<(), StateError> {
        Ok(())
    }
}

impl Transmit for Bells {
    fn run(&mut self, _env: &Env, _to: &dyn Sink, _budget: usize) -> Progress {
        Progress::Idle
    }
}

impl Receive for Bells {
    fn deliver(&self, _env: &Env, _batch: &Batch<'_>, picks: &[u16]) -> usize {
        picks.len()
    }
    fn caps(&self) -> Caps {
        Caps::NONE
    }
    fn want_room(&self, _waker: &Arc<dyn Wake>) {}
    fn poll(&self, _env: &Env) {}
}

fn nic() -> (Nic, Arc<Machine>) {
    let bar = |index, size| Bar {
        index,
        space: Space::Memory32,
        size,
    };
    let parts = model::Nic {
        identity: Identity {
            vendor: 0x1234,
            bars: vec![bar(0, 4096), bar(3, 16 << 10)],
            intx: true,
            msix: Some(Msix {
                vectors: 3,
                table_bar: 3,
                table_offset: 0,
                pba_bar: 3,
                pba_offset: 0x2000,
            }),
            pcie: true,
            ..Identity::default()
        },
        control: Box::new(Bells),
        transmit: Box::new(Bells),
        receive: Arc::new(Bells),
        revision: 1,
    };
    let machine = Arc::new(Machine::default());
    let nic = Nic::of(parts, machine.clone()).expect("possible");
    (nic, machine)
}

/// The MSI-X capability is the first.
const CONTROL: u64 = 0x42;
const ENABLE: u16 = 1 << 15;
const MASK: u16 = 1 << 14;

fn control(nic: &mut Nic, value: u16) {
    nic.config_write(CONTROL, &value.to_le_bytes());
}

fn vector(nic: &mut Nic, n: u64, mask: u32) {
    nic.write(3, 16 * n, &(0xfee0_0000u64 + 16 * n).to_le_bytes());
    nic.write(3, 16 * n + 8, &(0x40 + n as u32).to_le_bytes());
    nic.write(3, 16 * n + 12, &mask.to_le_bytes());
}

fn pending(nic: &mut Nic) -> u64 {
    let mut word = [0; 8];
    nic.read(3, 0x2000, &mut word);
    u64::from_le_bytes(word)
}

#[test]
fn vectors_fire_are_masked_and_wait() {
    let (mut nic, machine) = nic();
    let mut id = [0; 4];
    nic.config_read(0x40, &mut id);
    assert_eq!((id[0], id[2]), (0x11, 2), "three vectors");
    let mut far = [0; 4];
    nic.config_read(0xffc, &mut far);
    assert_eq!(far, [0; 4], "4096 bytes");
    vector(&mut nic, 1, 0);
    control(&mut nic, ENABLE);
    nic.write(0, 0, &[1]);
    assert_eq!(machine.messages(), [(0xfee0_0010, 0x41)]);
    assert!(machine.levels.lock().expect("lock").is_empty(), "no pin");
    vector(&mut nic, 2, 1);
    nic.write(0, 0, &[2]);
    assert_eq!((machine.messages(), pending(&mut nic)), (vec![], 1 << 2));
    nic.write(3, 16 * 2 + 12, &[0]);
    assert_eq!(machine.messages(), [(0xfee0_0020, 0x42)]);
    control(&mut nic, ENABLE | MASK);
    nic.write(0, 0, &[1]);
    nic.write(0, 0, &[2]);
    assert_eq!((machine.messages(), pending(&mut nic)), (vec![], 0b110));
    control(&mut nic, ENABLE);
    assert_eq!(machine.messages().len(), 2);
    // Registers beside the table are the model's.
    let mut other = [0];
    nic.read(3, 0x1000, &mut other);
    assert_eq!(other, [0x5a]);
    // A reset masks them all, and the pin is asked again.
    nic.reset();
    assert_eq!(pending(&mut nic), 0);
    control(&mut nic, ENABLE);
    nic.write(0, 0, &[1]);
    assert_eq!((machine.messages(), pending(&mut nic)), (vec![], 0b10));
    control(&mut nic, 0);
    let last = machine.levels.lock().expect("lock").last().copied();
    assert_eq!(last, Some(true), "the pin speaks again");
}

#[test]
fn what_waits_is_saved() {
    let (mut here, _) = nic();
    vector(&mut here, 1, 1);
    control(&mut here, ENABLE);
    here.write(0, 0, &[1]);
    let state = here.save();
    let (mut there, machine) = nic();
    for len in [0, 10, state.len() - 1] {
        assert!(there.load(&state[..len]).is_err(), "{len} bytes of it");
    }
    assert_eq!(pending(&mut there), 0, "a refusal changes nothing");
    there.load(&state).expect("whole");
    assert_eq!(pending(&mut there), 0b10);
    there.write(3, 16 + 12, &[0]);
    assert_eq!(machine.messages(), [(0xfee0_0010, 0x41)]);
    // A NIC without MSI-X is another NIC.
    let other = hypernic_embed::new("e1000", [2, 0, 0, 0, 0, 1], machine);
    assert!(other.expect("it exists").load(&state).is_err());
}
