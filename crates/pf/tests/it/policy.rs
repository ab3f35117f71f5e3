//! The PF, driven as igbvf does it and as no real driver would.

use eswitch::{AddressFilter, HashSet12};
use hypernic_pf::{
    Change, Down, Effect, LinkState, Misdeeds, Policy, PolicyError, PortVlan, Settings, SoftwarePf,
    What,
};
use proptest::prelude::*;
use wire::MacAddr;

const ACK: u32 = 0x8000_0000;
const NACK: u32 = 0x4000_0000;
const CTS: u32 = 0x2000_0000;
const SECOND: u64 = 1_000_000_000;

fn mac(n: u8) -> MacAddr {
    MacAddr([0x52, 0x54, 0, 0, 0, n])
}

fn set_mac(info: u32, mac: MacAddr) -> [u32; 3] {
    let [a, b, c, d, e, f] = mac.0;
    [
        2 | info << 16,
        u32::from_le_bytes([a, b, c, d]),
        u32::from_le_bytes([e, f, 0, 0]),
    ]
}

/// A PF of VFs 0 and 1, and what its effects come to.
struct Lab {
    pf: SoftwarePf,
    now: u64,
    effects: Vec<Effect>,
}

impl Lab {
    fn new(change: impl Fn(&mut Policy)) -> Lab {
        let mut pf = SoftwarePf::new(None);
        for vf in 0..2 {
            let mut policy = Policy::new(mac(vf as u8 + 1));
            change(&mut policy);
            pf.add(vf, policy, 0).expect("a VF");
        }
        pf.link(true);
        let mut lab = Lab {
            pf,
            now: 0,
            effects: Vec::new(),
        };
        lab.effects();
        lab
    }

    fn effects(&mut self) -> &[Effect] {
        self.effects = self.pf.drain().collect();
        &self.effects
    }

    /// The first word of the reply.
    fn ask(&mut self, vf: u32, words: &[u32]) -> Option<u32> {
        let mut all = [0; 16];
        all[..words.len()].copy_from_slice(words);
        self.pf.request(vf, &all, self.now);
        self.effects().iter().find_map(|effect| match effect {
            Effect::Reply { vf: whose, message } if *whose == vf => Some(message.words()[0]),
            _ => None,
        })
    }

    fn up(&mut self, vf: u32) {
        self.pf.reset(vf);
        self.effects();
        assert_eq!(self.ask(vf, &[1]), Some(1 | ACK));
    }

    fn told(&mut self, vf: u32) -> Option<u32> {
        self.effects().iter().find_map(|effect| match effect {
            Effect::Notify { vf: whose, message } if *whose == vf => Some(message.words()[0]),
            _ => None,
        })
    }
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

#[derive(Clone, Debug)]
enum Step {
    Request(u32, [u32; 16]),
    Acknowledge(u32),
    Reset(u32),
    Link(bool),
    PfReset,
    PfReady,
    Tick(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let first = prop_oneof![
        any::<u32>(),
        (0..8u32, 0..40u32).prop_map(|(kind, info)| kind | info << 16)
    ];
    let address = (0..4u8).prop_map(|n| u32::from_le_bytes([0x52, 0x54, 0, n & 1]));
    let words = (first, address, 0..1024u32).prop_map(|(first, one, two)| {
        let mut words = [0; 16];
        words[..3].copy_from_slice(&[first, one, two]);
        words
    });
    prop_oneof![
        8 => (0..2u32, words).prop_map(|(vf, words)| Step::Request(vf, words)),
        1 => (0..2u32).prop_map(Step::Acknowledge),
        2 => (0..2u32).prop_map(Step::Reset),
        1 => any::<bool>().prop_map(Step::Link),
        1 => Just(Step::PfReset),
        2 => Just(Step::PfReady),
        2 => (0..SECOND).prop_map(Step::Tick),
    ]
}

proptest! {
    /// Whatever two VFs send: neither has an address of the other's, a VF that has not completed a
    /// reset may not send, a message has at most eight effects, and a deadline is always ahead.
    #[test]
    fn nothing_a_vf_sends_gives_it_what_is_not_its_own(
        steps in proptest::collection::vec(step(), 1..200)
    ) {
        let mut lab = Lab::new(|policy| policy.mailbox_rate = 100);
        for step in steps {
            match step {
                Step::Request(vf, words) => lab.pf.request(vf, &words, lab.now),
                Step::Acknowledge(vf) => lab.pf.acknowledged(vf, lab.now),
                Step::Reset(vf) => lab.pf.reset(vf),
                Step::Link(up) => lab.pf.link(up),
                Step::PfReset => lab.pf.pf_reset(),
                Step::PfReady => lab.pf.pf_ready(),
                Step::Tick(passed) => {
                    lab.now += passed;
                    lab.pf.tick(lab.now);
                }
            }
            prop_assert!(lab.effects().len() <= 8);
            let settings = [0, 1].map(|vf| lab.pf.settings(vf).expect("settings").clone());
            for own in &settings[0].eswitch.pool.macs {
                prop_assert!(own.is_unicast());
                prop_assert!(!settings[1].eswitch.pool.macs.contains(own));
            }
            for (vf, settings) in settings.iter().enumerate() {
                let status = lab.pf.status(vf as u32).expect("a VF");
                prop_assert_eq!(settings.enabled(), status.ready && status.down.is_none());
                prop_assert!(settings.eswitch.pool.macs.len() <= 16 && status.records.len() <= 16);
            }
            let due = lab.pf.deadline();
            prop_assert!(due.is_none_or(|due| due <= lab.now + 2 * SECOND + 1));
        }
    }

    /// The next process has everything that was granted, without a word to any driver; and what its policy no longer allows it
    /// does not have.
    #[test]
    fn what_was_granted_goes_on_in_another_process(
        steps in proptest::collection::vec(step(), 1..60),
        locked in any::<bool>(),
    ) {
        let mut lab = Lab::new(|_| {});
        for step in steps {
            match step {
                Step::Request(vf, words) => lab.pf.request(vf, &words, lab.now),
                Step::Acknowledge(vf) => lab.pf.acknowledged(vf, lab.now),
                Step::Reset(vf) => lab.pf.reset(vf),
                Step::Tick(passed) => {
                    lab.now += passed;
                    lab.pf.tick(lab.now);
                }
                Step::Link(_) | Step::PfReset | Step::PfReady => {}
            }
            lab.effects();
        }
        let mut next = Lab::new(|policy| policy.mac_set = locked);
        for vf in [0, 1] {
            let granted = lab.pf.granted(vf).expect("a VF");
            next.pf.resume(vf, granted.clone());
            next.pf.loaded(vf);
            let effects = next.effects().to_vec();
            prop_assert_eq!(effects, vec![Effect::Settings { vf }]);
            let (was, is) = (lab.pf.settings(vf), next.pf.settings(vf));
            let down = lab.pf.status(vf).is_some_and(|status| status.down.is_some());
            if locked {
                let macs = is.map(|settings| settings.eswitch.pool.macs.clone());
                prop_assert_eq!(macs, Some(vec![mac(vf as u8 + 1)]));
            } else if !down {
                prop_assert_eq!(was, is);
                prop_assert_eq!(next.pf.granted(vf), Some(granted));
            }
            // Once.
            next.pf.loaded(vf);
            prop_assert!(next.effects().len() > 1);
            next.pf.resume(vf, lab.pf.granted(vf).expect("a VF"));
            next.pf.loaded(vf);
            next.effects();
        }
    }
}
