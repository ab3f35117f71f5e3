//! Metrics as Prometheus and OpenMetrics read them.

use std::collections::{BTreeMap, HashMap};
use std::fmt::{Display, Write as _};

/// Which text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Exposition {
    /// OpenMetrics 1.0.
    #[default]
    Openmetrics,
    /// Prometheus' text format 0.0.4, as node_exporter's textfile collector reads it.
    Prometheus,
}

impl Exposition {
    /// What HTTP calls it.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Openmetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// What a family is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Info,
    Histogram,
}

impl Kind {
    /// What the names of samples end with.
    fn suffix(self) -> &'static str {
        match self {
            Self::Counter => "_total",
            Self::Info => "_info",
            Self::Gauge | Self::Histogram => "",
        }
    }
}

/// Samples of one name.
struct Family {
    kind: Kind,
    name: String,
    help: String,
    /// Lines: they are the same in both texts.
    samples: String,
}

/// All that is told, by name.
pub(crate) struct Families {
    families: Vec<Family>,
    by_name: HashMap<String, usize>,
    /// Samples that may still be added.
    room: usize,
    left_out: u64,
}

impl Families {
    /// For at most so many samples.
    pub fn new(limit: usize) -> Self {
        Self {
            families: Vec::new(),
            by_name: HashMap::new(),
            room: limit,
            left_out: 0,
        }
    }

    /// Room for a few more, which are never left out.
    pub fn make_room(&mut self) {
        const FEW: usize = 16;
        self.room = self.room.max(FEW);
    }

    /// Samples that there was no room for.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The number of a family; it is told if samples are added to it. `name` is without `_total` or `_info`.
    pub fn family(&mut self, kind: Kind, name: &str, help: &str) -> usize {
        if let Some(at) = self.by_name.get(name) {
            debug_assert_eq!(self.families[*at].kind, kind, "{name} is of two kinds");
            return *at;
        }
        self.families.push(Family {
            kind,
            name: name.to_owned(),
            help: help.to_owned(),
            samples: String::new(),
        });
        let at = self.families.len() - 1;
        self.by_name.insert(name.to_owned(), at);
        at
    }

    /// Whether there is room for so many more samples.
    fn takes(&mut self, samples: usize) -> bool {
        let fits = samples <= self.room;
        if fits {
            self.room -= samples;
        } else {
            self.left_out += samples as u64;
        }
        fits
    }

    /// Adds a sample. `name` is the family's: without `_total` or `_info`.
    pub fn add(
        &mut self,
        kind: Kind,
        name: &str,
        help: &str,
        labels: &[(&str, &str)],
        value: impl Display,
    ) {
        let family = self.family(kind, name, help);
        self.add_to(family, labels, value);
    }

    /// Adds a sample to a family.
    pub fn add_to(&mut self, family: usize, labels: &[(&str, &str)], value: impl Display) {
        if !self.takes(1) {
            return;
        }
        let Family {
            kind,
            name,
            samples,
            ..
        } = &mut self.families[family];
        sample(samples, name, kind.suffix(), labels, value);
    }

    /// Adds a histogram: how many were within each bound and not within the one before, how many were not within any,
    /// and the sum of all.
    pub fn histogram(
        &mut self,
        name: &str,
        help: &str,
        label: (&str, &str),
        within: &[(f64, u64)],
        (beyond, sum): (u64, f64),
    ) {
        if !self.takes(within.len() + 3) {
            return;
        }
        let family = self.family(Kind::Histogram, name, help);
        let samples = &mut self.families[family].samples;
        let mut count = 0;
        for (bound, n) in within {
            count += n;
            let le = format!("{bound:?}");
            sample(samples, name, "_bucket", &[label, ("le", &le)], count);
        }
        count += beyond;
        sample(samples, name, "_bucket", &[label, ("le", "+Inf")], count);
        sample(samples, name, "_sum", &[label], sum);
        sample(samples, name, "_count", &[label], count);
    }

    /// What there is: the name of its samples, its kind, its help, and the labels of the first sample.
    pub fn each(&self) -> impl Iterator<Item = (String, Kind, &str, Vec<&str>)> {
        let told = self.families.iter().filter(|one| !one.samples.is_empty());
        told.map(|one| {
            let Family {
                kind,
                name,
                help,
                samples,
            } = one;
            let labels = samples.split_once('{').map_or("", |(_, rest)| rest);
            let labels = labels.split('}').next().unwrap_or("").split(',');
            let labels = labels.filter_map(|label| label.split_once('='));
            let labels = labels.map(|(label, _)| label).collect();
            (
                format!("{name}{}", kind.suffix()),
                *kind,
                help.as_str(),
                labels,
            )
        })
    }

    /// The text.
    pub fn text(&self, form: Exposition) -> String {
        let lines = self.families.iter().map(|one| one.samples.len() + 200);
        let mut text = String::with_capacity(lines.sum());
        let open = form == Exposition::Openmetrics;
        let told = self.families.iter().filter(|one| !one.samples.is_empty());
        let by_name: BTreeMap<_, _> = told.map(|one| (&one.name, one)).collect();
        for (name, family) in by_name {
            let (suffix, kind) = match family.kind {
                Kind::Counter => ("_total", "counter"),
                Kind::Gauge => ("", "gauge"),
                Kind::Histogram => ("", "histogram"),
                // The older text has no such type.
                Kind::Info => ("_info", if open { "info" } else { "gauge" }),
            };
            let suffix = if open { "" } else { suffix };
            let help = family.help.replace('\\', "\\\\").replace('\n', "\\n");
            // Writing to a String cannot fail.
            let _ = writeln!(text, "# HELP {name}{suffix} {help}");
            let _ = writeln!(text, "# TYPE {name}{suffix} {kind}");
            text += &family.samples;
        }
        if open {
            text += "# EOF\n";
        }
        text
    }
}

fn sample(
    text: &mut String,
    name: &str,
    suffix: &str,
    labels: &[(&str, &str)],
    value: impl Display,
) {
    text.push_str(name);
    text.push_str(suffix);
    for (at, (label, value)) in labels.iter().enumerate() {
        text.push(if at == 0 { '{' } else { ',' });
        text.push_str(label);
        text.push_str("=\"");
        // Few have any.
        let mut rest = *value;
        let is_special = |byte| matches!(byte, b'\\' | b'"' | b'\n');
        while let Some(special) = rest.bytes().position(is_special) {
            let (plain, from) = rest.split_at(special);
            text.push_str(plain);
            text.push_str(match from.as_bytes()[0] {
                b'\\' => "\\\\",
                b'"' => "\\\"",
                _ => "\\n",
            });
            rest = &from[1..];
        }
        text.push_str(rest);
        text.push('"');
    }
    if !labels.is_empty() {
        text.push('}');
    }
    let _ = writeln!(text, " {value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_name_and_end_as_their_readers_want() {
        let mut families = Families::new(9);
        families.add(Kind::Counter, "a", "Things", &[("nic", "x\"\\\ny")], 7);
        families.add(Kind::Gauge, "b", "How", &[], 1.5);
        families.add(Kind::Info, "c", "What", &[("v", "1")], 1);
        let within = [(0.001, 2), (1.0, 1)];
        families.histogram("d", "Waits", ("w", "0"), &within, (4, 9.5));
        let waits = "d_bucket{w=\"0\",le=\"0.001\"} 2\nd_bucket{w=\"0\",le=\"1.0\"} 3\n\
                     d_bucket{w=\"0\",le=\"+Inf\"} 7\nd_sum{w=\"0\"} 9.5\nd_count{w=\"0\"} 7\n";
        assert_eq!(
            families.text(Exposition::Openmetrics),
            format!(
                "# HELP a Things\n# TYPE a counter\na_total{{nic=\"x\\\"\\\\\\ny\"}} 7\n\
                 # HELP b How\n# TYPE b gauge\nb 1.5\n# HELP c What\n# TYPE c info\nc_info{{v=\"1\"}} 1\n\
                 # HELP d Waits\n# TYPE d histogram\n{waits}# EOF\n"
            )
        );
        assert_eq!(
            families.text(Exposition::Prometheus),
            format!(
                "# HELP a_total Things\n# TYPE a_total counter\na_total{{nic=\"x\\\"\\\\\\ny\"}} 7\n\
                 # HELP b How\n# TYPE b gauge\nb 1.5\n# HELP c_info What\n# TYPE c_info gauge\nc_info{{v=\"1\"}} 1\n\
                 # HELP d Waits\n# TYPE d histogram\n{waits}"
            )
        );
        assert_eq!(families.left_out(), 0);
    }

    #[test]
    fn what_there_is_no_room_for_is_counted() {
        let mut families = Families::new(2);
        for n in 0..5 {
            families.add(Kind::Gauge, "a", "How", &[("n", &n.to_string())], n);
        }
        families.histogram("d", "Waits", ("w", "0"), &[(1.0, 1)], (0, 0.5));
        assert_eq!(families.left_out(), 3 + 4);
        let text = families.text(Exposition::Prometheus);
        assert_eq!(
            text,
            "# HELP a How\n# TYPE a gauge\na{n=\"0\"} 0\na{n=\"1\"} 1\n"
        );
    }
}
