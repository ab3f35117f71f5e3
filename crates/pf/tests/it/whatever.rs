//! Whatever VFs send.

use hypernic_pf::Effect;
use proptest::prelude::*;

use crate::lab::{Lab, SECOND, mac};

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
