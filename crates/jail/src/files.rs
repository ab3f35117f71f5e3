//! Files: Landlock.

use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope, make_bitflags,
};

use crate::plan::Plan;

/// The newest interface that is asked for. V9 adds connections to sockets by path, which no test could see yet.
const NEWEST: ABI = ABI::V8;

/// What is done in the folders of sockets, captures and EEPROM files.
fn within_folders() -> BitFlags<AccessFs> {
    make_bitflags!(AccessFs::{
        ReadFile | ReadDir | WriteFile | Truncate | MakeReg | MakeSock | RemoveFile
    })
}

/// Restricts this thread and those it will make. The version that holds, and the folders as the kernel knows them.
pub(crate) fn restrict(plan: &Plan) -> Result<(u8, Vec<PathBuf>), String> {
    let said = |error: landlock::RulesetError| error.to_string();
    let mut rules = Ruleset::default()
        // An older kernel has fewer rights to take away.
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))
        .and_then(|rules| rules.scope(Scope::from_all(NEWEST)))
        .and_then(Ruleset::create)
        .map_err(said)?;
    let mut folders = Vec::new();
    let tun = make_bitflags!(AccessFs::{ReadFile | WriteFile | IoctlDev});
    let read = make_bitflags!(AccessFs::{ReadFile});
    let wanted = plan.folders.iter().map(|path| (path, within_folders()));
    let wanted = wanted.chain(plan.devices.iter().map(|path| (path, tun)));
    let wanted = wanted.chain(plan.readable.iter().map(|path| (path, read)));
    for (path, access) in wanted {
        // What is not there needs no right; who names it is told when it is opened.
        let Ok(file) = PathFd::new(path) else {
            continue;
        };
        // Some rights are for folders only.
        let access = if path.is_dir() {
            access
        } else {
            access & AccessFs::from_file(NEWEST)
        };
        rules = rules
            .add_rule(PathBeneath::new(file, access))
            .map_err(said)?;
        if access == within_folders() {
            folders.extend(path.canonicalize());
        }
    }
    let status = rules.restrict_self().map_err(said)?;
    let version = match status.landlock {
        LandlockStatus::Available { effective_abi, .. } => effective_abi.min(NEWEST) as u8,
        _ => 0,
    };
    match status.ruleset {
        RulesetStatus::NotEnforced => Err("the kernel has none, or it is switched off".into()),
        _ => Ok((version, folders)),
    }
}
