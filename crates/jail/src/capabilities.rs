//! Capabilities: all but those that the plan needs go, of the process first and then of each thread that says its kind.

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};

use crate::plan::{Plan, Role};

/// Of the process, before it has threads.
pub(crate) fn drop_process(plan: &Plan) -> Result<(), Errno> {
    let had = capabilities(None)?;
    let mut keep = CapabilitySet::empty();
    keep.set(CapabilitySet::NET_ADMIN, plan.taps);
    // A network takes ports of the host before it is confined itself.
    let binds = plan.role == Role::Launcher;
    keep.set(CapabilitySet::NET_BIND_SERVICE, binds);
    let keep = keep & had.permitted;
    // Without CAP_SETPCAP it stays, and then no program can be started that would gain from it: no new privileges.
    for one in CapabilitySet::all()
        .iter()
        .filter(|one| !keep.contains(*one))
    {
        let _ = remove_capability_from_bounding_set(one);
    }
    let _ = clear_ambient_capability_set();
    set(keep)
}

/// Of this thread.
pub(crate) fn drop_thread() {
    // To give up rights is never refused.
    let _ = set(CapabilitySet::empty());
}

fn set(keep: CapabilitySet) -> Result<(), Errno> {
    let sets = CapabilitySets {
        effective: keep,
        permitted: keep,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets)
}

/// How many this thread has.
pub(crate) fn count() -> u32 {
    capabilities(None).map_or(0, |sets| sets.effective.bits().count_ones())
}
