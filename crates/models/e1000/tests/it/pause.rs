//! Pause frames, obeyed and sent (manual §8.7).

use crate::common::*;
use hypernic_e1000::Config;

const RFCE: u32 = 1 << 27;
const TFCE: u32 = 1 << 28;
const TXOFF: u32 = 1 << 4;
const DPF: u32 = 1 << 22;
const PMCF: u32 = 1 << 23;
const SWXOFF: u32 = 1 << 22;
const BAM: u32 = 0x8000;
const SECRC: u32 = 1 << 26;
const FCAL: u64 = 0x28;
const FCAH: u64 = 0x2c;
const FCT: u64 = 0x30;
const FCTTV: u64 = 0x170;
const FCRTL: u64 = 0x2160;
const FCRTH: u64 = 0x2168;
const XONRXC: u64 = 0x4048;
const XONTXC: u64 = 0x404c;
const XOFFRXC: u64 = 0x4050;
const XOFFTXC: u64 = 0x4054;
const FCRUC: u64 = 0x4058;
const GPRC: u64 = 0x4074;
const GPTC: u64 = 0x4080;
const TPR: u64 = 0x40d0;
const TPT: u64 = 0x40d4;
const RDFPC: u64 = 0x2430;

const GROUP: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 1];

fn control(dst: [u8; 6], opcode: u16, quanta: u16) -> Vec<u8> {
    let mut frame = plain(dst, 60);
    frame[12..14].copy_from_slice(&[0x88, 0x08]);
    frame[14..16].copy_from_slice(&opcode.to_be_bytes());
    frame[16..18].copy_from_slice(&quanta.to_be_bytes());
    frame[18..].fill(0);
    frame
}

fn pause(quanta: u16) -> Vec<u8> {
    control(GROUP, 1, quanta)
}

fn with(config: Config, ctrl: u32, rctl: u32) -> Machine {
    let mut m = Machine::with(config, Wire::default());
    m.tx_on(64);
    m.rx_on(8, BAM | SECRC | rctl);
    m.w(FCAL, 0x00c2_8001);
    m.w(FCAH, 0x0100);
    m.w(FCT, 0x8808);
    let old = m.r(reg::CTRL);
    m.w(reg::CTRL, old | ctrl);
    m.r(reg::ICR);
    m
}

fn machine(ctrl: u32, rctl: u32) -> Machine {
    with(Config::new(MAC), ctrl, rctl)
}

fn send(m: &mut Machine, index: u32) {
    m.poke(TX_BUFFERS, &plain(PEER, 60));
    m.tx_desc(index, TX_BUFFERS, legacy(60, EOP | IFCS | RS));
    m.w(reg::TDT, index + 1);
}

fn txoff(m: &mut Machine) -> bool {
    m.r(reg::STATUS) & TXOFF != 0
}

#[test]
fn a_pause_lasts_its_quanta_at_the_speed_of_the_wire() {
    // CTRL: FRCSPD with 10, 100 and 1000 Mb/s; 100 quanta of 512 bits.
    for (speed, ns) in [(0u32, 5_120_000u64), (1, 512_000), (2, 51_200)] {
        let mut m = machine(RFCE | 1 << 11, 0);
        let ctrl = m.r(reg::CTRL) & !0x300;
        m.w(reg::CTRL, ctrl | speed << 8);
        assert_eq!(m.offer(&[&pause(100)]), 1);
        assert!(txoff(&mut m));
        send(&mut m, 0);
        assert!(m.wire.take().is_empty());
        assert!(!m.tx_done(0));
        m.sleep(ns - 1);
        assert!(txoff(&mut m) && m.wire.take().is_empty());
        m.sleep(1);
        assert!(!txoff(&mut m));
        assert_eq!(m.wire.take().len(), 1, "at {speed} the timer resumes");
        assert!(m.tx_done(0));
        assert_eq!((m.r(XOFFRXC), m.r(XONRXC)), (1, 0));
        assert_eq!(m.armed(), None);
    }
}

#[test]
fn xon_ends_it_and_a_later_xoff_takes_the_place_of_an_earlier_one() {
    let mut m = machine(RFCE, 0);
    m.offer(&[&pause(0xffff)]);
    send(&mut m, 0);
    m.sleep(1_000_000);
    assert!(m.wire.take().is_empty());
    m.offer(&[&pause(0)]);
    assert!(!txoff(&mut m));
    m.sleep(0);
    assert_eq!(m.wire.take().len(), 1);
    assert_eq!((m.r(XOFFRXC), m.r(XONRXC)), (1, 1));
    m.offer(&[&pause(1000), &pause(10)]);
    send(&mut m, 1);
    m.sleep(5_120);
    assert_eq!(m.wire.take().len(), 1);
    m.offer(&[&pause(10)]);
    m.offer(&[&pause(1000)]);
    send(&mut m, 2);
    m.sleep(511_999);
    assert!(m.wire.take().is_empty());
    m.sleep(1);
    assert_eq!(m.wire.take().len(), 1);
}

/// Whatever else the transmitter looks for meanwhile, it looks again when a pause is over.
#[test]
fn a_pause_ends_by_itself_whatever_comes_in_between() {
    // Renewed after its end, before the timer was heard.
    let mut m = machine(RFCE, 0);
    m.offer(&[&pause(10)]);
    m.time
        .now
        .fetch_add(5_120, std::sync::atomic::Ordering::SeqCst);
    m.offer(&[&pause(100)]);
    send(&mut m, 0);
    m.sleep(51_199);
    assert!(m.wire.take().is_empty());
    m.sleep(1);
    assert_eq!(m.wire.take().len(), 1, "the second is over");
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
fn an_endless_pause_stops_the_transmitter_and_nothing_else() {
    let mut m = machine(RFCE, 0);
    send(&mut m, 0);
    m.wire.take();
    for i in 0..100 {
        m.offer(&[&pause(0xffff)]);
        m.sleep(10_000_000);
        assert_eq!(m.offer(&[&plain(MAC, 60)]), 1);
        let at = i % 8;
        assert_eq!(m.rx_status(at).1 & 1, 1, "frames come in");
        m.rx_desc(at, RX_BUFFERS);
        m.w(reg::RDT, at);
    }
    send(&mut m, 1);
    assert!(m.wire.take().is_empty());
    // 65535 quanta after the last one.
    m.sleep(33_553_920);
    assert_eq!(m.wire.take().len(), 1);
}

#[test]
fn reset_and_rfce_end_a_pause() {
    let mut m = machine(RFCE, 0);
    m.offer(&[&pause(0xffff)]);
    send(&mut m, 0);
    let ctrl = m.r(reg::CTRL);
    m.w(reg::CTRL, ctrl & !RFCE);
    assert!(!txoff(&mut m));
    assert_eq!(m.wire.take().len(), 1);
    let mut m = machine(RFCE, 0);
    m.offer(&[&pause(0xffff)]);
    m.w(reg::CTRL, 1 << 26);
    assert!(!txoff(&mut m));
    assert_eq!(m.armed(), None);
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

/// Which control frames reach the guest, which are counted and which stop the transmitter.
#[test]
fn control_frames_are_told_apart() {
    const OTHER: [u8; 6] = [0x01, 0, 0x5e, 0, 0, 1];
    // Frame, CTRL, RCTL: in memory, pausing, XOFFRXC, FCRUC.
    type Case = (Vec<u8>, u32, u32, bool, bool, u32, u32);
    let cases: &[Case] = &[
        (pause(9), RFCE, 0, false, true, 1, 0),
        (pause(9), RFCE, 0x10, true, true, 1, 0),
        (pause(9), RFCE, 0x10 | DPF, true, true, 1, 0),
        (control(MAC, 1, 9), RFCE, 0, true, true, 1, 0),
        (control(MAC, 1, 9), RFCE, DPF, false, true, 1, 0),
        (control(GROUP, 2, 9), RFCE, 0, false, false, 0, 1),
        (control(GROUP, 2, 9), RFCE, PMCF, true, false, 0, 1),
        (control(MAC, 2, 9), RFCE, 0, true, false, 0, 1),
        (control(OTHER, 1, 9), RFCE, PMCF, false, false, 0, 0),
        (control(PEER, 1, 9), RFCE, PMCF, false, false, 0, 0),
        (pause(9), 0, 0, false, false, 0, 0),
        (control(MAC, 1, 9), 0, DPF, true, false, 0, 0),
        (control(GROUP, 2, 9), 0, PMCF, false, false, 0, 0),
    ];
    for (i, (frame, ctrl, rctl, stored, paused, xoff, unsupported)) in cases.iter().enumerate() {
        let mut m = machine(*ctrl, *rctl);
        m.offer(&[frame]);
        assert_eq!(m.rx_status(0).1 & 1 == 1, *stored, "case {i}");
        assert_eq!(txoff(&mut m), *paused, "case {i}");
        assert_eq!(m.r(XOFFRXC), *xoff, "case {i}");
        assert_eq!(m.r(FCRUC), *unsupported, "case {i}");
        let good = *stored && *ctrl == 0;
        assert_eq!(m.r(GPRC), u32::from(good), "case {i}");
        if *stored {
            assert_eq!(m.r(TPR), 1);
        }
    }
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
    let mut xoff = GROUP.to_vec();
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
fn software_sends_one_whatever_tfce_says() {
    let mut m = machine(RFCE, 0);
    m.w(FCTTV, 7);
    // Even while it is paused itself: control frames are not.
    m.offer(&[&pause(100)]);
    m.w(reg::TCTL, 2 | SWXOFF);
    let sent = m.wire.take();
    assert_eq!((sent.len(), sent[0][16..18].to_vec()), (1, vec![0, 7]));
    assert_eq!(m.r(reg::TCTL), 2, "it clears itself");
    m.w(FCTTV, 0);
    m.w(reg::TCTL, 2 | SWXOFF);
    assert_eq!((m.r(XOFFTXC), m.r(XONTXC)), (1, 1));
    m.wire.take();
    // Disabled, it waits.
    m.w(reg::TCTL, SWXOFF);
    assert!(m.wire.take().is_empty());
    m.w(reg::TCTL, 2);
    assert_eq!(m.wire.take().len(), 1);
}

#[test]
fn a_sink_without_room_gets_it_later() {
    let mut m = machine(0, 0);
    *m.wire.room.lock().expect("room") = Some(0);
    m.w(reg::TCTL, 2 | SWXOFF);
    *m.wire.room.lock().expect("room") = None;
    m.run();
    assert_eq!(m.wire.take().len(), 1);
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
