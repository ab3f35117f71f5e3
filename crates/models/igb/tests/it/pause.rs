//! Pause frames, obeyed and sent (§3.5.5, §8.5).

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};

use crate::common::*;
use eswitch::{Fabric, FunctionPolicy, Owner, StormWindows};
use frame::{Batch, Caps, Sink, Wake};
use guest_mem::Memory;
use hypernic_igb::{Config, Enforcer, Hub, pf_with_vfs};
use model::{Nanos, Progress};

const RFCE: u32 = 1 << 27;
const TFCE: u32 = 1 << 28;
const TXOFF: u32 = 1 << 4;
const UPE: u32 = 1 << 3;
const MPE: u32 = 1 << 4;
const DPF: u32 = 1 << 22;
const PMCF: u32 = 1 << 23;
const SWXOFF: u32 = 1 << 22;
const FCTTV: u64 = 0x170;
const FCRTH0: u64 = 0x2168;
const XONRXC: u64 = 0x4048;
const XONTXC: u64 = 0x404c;
const XOFFRXC: u64 = 0x4050;
const XOFFTXC: u64 = 0x4054;
const FCRUC: u64 = 0x4058;
const MPC: u64 = 0x4010;
const GPRC: u64 = 0x4074;
const GPTC: u64 = 0x4080;
const TPR: u64 = 0x40d0;
const TPT: u64 = 0x40d4;

const RAM: u64 = 0x10_0000;
const RX: u64 = RAM;
const TX: u64 = RAM + 0x1000;
const BUFFER: u64 = RAM + 0x2000;
const RX_RING: u32 = 16;
const TX_RING: u32 = 64;
/// Registers of queues.
const RDBAL: u64 = 0xc000;
const RDLEN: u64 = 0xc008;
const RDH: u64 = 0xc010;
const RDT: u64 = 0xc018;
const TDBAL: u64 = 0xe000;
const TDLEN: u64 = 0xe008;
const TDH: u64 = 0xe010;
const TDT: u64 = 0xe018;
/// Bytes between the registers of queues.
const APART: u64 = 64;

const GROUP: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 1];
const PEER: [u8; 6] = [2, 0, 0, 0, 0, 9];

#[derive(Default)]
struct Wire {
    frames: Mutex<Vec<Vec<u8>>>,
    full: bool,
}

impl Sink for Wire {
    fn deliver(&self, batch: &Batch<'_>, picks: &[u16]) -> usize {
        if self.full {
            return 0;
        }
        let frames = picks.iter().filter_map(|pick| batch.get((*pick).into()));
        let frames = frames.map(|frame| frame.to_vec());
        self.frames.lock().expect("wire").extend(frames);
        picks.len()
    }
    fn caps(&self) -> Caps {
        Caps::NONE
    }
    fn want_room(&self, _: &Arc<dyn Wake>) {}
}

fn plain(dst: [u8; 6]) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..6].copy_from_slice(&dst);
    frame[6..12].copy_from_slice(&PEER);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

fn control(dst: [u8; 6], opcode: u16, quanta: u16) -> Vec<u8> {
    let mut frame = plain(dst);
    frame[12..14].copy_from_slice(&[0x88, 0x08]);
    frame[14..16].copy_from_slice(&opcode.to_be_bytes());
    frame[16..18].copy_from_slice(&quanta.to_be_bytes());
    frame
}

fn pause(quanta: u16) -> Vec<u8> {
    control(GROUP, 1, quanta)
}

fn map(m: &mut Machine) {
    let memory = Memory::new();
    memory.map_anon(RAM, 0x4000).expect("map");
    m.env.memory = memory;
    m.pci(false, false);
}

/// Link up, queue 0 on in both directions, these bits in CTRL and RCTL.
fn start(m: &mut Machine, ctrl: u32, rctl: u32) {
    map(m);
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
    m.pass(20_000_000);
    work(m);
}

fn machine(ctrl: u32, rctl: u32) -> Machine {
    let mut m = Machine::default();
    start(&mut m, ctrl, rctl);
    m
}

fn offer(m: &Machine, frames: &[&[u8]]) -> usize {
    let mut batch = Batch::new();
    for frame in frames {
        batch.push_bytes(frame);
        batch.end(wire::Offload::NONE);
    }
    let mut picks = Vec::new();
    let picks = batch.all_picks(&mut picks);
    m.nic.receive.deliver(&m.env, &batch, picks)
}

/// Does the work there is, as whoever serves it would. Returns what was sent.
fn work(m: &mut Machine) -> Vec<Vec<u8>> {
    let wire = Wire::default();
    if m.nic.control.take_work().tx {
        while m.nic.transmit.run(&m.env, &wire, 256) == Progress::More {}
    }
    wire.frames.into_inner().expect("wire")
}

/// Hands a packet to a queue.
fn send_by(m: &mut Machine, queue: u64) -> usize {
    let tail = m.r(TDT + queue * APART);
    let view = m.env.memory.view();
    let at = TX + 16 * u64::from(tail);
    // A legacy descriptor: EOP, IFCS, RS.
    let high = 60u64 | (1 | 2 | 8) << 24;
    view.write(at, &BUFFER.to_le_bytes()).expect("RAM");
    view.write(at + 8, &high.to_le_bytes()).expect("RAM");
    drop(view);
    m.w(TDT + queue * APART, tail + 1);
    work(m).len()
}

fn send(m: &mut Machine) -> usize {
    send_by(m, 0)
}

/// Lets time pass, and the transmitter work whenever the timer says so. Returns how many were sent.
fn pass(m: &mut Machine, nanos: Nanos) -> usize {
    m.pass(nanos);
    work(m).len()
}

fn armed(m: &Machine) -> Option<Nanos> {
    *m.time.deadline.lock().expect("time")
}

fn txoff(m: &mut Machine) -> bool {
    m.r(reg::STATUS) & TXOFF != 0
}

#[test]
fn a_pause_lasts_its_quanta_at_the_speed_of_the_wire() {
    // CTRL: FRCSPD with 10, 100 and 1000 Mb/s; 100 quanta of 512 bits.
    for (speed, ns) in [(0u32, 5_120_000u64), (1, 512_000), (2, 51_200)] {
        let mut m = machine(RFCE | 1 << 11 | speed << 8, 0);
        assert_eq!(offer(&m, &[&pause(100)]), 1);
        assert!(txoff(&mut m));
        assert_eq!((send_by(&mut m, 1), send(&mut m)), (0, 0), "no queue sends");
        assert_eq!(pass(&mut m, ns - 1), 0);
        assert!(txoff(&mut m));
        assert_eq!(pass(&mut m, 1), 2, "at {speed} the timer resumes");
        assert!(!txoff(&mut m));
        assert_eq!((m.r(TDH), m.r(TDH + APART)), (1, 1));
        assert_eq!((m.r(XOFFRXC), m.r(XONRXC)), (1, 0));
        assert_eq!(armed(&m), None);
    }
}

#[test]
fn xon_ends_it_and_a_later_xoff_takes_the_place_of_an_earlier_one() {
    let mut m = machine(RFCE, 0);
    offer(&m, &[&pause(0xffff)]);
    assert_eq!(send(&mut m), 0);
    offer(&m, &[&pause(0)]);
    assert!(!txoff(&mut m));
    assert_eq!(pass(&mut m, 0), 1);
    assert_eq!((m.r(XOFFRXC), m.r(XONRXC)), (1, 1));
    // Longer and shorter, in one batch and in two.
    offer(&m, &[&pause(1000), &pause(10)]);
    assert_eq!(send(&mut m), 0);
    assert_eq!(pass(&mut m, 5_120), 1);
    offer(&m, &[&pause(10)]);
    offer(&m, &[&pause(1000)]);
    assert_eq!(send(&mut m), 0);
    assert_eq!(pass(&mut m, 511_999), 0);
    assert_eq!(pass(&mut m, 1), 1);
    assert_eq!((m.r(XOFFRXC), m.r(XOFFRXC)), (4, 0), "cleared when read");
}

/// The timer may be heard late.
#[test]
fn a_pause_that_is_renewed_as_it_ends_ends_by_itself() {
    let mut m = machine(RFCE, 0);
    offer(&m, &[&pause(10)]);
    assert_eq!(send(&mut m), 0);
    m.time.now.fetch_add(5_120, SeqCst);
    offer(&m, &[&pause(100)]);
    m.nic.control.tick(&m.env);
    assert!(work(&mut m).is_empty());
    assert_eq!(pass(&mut m, 51_199), 0);
    assert_eq!(pass(&mut m, 1), 1);
}

#[test]
fn an_endless_pause_stops_the_transmitter_and_nothing_else() {
    let mut m = machine(RFCE, 0);
    for i in 0..100 {
        offer(&m, &[&pause(0xffff)]);
        assert_eq!(pass(&mut m, 10_000_000), 0);
        assert_eq!(offer(&m, &[&plain(MAC)]), 1);
        m.w(RDT, i % RX_RING);
    }
    assert_eq!(m.r(GPRC), 100);
    assert_eq!(send(&mut m), 0);
    // 65535 quanta after the last one.
    assert_eq!(pass(&mut m, 33_553_920), 1);
}

#[test]
fn reset_and_rfce_end_a_pause() {
    let mut m = machine(RFCE, 0);
    offer(&m, &[&pause(0xffff)]);
    assert_eq!(send(&mut m), 0);
    let ctrl = m.r(reg::CTRL);
    m.w(reg::CTRL, ctrl & !RFCE);
    assert!(!txoff(&mut m));
    assert_eq!(work(&mut m).len(), 1);
    let mut m = machine(RFCE, 0);
    offer(&m, &[&pause(0xffff)]);
    m.w(reg::TCTL, SWXOFF);
    m.w(reg::CTRL, 1 << 26);
    assert_eq!(armed(&m), None);
    start(&mut m, RFCE, 0);
    assert!(!txoff(&mut m));
    assert_eq!((m.r(XOFFRXC), m.r(XOFFTXC)), (0, 0));
}

/// Which control frames reach the guest, which are counted and which stop the transmitter.
#[test]
fn control_frames_are_told_apart() {
    const OTHER: [u8; 6] = [0x01, 0, 0x5e, 0, 0, 1];
    // Frame, CTRL, RCTL: in memory, pausing, XOFFRXC, FCRUC.
    type Case = (Vec<u8>, u32, u32, bool, bool, u32, u32);
    let cases: &[Case] = &[
        (pause(9), RFCE, 0, false, true, 1, 0),
        (pause(9), RFCE, MPE, true, true, 1, 0),
        (pause(9), RFCE, MPE | DPF, true, true, 1, 0),
        (control(MAC, 1, 9), RFCE, 0, true, true, 1, 0),
        (control(MAC, 1, 9), RFCE, DPF, false, true, 1, 0),
        (control(GROUP, 2, 9), RFCE, 0, false, false, 0, 1),
        (control(GROUP, 2, 9), RFCE, PMCF, true, false, 0, 1),
        (control(MAC, 2, 9), RFCE, 0, true, false, 0, 1),
        (control(OTHER, 1, 9), RFCE, PMCF, false, false, 0, 0),
        (control(PEER, 1, 9), RFCE, PMCF, false, false, 0, 0),
        (control(PEER, 1, 9), RFCE, UPE, true, false, 0, 0),
        (pause(9), 0, 0, false, false, 0, 0),
        (control(MAC, 1, 9), 0, DPF, true, false, 0, 0),
        (control(GROUP, 2, 9), 0, PMCF, false, false, 0, 0),
    ];
    for (i, (frame, ctrl, rctl, stored, paused, xoff, unsupported)) in cases.iter().enumerate() {
        // Alone, and with pools that no VF has: the default pool is the first.
        for pools in [false, true] {
            // A default pool has whatever is for nobody.
            if pools && frame[..6] == PEER {
                continue;
            }
            let mut m = machine(*ctrl, *rctl);
            if pools {
                pools_on(&mut m, *rctl);
            }
            assert_eq!(offer(&m, &[frame]), 1);
            assert_eq!(m.r(RDH) == 1, *stored, "case {i}, pools {pools}");
            assert_eq!(txoff(&mut m), *paused, "case {i}");
            assert_eq!(m.r(XOFFRXC), *xoff, "case {i}");
            assert_eq!(m.r(FCRUC), *unsupported, "case {i}");
            let known = xoff + unsupported > 0;
            assert_eq!(m.r(GPRC), u32::from(*stored && !known), "case {i}");
            if *stored {
                assert_eq!(m.r(TPR), 1, "case {i}");
            }
        }
    }
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
    assert_eq!(offer(&m, &[&frame, &plain(MAC)]), 1, "the other one waits");
    assert!(txoff(&mut m));
    assert_eq!((m.r(XOFFRXC), m.r(MPC)), (1, 1));
}

#[test]
fn software_sends_one_whatever_tfce_says() {
    let mut m = machine(RFCE, 0);
    m.w(FCTTV, 0x1234);
    // Even while it is paused itself: control frames are not.
    offer(&m, &[&pause(100)]);
    m.w(reg::TCTL, 2 | SWXOFF);
    let mut xoff = GROUP.to_vec();
    xoff.extend(MAC);
    xoff.extend([0x88, 8, 0, 1, 0x12, 0x34]);
    xoff.resize(60, 0);
    assert_eq!(work(&mut m), [xoff]);
    assert_eq!(m.r(reg::TCTL) & SWXOFF, 0, "it clears itself");
    m.w(FCTTV, 0);
    m.w(reg::TCTL, 2 | SWXOFF);
    assert_eq!(work(&mut m)[0][16..18], [0, 0]);
    assert_eq!((m.r(XOFFTXC), m.r(XONTXC)), (1, 1));
    assert_eq!((m.r(GPTC), m.r(TPT)), (0, 2));
    // Disabled, it waits.
    m.w(reg::TCTL, SWXOFF);
    assert!(work(&mut m).is_empty());
    m.w(reg::TCTL, 2);
    assert_eq!(work(&mut m).len(), 1);
}

#[test]
fn one_that_finds_no_room_on_the_wire_stays_owed_and_costs_a_frame_of_the_budget() {
    let mut m = machine(0, 0);
    m.w(reg::TCTL, 2 | SWXOFF);
    let full = Wire {
        full: true,
        ..Wire::default()
    };
    let progress = m.nic.transmit.run(&m.env, &full, 256);
    assert_eq!(progress, Progress::Blocked);
    let wire = Wire::default();
    for (left, sent) in [(Progress::More, 1), (Progress::Idle, 1)] {
        assert_eq!(m.nic.transmit.run(&m.env, &wire, 1), left);
        assert_eq!(wire.frames.lock().expect("wire").len(), sent);
    }
}

/// There is no packet buffer to fill: who has no room says so to the sender.
#[test]
fn none_is_sent_by_itself() {
    let mut m = machine(TFCE, 0);
    m.w(FCRTH0, 0x10);
    for _ in 0..40 {
        offer(&m, &[&plain(MAC)]);
    }
    assert_eq!(pass(&mut m, 1_000_000), 0);
    assert_eq!((m.r(XOFFTXC), armed(&m)), (0, None));
}

/// What it asks for, and what it owes, goes on elsewhere, on another clock.
#[test]
fn a_pause_is_saved_and_ends_where_it_is_loaded() {
    let mut first = machine(RFCE, 0);
    offer(&first, &[&pause(100)]);
    assert_eq!(send(&mut first), 0);
    first.time.now.fetch_add(1_200, SeqCst);
    first.w(FCTTV, 7);
    first.w(reg::TCTL, 2 | SWXOFF);
    let blob = first.nic.control.save(&first.env);
    let mut second = Machine::default();
    second.env.memory = first.env.memory.clone();
    second.pci(false, false);
    second.time.now.store(77, SeqCst);
    let loaded = second.nic.control.load(&second.env, &blob);
    loaded.expect("its own state");
    assert_eq!(second.nic.control.save(&second.env), blob);
    assert!(txoff(&mut second));
    assert_eq!(work(&mut second).len(), 1, "what software asked for");
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
        work(&mut m);
        offer(&m, &[&control(MAC, 1, 0xffff)]);
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
