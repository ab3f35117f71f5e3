//! Writes the manual pages into a folder: one for each command, and `hypernic.toml(5)`.
#![forbid(unsafe_code)]

mod pages;
mod roff;

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(dir) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: man DIRECTORY");
        return ExitCode::from(2);
    };
    let written = std::fs::create_dir_all(&dir).and_then(|()| pages::write(&dir));
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("man: {}: {error}", dir.display());
            ExitCode::FAILURE
        }
    }
}
