//! Where the daemon is, and how its answer is printed.

use std::path::{Path, PathBuf};

use clap::Args;
use control::{AskError, Changed, Client, Failure, Method, without_nulls};
use program::LogFormat;

use crate::error::Error;

/// The control socket unless one is named.
const DEFAULT: &str = "/run/hypernic/control.sock";

/// Where the daemon is.
#[derive(Args, Clone, Debug)]
pub struct Place {
    /// The daemon's control socket (control = "PATH" in its configuration file).
    #[arg(
        long,
        value_name = "PATH",
        global = true,
        default_value = DEFAULT
    )]
    pub control: PathBuf,
}

/// How an answer is printed.
#[derive(Args, Clone, Copy, Debug)]
pub struct Printed {
    /// Print the daemon's reply as JSON.
    #[arg(long, global = true)]
    pub json: bool,
}

impl Place {
    /// Asks the daemon.
    ///
    /// # Errors
    /// It is not there, or refuses.
    pub fn ask<M: Method>(&self, call: &M) -> Result<M::Reply, Error> {
        ask(&self.control, call)
    }
}

impl Place {
    /// Whether no other socket was named.
    pub(crate) fn is_default(&self) -> bool {
        self.control == Path::new(DEFAULT)
    }

    /// A connection for several calls.
    ///
    /// # Errors
    /// The daemon is not there.
    pub(crate) fn connect(&self) -> Result<Client, Error> {
        with(Client::connect(&self.control))
    }
}

/// What a client was answered.
pub(crate) fn with<T>(result: Result<T, AskError>) -> Result<T, Error> {
    result.map_err(of)
}

/// Asks the daemon at a control socket.
///
/// # Errors
/// It is not there, or refuses.
pub(crate) fn ask<M: Method>(control: &Path, call: &M) -> Result<M::Reply, Error> {
    control::ask(control, call).map_err(of)
}

impl Printed {
    /// The reply as programs read it, or else as people do.
    pub fn show<T: serde::Serialize>(
        self,
        format: LogFormat,
        reply: &T,
        people: impl FnOnce(&T) -> String,
    ) -> String {
        if !self.json && format != LogFormat::Json {
            return people(reply);
        }
        let value = serde_json::to_value(reply).unwrap_or_default();
        format!("{}\n", without_nulls(value))
    }
}

/// What people read of a change.
pub(super) fn changed(what: &str, checked: bool) -> impl FnOnce(&Changed) -> String {
    let told = match checked {
        true => format!("{what}: it can be done\n"),
        false => format!("{what}: done\n"),
    };
    let as_it_is = format!("{what}: nothing to do\n");
    move |reply| if reply.changed { told } else { as_it_is }
}

/// A daemon's refusal is an error of the command's.
fn of(error: AskError) -> Error {
    match error {
        AskError::Refused(failure @ Failure::Failed { .. }) => Error::Host(failure.to_string()),
        AskError::Refused(failure) => Error::Refused(failure.to_string()),
        error => Error::Ask(error),
    }
}
