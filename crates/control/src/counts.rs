//! Counters as they stand in a reply: for those who read a hundred thousand of them each second.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

/// [`Sections`](crate::Sections), in place.
#[derive(Debug, Deserialize)]
pub struct Counts<'m> {
    /// Each thing's.
    #[serde(borrow)]
    pub sections: Vec<CountsOf<'m>>,
}

/// A [`Section`](crate::Section), in place.
#[derive(Debug, Deserialize)]
pub struct CountsOf<'m> {
    /// `nic`, `switch-port` …
    pub kind: &'m str,
    /// Its name, which may have been escaped.
    #[serde(borrow)]
    pub name: std::borrow::Cow<'m, str>,
    /// What it counts, in the order of the reply.
    #[serde(borrow, deserialize_with = "pairs")]
    pub values: Vec<(&'m str, u64)>,
}

fn pairs<'m, D: Deserializer<'m>>(deserializer: D) -> Result<Vec<(&'m str, u64)>, D::Error> {
    struct Pairs;

    impl<'m> Visitor<'m> for Pairs {
        type Value = Vec<(&'m str, u64)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("counters by name")
        }

        fn visit_map<A: MapAccess<'m>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut values = Vec::new();
            while let Some(pair) = map.next_entry()? {
                values.push(pair);
            }
            Ok(values)
        }
    }

    deserializer.deserialize_map(Pairs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Section, Sections};

    #[test]
    fn they_are_what_the_type_of_the_reply_is() {
        let of = |kind: &str, name: &str, values: &[(&str, u64)]| Section {
            kind: kind.into(),
            name: name.into(),
            values: values.iter().map(|(n, v)| ((*n).into(), *v)).collect(),
        };
        let sections = vec![
            of("nic", "a\"\\\n", &[("rx", 0), ("tx", u64::MAX)]),
            of("port", "b", &[]),
        ];
        let text = serde_json::to_string(&Sections {
            sections: sections.clone(),
        });
        let text = text.expect("JSON");
        let counts: Counts<'_> = serde_json::from_str(&text).expect("the same");
        let again = counts.sections.iter();
        let again: Vec<_> = again
            .map(|one| of(one.kind, &one.name, &one.values))
            .collect();
        assert_eq!(again, sections);
        assert!(serde_json::from_str::<Counts<'_>>("{\"sections\":[{\"kind\":\"a\"}]}").is_err());
    }
}
