//! The stock Linux driver with every setting it has, frame by frame: the test holds the far end of the cable, looks at
//! every frame that comes out of the NIC and compares every byte that goes through it. Tests whose names begin with
//! `long_` are run by `make test-long`. Times are printed, never asserted.
#![forbid(unsafe_code)]

mod bonds;
mod endurance;
mod filters;
mod offloads;
mod settings;
mod statistics;
mod vlans;
