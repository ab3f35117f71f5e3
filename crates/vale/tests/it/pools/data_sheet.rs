//! What the data sheet says of each frame, beside what the switch does with it.

use super::{GROUP, lab};
use crate::common::*;
use eswitch::{AddressFilter, Fabric, HashSet12, Pool, VlanSet};
use frame::{Batch, Sink};
use proptest::prelude::*;
use wire::{MacAddr, Offload};

#[derive(Clone, Debug)]
struct Spec {
    enabled: bool,
    macs: Vec<u8>,
    broadcast: bool,
    groups: u8,
    stations: u8,
    vlans: Option<Vec<u16>>,
    untagged: bool,
    tagged_0: bool,
    check: bool,
    default: bool,
    deaf: bool,
    mute: bool,
    outward: bool,
    only_vlan: Option<u16>,
}

fn spec() -> impl Strategy<Value = Spec> {
    (
        (any::<bool>(), proptest::collection::vec(1..6u8, 0..3)),
        (any::<bool>(), 0..3u8, 0..9u8),
        proptest::option::of(proptest::collection::vec(1..3u16, 0..2)),
        (any::<[bool; 2]>(), any::<bool>(), any::<bool>()),
        (0..8u8, 0..8u8, 0..6u8, 0..8u16),
    )
        .prop_map(
            |(
                (off, macs),
                (broadcast, groups, stations),
                vlans,
                ([untagged, tagged_0], check, default),
                (deaf, mute, outward, only),
            )| {
                Spec {
                    enabled: !off || !check,
                    macs,
                    broadcast,
                    groups,
                    stations: stations.saturating_sub(6),
                    vlans,
                    untagged,
                    tagged_0,
                    check,
                    default,
                    deaf: deaf == 0,
                    mute: mute == 0,
                    outward: outward == 0,
                    only_vlan: (only < 3).then_some(only),
                }
            },
        )
}

fn wanted(n: u8, hash: u16) -> AddressFilter {
    match n {
        0 => AddressFilter::None,
        1 => AddressFilter::Hashes(HashSet12::of([hash])),
        _ => AddressFilter::All,
    }
}

impl Spec {
    fn pool(&self) -> Pool {
        Pool {
            enabled: self.enabled,
            macs: self.macs.iter().map(|n| MacAddr(mac(*n))).collect(),
            broadcast: self.broadcast,
            groups: wanted(self.groups, HashSet12::hash(MacAddr(GROUP))),
            stations: wanted(self.stations, HashSet12::hash(MacAddr(mac(5)))),
            filters_vlans: self.vlans.is_some(),
            vlans: self.vlans.iter().fold(VlanSet::none(), |_, vlans| {
                let mut set = VlanSet::none();
                if self.untagged {
                    set = set.with_bare();
                }
                if self.tagged_0 {
                    set = set.with_tag(0);
                }
                vlans.iter().fold(set, |set, vlan| set.with(*vlan))
            }),
            check_mac: self.check,
            check_vlan: self.check,
            default: self.default,
            receives: !self.deaf,
            sends: !self.mute,
            outward: self.outward,
            only_vlan: self.only_vlan,
            own: false,
        }
    }

    fn member(&self, vlan: u16) -> bool {
        self.vlans.as_ref().is_none_or(|vlans| match vlan {
            0 => self.untagged,
            TAG_0 => self.tagged_0,
            vlan => vlans.contains(&vlan),
        })
    }
}

/// Distinguishes a tag of VLAN 0 from no tag.
const TAG_0: u16 = 0x1000;

/// What the data sheet says of one frame, computed once more and slowly. `from` and the result count
/// the wire as 0. VLANs are `known`, if not all are.
fn expected(
    (specs, known): (&[Spec], Option<&[u16]>),
    from: usize,
    dst: u8,
    src: u8,
    vlan: u16,
) -> Vec<usize> {
    let sender = from.checked_sub(1).map(|at| &specs[at]);
    if let Some(own) = sender
        && (!own.enabled
            || own.mute
            || (own.check && !(own.macs.contains(&src) && own.member(vlan)))
            || own
                .only_vlan
                .is_some_and(|only| vlan == 0 || only != vlan & 0xfff))
    {
        return Vec::new();
    }
    if sender.is_some_and(|own| own.outward) {
        return vec![0];
    }
    if vlan != 0 && known.is_some_and(|known| !known.contains(&vlan)) {
        return Vec::from_iter((from != 0).then_some(0));
    }
    let on = |spec: &&Spec| spec.enabled && spec.member(vlan);
    let wants = |spec: &Spec| match dst {
        8 => spec.groups > 0,
        9 => spec.broadcast,
        _ => spec.macs.contains(&dst) || spec.stations == 2 || (spec.stations == 1 && dst == 5),
    };
    let ours = specs
        .iter()
        .filter(|spec| spec.enabled && (known.is_some() || spec.member(vlan)))
        .any(|spec| dst < 8 && spec.macs.contains(&dst));
    let mut to: Vec<usize> = Vec::new();
    if from != 0 && !ours {
        to.push(0);
    }
    let pools = specs.iter().enumerate();
    to.extend(
        pools
            .filter(|(_, spec)| on(spec) && wants(spec) && !spec.deaf)
            .map(|(at, _)| at + 1),
    );
    // A frame for a pool that receives nothing goes to no other pool.
    let nobody = !specs.iter().any(|spec| on(&spec) && wants(spec));
    if nobody && from == 0 && dst < 8 {
        // The last one that said so is the default.
        let default = specs.iter().rposition(|spec| spec.enabled && spec.default);
        to.extend(default.filter(|at| !specs[*at].deaf).map(|at| at + 1));
    }
    to.retain(|at| *at != from);
    to
}

/// None, a tag of VLAN 0, a VLAN.
fn vlan() -> impl Strategy<Value = u16> {
    prop_oneof![2 => Just(0), 1 => Just(TAG_0), 4 => 1..3u16]
}

proptest! {
    /// One by one and in batches, alike and mixed, by whichever path: each frame comes to whom the
    /// data sheet says, once, in order.
    #[test]
    fn every_frame_comes_to_whom_it_should(
        specs in proptest::collection::vec(spec(), 3),
        batches in proptest::collection::vec(
            (0..4usize, proptest::collection::vec((1..10u8, 1..6u8, vlan(), 1..4usize), 1..5)),
            1..20,
        ),
        known in proptest::option::of(proptest::collection::vec(vlan(), 0..4)),
    ) {
        let lab = lab(3);
        for (n, spec) in specs.iter().enumerate() {
            prop_assert!(lab.switch.set_pool(&(n + 1).to_string(), spec.pool()));
        }
        let fabric = Fabric {
            known: known.as_ref().map(|known| known.iter().fold(VlanSet::none(), |set, vlan| {
                if *vlan == 0 { set } else { set.with_tag(*vlan) }
            })),
            ..Fabric::default()
        };
        prop_assert!(lab.switch.set_fabric(&fabric));
        let mut want = vec![Vec::new(); 4];
        let mut sent = 0u64;
        for (from, frames) in batches {
            let mut batch = Batch::new();
            for (dst, src, vlan, times) in frames {
                for _ in 0..times {
                    let address = match dst {
                        8 => GROUP,
                        9 => BROADCAST,
                        _ => mac(dst),
                    };
                    batch.push_bytes(&address);
                    batch.push_bytes(&mac(src));
                    batch.push_bytes(&[8, 0]);
                    batch.push_bytes(&sent.to_be_bytes());
                    batch.push_bytes(&[0; 38]);
                    let tag = Some(vlan).filter(|vlan| *vlan != 0);
                    batch.end(Offload { vlan: tag, ..Offload::NONE });
                    for to in expected((&specs, known.as_deref()), from, dst, src, vlan) {
                        want[to].push(sent);
                    }
                    sent += 1;
                }
            }
            let mut picks = Vec::new();
            let all = batch.all_picks(&mut picks).len();
            prop_assert_eq!(lab.ports[from].deliver(&batch, batch.all_picks(&mut Vec::new())), all);
        }
        for (at, sink) in lab.sinks.iter().enumerate() {
            let got = sink.got.lock();
            // The tag has been put into the frame for a sink that takes no notes.
            let number = |frame: &Vec<u8>| {
                let at = frame.len() - 46;
                u64::from_be_bytes(frame[at..at + 8].try_into().expect("8 bytes"))
            };
            let got: Vec<u64> = got.iter().map(number).collect();
            prop_assert_eq!(&got, &want[at], "port {} of {:?}", at, specs);
        }
    }
}
