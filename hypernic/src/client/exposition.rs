//! Metrics as Prometheus and OpenMetrics read them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Which text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Exposition {
    /// OpenMetrics 1.0.
    #[default]
    Openmetrics,
    /// Prometheus' text format 0.0.4, as node_exporter's textfile collector reads it.
    Prometheus,
}

/// What a family is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Info,
}

/// Samples of one name.
struct Family {
    kind: Kind,
    help: String,
    /// Labels as text, and values.
    samples: Vec<(String, String)>,
}

/// All that is told, by name.
#[derive(Default)]
pub(super) struct Families(BTreeMap<String, Family>);

impl Families {
    /// Adds a sample. `name` is the family's: without `_total` or `_info`.
    pub fn add(
        &mut self,
        kind: Kind,
        name: &str,
        help: &str,
        labels: &[(&str, &str)],
        value: impl ToString,
    ) {
        let family = self.0.entry(name.to_owned()).or_insert_with(|| Family {
            kind,
            help: help.to_owned(),
            samples: Vec::new(),
        });
        debug_assert_eq!(family.kind, kind, "{name} is of two kinds");
        let label = |(name, value): &(&str, &str)| format!("{name}=\"{}\"", escaped(value));
        let labels: Vec<_> = labels.iter().map(label).collect();
        family.samples.push((labels.join(","), value.to_string()));
    }

    /// The text.
    pub fn text(&self, form: Exposition) -> String {
        let mut text = String::new();
        let open = form == Exposition::Openmetrics;
        for (name, family) in &self.0 {
            let (sample, kind) = match family.kind {
                Kind::Counter => (format!("{name}_total"), "counter"),
                Kind::Gauge => (name.clone(), "gauge"),
                // The older text has no such type.
                Kind::Info => (format!("{name}_info"), if open { "info" } else { "gauge" }),
            };
            let title = if open { name } else { &sample };
            let help = family.help.replace('\\', "\\\\").replace('\n', "\\n");
            // Writing to a String cannot fail.
            let _ = writeln!(text, "# HELP {title} {help}");
            let _ = writeln!(text, "# TYPE {title} {kind}");
            for (labels, value) in &family.samples {
                let _ = match labels.is_empty() {
                    true => writeln!(text, "{sample} {value}"),
                    false => writeln!(text, "{sample}{{{labels}}} {value}"),
                };
            }
        }
        if open {
            text += "# EOF\n";
        }
        text
    }
}

fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_name_and_end_as_their_readers_want() {
        let mut families = Families::default();
        families.add(Kind::Counter, "a", "Things", &[("nic", "x\"\\\ny")], 7);
        families.add(Kind::Gauge, "b", "How", &[], 1.5);
        families.add(Kind::Info, "c", "What", &[("v", "1")], 1);
        assert_eq!(
            families.text(Exposition::Openmetrics),
            "# HELP a Things\n# TYPE a counter\na_total{nic=\"x\\\"\\\\\\ny\"} 7\n\
             # HELP b How\n# TYPE b gauge\nb 1.5\n# HELP c What\n# TYPE c info\nc_info{v=\"1\"} 1\n# EOF\n"
        );
        assert_eq!(
            families.text(Exposition::Prometheus),
            "# HELP a_total Things\n# TYPE a_total counter\na_total{nic=\"x\\\"\\\\\\ny\"} 7\n\
             # HELP b How\n# TYPE b gauge\nb 1.5\n# HELP c_info What\n# TYPE c_info gauge\nc_info{v=\"1\"} 1\n"
        );
    }
}
