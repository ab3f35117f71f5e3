//! The stock Linux driver with every setting it has, frame by frame: the test holds the far end of the cable, looks at
//! every frame that comes out of the NIC and compares every byte that goes through it. Tests whose names begin with
//! `long_` are run by `make test-long`. Times are printed, never asserted.

/// Tests on the kernel that most tests use, and as long ones on the oldest and the newest there are.
macro_rules! on_every_kernel {
    ($($test:ident,)+) => {
        mod linux_stable {
            $(#[test] fn $test() { super::$test(rig::Kernel::Stable); })+
        }
        mod long_linux_oldest {
            $(#[test] #[ignore = "long: make test-long"] fn $test() { super::$test(rig::Kernel::Oldest); })+
        }
        mod long_linux_newest {
            $(#[test] #[ignore = "long: make test-long"] fn $test() { super::$test(rig::Kernel::Newest); })+
        }
    };
}

/// Long tests on all of them.
macro_rules! long_on_every_kernel {
    ($($test:ident,)+) => {
        mod long_on_linux_stable {
            $(#[test] #[ignore = "long: make test-long"] fn $test() { super::$test(rig::Kernel::Stable); })+
        }
        mod long_on_linux_oldest {
            $(#[test] #[ignore = "long: make test-long"] fn $test() { super::$test(rig::Kernel::Oldest); })+
        }
        mod long_on_linux_newest {
            $(#[test] #[ignore = "long: make test-long"] fn $test() { super::$test(rig::Kernel::Newest); })+
        }
    };
}

mod bonds;
mod endurance;
mod filters;
mod offloads;
mod pauses;
mod settings;
mod statistics;
mod vlans;
