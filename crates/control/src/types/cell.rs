//! Processes of their own for some of the NICs.

use serde::{Deserialize, Serialize};

use crate::idl::records;

records! {
    asked
    /// Which cells there are.
    CellList {}

    told
    /// A process that serves some of the NICs.
    CellInfo {
        /// Its name; `main` is the one with the ports of switches, and the one that answers.
        name: String,
        /// Its control socket, for what is asked of a cell itself, such as a capture.
        control: String,
        /// Its worker's process. None: it does not answer.
        pid: Option<u32>,
        /// NICs that it serves.
        nics: u64,
        /// Those of them that a VMM has.
        connected: u64,
    }

    told
    /// All of them.
    Cells {
        /// The main one is the first.
        cells: Vec<CellInfo>,
    }
}
