//! Calls about another process that is to go on.

use std::path::Path;

use control::{Failure, NicStates, UpgradeBegin, UpgradeBegun, UpgradeStates};
use rustix::process::{Signal, getpid, kill_process};

use super::changes::no_nic;
use crate::hex;
use crate::host::Host;
use crate::upgrade;

pub(super) fn states(host: &Host, call: &UpgradeStates) -> Result<NicStates, Failure> {
    let (name, is) = (&call.nic, host.as_is());
    let Some(nic) = is.nics.iter().find(|nic| nic.name == *name) else {
        return Err(no_nic(host, name));
    };
    let [client, state] = match host.states(name) {
        Some(states) => states.map(|bytes| Some(hex::of(&bytes))),
        None => [None, None],
    };
    Ok(NicStates {
        model: nic.model.name.into(),
        client,
        state,
    })
}

/// `trusted`: the caller may name a program. The daemon runs it as itself, so that is for root and the daemon's own user, whatever
/// role others have.
pub(super) fn begin(
    host: &Host,
    call: &UpgradeBegin,
    trusted: bool,
) -> Result<UpgradeBegun, Failure> {
    if call.program.is_some() && !trusted {
        return Err(Failure::NotAllowed {
            needs: "owner".into(),
            role: "owner".into(),
            message: "only root and the daemon's own user may name a program that the daemon becomes; leave it out".into(),
        });
    }
    upgrade::possible(host).map_err(Failure::failed)?;
    let program = match &call.program {
        Some(program) => {
            let path = Path::new(program);
            if !path.is_absolute() {
                return Err(Failure::invalid(format!("{program:?} is no absolute path")));
            }
            upgrade::may_become(path).map_err(Failure::failed)?;
            path.to_owned()
        }
        None => upgrade::program().ok_or_else(|| {
            Failure::failed("the kernel does not say which program runs; name it")
        })?,
    };
    if call.check != Some(true) {
        upgrade::name_program(&program);
        // The signal comes when this call has been answered: the thread that carries calls out is asked to end first.
        let sent = threads::apart(|| kill_process(getpid(), Signal::USR2));
        sent.map_err(|errno| Failure::failed(format!("cannot begin: {errno}")))?;
    }
    Ok(UpgradeBegun {
        program: program.to_string_lossy().into_owned(),
        pid: std::process::id(),
    })
}
