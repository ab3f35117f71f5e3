//! `hypernic help TOPIC`: the pages of the book, commands, words of the configuration file and counters.

use std::fmt::Write as _;

use clap::{Args, Command};

use crate::complete::commands_and;
use crate::config::reference;
use crate::error::Error;
use crate::explain;

/// A page of the book.
struct Page {
    topic: &'static str,
    text: &'static str,
}

impl Page {
    /// Its title: the page's first line.
    fn title(&self) -> &'static str {
        let line = self.text.lines().next().unwrap_or("");
        line.trim_start_matches('#').trim()
    }
}

macro_rules! pages {
    ($($topic:literal $file:literal)*) => {
        /// All that can be read here, in the order of the book.
        const PAGES: &[Page] = &[$(Page {
            topic: $topic,
            text: include_str!(concat!("../../", $file)),
        }),*];
        #[cfg(test)]
        const FILES: &[(&str, &str)] = &[$(($topic, $file)),*];
    };
}

pages! {
    "first-traffic" "docs/first-traffic.md"
    "install" "docs/install.md"
    "configuration" "docs/configuration.md"
    "words" "docs/words.md"
    "recipes" "docs/recipes.md"
    "tap" "docs/tap.md"
    "cells" "docs/cells.md"
    "vhost-user" "docs/vhost-user.md"
    "sriov" "docs/sriov.md"
    "r8169" "docs/r8169.md"
    "control" "docs/control.md"
    "change" "docs/change.md"
    "watch" "docs/watch.md"
    "roles" "docs/roles.md"
    "protocol" "docs/protocol.md"
    "apply" "docs/apply.md"
    "looking" "docs/looking.md"
    "web" "docs/web.md"
    "drops" "docs/drops.md"
    "metrics" "docs/metrics.md"
    "api" "docs/api.md"
    "what-happens" "docs/what-happens.md"
    "survival" "docs/survival.md"
    "moving" "docs/moving.md"
    "upgrade" "docs/upgrade.md"
    "versioning" "docs/versioning.md"
    "known-client-faults" "docs/known-client-faults.md"
    "tuning" "docs/tuning.md"
    "moderation" "docs/moderation.md"
    "csb" "docs/csb.md"
    "sandbox" "docs/sandbox.md"
    "security" "SECURITY.md"
    "comparison" "docs/comparison.md"
    "pkt-gen" "docs/pkt-gen.md"
    "embedding" "docs/embedding.md"
    "changes" "CHANGELOG.md"
}

/// `hypernic help`.
#[derive(Args, Debug)]
pub struct HelpCommand {
    /// A page, a command with its subcommand, a word of the configuration file, or a counter. Without one, lists pages and
    /// commands.
    #[arg(add = commands_and(topics))]
    topic: Vec<String>,
}

/// Pages, and words of the configuration file.
fn topics() -> Vec<String> {
    let words = reference::PARTS.iter().flat_map(|part| part.words);
    let words = words.map(|word| word.name.to_owned());
    let pages = PAGES.iter().map(|page| page.topic.to_owned());
    let mut all: Vec<_> = pages.chain(words).collect();
    all.sort();
    all.dedup();
    all
}

impl HelpCommand {
    /// What there is to be read.
    ///
    /// # Errors
    /// There is nothing of that name.
    pub fn execute(self, mut commands: Command) -> Result<String, Error> {
        commands.build();
        let words: Vec<_> = self.topic.iter().map(String::as_str).collect();
        let [topic, rest @ ..] = &words[..] else {
            return Ok(list(&commands));
        };
        let mut found: Vec<String> = Vec::new();
        found.extend(of_command(&mut commands, &words));
        if rest.is_empty() {
            let page = PAGES.iter().find(|page| page.topic == *topic);
            found.extend(page.map(|page| page.text.to_owned()));
            found.extend(reference::explain(topic));
            if !explain::named(topic).is_empty() {
                found.push(format!("A counter: hypernic explain {topic}\n"));
            }
        }
        if found.is_empty() {
            return Err(Error::Usage(unknown(&words.join(" "), &commands)));
        }
        Ok(found.join("\n"))
    }
}

/// What `--help` prints of a command.
fn of_command(commands: &mut Command, words: &[&str]) -> Option<String> {
    let mut command = commands;
    for word in words {
        command = command.find_subcommand_mut(word)?;
    }
    Some(command.render_long_help().to_string())
}

fn list(commands: &Command) -> String {
    let mut text = String::from("Pages (hypernic help PAGE):\n");
    let shown = commands.get_subcommands().filter(|one| !one.is_hide_set());
    let width = PAGES.iter().map(|page| page.topic.len()).max().unwrap_or(0);
    for page in PAGES {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {:width$}  {}", page.topic, page.title());
    }
    text += "\nCommands (hypernic help COMMAND, or hypernic COMMAND --help):\n";
    for command in shown {
        let about = command
            .get_about()
            .map(ToString::to_string)
            .unwrap_or_default();
        let _ = writeln!(text, "  {:width$}  {about}", command.get_name());
    }
    text += "\nAlso: hypernic help WORD for a word of the configuration file, hypernic explain NAME for a counter.\n";
    text
}

/// What is said of a topic that there is not, with some that are like it.
fn unknown(topic: &str, commands: &Command) -> String {
    let commands = commands
        .get_subcommands()
        .map(|one| one.get_name().to_owned());
    let all = topics().into_iter().chain(commands);
    let mut like: Vec<_> = all
        .filter(|name| topic.len() > 1 && (name.contains(topic) || topic.contains(name.as_str())))
        .collect();
    like.sort();
    like.dedup();
    if like.is_empty() {
        format!("there is no topic \"{topic}\": hypernic help lists them")
    } else {
        format!(
            "there is no topic \"{topic}\"; is it one of {}?",
            like.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    fn help(topic: &str) -> Result<String, String> {
        let topic = topic.split_whitespace().map(str::to_owned).collect();
        let help = HelpCommand { topic }.execute(Cli::command());
        help.map_err(|error| error.to_string())
    }

    #[test]
    fn pages_commands_words_and_counters_are_found() {
        for (topic, says) in [
            ("", "first-traffic"),
            ("", "Serve the NICs and switches of a TOML file"),
            ("looking", "# Looking at a running daemon"),
            ("serve", "Usage: hypernic serve"),
            ("nic add", "Usage: hypernic nic add"),
            ("upgrade", "Usage: hypernic upgrade"),
            ("upgrade", "# Upgrade"),
            ("busy-poll-us", "microseconds a worker may stay awake"),
            ("moderation", "# Interrupt moderation"),
            ("moderation", "In a `[[nic.vf]]`: moderation ="),
            ("rx_missed", "hypernic explain rx_missed"),
        ] {
            let text = help(topic).unwrap_or_else(|error| panic!("{topic}: {error}"));
            assert!(text.contains(says), "{topic}: {says} is not in\n{text}");
        }
    }

    #[test]
    fn what_there_is_not_is_named_with_what_is_like_it() {
        assert_eq!(
            help("moder").unwrap_err(),
            "there is no topic \"moder\"; is it one of moderation?"
        );
        let error = help("zz").unwrap_err();
        assert!(error.contains("hypernic help lists them"), "{error}");
        assert!(help("nic fly").is_err());
        assert!(help("looking about").is_err());
    }

    #[test]
    fn every_page_of_the_manual_is_a_chapter_of_the_book() {
        let summary = include_str!("../../SUMMARY.md");
        for (topic, file) in FILES {
            assert!(summary.contains(&format!("]({file})")), "{topic}: {file}");
        }
        // And all chapters on how to use it can be read here.
        let (_, rest) = summary.split_once("# Use it").expect("a part");
        let (used, _) = rest.split_once("# Inside").expect("another part");
        for line in used.lines().filter(|line| line.contains("](")) {
            let file = line
                .split_once("](")
                .and_then(|(_, rest)| rest.split_once(')'));
            let file = file.expect("a link").0;
            assert!(FILES.iter().any(|(_, known)| *known == file), "{file}");
        }
    }

    #[test]
    fn every_page_has_a_title_and_topics_differ() {
        let mut topics: Vec<_> = PAGES.iter().map(|page| page.topic).collect();
        topics.sort_unstable();
        topics.dedup();
        assert_eq!(topics.len(), PAGES.len());
        for page in PAGES {
            assert!(
                page.text.starts_with("# ") && page.title().len() > 2,
                "{}",
                page.topic
            );
        }
    }
}
