//! What workers and cells may do at most, whatever the worker before or the main process says that they serve: a guest may have taken
//! that over. The keeper knows it from the operator, before there is a worker, and all others have it of the keeper.

use std::path::{Component, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use jail::{Mode, Plan};
use serde::{Deserialize, Serialize};

/// The variable of the environment in which a keeper tells them to its cells, and to the program that goes on in its place.
const VARIABLE: &str = "HYPERNIC_LIMITS";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Limits {
    mode: String,
    network: bool,
    taps: bool,
    /// Where files are made and written.
    written: Vec<PathBuf>,
    /// What user networks serve besides.
    served: Vec<PathBuf>,
}

/// Those of this process. `None`: without a keeper, or with one of an older program, which has told none.
static LIMITS: OnceLock<Limits> = OnceLock::new();

/// To be called in a keeper, before there is a worker. `plan` and the folders that user networks serve are what its configuration
/// asks for: the operator's, but in a cell.
pub(crate) fn begin(is_cell: bool, plan: &Plan, served: &[PathBuf]) {
    let told = std::env::var(VARIABLE)
        .ok()
        .map(|text| Limits::parse(&text));
    let limits = match keeper::goes_on() || is_cell {
        false => Some(Limits::of(plan, served)),
        true if is_cell => told,
        // What runs goes on, and what the file says by now may be done too.
        true => told.map(|told| told.and(Limits::of(plan, served))),
    };
    if let Some(limits) = limits {
        let _ = LIMITS.set(limits);
    }
}

/// Tells them to a process.
pub(crate) fn tell(command: &mut Command) {
    if let Some(limits) = LIMITS.get() {
        // Paths that are no text are in no configuration.
        command.env(VARIABLE, serde_json::to_string(limits).unwrap_or_default());
    }
}

/// A plan within the limits.
pub(crate) fn hold(plan: Plan) -> Plan {
    match LIMITS.get() {
        Some(limits) => limits.hold(plan),
        None => plan,
    }
}

/// Those of these folders that user networks may serve.
pub(crate) fn served(folders: Vec<PathBuf>) -> Vec<PathBuf> {
    match LIMITS.get() {
        Some(limits) => within(folders, &[&limits.served[..], &limits.written].concat()),
        None => folders,
    }
}

/// Where this daemon may make and write files; none, if it may everywhere, or nobody knows.
pub(crate) fn written() -> &'static [PathBuf] {
    let limits = LIMITS.get().filter(|limits| limits.is_confined());
    limits.map_or(&[], |limits| &limits.written)
}

impl Limits {
    fn of(plan: &Plan, served: &[PathBuf]) -> Self {
        Self {
            mode: plan.mode.name().into(),
            network: plan.network,
            taps: plan.taps,
            written: plan.folders.iter().filter_map(real).collect(),
            served: served.iter().filter_map(real).collect(),
        }
    }

    /// Nothing is allowed by a text that says nothing.
    fn parse(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_else(|_| Self {
            mode: Mode::Strict.name().into(),
            network: false,
            taps: false,
            written: Vec::new(),
            served: Vec::new(),
        })
    }

    /// Either, in the mode of the first.
    fn and(mut self, other: Self) -> Self {
        self.network |= other.network;
        self.taps |= other.taps;
        self.written.extend(other.written);
        self.served.extend(other.served);
        self
    }

    fn mode(&self) -> Mode {
        self.mode.parse().unwrap_or(Mode::Strict)
    }

    /// Whether files are restricted.
    fn is_confined(&self) -> bool {
        matches!(self.mode(), Mode::Default | Mode::Strict)
    }

    fn hold(&self, mut plan: Plan) -> Plan {
        plan.mode = self.mode();
        plan.network &= self.network;
        plan.taps &= self.taps;
        if !plan.taps {
            plan.devices.clear();
        }
        plan.folders = within(plan.folders, &self.written);
        plan
    }
}

/// A folder as it is on disk. It may be made later, but then nobody knows where dots lead.
fn real(folder: &PathBuf) -> Option<PathBuf> {
    let whole = || std::path::absolute(folder).ok();
    let has_dots = |path: &PathBuf| path.components().any(|part| part == Component::ParentDir);
    let real = folder.canonicalize().ok();
    real.or_else(|| whole().filter(|whole| !has_dots(whole)))
}

/// Those of these folders that lie in others.
fn within(folders: Vec<PathBuf>, others: &[PathBuf]) -> Vec<PathBuf> {
    let lies = |folder: &PathBuf| {
        let real = real(folder);
        real.is_some_and(|real| others.iter().any(|other| real.starts_with(other)))
    };
    folders.into_iter().filter(lies).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn asked(folders: &[&Path]) -> Plan {
        Plan {
            folders: folders.iter().map(PathBuf::from).collect(),
            ..Plan::default()
        }
    }

    #[test]
    fn what_a_worker_says_is_held_to_what_the_operator_said() {
        let dir = tempfile::tempdir().expect("a folder");
        let vms = dir.path().join("vms");
        // One that is made later.
        let later = dir.path().join("later");
        std::fs::create_dir(&vms).expect("a folder");
        let operators = Limits::of(&asked(&[&vms, &later]), &[]);
        assert!(operators.is_confined());
        // Its own folder, and one inside.
        let inside = vms.join("a");
        let held = operators.hold(asked(&[&vms, &inside, &later]));
        assert_eq!(held.folders.len(), 3, "{:?}", held.folders);
        // A sandbox that is off, files elsewhere, a network and TAPs; a way out by dots or a link is none.
        let link = vms.join("link");
        std::os::unix::fs::symlink("/etc", &link).expect("a link");
        let (dots, beside) = (vms.join("../.."), dir.path().join("vms2"));
        let nowhere = vms.join("nothing/../../..");
        let all = [
            dir.path(),
            Path::new("/usr/bin"),
            &link,
            &dots,
            &beside,
            &nowhere,
        ];
        let held = operators.hold(Plan {
            mode: Mode::Off,
            network: true,
            taps: true,
            devices: vec!["/dev/net/tun".into()],
            ..asked(&all)
        });
        assert_eq!((held.mode, held.network), (Mode::Default, false));
        assert_eq!((held.taps, held.devices.len()), (false, 0));
        assert!(held.folders.is_empty(), "{:?}", held.folders);
    }

    #[test]
    fn they_are_told_and_what_says_nothing_allows_nothing() {
        let limits = Limits::of(&asked(&[Path::new("/run")]), &["/srv".into()]);
        let text = serde_json::to_string(&limits).expect("text");
        assert_eq!(Limits::parse(&text), limits);
        for text in ["", "{}", "[1]"] {
            let nothing = Limits::parse(text);
            assert!(nothing.written.is_empty() && !nothing.network, "{text}");
            assert_eq!(nothing.mode(), Mode::Strict);
        }
        let both = Limits::parse("").and(limits.clone());
        assert_eq!((both.mode(), both.written), (Mode::Strict, limits.written));
    }
}
