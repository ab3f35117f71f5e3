//! `docs/villains.md`, made from the table.

use std::fmt::Write as _;

use crate::{Moves, Program, all};

const HEAD: &str = "# Villains

What hostile guests and hostile VMMs do to the 82540EM and its socket, one small program each
(`tests/villain/src/`). Made by `make docs` from the table there; a test holds this page to it.

Every *guest* runs against the bare model (`tests/tests/villain_model.rs`) and, through a real
socket, against the `hypernic` process (`tests/tests/villain_daemon/`); every *VMM* runs against
the process only, for what it abuses is the socket. Each passes only if

- the daemon lives, and none of its threads has panicked;
- the next good request is answered within 100 ms, and after a reset a driver comes up and sends;
- two honest NICs on the same switch, exchanging numbered frames all the while, miss none;
- after the villain has left, the daemon's anonymous memory, mapped guest memory, descriptors and
  threads are what they were before it came;
- the counters in the last column have grown: those of its own NIC or switch port.

";

/// The page.
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    let guests = all()
        .iter()
        .filter(|v| matches!(v.program, Program::Guest(_)));
    let guests = guests.count();
    let _ = write!(
        page,
        "{} programs: {guests} guests, {} VMMs.\n\n\
         | id | by | after | what it does | counted as |\n|---|---|---|---|---|\n",
        all().len(),
        all().len() - guests,
    );
    for villain in all() {
        let by = match villain.program {
            Program::Guest(_) => "guest",
            Program::Vmm(_) => "VMM",
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
