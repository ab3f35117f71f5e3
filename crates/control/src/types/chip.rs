//! Chips with virtual functions.

use serde::{Deserialize, Serialize};

use crate::idl::records;

records! {
    asked
    /// A chip, in the words of a `[[nic]]` with `vfs` of a configuration file, with `_` for `-`.
    ChipConfig {
        /// Its name. Its VF 3 is the NIC `NAMEvf3`.
        name: String,
        /// Where its wire leads, such as `switch:lan`; `tap:fd=0` is the first descriptor that comes with the call.
        port: String,
        /// Virtual functions that it has.
        vfs: u32,
        /// The chip, such as `82576`; in replies always there.
        model: Option<String>,
        /// The Unix sockets of the VFs, with `{}` for their numbers.
        vf_socket_path: Option<String>,
        /// What the VFs share of the wire, in megabits a second.
        port_rate: Option<u32>,
        /// What is said of single VFs.
        vf: Option<Vec<VfConfig>>,
        /// Whose the VFs are.
        tenant: Option<String>,
        /// The process that has it and all its functions: one of its own by that name, or `main`.
        cell: Option<String>,
        /// When they interrupt: `guest`, `adaptive` or `fixed:N`.
        moderation: Option<String>,
        /// Microseconds that a worker may stay awake for one of them.
        busy_poll_us: Option<u64>,
        /// MiB of a capture, at which a new file begins.
        capture_mib: Option<u64>,
        /// `trap` or `page`.
        doorbell: Option<String>,
        /// Who controls the VFs: `daemon` or `guest`. All words below are for the physical function of a guest.
        pf: Option<String>,
        /// Its guest says where the rings of VFs are.
        pf_places_vf_rings: Option<bool>,
        /// The Unix socket of the physical function.
        socket_path: Option<String>,
        /// In its place a descriptor: which of those that come with the call.
        fd: Option<u32>,
        /// Its MAC address.
        mac: Option<String>,
        /// A pcapng file of all its frames.
        capture: Option<String>,
        /// A file that keeps its EEPROM.
        eeprom: Option<String>,
        /// The link partner offers pause frames.
        pause: Option<bool>,
    }

    asked
    /// What is said of one VF, in the words of `[[nic.vf]]` of a configuration file, with `_` for `-`.
    VfConfig {
        /// Its number.
        index: u32,
        /// Its Unix socket.
        socket_path: Option<String>,
        /// Whose it is.
        tenant: Option<String>,
        /// A pcapng file of all its frames.
        capture: Option<String>,
        /// When it interrupts.
        moderation: Option<String>,
        /// Its address.
        mac: Option<String>,
        /// Its VLAN; 0 for none.
        vlan: Option<u16>,
        /// The priority of that VLAN.
        qos: Option<u8>,
        /// It may choose its addresses.
        trust: Option<bool>,
        /// What it sends is its own.
        spoofchk: Option<bool>,
        /// What it is told of the link: `auto`, `enable` or `disable`.
        state: Option<String>,
        /// Most it may send, in megabits a second.
        max_tx_rate: Option<u32>,
        /// What the others leave it, in megabits a second.
        min_tx_rate: Option<u32>,
        /// Most flooded frames a second, such as `broadcast=100,multicast=100`.
        storm: Option<String>,
        /// Most interrupts a second.
        interrupts: Option<u32>,
        /// Most mailbox messages a second.
        mailbox_rate: Option<u32>,
        /// It is shut down when it misbehaves.
        strict: Option<bool>,
    }

    asked
    /// What is to be other of a chip. What is absent stays.
    ChipChange {
        /// Virtual functions that it has. Those that stay notice nothing.
        vfs: Option<u32>,
        /// The Unix sockets of those that come, with `{}` for their numbers.
        vf_socket_path: Option<String>,
        /// What the VFs share of the wire, in megabits a second; 0 for any amount.
        port_rate: Option<u32>,
        /// Where its wire leads. The chip is made anew for it.
        port: Option<String>,
    }

    told
    /// A chip that runs.
    ChipInfo {
        /// All its words.
        config: ChipConfig,
        /// Its functions, each a NIC.
        nics: Vec<String>,
    }

    asked
    /// A chip to add.
    ChipAdd {
        /// The chip.
        chip: ChipConfig,
        /// Only say whether it could be done.
        check: Option<bool>,
        /// Write it into the configuration file, too.
        persist: Option<bool>,
        /// Only if the host has this generation.
        if_generation: Option<u64>,
    }

    asked
    /// A change of a chip: all of it, or nothing.
    ChipSet {
        /// Its name.
        name: String,
        /// What is to be other than it is.
        change: ChipChange,
        /// VMMs that have functions which go may be disconnected.
        disconnect: Option<bool>,
        /// Only say whether it could be done.
        check: Option<bool>,
        /// Write it into the configuration file, too.
        persist: Option<bool>,
        /// Only if the host has this generation.
        if_generation: Option<u64>,
    }

    asked
    /// A chip to take away.
    ChipRemove {
        /// Its name.
        name: String,
        /// It is no error if there is none.
        missing_ok: Option<bool>,
        /// Only say whether it could be done.
        check: Option<bool>,
        /// Write it into the configuration file, too.
        persist: Option<bool>,
        /// Only if the host has this generation.
        if_generation: Option<u64>,
    }

    asked
    /// Which chips to list.
    ChipList {
        /// One of them; all without a name.
        name: Option<String>,
    }

    told
    /// Chips.
    Chips {
        /// By name.
        chips: Vec<ChipInfo>,
    }
}
