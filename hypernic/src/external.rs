//! Programs of their own that are run as commands: `hypernic NAME` is `hypernic-NAME`, as git finds its own.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use program::LogFormat;

use crate::error::Error;

/// Where `hypernic-NAME` may be: beside this program, then in the folders of PATH.
fn places(program: &OsStr, beside: Option<&Path>, path: Option<&OsStr>) -> Vec<PathBuf> {
    let on_path = path.map(std::env::split_paths).into_iter().flatten();
    let folders = beside.map(Path::to_owned).into_iter().chain(on_path);
    folders.map(|folder| folder.join(program)).collect()
}

/// Becomes `hypernic-NAME` with the other words, and what was said before them. Returns only when it cannot.
pub fn run(words: &[OsString], format: LogFormat, verbose: u8) -> Error {
    let Some((name, rest)) = words.split_first() else {
        return Error::Usage("there is no command".into());
    };
    let unknown =
        |why: &str| Error::Usage(format!("there is no command \"{}\": {why}", name.display()));
    if name.is_empty() || name.as_bytes().contains(&b'/') {
        return unknown("see hypernic --help");
    }
    let mut program = OsString::from("hypernic-");
    program.push(name);
    let own = std::env::current_exe().ok();
    let beside = own.as_deref().and_then(Path::parent);
    let path = std::env::var_os("PATH");
    let places = places(&program, beside, path.as_deref());
    // A folder of PATH that cannot be searched is passed over, as a shell does.
    if let Some(place) = places.into_iter().find(|place| place.is_file()) {
        let mut command = Command::new(&place);
        if format == LogFormat::Json {
            command.args(["--log-format", "json"]);
        }
        command.args((0..verbose).map(|_| "-v")).args(rest);
        let source = command.exec();
        return Error::Program {
            program: place,
            source,
        };
    }
    unknown(&format!(
        "hypernic has no such command, and there is no program {} beside hypernic or on PATH; see hypernic --help",
        program.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_beside_comes_before_one_on_the_path() {
        let found = places(
            OsStr::new("hypernic-x"),
            Some(Path::new("/opt/h")),
            Some(OsStr::new("/a:/b")),
        );
        let expected = ["/opt/h/hypernic-x", "/a/hypernic-x", "/b/hypernic-x"];
        assert_eq!(found, expected.map(PathBuf::from));
    }

    #[test]
    fn what_no_program_answers_to_is_named() {
        for (name, what) in [("no-such-tool", "hypernic-no-such-tool"), ("../x", "../x")] {
            let error = run(&[name.into()], LogFormat::Human, 0).to_string();
            assert!(error.contains(what) && error.contains("--help"), "{error}");
        }
    }
}
