//! A NIC of ours and QEMU's side by side, and what tests do with the two. All of it panics where a test
//! should fail.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Instant;

use super::{Op, Ours, Script, Theirs, Trace, Verdict, compare, page, shrink};
use crate::oracle::chip::Chip;
use crate::oracle::layout::{VF_WINDOW, VF_WINDOWS};

/// Failing scripts that are cut down and shown before the run ends.
const SHOWN: usize = 5;

static RIG: LazyLock<rig::Rig> =
    LazyLock::new(|| rig::Rig::prepare().unwrap_or_else(|why| panic!("{why}")));

/// A number from the environment.
///
/// # Panics
/// When it is none.
#[must_use]
pub fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}: `{text}`")),
        Err(_) => default,
    }
}

/// Both machines.
pub struct Pair {
    chip: &'static Chip,
    ours: Ours,
    theirs: Theirs,
}

impl Pair {
    /// Starts them.
    ///
    /// # Panics
    /// When QEMU does not start.
    #[must_use]
    pub fn start(chip: &'static Chip) -> Self {
        Self {
            chip,
            ours: Ours(chip),
            theirs: Theirs::start(chip, &RIG).expect("QEMU starts"),
        }
    }

    /// What both let be seen of a script.
    ///
    /// # Panics
    /// When one of them does not come to an end.
    pub fn traces(&mut self, script: &Script) -> (Trace, Trace) {
        let ours = self.ours.run(script).expect("our model comes to an end");
        (ours, self.theirs.run(script).expect("QEMU answers"))
    }

    /// Runs a script through both.
    ///
    /// # Panics
    /// As [`Pair::traces`].
    pub fn check(&mut self, script: &Script) -> Verdict {
        let (ours, theirs) = self.traces(script);
        compare(self.chip, script, &ours, &theirs)
    }

    /// Cuts a failing script down to what shows the same first difference, and describes it.
    fn report(&mut self, name: &str, script: &Script, verdict: &Verdict) -> String {
        // What differs, whichever queue or register of an array it is, and the same bits of it: another
        // difference of the same kind is easily come by.
        let kind = |verdict: &Verdict| {
            let first = verdict.unknown.first()?;
            let (_, what) = first.split_once(": ")?;
            let (_, open) = first.split_once('(')?;
            let what = what.split(':').next()?;
            let what = what.replace(|c: char| c.is_ascii_digit(), "#");
            Some((what, open.to_owned()))
        };
        let wanted = kind(verdict);
        let small = shrink(script, &mut |other| kind(&self.check(other)) == wanted);
        let unknown = self.check(&small).unknown.join("\n    ");
        let whole = verdict.unknown[..verdict.unknown.len().min(3)].join("\n    ");
        let text = self.chip.text(&small);
        format!("{name}:\n    {whole}\n  cut down:\n    {unknown}\n{text}")
    }

    /// Runs scripts; gives how often each entry of the list explained something.
    ///
    /// # Panics
    /// When a difference is not on the list.
    pub fn run(
        &mut self,
        scripts: impl Iterator<Item = (String, Script)>,
    ) -> BTreeMap<&'static str, u64> {
        let start = Instant::now();
        let (mut known, mut compared) = (BTreeMap::new(), 0);
        let (mut agreed, mut all) = (0u64, 0u64);
        let (mut failures, mut more) = (Vec::new(), Vec::new());
        for (name, script) in scripts {
            let verdict = self.check(&script);
            all += 1;
            compared += verdict.compared;
            for (id, n) in &verdict.known {
                *known.entry(*id).or_default() += n;
            }
            if verdict.unknown.is_empty() {
                agreed += 1;
            } else if failures.len() < SHOWN {
                failures.push(self.report(&name, &script, &verdict));
            } else {
                more.push(name);
            }
        }
        eprintln!(
            "oracle of the {}: {agreed} of {all} scripts agree, {compared} values compared in {:.0} s; \
             known differences met: {known:?}",
            self.chip.name,
            start.elapsed().as_secs_f64()
        );
        let shown = failures.join("\n");
        assert_eq!(
            agreed, all,
            "differences that are not on the list:\n{shown}\nand {more:?}"
        );
        known
    }

    /// Runs new scripts, one for each seed: `HYPERNIC_ORACLE_SCRIPTS` and `HYPERNIC_ORACLE_SEED` choose
    /// others than so many from `first` on. Gives how many they were and what explained something.
    ///
    /// # Panics
    /// As [`Pair::run`].
    pub fn run_new(&mut self, first: u64, count: u64) -> (u64, BTreeMap<&'static str, u64>) {
        let first = setting("HYPERNIC_ORACLE_SEED", first);
        let count = setting("HYPERNIC_ORACLE_SCRIPTS", count);
        let generate = self.chip.generate;
        let named = |seed| (format!("seed {seed}"), generate(seed));
        (count, self.run((first..first + count).map(named)))
    }

    /// Scripts that once showed a bug of ours: they agree.
    ///
    /// # Panics
    /// When they do not.
    pub fn regressions(&mut self) {
        for (name, script) in self.chip.scripts("regressions") {
            let verdict = self.check(&script);
            assert_eq!(verdict.unknown, [""; 0], "{name}");
        }
    }

    /// Entries of the list that new scripts meet too seldom to count on it: each has a script of its
    /// name, which meets it.
    ///
    /// # Panics
    /// When one does not.
    pub fn rare(&mut self) {
        for (name, script) in self.chip.scripts("rare") {
            let verdict = self.check(&script);
            assert_eq!(verdict.unknown, [""; 0], "{name}");
            assert!(verdict.known.contains_key(&*name), "{name}: {verdict:?}");
        }
    }
}

impl Chip {
    /// One script for each register, for an array its first and its last (of a virtual function, each),
    /// at every address it has: as it is after a reset, and after ones, zeros and a pattern were written.
    pub fn walk(&self) -> impl Iterator<Item = (String, Script)> {
        let table = (self.table)();
        let aliases = table
            .aliases()
            .iter()
            .map(|a| (a.offset, a.count, a.stride));
        let all = self.registers.iter().map(|r| (r.offset, r.count, r.stride));
        let places = all.chain(aliases).flat_map(|(offset, count, stride)| {
            let last = offset + (count - 1) * stride;
            std::iter::once(offset).chain((count > 1).then_some(last))
        });
        let of_vf = |vf: u32| {
            let window = VF_WINDOWS + VF_WINDOW * vf;
            let all = igb::vf_table().registers().iter();
            all.flat_map(move |r| (0..r.count).map(move |i| window + r.offset + i * r.stride))
        };
        let places: Vec<u32> = places.chain((0..self.vfs).flat_map(of_vf)).collect();
        places.into_iter().map(|at| {
            let mut ops = vec![Op::read(at)];
            for value in [!0, 0, 0xa5a5_a5a5] {
                ops.push(Op::write(at, (self.harmless)(at, value)));
                ops.extend([Op::read(at), Op::read(at)]);
            }
            (self.register_name(at), Script { ops })
        })
    }

    /// Its scripts in a folder, with their names.
    fn scripts(&self, folder: &str) -> Vec<(String, Script)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests")
            .join(self.folder)
            .join(folder);
        let mut scripts = Vec::new();
        for entry in std::fs::read_dir(folder).expect("a folder of scripts") {
            let path = entry.expect("entry").path();
            let text = std::fs::read_to_string(&path).expect("readable");
            let script = text.parse().unwrap_or_else(|why| panic!("{path:?}: {why}"));
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            scripts.push((name.into_owned(), script));
        }
        assert!(!scripts.is_empty());
        scripts
    }

    /// Entries of its list that were not met and have no script of their own.
    ///
    /// # Panics
    /// When there are no such scripts.
    #[must_use]
    pub fn stale(&self, known: &BTreeMap<&'static str, u64>) -> Vec<&'static str> {
        let rare: Vec<String> = self.scripts("rare").into_iter().map(|(id, _)| id).collect();
        let ids = self.differences().into_iter().map(|entry| entry.id);
        ids.filter(|id| !known.contains_key(id) && !rare.iter().any(|rare| rare == id))
            .collect()
    }

    /// Its page is what its list says; `HYPERNIC_WRITE_DOCS=1` writes it again.
    ///
    /// # Panics
    /// When it is not.
    pub fn check_page(&self) {
        let docs: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
        let path = docs.join(self.page);
        if std::env::var_os("HYPERNIC_WRITE_DOCS").is_some() {
            std::fs::write(&path, page(self)).expect("the page can be written");
        }
        let text = std::fs::read_to_string(&path).expect("the page");
        assert_eq!(text, page(self), "HYPERNIC_WRITE_DOCS=1 writes it again");
    }
}
