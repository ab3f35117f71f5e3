//! System calls: seccomp.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter, apply_filter_all_threads,
};
use threads::Kind;

use crate::calls::{self, Call};
use crate::fatal;
use crate::plan::{Mode, Plan, Role};

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Restricts the whole process.
pub(crate) fn process(plan: &Plan) -> Result<(), String> {
    let daemon = [
        calls::PROCESS,
        calls::FORMS,
        calls::DATA,
        calls::PORT,
        calls::NETWORK,
        calls::REFUSED,
    ];
    let launcher = [calls::LAUNCHER, calls::LIBRARY, calls::FORMS];
    let network = [calls::LIBRARY];
    let all: &[&[Call]] = match plan.role {
        Role::Daemon => &daemon,
        Role::Launcher => &launcher,
        Role::Network => &network,
    };
    let mut rules = rules(plan, plan.role.name(), all);
    if plan.role == Role::Daemon && rules.contains_key(&libc::SYS_socket) {
        // Unix sockets only.
        let family = SeccompCondition::new(
            0,
            SeccompCmpArgLen::Dword,
            SeccompCmpOp::Eq,
            libc::AF_UNIX as u64,
        );
        let unix = family.and_then(|unix| SeccompRule::new(vec![unix]));
        let unix = unix.map_err(|error| error.to_string())?;
        rules.insert(libc::SYS_socket, vec![unix]);
    }
    let program = compile(rules, other(plan), SeccompAction::Allow)?;
    apply_filter_all_threads(&program).map_err(|error| error.to_string())
}

/// Restricts this thread, which may do what the process may.
pub(crate) fn thread(plan: &Plan, kind: Kind) {
    let (name, allowed) = calls::of(kind);
    fatal::set_kind(name);
    let refused = rules(plan, name, &[calls::REFUSED, calls::CHECKED]);
    let mut allowed = rules(plan, name, allowed);
    allowed.extend(refused.clone());
    let filters = [
        // What the C library can do without fails for it, by an error that is nobody's fault: a lock that waits for a time
        // looks at it after a stop. The kernel takes the stricter of two answers.
        compile(
            refused,
            SeccompAction::Allow,
            SeccompAction::Errno(libc::EINTR as u32),
        ),
        compile(allowed, other(plan), SeccompAction::Allow),
    ];
    for filter in filters {
        // The same kernel has taken the filter of the process.
        let done = filter.and_then(|filter| apply_filter(&filter).map_err(|e| e.to_string()));
        done.expect("a kernel that filters the process filters a thread");
    }
}

/// What becomes of every other call.
fn other(plan: &Plan) -> SeccompAction {
    match plan.mode {
        Mode::Log => SeccompAction::Log,
        _ => SeccompAction::Trap,
    }
}

fn rules(plan: &Plan, kind: &str, lists: &[&[Call]]) -> Rules {
    let left_out = |call: &Call| {
        let without = plan
            .without
            .as_deref()
            .and_then(|text| text.split_once(':'));
        without == Some((kind, call.name))
    };
    let calls = lists.iter().flat_map(|list| list.iter());
    let calls = calls.filter(|call| !left_out(call));
    calls.map(|call| (call.number, Vec::new())).collect()
}

fn compile(rules: Rules, other: SeccompAction, these: SeccompAction) -> Result<BpfProgram, String> {
    let arch = std::env::consts::ARCH
        .try_into()
        .map_err(|error: seccompiler::BackendError| error.to_string())?;
    let filter = SeccompFilter::new(rules, other, these, arch);
    let program = filter.and_then(TryInto::try_into);
    program.map_err(|error: seccompiler::BackendError| error.to_string())
}
