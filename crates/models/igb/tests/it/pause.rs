//! Pause frames, obeyed and sent (§3.5.5, §8.5).

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use crate::common::*;
use eswitch::{Fabric, FunctionPolicy, Owner, StormWindows};
use hypernic_igb::{Config, Enforcer, Hub, pf_with_vfs};
use intel_offsets::igb::long::{
    FCRTH0, FCTTV, MPC, RDBAL, RDH, RDLEN, RDT, TDBAL, TDH, TDLEN, TDT, XOFFRXC, XOFFTXC,
};
use model::Nanos;
use model_testkit::scripts::pause::{self as script, MPE, PMCF, RFCE, SWXOFF, TFCE, UPE, txoff};

const RAM: u64 = 0x10_0000;
const RX: u64 = RAM;
const TX: u64 = RAM + 0x1000;
const BUFFER: u64 = RAM + 0x2000;
const RX_RING: u32 = 16;
const TX_RING: u32 = 64;
/// Bytes between the registers of queues.
const APART: u64 = 64;

/// The 82576, for what holds for every chip.
struct Chip;

impl script::Chip for Chip {
    const QUEUES: usize = 2;
    /// Alone, and with pools that no VF has: the default pool is the first.
    const VARIANTS: u32 = 2;

    fn machine() -> Machine {
        Machine::default()
    }

    fn start(m: &mut Machine, ctrl: u32, rctl: u32) {
        start(m, ctrl, rctl);
    }

    fn send(m: &mut Machine) {
        hand_over(m, 1);
        hand_over(m, 0);
    }

    fn reported(m: &mut Machine) -> bool {
        let heads = (m.r(TDH), m.r(TDH + APART));
        assert!(heads == (0, 0) || heads == (1, 1), "{heads:?}");
        heads == (1, 1)
    }

    fn stored(m: &mut Machine) -> bool {
        m.r(RDH) == 1
    }

    fn take(m: &mut Machine, i: u32) {
        assert_eq!(m.r(RDH), (i + 1) % RX_RING);
        m.w(RDT, i % RX_RING);
    }

    fn vary(m: &mut Machine, variant: u32, rctl: u32, frame: &[u8]) -> bool {
        if variant == 0 {
            return true;
        }
        pools_on(m, rctl);
        // The default pool receives frames that match no other pool.
        frame[..6] != PEER
    }
}

/// Link up, queue 0 on in both directions, these bits in CTRL and RCTL.
fn start(m: &mut Machine, ctrl: u32, rctl: u32) {
    m.env.memory = memory(RAM, 0x4000);
    m.pci(false, false);
    m.w(reg::CTRL, 1 << 6 | ctrl);
    for i in 0..u64::from(RX_RING) {
        let view = m.env.memory.view();
        view.write(RX + 16 * i, &BUFFER.to_le_bytes()).expect("RAM");
    }
    m.w(RDBAL, RX as u32);
    m.w(RDLEN, RX_RING * 16);
    m.w(reg::RXDCTL, 1 << 25);
    m.w(RDT, RX_RING - 1);
    for queue in 0..2 {
        m.w(TDBAL + queue * APART, TX as u32);
        m.w(TDLEN + queue * APART, TX_RING * 16);
        m.w(reg::TXDCTL + queue * APART, 1 << 25);
    }
    m.w(reg::RCTL, 1 << 1 | 1 << 15 | rctl);
    m.w(reg::TCTL, 1 << 1);
    m.sleep(20_000_000);
    m.wire.take();
}

fn machine(ctrl: u32, rctl: u32) -> Machine {
    let mut m = Machine::default();
    start(&mut m, ctrl, rctl);
    m
}

/// Hands a packet to a queue.
fn hand_over(m: &mut Machine, queue: u64) {
    let tail = m.r(TDT + queue * APART);
    let at = TX + 16 * u64::from(tail);
    // A legacy descriptor: EOP, IFCS, RS.
    let high = 60u64 | (1 | 2 | 8) << 24;
    m.poke(at, &BUFFER.to_le_bytes());
    m.poke(at + 8, &high.to_le_bytes());
    m.w(TDT + queue * APART, tail + 1);
}

/// Hands a packet to the first queue. Returns how many frames were sent at once.
fn send(m: &mut Machine) -> usize {
    hand_over(m, 0);
    m.wire.take().len()
}

/// Lets time pass. Returns how many frames were sent.
fn pass(m: &mut Machine, nanos: Nanos) -> usize {
    m.sleep(nanos);
    m.wire.take().len()
}

#[test]
fn a_pause_lasts_its_quanta_at_the_speed_of_the_wire() {
    script::a_pause_lasts_its_quanta_at_the_speed_of_the_wire::<Chip>();
}

#[test]
fn xon_ends_it_and_a_later_xoff_takes_the_place_of_an_earlier_one() {
    script::xon_ends_it_and_a_later_xoff_takes_the_place_of_an_earlier_one::<Chip>();
}

#[test]
fn a_pause_that_is_renewed_as_it_ends_ends_by_itself() {
    script::a_pause_that_is_renewed_as_it_ends_ends_by_itself::<Chip>();
}

#[test]
fn an_endless_pause_stops_the_transmitter_and_nothing_else() {
    script::an_endless_pause_stops_the_transmitter_and_nothing_else::<Chip>();
}

#[test]
fn reset_and_rfce_end_a_pause() {
    script::reset_and_rfce_end_a_pause::<Chip>();
}

#[test]
fn control_frames_are_told_apart() {
    script::control_frames_are_told_apart::<Chip>();
}

#[test]
fn software_sends_one_whatever_tfce_says() {
    script::software_sends_one_whatever_tfce_says::<Chip>();
}

#[test]
fn one_that_finds_no_room_on_the_wire_stays_owed_and_costs_a_frame_of_the_budget() {
    script::one_that_finds_no_room_on_the_wire_stays_owed_and_costs_a_frame_of_the_budget::<Chip>();
}

/// Pools as RCTL would have them without.
fn pools_on(m: &mut Machine, rctl: u32) {
    const MRQC: u64 = 0x5818;
    const VT_CTL: u64 = 0x581c;
    const VMOLR: u64 = 0x5ad0;
    m.w(MRQC, 3);
    // No default pool, unless a frame that passes without an address needs one.
    let unnamed = rctl & PMCF == 0 && rctl & UPE == 0;
    m.w(VT_CTL, 1 << 30 | u32::from(unnamed) << 29);
    let rah = m.r(reg::RAH);
    m.w(reg::RAH, rah | 1 << 18);
    let groups = if rctl & MPE != 0 { 1 << 28 } else { 0 };
    m.w(VMOLR, 0x2600 | 1 << 24 | groups);
}

/// What it says is obeyed at once, and it would count twice if it came again.
#[test]
fn a_pause_frame_waits_for_no_buffer() {
    let mut m = machine(RFCE, 0);
    m.w(RDT, 0);
    let frame = control(MAC, 1, 9);
    assert_eq!(
        m.offer(&[&frame, &plain(MAC, 60)]),
        1,
        "the other one waits"
    );
    assert!(txoff(&mut m));
    assert_eq!((m.r(XOFFRXC), m.r(MPC)), (1, 1));
}

/// There is no packet buffer to fill: a NIC without room makes the sender wait.
#[test]
fn none_is_sent_by_itself() {
    let mut m = machine(TFCE, 0);
    m.w(FCRTH0, 0x10);
    for _ in 0..40 {
        m.offer(&[&plain(MAC, 60)]);
    }
    assert_eq!(pass(&mut m, 1_000_000), 0);
    assert_eq!((m.r(XOFFTXC), m.armed()), (0, None));
}

/// What it asks for, and what it owes, goes on elsewhere, on another clock.
#[test]
fn a_pause_is_saved_and_ends_where_it_is_loaded() {
    let mut first = machine(RFCE, 0);
    first.offer(&[&pause(100)]);
    assert_eq!(send(&mut first), 0);
    first.time.now.fetch_add(1_200, SeqCst);
    first.w(FCTTV, 7);
    first.note(reg::TCTL, 2 | SWXOFF);
    let blob = first.nic.control.save(&first.env);
    let mut second = Machine::default();
    second.env.memory = first.env.memory.clone();
    second.pci(false, false);
    second.time.now.store(77, SeqCst);
    let loaded = second.nic.control.load(&second.env, &blob);
    loaded.expect("its own state");
    assert_eq!(second.nic.control.save(&second.env), blob);
    assert!(txoff(&mut second));
    second.work();
    assert_eq!(second.wire.take().len(), 1, "what software asked for");
    assert_eq!((second.r(XOFFTXC), second.r(XOFFRXC)), (1, 1));
    assert_eq!(pass(&mut second, 49_999), 0);
    assert_eq!(pass(&mut second, 1), 1);
}

#[derive(Debug)]
struct Nobody;

impl Enforcer for Nobody {
    fn enforce(&self, _: Owner, _: &FunctionPolicy) {}
    fn enforce_all(&self, _: &Fabric<Owner>, _: &StormWindows) {}
}

/// What comes to a PF that has VFs may be from one of them.
#[test]
fn no_vf_silences_the_port() {
    let hub = Hub::new(2, Arc::new(Nobody));
    let mut m = Machine {
        nic: pf_with_vfs(&Config::new(MAC), hub),
        ..Machine::default()
    };
    start(&mut m, RFCE, 0);
    for pools in [false, true] {
        if pools {
            pools_on(&mut m, 0);
        }
        m.offer(&[&control(MAC, 1, 0xffff)]);
        assert!(!txoff(&mut m));
        assert_eq!((m.r(XOFFRXC), send(&mut m)), (0, 1), "pools {pools}");
    }
}

#[test]
fn the_partner_offers_pause_when_told_to() {
    for (pause, offered, word) in [(false, 0, 0), (true, 3 << 10, 0x3000)] {
        let mut m = Machine::new(&Config {
            pause,
            ..Config::new(MAC)
        });
        start(&mut m, 0, 0);
        assert_eq!(m.phy(5) & 3 << 10, offered);
        assert_eq!(m.eerd(0xf), word, "what drivers ask for at first");
    }
}
