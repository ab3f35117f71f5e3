//! NICs that move to another host.

use serde::{Deserialize, Serialize};

use super::NicConfig;
use super::chip::VfConfig;
use crate::idl::{records, words};

words! {
    /// What a daemon is to a move.
    MoveSide {
        /// The NIC leaves it.
        Source = "source",
        /// The NIC comes to it.
        Destination = "destination",
    }

    /// How far a move has come at one of its daemons.
    MoveStep {
        /// The NIC stands still there, and serves no VMM.
        Prepared = "prepared",
        /// The NIC has gone, or has come and is served.
        Committed = "committed",
        /// The NIC is served as before, or has not come.
        Aborted = "aborted",
    }
}

records! {
    asked
    /// A NIC stands still and is saved. The same call again has the same reply.
    MigrateSave {
        /// The operator's name for the move: letters, digits, `.`, `_`, `-` and `:`, at most 64.
        id: String,
        /// The NIC.
        nic: String,
        /// A VMM has it and stays connected: its guest is paused. Without, no VMM may have it, unless it has stopped it itself.
        paused: Option<bool>,
        /// Only say whether it could be done.
        check: Option<bool>,
        /// Only if the host has this generation.
        if_generation: Option<u64>,
        /// Asked of a cell by the main process, which does the rest.
        partly: Option<bool>,
    }

    told
    /// A NIC, for another daemon.
    MoveSaved {
        /// Its words, but for its capture.
        nic: NicConfig,
        /// Of a VF what is laid down for it: the other words are those of its chip.
        vf: Option<Box<VfConfig>>,
        /// What it is, in hexadecimal; nothing if the call only asked.
        state: Option<String>,
        /// Something is other than it was.
        changed: bool,
    }

    asked
    /// A NIC of another daemon comes, and stands still. The same call again changes nothing.
    MigrateLoad {
        /// The operator's name for the move.
        id: String,
        /// Its words here. Of a VF its name alone counts: it comes in place of the VF of that name.
        nic: NicConfig,
        /// Of a VF what is to be laid down for it.
        vf: Option<Box<VfConfig>>,
        /// What it is, as the source has said. May be absent if the call only asks.
        state: Option<String>,
        /// Only say whether it could be done.
        check: Option<bool>,
        /// Only if the host has this generation.
        if_generation: Option<u64>,
        /// Asked of a cell by the main process, which does the rest.
        partly: Option<bool>,
    }

    asked
    /// The NIC goes, or is served here from now on. Call it at the source first. The same call again changes nothing.
    MigrateCommit {
        /// The operator's name for the move.
        id: String,
        /// At the destination: the source has committed the move, or is gone for good.
        source_said: Option<bool>,
        /// Only say whether it could be done.
        check: Option<bool>,
        /// Write it into the configuration file, too.
        persist: Option<bool>,
        /// Only if the host has this generation.
        if_generation: Option<u64>,
        /// Asked of a cell by the main process, which does the rest.
        partly: Option<bool>,
    }

    asked
    /// The NIC stays, or does not come. Call it at the source first. The same call again changes nothing.
    MigrateAbort {
        /// The operator's name for the move.
        id: String,
        /// At the destination: the source has aborted the move, or is gone for good.
        source_said: Option<bool>,
        /// Only if the host has this generation.
        if_generation: Option<u64>,
        /// Asked of a cell by the main process, which does the rest.
        partly: Option<bool>,
    }

    asked
    /// Which moves there are, the newest last. Those that ended long ago are forgotten.
    MigrateList {
        /// One of them; without, all.
        id: Option<String>,
    }

    told
    /// Moves.
    Moves {
        /// They.
        moves: Vec<Move>,
    }

    whole
    /// A move, as one of its daemons has it.
    Move {
        /// The operator's name for it.
        id: String,
        /// The NIC.
        nic: String,
        /// What this daemon is to it.
        side: MoveSide,
        /// How far it has come here.
        step: MoveStep,
    }
}
