//! The command `hypernic pkt-gen`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use hypernic_pkt_gen::args::PktGen;
use program::LogFormat;

// The flags beside pkt-gen's own are those that `hypernic` passes on. No doc comment: help shows PktGen's.
#[derive(Debug, Parser)]
#[command(name = "hypernic-pkt-gen", bin_name = "hypernic pkt-gen", version)]
struct Cli {
    /// How to write log lines.
    #[arg(long, value_enum, default_value_t = LogFormat::Human)]
    log_format: LogFormat,
    /// Say more (-v: debug, -vv: trace).
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
    #[command(flatten)]
    generator: PktGen,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let _log = program::log::start(cli.log_format, cli.verbose);
    match cli.generator.execute() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::from(error.exit_code() as u8)
        }
    }
}
