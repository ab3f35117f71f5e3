//! The host as a configuration file.

use serde::{Deserialize, Serialize};

use super::Act;
use crate::idl::records;

records! {
    asked
    /// What runs, as a file.
    ConfigDump {}

    told
    /// What runs, as a file.
    ConfigText {
        /// A file that makes the same host.
        text: String,
        /// How often the host was changed so far.
        generation: u64,
    }

    asked
    /// What a file would change.
    ConfigPlan {
        /// The text of the file; without, the file that the daemon was started with.
        text: Option<String>,
        /// Its name, for messages.
        file: Option<String>,
        /// NICs that a VMM has may be taken away and made anew.
        disconnect: Option<bool>,
    }

    told
    /// What leads from the host as it is to the one of a file.
    Plan {
        /// In this order.
        steps: Vec<Step>,
        /// What cannot be changed while the host runs.
        cannot: Vec<Cannot>,
        /// How often the host was changed so far.
        generation: u64,
    }

    whole
    /// A change of the host.
    Step {
        /// What is done.
        act: Act,
        /// `NIC`, `chip`, `VF`, `switch`, `port`, or `head` for a word at the head of the file.
        kind: String,
        /// Its name.
        name: String,
        /// The words in which it differs.
        words: Vec<String>,
        /// It is taken away and made anew: a VMM that has it is disconnected. Else it changes while it runs.
        anew: Option<bool>,
    }

    told
    /// A change that cannot be made.
    Cannot {
        /// As of a step.
        kind: String,
        /// Its name.
        name: String,
        /// Why, and what to do.
        why: String,
    }

    asked
    /// A host to be.
    ConfigApply {
        /// The text of the file; without, the file that the daemon was started with.
        text: Option<String>,
        /// Its name, for messages.
        file: Option<String>,
        /// NICs that a VMM has may be taken away and made anew.
        disconnect: Option<bool>,
        /// What can be done is done, though something cannot.
        partly: Option<bool>,
        /// Seconds after which all is as before, unless it is confirmed.
        rollback_after: Option<u32>,
        /// Only say whether it could be done.
        check: Option<bool>,
        /// Have the daemon's configuration file be this text, too.
        persist: Option<bool>,
        /// Only if the host has this generation.
        if_generation: Option<u64>,
    }

    asked
    /// What is on trial stays.
    ConfigConfirm {}

    asked
    /// What is on trial goes.
    ConfigRollback {}
}
