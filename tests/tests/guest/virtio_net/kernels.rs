//! What stock Linux does with a virtio-net of ours over vfio-user and over vhost-user, on the oldest kernel there is, on the
//! one that most tests use and on the newest. The test is at the other end of the cable: it looks at every frame, and
//! compares every byte that goes through TCP over IPv4 and IPv6, both ways.

use hypernic_tests::torture::{down_and_up, out_and_in};
use hypernic_tests::{Card, Counters, Wired, Wiring, guests, offloads};
use rig::{GuestConfig, Kernel};

/// Long tests of both doors on all of them.
macro_rules! through_both_doors_on_every_kernel {
    ($($test:ident,)+) => {
        through_both_doors_on_every_kernel! { @ long_over_vfio_user, Virtio, [$($test,)+] }
        through_both_doors_on_every_kernel! { @ long_over_vhost_user, VirtioVhost, [$($test,)+] }
    };
    (@ $door:ident, $card:ident, $tests:tt) => {
        mod $door {
            through_both_doors_on_every_kernel! { @@ linux_stable, Stable, $card, $tests }
            through_both_doors_on_every_kernel! { @@ linux_oldest, Oldest, $card, $tests }
            through_both_doors_on_every_kernel! { @@ linux_newest, Newest, $card, $tests }
        }
    };
    (@@ $name:ident, $kernel:ident, $card:ident, [$($test:ident,)+]) => {
        mod $name {
            use hypernic_tests::Card;
            use rig::Kernel;

            $(#[test] #[ignore = "long: make test-long"]
            fn $test() { super::super::$test(Card::$card, Kernel::$kernel); })+
        }
    };
}

through_both_doors_on_every_kernel! {
    each_feature_on_and_off_moves_every_byte_of_a_virtio_net,
    rings_queues_and_interrupts_of_a_virtio_net_change,
    a_virtio_net_goes_down_and_up_100_times_and_its_driver_goes_under_traffic,
}

fn wired(card: Card, kernel: Kernel, processors: u32) -> Wired {
    let mut config = GuestConfig::new("virtio").kernel(kernel);
    config.smp = processors;
    Wired::of(config, Wiring::one(card)).unwrap()
}

/// Nothing that a good driver does is refused or counted against it, whichever door it comes through.
fn is_blameless(counters: &Counters) {
    for counter in [
        "tx_runt",
        "tx_too_long",
        "tx_not_agreed",
        "tx_bad_csum",
        "tx_bad_gso",
        "tx_unfinished",
        "rx_too_long",
        "rx_invalid",
        "broken_avail_index",
        "broken_unmapped",
        "broken_direction",
    ] {
        assert_eq!(counters.nic("n0", counter), 0, "{counter}\n{counters}");
    }
}

fn ends_well(wired: &Wired) {
    let counters = wired.daemon.counters().unwrap();
    println!("{counters}");
    is_blameless(&counters);
    wired.assert_quiet();
}

fn each_feature_on_and_off_moves_every_byte_of_a_virtio_net(card: Card, kernel: Kernel) {
    let wired = wired(card, kernel, 1);
    let release = wired.guest.run("uname -r").unwrap();
    println!("{card:?} on {release}");
    let needed = ["tx", "sg", "tso", "gso", "gro", "rx-gro-hw"];
    offloads::each_on_and_off(&wired, &needed, |_, _| wired.exchange(1500));
    ends_well(&wired);
}

/// Rings are reset one by one (`-G`), pairs come and go (`-L`), flows are spread by another table and another key (`-X`),
/// and interrupts are put off (`-C`), as far as the kernel's driver knows of it.
fn rings_queues_and_interrupts_of_a_virtio_net_change(card: Card, kernel: Kernel) {
    let wired = wired(card, kernel, 2);
    let changes = [
        ("-G", "rx 64 tx 64"),
        ("-G", "rx 256 tx 128"),
        ("-G", "rx 256 tx 256"),
        ("-L", "combined 1"),
        ("-L", "combined 2"),
        ("-C", "rx-usecs 200 rx-frames 16 tx-frames 1"),
        ("-C", "tx-frames 8 tx-usecs 100"),
        // The driver takes no zero for `tx-frames` while it is up.
        ("-C", "rx-usecs 0 rx-frames 0 tx-usecs 0 tx-frames 1"),
        ("-X", "equal 1"),
        ("-X", "weight 1 3"),
        ("-X", "equal 2"),
    ];
    let mut done = Vec::new();
    for (option, words) in changes {
        match wired.ethtool(option, words) {
            Ok(_) => done.push(option),
            // Of the other door the registers are QEMU's.
            Err(why) => {
                let why = why.to_string();
                // What is said where queues cannot be reset one by one, interrupts not be put off, and there is no table.
                let other = match option {
                    "-G" => "No such file or directory",
                    "-C" => "Invalid argument",
                    _ => "exceeds the size of the indirection table",
                };
                let lacks = why.contains("not supported") || why.contains(other);
                // The guest's ethtool is newer than this kernel, which refuses what it does not know of.
                let newer = option == "-X" && kernel == Kernel::Oldest;
                let expected = newer || card == Card::VirtioVhost && lacks;
                assert!(expected, "{option} {words}: {why}");
                println!("{card:?} {option} {words}: not supported");
            }
        }
        wired.settled().unwrap();
        wired
            .exchange(1500)
            .unwrap_or_else(|why| panic!("{option} {words}: {why}"));
    }
    let counters = wired.daemon.counters().unwrap();
    // What this model offers and these drivers know must have gone well.
    assert!(done.contains(&"-L"), "{done:?}");
    if card == Card::Virtio {
        let options = ["-G", "-C", "-X"].map(|option| done.contains(&option));
        let all = [true, true, kernel != Kernel::Oldest];
        assert_eq!(options, all, "{done:?}");
        assert!(counters.nic("n0", "queue_resets") >= 4, "{counters}");
    }
    ends_well(&wired);
}

fn a_virtio_net_goes_down_and_up_100_times_and_its_driver_goes_under_traffic(
    card: Card,
    kernel: Kernel,
) {
    let wired = wired(card, kernel, 2);
    down_and_up(&wired, 100);
    out_and_in(&wired, 10);
    // The connection was the same all the time.
    let log = wired.daemon.log();
    assert!(!log.contains("VMM gone"), "{log}");
    guests::wait_carrier(&wired.guest, &wired.interface, true).unwrap();
    ends_well(&wired);
}
