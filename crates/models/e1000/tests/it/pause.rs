//! Pause frames, obeyed and sent (manual §8.7).

use crate::common::*;
use hypernic_e1000::Config;
use intel_offsets::e1000::long::{
    FCAH, FCAL, FCRTH, FCRTL, FCT, FCTTV, GPTC, RDFPC, TPT, XOFFRXC, XOFFTXC, XONTXC,
};
use model_testkit::packet::{PAUSE_GROUP, pause};
use model_testkit::scripts::pause::{self as script, RFCE, SWXOFF, TFCE, txoff};

const BAM: u32 = 0x8000;
const SECRC: u32 = 1 << 26;

/// The 82540EM, for what holds for every chip.
struct Chip;

impl script::Chip for Chip {
    const QUEUES: usize = 1;

    fn machine() -> Machine {
        Machine::with(Config::new(MAC), Wire::default())
    }

    fn start(m: &mut Machine, ctrl: u32, rctl: u32) {
        start(m, ctrl, rctl);
    }

    fn send(m: &mut Machine) {
        let tail = m.r(reg::TDT);
        send(m, tail);
    }

    fn reported(m: &mut Machine) -> bool {
        m.tx_done(0)
    }

    fn stored(m: &mut Machine) -> bool {
        m.rx_status(0).1 & 1 == 1
    }

    fn take(m: &mut Machine, i: u32) {
        let at = i % 8;
        assert_eq!(m.rx_status(at).1 & 1, 1, "frames come in");
        m.rx_desc(at, RX_BUFFERS);
        m.w(reg::RDT, at);
    }
}

fn with(config: Config, ctrl: u32, rctl: u32) -> Machine {
    let mut m = Machine::with(config, Wire::default());
    start(&mut m, ctrl, rctl);
    m
}

fn start(m: &mut Machine, ctrl: u32, rctl: u32) {
    m.tx_on(64);
    m.rx_on(8, BAM | SECRC | rctl);
    m.w(FCAL, 0x00c2_8001);
    m.w(FCAH, 0x0100);
    m.w(FCT, 0x8808);
    let old = m.r(reg::CTRL);
    m.w(reg::CTRL, old | ctrl);
    m.r(reg::ICR);
}

fn machine(ctrl: u32, rctl: u32) -> Machine {
    with(Config::new(MAC), ctrl, rctl)
}

fn send(m: &mut Machine, index: u32) {
    m.poke(TX_BUFFERS, &plain(PEER, 60));
    m.tx_desc(index, TX_BUFFERS, legacy(60, EOP | IFCS | RS));
    m.w(reg::TDT, index + 1);
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

/// Whatever else the transmitter looks for meanwhile, it looks again when a pause is over.
#[test]
fn a_pause_ends_by_itself_whatever_comes_in_between() {
    // The FIFO has something to say while it lasts.
    let mut m = machine(RFCE | TFCE, 0);
    m.w(FCRTH, 80);
    for _ in 0..7 {
        m.offer(&[&plain(MAC, 60)]);
    }
    m.offer(&[&pause(100)]);
    m.offer(&[&plain(MAC, 60)]);
    send(&mut m, 0);
    m.sleep(51_199);
    assert_eq!(m.wire.take().len(), 1, "XOFF");
    m.sleep(1);
    assert_eq!(m.wire.take().len(), 1);
}

#[test]
fn who_configures_so_is_never_paused() {
    let mut config = Config::new(MAC);
    config.obey_pause = false;
    let mut m = with(config, RFCE, 0);
    m.offer(&[&pause(0xffff)]);
    assert!(!txoff(&mut m));
    send(&mut m, 0);
    assert_eq!(m.wire.take().len(), 1);
    assert_eq!(m.r(XOFFRXC), 1, "counted all the same");
}

#[test]
fn the_fifo_sends_xoff_when_it_fills_and_xon_when_it_empties() {
    let mut m = machine(TFCE, 0);
    m.w(FCTTV, 0x1234);
    // 10 frames of 80 bytes, 2 of them.
    m.w(FCRTH, 800);
    m.w(FCRTL, 160 | 1 << 31);
    let frame = plain(MAC, 60);
    for _ in 0..7 + 9 {
        m.offer(&[&frame]);
    }
    m.sleep(0);
    assert!(m.wire.take().is_empty());
    m.offer(&[&frame]);
    m.sleep(0);
    let mut xoff = PAUSE_GROUP.to_vec();
    xoff.extend(MAC);
    xoff.extend([0x88, 8, 0, 1, 0x12, 0x34]);
    xoff.resize(60, 0);
    assert_eq!(m.wire.take(), std::slice::from_ref(&xoff));
    for _ in 0..5 {
        m.offer(&[&frame]);
    }
    m.sleep(1_000_000);
    assert!(m.wire.take().is_empty(), "once per crossing");
    assert_eq!(m.r(RDFPC), 15);
    m.w(reg::RDT, 6);
    m.w(reg::RDT, 4);
    m.sleep(0);
    assert_eq!(m.r(RDFPC), 2);
    xoff[16..18].fill(0);
    assert_eq!(m.wire.take(), [xoff]);
    assert_eq!((m.r(XOFFTXC), m.r(XONTXC)), (1, 1));
    assert_eq!((m.r(GPTC), m.r(TPT)), (0, 2));
}

#[test]
fn without_tfce_or_threshold_nothing_is_sent() {
    for (ctrl, rth) in [(0, 80), (TFCE, 0)] {
        let mut m = machine(ctrl, 0);
        m.w(FCRTH, rth);
        for _ in 0..40 {
            m.offer(&[&plain(MAC, 60)]);
        }
        m.sleep(1_000_000);
        assert!(m.wire.take().is_empty());
        assert_eq!(m.armed(), None);
    }
}

#[test]
fn pause_frames_count_against_the_budget() {
    let mut m = machine(TFCE, 0);
    m.w(FCRTH, 80);
    for _ in 0..9 {
        m.offer(&[&plain(MAC, 60)]);
    }
    let both = 2 | SWXOFF;
    m.nic
        .control
        .write(&m.env, 0, reg::TCTL, &both.to_le_bytes());
    for (left, sent) in [
        (model::Progress::More, 1),
        (model::Progress::More, 1),
        (model::Progress::Idle, 0),
    ] {
        assert_eq!(m.nic.transmit.run(&m.env, &m.wire, 1), left);
        assert_eq!(m.wire.take().len(), sent);
    }
}
