//! What changes of NICs and switches while VMMs have them.

use serde::{Deserialize, Serialize};

use super::Guard;
use crate::idl::records;

records! {
    asked
    /// What is to be other of a NIC. What is absent stays; a limit that is `none` goes.
    NicChange {
        /// It sends from its own address only.
        mac_lock: Option<bool>,
        /// Its frames wait where a receiver has no room.
        back_pressure: Option<bool>,
        /// What it may do on its switch: rates, `storm`, `vlans`: `none` for no limit; `max_macs`: 0 for no limit; `allow_macs`:
        /// all of them anew.
        guard: Option<Guard>,
        /// Microseconds that its worker may stay awake for it.
        busy_poll_us: Option<u64>,
        /// When it interrupts: `guest`, `adaptive` or `fixed:N`.
        moderation: Option<String>,
        /// A pcapng file of all its frames; `none` for no file.
        capture: Option<String>,
        /// MiB of that file, at which a new one begins.
        capture_mib: Option<u64>,
    }

    asked
    /// A change of a NIC: all of it, or nothing.
    NicSet {
        /// Its name.
        name: String,
        /// What is to be other than it is.
        change: NicChange,
        /// Only say whether it could be done.
        check: Option<bool>,
        /// Write it into the configuration file, too.
        persist: Option<bool>,
        /// Only if the host has this generation.
        if_generation: Option<u64>,
    }

    asked
    /// The cable of a NIC.
    NicLink {
        /// Its name.
        name: String,
        /// The cable is in.
        up: bool,
        /// Only say whether it could be done.
        check: Option<bool>,
        /// Write it into the configuration file, too.
        persist: Option<bool>,
        /// Only if the host has this generation.
        if_generation: Option<u64>,
    }

    asked
    /// What is to be other of a switch. What is absent stays.
    SwitchChange {
        /// Seconds that an address is remembered.
        ageing_seconds: Option<u64>,
        /// `drop` or `pass`: what becomes of frames for groups that no bridge forwards.
        link_local: Option<String>,
        /// What each of its ports besides NICs may do, as a NIC's `guard` is changed.
        uplink_guard: Option<Guard>,
    }

    asked
    /// A change of a switch: all of it, or nothing.
    SwitchSet {
        /// Its name.
        name: String,
        /// What is to be other than it is.
        change: SwitchChange,
        /// Only say whether it could be done.
        check: Option<bool>,
        /// Write it into the configuration file, too.
        persist: Option<bool>,
        /// Only if the host has this generation.
        if_generation: Option<u64>,
    }
}
