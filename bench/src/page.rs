//! A module's page in the making: words, tables and plots in the order they are read.

use std::fmt::Write as _;
use std::time::Instant;

use serde_json::{Value, json};

use crate::machine;
use crate::plot::Plot;
use crate::quiet::Quiet;
use crate::report::Report;

/// The page.
pub struct Page {
    name: &'static str,
    /// What makes it again.
    command: &'static str,
    title: String,
    body: String,
    environment: Value,
    data: Value,
    plots: Vec<Plot>,
    start: Instant,
}

impl Page {
    /// An empty one; what the machine is and does is noted now.
    pub fn new(name: &'static str, title: &str) -> Self {
        let mut environment = machine::host();
        environment["source"] = json!(machine::revision());
        Self {
            name,
            command: name,
            title: title.to_owned(),
            body: String::new(),
            environment,
            data: json!({"module": name}),
            plots: Vec::new(),
            start: Instant::now(),
        }
    }

    /// What makes a page again that is a part of a module's.
    pub fn made_by(self, command: &'static str) -> Self {
        Self { command, ..self }
    }

    /// A section's title.
    pub fn heading(&mut self, words: &str) {
        let _ = writeln!(self.body, "## {words}\n");
    }

    /// A paragraph.
    pub fn text(&mut self, words: &str) {
        let _ = writeln!(self.body, "{words}\n");
    }

    /// A list.
    pub fn list(&mut self, items: &[String]) {
        for item in items {
            let _ = writeln!(self.body, "- {item}");
        }
        self.body.push('\n');
    }

    /// A table.
    pub fn table(&mut self, head: &[&str], rows: &[Vec<String>]) {
        let _ = writeln!(self.body, "| {} |", head.join(" | "));
        let _ = writeln!(self.body, "|{}", "---|".repeat(head.len()));
        for row in rows {
            let _ = writeln!(self.body, "| {} |", row.join(" | "));
        }
        self.body.push('\n');
    }

    /// A plot, at this place.
    pub fn plot(&mut self, plot: Plot) {
        let (name, title, file) = (self.name, &plot.title, &plot.name);
        let _ = writeln!(self.body, "![{title}](plots/{name}-{file}.svg)\n");
        self.plots.push(plot);
    }

    /// Something about the environment.
    pub fn environment(&mut self, key: &str, value: impl Into<Value>) {
        self.environment[key] = value.into();
    }

    /// Raw data.
    pub fn data(&mut self, key: &str, value: impl Into<Value>) {
        self.data[key] = value.into();
    }

    /// The whole: title, environment, how disturbed it was, and what was added.
    pub fn finish(mut self, quiet: &Quiet) -> Report {
        let seconds = self.start.elapsed().as_secs();
        self.environment["load_at_end"] = json!(machine::load());
        let e = &self.environment;
        let word = |key: &str| e[key].as_str().unwrap_or("?").to_owned();
        let mut text = format!("# {}\n\n", self.title);
        let _ = writeln!(
            text,
            "- Host: {}, {} CPUs{}, {} MiB, Linux {}, {}; load {} at start, {} at end\n- Source: {}; {seconds} s in all\n- {}\n- \
             Raw data: `data/{}.json.gz`. Run again: `hypernic-bench {}`.\n",
            word("cpu"),
            e["cpus"],
            if e["virtual_machine"] == true {
                " (itself a virtual machine)"
            } else {
                ""
            },
            e["memory_mib"],
            word("kernel"),
            word("system"),
            e["load_at_start"],
            e["load_at_end"],
            word("source"),
            quiet.words(),
            self.name,
            self.command
        );
        text.push_str(&self.body);
        self.data["environment"] = self.environment;
        self.data["quiet"] = quiet.json();
        self.data["seconds"] = json!(seconds);
        Report::new(self.name, text, self.data, self.plots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_what_was_put_into_it_and_how_disturbed_it_was() {
        let mut page = Page::new("test", "A test");
        page.heading("Rates");
        page.table(
            &["size", "Mpps"],
            &[vec!["60".to_owned(), "31.2".to_owned()]],
        );
        page.data("columns", json!([1, 2]));
        let quiet = Quiet::new(false, 3);
        let report = page.finish(&quiet);
        let text = &report.markdown;
        assert!(text.starts_with("# A test\n"), "{text}");
        assert!(
            text.contains("| size | Mpps |\n|---|---|\n| 60 | 31.2 |"),
            "{text}"
        );
        assert!(text.contains("0 samples taken, 0 refused"), "{text}");
    }
}
