//! Pause frames, obeyed and sent.

use std::sync::atomic::Ordering::SeqCst;

use model::Progress;

use super::reg;
use crate::machine::Machine;
use crate::packet::{MAC, PAUSE_GROUP, PEER, control, pause, plain};

/// CTRL: receive and transmit flow control.
pub const RFCE: u32 = 1 << 27;
/// CTRL: transmit flow control.
pub const TFCE: u32 = 1 << 28;
/// TCTL: software XOFF.
pub const SWXOFF: u32 = 1 << 22;
/// RCTL: discard pause frames.
pub const DPF: u32 = 1 << 22;
/// RCTL: pass MAC control frames.
pub const PMCF: u32 = 1 << 23;
/// RCTL: multicast promiscuous.
pub const MPE: u32 = 1 << 4;
/// RCTL: unicast promiscuous.
pub const UPE: u32 = 1 << 3;

const RST: u32 = 1 << 26;
const FRCSPD: u32 = 1 << 11;

/// How a chip differs.
pub trait Chip {
    /// Transmit queues that [`Chip::send`] uses, each for one packet.
    const QUEUES: usize;
    /// Ways to have the same filters.
    const VARIANTS: u32 = 1;
    /// A NIC with the address [`MAC`], as it comes from its reset.
    fn machine() -> Machine;
    /// Link up, transmitter and receiver on with rings and buffers, these bits added to CTRL and RCTL.
    fn start(m: &mut Machine, ctrl: u32, rctl: u32);
    /// Hands a packet of 60 bytes to each queue.
    fn send(m: &mut Machine);
    /// Whether the first packet of every queue was reported as sent.
    fn reported(m: &mut Machine) -> bool;
    /// Whether the first receive descriptor was written back.
    fn stored(m: &mut Machine) -> bool;
    /// Checks that the `i`th frame has been written back, and gives its buffer back.
    fn take(m: &mut Machine, i: u32);
    /// Has the filters another way. False: they cannot be had that way with this frame.
    fn vary(_m: &mut Machine, _variant: u32, _rctl: u32, _frame: &[u8]) -> bool {
        true
    }
}

fn machine<C: Chip>(ctrl: u32, rctl: u32) -> Machine {
    let mut m = C::machine();
    C::start(&mut m, ctrl, rctl);
    m
}

/// STATUS.TXOFF.
pub fn txoff(m: &mut Machine) -> bool {
    m.r(reg::STATUS) & 1 << 4 != 0
}

/// Lets time pass. Returns how many frames were sent.
fn pass(m: &mut Machine, nanos: u64) -> usize {
    m.sleep(nanos);
    m.wire.take().len()
}

/// Hands packets over. Returns how many were sent at once.
fn send<C: Chip>(m: &mut Machine) -> usize {
    C::send(m);
    m.wire.take().len()
}

/// A quantum is 512 bit times.
pub fn a_pause_lasts_its_quanta_at_the_speed_of_the_wire<C: Chip>() {
    // CTRL: FRCSPD with 10, 100 and 1000 Mb/s; 100 quanta.
    for (speed, ns) in [(0u32, 5_120_000u64), (1, 512_000), (2, 51_200)] {
        let mut m = machine::<C>(RFCE | FRCSPD, 0);
        let ctrl = m.r(reg::CTRL) & !0x300;
        m.w(reg::CTRL, ctrl | speed << 8);
        assert_eq!(m.offer(&[&pause(100)]), 1);
        assert!(txoff(&mut m));
        assert_eq!(send::<C>(&mut m), 0, "no queue sends");
        assert!(!C::reported(&mut m));
        assert_eq!(pass(&mut m, ns - 1), 0);
        assert!(txoff(&mut m));
        assert_eq!(pass(&mut m, 1), C::QUEUES, "at {speed} the timer resumes");
        assert!(!txoff(&mut m));
        assert!(C::reported(&mut m));
        assert_eq!((m.r(reg::XOFFRXC), m.r(reg::XONRXC)), (1, 0));
        assert_eq!(m.armed(), None);
    }
}

/// The last frame counts.
pub fn xon_ends_it_and_a_later_xoff_takes_the_place_of_an_earlier_one<C: Chip>() {
    let mut m = machine::<C>(RFCE, 0);
    m.offer(&[&pause(0xffff)]);
    assert_eq!(send::<C>(&mut m), 0);
    assert_eq!(pass(&mut m, 1_000_000), 0);
    m.offer(&[&pause(0)]);
    assert!(!txoff(&mut m));
    assert_eq!(pass(&mut m, 0), C::QUEUES);
    assert_eq!((m.r(reg::XOFFRXC), m.r(reg::XONRXC)), (1, 1));
    // Longer and shorter, in one batch and in two.
    m.offer(&[&pause(1000), &pause(10)]);
    assert_eq!(send::<C>(&mut m), 0);
    assert_eq!(pass(&mut m, 5_120), C::QUEUES);
    m.offer(&[&pause(10)]);
    m.offer(&[&pause(1000)]);
    assert_eq!(send::<C>(&mut m), 0);
    assert_eq!(pass(&mut m, 511_999), 0);
    assert_eq!(pass(&mut m, 1), C::QUEUES);
    let counted = (m.r(reg::XOFFRXC), m.r(reg::XOFFRXC));
    assert_eq!(counted, (4, 0), "cleared when read");
}

/// The timer may be heard late.
pub fn a_pause_that_is_renewed_as_it_ends_ends_by_itself<C: Chip>() {
    for queued_before in [false, true] {
        let mut m = machine::<C>(RFCE, 0);
        m.offer(&[&pause(10)]);
        if queued_before {
            assert_eq!(send::<C>(&mut m), 0);
        }
        m.time.now.fetch_add(5_120, SeqCst);
        m.offer(&[&pause(100)]);
        if queued_before {
            m.nic.control.tick(&m.env);
            m.work();
            assert!(m.wire.take().is_empty());
        } else {
            assert_eq!(send::<C>(&mut m), 0);
        }
        assert_eq!(pass(&mut m, 51_199), 0);
        assert_eq!(pass(&mut m, 1), C::QUEUES, "the second is over");
    }
}

/// Frames come in all the while.
pub fn an_endless_pause_stops_the_transmitter_and_nothing_else<C: Chip>() {
    let mut m = machine::<C>(RFCE, 0);
    for i in 0..100 {
        m.offer(&[&pause(0xffff)]);
        assert_eq!(pass(&mut m, 10_000_000), 0);
        assert_eq!(m.offer(&[&plain(MAC, 60)]), 1);
        C::take(&mut m, i);
    }
    assert_eq!(m.r(reg::GPRC), 100);
    assert_eq!(send::<C>(&mut m), 0);
    // 65535 quanta after the last one.
    assert_eq!(pass(&mut m, 33_553_920), C::QUEUES);
}

/// What was owed is forgotten by a reset.
pub fn reset_and_rfce_end_a_pause<C: Chip>() {
    let mut m = machine::<C>(RFCE, 0);
    m.offer(&[&pause(0xffff)]);
    assert_eq!(send::<C>(&mut m), 0);
    let ctrl = m.r(reg::CTRL);
    m.w(reg::CTRL, ctrl & !RFCE);
    assert!(!txoff(&mut m));
    assert_eq!(m.wire.take().len(), C::QUEUES);
    let mut m = machine::<C>(RFCE, 0);
    m.offer(&[&pause(0xffff)]);
    m.w(reg::TCTL, SWXOFF);
    m.w(reg::CTRL, RST);
    assert!(!txoff(&mut m));
    assert_eq!(m.armed(), None);
    C::start(&mut m, RFCE, 0);
    assert!(!txoff(&mut m));
    assert_eq!((m.r(reg::XOFFRXC), m.r(reg::XOFFTXC)), (0, 0));
}

/// Which control frames reach the guest, which are counted and which stop the transmitter.
pub fn control_frames_are_told_apart<C: Chip>() {
    const GROUP: [u8; 6] = PAUSE_GROUP;
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
        for variant in 0..C::VARIANTS {
            let mut m = machine::<C>(*ctrl, *rctl);
            if !C::vary(&mut m, variant, *rctl, frame) {
                continue;
            }
            let case = format!("case {i}, variant {variant}");
            if let Some(said) = m.trace(frame) {
                assert_eq!(said, *stored, "{case}");
            }
            assert_eq!(m.offer(&[frame]), 1, "{case}");
            assert_eq!(C::stored(&mut m), *stored, "{case}");
            assert_eq!(txoff(&mut m), *paused, "{case}");
            assert_eq!(m.r(reg::XOFFRXC), *xoff, "{case}");
            assert_eq!(m.r(reg::FCRUC), *unsupported, "{case}");
            let known = xoff + unsupported > 0;
            assert_eq!(m.r(reg::GPRC), u32::from(*stored && !known), "{case}");
            if *stored {
                assert_eq!(m.r(reg::TPR), 1, "{case}");
            }
        }
    }
}

/// TCTL.SWXOFF sends one: with the value of FCTTV, and XON if that is 0.
pub fn software_sends_one_whatever_tfce_says<C: Chip>() {
    let mut m = machine::<C>(RFCE, 0);
    m.w(reg::FCTTV, 0x1234);
    // Even while it is paused itself: control frames are not.
    m.offer(&[&pause(100)]);
    m.w(reg::TCTL, 2 | SWXOFF);
    let mut xoff = PAUSE_GROUP.to_vec();
    xoff.extend(MAC);
    xoff.extend([0x88, 8, 0, 1, 0x12, 0x34]);
    xoff.resize(60, 0);
    assert_eq!(m.wire.take(), std::slice::from_ref(&xoff));
    assert_eq!(m.r(reg::TCTL), 2, "it clears itself");
    m.w(reg::FCTTV, 0);
    m.w(reg::TCTL, 2 | SWXOFF);
    xoff[16..18].fill(0);
    assert_eq!(m.wire.take(), [xoff]);
    assert_eq!((m.r(reg::XOFFTXC), m.r(reg::XONTXC)), (1, 1));
    assert_eq!((m.r(reg::GPTC), m.r(reg::TPT)), (0, 2));
    // Disabled, it waits.
    m.w(reg::TCTL, SWXOFF);
    assert!(m.wire.take().is_empty());
    m.w(reg::TCTL, 2);
    assert_eq!(m.wire.take().len(), 1);
}

/// A pause frame is one of the frames that a call may send.
pub fn one_that_finds_no_room_on_the_wire_stays_owed_and_costs_a_frame_of_the_budget<C: Chip>() {
    let mut m = machine::<C>(0, 0);
    m.wire.set_room(0);
    m.w(reg::TCTL, 2 | SWXOFF);
    assert_eq!(m.run(), Progress::Blocked);
    m.wire.unlimit();
    for (left, sent) in [(Progress::More, 1), (Progress::Idle, 0)] {
        assert_eq!(m.nic.transmit.run(&m.env, &m.wire, 1), left);
        assert_eq!(m.wire.take().len(), sent);
    }
}
