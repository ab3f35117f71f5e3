//! What stock Linux does on the kernel that most tests use, on the oldest and on the newest there are; and down and up,
//! out and in again, while frames keep coming from both ends.

use hypernic_tests::torture::{down_and_up, out_and_in};
use hypernic_tests::{Card, Wired, Wiring};
use rig::{GuestConfig, Kernel};

use super::{crosses, ethtool, goes_and_comes, is_blameless, power, wired};

/// Long tests on all of them.
macro_rules! on_every_kernel {
    ($($test:ident,)+) => {
        mod long_linux_stable {
            $(#[test] #[ignore = "long: make test-long"] fn $test() { super::$test(rig::Kernel::Stable); })+
        }
        mod long_linux_oldest {
            $(#[test] #[ignore = "long: make test-long"] fn $test() { super::$test(rig::Kernel::Oldest); })+
        }
        mod long_linux_newest {
            $(#[test] #[ignore = "long: make test-long"] fn $test() { super::$test(rig::Kernel::Newest); })+
        }
    };
}

on_every_kernel! {
    each_offload_moves_every_byte_on_every_kernel,
    ethtool_shows_and_sets_what_there_is_on_every_kernel,
    links_filters_and_the_driver_come_and_go_on_every_kernel,
    tags_and_long_frames_cross_on_every_kernel,
    it_sleeps_and_wakes_on_every_kernel,
    the_link_wakes_it_on_every_kernel,
    it_goes_down_and_up_100_times_and_its_driver_goes_under_traffic,
}

fn each_offload_moves_every_byte_on_every_kernel(kernel: Kernel) {
    wired::each_offload(Card::R8169, kernel);
}

fn ethtool_shows_and_sets_what_there_is_on_every_kernel(kernel: Kernel) {
    ethtool(kernel);
}

fn links_filters_and_the_driver_come_and_go_on_every_kernel(kernel: Kernel) {
    goes_and_comes(kernel);
}

fn tags_and_long_frames_cross_on_every_kernel(kernel: Kernel) {
    crosses(kernel);
}

fn it_sleeps_and_wakes_on_every_kernel(kernel: Kernel) {
    power::suspends_and_wakes(kernel);
}

fn the_link_wakes_it_on_every_kernel(kernel: Kernel) {
    power::is_woken_by_the_link(kernel);
}

fn it_goes_down_and_up_100_times_and_its_driver_goes_under_traffic(kernel: Kernel) {
    let mut config = GuestConfig::new("tortured").kernel(kernel);
    config.smp = 2;
    let wired = Wired::of(config, Wiring::one(Card::R8169)).unwrap();
    down_and_up(&wired, 100);
    out_and_in(&wired, 10);
    is_blameless(&wired.daemon.counters().unwrap());
}
