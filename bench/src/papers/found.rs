//! What a line of a table or figure came to.

use super::outcome::{Outcome, Outcomes};
use super::plan::{Job, Line, Stream};
use super::published::Published;

/// What a line came to.
pub struct Found<'a> {
    /// The line.
    pub line: &'a Line,
    /// The measurement that counts: the only one, or the best of a curve.
    pub best: Option<(&'a Job, &'a Outcome)>,
    /// Why there is none.
    pub why: String,
}

impl<'a> Found<'a> {
    /// What was measured for a line.
    pub fn of(line: &'a Line, outcomes: &'a Outcomes) -> Self {
        let all = || line.jobs.iter().filter_map(|j| outcomes.get_key_value(j));
        let best = all().filter(|(_, o)| o.value().is_some()).max_by(|a, b| {
            let value = |o: &Outcome| o.value().unwrap_or(f64::MIN);
            value(a.1).total_cmp(&value(b.1))
        });
        let why = match all().find_map(|(_, o)| o.failures.first()) {
            Some(why) => format!("failed: {}", one_line(why)),
            None if all().next().is_some() => "disturbed every time".to_owned(),
            None => "not measured".to_owned(),
        };
        Self { line, best, why }
    }

    /// Its figure.
    pub fn value(&self) -> Option<f64> {
        self.best.and_then(|(_, o)| o.value())
    }

    /// A count for each packet.
    pub fn count(&self, name: &str) -> Option<f64> {
        self.best
            .and_then(|(_, o)| o.field(&|r| r.raw["per"][name].as_f64()))
    }

    /// Something else that was noted.
    pub fn raw(&self, name: &str) -> Option<f64> {
        self.best
            .and_then(|(_, o)| o.field(&|r| r.raw[name].as_f64()))
    }

    /// The line's name, with what sends where it is not a program.
    pub fn name(&self) -> String {
        match self.line.jobs.first() {
            Some(job) if job.stream == Stream::Kernel => format!("{}, pktgen", self.line.label),
            _ => self.line.label.clone(),
        }
    }

    /// Processors of each guest.
    pub fn vcpus(&self) -> u32 {
        self.line.jobs.first().map_or(1, |j| j.vcpus)
    }

    /// The paper's figure.
    pub fn theirs(&self, published: &Published, key: &str) -> Option<f64> {
        let (table, row) = self.line.theirs;
        published.figure(table, row, self.vcpus(), key)
    }

    /// Whether two lines can be compared.
    pub fn beside(&self, other: &Self) -> bool {
        let way = |f: &Self| {
            let kind = |j: &Job| {
                let stream = std::mem::discriminant(&j.stream);
                (j.vcpus, j.way, stream, j.setting.lan.realtek())
            };
            f.line.jobs.first().map(kind)
        };
        self.line.metric == other.line.metric && way(self) == way(other)
    }
}

/// Messages of several lines fit into no table.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut line = words.join(" ").replace('|', "/");
    if let Some((at, _)) = line.char_indices().nth(160) {
        line.truncate(at);
        line.push('…');
    }
    line
}
