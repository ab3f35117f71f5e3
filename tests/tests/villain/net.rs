//! Every hostile guest of a virtio-net against the bare model.

use villain::net::next_good_request;

use super::bare::{self, Subject};

const SUBJECT: Subject = Subject {
    nic: |mac| virtio_net::new(virtio_net::Config::new(mac)),
    next_good_request,
};

#[test]
fn every_villain_of_a_virtio_net_is_survived_and_counted() {
    bare::each_is_survived_and_counted(&SUBJECT, villain::nets());
}

#[test]
fn one_virtio_net_survives_all_villains_in_a_row_twice() {
    bare::one_survives_all_in_a_row_twice(&SUBJECT, villain::nets());
}

#[test]
fn the_neighbour_of_a_hostile_virtio_net_keeps_its_frames() {
    bare::its_neighbour_keeps_its_frames(&SUBJECT, villain::nets());
}
