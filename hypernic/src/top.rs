//! `hypernic top`: what NICs, workers and switches do now, on a screen or line by line.

mod look;
mod names;
pub mod perf;
mod rates;
mod screen;
mod table;

use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};

pub(crate) use self::look::{Look, Sample};
pub(crate) use self::rates::{LossRow, View};
use crate::client::{Place, seconds};
use crate::error::Error;

/// `hypernic top`.
#[derive(Args, Debug)]
pub struct TopCommand {
    #[command(flatten)]
    place: Place,
    /// Print instead of showing a screen, as often as --iterations says.
    #[arg(short, long)]
    batch: bool,
    /// What to print.
    #[arg(short, long, value_enum, default_value_t, requires = "batch")]
    output: Output,
    /// How often to look; without it, until it is interrupted.
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    iterations: Option<u64>,
    /// Seconds between two looks.
    #[arg(short, long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds(0.1))]
    delay: f64,
}

/// What is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Tables.
    #[default]
    Text,
    /// One JSON object a line for each look.
    Json,
}

impl TopCommand {
    /// Looks and shows, until it is enough. What is printed goes to `print`.
    ///
    /// # Errors
    /// A daemon that is not there, refuses or ends; no terminal.
    pub fn execute(self, print: &mut dyn FnMut(String)) -> Result<(), Error> {
        let delay = Duration::from_secs_f64(self.delay);
        let mut look = Look::connect(self.place)?;
        if !self.batch {
            return screen::run(look, delay, self.iterations);
        }
        let mut before = look.look()?;
        let mut left = self.iterations;
        let mut next = Instant::now();
        while left != Some(0) {
            // At equal distances, whatever a look takes; late ones are not made up for.
            next = (next + delay).max(Instant::now());
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            let now = look.look()?;
            let view = View::between(&before, &now);
            print(match self.output {
                Output::Text => table::text(&view),
                Output::Json => {
                    let line = serde_json::to_string(&view);
                    format!("{}\n", line.unwrap_or_default())
                }
            });
            before = now;
            left = left.map(|left| left - 1);
        }
        Ok(())
    }
}
