//! The configuration of a fleet with an 82576: a chip with VFs, and one whose guest has the port
//! itself.

use std::fmt::Write as _;
use std::path::Path;

use villain::Villain;

/// VFs of honest people: a pair, one that talks to the outside, and the tester's.
pub const HONEST: u32 = 4;
/// The tester's VF.
pub const TESTER: u32 = 3;
/// Runs that one villain may have, each with a VF that has not been used before.
pub const RUNS: u32 = 2;

/// The socket of a VF.
pub fn socket(dir: &Path, vf: u32) -> std::path::PathBuf {
    dir.join(format!("vf{vf}.sock"))
}

/// The VF of a villain's run. No run before has used it: one villain's misbehaviour does not count
/// against the next.
pub fn vf_of(villain: &Villain, run: u32) -> u32 {
    let place = villain::vfs().position(|(v, _)| v.id == villain.id);
    HONEST + place.unwrap_or(0) as u32 * RUNS + run
}

/// Both chips as ports of the switch `lan`.
pub fn config(dir: &Path) -> String {
    let sockets = dir.join("vf{}.sock");
    let port = dir.join("pf.sock");
    let vfs = HONEST + villain::vfs().count() as u32 * RUNS;
    let mut toml = format!(
        "[[nic]]\nname = \"pf\"\nmodel = \"82576\"\nsocket-path = {port:?}\n\
         mac = \"52:54:00:76:01:00\"\nport = \"switch:lan\"\n\
         [[nic]]\nname = \"p0\"\nmodel = \"82576\"\nvfs = {vfs}\nvf-socket-path = {sockets:?}\n\
         port = \"switch:lan\"\n"
    );
    let honest = (0..HONEST).map(|n| (n, ""));
    let villains = villain::vfs()
        .flat_map(|(villain, deed)| (0..RUNS).map(move |run| (vf_of(villain, run), deed.policy)));
    for (vf, policy) in honest.chain(villains) {
        let _ = write!(
            toml,
            "[[nic.vf]]\nindex = {vf}\nmac = \"52:54:00:76:00:{vf:02x}\"\n{policy}\n"
        );
    }
    toml
}
