//! The pages.

use std::io;
use std::path::Path;

use clap::{Args, CommandFactory};
use hypernic::cli::Cli;
use hypernic::config::reference;
use pkt_gen::args::PktGen;

use super::roff;

/// The page on configuration, and its sections that say more of some words.
const CONFIGURATION: &str = include_str!("../../../docs/configuration.md");
const SECTIONS: [&str; 3] = ["Ports", "Guards", "Several tenants"];

/// Writes all pages into a folder.
pub fn write(dir: &Path) -> io::Result<()> {
    clap_mangen::generate_to(Cli::command(), dir)?;
    // A name of the same program, under which it is told less.
    let same = ".so man1/hypernic-run.1\n";
    std::fs::write(dir.join("hypernic-vhost-user-net.1"), same)?;
    // A program of its own, which hypernic runs as a command.
    let generator = clap::Command::new("hypernic-pkt-gen").version(env!("CARGO_PKG_VERSION"));
    clap_mangen::generate_to(PktGen::augment_args(generator), dir)?;
    std::fs::write(dir.join("hypernic.toml.5"), toml())
}

/// `hypernic.toml(5)`.
pub fn toml() -> String {
    let head = concat!(
        ".TH HYPERNIC.TOML 5 \"\" \"hypernic ",
        env!("CARGO_PKG_VERSION"),
        "\"\n.SH NAME\nhypernic.toml \\- what a hypernic host has: NICs, switches and ports\n\
         .SH DESCRIPTION\nA TOML file that \\fBhypernic serve\\fR(1) reads; hypernic.service reads\n\
         .IR /etc/hypernic/host.toml .\n"
    );
    let words = reference::page();
    // Without its title, and what it says of itself.
    let words = words.find("\n## ").map_or("", |at| &words[at + 1..]);
    let sections = SECTIONS.map(|title| roff::page(&section(title)));
    let also =
        ".SH SEE ALSO\n.BR hypernic (1),\n.BR hypernic\\-serve (1),\n.BR hypernic\\-config (1)\n";
    format!("{head}{}{}{also}", roff::page(words), sections.concat())
}

/// One section of the reference, with its title.
fn section(title: &str) -> String {
    let head = format!("## {title}\n");
    let from = CONFIGURATION.find(&head).unwrap_or(CONFIGURATION.len());
    let text = &CONFIGURATION[from..];
    let end = text[head.len().min(text.len())..].find("\n## ");
    let end = end.map_or(text.len(), |at| head.len() + at + 1);
    text[..end].to_owned()
}
