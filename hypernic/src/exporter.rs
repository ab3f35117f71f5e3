//! `hypernic exporter`: counters over HTTP, for Prometheus.
//!
//! A process of its own: the daemon speaks no HTTP and has no Internet socket. It asks the daemon as any client of the
//! control socket does, and needs the role monitor. Whatever its clients and the daemon do, it answers within bounded
//! time and keeps a bounded number of connections.

mod accept;
mod asker;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use jail::Mode;

use self::accept::form;
use self::asker::Asker;
use crate::client::Place;
use crate::error::Error;
use crate::http::{self, Answer, Asked, Counters, Listening, Method, Names, Rules, Site};
use crate::sandbox;

/// `hypernic exporter`.
#[derive(Args, Debug)]
pub struct ExporterCommand {
    #[command(flatten)]
    place: Place,
    /// Address and port to listen at; port 0 takes a free one, which is printed. Systemd's socket activation comes
    /// before it.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9479")]
    listen: String,
    /// Listen at a Unix socket instead.
    #[arg(long, value_name = "PATH", conflicts_with = "listen")]
    unix: Option<PathBuf>,
    /// Seconds that the daemon may take for an answer. After that, hypernic_up is 0.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=60))]
    timeout: u64,
    /// Most samples of an answer; what is left out is counted in hypernic_exporter_left_out_total.
    #[arg(long, value_name = "SAMPLES", default_value_t = 100_000)]
    limit: usize,
    /// Every counter of every NIC, too.
    #[arg(long)]
    all: bool,
    /// What this process gives up once it listens: as the daemon's word.
    #[arg(long, value_name = "MODE", default_value_t, value_parser = str::parse::<Mode>)]
    sandbox: Mode,
    /// Where it listens.
    #[arg(skip)]
    listening: Option<Listening>,
}

impl ExporterCommand {
    /// Listens, and gives up the rest. To be called once, before there is any other thread.
    ///
    /// # Errors
    /// The address is not to be had, or what a strict sandbox needs.
    pub fn settle(&mut self) -> Result<(), Error> {
        self.listening = Some(Listening::start(&self.listen, self.unix.as_deref())?);
        sandbox::enter_beside(self.sandbox, self.unix.as_deref())
    }

    /// Serves until the process is ended. `print` is told where.
    ///
    /// # Errors
    /// It has not settled, or can start no thread.
    pub fn execute(self, print: &mut dyn FnMut(String)) -> Result<(), Error> {
        let listening = self.listening.ok_or_else(http::not_listening)?;
        let timeout = Duration::from_secs(self.timeout);
        let asker = Asker::start(self.place, timeout, self.limit, self.all);
        let asker = asker.map_err(|source| Error::Os {
            what: "cannot start a thread",
            source,
        })?;
        print(format!("{}\n", listening.shown("/metrics")));
        let names = match listening.is_local() {
            true => Names::ThisHost(Vec::new()),
            false => Names::Any,
        };
        let rules = Rules {
            names,
            posts: false,
        };
        let counters = Counters::default();
        let exporter = Exporter {
            asker,
            rules,
            counters,
        };
        http::serve(&listening, &exporter);
        Ok(())
    }
}

struct Exporter {
    asker: Asker,
    rules: Rules,
    counters: Counters,
}

impl Site for Exporter {
    fn rules(&self) -> &Rules {
        &self.rules
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn answer(&self, asked: &Asked) -> Answer {
        debug_assert_ne!(asked.method, Method::Post);
        match asked.path.as_str() {
            "/metrics" => {
                let form = form(asked.field("accept").unwrap_or(""));
                let text = self.asker.text(form, &self.counters);
                Answer::new("200 OK", form.content_type(), text)
            }
            "/" => Answer::line("200 OK", "hypernic exporter: see /metrics"),
            _ => Answer::line("404 Not Found", "there is /metrics"),
        }
    }
}
