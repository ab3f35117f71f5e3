//! The on-chip switch: who gets what, by the pools alone.

mod data_sheet;

use std::sync::Arc;

use crate::common::*;
use eswitch::{
    AddressFilter, Fabric, HashSet12, Mirror, Pool, Rate, Storm, StormWindow, StormWindows, VlanSet,
};
use frame::{Batch, Sink};
use hypernic_vale::{PortConfig, Switch, SwitchConfig, SwitchPort};
use wire::{MacAddr, Offload};

const GROUP: [u8; 6] = [1, 0, 0x5e, 0, 0x10, 7];

struct Lab {
    switch: Switch,
    hand: Hand,
    ports: Vec<Arc<SwitchPort>>,
    sinks: Vec<Arc<Recorder>>,
}

/// The wire, and `pools` pools of which number n has station n.
fn lab(pools: u8) -> Lab {
    let hand = Hand::default();
    let switch = Switch::on_chip(SwitchConfig::default(), hand.clock());
    let mut lab = Lab {
        switch,
        hand,
        ports: Vec::new(),
        sinks: Vec::new(),
    };
    for n in 0..=pools {
        let config = PortConfig {
            uplink: n == 0,
            waits: n != 0,
            ..PortConfig::default()
        };
        let sink = Recorder::new(usize::MAX);
        let port = lab.switch.attach(&n.to_string(), sink.clone(), config);
        lab.ports.push(port.expect("a free name"));
        lab.sinks.push(sink);
        lab.set(n, |_| {});
    }
    lab
}

fn usual(n: u8) -> Pool {
    Pool {
        enabled: true,
        receives: true,
        sends: true,
        macs: vec![MacAddr(mac(n))],
        broadcast: true,
        vlans: VlanSet::none().with_untagged(),
        ..Pool::default()
    }
}

impl Lab {
    fn set(&self, n: u8, change: impl Fn(&mut Pool)) -> bool {
        let mut pool = usual(n);
        change(&mut pool);
        self.switch.set_pool(&n.to_string(), pool)
    }

    /// Who got the frame, each once.
    fn who(&self, from: usize, dst: [u8; 6], src: [u8; 6], vlan: Option<u16>) -> Vec<usize> {
        let mut batch = Batch::new();
        batch.push_bytes(&dst);
        batch.push_bytes(&src);
        batch.push_bytes(&[7; 48]);
        let notes = Offload {
            vlan,
            ..Offload::NONE
        };
        batch.end(notes);
        assert_eq!(self.ports[from].deliver(&batch, &[0]), 1);
        let got = |sink: &Arc<Recorder>| std::mem::take(&mut *sink.got.lock()).len();
        let got: Vec<_> = self.sinks.iter().map(got).collect();
        assert!(got.iter().all(|n| *n <= 1), "{got:?}");
        (0..got.len()).filter(|n| got[*n] == 1).collect()
    }
}

#[test]
fn who_may_only_send_only_receive_or_only_to_the_wire_does_just_that() {
    let lab = lab(3);
    lab.set(1, |pool| pool.sends = false);
    assert!(lab.who(1, mac(2), mac(1), None).is_empty());
    assert_eq!(lab.who(2, mac(1), mac(2), None), [1]);
    assert_eq!(count(&lab.switch, "1", "drop_pool_off"), 1);
    lab.set(1, |pool| pool.receives = false);
    assert!(
        lab.who(2, mac(1), mac(2), None).is_empty(),
        "and not on the wire"
    );
    assert_eq!(lab.who(1, mac(2), mac(1), None), [2]);
    assert_eq!(lab.who(2, BROADCAST, mac(2), None), [0, 3]);
    lab.set(1, |pool| pool.outward = true);
    for dst in [mac(1), mac(2), mac(9), BROADCAST] {
        assert_eq!(lab.who(1, dst, mac(1), None), [0]);
    }
    assert_eq!(lab.who(2, mac(1), mac(2), None), [1]);
    // All of one VLAN, whatever is checked beside.
    lab.set(1, |pool| {
        pool.only_vlan = Some(7);
        pool.filters_vlans = false;
        pool.check_vlan = false;
    });
    lab.set(2, |pool| pool.filters_vlans = false);
    assert!(lab.who(1, mac(2), mac(1), None).is_empty());
    assert!(lab.who(1, mac(2), mac(1), Some(8)).is_empty());
    assert_eq!(lab.who(1, mac(2), mac(1), Some(7)), [2]);
    assert_eq!(lab.ports[1].fouls(), 2);
}

#[test]
fn a_table_as_the_chip_has_it_is_looked_up_by_its_offset() {
    for (offset, hash) in [(0, 0x071), (1, 0x0e2), (2, 0x1c4), (3, 0x710)] {
        let mut table = [0; 128];
        table[hash / 32] |= 1 << (hash % 32);
        let lab = lab(1);
        for chosen in 0..4 {
            lab.set(1, |pool| {
                pool.groups = AddressFilter::Hashes(HashSet12::of_table(&table, chosen));
            });
            let got = lab.who(0, GROUP, mac(9), None);
            assert_eq!(!got.is_empty(), chosen == offset, "{offset} {chosen}");
        }
    }
}

fn mirror(to: &str) -> Mirror<String> {
    Mirror {
        to: to.into(),
        of: Vec::new(),
        incoming: false,
        outgoing: false,
        vlans: VlanSet::none(),
    }
}

impl Lab {
    fn mirrors_beside(&self, fabric: &Fabric<String>, mirror: Mirror<String>) {
        let fabric = Fabric {
            mirrors: vec![mirror],
            ..fabric.clone()
        };
        assert!(self.switch.set_fabric(&fabric));
    }

    fn mirrors(&self, mirrors: Vec<Mirror<String>>) {
        let fabric = Fabric {
            mirrors,
            ..Fabric::default()
        };
        assert!(self.switch.set_fabric(&fabric));
    }
}

#[test]
fn copies_go_where_a_rule_says_and_nobody_else_gets_less() {
    let lab = lab(4);
    lab.set(3, |pool| pool.default = true);
    // Of what a pool gets, from any sender.
    lab.mirrors(vec![Mirror {
        of: vec!["2".into(), "gone".into()],
        ..mirror("4")
    }]);
    assert_eq!(lab.who(1, mac(2), mac(1), None), [2, 4]);
    assert_eq!(lab.who(0, mac(2), mac(9), None), [2, 4]);
    assert_eq!(lab.who(1, mac(3), mac(1), None), [3]);
    assert_eq!(lab.who(2, mac(1), mac(2), None), [1], "not what it sends");
    assert_eq!(lab.who(4, mac(2), mac(4), None), [2], "its own is none");
    assert_eq!(lab.who(1, BROADCAST, mac(1), None), [0, 2, 3, 4]);
    assert_eq!(lab.who(0, mac(8), mac(9), None), [3], "nobody's");
    // Of all that comes in, also for no pool and for the default pool.
    lab.mirrors(vec![Mirror {
        incoming: true,
        ..mirror("4")
    }]);
    assert_eq!(lab.who(0, mac(1), mac(9), None), [1, 4]);
    assert_eq!(lab.who(0, mac(8), mac(9), None), [3, 4]);
    assert_eq!(lab.who(1, mac(2), mac(1), None), [2]);
    lab.set(3, |_| {});
    assert_eq!(lab.who(0, mac(8), mac(9), None), [4]);
    assert_eq!(lab.who(0, GROUP, mac(9), None), [4]);
    // Of all that goes out.
    lab.mirrors(vec![Mirror {
        outgoing: true,
        ..mirror("4")
    }]);
    assert_eq!(lab.who(1, mac(8), mac(1), None), [0, 4]);
    assert_eq!(lab.who(1, mac(2), mac(1), None), [2]);
    assert_eq!(lab.who(1, BROADCAST, mac(1), None), [0, 2, 3, 4]);
    lab.set(1, |pool| pool.outward = true);
    assert_eq!(lab.who(1, mac(2), mac(1), None), [0, 4]);
    // Of VLANs, which the one who gets copies need not be in.
    for n in 1..=2 {
        lab.set(n, |pool| pool.filters_vlans = false);
    }
    lab.mirrors(vec![Mirror {
        vlans: VlanSet::none().with(7).with_untagged(),
        ..mirror("4")
    }]);
    assert_eq!(lab.who(1, mac(2), mac(1), Some(7)), [2, 4]);
    assert_eq!(lab.who(1, mac(2), mac(1), Some(8)), [2]);
    assert_eq!(lab.who(1, mac(2), mac(1), None), [2]);
    // Several rules at once, to several; who receives nothing gets no copies either.
    let all = |to| Mirror {
        of: vec!["1".into(), "2".into()],
        ..mirror(to)
    };
    lab.mirrors(vec![all("3"), all("4"), all("4")]);
    assert_eq!(lab.who(1, mac(2), mac(1), None), [2, 3, 4]);
    lab.set(4, |pool| pool.receives = false);
    lab.set(3, |pool| pool.enabled = false);
    assert_eq!(lab.who(1, mac(2), mac(1), None), [2]);
    lab.mirrors(Vec::new());
    assert!(lab.switch.detach("4"));
    lab.mirrors(vec![all("4")]);
    assert_eq!(lab.who(1, mac(2), mac(1), None), [2]);
    let learning = Switch::new(SwitchConfig::default(), Arc::new(|| 0));
    assert!(!learning.set_fabric(&Fabric::default()));
}

#[test]
fn local_vlans_stay_inside_and_loops_come_back_where_that_is_allowed() {
    let lab = lab(3);
    for n in 1..=3 {
        lab.set(n, |pool| {
            pool.filters_vlans = false;
            pool.check_vlan = false;
        });
    }
    let fabric = Fabric {
        local: VlanSet::none().with(7),
        ..Fabric::default()
    };
    assert!(lab.switch.set_fabric(&fabric));
    for (vlan, out) in [(Some(7), false), (Some(8), true), (None, true)] {
        assert_eq!(lab.who(1, mac(2), mac(1), vlan), [2]);
        let wire: &[usize] = if out { &[0] } else { &[] };
        assert_eq!(lab.who(1, mac(9), mac(1), vlan), wire);
        let all: &[usize] = if out { &[0, 2, 3] } else { &[2, 3] };
        assert_eq!(lab.who(1, BROADCAST, mac(1), vlan), all);
    }
    assert_eq!(count(&lab.switch, "1", "drop_no_pool"), 1);
    assert_eq!(
        lab.who(0, mac(2), mac(9), Some(7)),
        [2],
        "what comes in may"
    );
    // What a pool sends to itself.
    lab.set(1, |pool| pool.own = true);
    assert_eq!(lab.who(1, mac(1), mac(1), None), [1]);
    assert_eq!(lab.who(1, BROADCAST, mac(1), None), [0, 1, 2, 3]);
    assert_eq!(lab.who(1, mac(2), mac(1), None), [2]);
    assert!(lab.who(2, mac(2), mac(2), None).is_empty());
    lab.set(1, |pool| (pool.own, pool.receives) = (true, false));
    assert!(lab.who(1, mac(1), mac(1), None).is_empty());
    lab.set(1, |pool| (pool.own, pool.outward) = (true, true));
    assert_eq!(lab.who(1, mac(1), mac(1), None), [0]);
}

#[test]
fn floods_from_the_wire_are_bounded_by_windows_and_counted() {
    let lab = lab(2);
    let window = |blocks| {
        Some(StormWindow {
            blocks,
            current: true,
            previous: false,
        })
    };
    let windows = StormWindows {
        interval: 1_000_000,
        broadcast: window(2),
        multicast: window(0),
    };
    assert!(lab.switch.set_windows("0", windows));
    assert!(!lab.switch.set_windows("none", windows));
    lab.set(2, |pool| pool.groups = AddressFilter::All);
    assert_eq!(lab.who(0, BROADCAST, mac(9), None), [1, 2]);
    assert_eq!(lab.who(0, BROADCAST, mac(9), None), [1, 2]);
    assert!(lab.who(0, BROADCAST, mac(9), None).is_empty());
    assert!(lab.who(0, GROUP, mac(9), None).is_empty());
    assert_eq!(lab.who(0, mac(1), mac(9), None), [1]);
    assert_eq!(
        lab.who(1, BROADCAST, mac(1), None),
        [0, 2],
        "others' are free"
    );
    assert_eq!(count(&lab.switch, "0", "drop_storm"), 2);
    lab.hand.advance(1_000_000);
    assert_eq!(lab.who(0, BROADCAST, mac(9), None), [1, 2]);
    // Rates are another matter, and leave them as they are.
    assert!(lab.switch.set_bounds("0", None, Storm::default()));
    assert!(lab.who(0, GROUP, mac(9), None).is_empty());
    assert!(lab.switch.set_windows("0", StormWindows::default()));
    assert_eq!(lab.who(0, GROUP, mac(9), None), [2]);
}

#[test]
fn stations_are_found_and_what_is_nobodys_is_on_the_wire() {
    let lab = lab(3);
    for _ in 0..2 {
        assert_eq!(lab.who(1, mac(2), mac(1), None), [2], "inside only");
        assert_eq!(lab.who(1, mac(9), mac(1), None), [0]);
        assert_eq!(lab.who(0, mac(3), mac(9), None), [3]);
        assert!(lab.who(0, mac(9), mac(8), None).is_empty(), "for no pool");
        assert!(lab.who(1, mac(1), mac(1), None).is_empty(), "to itself");
        assert_eq!(lab.who(1, BROADCAST, mac(1), None), [0, 2, 3]);
        assert_eq!(lab.who(0, BROADCAST, mac(9), None), [1, 2, 3]);
    }
    assert_eq!(count(&lab.switch, "0", "drop_no_pool"), 2);
    assert_eq!(count(&lab.switch, "1", "drop_hairpin"), 2);
    // Nothing is learned from what came.
    assert!(lab.switch.macs().is_empty());
    // The default pool takes the rest from the wire, and only from there.
    lab.set(3, |pool| pool.default = true);
    assert_eq!(lab.who(0, mac(9), mac(8), None), [3]);
    assert_eq!(lab.who(1, mac(9), mac(1), None), [0]);
    // A change counts at once, also for what was found before.
    assert_eq!(lab.who(1, mac(2), mac(1), None), [2]);
    lab.set(2, |pool| pool.enabled = false);
    assert_eq!(lab.who(1, mac(2), mac(1), None), [0]);
    assert!(lab.who(2, mac(1), mac(2), None).is_empty());
    assert_eq!(count(&lab.switch, "2", "drop_pool_off"), 1);
    assert!(lab.switch.detach("3"));
    assert!(lab.who(0, mac(3), mac(9), None).is_empty());
    // Uplinks have no pool, nor have switches that learn.
    assert!(!lab.set(0, |_| {}) && !lab.set(3, |_| {}));
    let (learning, _) = switch(SwitchConfig::default());
    let sink = Recorder::new(0);
    let port = learning.attach("1", sink, PortConfig::default());
    assert!(port.is_ok() && !learning.set_pool("1", usual(1)));
}

#[test]
fn groups_go_to_those_who_want_them_and_always_out() {
    let lab = lab(4);
    let hash = HashSet12::hash(MacAddr(GROUP));
    assert_eq!(hash, 0x071);
    lab.set(2, |pool| {
        pool.groups = AddressFilter::Hashes(HashSet12::of([5, hash]))
    });
    lab.set(3, |pool| {
        pool.groups = AddressFilter::Hashes(HashSet12::of([5]))
    });
    lab.set(4, |pool| pool.groups = AddressFilter::All);
    assert_eq!(lab.who(1, GROUP, mac(1), None), [0, 2, 4]);
    assert_eq!(lab.who(0, GROUP, mac(9), None), [2, 4]);
    assert_eq!(lab.who(2, GROUP, mac(2), None), [0, 4], "not back");
    // Stations by hash, as ROPE does: a copy, and the wire too.
    let other = HashSet12::hash(MacAddr(mac(9)));
    lab.set(3, |pool| {
        pool.stations = AddressFilter::Hashes(HashSet12::of([other]))
    });
    assert_eq!(lab.who(1, mac(9), mac(1), None), [0, 3]);
    assert_eq!(lab.who(0, mac(9), mac(8), None), [3]);
    lab.set(3, |pool| pool.stations = AddressFilter::All);
    assert_eq!(lab.who(1, mac(2), mac(1), None), [2, 3]);
}

#[test]
fn vlans_part_pools_that_have_the_same_address() {
    let lab = lab(3);
    let member = |vlan| {
        move |pool: &mut Pool| {
            pool.macs.push(MacAddr(mac(7)));
            (pool.filters_vlans, pool.vlans) = (true, VlanSet::none().with(vlan));
        }
    };
    lab.set(1, member(10));
    lab.set(2, member(20));
    lab.set(3, |pool| pool.filters_vlans = false);
    assert_eq!(lab.who(0, mac(7), mac(9), Some(10)), [1]);
    assert_eq!(
        lab.who(0, mac(7), mac(9), Some(0x6014)),
        [2],
        "priorities are none of it"
    );
    assert!(lab.who(0, mac(7), mac(9), None).is_empty());
    assert_eq!(lab.who(0, BROADCAST, mac(9), Some(10)), [1, 3]);
    assert_eq!(lab.who(0, BROADCAST, mac(9), None), [3]);
    // Another VLAN's station is out on the wire.
    assert_eq!(lab.who(1, mac(2), mac(1), Some(10)), [0]);
    // A tag in the frame is a tag.
    let mut batch = Batch::new();
    for _ in 0..2 {
        batch.push_bytes(&mac(7));
        batch.push_bytes(&mac(9));
        batch.push_bytes(&[0x81, 0, 0, 20, 8, 0]);
        batch.push_bytes(&[0; 46]);
        batch.end(Offload::NONE);
    }
    assert_eq!(lab.ports[0].deliver(&batch, &[0, 1]), 2);
    assert_eq!(lab.sinks[2].got.lock().len(), 2);
}

#[test]
fn a_chips_filters_come_first_and_keep_what_is_for_a_station_inside() {
    let lab = lab(3);
    let known = VlanSet::none().with_tag(0).with_tag(10).with_tag(20);
    let fabric = Fabric {
        known: Some(known),
        ..Fabric::default()
    };
    assert!(lab.switch.set_fabric(&fabric));
    let in_vlans = |set: VlanSet| {
        move |pool: &mut Pool| {
            (pool.filters_vlans, pool.vlans) = (true, set.clone());
            pool.check_vlan = false;
        }
    };
    lab.set(1, in_vlans(VlanSet::none().with_tag(10).with_tag(30)));
    lab.set(2, in_vlans(VlanSet::none().with_tag(0).with_tag(10)));
    lab.set(3, |pool| {
        in_vlans(VlanSet::none().with_bare())(pool);
        pool.default = true;
    });
    // A VLAN that the table does not name reaches no pool, and what is sent goes out.
    assert!(lab.who(0, mac(1), mac(9), Some(30)).is_empty());
    assert!(lab.who(0, BROADCAST, mac(9), Some(30)).is_empty());
    assert_eq!(lab.who(2, mac(1), mac(2), Some(30)), [0]);
    assert_eq!(lab.who(2, BROADCAST, mac(2), Some(30)), [0]);
    // A tag of VLAN 0 is a tag.
    assert_eq!(lab.who(0, mac(2), mac(9), Some(0xe000)), [2]);
    assert_eq!(lab.who(0, BROADCAST, mac(9), Some(0)), [2]);
    assert_eq!(lab.who(0, BROADCAST, mac(9), None), [3]);
    // What no pool gets by its address and VLAN is the default pool's, whatever that one's VLANs are.
    assert_eq!(lab.who(0, mac(1), mac(9), Some(20)), [3]);
    assert_eq!(lab.who(0, mac(8), mac(9), Some(10)), [3]);
    assert_eq!(lab.who(0, mac(1), mac(9), None), [3]);
    // But from inside, to a station of another VLAN: to no pool, and not out.
    assert!(lab.who(2, mac(1), mac(2), Some(20)).is_empty());
    assert_eq!(lab.who(2, mac(8), mac(2), Some(20)), [0]);
    assert_eq!(lab.who(2, mac(1), mac(2), Some(10)), [1]);
    // The same where copies are made.
    lab.mirrors_beside(
        &fabric,
        Mirror {
            incoming: true,
            outgoing: true,
            ..mirror("1")
        },
    );
    assert!(lab.who(0, mac(2), mac(9), Some(30)).is_empty());
    assert_eq!(lab.who(0, mac(2), mac(9), Some(20)), [1, 3]);
    assert!(lab.who(3, mac(2), mac(3), Some(20)).is_empty());
    assert_eq!(lab.who(3, mac(2), mac(3), Some(30)), [0, 1]);
}

#[test]
fn a_pool_sends_as_itself_and_within_its_bounds() {
    let lab = lab(2);
    assert!(lab.who(1, mac(2), mac(9), None).is_empty());
    assert!(lab.who(1, BROADCAST, mac(2), None).is_empty());
    assert_eq!(count(&lab.switch, "1", "drop_spoofed"), 2);
    assert!(lab.who(1, mac(2), mac(1), Some(5)).is_empty());
    assert_eq!(count(&lab.switch, "1", "drop_vlan"), 1);
    lab.set(1, |pool| {
        pool.check_mac = false;
        pool.check_vlan = false;
    });
    assert_eq!(lab.who(1, mac(2), mac(9), None), [2]);
    assert_eq!(lab.who(1, mac(2), mac(1), Some(5)), [0]);
    // Bounds come and go while it runs.
    let rate = Rate {
        bits: None,
        packets: Some(1000),
        burst_ms: 10,
    };
    let storm = Storm {
        broadcast: Some(1),
        ..Storm::default()
    };
    assert!(lab.switch.set_bounds("1", Some(rate), storm));
    assert_eq!(lab.who(1, BROADCAST, mac(1), None), [0, 2]);
    assert!(lab.who(1, BROADCAST, mac(1), None).is_empty());
    assert_eq!(count(&lab.switch, "1", "drop_storm"), 1);
    let alarm = Arc::new(CountedWake::default());
    lab.switch.set_timer(alarm);
    assert_eq!(send(&lab.ports[1], 0, &[(mac(2), mac(1)); 20]), 8);
    lab.hand.advance(5 * MS);
    assert_eq!(send(&lab.ports[1], 0, &[(mac(2), mac(1)); 20]), 5);
    assert!(lab.switch.set_bounds("1", None, Storm::default()));
    assert_eq!(send(&lab.ports[1], 0, &[(mac(2), mac(1)); 20]), 20);
    assert!(!lab.switch.set_bounds("none", None, Storm::default()));
}
