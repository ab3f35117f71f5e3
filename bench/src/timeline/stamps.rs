//! Stamps of the daemon (its `timeline`), and of the kernel's scheduler (`perf`).

use std::collections::BTreeMap;

/// What a daemon stamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    Woken,
    Turn,
    Read,
    Write,
    Other,
    Answered,
    Port,
    Arrives,
    Arrived,
    Interrupt,
    Signalled,
    Leaves,
    Left,
}

/// Their words in its file.
const STEPS: [(&str, Step); 13] = [
    ("woken", Step::Woken),
    ("turn", Step::Turn),
    ("read", Step::Read),
    ("write", Step::Write),
    ("other", Step::Other),
    ("answered", Step::Answered),
    ("port", Step::Port),
    ("arrives", Step::Arrives),
    ("arrived", Step::Arrived),
    ("interrupt", Step::Interrupt),
    ("signalled", Step::Signalled),
    ("leaves", Step::Leaves),
    ("left", Step::Left),
];

/// One stamp.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    /// Nanoseconds.
    pub at: u64,
    /// The thread's name, blanks as underlines.
    pub thread: String,
    pub step: Step,
    pub number: u64,
}

/// Reads a daemon's file from a place on; and how many stamps were lost.
pub fn read(text: &str) -> (Vec<Stamp>, u64) {
    let mut lost = 0;
    let mut stamps = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [at, thread, word, number] = words[..] else {
            continue;
        };
        let (Ok(at), Ok(number)) = (at.parse(), number.parse()) else {
            continue;
        };
        if word == "lost" {
            lost += number;
        } else if let Some((_, step)) = STEPS.iter().find(|(known, _)| *known == word) {
            stamps.push(Stamp {
                at,
                thread: thread.to_owned(),
                step: *step,
                number,
            });
        }
    }
    // A turn is stamped once it is known that something was said in it.
    stamps.sort_by_key(|stamp| stamp.at);
    (stamps, lost)
}

/// When threads were called, and when they ran then.
#[derive(Debug, Clone, Default)]
pub struct Wakes(BTreeMap<u32, Vec<(u64, u64)>>);

impl Wakes {
    /// From `perf script --ns -F time,event,trace` of `sched_waking` and `sched_switch`.
    pub fn read(text: &str) -> Self {
        let mut called: BTreeMap<u32, u64> = BTreeMap::new();
        let mut wakes = Self::default();
        for line in text.lines() {
            let Some((time, rest)) = line.trim().split_once(": ") else {
                continue;
            };
            let Some(at) = nanoseconds(time) else {
                continue;
            };
            if rest.contains("sched_waking") {
                if let Some(id) = field(rest, " pid=") {
                    called.entry(id).or_insert(at);
                }
            } else if rest.contains("sched_switch")
                && let Some(id) = field(rest, " next_pid=")
                && let Some(since) = called.remove(&id)
            {
                wakes.0.entry(id).or_default().push((since, at));
            }
        }
        wakes
    }

    /// Whether there are any.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The last call of a thread in a time by which it ran.
    pub fn call(&self, thread: u32, from: u64, to: u64) -> Option<u64> {
        let calls = self.0.get(&thread)?;
        let end = calls.partition_point(|(called, _)| *called <= to);
        let (called, _) = calls[..end].last()?;
        (*called >= from).then_some(*called)
    }

    /// Nanoseconds from calls of a thread to its runs within a time.
    pub fn waited(&self, thread: u32, from: u64, to: u64) -> u64 {
        let calls = self.0.get(&thread).map_or(&[][..], Vec::as_slice);
        let begin = calls.partition_point(|(called, _)| *called < from);
        let within = calls[begin..].iter().take_while(|(called, _)| *called < to);
        within.map(|(called, ran)| (*ran).min(to) - called).sum()
    }
}

/// `74775.209243445` in nanoseconds, from the last word of what is in front of the event.
fn nanoseconds(text: &str) -> Option<u64> {
    let (seconds, rest) = text.split_whitespace().last()?.split_once('.')?;
    let seconds: u64 = seconds.parse().ok()?;
    (rest.len() == 9).then_some(seconds * 1_000_000_000 + rest.parse::<u64>().ok()?)
}

fn field(text: &str, name: &str) -> Option<u32> {
    let (_, rest) = text.split_once(name)?;
    let end = rest.find(|c: char| !c.is_ascii_digit());
    rest[..end.unwrap_or(rest.len())].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemons_file_is_read_in_order_of_time() {
        let text = "30 worker-0 read 192\n20 worker-0 turn 0\n0 - lost 4\nnonsense\n";
        let (stamps, lost) = read(text);
        assert_eq!(lost, 4);
        let steps: Vec<_> = stamps.iter().map(|s| (s.at, s.step)).collect();
        assert_eq!(steps, [(20, Step::Turn), (30, Step::Read)]);
        assert_eq!(stamps[1].number, 192);
    }

    #[test]
    fn a_call_and_the_run_that_follows_are_a_wake_up() {
        let text = "\
 5.000000100: sched:sched_waking: comm=port n0 pid=7 prio=120 target_cpu=000
 5.000000150: sched:sched_waking: comm=port n0 pid=7 prio=120 target_cpu=000
 5.000000200: sched:sched_switch: prev_comm=a b prev_pid=3 prev_prio=120 prev_state=S ==> next_comm=port n0 next_pid=7 next_prio=120
 5.000000900: sched:sched_switch: prev_comm=port n0 prev_pid=7 prev_prio=120 prev_state=S ==> next_comm=a next_pid=3 next_prio=120
";
        let wakes = Wakes::read(text);
        let at = |n: u64| 5_000_000_000 + n;
        assert_eq!(wakes.call(7, at(0), at(210)), Some(at(100)));
        assert_eq!(wakes.call(7, at(110), at(210)), None);
        assert_eq!(wakes.waited(7, at(0), at(1000)), 100);
        assert_eq!(wakes.waited(7, at(0), at(160)), 60);
        assert_eq!(wakes.waited(3, at(0), at(1000)), 0);
    }
}
