//! Cells: which process serves which NIC, and what joins the same switch in several of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use toml::Spanned;
use vfio_user::MAX_SOCKET_PATH;

use super::raw::{Fault, check_name};
use super::types::{CellsOf, HostConfig, NicConfig, Profile, SocketSpec};
use crate::spec::{NicMac, PortSpec};

/// The cell that every daemon has: it has the control socket, the ports of switches, and the NICs that are in no other.
pub const MAIN: &str = "main";

/// What joins a switch with the same switch in another cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellLink {
    /// The other cell.
    pub cell: String,
    /// The socket on which the two meet.
    pub path: PathBuf,
    /// This side makes it.
    pub listens: bool,
    /// Stations that are there and nowhere else.
    pub stations: Vec<NicMac>,
    /// Nobody else is there.
    pub only: bool,
}

impl CellLink {
    /// The other cell has the ports that lead out.
    pub fn leads_out(&self) -> bool {
        self.cell == MAIN
    }
}

/// The cell that a file's word names.
pub(super) fn named(word: Option<&Spanned<String>>) -> Result<Option<String>, Fault> {
    let Some(word) = word else { return Ok(None) };
    check_name(word)?;
    Ok(Some(word.get_ref().clone()))
}

/// What cannot be in a cell of its own, and why.
fn bound(nic: &NicConfig) -> Option<&'static str> {
    if nic.of_chip().is_some() {
        return Some("the functions of a chip are in the main cell");
    }
    let by_number = matches!(nic.socket, SocketSpec::Fd(_)) || nic.port.fd().is_some();
    by_number
        .then_some("it has a descriptor, which another process has not: give it a path or a name")
}

impl HostConfig {
    /// Gives each NIC its cell, once all else is known of it.
    pub(super) fn share_out(&mut self) -> Result<(), Fault> {
        let of = self.cells.unwrap_or(match self.profile {
            Profile::MultiTenant if self.control.is_some() => CellsOf::Tenant,
            _ => CellsOf::One,
        });
        for nic in &mut self.nics {
            if nic.cell.as_deref() == Some(MAIN) {
                (nic.cell, nic.stays) = (None, true);
            }
            if let Some(cell) = &nic.cell {
                if let Some(why) = bound(nic) {
                    let message = format!(
                        "NIC \"{}\" cannot be in the cell \"{cell}\": {why}",
                        nic.name
                    );
                    return Err(Fault(None, message));
                }
            } else if of == CellsOf::Tenant
                && !nic.stays
                && bound(nic).is_none()
                && nic.tenant != MAIN
            {
                nic.cell = Some(nic.tenant.clone());
            }
        }
        let Some(nic) = self.nics.iter().find(|nic| nic.cell.is_some()) else {
            return Ok(());
        };
        let Some(control) = &self.control else {
            let message = format!(
                "NIC \"{}\" is in a cell, and cells are reached by the control socket: add control = \"PATH\"",
                nic.name
            );
            return Err(Fault(None, message));
        };
        for cell in self.cell_names() {
            let path = control_of(control, &cell);
            if path.as_os_str().len() > MAX_SOCKET_PATH {
                let message = format!(
                    "the control socket of the cell \"{cell}\" would be {}, which is longer than a socket's path may be: \
                     shorten control or the cell's name",
                    path.display()
                );
                return Err(Fault(None, message));
            }
        }
        // Cells have keepers, and somebody has to start them.
        self.keeper = true;
        self.private_apart()
    }

    /// A private NIC reaches uplinks only. What comes from the main cell is from uplinks, so no NIC may be there.
    fn private_apart(&self) -> Result<(), Fault> {
        let of_switch = |nic: &NicConfig| match &nic.port {
            PortSpec::Switch(name) if nic.of_chip().is_none() => Some(name.clone()),
            _ => None,
        };
        for private in self.nics.iter().filter(|nic| nic.guard.private) {
            let Some(switch) = of_switch(private) else {
                continue;
            };
            let beside = |nic: &&NicConfig| of_switch(nic).as_ref() == Some(&switch);
            let on_it: Vec<_> = self.nics.iter().filter(beside).collect();
            let stays = on_it.iter().find(|nic| nic.cell.is_none());
            if let Some(nic) = stays.filter(|_| on_it.iter().any(|nic| nic.cell.is_some())) {
                let message = format!(
                    "NIC \"{}\" is private on switch \"{switch}\", whose NICs are in several cells: give \"{}\" a cell too, or \
                     all of them none",
                    private.name, nic.name
                );
                return Err(Fault(None, message));
            }
        }
        Ok(())
    }

    /// Its cells besides the main one.
    pub fn cell_names(&self) -> BTreeSet<String> {
        self.nics
            .iter()
            .filter_map(|nic| nic.cell.clone())
            .collect()
    }

    /// The cell that this process is.
    pub fn own_cell(&self) -> Option<&str> {
        self.said.cell.as_deref()
    }

    /// Where this process is reached.
    pub fn own_control(&self) -> Option<PathBuf> {
        let control = self.control.as_ref()?;
        Some(match self.own_cell() {
            Some(cell) => control_of(control, cell),
            None => control.clone(),
        })
    }

    /// Whether this process serves a NIC.
    pub fn is_own(&self, nic: &NicConfig) -> bool {
        nic.cell.as_deref() == self.own_cell()
    }

    /// What joins each switch of this process with the same one in other cells. A switch that is in no other one has no entry.
    pub fn links(&self) -> BTreeMap<String, Vec<CellLink>> {
        let mut links = BTreeMap::new();
        let Some(control) = self
            .control
            .as_ref()
            .filter(|_| self.nics.iter().any(|nic| nic.cell.is_some()))
        else {
            return links;
        };
        // By switch and cell.
        let mut all: BTreeMap<&str, BTreeMap<&str, Vec<&NicConfig>>> = BTreeMap::new();
        for nic in self.nics.iter().filter(|nic| nic.of_chip().is_none()) {
            if let PortSpec::Switch(switch) = &nic.port {
                let cell = nic.cell.as_deref().unwrap_or(MAIN);
                all.entry(switch)
                    .or_default()
                    .entry(cell)
                    .or_default()
                    .push(nic);
            }
        }
        let own = self.own_cell().unwrap_or(MAIN);
        for (switch, mut cells) in all {
            // There the ports are.
            cells.entry(MAIN).or_default();
            if cells.len() < 2 || !cells.contains_key(own) {
                continue;
            }
            let others = cells.iter().filter(|(cell, _)| **cell != own);
            let of_switch = others.map(|(cell, nics)| link(control, switch, own, cell, nics));
            links.insert(switch.to_owned(), of_switch.collect());
        }
        links
    }
}

fn link(control: &Path, switch: &str, own: &str, cell: &str, nics: &[&NicConfig]) -> CellLink {
    let locked = |nic: &&NicConfig| {
        let mac = nic.mac_lock.then_some(nic.mac);
        let more = nic.guard.allow_macs.iter().map(|mac| NicMac(mac.0));
        let all: Vec<_> = mac.into_iter().chain(more).collect();
        all
    };
    let stations: Vec<Vec<NicMac>> = nics.iter().map(locked).collect();
    let only = cell != MAIN && stations.iter().all(|macs| !macs.is_empty());
    let (first, second) = if is_first(own, cell) {
        (own, cell)
    } else {
        (cell, own)
    };
    let listens = first == own;
    CellLink {
        cell: cell.to_owned(),
        path: ring_of(control, switch, first, second),
        listens,
        stations: stations.into_iter().flatten().collect(),
        only,
    }
}

/// Which of two cells makes the socket: the main one, which is there first.
fn is_first(one: &str, other: &str) -> bool {
    (one != MAIN, one) < (other != MAIN, other)
}

/// Where a cell's own control socket is.
pub fn control_of(control: &Path, cell: &str) -> PathBuf {
    with(control, &format!(".cell-{cell}"))
}

/// Where two cells meet for a switch. Their names could be too long for a path.
fn ring_of(control: &Path, switch: &str, first: &str, second: &str) -> PathBuf {
    let names = [switch, first, second].join("/");
    // FNV-1a; names have no "/".
    let hash = names.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    with(control, &format!(".ring-{hash:016x}"))
}

fn with(path: &Path, end: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(end);
    path.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Result<HostConfig, String> {
        let parsed = HostConfig::parse("h.toml".as_ref(), text);
        parsed.map_err(|error| error.to_string())
    }

    fn nic(name: &str, words: &str) -> String {
        format!(
            "[[nic]]\nname = \"{name}\"\nsocket-path = \"/run/{name}\"\nport = \"switch:lan\"\n{words}\n"
        )
    }

    fn text(head: &str, nics: &[String]) -> String {
        format!(
            "{head}\n[[switch]]\nname = \"lan\"\nports = [\"null\"]\n{}",
            nics.concat()
        )
    }

    const CONTROL: &str = "control = \"/run/c\"";

    #[test]
    fn each_process_serves_its_own_and_all_meet_at_the_same_sockets() {
        let nics = [
            nic("a", "cell = \"x\"\nmac-lock = true"),
            nic("b", "cell = \"y\""),
            nic("c", ""),
            nic("d", "cell = \"main\""),
        ];
        let host = host(&text(CONTROL, &nics)).expect("good");
        assert!(host.keeper, "somebody has to start them");
        let again = HostConfig::parse("h.toml".as_ref(), &host.to_text()).expect("good");
        assert_eq!(again.nics, host.nics);
        let of = |cell: Option<&str>| {
            let mut host = host.clone();
            host.said.cell = cell.map(str::to_owned);
            let own: Vec<_> = host
                .nics
                .iter()
                .filter(|nic| host.is_own(nic))
                .map(|nic| nic.name.clone())
                .collect();
            (own, host.links().remove("lan").expect("linked"))
        };
        let (main, x, y) = (of(None), of(Some("x")), of(Some("y")));
        assert_eq!(
            (main.0, &x.0[..], &y.0[..]),
            (
                vec!["c".into(), "d".into()],
                &["a".to_owned()][..],
                &["b".to_owned()][..]
            )
        );
        let find = |links: &[CellLink], cell: &str| {
            links
                .iter()
                .find(|link| link.cell == cell)
                .cloned()
                .expect("a link")
        };
        for (own, links, other, back) in [
            ("main", &main.1, "x", &x.1),
            ("main", &main.1, "y", &y.1),
            ("x", &x.1, "y", &y.1),
        ] {
            let (there, here) = (find(links, other), find(back, own));
            assert_eq!(there.path, here.path, "{own} {other}");
            assert!(there.listens && !here.listens, "{own} {other}");
        }
        let mut paths: Vec<_> = [&main.1, &x.1, &y.1]
            .into_iter()
            .flatten()
            .map(|link| &link.path)
            .collect();
        paths.sort();
        paths.dedup();
        assert_eq!(paths.len(), 3);
        let (locked, open) = (find(&main.1, "x"), find(&main.1, "y"));
        assert!(locked.only && locked.stations.len() == 1);
        assert!(!open.only && open.stations.is_empty());
        assert!(find(&x.1, "main").leads_out() && !find(&x.1, "main").only);
    }

    #[test]
    fn tenants_have_cells_of_their_own_in_the_profile_for_them() {
        let nics = [
            nic("a", "tenant = \"t\""),
            nic("b", "tenant = \"t\""),
            nic("c", ""),
            nic("d", "cell = \"main\""),
        ];
        let of = |head: &str| {
            let host = host(&text(head, &nics)).expect("good");
            let cells = host.nics.iter().map(|nic| nic.cell.clone());
            cells.collect::<Vec<_>>()
        };
        let some = |cell: &str| Some(cell.to_owned());
        let multi = format!("{CONTROL}\nprofile = \"multi-tenant\"");
        let each = [some("t"), some("t"), some("c"), None];
        assert_eq!(of(&multi), each);
        assert_eq!(of(&format!("{CONTROL}\ncells = \"tenant\"")), each);
        let none = [None, None, None, None];
        assert_eq!(of(&format!("{multi}\ncells = \"one\"")), none);
        assert_eq!(
            of("profile = \"multi-tenant\""),
            none,
            "they could not be reached"
        );
        assert_eq!(of(CONTROL), none);
    }

    #[test]
    fn what_cannot_be_in_a_cell_is_told_in_one_line() {
        let long = format!("control = \"/run/{}\"", "c".repeat(100));
        let by_number = nic("a", "cell = \"x\"").replace("socket-path = \"/run/a\"", "fd = 5");
        let chip = nic(
            "p",
            "cell = \"x\"\nmodel = \"82576\"\nvfs = 2\nvf-socket-path = \"/run/{}\"",
        )
        .replace("socket-path = \"/run/p\"\n", "");
        let private = nic("a", "cell = \"x\"\nguard = { private = true }");
        for (head, nics, named) in [
            ("", vec![nic("a", "cell = \"x\"")], "add control"),
            (
                &*long,
                vec![nic("a", "cell = \"x\"")],
                "longer than a socket's path",
            ),
            (CONTROL, vec![by_number], "has a descriptor"),
            (CONTROL, vec![chip], "functions of a chip"),
            (CONTROL, vec![nic("a", "cell = \"x/y\"")], "bad name"),
            (
                CONTROL,
                vec![private.clone(), nic("b", "")],
                "give \"b\" a cell too",
            ),
        ] {
            let error = host(&text(head, &nics)).expect_err(named);
            assert!(
                error.contains(named) && !error.contains('\n'),
                "{named}: {error}"
            );
        }
        host(&text(CONTROL, &[private, nic("b", "cell = \"y\"")])).expect("all are in cells");
    }
}
