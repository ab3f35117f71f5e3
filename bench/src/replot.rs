//! `hypernic-bench replot [DIR]`: draws all plots again from the raw data that is kept.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::plot::Plot;
use crate::report::{RAW, read_raw, write_plots};

/// The command's name.
pub const WORD: &str = "replot";

/// Draws the plots of each page whose raw data is in `dir` (by default docs/report).
///
/// # Errors
/// When raw data cannot be read, or plots cannot be written.
pub fn run(dir: Option<&Path>) -> Result<()> {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/report");
    let dir = dir.unwrap_or(&own);
    let data = dir.join("data");
    let found = std::fs::read_dir(&data).map_err(Error::io(format!("read {}", data.display())))?;
    let mut names: Vec<String> = found
        .flatten()
        .filter_map(|e| Some(e.file_name().to_str()?.strip_suffix(RAW)?.to_owned()))
        .collect();
    names.sort();
    for name in names {
        let file = data.join(format!("{name}{RAW}"));
        let mut raw = read_raw(&file)?;
        // Some are kept beside a page, to compare with; they have no plots of their own.
        let plots = raw["plots"].take();
        if plots.is_null() {
            continue;
        }
        let plots: Vec<Plot> = serde_json::from_value(plots)
            .map_err(|e| Error::Usage(format!("{}: {e}", file.display())))?;
        let drawn = write_plots(dir, &name, &plots)?;
        println!("{name}: {} plots", drawn.len());
    }
    Ok(())
}
