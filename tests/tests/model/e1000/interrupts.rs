//! Causes, mask, line and moderation, on a clock that moves by hand.

use std::time::Duration;

use drivers::e1000::desc::{Legacy, cmd};
use drivers::e1000::regs::{self, cause};
use drivers::e1000::{Config, TxOpts};
use drivers::{Bus, ModelBus};

use super::support::{Dice, Nic, frame, mac, model, recorded};

/// Unit of the delay timers and of ITR.
const DELAY: u64 = 1024;
const GAP: u64 = 256;

fn quiet() -> Config {
    Config {
        causes: 0,
        rdtr: 0,
        radv: 0,
        tidv: 0,
        tadv: 0,
        ..Config::linux()
    }
}

fn ready(config: Config) -> Nic {
    let (mut driver, _) = recorded(config);
    driver.read(regs::ICR).expect("read");
    driver
}

fn inject(driver: &mut Nic) {
    let one = frame(mac(1), mac(2), 60, 0);
    assert!(driver.bus_mut().inject(&one).expect("inject"));
}

fn pass(driver: &mut Nic, nanos: u64) {
    let time = Duration::from_nanos(nanos);
    driver.bus_mut().delay(time).expect("delay");
}

fn level(driver: &Nic) -> bool {
    driver.bus().irq().level()
}

#[test]
fn a_cause_raised_while_masked_gives_one_interrupt_on_unmask() {
    let mut driver = ready(quiet());
    inject(&mut driver);
    let before = driver.bus().irq().delivered();
    assert!(!level(&driver));
    driver.write(regs::IMS, cause::USUAL).expect("write");
    assert_eq!(driver.bus().irq().delivered() - before, 1);
    // Unread, it gives no further one however many frames come.
    for _ in 0..100 {
        inject(&mut driver);
    }
    assert_eq!(driver.bus().irq().delivered() - before, 1);
    let causes = driver.read(regs::ICR).expect("read");
    assert_eq!(causes & cause::RXT0, cause::RXT0);
    assert!(!level(&driver));
    driver.bus_mut().unmask_irq().expect("unmask");
    assert_eq!(driver.bus().irq().delivered() - before, 1);
}

#[test]
fn an_unread_cause_interrupts_again_after_unmask() {
    let mut driver = ready(quiet());
    driver.write(regs::IMS, cause::USUAL).expect("write");
    inject(&mut driver);
    let before = driver.bus().irq().delivered();
    driver.bus_mut().unmask_irq().expect("unmask");
    assert_eq!(driver.bus().irq().delivered() - before, 1);
    driver.write(regs::IMC, u32::MAX).expect("write");
    assert!(!level(&driver));
    driver.bus_mut().unmask_irq().expect("unmask");
    assert_eq!(driver.bus().irq().delivered() - before, 1);
}

#[test]
fn every_cause_can_be_set_masked_and_cleared() {
    let mut bus = {
        let (mut bus, _) = ModelBus::recorded(model(1));
        bus.config_write(4, &7u16.to_le_bytes()).expect("command");
        bus
    };
    let write = |bus: &mut ModelBus, register, value| bus.write32(register, value).expect("w");
    write(&mut bus, regs::IMC, u32::MAX);
    bus.read32(regs::ICR).expect("read");
    let known = [
        cause::TXDW,
        cause::TXQE,
        cause::LSC,
        cause::RXSEQ,
        cause::RXDMT0,
        cause::RXO,
        cause::RXT0,
        cause::MDAC,
        cause::TXD_LOW,
        cause::SRPD,
    ];
    for bit in known {
        write(&mut bus, regs::ICS, bit);
        assert!(!bus.irq().level(), "{bit:#x} is masked");
        write(&mut bus, regs::IMS, bit);
        assert!(bus.irq().level(), "{bit:#x}");
        assert_eq!(bus.read32(regs::IMS).expect("read"), bit);
        write(&mut bus, regs::IMC, bit);
        assert!(!bus.irq().level());
        assert_eq!(bus.read32(regs::IMS).expect("read"), 0);
        write(&mut bus, regs::IMS, bit);
        // Writing 1 clears that bit and no other.
        write(&mut bus, regs::ICR, !bit);
        assert!(bus.irq().level());
        write(&mut bus, regs::ICR, bit);
        assert!(!bus.irq().level());
        write(&mut bus, regs::ICS, bit);
        assert!(bus.irq().level());
        assert_eq!(bus.read32(regs::ICR).expect("read"), bit);
        assert!(!bus.irq().level());
        assert_eq!(bus.read32(regs::ICR).expect("read"), 0);
        write(&mut bus, regs::IMC, u32::MAX);
    }
}

#[test]
fn a_burst_is_one_interrupt_without_any_setting() {
    let config = Config {
        causes: cause::USUAL,
        ..quiet()
    };
    let mut driver = ready(config);
    let before = driver.bus().irq().delivered();
    for _ in 0..200 {
        inject(&mut driver);
    }
    assert_eq!(driver.bus().irq().delivered() - before, 1);
    let mut frames = 0;
    let causes = driver
        .service(Duration::ZERO, |_| frames += 1)
        .expect("service");
    assert_eq!(causes.expect("an interrupt") & cause::RXT0, cause::RXT0);
    assert_eq!(frames, 200);
    assert_eq!(
        driver.service(Duration::ZERO, |_| {}).expect("service"),
        None
    );
}

#[test]
fn itr_keeps_a_minimum_gap_and_loses_nothing() {
    for itr in [0u64, 100, 500, 0xffff] {
        let config = Config {
            causes: cause::USUAL,
            itr: itr as u32,
            rx_ring: 2048,
            ..quiet()
        };
        let mut driver = ready(config);
        let (start, before) = (driver.bus().now(), driver.bus().irq().rises());
        let mut frames = 0;
        for _ in 0..1000 {
            inject(&mut driver);
            driver
                .service(Duration::from_micros(10), |_| frames += 1)
                .expect("service");
            driver.refill_rx().expect("refill");
        }
        // What is left comes by itself.
        driver
            .service(Duration::from_millis(100), |_| frames += 1)
            .expect("service");
        assert_eq!(frames, 1000, "ITR {itr}");
        let passed = driver.bus().now() - start;
        let rises = driver.bus().irq().rises() - before;
        if itr == 0 {
            assert_eq!(rises, 1000);
        } else {
            let most = passed / (itr * GAP) + 1;
            assert!(
                (2..=most).contains(&rises),
                "{rises} in {passed} ns, ITR {itr}"
            );
        }
    }
}

#[test]
fn rdtr_delays_and_restarts_with_each_frame_and_radv_caps_it() {
    let config = Config {
        causes: cause::RXT0,
        rdtr: 10,
        radv: 25,
        ..quiet()
    };
    let mut driver = ready(config);
    inject(&mut driver);
    pass(&mut driver, 10 * DELAY - 1);
    assert!(!level(&driver));
    pass(&mut driver, 1);
    assert!(level(&driver));
    driver.read(regs::ICR).expect("read");
    // Frames that keep coming put it off, to the absolute limit and no further.
    for _ in 0..5 {
        inject(&mut driver);
        pass(&mut driver, 5 * DELAY - 1);
        assert!(!level(&driver));
    }
    pass(&mut driver, 5);
    assert!(level(&driver));
    driver.read(regs::ICR).expect("read");
    pass(&mut driver, 100 * DELAY);
    assert!(!level(&driver), "the pending packet timer went with it");
    // Flush: now rather than later.
    inject(&mut driver);
    assert!(!level(&driver));
    driver
        .write(regs::RDTR, regs::RDTR_FPD | 10)
        .expect("write");
    assert!(level(&driver));
    assert_eq!(driver.read(regs::RDTR).expect("read"), 10);
}

#[test]
fn tidv_delays_what_asks_for_delay() {
    let config = Config {
        causes: cause::TXDW,
        tidv: 20,
        tadv: 50,
        ..quiet()
    };
    let mut driver = ready(config);
    let one = frame(mac(2), mac(1), 60, 0);
    let delayed = TxOpts {
        delay: true,
        ..TxOpts::default()
    };
    driver.send(&[&one], &delayed).expect("send");
    assert_eq!(driver.reclaim().expect("reclaim"), 1, "done at once");
    pass(&mut driver, 20 * DELAY - 1);
    assert!(!level(&driver));
    pass(&mut driver, 1);
    assert!(level(&driver));
    let causes = driver.read(regs::ICR).expect("read");
    assert_eq!(causes & cause::TXDW, cause::TXDW);
    // Restarted by each, capped by TADV.
    for _ in 0..5 {
        driver.send(&[&one], &delayed).expect("send");
        pass(&mut driver, 10 * DELAY - 1);
        assert!(!level(&driver));
    }
    pass(&mut driver, 5);
    assert!(level(&driver));
    driver.read(regs::ICR).expect("read");
    // Without IDE at once.
    driver.send(&[&one], &TxOpts::default()).expect("send");
    assert!(level(&driver));
}

#[test]
fn a_context_descriptor_may_report_too() {
    let mut driver = ready(quiet());
    let raw = Legacy {
        cmd: cmd::RS | cmd::DEXT,
        ..Legacy::default()
    }
    .raw();
    driver.queue_raw(&raw, true).expect("queue");
    driver.kick().expect("kick");
    assert_eq!(driver.reclaim().expect("reclaim"), 1);
    let causes = driver.read(regs::ICR).expect("read");
    assert_eq!(causes & cause::TXDW, cause::TXDW);
}

#[test]
fn few_free_descriptors_are_announced() {
    // RDMTS: half, a quarter, an eighth of the ring.
    for (threshold, free) in [(0u32, 32), (1, 16), (2, 8)] {
        let config = Config {
            rx_ring: 64,
            ..quiet()
        };
        let mut driver = ready(config);
        let control = driver.read(regs::RCTL).expect("read");
        driver
            .write(regs::RCTL, control | threshold << regs::rctl::RDMTS_SHIFT)
            .expect("write");
        let mut used = 0;
        while driver.read(regs::ICR).expect("read") & cause::RXDMT0 == 0 {
            assert!(used < 63, "never announced at {threshold}");
            inject(&mut driver);
            used += 1;
        }
        // 63 were given.
        assert_eq!(63 - used, free, "RDMTS {threshold}");
    }
}

#[test]
fn nothing_received_is_ever_without_an_interrupt_to_come() {
    for seed in 0..20 {
        let mut dice = Dice(seed);
        let config = Config {
            causes: cause::USUAL,
            itr: [0, 0, 100, 2000][dice.below(4) as usize],
            rdtr: [0, 1, 50][dice.below(3) as usize],
            radv: [0, 8, 60][dice.below(3) as usize],
            rx_ring: 64,
            ..quiet()
        };
        let mut driver = ready(config);
        let (mut sent, mut got) = (0u32, 0u32);
        for _ in 0..2000 {
            match dice.below(6) {
                0..=2 => {
                    let one = frame(mac(1), mac(2), 60, sent as u8);
                    sent += u32::from(driver.bus_mut().inject(&one).expect("inject"));
                }
                3 => {
                    driver
                        .service(Duration::ZERO, |_| got += 1)
                        .expect("service");
                }
                4 => pass(&mut driver, dice.below(100_000)),
                _ => {
                    driver.write(regs::IMC, u32::MAX).expect("write");
                    driver.write(regs::IMS, cause::USUAL).expect("write");
                }
            }
        }
        while driver
            .service(Duration::from_millis(50), |_| got += 1)
            .expect("service")
            .is_some()
        {}
        assert_eq!(got, sent, "seed {seed}");
        assert!(sent > 100);
    }
}
