//! What was noted, and what it says of each NIC.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::error::{Error, Result};

/// What a NIC does between two marks: its name, and what one of it is.
pub const SCENES: [(&str, &str); 3] = [
    ("rtt", "round trip"),
    ("rx", "1448 bytes received"),
    ("tx", "1448 bytes sent"),
];

/// What had been counted when a mark was made.
#[derive(Debug, Clone, Default)]
pub struct Mark {
    /// The NIC whose turn it was, and what had just been done.
    pub nic: usize,
    pub after: String,
    /// The inner guest's interrupts of that NIC.
    pub interrupts: u64,
    /// KVM's, by name.
    pub kvm: BTreeMap<String, u64>,
    /// hypernic's of that NIC, by name; none of QEMU's.
    pub ours: BTreeMap<String, u64>,
}

/// Counts of one scene of one NIC, for each round trip or frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Counts {
    /// Exits that end in QEMU.
    pub to_qemu: f64,
    /// All exits, those of timers and halts too.
    pub exits: f64,
    /// The guest's interrupts.
    pub interrupts: f64,
    /// Messages between QEMU and hypernic, and what they were about.
    pub ours: Option<[f64; 3]>,
}

impl Counts {
    /// For raw data.
    pub fn json(&self) -> Value {
        json!({
            "to_qemu": self.to_qemu, "exits": self.exits, "interrupts": self.interrupts,
            "messages": self.ours.map(|o| o[0]), "reads": self.ours.map(|o| o[1]), "writes": self.ours.map(|o| o[2]),
        })
    }
}

/// Whether a section of hypernic's counters is about a NIC: itself, or a function of it.
fn is_of(section: &str, nic: usize) -> bool {
    let rest = section.strip_prefix(&format!("n{nic}"));
    rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
}

fn of_nic(line: &Value, nic: usize) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for section in line["counters"].as_array().into_iter().flatten() {
        let name = section["name"].as_str().unwrap_or_default();
        if section["kind"] != "nic" || !is_of(name, nic) {
            continue;
        }
        for (name, value) in section["values"].as_object().into_iter().flatten() {
            *sums.entry(name.clone()).or_default() += value.as_u64().unwrap_or(0);
        }
    }
    sums
}

/// Reads the notes.
///
/// # Errors
/// When a line is none that the script writes.
pub fn parse(text: &str) -> Result<Vec<Mark>> {
    let mut marks: Vec<Mark> = Vec::new();
    let wrong = |line: &str| Error::tool("the notes", line);
    for line in text.lines() {
        if let Some(mark) = line.strip_prefix("MARK ") {
            let words: Vec<&str> = mark.split('-').collect();
            let [nic, after, interrupts] = words[..] else {
                return Err(wrong(line));
            };
            let number = |word: &str| word.parse::<u64>().map_err(|_| wrong(line));
            marks.push(Mark {
                nic: usize::try_from(number(nic)?).unwrap_or(usize::MAX),
                after: after.to_owned(),
                interrupts: number(interrupts)?,
                ..Mark::default()
            });
            continue;
        }
        let mark = marks.last_mut().ok_or_else(|| wrong(line))?;
        if let Some(count) = line.strip_prefix("KVM ") {
            let (name, count) = count.split_once(' ').ok_or_else(|| wrong(line))?;
            let count = count.trim().parse().map_err(|_| wrong(line))?;
            mark.kvm.insert(name.to_owned(), count);
        } else {
            let value: Value = serde_json::from_str(line).map_err(|_| wrong(line))?;
            mark.ours = of_nic(&value, mark.nic);
        }
    }
    Ok(marks)
}

fn of(counts: &BTreeMap<String, u64>, name: &str) -> u64 {
    counts.get(name).copied().unwrap_or(0)
}

/// What a NIC's marks of one round say: for each scene its counts, without what a mark costs itself.
///
/// # Errors
/// When a mark is missing.
pub fn scenes(marks: &[Mark], units: [f64; 3]) -> Result<[Counts; 3]> {
    let names = ["begin", "mark", "rtt", "rx", "tx"];
    let fits = marks.len() == names.len() && marks.iter().zip(names).all(|(m, n)| m.after == n);
    if !fits {
        return Err(Error::tool("the notes", "marks are missing"));
    }
    let grown = |at: usize, read: &dyn Fn(&Mark) -> u64| {
        read(&marks[at]).saturating_sub(read(&marks[at - 1]))
    };
    let kvm = |at: usize, names: &[&str], unit: f64| {
        let sum = |mark: &Mark| names.iter().map(|name| of(&mark.kvm, name)).sum();
        grown(at, &sum).saturating_sub(grown(1, &sum)) as f64 / unit
    };
    let all = [0, 1, 2].map(|scene| {
        let (at, unit) = (scene + 2, units[scene]);
        let ours =
            |name: &'static str| grown(at, &|mark: &Mark| of(&mark.ours, name)) as f64 / unit;
        let has = !marks[0].ours.is_empty();
        Counts {
            to_qemu: kvm(at, &["mmio_exits", "io_exits"], unit),
            exits: kvm(at, &["exits"], unit),
            interrupts: grown(at, &|mark: &Mark| mark.interrupts) as f64 / unit,
            ours: has.then(|| ["messages", "region_reads", "region_writes"].map(ours)),
        }
    });
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nics_counters_are_those_of_its_functions_too_and_not_of_others() {
        let line = json!({"counters": [
            {"kind": "nic", "name": "n1", "values": {"messages": 2}},
            {"kind": "nic", "name": "n1/vf0", "values": {"messages": 3}},
            {"kind": "nic", "name": "n10", "values": {"messages": 50}},
            {"kind": "port", "name": "n1", "values": {"messages": 700}},
        ]});
        assert_eq!(of(&of_nic(&line, 1), "messages"), 5);
    }

    #[test]
    fn what_a_mark_costs_is_not_counted_and_what_is_missing_is_said() {
        let mark = |after: &str, interrupts: u64, exits: u64, messages: u64| {
            format!(
                "MARK 4-{after}-{interrupts}\nKVM exits {exits}\nKVM mmio_exits {exits}\nKVM io_exits 0\n\
                 {{\"counters\": [{{\"kind\": \"nic\", \"name\": \"n4\", \"values\": {{\"messages\": {messages}}}}}]}}\n"
            )
        };
        let text = mark("begin", 0, 100, 5)
            + &mark("mark", 0, 110, 5)
            + &mark("rtt", 20, 160, 25)
            + &mark("rx", 24, 200, 29)
            + &mark("tx", 24, 212, 30);
        let marks = parse(&text).unwrap();
        assert_eq!(marks.len(), 5);
        let [rtt, rx, tx] = scenes(&marks, [10.0, 2.0, 1.0]).unwrap();
        assert_eq!((rtt.to_qemu, rtt.interrupts), (4.0, 2.0));
        assert_eq!(rtt.ours, Some([2.0, 0.0, 0.0]));
        assert_eq!((rx.exits, rx.interrupts), (15.0, 2.0));
        assert_eq!(tx.exits, 2.0);
        assert!(scenes(&marks[1..], [1.0; 3]).is_err());
        assert!(parse("KVM exits 1").is_err());
    }
}
