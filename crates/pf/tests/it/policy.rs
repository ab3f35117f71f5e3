//! The PF, driven as igbvf does it and as no real driver would.

use eswitch::{AddressFilter, HashSet12};
use hypernic_pf::{
    Change, Down, Effect, LinkState, Misdeeds, Policy, PolicyError, PortVlan, Settings, SoftwarePf,
    What,
};
use wire::MacAddr;

use crate::lab::{ACK, Lab, SECOND, mac};

const NACK: u32 = 0x4000_0000;
const CTS: u32 = 0x2000_0000;

fn set_mac(info: u32, mac: MacAddr) -> [u32; 3] {
    let [a, b, c, d, e, f] = mac.0;
    [
        2 | info << 16,
        u32::from_le_bytes([a, b, c, d]),
        u32::from_le_bytes([e, f, 0, 0]),
    ]
}

fn vlans(settings: &Settings) -> Vec<u16> {
    let pool = &settings.eswitch.pool;
    assert!(pool.filters_vlans);
    pool.vlans.iter().collect()
}

#[test]
fn a_driver_comes_up_as_with_igb() {
    let mut lab = Lab::new(|_| {});
    // Before its reset it may not request anything, and gets a NACK once in two seconds.
    assert_eq!(lab.ask(0, &set_mac(0, mac(9))), Some(2 | NACK));
    assert_eq!(lab.ask(0, &[5, 1522]), None);
    assert_eq!(lab.effects, [Effect::Read { vf: 0 }]);
    lab.now += 2 * SECOND + 1;
    assert_eq!(lab.ask(0, &[5, 1522]), Some(5 | NACK));
    assert!(!lab.pf.settings(0).expect("settings").enabled());

    lab.up(0);
    let effects = lab.effects.clone();
    let settings = lab.pf.settings(0).expect("settings").clone();
    let pool = &settings.eswitch.pool;
    assert!(settings.enabled() && settings.link && pool.broadcast && pool.in_vlan(0));
    assert!(pool.receives && pool.sends && pool.check_mac && pool.check_vlan);
    assert_eq!(pool.macs, [mac(1)]);
    // The settings are in force before the driver can know that it may send.
    assert_eq!(effects[0], Effect::Settings { vf: 0 });
    assert!(matches!(&effects[1], Effect::Reply { message, .. }
        if message.words()[1..] == [0x0000_5452, 0x0100]));

    assert_eq!(lab.ask(0, &set_mac(0, mac(1))), Some(2 | CTS | ACK));
    assert_eq!(
        lab.ask(0, &[3 | 2 << 16, 0x0234_0123]),
        Some(3 | 2 << 16 | CTS | ACK)
    );
    assert_eq!(lab.ask(0, &[4 | 1 << 16, 7]), Some(4 | 1 << 16 | CTS | ACK));
    assert_eq!(lab.ask(0, &[5, 9018]), Some(5 | CTS | ACK));
    let settings = lab.pf.settings(0).expect("settings").clone();
    let groups = HashSet12::of([0x123, 0x234]);
    assert_eq!(settings.eswitch.pool.groups, AddressFilter::Hashes(groups));
    assert_eq!(vlans(&settings), [7]);
    assert_eq!(settings.max_frame, 9018);
    // Multicast promiscuous is taken out of the word; no VF may have unicast promiscuous.
    assert_eq!(lab.ask(0, &[6 | 2 << 16]), Some(6 | CTS | ACK));
    assert_eq!(
        lab.pf.settings(0).expect("settings").eswitch.pool.groups,
        AddressFilter::All
    );
    assert_eq!(lab.ask(0, &[6 | 1 << 16]), Some(6 | 1 << 16 | CTS | NACK));
    // What it sends back is no question.
    assert_eq!(lab.ask(0, &[6 | CTS | ACK]), None);
    // All of it is gone with a reset.
    lab.pf.reset(0);
    let settings = lab.pf.settings(0).expect("settings");
    assert!(!settings.enabled() && vlans(settings).is_empty());
    assert_eq!(settings.max_frame, 1522);
}

#[test]
fn an_operators_address_is_kept_unless_the_vf_is_trusted() {
    let mut lab = Lab::new(|policy| policy.mac_set = true);
    lab.up(0);
    assert_eq!(lab.ask(0, &set_mac(0, mac(1))), Some(2 | CTS | ACK));
    assert_eq!(lab.ask(0, &set_mac(0, mac(9))), Some(2 | CTS | NACK));
    let add = set_mac(2, mac(9));
    assert_eq!(lab.ask(0, &add), Some(add[0] | CTS | NACK));
    let records = lab.pf.status(0).expect("a VF").records;
    assert_eq!((records[0].what, records[0].count), (What::MacOverride, 2));

    lab.pf.set(0, Change::Trust(true)).expect("trusted");
    assert_eq!(lab.ask(0, &set_mac(0, mac(9))), Some(2 | CTS | ACK));
    assert_eq!(lab.ask(0, &set_mac(2, mac(8))), Some(add[0] | CTS | ACK));
    assert_eq!(
        lab.pf.settings(0).expect("settings").eswitch.pool.macs,
        [mac(9), mac(8)]
    );
    // Trusted, and still no group, no neighbour's address, and no more than fifteen.
    let group = MacAddr([1, 0, 0x5e, 0, 0, 1]);
    for bad in [group, MacAddr::ZERO, mac(2)] {
        assert_eq!(lab.ask(0, &set_mac(0, bad)), Some(2 | CTS | NACK), "{bad}");
    }
    let granted = (20..60).filter(|n| lab.ask(0, &set_mac(2, mac(*n))) == Some(add[0] | CTS | ACK));
    assert_eq!(granted.count(), 14);
    // Nor may a neighbour be given what a trusted one has taken.
    let taken = lab.pf.set(1, Change::Mac(mac(8)));
    let (mac, vf) = (mac(8), 0);
    assert_eq!(taken, Err(PolicyError::MacTaken { mac, vf }));
    assert_eq!(lab.ask(0, &[2 | 1 << 16]), Some(2 | 1 << 16 | CTS | ACK));
    assert_eq!(
        lab.pf
            .settings(0)
            .expect("settings")
            .eswitch
            .pool
            .macs
            .len(),
        1
    );
}

#[test]
fn an_operators_vlan_is_put_on_and_no_other_joined() {
    let mut lab = Lab::new(|_| {});
    lab.up(0);
    assert_eq!(lab.ask(0, &[4 | 1 << 16, 7]), Some(4 | 1 << 16 | CTS | ACK));
    let vlan = PortVlan { id: 100, qos: 3 };
    lab.pf.set(0, Change::Vlan(Some(vlan))).expect("a VLAN");
    // Its driver has to start anew, and is notified.
    assert_eq!(lab.told(0), Some(0x100));
    assert!(!lab.pf.settings(0).expect("settings").enabled());
    lab.up(0);
    let settings = lab.pf.settings(0).expect("settings");
    let untagged = settings.eswitch.pool.in_vlan(0);
    assert_eq!((settings.tag, untagged), (Some(vlan), false));
    assert_eq!(vlans(settings), [100]);
    let join = 4 | 1 << 16;
    assert_eq!(lab.ask(0, &[join, 7]), Some(join | CTS | NACK));
    assert_eq!(lab.ask(0, &[join, 0]), Some(join | CTS | ACK));
    for (id, qos) in [(0, 0), (4095, 0), (5, 8)] {
        let vlan = Some(PortVlan { id, qos });
        let bad = lab.pf.set(0, Change::Vlan(vlan));
        assert_eq!(bad, Err(PolicyError::Vlan { id, qos }));
    }
}

#[test]
fn vfs_are_told_of_the_link_of_resets_and_of_their_removal() {
    let mut lab = Lab::new(|_| {});
    lab.up(0);
    lab.up(1);
    lab.pf.link(false);
    assert_eq!(lab.told(1), Some(0x100 | CTS));
    assert!(!lab.pf.settings(0).expect("settings").link);
    lab.pf.link(false);
    assert!(lab.effects().is_empty());
    // `state enable` is up without the port, `state disable` is down with it.
    lab.pf
        .set(0, Change::State(LinkState::Enable))
        .expect("set");
    assert_eq!(lab.told(0), Some(0x100 | CTS));
    assert!(lab.pf.settings(0).expect("settings").link);
    lab.pf
        .set(1, Change::State(LinkState::Disable))
        .expect("set");
    lab.pf.link(true);
    assert!(!lab.pf.settings(1).expect("settings").link);
    lab.effects();
    // A word that found the buffer taken comes when it is free.
    lab.pf.set(1, Change::State(LinkState::Auto)).expect("set");
    assert!(lab.told(1).is_some());
    lab.pf.unsent(1);
    lab.pf.acknowledged(1, 0);
    assert_eq!(lab.told(1), Some(0x100 | CTS));
    lab.pf.free(1);
    assert_eq!(lab.told(1), None);

    lab.pf.pf_reset();
    assert!(lab.effects().contains(&Effect::Reset {
        vf: 0,
        active: true
    }));
    assert_eq!(lab.ask(0, &[1]), None, "nobody answers meanwhile");
    assert!(!lab.pf.settings(1).expect("settings").link);
    lab.pf.reset(0);
    assert!(lab.effects().contains(&Effect::Reset {
        vf: 0,
        active: true
    }));
    lab.pf.pf_ready();
    // igbvf looks at its mailbox only where there is a link.
    for vf in [0, 1] {
        assert!(lab.pf.settings(vf).expect("settings").link);
    }
    assert!(lab.effects().contains(&Effect::Reset {
        vf: 0,
        active: false
    }));
    lab.up(0);

    lab.pf.leaving(0);
    assert!(lab.effects().contains(&Effect::Reset {
        vf: 0,
        active: true
    }));
    assert!(!lab.pf.settings(0).expect("settings").link);
    assert_eq!(lab.ask(0, &[1]), None);
    assert!(lab.pf.remove(0) && !lab.pf.remove(0));
    assert!(lab.pf.settings(0).is_none() && lab.pf.settings(1).is_some());
}

/// Linux's igbvf looks at its mailbox every 2 s and resets upon a NACK, but not within 10 s of its last reset.
#[test]
fn a_driver_is_told_that_it_must_reset_until_it_has() {
    let mut lab = Lab::new(|_| {});
    lab.up(0);
    lab.pf.pf_reset();
    lab.pf.pf_ready();
    lab.effects();
    let nacked = |lab: &mut Lab| {
        let is = |effect: &Effect| matches!(effect, Effect::Notify { vf: 0, message } if message.words()[0] & NACK != 0);
        lab.effects().iter().any(is)
    };
    let mut at = 7 * SECOND;
    lab.pf.acknowledged(0, at);
    assert!(nacked(&mut lab), "it has read and not reset");
    for _ in 0..10 {
        // It reads that, a moment too early for the next.
        lab.pf.acknowledged(0, at + 2 * SECOND);
        assert!(!nacked(&mut lab), "never twice in 2 s");
        at = lab.pf.deadline_of(0).expect("it will be told again");
        assert_eq!(lab.pf.deadline(), Some(at));
        lab.pf.tick(at - 1);
        assert!(!nacked(&mut lab));
        lab.pf.tick(at);
        assert!(nacked(&mut lab));
        assert_eq!(lab.pf.deadline_of(0), None, "once for each time it reads");
    }
    lab.pf.acknowledged(0, at + SECOND);
    lab.up(0);
    assert_eq!(lab.pf.deadline_of(0), None);
    lab.pf.tick(at + 9 * SECOND);
    assert!(!nacked(&mut lab), "it has reset");
    // Nor does one that is leaving get a NACK.
    lab.pf.pf_reset();
    lab.pf.pf_ready();
    lab.pf.acknowledged(0, at);
    lab.pf.acknowledged(0, at);
    lab.pf.leaving(0);
    lab.effects();
    assert_eq!(lab.pf.deadline_of(0), None);
    lab.pf.tick(at + 9 * SECOND);
    assert!(!nacked(&mut lab));
}

#[test]
fn a_vf_that_goes_on_as_another_has_to_ask_for_everything_again() {
    let mut lab = Lab::new(|policy| policy.vlan = Some(PortVlan { id: 5, qos: 0 }));
    lab.up(0);
    assert_eq!(lab.ask(0, &[5, 4000]), Some(5 | ACK | CTS));
    lab.pf.loaded(0);
    let told: Vec<_> = lab.effects().to_vec();
    let resets = told.iter().filter_map(|effect| match effect {
        Effect::Reset { vf: 0, active } => Some(*active),
        _ => None,
    });
    assert_eq!(
        resets.collect::<Vec<_>>(),
        [true, false],
        "its driver sees RSTD"
    );
    let without = told.iter().any(|effect| match effect {
        Effect::Notify { vf: 0, message } => message.words()[0] & CTS == 0,
        _ => false,
    });
    assert!(without, "and a message without the right to send");
    let settings = lab.pf.settings(0).expect("a VF").clone();
    assert!(!settings.enabled() && settings.link && settings.max_frame == 1522);
    assert_eq!(
        settings.tag.map(|tag| tag.id),
        Some(5),
        "policy is the PF's"
    );
    lab.up(0);
    assert!(
        lab.pf
            .settings(0)
            .is_some_and(|settings| settings.enabled())
    );
    // A VF that was shut down or is leaving stays so, and no VF starts while the port is in reset.
    lab.pf.leaving(0);
    lab.effects();
    lab.pf.loaded(0);
    let last = |lab: &mut Lab| {
        let effects = lab.effects().to_vec();
        effects.into_iter().rev().find_map(|effect| match effect {
            Effect::Reset { vf: 0, active } => Some(active),
            _ => None,
        })
    };
    assert_eq!(last(&mut lab), Some(true));
    assert_eq!(lab.ask(0, &[1]), None);
    lab.pf.revive(0, 0).expect("a VF");
    lab.pf.pf_reset();
    lab.effects();
    lab.pf.loaded(0);
    assert_eq!(last(&mut lab), Some(true));
    lab.pf.loaded(99);
    assert!(lab.effects().is_empty());
}

#[test]
fn a_flood_of_messages_waits_and_then_ends_the_vf_with_a_record() {
    let mut lab = Lab::new(|policy| {
        policy.mailbox_rate = 10;
        policy.mailbox_burst = 4;
        policy.misdeeds = Some(Misdeeds {
            most: 3,
            per_minute: 1,
        });
    });
    lab.up(0);
    for _ in 0..3 {
        assert!(lab.ask(0, &[5, 1522]).is_some());
    }
    // The fifth has to wait, and is answered in its time.
    assert_eq!(lab.ask(0, &[5, 2000]), None);
    let due = lab.pf.deadline().expect("a deadline");
    assert_eq!(due, SECOND / 10);
    lab.pf.tick(due - 1);
    assert!(lab.effects().is_empty());
    lab.pf.tick(due);
    assert_eq!(lab.pf.settings(0).expect("settings").max_frame, 2000);
    assert_eq!(lab.pf.deadline(), None);
    // The neighbour has a budget of its own.
    lab.up(1);
    // A VF that goes on meanwhile is tolerated three times.
    assert_eq!(lab.ask(0, &[5, 1522]), None);
    for _ in 0..3 {
        assert_eq!(lab.ask(0, &[5, 1522]), None);
        assert!(lab.effects.is_empty());
    }
    lab.ask(0, &[5, 1522]);
    assert!(lab.effects.contains(&Effect::ShutDown {
        vf: 0,
        what: What::Flood
    }));
    let status = lab.pf.status(0).expect("a VF");
    assert_eq!(status.down, Some(Down::Misbehaved(What::Flood)));
    assert!(!status.settings.enabled() && !status.settings.link);
    assert!(
        status
            .records
            .last()
            .is_some_and(|r| r.shut_down && r.count == 4)
    );
    // A reset does not bring it back, the operator does.
    lab.pf.reset(0);
    assert!(lab.effects().contains(&Effect::Reset {
        vf: 0,
        active: true
    }));
    assert_eq!(lab.ask(0, &[1]), None);
    assert!(lab.pf.settings(1).expect("settings").enabled());
    lab.pf.revive(0, 10 * SECOND).expect("revived");
    lab.now = 10 * SECOND;
    lab.up(0);
    assert!(lab.pf.settings(0).expect("settings").enabled());
}

#[test]
fn frames_not_its_own_end_a_vf_only_where_that_was_asked_for() {
    for strict in [false, true] {
        let mut lab = Lab::new(|policy| policy.strict = strict);
        lab.up(0);
        lab.pf.note(0, What::Spoofed, 1_000_000, 5);
        lab.pf.note(0, What::Storm, 70, 5);
        for _ in 0..64 {
            lab.pf.note(0, What::Spoofed, 1, 6);
        }
        let down = lab.pf.status(0).expect("a VF").down;
        assert_eq!(down.is_some(), strict);
        let mut spoofed = 0;
        lab.pf.counters(0, &mut |name, n| {
            if name == "vf_refused_spoofed" {
                spoofed = n;
            }
        });
        assert_eq!(spoofed, 1_000_064);
    }
}

/// The switch is asked once a second what it has refused.
#[test]
fn what_is_told_in_one_word_counts_as_often_as_it_happened() {
    let mut lab = Lab::new(|policy| policy.strict = true);
    lab.up(0);
    // One a second is borne, since 64 a minute are.
    for second in 0..300 {
        lab.pf.note(0, What::Storm, 1, second * SECOND);
    }
    assert_eq!(lab.pf.status(0).expect("a VF").down, None);
    lab.pf.note(0, What::Storm, 100, 300 * SECOND);
    let down = lab.pf.status(0).expect("a VF").down;
    assert_eq!(down, Some(Down::Misbehaved(What::Storm)));
}

#[test]
fn what_one_is_promised_the_others_leave() {
    let mut pf = SoftwarePf::new(Some(1000));
    for vf in 0..3 {
        let policy = Policy::new(mac(vf as u8));
        pf.add(vf, policy, 0).expect("a VF");
    }
    let rate = |pf: &SoftwarePf, vf| {
        pf.settings(vf)
            .and_then(|settings| settings.eswitch.rate?.bits)
    };
    assert_eq!(rate(&pf, 0), None);
    pf.set(0, Change::MinTxRate(300)).expect("promised");
    pf.set(1, Change::MinTxRate(600)).expect("promised");
    pf.set(2, Change::MaxTxRate(50)).expect("limited");
    let rates: Vec<_> = (0..3).map(|vf| rate(&pf, vf)).collect();
    assert_eq!(
        rates,
        [Some(400_000_000), Some(700_000_000), Some(50_000_000)]
    );
    let (sum, port) = (1001, 1000);
    let over = pf.set(0, Change::MinTxRate(401));
    assert_eq!(over, Err(PolicyError::Oversold { sum, port }));
    let (min, max) = (60, 50);
    let above = pf.set(2, Change::MinTxRate(60));
    assert_eq!(above, Err(PolicyError::MinAboveMax { min, max }));
    // What was promised to one who is gone is the others' again.
    assert!(pf.remove(1));
    assert_eq!(rate(&pf, 0), None);
    let mut pf = SoftwarePf::new(None);
    let mut policy = Policy::new(mac(1));
    policy.min_tx_rate = 1;
    assert_eq!(pf.add(0, policy, 0), Err(PolicyError::NoPortRate));
}
