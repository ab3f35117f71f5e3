//! `hypernic cell`.

use std::fmt::Write as _;

use clap::{Args, Subcommand};
use control::{CellInfo, CellList, Cells};
use program::LogFormat;

use super::place::{Place, Printed};
use crate::error::Error;

/// `hypernic cell`.
#[derive(Args, Debug)]
pub struct CellCommand {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    printed: Printed,
    #[command(subcommand)]
    what: CellVerb,
}

#[derive(Debug, Subcommand)]
enum CellVerb {
    /// List the processes that serve NICs: the main one and its cells.
    List,
}

impl CellCommand {
    /// Asks the daemon. Returns what there is to be read.
    ///
    /// # Errors
    /// A daemon that is not there, or refuses.
    pub fn execute(self, format: LogFormat) -> Result<String, Error> {
        let CellVerb::List = self.what;
        let reply = self.place.ask(&CellList {})?;
        Ok(self.printed.show(format, &reply, table))
    }
}

fn table(told: &Cells) -> String {
    let mut text = format!(
        "{:<20} {:>9} {:>5} {:>9}  control socket\n",
        "cell", "process", "NICs", "connected"
    );
    for one in &told.cells {
        let CellInfo {
            name,
            control,
            pid,
            nics,
            connected,
        } = one;
        let pid = pid.map_or_else(|| "no answer".to_owned(), |pid| pid.to_string());
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{name:<20} {pid:>9} {nics:>5} {connected:>9}  {control}"
        );
    }
    text
}
