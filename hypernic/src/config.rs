//! What a host shall have: NICs and switches, from a TOML file or the command line.

mod access;
mod beside;
pub mod cells;
mod check;
pub(crate) mod edit;
mod plan;
mod policies;
mod profile;
mod raw;
pub mod reference;
mod sockets;
mod text;
mod types;
mod vfs;
mod words;

use std::path::Path;

use registry::{MODELS, Models};

pub use self::access::{Access, Peer};
pub use self::cells::CellLink;
use self::cells::Rule;
pub use self::plan::{Plan, Step};
pub(crate) use self::raw::retired;
use self::raw::{Fault, RawHost};
pub use self::sockets::{SocketAccess, parse_group, parse_mode};
pub use self::types::{
    CAPTURE_MIB, Cable, CellsOf, ChipConfig, DEFAULT_AGEING, DEFAULT_BUSY_POLL,
    DEFAULT_CAPTURE_MIB, HostConfig, LinkLocal, MAX_BUSY_POLL, MAX_WORKERS, NicConfig, PfOwner,
    Profile, Said, SandboxConfig, SocketSpec, SwitchConfig, VfConfig, Virtio, default_workers,
};
use crate::error::Error;

impl HostConfig {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// One line that names file, line and column, what is wrong there and what to do.
    pub fn load(file: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(file).map_err(|source| Error::ReadConfig {
            file: file.to_owned(),
            source,
        })?;
        let host = Self::parse(file, &text)?;
        Ok(Self {
            file: Some(std::path::absolute(file).unwrap_or_else(|_| file.to_owned())),
            ..host
        })
    }

    /// In the place of a file that cannot be read any more: what ran before will say what it was.
    pub(crate) fn that_ran(file: &Path, error: &Error) -> Self {
        Self {
            keeper: true,
            file: Some(std::path::absolute(file).unwrap_or_else(|_| file.to_owned())),
            hints: vec![format!(
                "{error}; what ran before goes on, without the file"
            )],
            ..Self::default()
        }
    }

    /// Checks the text of a file.
    ///
    /// # Errors
    /// As [`HostConfig::load`].
    pub fn parse(file: &Path, text: &str) -> Result<Self, Error> {
        Self::parse_with(MODELS, file, text)
    }

    /// The same of a host that runs. What it has stays where it is.
    ///
    /// # Errors
    /// As [`HostConfig::load`].
    pub(crate) fn parse_running(file: &Path, text: &str) -> Result<Self, Error> {
        Self::parse_by(MODELS, file, text, Rule::HeldBefore)
    }

    /// The same with the models of another table.
    ///
    /// # Errors
    /// As [`HostConfig::load`].
    pub fn parse_with(models: Models, file: &Path, text: &str) -> Result<Self, Error> {
        Self::parse_by(models, file, text, Rule::Holds)
    }

    fn parse_by(models: Models, file: &Path, text: &str, rule: Rule) -> Result<Self, Error> {
        let raw: Result<RawHost, Fault> = toml::from_str(text).map_err(|error| {
            let message = error.message().trim_end().replace('\n', "; ");
            Fault(error.span().map(|span| span.start), message)
        });
        raw.and_then(|raw| raw.check(models, rule))
            .map_err(|Fault(at, message)| {
                let message = printable(&message);
                let before = &text[..at.unwrap_or(0).min(text.len())];
                let line = before.matches('\n').count() + 1;
                let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
                Error::Config {
                    file: file.to_owned(),
                    line,
                    column,
                    message,
                }
            })
    }
}

/// Names and words that cannot be used come with the message, and they may hold line ends and what
/// terminals obey.
fn printable(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    for c in message.chars() {
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod dump_tests;
#[cfg(test)]
mod reference_tests;
#[cfg(test)]
mod tests;
