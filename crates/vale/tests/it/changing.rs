//! What a port may do, and what a switch does, changed while frames pass.

use std::sync::Arc;
use std::time::Duration;

use eswitch::{Rate, Storm};
use frame::{Sink, Wake};
use hypernic_vale::{PortConfig, SwitchConfig};
use wire::MacAddr;

use crate::common::{BROADCAST, CountedWake, MS, attach, count, mac, send, switch};

const MANY: usize = 1000;

fn locked(n: u8) -> PortConfig {
    PortConfig {
        only: vec![MacAddr(mac(n))],
        ..PortConfig::default()
    }
}

#[test]
fn an_address_is_fixed_to_a_port_and_let_go_while_frames_pass() {
    let (switch, hand) = switch(SwitchConfig::default());
    let (a, to_a) = attach(&switch, "a", MANY);
    let (b, to_b) = attach(&switch, "b", MANY);
    let (c, to_c) = attach(&switch, "c", MANY);
    send(&a, 0, &[(mac(2), mac(1)), (mac(2), mac(7))]);
    send(&b, 2, &[(mac(1), mac(2))]);
    assert_eq!(to_c.numbers(), [0, 1]);
    assert!(switch.set_port("a", &locked(1)));
    // Way and right of the last batch are no more those of the next.
    assert_eq!(send(&a, 3, &[(mac(2), mac(7)), (mac(2), mac(1))]), 2);
    assert_eq!(
        (to_b.numbers(), count(&switch, "a", "drop_spoofed")),
        (vec![0, 1, 4], 1)
    );
    // Another port may not have the address, and what was learned at this one is forgotten.
    send(&c, 5, &[(mac(2), mac(1))]);
    assert_eq!(count(&switch, "c", "drop_spoofed"), 1);
    send(&b, 6, &[(mac(7), mac(2))]);
    assert_eq!(
        (to_a.numbers(), to_c.numbers()),
        (vec![2, 6], vec![0, 1, 6])
    );
    // It is known for ever, and for its time afterwards.
    hand.advance(1000 * 1000 * MS);
    send(&b, 7, &[(mac(1), mac(2))]);
    assert_eq!(to_c.numbers().len(), 3);
    assert!(switch.set_port("a", &PortConfig::default()));
    send(&b, 8, &[(mac(1), mac(2))]);
    assert_eq!(
        (to_a.numbers(), to_c.numbers().len()),
        (vec![2, 6, 7, 8], 3)
    );
    send(&c, 9, &[(mac(2), mac(1))]);
    assert_eq!(count(&switch, "c", "drop_spoofed"), 1);
    assert_eq!(
        switch.macs().iter().filter(|one| one.port == "c").count(),
        1
    );
    // As a counter goes on over all that.
    assert_eq!(count(&switch, "a", "rx_frames"), 4);
    assert!(!switch.set_port("z", &PortConfig::default()));
}

#[test]
fn limits_come_and_go_and_those_that_stay_go_on() {
    let (switch, _hand) = switch(SwitchConfig::default());
    let (a, _) = attach(&switch, "a", MANY);
    let (b, to_b) = attach(&switch, "b", MANY);
    send(&b, 0, &[(mac(9), mac(2))]);
    let limited = |broadcast| PortConfig {
        waits: false,
        rate_in: Some(Rate {
            bits: None,
            packets: Some(1000),
            burst_ms: 10,
        }),
        storm: Storm {
            broadcast,
            ..Storm::default()
        },
        ..PortConfig::default()
    };
    assert!(switch.set_port("a", &limited(None)));
    assert_eq!(send(&a, 0, &[(mac(2), mac(1)); 8]), 8);
    // The rate is what it was: two are left of its ten.
    let same = PortConfig {
        vlans: Some("untagged".parse().expect("VLANs")),
        ..limited(None)
    };
    assert!(switch.set_port("a", &same));
    assert_eq!(send(&a, 8, &[(mac(2), mac(1)); 8]), 8);
    assert_eq!(
        (to_b.numbers().len(), count(&switch, "a", "drop_rate_in")),
        (10, 6)
    );
    // Another limit is a new one.
    assert!(switch.set_port("a", &limited(Some(1))));
    assert_eq!(send(&a, 16, &[(BROADCAST, mac(1)); 5]), 5);
    assert_eq!(count(&switch, "a", "drop_storm"), 4);
    assert!(switch.set_port("a", &PortConfig::default()));
    assert_eq!(send(&a, 21, &[(mac(2), mac(1)); 100]), 100);
    assert_eq!(to_b.numbers().len(), 10 + 1 + 100);
}

#[test]
fn who_waits_for_a_limit_that_goes_is_woken() {
    let (switch, _hand) = switch(SwitchConfig::default());
    switch.set_timer(Arc::new(CountedWake::default()));
    let (a, _) = attach(&switch, "a", MANY);
    let (b, to_b) = attach(&switch, "b", MANY);
    send(&b, 0, &[(mac(9), mac(2))]);
    let slow = PortConfig {
        rate_out: Some(Rate {
            bits: None,
            packets: Some(1000),
            burst_ms: 10,
        }),
        ..PortConfig::default()
    };
    assert!(switch.set_port("b", &slow));
    assert_eq!(send(&a, 0, &[(mac(2), mac(1)); 30]), 10);
    let bell = Arc::new(CountedWake::default());
    let waker: Arc<dyn Wake> = bell.clone();
    a.want_room(&waker);
    assert_eq!(bell.rung(), 0);
    assert!(switch.set_port("b", &PortConfig::default()));
    assert_eq!(bell.rung(), 1);
    assert_eq!(send(&a, 10, &[(mac(2), mac(1)); 20]), 20);
    assert_eq!(to_b.numbers(), (0..30).collect::<Vec<_>>());
    // A sender that may wait no more loses what finds no room.
    assert!(switch.set_port(
        "a",
        &PortConfig {
            waits: false,
            ..PortConfig::default()
        }
    ));
    *to_b.room.lock() = 1;
    assert_eq!(send(&a, 30, &[(mac(2), mac(1)); 3]), 3);
    assert_eq!(count(&switch, "b", "drop_no_room"), 2);
}

#[test]
fn privacy_vlans_ageing_and_groups_change() {
    let (switch, hand) = switch(SwitchConfig::default());
    let (a, _) = attach(&switch, "a", MANY);
    let (b, to_b) = attach(&switch, "b", MANY);
    send(&b, 0, &[(mac(1), mac(2))]);
    send(&a, 0, &[(mac(2), mac(1))]);
    let private = PortConfig {
        private: true,
        ..PortConfig::default()
    };
    assert!(switch.set_port("a", &private));
    send(&a, 1, &[(mac(2), mac(1))]);
    assert_eq!(to_b.numbers(), [0]);
    let tagged = PortConfig {
        vlans: Some("7".parse().expect("VLANs")),
        ..PortConfig::default()
    };
    assert!(switch.set_port("a", &tagged));
    send(&a, 2, &[(mac(2), mac(1))]);
    assert_eq!(count(&switch, "a", "drop_vlan"), 1);
    assert!(switch.set_port("a", &PortConfig::default()));
    send(&a, 3, &[(mac(2), mac(1))]);
    assert_eq!(to_b.numbers(), [0, 3]);
    // LLDP, not before it is to pass.
    let group = [1, 0x80, 0xc2, 0, 0, 0x0e];
    send(&a, 4, &[(group, mac(1))]);
    switch.set_link_local(true);
    send(&a, 5, &[(group, mac(1))]);
    assert_eq!(to_b.numbers(), [0, 3, 5]);
    switch.set_link_local(false);
    send(&a, 6, &[(group, mac(1))]);
    assert_eq!(count(&switch, "a", "drop_reserved"), 2);
    hand.advance(20 * 1000 * MS);
    assert_eq!(switch.macs().len(), 2);
    switch.set_ageing(Duration::from_secs(10));
    assert_eq!(switch.macs().len(), 0);
    // Fewer addresses than there are: all are learned anew, as many as may be.
    send(
        &a,
        7,
        &[(mac(2), mac(1)), (mac(2), mac(3)), (mac(2), mac(4))],
    );
    let few = PortConfig {
        max_macs: 2,
        ..PortConfig::default()
    };
    assert!(switch.set_port("a", &few));
    send(
        &a,
        10,
        &[(mac(2), mac(1)), (mac(2), mac(3)), (mac(2), mac(4))],
    );
    assert_eq!(
        switch.macs().iter().filter(|one| one.port == "a").count(),
        2
    );
    assert_eq!(count(&switch, "a", "table_full"), 1);
}
