//! Every hostile guest of an RTL8168C with a CSB against the bare model.

use villain::rtl::next_good_request;

use super::bare::{self, Subject};

const SUBJECT: Subject = Subject {
    nic: |mac| {
        r8169::new(r8169::Config {
            csb: true,
            ..r8169::Config::new(mac)
        })
    },
    next_good_request,
};

#[test]
fn every_villain_of_an_r8168_is_survived_and_counted() {
    bare::each_is_survived_and_counted(&SUBJECT, villain::rtls());
}

#[test]
fn one_r8168_survives_all_villains_in_a_row_twice() {
    bare::one_survives_all_in_a_row_twice(&SUBJECT, villain::rtls());
}

#[test]
fn the_neighbour_of_a_hostile_r8168_keeps_its_frames() {
    bare::its_neighbour_keeps_its_frames(&SUBJECT, villain::rtls());
}
