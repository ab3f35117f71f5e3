//! Causes, line and messages, IntrMitigate and the timer.

use std::num::NonZeroU32;

use crate::common::*;
use hypernic_r8169::{Config, Moderation};
use model::Through;
use model_testkit::scripts::moderation::{Hearing, choose_while_frames_come};

const US: u64 = 1000;

#[test]
fn causes_latch_while_masked_and_the_line_is_their_conjunction() {
    let mut m = Machine::new();
    m.rings(8, 1536);
    m.offer(&[&plain(MAC, 100)]);
    assert_eq!((m.r16(reg::ISR), m.line()), (ROK, false));
    m.w16(reg::IMR, TOK);
    assert!(!m.line());
    m.w16(reg::IMR, ROK | TOK);
    assert!(m.line());
    m.w16(reg::ISR, TOK);
    assert!(m.line(), "another one is acknowledged");
    m.w16(reg::IMR, 0);
    assert!(!m.line());
    m.w16(reg::IMR, ROK);
    m.w16(reg::ISR, ROK);
    assert_eq!((m.r16(reg::ISR), m.line()), (0, false));
}

#[test]
fn halves_and_words_reach_mask_and_causes() {
    let mut m = Machine::new();
    m.rings(8, 1536);
    m.w32(reg::IMR, 0x0000_0025);
    assert_eq!((m.r16(reg::IMR), m.r8(reg::IMR)), (0x25, 0x25));
    m.w8(reg::IMR + 1, 0x40);
    assert_eq!(m.r16(reg::IMR), 0x4025);
    m.offer(&[&plain(MAC, 100)]);
    assert_eq!(m.r32(reg::IMR), 0x0001_4025);
    m.w8(reg::ISR, 1);
    assert_eq!(m.r16(reg::ISR), 0);
    m.w16(reg::IMR, 0xffff);
    assert_ne!(
        m.r16(reg::ISR),
        0xffff,
        "drivers take that for a NIC that is gone"
    );
    m.w8(reg::TX_POLL, 1);
    assert_eq!(m.r16(reg::ISR), SW_INT);
}

/// Both kinds: an edge, and again after each write of IMR, and after ISR was cleared in part.
#[test]
fn messages_are_sent_again_when_they_may_have_been_lost() {
    for msix in [false, true] {
        let mut m = Machine::new();
        m.rings(8, 1536);
        m.pci(!msix, msix);
        let sent = |m: &Machine| match msix {
            false => m.messages(),
            true => {
                let vectors = m.vectors();
                assert!(vectors.iter().all(|v| *v == 0));
                vectors.len() as u64
            }
        };
        m.w16(reg::IMR, ROK | TOK);
        m.offer(&[&plain(MAC, 100)]);
        assert_eq!(sent(&m), 1);
        m.offer(&[&plain(MAC, 100)]);
        assert_eq!(sent(&m), 0, "it is out");
        m.w16(reg::IMR, ROK | TOK);
        assert_eq!(sent(&m), 1);
        m.send(0, &plain(PEER, 100), BOTH, 0);
        m.r16(reg::ISR);
        m.w16(reg::ISR, ROK);
        assert_eq!(sent(&m), 1, "TOK is left");
        m.w16(reg::ISR, TOK | TDU);
        assert_eq!(sent(&m), 0);
        m.w16(reg::IMR, ROK | TOK);
        assert_eq!(sent(&m), 0, "there is nothing to tell");
        m.w16(reg::IMR, 0);
        m.offer(&[&plain(MAC, 100)]);
        assert_eq!(sent(&m), 0);
        m.w16(reg::IMR, ROK);
        assert_eq!(sent(&m), 1);
        assert!(!m.line());
        // What was not answered is told the new way.
        m.pci(false, false);
        assert!(m.line());
        m.pci(!msix, msix);
        assert!(!m.line());
        assert_eq!(sent(&m), 1);
    }
}

/// A driver's acknowledgement is a posted write. A frame that comes while it is under way comes behind the driver's look at the
/// ring, perhaps, and is not to wait for another one.
#[test]
fn an_acknowledgement_clears_what_was_read() {
    let mut m = Machine::new();
    m.rings(8, 1536);
    m.pci(true, false);
    m.w16(reg::IMR, ROK | TOK);
    m.offer(&[&plain(MAC, 100)]);
    assert_eq!(m.messages(), 1);
    let isr = m.r16(reg::ISR);
    m.w16(reg::IMR, 0);
    m.offer(&[&plain(MAC, 100)]);
    m.send(0, &plain(PEER, 100), BOTH, 0);
    m.w16(reg::ISR, isr);
    m.w16(reg::IMR, ROK | TOK);
    assert_eq!(m.messages(), 1, "the second frame is told");
    assert_eq!(m.take_isr(), ROK | TOK | TDU);
    assert_eq!((m.r16(reg::ISR), m.messages()), (0, 0));
}

/// IntrMitigate by scale and speed, for the receiver: (scale, megabits, nanoseconds of a unit).
const UNITS: [(u16, u32, u64); 12] = [
    (0, 1000, 5_000),
    (1, 1000, 40_000),
    (2, 1000, 80_000),
    (3, 1000, 160_000),
    (0, 100, 2_560),
    (1, 100, 20_480),
    (2, 100, 40_960),
    (3, 100, 81_920),
    (0, 10, 40_960),
    (1, 10, 327_680),
    (2, 10, 655_360),
    (3, 10, 1_310_720),
];

fn at_speed(mbits: u32) -> Machine {
    let mut m = Machine::new();
    m.rings(64, 1536);
    m.phy_write(9, if mbits == 1000 { 0x0300 } else { 0 });
    m.phy_write(4, if mbits == 10 { 0x0061 } else { 0x01e1 });
    m.phy_write(0, 0x1200);
    m.sleep(10_000 * US);
    m.take_isr();
    m
}

#[test]
fn the_unit_of_time_is_of_the_scale_and_the_speed() {
    for (scale, mbits, unit) in UNITS {
        for units in [1, 15] {
            let mut m = at_speed(mbits);
            // As `rtl_set_coalesce`: the value first, then the scale.
            m.w16(reg::MITIGATE, units << 4);
            m.w16(reg::CPLUS_CMD, 0x2060 | scale);
            m.offer(&[&plain(MAC, 100)]);
            let time = u64::from(units) * unit;
            m.sleep(time - 1);
            assert_eq!(m.r16(reg::ISR), 0, "{scale} {mbits} {units}");
            m.sleep(1);
            assert_eq!(m.r16(reg::ISR), ROK, "{scale} {mbits} {units}");
        }
    }
}

#[test]
fn time_or_frames_whichever_is_first() {
    let mut m = at_speed(1000);
    m.w16(reg::CPLUS_CMD, 1);
    // 2 × 40 µs, 2 × 4 frames; both ways.
    m.w16(reg::MITIGATE, 0x2222);
    let frame = plain(MAC, 100);
    for _ in 0..7 {
        m.offer(&[&frame]);
    }
    assert_eq!(m.r16(reg::ISR), 0);
    m.offer(&[&frame]);
    assert_eq!(m.take_isr(), ROK);
    for i in 0..8 {
        assert_eq!(m.r16(reg::ISR) & TOK, 0, "{i}");
        m.send(i, &plain(PEER, 100), BOTH, 0);
    }
    assert_eq!(m.take_isr() & TOK, TOK);
    // The first one starts the time, the others do not.
    m.offer(&[&frame]);
    m.sleep(50 * US);
    m.offer(&[&frame]);
    m.sleep(30 * US - 1);
    assert_eq!(m.r16(reg::ISR) & ROK, 0);
    m.sleep(1);
    assert_eq!(m.take_isr() & ROK, ROK);
    // Frames alone delay nothing, and neither does nothing.
    for value in [0x0f0f, 0] {
        m.w16(reg::MITIGATE, value);
        m.offer(&[&frame]);
        assert_eq!(m.take_isr(), ROK);
    }
}

#[test]
fn what_waits_is_told_when_the_settings_change() {
    for change in 0..3 {
        let mut m = at_speed(1000);
        m.w16(reg::MITIGATE, 0x00f0);
        m.offer(&[&plain(MAC, 100)]);
        assert_eq!(m.r16(reg::ISR), 0);
        match change {
            0 => m.w16(reg::MITIGATE, 0),
            1 => m.w16(reg::CPLUS_CMD, 3),
            _ => m.nic.control.set_link(&m.env, false),
        }
        if change == 2 {
            m.nic.control.set_link(&m.env, true);
            m.sleep(10_000 * US);
        }
        assert_eq!(m.take_isr() & ROK, ROK, "{change}");
    }
}

#[test]
fn the_timer_counts_at_125_mhz_and_matches_once_a_round() {
    let mut m = Machine::new();
    m.w32(reg::TIMER, 77);
    m.sleep(800);
    assert_eq!(m.r32(reg::TIMER), 100);
    m.w16(reg::IMR, TIMEOUT);
    // 65 µs, one shot, as FreeBSD asks.
    m.w32(reg::TIMER_INT, 65 * 125);
    m.w32(reg::TIMER, 1);
    assert_eq!(m.r32(reg::TIMER), 0);
    m.sleep(65 * US - 1);
    assert!(!m.line());
    m.sleep(1);
    assert!(m.line());
    assert_eq!(m.take_isr(), TIMEOUT);
    m.sleep(1_000_000 * US);
    assert_eq!(m.r16(reg::ISR), 0);
    // Its 32 bits go round in 34 s.
    m.sleep(8 << 32);
    assert_eq!(m.take_isr(), TIMEOUT);
    m.w32(reg::TIMER_INT, 0);
    assert_eq!(m.armed(), None);
}

#[test]
fn a_fixed_rate_holds_whatever_the_driver_says() {
    let mut config = Config::new(MAC);
    config.moderation = Moderation::Fixed(NonZeroU32::new(1000).expect("not 0"));
    let mut m = Machine::with(config, Wire::default());
    m.rings(64, 1536);
    m.pci(true, false);
    m.w16(reg::IMR, ROK);
    let mut messages = 0;
    for _ in 0..50 {
        m.offer(&[&plain(MAC, 100)]);
        messages += m.messages();
        m.w16(reg::IMR, 0);
        m.take_isr();
        m.w16(reg::IMR, ROK);
        m.sleep(100 * US);
        messages += m.messages();
    }
    assert!((5..=7).contains(&messages), "{messages} in 5 ms");
}

#[test]
fn what_waits_for_its_time_is_told_once() {
    let mut config = Config::new(MAC);
    config.moderation = Moderation::Fixed(NonZeroU32::new(1000).expect("not 0"));
    let mut m = Machine::with(config, Wire::default());
    m.rings(64, 1536);
    m.pci(true, false);
    m.w16(reg::IMR, ROK);
    m.offer(&[&plain(MAC, 100)]);
    assert_eq!(m.messages(), 1);
    assert!(m.pin.take_delayed().is_empty());
    for _ in 0..3 {
        m.take_isr();
        for _ in 0..3 {
            m.offer(&[&plain(MAC, 100)]);
            m.sleep(US);
        }
        assert_eq!(m.messages(), 0);
        assert_eq!(m.pin.take_delayed(), [Through::Msi(0)]);
        m.sleep(1000 * US);
        assert_eq!(m.messages(), 1);
        assert!(m.pin.take_delayed().is_empty());
    }
    // What IntrMitigate holds, too, whose time begins with the first frame.
    let mut m = Machine::new();
    m.rings(64, 1536);
    m.w16(reg::IMR, ROK);
    m.w16(reg::MITIGATE, 0x0050);
    for _ in 0..3 {
        m.offer(&[&plain(MAC, 100)]);
    }
    assert!(!m.line());
    assert_eq!(m.pin.take_delayed(), [Through::Pin]);
    m.sleep(10_000 * US);
    assert!(m.line() && m.pin.take_delayed().is_empty());
}

/// Linux' way through an interrupt. One that is dear to the guest comes less often.
#[test]
fn adaptive_moderation_spares_a_slow_guest() {
    let interrupts = |mode| {
        let mut config = Config::new(MAC);
        config.moderation = mode;
        let mut m = Machine::with(config, Wire::default());
        m.rings(1024, 1536);
        m.pci(true, false);
        m.w16(reg::IMR, ROK);
        let mut count = 0;
        for _ in 0..200 {
            m.offer(&[&plain(MAC, 100)]);
            if m.messages() > 0 {
                count += 1;
                m.sleep(100 * US);
                m.r16(reg::ISR);
                m.w16(reg::IMR, 0);
                m.w16(reg::ISR, ROK);
                m.w16(reg::IMR, ROK);
            }
            m.sleep(20 * US);
        }
        count
    };
    let (guest, adaptive) = (
        interrupts(Moderation::Guest),
        interrupts(Moderation::Adaptive),
    );
    assert_eq!(guest, 200);
    assert!(adaptive < guest / 2, "{adaptive}");
}

#[test]
fn the_operator_may_choose_anew_while_frames_come_and_each_is_told() {
    for msi in [false, true] {
        let mut m = Machine::new();
        // None is given back, and all have one buffer: nobody looks at what comes.
        m.rings(1024, 1536);
        for i in 0..1024 {
            m.rx_desc(i, OWN | if i == 1023 { EOR } else { 0 } | 1536, RX_BUFFERS);
        }
        m.pci(msi, false);
        m.w16(reg::IMR, ROK);
        choose_while_frames_come(
            &mut m,
            &Hearing {
                machine: |m| m,
                comes: |m| assert_eq!(m.offer(&[&plain(MAC, 100)]), 1),
                told: |m| m.line() || m.messages() > 0,
                answers: |m| {
                    m.w16(reg::IMR, 0);
                    m.take_isr();
                    m.w16(reg::IMR, ROK);
                },
                longest: 0,
            },
        );
    }
}
