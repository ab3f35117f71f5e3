//! Manual pages: one for each command, and one that has every word of a configuration file.

use std::path::Path;

use clap::CommandFactory;
use hypernic::cli::Cli;
use hypernic::config::HostConfig;

#[path = "../../examples/man/pages.rs"]
mod pages;
#[path = "../../examples/man/roff.rs"]
mod roff;

fn names(command: &clap::Command, prefix: &str, to: &mut Vec<String>) {
    to.push(format!("{prefix}.1"));
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        names(sub, &format!("{prefix}-{}", sub.get_name()), to);
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let dir = tempfile::tempdir().expect("dir");
    pages::write(dir.path()).expect("pages");
    let mut wanted = Vec::new();
    names(&Cli::command(), "hypernic", &mut wanted);
    assert!(wanted.len() > 30, "{wanted:?}");
    for name in wanted.iter().map(String::as_str).chain(["hypernic.toml.5"]) {
        let page = std::fs::read_to_string(dir.path().join(name)).expect(name);
        assert!(
            page.contains(".TH ") && page.contains(".SH"),
            "{name}: {page}"
        );
    }
}

/// The words of a table of a configuration file, as the parser lists them.
fn words(before: &str) -> Vec<String> {
    let text = format!("{before}\nzzz = 1\n");
    let refused = HostConfig::parse(Path::new("f"), &text).expect_err("zzz is no word");
    let message = refused.to_string();
    let (_, list) = message.split_once("expected one of ").expect("a list");
    let quoted = list.split('`').skip(1).step_by(2);
    quoted.map(str::to_owned).collect()
}

#[test]
fn the_page_of_the_configuration_file_has_every_word() {
    let page = pages::toml();
    // Words of old releases, and those of virtual functions, which have a page of their own.
    let elsewhere = ["portions", "pf-places-vf-rings", "switch", "nic", "vf"];
    for before in ["", "[[switch]]", "[[nic]]", "[[nic]]\nguard = { yyy = 1 }"] {
        let all = words(before);
        assert!(all.len() >= 5, "{before}: {all:?}");
        for word in all
            .iter()
            .filter(|word| !elsewhere.contains(&word.as_str()))
        {
            let bold = format!("\\fB{}", word.replace('-', "\\-"));
            assert!(
                page.contains(&bold),
                "{before} {word} is not in hypernic.toml(5)"
            );
        }
    }
}

#[test]
fn markdown_becomes_roff() {
    let text = "## A title\n\nOne [link](x.md) and `a-b`,\ntwo.\n\n| key | meaning | default |\n|---|---|---|\n\
                | `k` | `x\\|y` | none |\n\n```toml\n.x = 'y'\n```\n- item\n";
    let page = roff::page(text);
    let expected = ".SH \"A TITLE\"\n.PP\nOne link and \\fBa\\-b\\fR, two.\n.TP\n\\fBk\\fR\n\\fBx|y\\fR\n.br\nDefault: none\n\
                    .PP\n.RS 4\n.nf\n\\&.x = 'y'\n.fi\n.RE\n.IP \\(bu 2\nitem\n";
    assert_eq!(page, expected);
}
