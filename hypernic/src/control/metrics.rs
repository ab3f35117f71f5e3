//! Counters, as the reply to `Metrics.Get`.
//!
//! A thousand NICs have a hundred thousand of them, which may be asked for each second by a thread that shares a processor with
//! workers. So they are written as JSON straight from where they were read.

use std::collections::HashSet;
use std::fmt::Write as _;

use control::MetricsGet;

use crate::report::Section;

/// Kinds of things that are remembered at once; there are fewer.
const MOST_LAYOUTS: usize = 32;

/// Names of a call. `None`: all.
type Among<'c> = Option<HashSet<&'c str>>;

fn among<'c>(names: Option<&'c Vec<String>>) -> Among<'c> {
    Some(names?.iter().map(String::as_str).collect())
}

fn is_among(names: &Among<'_>, name: &str) -> bool {
    names.as_ref().is_none_or(|names| names.contains(name))
}

/// A counter that is told.
struct Told {
    /// Its name as a member of an object: `"NAME":`.
    member: String,
    /// Its place among the section's, and those of others of its name, which no section should have: their sum is told.
    at: usize,
    others: Vec<usize>,
    /// It is told while it is 0, too.
    zero: bool,
}

/// What is told of things that have the same counters in the same order.
struct Layout {
    names: Vec<&'static str>,
    /// By name.
    told: Vec<Told>,
}

impl Layout {
    fn new(section: &Section, names: &Among<'_>, zeros: &Among<'_>) -> Self {
        let mut told: Vec<Told> = Vec::new();
        let mut by_name: Vec<_> = section
            .values
            .iter()
            .map(|(name, _)| *name)
            .enumerate()
            .collect();
        by_name.sort_by_key(|(_, name)| *name);
        let mut last = None;
        for (at, name) in by_name
            .into_iter()
            .filter(|(_, name)| is_among(names, name))
        {
            match told.last_mut().filter(|_| last == Some(name)) {
                Some(same) => same.others.push(at),
                None => told.push(Told {
                    member: format!("{}:", quoted(name)),
                    at,
                    others: Vec::new(),
                    zero: is_among(zeros, name),
                }),
            }
            last = Some(name);
        }
        Self {
            names: section.values.iter().map(|(name, _)| *name).collect(),
            told,
        }
    }

    /// Whether these are the counters of a section. Other strings of the same letters only cost another layout.
    fn is_of(&self, section: &Section) -> bool {
        let pairs = || self.names.iter().zip(&section.values);
        self.names.len() == section.values.len() && pairs().all(|(a, (b, _))| std::ptr::eq(*a, *b))
    }

    fn write(&self, section: &Section, text: &mut String) {
        let value = |at: &usize| section.values.get(*at).map_or(0, |(_, value)| *value);
        let mut begun = false;
        for told in &self.told {
            let others = told.others.iter().map(value);
            let value = others.fold(value(&told.at), u64::wrapping_add);
            if value == 0 && !told.zero {
                continue;
            }
            if begun {
                text.push(',');
            }
            begun = true;
            text.push_str(&told.member);
            match value {
                // Most are.
                0 => text.push('0'),
                value => _ = write!(text, "{value}"),
            }
        }
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Writes what is asked for as the JSON of [`control::Sections`].
pub(super) struct Writer<'a> {
    kind: Option<&'a str>,
    things: Among<'a>,
    names: Among<'a>,
    zeros: Among<'a>,
    layouts: Vec<Layout>,
    /// The layout of the section before.
    last: usize,
    begun: bool,
    text: &'a mut String,
}

impl<'a> Writer<'a> {
    pub fn new(call: &'a MetricsGet, text: &'a mut String) -> Self {
        text.push_str("{\"sections\":[");
        Self {
            kind: call.kind.as_deref(),
            things: among(call.things.as_ref()),
            names: among(call.names.as_ref()),
            zeros: among(call.zeros.as_ref()),
            layouts: Vec::new(),
            last: 0,
            begun: false,
            text,
        }
    }

    /// Writes a section, if it is asked for.
    pub fn add(&mut self, section: &Section) {
        let of_kind = self.kind.is_none_or(|kind| section.kind == kind);
        if !of_kind || !is_among(&self.things, &section.name) {
            return;
        }
        self.last = self.layout(section);
        if std::mem::replace(&mut self.begun, true) {
            self.text.push(',');
        }
        let (kind, name) = (section.kind, quoted(&section.name));
        // Writing to a String cannot fail.
        let _ = write!(
            self.text,
            "{{\"kind\":\"{kind}\",\"name\":{name},\"values\":{{"
        );
        self.layouts[self.last].write(section, self.text);
        self.text.push_str("}}");
    }

    /// Writes a section of another process, which was asked for the same.
    pub fn add_told(&mut self, section: &control::Section) {
        let Ok(text) = serde_json::to_string(section) else {
            return;
        };
        if std::mem::replace(&mut self.begun, true) {
            self.text.push(',');
        }
        self.text.push_str(&text);
    }

    /// Which layout a section has.
    fn layout(&mut self, section: &Section) -> usize {
        let layouts = &mut self.layouts;
        if layouts
            .get(self.last)
            .is_some_and(|layout| layout.is_of(section))
        {
            return self.last;
        }
        let known = layouts.iter().position(|layout| layout.is_of(section));
        known.unwrap_or_else(|| {
            if layouts.len() == MOST_LAYOUTS {
                layouts.clear();
            }
            layouts.push(Layout::new(section, &self.names, &self.zeros));
            layouts.len() - 1
        })
    }

    pub fn end(self) {
        self.text.push_str("]}");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use control::Sections;

    use super::*;

    fn section(kind: &'static str, name: &str, values: &[(&'static str, u64)]) -> Section {
        Section {
            kind,
            name: name.into(),
            values: values.to_vec(),
        }
    }

    /// Kind, name, counters.
    type One = (String, String, Vec<(String, u64)>);

    fn told(sections: &[Section], call: &MetricsGet) -> Vec<One> {
        let mut text = String::new();
        let mut writer = Writer::new(call, &mut text);
        sections.iter().for_each(|section| writer.add(section));
        writer.end();
        let told: Sections = serde_json::from_str(&text).expect("the type of the reply");
        // As a client of this library would write it, too.
        assert_eq!(serde_json::to_string(&told).expect("JSON"), text);
        let one = |one: control::Section| (one.kind, one.name, one.values.into_iter().collect());
        told.sections.into_iter().map(one).collect()
    }

    fn is(kind: &str, name: &str, values: &[(&str, u64)]) -> One {
        let values: BTreeMap<_, _> = values.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect();
        (kind.into(), name.into(), values.into_iter().collect())
    }

    #[test]
    fn what_is_asked_for_is_told_by_name() {
        let all = [
            section("nic", "a", &[("tx", 7), ("rx", 0), ("lost", u64::MAX)]),
            section("nic", "\"b\\\n", &[("tx", 0), ("rx", 2), ("lost", 0)]),
            section("port", "a", &[("tx", 1), ("lost", 0), ("tx", 3)]),
            section("port", "c", &[]),
        ];
        let every = MetricsGet::default();
        let b = is("nic", "\"b\\\n", &[("lost", 0), ("rx", 2), ("tx", 0)]);
        let expected = [
            is("nic", "a", &[("lost", u64::MAX), ("rx", 0), ("tx", 7)]),
            b.clone(),
            is("port", "a", &[("lost", 0), ("tx", 4)]),
            is("port", "c", &[]),
        ];
        assert_eq!(told(&all, &every), expected);
        let names = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
        let of_nics = MetricsGet {
            kind: Some("nic".into()),
            things: names(&["\"b\\\n", "none"]),
            ..MetricsGet::default()
        };
        assert_eq!(told(&all, &of_nics), [b]);
        let few = MetricsGet {
            names: names(&["tx", "lost"]),
            zeros: names(&["lost"]),
            ..MetricsGet::default()
        };
        let expected = [
            is("nic", "a", &[("lost", u64::MAX), ("tx", 7)]),
            is("nic", "\"b\\\n", &[("lost", 0)]),
            is("port", "a", &[("lost", 0), ("tx", 4)]),
            is("port", "c", &[]),
        ];
        assert_eq!(told(&all, &few), expected);
        assert_eq!(told(&[], &every), []);
    }

    #[test]
    fn any_number_of_layouts_is_told_whole() {
        let names = ["a", "b", "c", "d", "e", "f", "g"];
        let of = |n: usize| {
            let some = names.iter().cycle().skip(n % 7).take(1 + n / 7);
            let values = some.map(|name| (*name, n as u64));
            section("nic", &n.to_string(), &values.collect::<Vec<_>>())
        };
        let all: Vec<_> = (0..49).chain(0..49).map(of).collect();
        let expected: Vec<_> = all
            .iter()
            .map(|one| is(one.kind, &one.name, &one.values))
            .collect();
        assert_eq!(told(&all, &MetricsGet::default()), expected);
    }
}
