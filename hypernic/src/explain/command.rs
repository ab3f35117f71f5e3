//! `hypernic explain`.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use control::Reasons;
use program::LogFormat;

use super::reason::Reason;
use super::table::{all, named};
use crate::client::place;
use crate::error::Error;

/// Names that are offered in place of one that nobody counts.
const OFFERED: usize = 5;
/// A part of a name that says something: "rx" and "bad" do not.
const TELLING: usize = 4;

/// `hypernic explain`.
#[derive(Args, Debug)]
pub struct ExplainCommand {
    /// The counter, such as rx_missed. Without one, all drops, refusals and faults are listed; with --control, those
    /// that the daemon has counted.
    pub reason: Option<String>,
    /// Ask the daemon at this control socket who counted it.
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    /// List all counters, those of things that went well too.
    #[arg(long, conflicts_with_all = ["reason", "control"])]
    pub all: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

impl ExplainCommand {
    /// What there is to be read.
    ///
    /// # Errors
    /// There is no such counter; the error names some that are like it. Or there is no daemon to ask.
    pub fn execute(self, format: LogFormat) -> Result<String, Error> {
        if let Some(name) = &self.reason
            && named(name).is_empty()
        {
            return Err(Error::Usage(unknown(name)));
        }
        let reasons = match &self.control {
            Some(control) => {
                let call = control::Explain {
                    name: self.reason.clone(),
                };
                place::ask(control, &call)?
            }
            None => self.table(),
        };
        if self.json || format == LogFormat::Json {
            let value = serde_json::to_value(&reasons).unwrap_or_default();
            return Ok(format!("{value}\n"));
        }
        let rows = &reasons.reasons;
        Ok(match (&self.reason, &self.control) {
            (Some(_), _) => rows.iter().map(whole).collect(),
            (None, Some(_)) if rows.is_empty() => "nothing was dropped or refused\n".into(),
            (None, _) => list(rows),
        })
    }

    /// What this program knows without a daemon.
    fn table(&self) -> Reasons {
        let rows: Vec<_> = match &self.reason {
            Some(name) => named(name),
            None => all()
                .filter(|reason| self.all || reason.class.needs_cure())
                .collect(),
        };
        Reasons {
            reasons: rows.into_iter().map(Reason::told).collect(),
        }
    }
}

fn unknown(name: &str) -> String {
    let telling = |part: &&str| part.len() >= TELLING;
    let parts: Vec<&str> = name.split('_').filter(telling).collect();
    // How many of its parts another has: all, if it has the whole name.
    let common = |other: &str| match other.contains(name) {
        true => usize::MAX,
        false => parts.iter().filter(|part| other.contains(**part)).count(),
    };
    let mut names: Vec<_> = all().map(|reason| reason.name).collect();
    names.retain(|other| common(other) > 0);
    names.sort_by_key(|other| Reverse(common(other)));
    names.dedup();
    names.truncate(OFFERED);
    let name: String = name.escape_debug().collect();
    if names.is_empty() || name.is_empty() {
        return format!("there is no counter \"{name}\"; hypernic explain --all lists them");
    }
    let names = names.join(", ");
    format!(
        "there is no counter \"{name}\"; like it are {names}; hypernic explain --all lists them"
    )
}

/// A row for people, as a paragraph.
fn whole(reason: &control::Reason) -> String {
    let control::Reason {
        name, kind, class, ..
    } = reason;
    let mut text = format!("{name} ({class}, counted by: {kind})\n");
    for (what, told) in [
        ("what", &reason.meaning),
        ("rule", &reason.rule),
        ("cause", &reason.cause),
        ("cure", &reason.cure),
    ] {
        if !told.is_empty() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  {what:<6} {told}");
        }
    }
    for counted in &reason.counted {
        let last = last(counted);
        let _ = writeln!(
            text,
            "  {:<6} {}: {}{last}",
            "by", counted.name, counted.value
        );
    }
    text
}

/// When it was counted last, as far as somebody looked.
fn last(counted: &control::Counted) -> String {
    match (counted.rose_within, counted.rose_before) {
        (Some(within), None | Some(0)) => format!(", last within {within} s"),
        (Some(within), Some(before)) => format!(", last {before} to {within} s ago"),
        _ => String::new(),
    }
}

/// Many rows for people, a line each, and one for each who counted.
fn list(rows: &[control::Reason]) -> String {
    let mut text = String::new();
    let mut kind = "";
    for reason in rows {
        if reason.kind != kind {
            kind = &reason.kind;
            let _ = writeln!(text, "{kind}");
        }
        let (name, class) = (&reason.name, &reason.class);
        let _ = writeln!(text, "  {name:<28} {class:<8} {}", reason.meaning);
        for counted in &reason.counted {
            let last = last(counted);
            let _ = writeln!(text, "    {}: {}{last}", counted.name, counted.value);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explain(reason: Option<&str>, all: bool) -> Result<String, Error> {
        let reason = reason.map(str::to_owned);
        let command = ExplainCommand {
            reason,
            all,
            control: None,
            json: false,
        };
        command.execute(LogFormat::Human)
    }

    #[test]
    fn a_reason_is_explained_wherever_it_is_counted() {
        let text = explain(Some("rx_missed"), false).expect("known");
        for word in [
            "(drop, counted by: nic)",
            "  what ",
            "  rule ",
            "  cause",
            "  cure ",
        ] {
            assert!(text.contains(word), "{word}: {text}");
        }
        // A NIC counts it, and a switch.
        let text = explain(Some("rx_frames"), false).expect("known");
        assert!(text.contains("by: nic)") && text.contains("by: switch-port)"));
    }

    #[test]
    fn what_nobody_counts_is_named_with_what_is_like_it() {
        for (asked, offered) in [
            ("rx_missing", "hypernic explain --all"),
            ("drop_spoof", "drop_spoofed"),
            ("spoofed", "vf_spoofed, drop_spoofed"),
            ("", "\"\"; hypernic explain --all"),
            ("a\nb", "a\\nb"),
        ] {
            let error = explain(Some(asked), false).expect_err(asked).to_string();
            assert!(error.contains(offered), "{error}");
            assert!(!error.contains('\n'), "one line: {error}");
        }
    }

    #[test]
    fn losses_are_listed_and_all_if_asked_for() {
        let (losses, every) = (explain(None, false), explain(None, true));
        let (losses, every) = (losses.expect("list"), every.expect("list"));
        assert!(losses.contains("drop_storm") && !losses.contains("tx_bytes"));
        assert!(every.contains("drop_storm") && every.contains("tx_bytes"));
        let json = ExplainCommand {
            reason: Some("drop_storm".into()),
            all: false,
            control: None,
            json: true,
        };
        let text = json.execute(LogFormat::Human).expect("JSON");
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(value["reasons"][0]["class"], "drop");
    }
}
