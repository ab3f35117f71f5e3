use super::*;

#[test]
fn is_the_phy_the_drivers_look_for() {
    let mut phy = Phy::new(true, PhyModel::M88 { id: 0x0c20 }, false);
    assert_eq!(phy.read(2), 0x0141);
    assert_eq!(phy.read(3) & 0xfff0, 0x0c20);
    assert_eq!(phy.read(PSSR), 0xac00);
    assert_eq!(phy.read(BMSR) & 0x24, 0x24);
    assert_eq!(phy.write(2, 0xffff), Effect::None);
    assert_eq!(phy.read(2), 0x0141);
    phy.write(29, 0x001a);
    assert_eq!(phy.read(29), 0x001a);
}

#[test]
fn the_igp03_shows_its_own_registers_by_page() {
    let mut phy = Phy::new(true, PhyModel::Igp03, false);
    assert_eq!([2, 3].map(|reg| phy.read(reg)), [0x02a8, 0x0391]);
    assert_eq!(phy.read(igp::PORT_STATUS), 0xc600);
    phy.write(igp::PAGE, 0x11b1);
    assert_eq!(phy.read(igp::PORT_STATUS) >> 9, 12);
    assert_eq!(phy.write(igp::POWER, 0x1234), Effect::None);
    assert_eq!(phy.read(igp::POWER), 0);
    phy.write(igp::PAGE, igp::POWER as u16);
    assert_eq!(phy.read(igp::POWER), 0x008d);
    phy.write(igp::POWER, 0x008f);
    assert_eq!(phy.read(igp::POWER), 0x008f);
    assert_eq!(phy.write(18, 0x1000), Effect::None);
    phy.set_cable(false);
    assert_eq!(phy.read(igp::PORT_STATUS), 0);
    assert!(!phy.interrupt());
}

#[test]
fn link_loss_is_latched_until_read() {
    let mut phy = Phy::new(true, PhyModel::M88 { id: 0x0c20 }, false);
    assert_eq!(phy.write(BMCR, 0x1340), Effect::Restart);
    assert!(!phy.link());
    phy.negotiation_done();
    assert!(phy.link());
    assert_eq!(phy.read(BMSR) & BMSR_LINK, 0);
    assert_eq!(phy.read(BMSR) & BMSR_LINK, BMSR_LINK);
}

#[test]
fn the_loopback_test_of_the_drivers_finds_its_values() {
    let mut phy = Phy::new(false, PhyModel::M88 { id: 0x0c20 }, false);
    phy.write(16, 0x0808);
    phy.write(BMCR, 0x9140);
    phy.write(BMCR, 0x8140);
    assert_eq!(phy.read(BMCR), 0x0140);
    assert!(!phy.link());
    assert_eq!(phy.write(BMCR, 0x4140), Effect::Link);
    assert!(phy.link() && phy.loopback());
    assert_eq!(phy.resolved(), (Speed::M1000, true));
}

#[test]
fn power_down_takes_the_link_and_power_up_negotiates_again() {
    let mut phy = Phy::new(true, PhyModel::M88 { id: 0x0c20 }, false);
    assert_eq!(phy.write(BMCR, 0x1940), Effect::Link);
    assert!(!phy.link());
    assert_eq!(phy.write(BMCR, 0x1140), Effect::Restart);
    assert!(!phy.link());
    phy.negotiation_done();
    assert!(phy.link());
}

#[test]
fn advertising_less_gives_less_from_the_next_negotiation_on() {
    let mut phy = Phy::new(true, PhyModel::M88 { id: 0x0c20 }, false);
    let again = |phy: &mut Phy| {
        assert_eq!(phy.write(BMCR, 0x1340), Effect::Restart);
        phy.negotiation_done();
    };
    phy.write(GCTRL, 0);
    assert_eq!(phy.resolved(), (Speed::M1000, true));
    assert_eq!(phy.read(PSSR), 0xac00);
    again(&mut phy);
    assert_eq!(phy.resolved(), (Speed::M100, true));
    phy.write(ANAR, 0x0021);
    assert_eq!(phy.resolved(), (Speed::M100, true));
    again(&mut phy);
    assert_eq!(phy.resolved(), (Speed::M10, false));
    phy.write(BMCR, 0x2000);
    assert_eq!(phy.resolved(), (Speed::M100, false));
}

#[test]
fn pause_is_what_both_sides_offer() {
    let mut phy = Phy::new(true, PhyModel::M88 { id: 0x0c20 }, true);
    assert_eq!(phy.read(5), 0x4de1);
    // (ours, may send, must obey)
    for (ours, send, obey) in [
        (0, false, false),
        (PAUSE, true, true),
        (ASYMMETRIC, true, false),
        (PAUSE | ASYMMETRIC, true, true),
    ] {
        phy.write(ANAR, 0x01e1 | ours);
        phy.write(BMCR, 0x1340);
        phy.negotiation_done();
        let status = phy.read(PSSR);
        assert_eq!(
            (status & 8 != 0, status & 4 != 0),
            (send, obey),
            "{ours:#x}"
        );
    }
    let mut without = Phy::new(true, PhyModel::M88 { id: 0x0c20 }, false);
    without.write(ANAR, 0x0de1);
    without.negotiation_done();
    assert_eq!(without.read(5), 0x41e1);
    assert_eq!(without.read(PSSR) & 0x0c, 0);
}

#[test]
fn events_are_told_once_and_interrupt_when_enabled() {
    let mut phy = Phy::new(true, PhyModel::M88 { id: 0x0c30 }, false);
    assert_eq!(phy.read(ID), 0x0c30);
    phy.write(INTERRUPTS_ENABLED, event::LINK);
    phy.set_cable(false);
    assert!(phy.interrupt());
    assert_eq!(phy.read(EVENTS), event::LINK);
    assert!(!phy.interrupt());
    assert_eq!(phy.read(EVENTS), 0);
    phy.set_cable(true);
    phy.negotiation_done();
    let both = event::LINK | event::NEGOTIATED | event::PAGE_RECEIVED;
    assert_eq!(phy.read(EVENTS), both);
}

#[test]
fn who_offers_nothing_gets_no_link() {
    let mut phy = Phy::new(true, PhyModel::M88 { id: 0x0c20 }, false);
    phy.write(GCTRL, 0);
    phy.write(ANAR, 1);
    assert_eq!(phy.write(BMCR, 0x1340), Effect::Link);
    phy.negotiation_done();
    assert!(!phy.link());
}
