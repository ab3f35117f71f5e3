//! What a module found: raw data, plots, and words around them; written as files.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::draw;
use crate::error::{Error, Result};
use crate::plot::Plot;

/// How names of raw data end.
pub const RAW: &str = ".json.gz";

/// A module's result, ready to be written.
pub struct Report {
    name: &'static str,
    /// The report as Markdown.
    pub markdown: String,
    data: Value,
    plots: Vec<Plot>,
}

impl Report {
    /// From its parts.
    pub fn new(name: &'static str, markdown: String, data: Value, plots: Vec<Plot>) -> Self {
        Self {
            name,
            markdown,
            data,
            plots,
        }
    }

    /// Writes `NAME.md`, `data/NAME.json.gz` and `plots/NAME-*.svg`; gives the files.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn write(&self, dir: &Path) -> Result<Vec<PathBuf>> {
        let page = dir.join(format!("{}.md", self.name));
        write(&page, self.markdown.as_bytes())?;
        let mut data = self.data.clone();
        if !self.plots.is_empty() {
            data["plots"] = json!(self.plots);
        }
        let raw = raw_file(dir, self.name);
        write(&raw, &pack(&data)?)?;
        let mut files = vec![page, raw];
        files.extend(write_plots(dir, self.name, &self.plots)?);
        Ok(files)
    }
}

/// Where a page's raw data is.
pub fn raw_file(dir: &Path, name: &str) -> PathBuf {
    dir.join("data").join(format!("{name}{RAW}"))
}

/// Draws a page's plots; gives the files.
///
/// # Errors
/// When the folder cannot be written.
pub fn write_plots(dir: &Path, name: &str, plots: &[Plot]) -> Result<Vec<PathBuf>> {
    let one = |plot: &Plot| {
        let file = dir.join("plots").join(format!("{name}-{}.svg", plot.name));
        write(&file, draw::svg(plot).as_bytes()).map(|()| file)
    };
    plots.iter().map(one).collect()
}

/// Reads raw data.
///
/// # Errors
/// When the file cannot be read or holds no JSON.
pub fn read_raw(file: &Path) -> Result<Value> {
    let what = || format!("read {}", file.display());
    let packed = fs::File::open(file).map_err(Error::io(what()))?;
    let mut text = String::new();
    GzDecoder::new(packed)
        .read_to_string(&mut text)
        .map_err(Error::io(what()))?;
    serde_json::from_str(&text).map_err(|e| Error::Usage(format!("{}: {e}", file.display())))
}

fn pack(data: &Value) -> Result<Vec<u8>> {
    // A run to a line: readable when unpacked.
    let text = data.to_string().replace("{\"counted\"", "\n{\"counted\"");
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    let done = packed.write_all(text.as_bytes());
    done.and_then(|()| packed.finish())
        .map_err(Error::io("pack raw data"))
}

fn write(path: &Path, content: &[u8]) -> Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(Error::io(format!("make {}", parent.display())))?;
    }
    fs::write(path, content).map_err(Error::io(format!("write {}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{Scale, Whose, lines, set};

    #[test]
    fn raw_data_is_packed_and_holds_what_its_plots_are_drawn_from() {
        let dir = tempfile::tempdir().unwrap();
        let curve = set("a", Whose::Ours, [(1.0, 2.0), (2.0, 3.0)]);
        let plot = lines(
            "p",
            "t",
            Scale::linear("x"),
            Scale::linear("y"),
            vec![curve],
        );
        let report = Report::new(
            "one",
            "# One\n".to_owned(),
            json!({"x": 1.5}),
            vec![plot.clone()],
        );
        let files = report.write(dir.path()).unwrap();
        assert_eq!(files.len(), 3);
        let data = read_raw(&raw_file(dir.path(), "one")).unwrap();
        assert_eq!(data["x"], 1.5);
        let kept: Vec<Plot> = serde_json::from_value(data["plots"].clone()).unwrap();
        assert_eq!(kept, [plot]);
    }
}
