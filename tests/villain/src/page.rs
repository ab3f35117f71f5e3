//! `docs/villains.md`, made from the table.

use std::fmt::Write as _;

use crate::catalogue::{all, fronts, guests, nets, pfs, rtls, vfs, vmms};
use crate::villain::{Moves, Program};

const HEAD: &str = "# Villains

Each small program (`tests/villain/src/`) does what a hostile guest or VMM may do to the 82540EM, to functions of the 82576, to a
virtio-net, to an RTL8168C, or to their sockets. `make docs` writes this page from the table there; a test fails when it is stale.

Every *guest* (on an 82540EM, on a *PF* or *VF* of the 82576, on a *virtio-net*, or on an *RTL8168C*) runs against the bare model
(`tests/tests/villain/model.rs`, `functions.rs`, `net.rs`, `rtl.rs`) and, through a real socket, against the `hypernic` process
(`tests/tests/villain/daemon/`). Every *VMM* (at a vfio-user socket) and *front end* (at a vhost-user socket) runs against the process
only, because it abuses the socket. A program passes only if

- the daemon lives, and none of its threads has panicked;
- the next good request is answered within 100 ms, and after a reset a driver comes up and sends;
- two honest NICs on the same switch, which exchange numbered frames meanwhile, miss none. Beside functions these are two VFs of the
  villain's chip, and a third one with an 82540EM outside it;
- their frames are no more than 50 times slower than right after it, in the same run, by the 99th percentile of latency and by rate;
- no turn of a worker made more than 4096 copies of frames;
- after the villain has left, the daemon's anonymous memory, mapped guest memory, descriptors and threads are what they were before;
- the counters in the last column have grown: those of the villain's NIC or switch port, or the software PF's records.

A VF that is *shut down* stays unusable until the operator revives it: its registers answer, its link is down, its mailbox is ignored, and
the counter `vf_shut_down` counts it.

";

/// The page.
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    let _ = write!(
        page,
        "{} programs: {} guests, {} VMMs, {} PFs, {} VFs, {} guests of a virtio-net, {} of an RTL8168C, {} front ends.\n\n\
         | id | by | after | what it does | counted as |\n|---|---|---|---|---|\n",
        all().len(),
        guests().count(),
        vmms().count(),
        pfs().count(),
        vfs().count(),
        nets().count(),
        rtls().count(),
        fronts().count(),
    );
    for villain in all() {
        let by = match villain.program {
            Program::Guest(_) => "guest",
            Program::Vmm(_) => "VMM",
            Program::Net(_) => "virtio-net",
            Program::Rtl(_) => "RTL8168C",
            Program::Front(_) => "front end",
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
