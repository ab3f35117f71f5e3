//! Bringing the NIC up, and what the manual promises of reset, EEPROM, PHY and link.

use std::time::Duration;

use drivers::e1000::regs::{self, cause, ctrl, mdic, phy, rctl, status};
use drivers::e1000::{
    Config, Driver, DriverError, Eeprom, Report, Reset, TxOpts, read_phy, write_phy,
};
use drivers::{Bus, ModelBus};

use super::support::{bytes, frame, mac, model, recorded};

fn bare() -> ModelBus {
    let (mut bus, _) = ModelBus::recorded(model(1));
    bus.config_write(4, &7u16.to_le_bytes()).expect("command");
    bus
}

#[test]
fn every_way_of_coming_up_finds_the_address_and_the_link() {
    for reset in [Reset::Io, Reset::Mmio, Reset::Skip] {
        for eeprom in [Eeprom::Microwire, Eeprom::Eerd, Eeprom::Ral] {
            for phy in [true, false] {
                let config = Config {
                    reset,
                    eeprom,
                    phy,
                    ..Config::linux()
                };
                let (mut driver, recorder) = recorded(config);
                assert_eq!(driver.mac(), mac(1), "{reset:?} {eeprom:?}");
                let up = driver.read(regs::STATUS).expect("status");
                // 1000 Mbit/s, full duplex, up.
                assert_eq!(up & status::LU, status::LU);
                assert_eq!(up & status::FD, status::FD);
                assert_ne!(up & status::SPEED & 0x80, 0);
                let sent = frame([0xff; 6], mac(1), 60, 0);
                driver.send(&[&sent], &TxOpts::default()).expect("send");
                assert_eq!(bytes(&recorder), [sent]);
                driver.shutdown().expect("shutdown");
            }
        }
    }
}

#[test]
fn a_second_driver_takes_over_after_the_first_has_gone() {
    let (driver, recorder) = recorded(Config::linux());
    let bus = driver.shutdown().expect("shutdown");
    let mut driver = Driver::new(bus, Config::poll()).expect("again");
    let sent = frame([0xff; 6], mac(1), 60, 0);
    driver.send(&[&sent], &TxOpts::default()).expect("send");
    assert_eq!(bytes(&recorder), [sent]);
}

#[test]
fn software_reset_clears_the_interrupt_and_control_registers() {
    let mut bus = bare();
    for (register, value) in [
        (regs::IMS, u32::MAX),
        (regs::RCTL, rctl::UPE | rctl::EN),
        (regs::ITR, 500),
        (regs::CTRL, ctrl::SLU | ctrl::FRCSPD),
        (regs::RAL, 0x1234_5678),
        (regs::ICS, cause::TXDW),
    ] {
        bus.write32(register, value).expect("write");
    }
    assert!(bus.irq().level());
    bus.write32(regs::CTRL, ctrl::SLU | ctrl::RST)
        .expect("reset");
    bus.delay(Duration::from_millis(5)).expect("delay");
    assert!(!bus.irq().level());
    let mut read = |register| bus.read32(register).expect("read");
    assert_eq!(read(regs::IMS), 0);
    assert_eq!(read(regs::RCTL) & rctl::EN, 0);
    assert_eq!(read(regs::ITR), 0);
    assert_eq!(read(regs::CTRL) & (ctrl::RST | ctrl::FRCSPD), 0);
    // The address is loaded from the EEPROM again.
    assert_eq!(read(regs::RAL).to_le_bytes(), mac(1)[..4]);
    assert_eq!(read(regs::RAH) & 0xffff, 0x0134);
    assert_ne!(read(regs::RAH) & regs::RAH_AV, 0);
}

#[test]
fn status_ignores_writes_and_control_reads_back() {
    let mut bus = bare();
    let before = bus.read32(regs::STATUS).expect("read");
    for value in [0xffff_f833, 0, u32::MAX] {
        bus.write32(regs::STATUS, value).expect("write");
        assert_eq!(bus.read32(regs::STATUS).expect("read"), before);
    }
    // Everything a driver changes by read-modify-write.
    let kept = ctrl::FD
        | ctrl::ASDE
        | ctrl::SLU
        | ctrl::FRCSPD
        | ctrl::FRCDPX
        | ctrl::RFCE
        | ctrl::TFCE
        | ctrl::VME
        | 3 << 8;
    for value in [kept, kept & !ctrl::FRCSPD, ctrl::SLU] {
        bus.write32(regs::CTRL, value).expect("write");
        assert_eq!(bus.read32(regs::CTRL).expect("read") & kept, value);
    }
}

#[test]
fn io_space_reaches_the_registers() {
    let mut bus = bare();
    let bar = (1..6)
        .find(|bar| {
            let mut low = [0];
            bus.config_read(0x10 + 4 * bar, &mut low).expect("config");
            low[0] & 1 != 0
        })
        .expect("an I/O BAR") as u8;
    bus.bar_write(bar, regs::IOADDR, &regs::ITR.to_le_bytes())
        .expect("write");
    bus.bar_write(bar, regs::IODATA, &0x123u32.to_le_bytes())
        .expect("write");
    assert_eq!(bus.read32(regs::ITR).expect("read"), 0x123);
    let mut data = [0; 4];
    bus.bar_read(bar, regs::IODATA, &mut data).expect("read");
    assert_eq!(u32::from_le_bytes(data), 0x123);
    // IOADDR takes double words only.
    bus.bar_write(bar, regs::IOADDR, &[0, 0]).expect("write");
    bus.bar_read(bar, regs::IOADDR, &mut data).expect("read");
    assert_eq!(u32::from_le_bytes(data), regs::ITR);
}

#[test]
fn the_phy_answers_at_its_address_only() {
    let mut bus = bare();
    let id1 = read_phy(&mut bus, phy::ID1).expect("id");
    let id2 = read_phy(&mut bus, phy::ID2).expect("id");
    assert_eq!((id1, id2 & 0xfff0), (0x0141, 0x0c20));
    let command = mdic::OP_READ | 2 << mdic::PHY_SHIFT | 2 << mdic::REG_SHIFT;
    bus.write32(regs::MDIC, command).expect("write");
    bus.delay(Duration::from_millis(1)).expect("delay");
    let value = bus.read32(regs::MDIC).expect("read");
    assert_eq!(value & mdic::READY, mdic::READY);
    assert_eq!(value & mdic::ERROR, mdic::ERROR);
    // The registers the driver's loopback test writes.
    for register in [29, 30] {
        write_phy(&mut bus, register, 0x5a5a).expect("write");
    }
}

#[test]
fn mdic_can_interrupt_at_its_end() {
    let mut bus = bare();
    bus.read32(regs::ICR).expect("read");
    let address = 1 << mdic::PHY_SHIFT | 2 << mdic::REG_SHIFT;
    bus.write32(regs::MDIC, mdic::OP_READ | mdic::INT | address)
        .expect("write");
    bus.delay(Duration::from_millis(1)).expect("delay");
    let causes = bus.read32(regs::ICR).expect("read");
    assert_eq!(causes & cause::MDAC, cause::MDAC);
}

#[test]
fn renegotiation_drops_the_link_and_brings_it_back() {
    let mut bus = bare();
    bus.write32(regs::CTRL, ctrl::SLU | ctrl::ASDE).expect("up");
    bus.delay(Duration::from_secs(5)).expect("delay");
    bus.read32(regs::ICR).expect("read");
    assert_eq!(
        bus.read32(regs::STATUS).expect("read") & status::LU,
        status::LU
    );
    write_phy(
        &mut bus,
        phy::CONTROL,
        phy::AUTONEG_EN | phy::RESTART_AUTONEG,
    )
    .expect("restart");
    assert_eq!(bus.read32(regs::STATUS).expect("read") & status::LU, 0);
    bus.delay(Duration::from_secs(5)).expect("delay");
    assert_eq!(
        bus.read32(regs::STATUS).expect("read") & status::LU,
        status::LU
    );
    let causes = bus.read32(regs::ICR).expect("read");
    assert_eq!(causes & cause::LSC, cause::LSC);
    // Latched low: the first read tells of the loss, the second of the present.
    let first = read_phy(&mut bus, phy::STATUS).expect("status");
    let second = read_phy(&mut bus, phy::STATUS).expect("status");
    assert_eq!(first & phy::LINK, 0);
    assert_eq!(
        second & (phy::LINK | phy::AUTONEG_DONE),
        phy::LINK | phy::AUTONEG_DONE
    );
}

#[test]
fn a_pulled_cable_is_noticed_and_waited_for() {
    let (mut driver, recorder) = recorded(Config::linux());
    driver.bus_mut().set_link(false);
    let causes = driver
        .service(Duration::from_millis(1), |_| {})
        .expect("service")
        .expect("an interrupt");
    assert_eq!(causes & cause::LSC, cause::LSC);
    assert_eq!(driver.read(regs::STATUS).expect("read") & status::LU, 0);
    driver.bus_mut().set_link(true);
    let causes = driver
        .service(Duration::from_secs(5), |_| {})
        .expect("service")
        .expect("an interrupt");
    assert_eq!(causes & cause::LSC, cause::LSC);
    let sent = frame([0xff; 6], mac(1), 60, 0);
    driver.send(&[&sent], &TxOpts::default()).expect("send");
    assert_eq!(bytes(&recorder), [sent]);
}

#[test]
fn without_a_cable_a_driver_says_so() {
    let (mut bus, _) = ModelBus::recorded(model(1));
    bus.set_link(false);
    let refused = Driver::new(bus, Config::poll()).err().expect("no link");
    assert!(
        matches!(
            refused,
            DriverError::Timeout {
                what: "link up",
                ..
            }
        ),
        "{refused}"
    );
}

#[test]
fn registers_keep_what_the_driver_self_test_writes() {
    // Offset, bits tested, bits written: the table of the Linux driver's register test.
    let (mut driver, _) = recorded(Config {
        causes: 0,
        ..Config::linux()
    });
    let mut rows = vec![
        (regs::FCAL, u32::MAX, u32::MAX),
        (regs::FCAH, 0xffff, u32::MAX),
        (regs::FCT, 0xffff, u32::MAX),
        (regs::VET, 0xffff, u32::MAX),
        (regs::RDTR, 0xffff, u32::MAX),
        (regs::RDBAH, u32::MAX, u32::MAX),
        (regs::RDLEN, 0x000f_ff80, 0x000f_ffff),
        (regs::RDH, 0xffff, 0xffff),
        (regs::RDT, 0xffff, 0xffff),
        (0x2168, 0xfff8, 0xfff8),
        (regs::FCTTV, 0xffff, 0xffff),
        (regs::TIPG, 0x3fff_ffff, 0x3fff_ffff),
        (regs::TDBAH, u32::MAX, u32::MAX),
        (regs::TDLEN, 0x000f_ff80, 0x000f_ffff),
        (regs::RCTL, 0x06df_b3fe, 0x003f_fffb),
        (regs::RDBAL, 0xffff_fff0, u32::MAX),
        (0x0178, 0xc000_ffff, 0xffff),
        (regs::TDBAL, 0xffff_fff0, u32::MAX),
        (regs::TIDV, 0xffff, 0xffff),
    ];
    for index in 0..15 {
        rows.push((regs::RAH + 8 * index, 0x8003_ffff, u32::MAX));
        rows.push((regs::RAL + 8 * index, u32::MAX, u32::MAX));
    }
    for index in 0..128 {
        rows.push((regs::MTA + 4 * index, u32::MAX, u32::MAX));
    }
    for (offset, mask, write) in rows {
        let before = driver.read(offset).expect("read");
        for pattern in [0x5a5a_5a5a, 0xa5a5_a5a5, 0, u32::MAX] {
            driver.write(offset, pattern & write).expect("write");
            let value = driver.read(offset).expect("read");
            assert_eq!(value, pattern & write & mask, "{offset:#06x}");
        }
        driver.write(offset, before).expect("write");
    }
    driver.write(regs::TCTL, 0).expect("write");
    assert_eq!(driver.read(regs::TCTL).expect("read"), 0);
}

#[test]
fn frames_come_back_in_phy_loopback() {
    // As the driver's loopback self-test does it: negotiation off, forced gigabit, loopback.
    let (mut driver, recorder) = recorded(Config {
        causes: 0,
        report_every: 1,
        promiscuous: true,
        ..Config::linux()
    });
    for value in [0x9140, 0x8140, 0x4140] {
        write_phy(driver.bus_mut(), phy::CONTROL, value).expect("write");
    }
    let forced = ctrl::FRCSPD | ctrl::FRCDPX | ctrl::FD | 2 << 8 | ctrl::SLU;
    driver.write(regs::CTRL, forced).expect("write");
    driver
        .bus_mut()
        .delay(Duration::from_millis(500))
        .expect("delay");
    for round in 0..8 {
        let sent: Vec<_> = (0..64)
            .map(|i| frame([0xff; 6], [0xff; 6], 1020, i ^ round))
            .collect();
        let refs: Vec<_> = sent.iter().map(Vec::as_slice).collect();
        let opts = TxOpts {
            report: Report::Sent,
            ..TxOpts::default()
        };
        assert_eq!(driver.send(&refs, &opts).expect("send"), 64);
        assert_eq!(driver.receive().expect("receive"), sent);
        driver.refill_rx().expect("refill");
        assert_eq!(driver.reclaim().expect("reclaim"), 64);
    }
    assert!(bytes(&recorder).is_empty(), "nothing leaves the NIC");
    // And the cable is back once loopback ends.
    write_phy(driver.bus_mut(), phy::CONTROL, phy::RESET).expect("write");
    driver
        .write(regs::CTRL, ctrl::SLU | ctrl::ASDE)
        .expect("write");
    driver
        .bus_mut()
        .delay(Duration::from_secs(5))
        .expect("delay");
    let sent = frame([0xff; 6], mac(1), 60, 0);
    driver.send(&[&sent], &TxOpts::default()).expect("send");
    assert_eq!(bytes(&recorder), [sent]);
}
