//! What a module is told on the command line.

use std::path::PathBuf;

use crate::pairs::Plan;
use crate::quiet::Quiet;

/// What a module is told.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Fewer and shorter runs: to see that it works, not to publish.
    #[arg(long)]
    pub quick: bool,
    /// Pairs of each scenario (9, or 3 with --quick).
    #[arg(long)]
    pub pairs: Option<usize>,
    /// Rounds of each sample in the other modules (7, or 3 with --quick).
    #[arg(long)]
    pub rounds: Option<usize>,
    /// Take samples whatever else runs on this machine: to see that it works, not to publish.
    #[arg(long)]
    pub any_load: bool,
    /// How often a sample that others disturbed is taken again before it is given up.
    #[arg(long, default_value_t = 6)]
    pub tries: usize,
    /// Only these scenarios.
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// QEMU's NIC on both ends: what the method alone does to the figures.
    #[arg(long)]
    pub both_qemu: bool,
    /// Another build of the daemon instead of QEMU's NIC: what a change brings.
    #[arg(long, value_name = "DAEMON", conflicts_with = "both_qemu")]
    pub against: Option<PathBuf>,
    /// The daemon (by default the one beside this program).
    #[arg(long)]
    pub hypernic: Option<PathBuf>,
    /// One more word for the daemon, in the modules with poll-mode guests.
    #[arg(long, value_name = "WORD", allow_hyphen_values = true)]
    pub daemon_args: Vec<String>,
    /// Where reports go (docs/report, or target/bench when only a part is measured).
    #[arg(long)]
    pub out: Option<PathBuf>,
}

impl Options {
    /// How long and how often to run.
    pub fn plan(&self) -> Plan {
        let (rounds, scale) = if self.quick { (3, 0.4) } else { (9, 1.0) };
        Plan {
            rounds: self.pairs.unwrap_or(rounds).max(1),
            scale,
        }
    }

    /// How often each sample is taken.
    pub fn rounds(&self) -> usize {
        let default = if self.quick { 3 } else { 7 };
        self.rounds.unwrap_or(default).max(1)
    }

    /// Who decides which samples count.
    pub fn quiet(&self) -> Quiet {
        Quiet::new(self.any_load, self.tries)
    }

    /// Whether a scenario was asked for.
    pub fn wants(&self, id: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|o| o == id)
    }

    /// Words for the daemon that every module adds.
    pub fn daemon(&self) -> Vec<String> {
        self.daemon_args.clone()
    }

    /// The daemon's binary.
    pub fn hypernic(&self) -> PathBuf {
        let beside = || {
            let program = std::env::current_exe().unwrap_or_default();
            program.with_file_name("hypernic")
        };
        self.hypernic.clone().unwrap_or_else(beside)
    }

    /// Where reports go.
    pub fn out(&self) -> PathBuf {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
        let partial = self.quick
            || self.any_load
            || self.both_qemu
            || self.against.is_some()
            || !self.only.is_empty();
        let default = root.join(if partial {
            "target/bench"
        } else {
            "docs/report"
        });
        self.out.clone().unwrap_or(default)
    }
}

#[cfg(test)]
impl Options {
    /// As these words say.
    pub fn of_words(words: &[&str]) -> Self {
        #[derive(clap::Parser)]
        struct Words {
            #[command(flatten)]
            options: Options,
        }
        let words = std::iter::once("bench").chain(words.iter().copied());
        <Words as clap::Parser>::parse_from(words).options
    }
}
