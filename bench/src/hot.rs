//! Cache lines that a turn touches of its NICs alone, as valgrind's `lackey` tells of it: what a thread finds in no cache that has
//! served many others meanwhile. Guests' memories are left out, and what turns of other NICs touch too: stack, tables, switch.
//!
//! `hypernic-bench hot` prints the table.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::Ordering;

use crate::error::{Error, Result};
use crate::inside::fleet::Fleet;
use crate::lines::{self, Access, MARK};
use crate::spec::Spec;

/// The word that prints the table; with a case behind it, the program that is watched.
pub const WORD: &str = "hot";
/// Who sends in the turns that are watched: one to its partner, another to its own; then the partners.
const TURNS: [usize; 4] = [0, 2, 1, 3];
const RING: u32 = 128;

fn cases() -> [(&'static str, Spec); 4] {
    let frames = |burst| Spec::frames(60, RING, burst);
    [
        ("82540EM, bursts of 32", frames(32)),
        ("82540EM, one by one", frames(1)),
        ("82576 VF, bursts of 32", frames(32).between_vfs()),
        ("82576 VF, one by one", frames(1).between_vfs()),
    ]
}

/// The table, or with a case the program that is watched.
///
/// # Errors
/// No such case, or no valgrind.
pub fn run(case: Option<&str>) -> Result<()> {
    if let Some(case) = case {
        let case = case
            .parse::<usize>()
            .ok()
            .and_then(|at| cases().get(at).copied());
        let (_, spec) = case.ok_or_else(|| Error::Usage("no such case".to_owned()))?;
        return watched(spec);
    }
    println!(
        "{:<26} one way   both ways, each NIC   (lines of its own)",
        "60 bytes"
    );
    for (at, (name, _)) in cases().iter().enumerate() {
        let mut watch = Watch::default();
        lines::told_of([WORD, &at.to_string()], |line| watch.line(line))?;
        let (one_way, both) = watch
            .finish()
            .ok_or_else(|| Error::tool("valgrind", "the turns are not in what it tells"))?;
        println!("{name:<26} {one_way:>7} {:>21.1}", both as f64 / 2.0);
    }
    Ok(())
}

fn watched(spec: Spec) -> Result<()> {
    let mut fleet = Fleet::watched(4, spec);
    lines::say(&fleet.memories())?;
    fleet.round();
    for (mark, at) in (1..).zip(TURNS) {
        MARK.store(mark, Ordering::SeqCst);
        fleet.turn(at);
    }
    MARK.store(0, Ordering::SeqCst);
    Ok(())
}

/// Follows what is told, line by line.
#[derive(Debug, Default)]
struct Watch {
    mark: Option<u64>,
    memories: Vec<Range<u64>>,
    /// How often the mark has been written.
    marks: usize,
    touched: [BTreeSet<u64>; TURNS.len()],
}

impl Watch {
    fn line(&mut self, line: &str) {
        if let Some(said) = lines::heard(line) {
            (self.mark, self.memories) = said;
        } else if self.mark.is_some()
            && let Some(access) = Access::parse(line)
        {
            if access.writes && Some(access.at) == self.mark {
                self.marks += 1;
            } else if let Some(turn) = self.marks.checked_sub(1)
                && let Some(touched) = self.touched.get_mut(turn)
                && !self.memories.iter().any(|m| m.contains(&access.at))
            {
                touched.extend(access.lines());
            }
        }
    }

    /// Lines of the first turn's NICs alone, and of the first and the third.
    fn finish(self) -> Option<(usize, usize)> {
        let [there, other, back, other_back] = self.touched;
        let alone = |of: &BTreeSet<u64>, others: &BTreeSet<u64>| of.difference(others).count();
        let one_way = alone(&there, &other);
        let both = alone(&(&there | &back), &(&other | &other_back));
        (self.marks > TURNS.len()).then_some((one_way, both))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_turns_of_others_touch_too_is_not_a_nics_own() {
        let said = format!(
            "{}{{\"mark\":4096,\"memories\":[[65536,131072]]}}",
            lines::SAID
        );
        let turns = [
            [" L 2000,8", " S 3000,8", " L 10000,8"],
            [" L 2000,8", " S 4000,8", " L 1f000,8"],
            [" L 2000,8", " S 3040,8", " L 5000,8"],
            [" L 2000,8", " S 4040,8", " L 6000,8"],
        ];
        let mut watch = Watch::default();
        watch.line(" L 7000,8");
        watch.line(&said);
        for turn in turns {
            watch.line(" S 1000,8");
            turn.iter().for_each(|line| watch.line(line));
        }
        watch.line(" S 1000,8");
        assert_eq!(watch.finish(), Some((1, 3)));
        assert_eq!(Watch::default().finish(), None);
    }
}
