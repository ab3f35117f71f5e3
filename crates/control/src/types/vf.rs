//! Virtual functions.

use serde::{Deserialize, Serialize};

use super::State;
use crate::idl::records;

records! {
    asked
    /// A change of a VF's policy, in the words of `ip link set … vf`. What is absent stays.
    VfChange {
        /// Its address.
        mac: Option<String>,
        /// Its VLAN; 0 for none.
        vlan: Option<u16>,
        /// The priority of that VLAN, 0 to 7; without `vlan` it means nothing.
        qos: Option<u8>,
        /// It may choose its addresses.
        trust: Option<bool>,
        /// What it sends is its own.
        spoofchk: Option<bool>,
        /// What it is told of the link.
        state: Option<State>,
        /// Most it may send, in megabits a second; 0 for any amount.
        max_tx_rate: Option<u32>,
        /// What the others leave it, in megabits a second.
        min_tx_rate: Option<u32>,
        /// Most flooded frames a second; both limits anew.
        storm: Option<Storm>,
        /// Most interrupts a second; 0 for any number.
        interrupts: Option<u32>,
    }

    asked
    /// Limits of flooded frames, in frames a second; absent for none.
    Storm {
        /// Broadcast frames.
        broadcast: Option<u64>,
        /// Multicast frames.
        multicast: Option<u64>,
    }

    told
    /// A virtual function.
    Vf {
        /// Its NIC.
        nic: String,
        /// The chip it is of.
        chip: String,
        /// Its number there.
        index: u32,
        /// All that is laid down for it.
        policy: VfChange,
        /// The address it has now.
        address: String,
        /// Its driver has completed a reset.
        ready: bool,
        /// Why it does not work, if it does not.
        down: Option<String>,
        /// What it was refused lately, oldest first.
        refused: Vec<Refusal>,
    }

    told
    /// Something of one kind that a virtual function was refused, once or again and again.
    Refusal {
        /// What it did.
        what: String,
        /// How often.
        count: u64,
        /// Seconds since the last time.
        seconds_ago: u64,
        /// It was shut down for it.
        shut_down: bool,
    }

    asked
    /// A change of a virtual function: all of it, or nothing.
    VfSet {
        /// The function's NIC.
        nic: String,
        /// What is to be other than it is.
        change: VfChange,
        /// Only say whether it could be done.
        check: Option<bool>,
        /// Write it into the configuration file, too.
        persist: Option<bool>,
        /// Only if the host has this generation.
        if_generation: Option<u64>,
    }

    asked
    /// A virtual function that was shut down.
    VfRevive {
        /// The function's NIC.
        nic: String,
        /// Only say whether it could be done.
        check: Option<bool>,
        /// Only if the host has this generation.
        if_generation: Option<u64>,
    }

    asked
    /// A virtual function that will be taken away.
    VfLeave {
        /// The function's NIC.
        nic: String,
        /// Only say whether it could be done.
        check: Option<bool>,
        /// Only if the host has this generation.
        if_generation: Option<u64>,
    }

    asked
    /// A chip to reset.
    VfReset {
        /// The chip's name.
        chip: String,
        /// Only say whether it could be done.
        check: Option<bool>,
        /// Only if the host has this generation.
        if_generation: Option<u64>,
    }

    asked
    /// Which virtual functions to show.
    VfShow {
        /// One of them; all without a name.
        nic: Option<String>,
    }

    told
    /// Virtual functions.
    Vfs {
        /// By NIC.
        vfs: Vec<Vf>,
    }
}
