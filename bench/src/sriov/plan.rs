//! What is measured, and what each part of the module yields.

use std::time::Duration;

use drivers::igbvf::Masking;

use super::fleet::Policy;
use super::machine::VmNic;
use crate::stats::Column;

/// The paper's ports, and VFs of each that VMs have; one more is the sender's.
pub const PORTS: usize = 10;
/// VMs, as in figures 14 and 15.
pub const COUNTS: [usize; 6] = [10, 20, 30, 40, 50, 60];
/// Beyond the chip's seven VFs of a port.
pub const BEYOND: [usize; 2] = [250, 1000];
/// Bytes of the paper's frames, without their FCS.
pub const FULL: u32 = 1514;
/// Its aggregate load: 9.57 Gbit/s of such frames and what the wire puts around them.
pub const AGGREGATE: f64 = 9.57e9 / 8.0 / 1514.0;
/// One port's: 957 Mbit/s of datagrams of 1472 bytes.
pub const LINE: f64 = 957e6 / 8.0 / 1472.0;
/// A tick of senders where VMs are interrupted at 2 kHz, and where they are at 20 kHz.
pub const TICKS: [Duration; 2] = [Duration::from_micros(500), Duration::from_micros(50)];
/// Descriptors of each ring where there are many VMs, between two, and where the paper says so.
pub const RINGS: [u32; 3] = [128, 256, 1024];

/// How a guest keeps a second interrupt away, in words.
pub const MASKINGS: [(Masking, &str); 3] = [
    (Masking::Table, "masked and unmasked by the guest"),
    (Masking::Device, "masked by the device"),
    (Masking::None, "not masked"),
];
/// VMs of the one port of figure 6.
pub const FEW: [usize; 4] = [1, 2, 4, 7];
/// Policies of figures 8 to 10.
pub const POLICIES: [(Policy, &str); 4] = [
    (Policy::Hertz(20_000.0), "20 kHz"),
    (Policy::Hertz(2000.0), "2 kHz"),
    (Policy::Adaptive, "AIC"),
    (Policy::Hertz(1000.0), "1 kHz"),
];
/// Loads of figure 10, in lines.
pub const LOADS: [f64; 4] = [0.5, 1.0, 2.0, 4.0];
/// Frames of a sample inside one process.
pub const INSIDE: usize = 100_000;
/// Parts of the aggregate that a paravirtualized NIC is offered as well.
pub const SHARES: [f64; 2] = [1.0, 0.25];
/// Bytes between two VMs on VFs and on virtio-net, in bursts of 32.
pub const MESSAGES: [u32; 2] = [60, FULL];
/// Microseconds a worker stays awake where only the rate counts: the daemon's default. Elsewhere none, for
/// that would be counted as work.
pub const AWAKE: u32 = 100;
/// Bytes and bursts between two VMs.
pub const PAIRS: [(u32, u32); 3] = [(60, 32), (60, 128), (FULL, 32)];

/// Whose NICs the part `pv` compares: a VF, our virtio-net over either door, QEMU's virtio-net.
pub const PV: [(Option<VmNic>, &str); 4] = [
    (Some(VmNic::Vf), "VF"),
    (Some(VmNic::Virtio), "our virtio-net, vfio-user"),
    (Some(VmNic::Vhost), "our virtio-net, vhost-user"),
    (None, "QEMU's virtio-net"),
];
/// QEMU's among them.
pub const QEMUS: usize = PV.len() - 1;

/// What the part `scale` yields: for each of [`COUNTS`] a VF's column and an e1000's behind it, then for each of
/// [`BEYOND`] a VF's.
pub struct Scale {
    pub fixed: Vec<Column>,
    pub full: Vec<Column>,
    pub idle: Column,
}

/// What the part `interrupts` yields.
pub struct Interrupts {
    /// For each of [`FEW`], each of [`MASKINGS`].
    pub maskings: Vec<Column>,
    /// Of each of [`POLICIES`].
    pub policies: Vec<Column>,
    /// For each of [`LOADS`], each of [`POLICIES`].
    pub loads: Vec<Column>,
}

/// What the part `pv` yields.
pub struct Paravirtual {
    /// For each of [`MESSAGES`], each of [`PV`].
    pub between: Vec<Column>,
    /// For each of [`SHARES`] and of [`COUNTS`], each of [`PV`].
    pub scale: Vec<Column>,
    pub qemu: String,
}
