//! What a host program sees of a NIC.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use hypernic_embed::{Error, Host, Nic, Progress, StateError};

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const RAM: usize = 1 << 16;

#[derive(Default)]
struct Machine {
    ram: Mutex<Vec<u8>>,
    sent: Mutex<Vec<Vec<u8>>>,
    full: AtomicBool,
    level: AtomicBool,
    room: AtomicU64,
    timer: Mutex<Option<u64>>,
    now: AtomicU64,
    messages: Mutex<Vec<(u64, u32)>>,
    pme: AtomicBool,
}

impl Host for Machine {
    fn send(&self, frame: &[u8]) -> bool {
        if self.full.load(Ordering::Relaxed) {
            return false;
        }
        self.sent.lock().expect("lock").push(frame.to_vec());
        true
    }
    fn dma_read(&self, address: u64, out: &mut [u8]) -> bool {
        let ram = self.ram.lock().expect("lock");
        let from = ram.get(address as usize..).and_then(|r| r.get(..out.len()));
        from.map(|from| out.copy_from_slice(from)).is_some()
    }
    fn dma_write(&self, address: u64, bytes: &[u8]) -> bool {
        let mut ram = self.ram.lock().expect("lock");
        let to = ram.get_mut(address as usize..);
        let to = to.and_then(|r| r.get_mut(..bytes.len()));
        to.map(|to| to.copy_from_slice(bytes)).is_some()
    }
    fn interrupt(&self, level: bool) {
        assert_ne!(self.level.swap(level, Ordering::Relaxed), level);
    }
    fn message(&self, address: u64, data: u32) {
        self.messages.lock().expect("lock").push((address, data));
    }
    fn set_timer(&self, deadline: Option<u64>) {
        *self.timer.lock().expect("lock") = deadline;
    }
    fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }
    fn pme(&self, asserted: bool) {
        assert_ne!(self.pme.swap(asserted, Ordering::Relaxed), asserted);
    }
    fn room(&self) {
        self.room.fetch_add(1, Ordering::Relaxed);
    }
}

impl Machine {
    fn poke(&self, at: usize, bytes: &[u8]) {
        self.ram.lock().expect("lock")[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn peek(&self, at: usize) -> u8 {
        self.ram.lock().expect("lock")[at]
    }

    fn sent(&self) -> usize {
        self.sent.lock().expect("lock").len()
    }

    fn level(&self) -> bool {
        self.level.load(Ordering::Relaxed)
    }
}

fn set(nic: &mut Nic, register: u64, value: u32) {
    nic.write(0, register, &value.to_le_bytes());
    nic.run(256);
}

fn get(nic: &mut Nic, register: u64) -> u32 {
    let mut value = [0; 4];
    nic.read(0, register, &mut value);
    u32::from_le_bytes(value)
}

/// A NIC with a transmit ring at 1000h, a receive ring at 2000h and everything enabled.
fn started() -> (Nic, Arc<Machine>) {
    let machine = Arc::new(Machine {
        ram: vec![0; RAM].into(),
        ..Machine::default()
    });
    let mut nic = hypernic_embed::new("e1000", MAC, machine.clone()).expect("there is one");
    nic.config_write(0x04, &[0x06, 0]);
    for i in 0..8usize {
        let buffer = 0x4000 + 0x800 * i as u64;
        machine.poke(0x1000 + 16 * i, &0x8000u64.to_le_bytes());
        machine.poke(0x1008 + 16 * i, &(0x0b00_0000u64 | 60).to_le_bytes());
        machine.poke(0x2000 + 16 * i, &buffer.to_le_bytes());
    }
    for (register, value) in [
        (0x0000, 0x40),
        (0x3800, 0x1000),
        (0x3808, 128),
        (0x0400, 0x0a),
        (0x2800, 0x2000),
        (0x2808, 128),
        (0x0100, 0x0400_8002),
    ] {
        set(&mut nic, register, value);
    }
    (nic, machine)
}

const BROADCAST: [u8; 60] = {
    let mut frame = [0xaa; 60];
    let mut i = 0;
    while i < 6 {
        frame[i] = 0xff;
        i += 1;
    }
    frame
};

#[test]
fn an_unknown_model_is_named() {
    let refused = hypernic_embed::new("e1001", MAC, Arc::new(Machine::default()));
    let Err(error @ Error::Model(_)) = refused else {
        panic!("there is no such model");
    };
    assert!(error.to_string().contains("e1001"), "{error}");
}

#[test]
fn the_bus_finds_what_the_manual_describes() {
    let (mut nic, _) = started();
    let is = nic.description();
    assert_eq!((is.vendor, is.device), (0x8086, 0x100e));
    assert_eq!(is.bar_size[0], 128 << 10);
    assert_eq!(is.io_bars.count_ones(), 1);
    // The sizing protocol, then an address.
    nic.config_write(0x10, &[0xff; 4]);
    let mut size = [0; 4];
    nic.config_read(0x10, &mut size);
    assert_eq!(!(u32::from_le_bytes(size) & !15), (128 << 10) - 1);
    nic.config_write(0x10, &0xfebc_0000u32.to_le_bytes());
    assert_eq!(nic.bar_address(0), Some(0xfebc_0000));
}

#[test]
fn a_host_without_room_gets_the_frames_later_and_once() {
    let (mut nic, machine) = started();
    machine.full.store(true, Ordering::Relaxed);
    nic_sends(&mut nic, 5);
    assert_eq!(nic.run(256), Progress::Blocked);
    assert_eq!(nic.run(256), Progress::Blocked);
    assert_eq!(machine.sent(), 0);
    machine.full.store(false, Ordering::Relaxed);
    assert_eq!(nic.run(256), Progress::Idle);
    assert_eq!(machine.sent(), 5);
    assert_eq!(get(&mut nic, 0x3810), 5);
}

#[test]
fn reception_pauses_without_loss_and_says_when_it_may_go_on() {
    let (mut nic, machine) = started();
    set(&mut nic, 0x2818, 2);
    let frames = [&BROADCAST[..]; 4];
    let mut taken = 0;
    let mut refused = 0;
    // However much the chip itself keeps, in the end it is full.
    while refused == 0 && taken < 100_000 {
        let n = nic.receive(&frames);
        taken += n;
        refused += frames.len() - n;
    }
    assert!(
        refused > 0,
        "a guest without buffers takes no end of frames"
    );
    assert_eq!(get(&mut nic, 0x2810), 2);
    assert_eq!(machine.room.load(Ordering::Relaxed), 0);
    // The guest takes what waits, seven buffers at a time; long before the end there is room.
    let mut moved = 2;
    while machine.room.load(Ordering::Relaxed) == 0 {
        assert!(moved < taken, "everything was taken and nobody said so");
        let head = get(&mut nic, 0x2810);
        set(&mut nic, 0x2818, (head + 7) % 8);
        assert_eq!(get(&mut nic, 0x2810), (head + 7) % 8);
        moved += 7;
    }
    assert_eq!(nic.receive(&frames[..1]), 1);
    assert_eq!(machine.peek(0x2000 + 12) & 1, 1);
}

#[test]
fn intx_obeys_the_command_register_and_status_shows_it() {
    let (mut nic, machine) = started();
    get(&mut nic, 0x00c0);
    set(&mut nic, 0x00d0, 0x04);
    set(&mut nic, 0x00c8, 0x04);
    assert!(machine.level());
    let mut status = [0; 2];
    nic.config_read(0x06, &mut status);
    assert_eq!(status[0] & 8, 8, "interrupt status");
    nic.config_write(0x04, &[0x06, 0x04]);
    assert!(!machine.level(), "INTx disabled");
    nic.config_write(0x04, &[0x06, 0x00]);
    assert!(machine.level(), "the cause is still there");
    get(&mut nic, 0x00c0);
    assert!(!machine.level());
}

#[test]
fn messages_go_where_the_guest_has_put_them_and_the_pin_is_silent() {
    let (mut nic, machine) = started();
    get(&mut nic, 0x00c0);
    let byte = |nic: &mut Nic, at: u8| {
        let mut one = [0];
        nic.config_read(at.into(), &mut one);
        one[0]
    };
    let mut at = byte(&mut nic, 0x34);
    while byte(&mut nic, at) != 5 {
        at = byte(&mut nic, at + 1);
        assert_ne!(at, 0, "there is an MSI capability");
    }
    let at = u64::from(at);
    nic.config_write(at + 4, &0xfee0_1000u32.to_le_bytes());
    nic.config_write(at + 8, &1u32.to_le_bytes());
    nic.config_write(at + 12, &0x4021u16.to_le_bytes());
    nic.config_write(at + 2, &[1, 0]);
    set(&mut nic, 0x00d0, 0x04);
    set(&mut nic, 0x00c8, 0x04);
    let sent = std::mem::take(&mut *machine.messages.lock().expect("lock"));
    assert_eq!(sent, [(0x1_fee0_1000, 0x4021)]);
    assert!(!machine.level(), "the pin is silent");
    // Back to the pin: the cause is still there.
    nic.config_write(at + 2, &[0, 0]);
    nic.run(1);
    assert!(machine.level());
    assert!(machine.messages.lock().expect("lock").is_empty());
}

#[test]
fn moderation_uses_the_hosts_timer() {
    let (mut nic, machine) = started();
    get(&mut nic, 0x00c0);
    set(&mut nic, 0x00c4, 1000); // ITR: 256 us
    set(&mut nic, 0x00d0, 0x04);
    set(&mut nic, 0x00c8, 0x04);
    assert!(machine.level(), "the first is not delayed");
    get(&mut nic, 0x00c0);
    set(&mut nic, 0x00c8, 0x04);
    assert!(!machine.level(), "the second is");
    let at = machine.timer.lock().expect("lock").expect("a deadline");
    assert_eq!(at, 256_000);
    machine.now.store(at, Ordering::Relaxed);
    nic.tick();
    assert!(machine.level());
}

#[test]
fn memory_out_of_reach_costs_frames_and_a_counter() {
    let (mut nic, _machine) = started();
    set(&mut nic, 0x3800, 0x10_0000);
    set(&mut nic, 0x3818, 3);
    let mut faults = 0;
    nic.counters(&mut |name, value| {
        if name == "tx_dma_fault" {
            faults = value;
        }
    });
    assert!(faults > 0);
    // And the machine goes on after a reset.
    nic.reset();
    assert_eq!(get(&mut nic, 0x3818), 0);
    let mut command = [0; 2];
    nic.config_read(0x04, &mut command);
    assert_eq!(command, [0, 0]);
}

#[test]
fn a_saved_nic_goes_on_elsewhere_with_what_it_had_to_do() {
    let (mut here, machine) = started();
    machine.full.store(true, Ordering::Relaxed);
    nic_sends(&mut here, 5);
    assert_eq!(here.run(256), Progress::Blocked);
    set(&mut here, 0x00d0, 0x01);
    let state = here.save();
    drop(here);

    machine.full.store(false, Ordering::Relaxed);
    let there = hypernic_embed::new_for(&state, "e1000", MAC, machine.clone());
    let mut there = there.expect("there is one");
    // Of a revision that only a newer program knows.
    let newer = snapshot::stamp(state.clone(), 2);
    let refused = hypernic_embed::new_for(&newer, "e1000", MAC, machine.clone());
    assert!(matches!(refused, Err(Error::Model(_))));
    let (found, expected) = (2, 1);
    assert_eq!(
        there.load(&newer),
        Err(StateError::Revision { found, expected })
    );
    for len in [0, 8, state.len() - 1] {
        assert!(there.load(&state[..len]).is_err(), "{len} bytes of it");
    }
    let untouched = get(&mut there, 0x3808);
    assert_eq!(untouched, 0, "a refusal changes nothing");
    there.load(&state).expect("it is whole");
    let mut command = [0; 2];
    there.config_read(0x04, &mut command);
    assert_eq!(command, [0x06, 0]);
    assert_eq!(there.run(256), Progress::Idle);
    assert_eq!(machine.sent(), 5);
    assert!(machine.level(), "the sending is reported");
}

fn nic_sends(nic: &mut Nic, tail: u32) {
    nic.write(0, 0x3818, &tail.to_le_bytes());
}

#[test]
fn a_frame_asks_for_a_sleeping_machine_to_be_woken() {
    const PME_STATUS: u16 = 1 << 15;
    const PME_EN: u16 = 1 << 8;
    let (mut nic, machine) = started();
    let mut pm = u64::from(config(&mut nic, 0x34) as u8);
    while config(&mut nic, pm) as u8 != 1 {
        pm = u64::from(config(&mut nic, pm) >> 8);
        assert_ne!(pm, 0, "there is power management");
    }
    assert_eq!(config(&mut nic, pm + 2) >> 11, 0b1_1001);
    // Broadcast frames are to wake it (WUFC.BC).
    set(&mut nic, 0x5808, 1 << 4);
    nic.config_write(pm + 4, &(PME_EN | 3).to_le_bytes());
    assert_eq!(get(&mut nic, 0x5800) & 2, 2, "WUC.PME_En is the same bit");
    assert!(!machine.pme.load(Ordering::Relaxed));
    nic.receive(&[&BROADCAST]);
    assert!(machine.pme.load(Ordering::Relaxed), "PME# is asserted");
    assert_eq!(config(&mut nic, pm + 4), PME_STATUS | PME_EN | 3);
    // Another NIC that goes on from here asserts it too.
    let saved = nic.save();
    let (mut other, its) = started();
    other.load(&saved).expect("a state");
    assert!(its.pme.load(Ordering::Relaxed));
    assert_eq!(config(&mut other, pm + 4), PME_STATUS | PME_EN | 3);
    // Back in D0 the function has been reset, and still tells why; then the driver clears it.
    assert_ne!(get(&mut nic, 0x3808), 0, "a ring");
    nic.config_write(pm + 4, &PME_EN.to_le_bytes());
    assert_eq!(get(&mut nic, 0x3808), 0, "no ring after a reset");
    assert_eq!(config(&mut nic, pm + 4), PME_STATUS | PME_EN);
    nic.config_write(pm + 4, &PME_STATUS.to_le_bytes());
    assert!(!machine.pme.load(Ordering::Relaxed));
    assert_eq!(config(&mut nic, pm + 4), 0);
}

fn config(nic: &mut Nic, at: u64) -> u16 {
    let mut word = [0; 2];
    nic.config_read(at, &mut word);
    u16::from_le_bytes(word)
}
