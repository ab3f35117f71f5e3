//! Cells: which process serves which NIC, and what joins the same switch in several of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use pf::Policy;
use toml::Spanned;
use vfio_user::MAX_SOCKET_PATH;

use super::raw::{Fault, check_name};
use super::types::{CellsOf, ChipConfig, HostConfig, NicConfig, PfOwner, Profile, SocketSpec};
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

/// Whether chips of a tenant are in that one's cell by `cells = "tenant"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// They are.
    Holds,
    /// Of a host that runs, each chip in a cell says so. One that does not is of a program before this one, which had all of them
    /// in the main cell: there VMMs have its functions.
    HeldBefore,
}

/// What needs a descriptor that only the main process has.
const BOUND: &str = "it has a descriptor, which another process has not: give it a path or a name";

fn is_bound(nic: &NicConfig) -> bool {
    matches!(nic.socket, SocketSpec::Fd(_)) || nic.port.fd().is_some()
}

/// Where something is: by its own word, or in the cell that a rule has for it.
fn place(
    (kind, name): (&str, &str),
    (cell, stays): (&mut Option<String>, &mut bool),
    is_bound: bool,
    by_rule: Option<&str>,
) -> Result<(), Fault> {
    if cell.as_deref() == Some(MAIN) {
        (*cell, *stays) = (None, true);
    }
    match cell {
        Some(cell) if is_bound => {
            let message = format!("{kind} \"{name}\" cannot be in the cell \"{cell}\": {BOUND}");
            return Err(Fault(None, message));
        }
        None if !*stays && !is_bound => {
            let tenant = by_rule.filter(|tenant| *tenant != MAIN);
            *cell = tenant.map(str::to_owned);
        }
        _ => {}
    }
    Ok(())
}

/// The functions of a chip.
#[derive(Default)]
struct Functions<'a> {
    tenants: BTreeSet<&'a str>,
    is_bound: bool,
}

impl Functions<'_> {
    /// Whose all of them are.
    fn tenant(&self) -> Option<&str> {
        let one = self.tenants.first().copied();
        one.filter(|_| self.tenants.len() == 1)
    }
}

/// Where chips are, by name: the cell, and whether they stay in the main one by their own word.
type Places = BTreeMap<String, (Option<String>, bool)>;

impl HostConfig {
    /// Gives each NIC and chip its cell, once all else is known of it.
    pub(super) fn share_out(&mut self, rule: Rule) -> Result<(), Fault> {
        let of = self.cells.unwrap_or(match self.profile {
            Profile::MultiTenant if self.control.is_some() => CellsOf::Tenant,
            _ => CellsOf::One,
        });
        let by_tenant = of == CellsOf::Tenant;
        let places = self.place_chips(by_tenant, rule)?;
        for nic in &mut self.nics {
            // A function is where its chip is.
            if let Some(at) = nic.of_chip().and_then(|chip| places.get(chip)) {
                (nic.cell, nic.stays) = at.clone();
                continue;
            }
            let bound = is_bound(nic);
            let tenant = by_tenant.then_some(nic.tenant.as_str());
            let at = (&mut nic.cell, &mut nic.stays);
            place(("NIC", &nic.name), at, bound, tenant)?;
        }
        let Some(nic) = self.nics.iter().find(|nic| nic.cell.is_some()) else {
            return Ok(());
        };
        if !self.keeper {
            let message = format!(
                "NIC \"{}\" is in a cell, and the keeper starts cells: leave out keeper = false",
                nic.name
            );
            return Err(Fault(None, message));
        }
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
        match rule {
            Rule::Holds => self.private_apart(),
            // It was let in before, and its VMMs go on.
            Rule::HeldBefore => Ok(()),
        }
    }

    /// Gives each chip its cell.
    fn place_chips(&mut self, by_tenant: bool, rule: Rule) -> Result<Places, Fault> {
        let mut all: BTreeMap<&str, Functions<'_>> = BTreeMap::new();
        for nic in &self.nics {
            if let Some(chip) = nic.of_chip() {
                let functions = all.entry(chip).or_default();
                functions.tenants.insert(&nic.tenant);
                functions.is_bound |= is_bound(nic);
            }
        }
        let mut places = Places::new();
        for chip in &mut self.chips {
            let functions = all.remove(chip.name.as_str()).unwrap_or_default();
            let bound = functions.is_bound || chip.port.fd().is_some();
            let tenant = functions.tenant().filter(|_| by_tenant);
            let said = chip.cell.is_some();
            let at = (&mut chip.cell, &mut chip.stays);
            place(("chip", &chip.name), at, bound, tenant)?;
            if rule == Rule::HeldBefore && !said && chip.cell.is_some() {
                (chip.cell, chip.stays) = (None, true);
            }
            places.insert(chip.name.clone(), (chip.cell.clone(), chip.stays));
        }
        Ok(places)
    }

    /// The NICs and chips on switches: the switch, the name and the cell.
    fn members(&self) -> impl Iterator<Item = (&str, &str, Option<&String>)> {
        let alone = self.nics.iter().filter(|nic| nic.of_chip().is_none());
        let nics = alone.map(|nic| (&nic.port, &nic.name, &nic.cell));
        let chips = self.chips.iter();
        let chips = chips.map(|chip| (&chip.port, &chip.name, &chip.cell));
        nics.chain(chips)
            .filter_map(|(port, name, cell)| match port {
                PortSpec::Switch(switch) => Some((switch.as_str(), name.as_str(), cell.as_ref())),
                _ => None,
            })
    }

    /// A private NIC reaches uplinks only. What comes from the main cell is from uplinks, so no NIC or chip may be there.
    fn private_apart(&self) -> Result<(), Fault> {
        let privates = self.nics.iter().filter(|nic| nic.guard.private);
        for private in privates {
            let PortSpec::Switch(switch) = &private.port else {
                continue;
            };
            let on_it = || self.members().filter(|(on, ..)| on == switch);
            let stays = on_it().find(|(_, _, cell)| cell.is_none());
            if let Some((_, name, _)) = stays.filter(|_| on_it().any(|(_, _, cell)| cell.is_some()))
            {
                let message = format!(
                    "NIC \"{}\" is private on switch \"{switch}\", whose NICs are in several cells: give \"{name}\" a cell too, or \
                     all of them none",
                    private.name
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

    /// Whether this process has a chip.
    pub fn is_own_chip(&self, chip: &ChipConfig) -> bool {
        chip.cell.as_deref() == self.own_cell()
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
        let chips = self.chips.iter();
        let chips: BTreeMap<_, _> = chips.map(|chip| (chip.name.as_str(), chip)).collect();
        // By switch and cell: the stations of each NIC, of VFs too.
        let mut all: BTreeMap<&str, BTreeMap<&str, Vec<Vec<NicMac>>>> = BTreeMap::new();
        for nic in &self.nics {
            let chip = nic.of_chip().map(|chip| chips.get(chip.as_str()));
            let (port, stations) = match chip {
                None => (&nic.port, stations(nic)),
                Some(Some(chip)) => (&chip.port, stations_of_function(nic, chip)),
                Some(None) => continue,
            };
            if let PortSpec::Switch(switch) = port {
                let cells = all.entry(switch).or_default();
                let cell = nic.cell.as_deref().unwrap_or(MAIN);
                cells.entry(cell).or_default().push(stations);
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
            let of_switch = others.map(|(cell, all)| link(control, switch, own, cell, all));
            links.insert(switch.to_owned(), of_switch.collect());
        }
        links
    }
}

/// The only stations of a NIC; none, if it may have any.
fn stations(nic: &NicConfig) -> Vec<NicMac> {
    let mac = nic.mac_lock.then_some(nic.mac);
    let more = nic.guard.allow_macs.iter().map(|mac| NicMac(mac.0));
    mac.into_iter().chain(more).collect()
}

/// The same of a function of a chip: a VF keeps an address that the operator has given it, unless it is trusted. A guest's PF says
/// itself what its VFs may do.
fn stations_of_function(nic: &NicConfig, chip: &ChipConfig) -> Vec<NicMac> {
    let policy = nic.vf.as_ref().map(|vf| &vf.policy);
    let keeps = |policy: &&Policy| policy.mac_set && policy.spoof_check && !policy.trust;
    let locked = policy.filter(|policy| chip.pf == PfOwner::Daemon && keeps(policy));
    locked
        .map(|policy| NicMac(policy.mac.0))
        .into_iter()
        .collect()
}

fn link(control: &Path, switch: &str, own: &str, cell: &str, stations: &[Vec<NicMac>]) -> CellLink {
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
        stations: stations.iter().flatten().copied().collect(),
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

    fn chip(name: &str, words: &str) -> String {
        let words =
            format!("model = \"82576\"\nvfs = 2\nvf-socket-path = \"/run/{name}-{{}}\"\n{words}");
        nic(name, &words).replace(&format!("socket-path = \"/run/{name}\"\n"), "")
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

    /// The cells of chips, and of their functions.
    fn of_chips(host: &HostConfig) -> (Vec<Option<&str>>, Vec<Option<&str>>) {
        let functions = host.nics.iter().filter(|nic| nic.of_chip().is_some());
        (
            host.chips.iter().map(|chip| chip.cell.as_deref()).collect(),
            functions.map(|nic| nic.cell.as_deref()).collect(),
        )
    }

    #[test]
    fn all_functions_of_a_chip_are_in_its_cell_and_it_joins_its_switch_there() {
        let locked = |index: u32| {
            let mac = format!("02:00:00:00:00:0{index}");
            format!("[[nic.vf]]\nindex = {index}\nmac = \"{mac}\"\n")
        };
        let all_locked = format!("cell = \"x\"\n{}{}", locked(0), locked(1));
        let parsed = |chips: &[String]| host(&text(CONTROL, chips)).expect("good");
        let linked = |host: &HostConfig, cell: &str| {
            let links = host.links().remove("lan").expect("linked");
            let link = links.into_iter().find(|link| link.cell == cell);
            link.expect("a link")
        };
        let guest = nic(
            "p",
            "cell = \"x\"\nmodel = \"82576\"\npf = \"guest\"\nvfs = 2\nvf-socket-path = \"/run/p-{}\"",
        );
        let trusted = format!("{all_locked}trust = true\n");
        let unchecked = format!("{all_locked}spoofchk = false\n");
        let one = format!("cell = \"x\"\n{}", locked(1));
        for (words, functions, stations, only) in [
            (chip("p", &all_locked), 2, 2, true),
            (chip("p", &trusted), 2, 1, false),
            (chip("p", &unchecked), 2, 1, false),
            (chip("p", &one), 2, 1, false),
            (chip("p", "cell = \"x\""), 2, 0, false),
            (guest, 3, 0, false),
        ] {
            let host = parsed(std::slice::from_ref(&words));
            let in_x = vec![Some("x"); functions];
            assert_eq!(of_chips(&host), (vec![Some("x")], in_x), "{words}");
            assert!(host.keeper, "somebody has to start it");
            let link = linked(&host, "x");
            assert_eq!(
                (link.stations.len(), link.only),
                (stations, only),
                "{words}"
            );
            let again = HostConfig::parse("h.toml".as_ref(), &host.to_text()).expect("good");
            assert_eq!(again.chips, host.chips);
            assert_eq!(again.to_text(), host.to_text());
            let control = host.chip_words("p").expect("words");
            let anew = host.without_chip("p").chip_beside(&control);
            assert_eq!(anew.expect("good").chips, host.chips);
            let mut cell = host.clone();
            cell.said.cell = Some("x".into());
            assert!(cell.is_own_chip(&cell.chips[0]) && !host.is_own_chip(&host.chips[0]));
            assert!(linked(&cell, MAIN).leads_out());
        }
        // In the main one its VFs are known there, and what they send is an uplink's.
        let beside = nic("a", "cell = \"x\"");
        let words = chip("p", &format!("{}{}", locked(0), locked(1)));
        let mut host = parsed(&[beside, words]);
        host.said.cell = Some("x".into());
        let link = linked(&host, MAIN);
        assert_eq!((link.stations.len(), link.only), (2, false));
    }

    #[test]
    fn a_chip_of_one_tenant_is_in_that_ones_cell_and_one_of_several_in_the_main_one() {
        let shared = "tenant = \"t\"\n[[nic.vf]]\nindex = 1\ntenant = \"u\"";
        let stays = "tenant = \"t\"\ncell = \"main\"";
        let by_number = chip("d", "tenant = \"t\"").replace("switch:lan", "stream:fd=5");
        let chips = [
            chip("a", "tenant = \"t\""),
            chip("b", shared),
            chip("c", stays),
            by_number,
            chip("e", &format!("cell = \"x\"\n{shared}")),
            chip("f", ""),
        ];
        let text = text(&format!("{CONTROL}\ncells = \"tenant\""), &chips);
        let host = host(&text).expect("good");
        let (cells, functions) = of_chips(&host);
        let wanted = [Some("t"), None, None, None, Some("x"), None];
        assert_eq!(cells, wanted);
        let each: Vec<_> = wanted.iter().flat_map(|cell| [*cell, *cell]).collect();
        assert_eq!(functions, each);
        let again = HostConfig::parse("h.toml".as_ref(), &host.to_text()).expect("good");
        assert_eq!(again.chips, host.chips);
        // What a program said that had no chips in cells: its VMMs have these VFs in the main process.
        let before = HostConfig::parse_running("h.toml".as_ref(), &text).expect("good");
        let (cells, _) = of_chips(&before);
        assert_eq!(cells, [None, None, None, None, Some("x"), None]);
        assert_eq!(
            before.chips[1], host.chips[1],
            "the rule has nothing for it"
        );
        let goes_on = HostConfig::parse("h.toml".as_ref(), &before.to_text()).expect("good");
        assert_eq!(goes_on.chips, before.chips, "and so it stays");
        let goes_on = HostConfig::parse_running("h.toml".as_ref(), &host.to_text());
        assert_eq!(goes_on.expect("good").chips, host.chips);
        // Nor does it end because that program let in what this one does not.
        let mixed = format!(
            "{text}{}",
            nic("z", "cell = \"x\"\nguard = { private = true }")
        );
        HostConfig::parse("h.toml".as_ref(), &mixed).expect_err("chips are in the main one");
        HostConfig::parse_running("h.toml".as_ref(), &mixed).expect("it goes on");
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
        let by_port = chip("p", "cell = \"x\"").replace("switch:lan", "stream:fd=5");
        let guests = "cell = \"x\"\npf = \"guest\"\nfd = 5";
        let elsewhere = chip("p", "cell = \"x\"\n[[nic.vf]]\nindex = 1\ncell = \"y\"");
        let private = nic("a", "cell = \"x\"\nguard = { private = true }");
        for (head, nics, named) in [
            ("", vec![nic("a", "cell = \"x\"")], "add control"),
            (
                "keeper = false\ncontrol = \"/run/c\"",
                vec![nic("a", "cell = \"x\"")],
                "leave out keeper = false",
            ),
            (
                &*long,
                vec![nic("a", "cell = \"x\"")],
                "longer than a socket's path",
            ),
            (CONTROL, vec![by_number], "has a descriptor"),
            (CONTROL, vec![by_port], "chip \"p\" cannot be in the cell"),
            (CONTROL, vec![chip("p", guests)], "has a descriptor"),
            (CONTROL, vec![elsewhere], "VF 1 is in the cell of its chip"),
            (
                CONTROL,
                vec![private.clone(), chip("p", "")],
                "give \"p\" a cell too",
            ),
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
        host(&text(CONTROL, &[private.clone(), nic("b", "cell = \"y\"")])).expect("in cells");
        host(&text(CONTROL, &[private, chip("p", "cell = \"y\"")])).expect("in cells");
        let same = "cell = \"x\"\n[[nic.vf]]\nindex = 1\ncell = \"x\"";
        host(&text(CONTROL, &[chip("p", same)])).expect("it is the chip's");
    }
}
