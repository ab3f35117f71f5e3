//! What other processes of this daemon serve: NICs that are only known here, and what joins the switches of all of them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::Host;
use super::far::{Losses, NicState};
use crate::cell_calls::{self, Patience};
use crate::config::cells::{MAIN, control_of};
use crate::config::{ChipConfig, HostConfig, NicConfig};
use crate::error::Error;
use crate::report::Section;

/// How long cells are asked for their losses after a monitor has last looked. It looks each second.
const WANTED: Duration = Duration::from_secs(5);

/// How often a cell is asked again what it has done of moves, if that cannot be followed.
const LOOKS: u32 = 5;

/// More counters of losses than a NIC, with its ports, or a switch has.
const COUNTERS: usize = 256;

/// Kinds of counters that each process has of itself.
const OF_PROCESSES: [&str; 6] = ["worker", "tenant", "cell", "control", "sandbox", "process"];

/// The longest name of a port: paths of sockets are shorter.
const LONGEST_PORT: usize = 256;

/// The NICs and chips of a cell.
fn of_cell<'a>(config: &'a HostConfig, cell: &str) -> (Vec<&'a NicConfig>, Vec<&'a ChipConfig>) {
    let nics = config.nics.iter();
    let chips = config.chips.iter();
    (
        nics.filter(|nic| nic.cell.as_deref() == Some(cell))
            .collect(),
        chips
            .filter(|chip| chip.cell.as_deref() == Some(cell))
            .collect(),
    )
}

/// The keeper starts these cells, with this text, and ends all others.
fn keep_cells<'a>(text: &str, cells: impl Iterator<Item = &'a String>) -> Result<(), Error> {
    cell_calls::keep(text, cells).map_err(|source| Error::Os {
        what: "cannot tell the keeper which cells there are",
        source,
    })
}

fn no_keeper(what: &str) -> Error {
    Error::Host(format!(
        "{what}, and a keeper starts cells: start the daemon with one (without --no-keeper, and keeper = false)"
    ))
}

impl Host {
    /// Notes a NIC that another process serves.
    ///
    /// # Errors
    /// There is nobody to start that process.
    pub(crate) fn add_far_nic(&mut self, config: &NicConfig) -> Result<(), Error> {
        if self.head.own_cell().is_none() && keeper::current().is_none() {
            return Err(no_keeper(&format!("{} is in a cell", config.name)));
        }
        self.far.nics.insert(config.name.clone(), config.clone());
        Ok(())
    }

    /// Whether other processes serve some of its NICs, or did.
    pub(crate) fn has_cells(&self) -> bool {
        let is_one = self.head.own_cell().is_some();
        is_one || !self.far.nics.is_empty() || self.far.told.is_some()
    }

    /// A chip that another process has.
    pub(crate) fn far_chip(&self, name: &str) -> Option<&ChipConfig> {
        self.far.chips.get(name)
    }

    /// A NIC that another process serves.
    pub(crate) fn far_nic(&self, name: &str) -> Option<&NicConfig> {
        self.far.nics.get(name)
    }

    /// Where the cells of this daemon answer, if it is the main one.
    pub(crate) fn cells(&self) -> BTreeMap<String, PathBuf> {
        let Some(control) = self
            .head
            .control
            .as_ref()
            .filter(|_| self.head.own_cell().is_none())
        else {
            return BTreeMap::new();
        };
        let names = self.far.nics.values().filter_map(|nic| nic.cell.as_ref());
        names
            .map(|cell| (cell.clone(), control_of(control, cell)))
            .collect()
    }

    /// How the NICs of a cell are. `None`: it does not answer, and VMMs have none of them.
    pub(crate) fn note_cell(&self, cell: &str, states: Option<BTreeMap<String, NicState>>) {
        let mut known = self.far.states.lock();
        let is_of_cell = |nic: &String| {
            let far = self.far.nics.get(nic);
            far.is_some_and(|nic| nic.cell.as_deref() == Some(cell))
        };
        known.retain(|nic, _| self.far.nics.contains_key(nic) && !is_of_cell(nic));
        let states = states.unwrap_or_default().into_iter();
        known.extend(states.filter(|(nic, _)| is_of_cell(nic)));
    }

    /// A monitor looks at what cells lose.
    pub(crate) fn want_losses(&self, now: Instant) {
        if !self.has_cells() {
            return;
        }
        let before = self.far.losses_wanted.lock().replace(now);
        // What they had lost when they were asked last says nothing of now.
        if before.is_none_or(|at| now.saturating_duration_since(at) >= WANTED) {
            self.far.losses.lock().clear();
        }
    }

    /// Whether one has looked lately.
    pub(crate) fn are_losses_wanted(&self) -> bool {
        let wanted = *self.far.losses_wanted.lock();
        wanted.is_some_and(|at| at.elapsed() < WANTED)
    }

    /// What a cell has lost by now. Of others it says nothing here, and of its own no more than they have counters.
    pub(crate) fn note_losses(&self, cell: &str, losses: Losses) {
        let most = COUNTERS * (self.far.nics.len() + self.far.chips.len() + self.switches.len());
        let mut own = Losses::new();
        let mut others = 0;
        // What its process counts of itself is nobody's here.
        let told = losses.into_iter();
        for (of, n) in told.filter(|((kind, ..), _)| !OF_PROCESSES.contains(kind)) {
            if own.len() < most && self.counts_in(cell, &of.1) {
                own.insert(of, n);
            } else {
                others += 1;
            }
        }
        let mut refused = self.far.refused_losses.lock();
        refused.retain(|cell, _| self.is_process(cell));
        *refused.entry(cell.to_owned()).or_default() += others;
        self.far.losses.lock().insert(cell.to_owned(), own);
    }

    /// What this process counts of each cell.
    pub(super) fn cell_sections(&self) -> impl Iterator<Item = Section> {
        let refused = self.far.refused_losses.lock().clone();
        self.cells().into_keys().map(move |name| {
            let refused = refused.get(&name).copied().unwrap_or_default();
            Section {
                kind: "cell",
                name,
                values: vec![("cell_losses_refused", refused)],
            }
        })
    }

    /// Whether a cell counts what has this name: a NIC or chip of its own, a port of that, its port on a switch, or a ring to another
    /// process.
    fn counts_in(&self, cell: &str, name: &str) -> bool {
        let own = |name: &str| {
            let nic = self.far.nics.get(name).map(|nic| &nic.cell);
            let chip = self.far.chips.get(name).map(|chip| &chip.cell);
            let is = |of: Option<&Option<String>>| of.is_some_and(|of| of.as_deref() == Some(cell));
            is(nic) || is(chip)
        };
        let Some((first, rest)) = name.split_once('/') else {
            return own(name);
        };
        if self.switches.contains_key(first) {
            let ring = rest.split_once('>');
            return own(rest) || ring.is_some_and(|(from, to)| from == cell && self.is_process(to));
        }
        own(first) && rest.len() <= LONGEST_PORT
    }

    /// Whether a process of this daemon has this name.
    fn is_process(&self, name: &str) -> bool {
        let mut nics = self.far.nics.values();
        name == MAIN || nics.any(|nic| nic.cell.as_deref() == Some(name))
    }

    /// What cells have lost, each as it has answered last.
    pub(crate) fn far_losses(&self) -> BTreeMap<String, Losses> {
        let cells = self.cells();
        let mut known = self.far.losses.lock();
        known.retain(|cell, _| cells.contains_key(cell));
        known.clone()
    }

    /// The text for a cell that was not there when something changed.
    pub(crate) fn stale_text(&self, cell: &str) -> Option<String> {
        let is_stale = self.far.stale.lock().contains(cell);
        is_stale.then(|| self.configuration().to_text())
    }

    /// It knows all that there was to know at this generation.
    pub(crate) fn is_told(&self, cell: &str, generation: u64) {
        if self.generation() == generation {
            self.far.stale.lock().remove(cell);
        }
    }

    /// A cell may have done a step of a move that is not noted here.
    pub(crate) fn match_moves_of(&self, cell: &str) {
        let mut unmatched = self.far.unmatched.lock();
        unmatched.entry(cell.to_owned()).or_insert(LOOKS);
    }

    /// Whether that is so.
    pub(crate) fn is_unmatched(&self, cell: &str) -> bool {
        self.far.unmatched.lock().contains_key(cell)
    }

    /// A cell was asked. One that has much to tell, or answers late, costs the others no more than some looks.
    pub(crate) fn has_matched(&self, cell: &str, all: bool) {
        let mut unmatched = self.far.unmatched.lock();
        if let Some(looks) = unmatched.get_mut(cell) {
            *looks -= 1;
            if all || *looks == 0 {
                unmatched.remove(cell);
            }
        }
    }

    /// Starts a cell that has no NIC yet, beside the others.
    ///
    /// # Errors
    /// There is nobody to start it.
    pub(crate) fn start_cell(&self, cell: &str) -> Result<(), Error> {
        if keeper::current().is_none() {
            return Err(no_keeper(&format!("{cell} would be a cell")));
        }
        let (cells, new) = (self.cells(), cell.to_owned());
        let text = self.configuration().to_text();
        keep_cells(&text, cells.keys().chain([&new]))
    }

    /// Ends cells that have no NIC.
    pub(crate) fn end_unused_cells(&self) {
        let text = self.configuration().to_text();
        if let Err(error) = keep_cells(&text, self.cells().keys()) {
            tracing::error!("{error}");
        }
    }

    /// Has all processes be as this host says, after something has changed: its switches meet those of cells, and the main process
    /// starts cells, tells them what they serve, and ends them.
    ///
    /// # Errors
    /// A cell cannot do what is asked of it, or is not there to be asked.
    pub(crate) fn settle(&mut self) -> Result<(), Error> {
        self.settle_with(false)
    }

    /// As [`Host::settle`]. `going_back`: after a cell has failed, which is not waited for again.
    ///
    /// # Errors
    /// As [`Host::settle`].
    pub(super) fn settle_with(&mut self, going_back: bool) -> Result<(), Error> {
        if !self.has_cells() {
            // Of a worker before this one some may be left.
            if self.gate.is_some() {
                threads::apart(|| keeper::end_other_cells(&[]));
            }
            return Ok(());
        }
        let is = self.configuration();
        let mut links = is.links();
        for (name, running) in &mut self.switches {
            let of_switch = links.remove(name).unwrap_or_default();
            running.set_links(is.own_cell(), &of_switch);
        }
        for (switch, cell) in std::mem::take(&mut self.far.gone) {
            if let Some(running) = self.switches.get(&switch) {
                running.forget_link(&cell);
            }
        }
        if is.own_cell().is_some() || keeper::current().is_none() {
            return Ok(());
        }
        if self.far.told.as_ref() == Some(&is) {
            return Ok(());
        }
        let text = is.to_text();
        let cells = self.cells();
        self.tell_leaving(&text, &cells);
        keep_cells(&text, cells.keys())?;
        let before = self.far.told.replace(is.clone());
        if self.gate.is_some() {
            // They are about to start, or were there before this worker: they are told when they answer.
            cells.keys().for_each(|cell| self.match_moves_of(cell));
            self.far.stale.lock().extend(cells.into_keys());
            return Ok(());
        }
        self.far
            .stale
            .lock()
            .retain(|cell| cells.contains_key(cell));
        self.tell_cells(&before.unwrap_or_default(), &is, &cells, going_back)
    }

    /// Those that are about to end give up their NICs at once: another process may get their sockets. They end anyway.
    fn tell_leaving(&self, text: &str, stay: &BTreeMap<String, PathBuf>) {
        let Some((before, control)) = self.far.told.as_ref().zip(self.head.control.as_ref()) else {
            return;
        };
        let leaving = before.cell_names().into_iter();
        for cell in leaving.filter(|cell| !stay.contains_key(cell)) {
            let _ = cell_calls::tell(&control_of(control, &cell), text, Patience::LITTLE);
        }
    }

    /// Tells cells what there is now.
    fn tell_cells(
        &self,
        before: &HostConfig,
        is: &HostConfig,
        cells: &BTreeMap<String, PathBuf>,
        going_back: bool,
    ) -> Result<(), Error> {
        let text = is.to_text();
        let known = before.cell_names();
        let mut failed = None;
        for (cell, path) in cells {
            let same = of_cell(before, cell) == of_cell(is, cell);
            let was_absent = self.far.stale.lock().contains(cell);
            let patience = match (same, known.contains(cell)) {
                // It is told as soon as it answers.
                (true, _) if was_absent => continue,
                _ if was_absent && going_back => Patience::LITTLE,
                (true, _) => Patience::LITTLE,
                (false, true) => Patience::SOME,
                (false, false) => Patience::MUCH,
            };
            match cell_calls::tell(path, &text, patience) {
                Ok(()) => {}
                Err(cell_calls::Untold::Absent(_)) if same => {
                    self.far.stale.lock().insert(cell.clone());
                }
                Err(why) => {
                    self.far.stale.lock().insert(cell.clone());
                    failed.get_or_insert(format!("the cell {cell}: {why}"));
                }
            }
        }
        failed.map_or(Ok(()), |why| Err(Error::Host(why)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_tells_of_its_own_losses_only() {
        let mut text = String::from("control = \"/run/c\"\n[[switch]]\nname = \"lan\"\n");
        for (nic, cell) in [("a", "x"), ("b", "y"), ("m", "main")] {
            text += &format!(
                "[[nic]]\nname = \"{nic}\"\nsocket-path = \"/run/{nic}\"\nport = \"switch:lan\"\ncell = \"{cell}\"\n"
            );
        }
        text += "[[nic]]\nname = \"p\"\nmodel = \"82576\"\nvfs = 1\nvf-socket-path = \"/run/{}\"\nport = \"switch:lan\"\n\
                 cell = \"x\"\n";
        let config = HostConfig::parse("host.toml".as_ref(), &text).expect("good");
        let mut host = Host::start(&HostConfig::default()).expect("a host");
        host.add_switch(&config.switches[0]).expect("a switch");
        for nic in config.nics.iter().filter(|nic| nic.cell.is_some()) {
            host.far.nics.insert(nic.name.clone(), nic.clone());
        }
        host.add_chip(&config.chips[0]).expect("noted");
        for (name, own) in [
            ("a", true),
            ("lan/a", true),
            ("a/stream:/run/s", true),
            ("lan/x>y", true),
            ("lan/x>main", true),
            ("p", true),
            ("p/wire", true),
            ("p/pvf0", true),
            ("lan/p", true),
            ("b", false),
            ("m", false),
            ("lan/b", false),
            ("lan/y>x", false),
            ("lan/x>z", false),
            ("wan/a", false),
            ("0", false),
            ("", false),
        ] {
            assert_eq!(host.counts_in("x", name), own, "{name}");
        }
        for name in ["p", "p/wire", "lan/p"] {
            assert!(!host.counts_in("y", name), "{name}");
        }
        assert!(!host.remove_chip("p"), "it has a function");
        host.far.nics.remove("pvf0");
        assert!(host.remove_chip("p") && !host.counts_in("x", "p"));
        assert!(!host.counts_in("x", &format!("a/{}", "p".repeat(1000))));
        // However many counters it makes up.
        let losses = (0..100_000).map(|n| (("port", format!("a/{n}"), "drop"), n));
        host.note_losses("x", losses.collect());
        let kept = host.far.losses.lock()["x"].len();
        assert!((1..=1024).contains(&kept), "{kept}");
        let refused = |host: &Host| host.far.refused_losses.lock()["x"];
        assert_eq!(refused(&host), 100_000 - kept as u64);
        // What others count is refused too, what its process counts of itself is only left out.
        let told = [
            ("nic", "b", "rx_missed"),
            ("nic", "a", "rx_missed"),
            ("process", "hypernic", "worker_hangs"),
        ];
        let told = told.map(|(kind, name, counter)| ((kind, name.to_owned(), counter), 1));
        host.note_losses("x", told.into());
        assert_eq!(refused(&host), 100_001 - kept as u64);
        assert_eq!(host.far.losses.lock()["x"].len(), 1);
        // After a while in which nobody wanted to know, what was known is old.
        let now = Instant::now();
        host.want_losses(now);
        assert!(host.far.losses.lock().is_empty() && host.are_losses_wanted());
        host.note_losses("x", [(("nic", "a".into(), "drop"), 1)].into());
        host.want_losses(now + WANTED / 2);
        assert_eq!(host.far.losses.lock().len(), 1);
        host.want_losses(now + WANTED * 2);
        assert!(host.far.losses.lock().is_empty());
    }

    #[test]
    fn a_cell_that_cannot_be_followed_is_asked_a_few_times_and_no_more() {
        let host = Host::start(&HostConfig::default()).expect("a host");
        assert!(!host.is_unmatched("x"));
        host.match_moves_of("x");
        for _ in 0..LOOKS {
            assert!(host.is_unmatched("x"));
            // As a call does that it does not answer while it is followed.
            host.match_moves_of("x");
            host.has_matched("x", false);
        }
        assert!(!host.is_unmatched("x"));
        host.match_moves_of("x");
        host.has_matched("x", true);
        assert!(!host.is_unmatched("x"));
    }
}
