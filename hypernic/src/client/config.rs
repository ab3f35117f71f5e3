//! `hypernic config`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use control::{
    Act, Changed, ConfigApply, ConfigConfirm, ConfigDump, ConfigPlan, ConfigRollback, Plan,
};
use program::LogFormat;

use super::place::{Place, Printed, Terms};
use crate::error::Error;

/// `hypernic config`.
#[derive(Args, Debug)]
pub struct ConfigCommand {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    printed: Printed,
    #[command(subcommand)]
    what: ConfigVerb,
}

#[derive(Debug, Subcommand)]
enum ConfigVerb {
    /// Print what runs, as a file that makes the same host.
    Dump,
    /// Say what a file would add, change and remove, and what cannot be changed while the daemon runs.
    Diff {
        /// The file; without, the one that the daemon was started with.
        file: Option<PathBuf>,
        /// NICs that a VMM has may be taken away and made anew.
        #[arg(long)]
        disconnect: bool,
    },
    /// Have the daemon be what a file says: all of it, or nothing is changed.
    Apply {
        /// The file; without, the one that the daemon was started with.
        file: Option<PathBuf>,
        /// Only say what would be done, in order.
        #[arg(long, conflicts_with_all = ["partly", "rollback_after", "check", "persist", "if_generation"])]
        plan: bool,
        /// NICs that a VMM has may be taken away and made anew.
        #[arg(long)]
        disconnect: bool,
        /// Do what can be done, though something cannot.
        #[arg(long)]
        partly: bool,
        /// All is as before after so many seconds, unless it is confirmed.
        #[arg(long, value_name = "SECONDS")]
        rollback_after: Option<u32>,
        #[command(flatten)]
        terms: Terms,
    },
    /// Keep the configuration that is on trial.
    Confirm,
    /// Take the configuration that is on trial back, now.
    Rollback,
}

impl ConfigCommand {
    /// Asks the daemon. Returns what there is to be read.
    ///
    /// # Errors
    /// A file that cannot be read, a daemon that is not there, or one that refuses.
    pub fn execute(self, format: LogFormat) -> Result<String, Error> {
        let (place, printed) = (self.place, self.printed);
        match self.what {
            ConfigVerb::Dump => {
                let reply = place.ask(&ConfigDump {})?;
                Ok(printed.show(format, &reply, |dump| dump.text.clone()))
            }
            ConfigVerb::Diff { file, disconnect } => {
                let reply = difference(&place, file.as_deref(), disconnect)?;
                Ok(printed.show(format, &reply, |plan| table(plan, "")))
            }
            ConfigVerb::Apply {
                file,
                plan,
                disconnect,
                partly,
                rollback_after,
                terms,
            } => {
                if plan {
                    let reply = difference(&place, file.as_deref(), disconnect)?;
                    return Ok(printed.show(format, &reply, |plan| table(plan, "")));
                }
                let (text, file) = read(file.as_deref())?;
                let (check, persist, if_generation) = terms.words();
                let reply = place.ask(&ConfigApply {
                    text,
                    file,
                    disconnect: Some(disconnect),
                    partly: Some(partly),
                    rollback_after,
                    check,
                    persist,
                    if_generation,
                })?;
                let end = match (terms.check, rollback_after) {
                    (true, _) => "it can be done\n".to_owned(),
                    (false, None) => "done\n".to_owned(),
                    (false, Some(seconds)) => {
                        format!("done, for {seconds} seconds: hypernic config confirm keeps it\n")
                    }
                };
                Ok(printed.show(format, &reply, |plan| table(plan, &end)))
            }
            ConfigVerb::Confirm => {
                let reply = place.ask(&ConfigConfirm {})?;
                Ok(printed.show(format, &reply, trial("it stays\n")))
            }
            ConfigVerb::Rollback => {
                let reply = place.ask(&ConfigRollback {})?;
                Ok(printed.show(format, &reply, trial("all is as it was before\n")))
            }
        }
    }
}

/// What a file would change.
fn difference(place: &Place, file: Option<&Path>, disconnect: bool) -> Result<Plan, Error> {
    let (text, file) = read(file)?;
    place.ask(&ConfigPlan {
        text,
        file,
        disconnect: Some(disconnect),
    })
}

fn trial(done: &'static str) -> impl FnOnce(&Changed) -> String {
    move |reply| match reply.changed {
        true => done.into(),
        false => "nothing is on trial\n".into(),
    }
}

/// A file's text and name.
fn read(file: Option<&Path>) -> Result<(Option<String>, Option<String>), Error> {
    let Some(file) = file else {
        return Ok((None, None));
    };
    let text = std::fs::read_to_string(file).map_err(|source| Error::ReadConfig {
        file: file.to_owned(),
        source,
    })?;
    Ok((Some(text), Some(file.to_string_lossy().into_owned())))
}

fn table(plan: &Plan, end: &str) -> String {
    let mut text = String::new();
    for step in &plan.steps {
        let sign = match step.act {
            Act::Add => '+',
            Act::Change => '~',
            Act::Remove => '-',
        };
        // Writing to a String cannot fail.
        let _ = write!(text, "{sign} {} {}", step.kind, step.name);
        if !step.words.is_empty() {
            let _ = write!(text, ": {}", step.words.join(", "));
        }
        if step.anew == Some(true) {
            text += " (made anew)";
        }
        let _ = writeln!(text);
    }
    for cannot in &plan.cannot {
        let control::Cannot { kind, name, why } = cannot;
        let _ = writeln!(text, "! {kind} {name}: {why}");
    }
    if plan.steps.is_empty() && plan.cannot.is_empty() {
        return "nothing to do\n".into();
    }
    text + end
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::cli::Cli;

    #[test]
    fn a_plan_takes_no_word_that_would_do_something() {
        let parses = |words: &str| Cli::try_parse_from(words.split(' ')).is_ok();
        assert!(parses("hypernic config apply f --plan --disconnect"));
        for word in [
            "--partly",
            "--rollback-after 60",
            "--check",
            "--persist",
            "--if-generation 3",
        ] {
            assert!(parses(&format!("hypernic config apply f {word}")));
            assert!(!parses(&format!("hypernic config apply f --plan {word}")));
        }
    }
}
