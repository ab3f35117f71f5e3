//! `hypernic monitor`.

use std::fmt::Write as _;
use std::time::Duration;

use clap::Args;
use control::{News, Subscribe};
use program::LogFormat;

use super::place::{Place, Printed, with};
use crate::error::Error;

/// Nothing may change for long.
const PATIENCE: Duration = Duration::from_secs(365 * 24 * 3600);

/// `hypernic monitor`.
#[derive(Args, Debug)]
pub struct MonitorCommand {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    printed: Printed,
    /// Tell when something begins to be lost or refused, and when that ends. The daemon then reads all its counters once
    /// a second.
    #[arg(long)]
    losses: bool,
}

impl MonitorCommand {
    /// Asks the daemon, and gives what it tells to `print`, until it tells no more.
    ///
    /// # Errors
    /// A daemon that is not there, refuses or ends.
    pub fn execute(self, format: LogFormat, print: &mut dyn FnMut(String)) -> Result<(), Error> {
        let mut client = self.place.connect()?;
        let losses = Some(self.losses);
        with(client.send(&Subscribe { losses }, true))?;
        loop {
            let (news, more) = with(client.next::<Subscribe>(PATIENCE))?;
            print(self.printed.show(format, &news, told));
            if !more {
                return Ok(());
            }
        }
    }
}

fn told(news: &News) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    if let Some(lost) = news.lost {
        let _ = writeln!(text, "{lost} changes were lost");
    }
    if let Some(state) = &news.state {
        let connected = state.nics.iter().filter(|nic| nic.connected).count();
        let (nics, switches) = (state.nics.len(), state.switches.len());
        let _ = writeln!(
            text,
            "{nics} NICs, {connected} connected; {switches} switches"
        );
    }
    for event in &news.events {
        let _ = write!(text, "{} {}", event.what.word(), event.name);
        if let Some(detail) = &event.detail {
            let _ = write!(text, " {detail}");
        }
        if let Some(count) = event.count {
            let _ = write!(text, " {count}");
        }
        let _ = writeln!(text);
    }
    text
}
