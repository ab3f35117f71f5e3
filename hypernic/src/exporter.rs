//! `hypernic exporter`: counters over HTTP, for Prometheus.
//!
//! A process of its own: the daemon speaks no HTTP and has no Internet socket. It asks the daemon as any client of the
//! control socket does, and needs the role monitor. Whatever its clients and the daemon do, it answers within bounded
//! time and keeps a bounded number of connections.

mod asker;
mod http;
mod listen;
mod server;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use self::asker::Asker;
use self::listen::Listening;
use crate::client::Place;
use crate::error::Error;

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
}

impl ExporterCommand {
    /// Serves until the process is ended. `print` is told where.
    ///
    /// # Errors
    /// The address is not to be had.
    pub fn execute(self, print: &mut dyn FnMut(String)) -> Result<(), Error> {
        let listening = Listening::start(&self.listen, self.unix.as_deref())?;
        let timeout = Duration::from_secs(self.timeout);
        let asker = Asker::start(self.place, timeout, self.limit, self.all);
        let asker = asker.map_err(|source| Error::Os {
            what: "cannot start a thread",
            source,
        })?;
        print(format!("{}\n", listening.shown()));
        server::serve(&listening, &asker);
        Ok(())
    }
}
