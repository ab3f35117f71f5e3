//! `docs/villains.md`, made from the table.

use std::fmt::Write as _;

use crate::{Moves, Program, all, guests, pfs, vfs, vmms};

const HEAD: &str = "# Villains

What hostile guests and hostile VMMs do to the 82540EM, to functions of the 82576 and to their
sockets, one small program each (`tests/villain/src/`). Made by `make docs` from the table there; a
test holds this page to it.

Every *guest*, be its NIC an 82540EM or a *PF* or *VF* of the 82576, runs against the bare model
(`tests/tests/villain/model.rs`, `functions.rs`) and, through a real socket, against the
`hypernic` process (`tests/tests/villain/daemon/`); every *VMM* runs against the process only, for
what it abuses is the socket. Each passes only if

- the daemon lives, and none of its threads has panicked;
- the next good request is answered within 100 ms, and after a reset a driver comes up and sends;
- two honest NICs on the same switch, exchanging numbered frames all the while, miss none; beside
  functions these are two VFs of the villain's chip, and a third with an 82540EM outside of it;
- after the villain has left, the daemon's anonymous memory, mapped guest memory, descriptors and
  threads are what they were before it came;
- the counters in the last column have grown: those of its own NIC or switch port, and what the
  software PF of its chip keeps of it.

A VF that is *shut down* is one no more until its operator revives it: its registers answer, its link
is down, its mailbox is not heard, and the counter `vf_shut_down` says so.

";

/// The page.
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    let _ = write!(
        page,
        "{} programs: {} guests, {} VMMs, {} PFs, {} VFs.\n\n\
         | id | by | after | what it does | counted as |\n|---|---|---|---|---|\n",
        all().len(),
        guests().count(),
        vmms().count(),
        pfs().count(),
        vfs().count(),
    );
    for villain in all() {
        let by = match villain.program {
            Program::Guest(_) => "guest",
            Program::Vmm(_) => "VMM",
            Program::Pf(_) => "PF",
            Program::Vf(deed) if deed.shut_down => "VF, shut down",
            Program::Vf(_) => "VF",
        };
        let counted = match villain.moves {
            Moves::Counters(names) => {
                let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
                names.join(", ")
            }
            Moves::Nothing(why) => format!("nothing: {why}"),
        };
        let _ = writeln!(
            page,
            "| `{}` | {by} | {} | {} | {counted} |",
            villain.id, villain.class, villain.name
        );
    }
    page
}
