//! Every villain against a real `hypernic` process, over a real socket, while others work.
//!
//! `VILLAIN=part` runs only those whose id contains `part`.

mod chip;
mod fleet;
mod honest;
mod watched;

use fleet::{Deed, Fleet};
use villain::Villain;

fn wanted(villain: &Villain) -> bool {
    std::env::var("VILLAIN").map_or(true, |part| villain.id.contains(&part))
}

/// Has all of them do their worst, one after the other, to one daemon.
fn suffer_all(mut fleet: Fleet, deeds: impl Iterator<Item = (&'static Villain, Deed)>) {
    let mut bad = Vec::new();
    for (villain, deed) in deeds.filter(|(villain, _)| wanted(villain)) {
        if let Err(why) = fleet.suffer(villain, &deed) {
            bad.push(why);
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn every_hostile_guest_is_survived_counted_and_unnoticed_by_others() {
    let deeds = villain::guests().map(|(villain, run)| (villain, Deed::Guest(run)));
    suffer_all(Fleet::open(), deeds);
}

#[test]
fn every_hostile_vmm_is_survived_counted_and_unnoticed_by_others() {
    let deeds = villain::vmms().map(|(villain, run)| (villain, Deed::Vmm(run)));
    suffer_all(Fleet::open(), deeds);
}

#[test]
fn every_hostile_port_is_survived_counted_and_unnoticed_by_others() {
    let deeds = villain::pfs().map(|(villain, run)| (villain, Deed::Pf(run)));
    suffer_all(Fleet::with_chip(), deeds);
}

#[test]
fn every_hostile_vf_is_survived_counted_and_unnoticed_by_its_neighbours_and_outside() {
    let deeds = villain::vfs().map(|(villain, deed)| (villain, Deed::Vf(deed)));
    suffer_all(Fleet::with_chip(), deeds);
}

#[test]
fn every_hostile_virtio_net_is_survived_counted_and_unnoticed_by_others() {
    let deeds = villain::nets().map(|(villain, run)| (villain, Deed::Net(run)));
    suffer_all(Fleet::open(), deeds);
}

#[test]
fn every_hostile_r8168_is_survived_counted_and_unnoticed_by_others() {
    let deeds = villain::rtls().map(|(villain, run)| (villain, Deed::Rtl(run)));
    suffer_all(Fleet::open(), deeds);
}

#[test]
fn every_hostile_front_end_is_survived_counted_and_unnoticed_by_others() {
    let deeds = villain::fronts().map(|(villain, run)| (villain, Deed::Front(run)));
    suffer_all(Fleet::open(), deeds);
}

#[test]
#[ignore = "minutes: make test-long"]
fn long_ten_thousand_ends_in_the_middle_of_work() {
    let mut fleet = Fleet::open();
    // Three ends in each: of the memory, of the state, of the connection.
    fleet.soak(3334).unwrap_or_else(|why| panic!("{why}"));
}
