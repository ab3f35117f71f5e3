//! Another process that goes on.

use serde::{Deserialize, Serialize};

use crate::idl::records;

records! {
    asked
    /// What a NIC would leave to another program.
    UpgradeStates {
        /// The NIC.
        nic: String,
    }

    told
    /// It, in hexadecimal; nothing for a NIC that no VMM has, or that has it over vhost-user.
    NicStates {
        /// The model.
        model: String,
        /// The connection of the VMM.
        client: Option<String>,
        /// The chip.
        state: Option<String>,
    }

    asked
    /// Another process is to go on.
    UpgradeBegin {
        /// The program that it runs, as an absolute path; without, the one that runs, as it is on disk now. Only root and the
        /// daemon's own user may name one.
        program: Option<String>,
        /// Only say whether it could be done.
        check: Option<bool>,
    }

    told
    /// What goes on.
    UpgradeBegun {
        /// The program.
        program: String,
        /// The process that is to end.
        pid: u32,
    }
}
