//! Where the daemon is, and how its answer is printed.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use clap::Args;
use control::{AskError, Changed, Client, Failure, Method, without_nulls};
use program::LogFormat;

use crate::error::Error;
use crate::fds;
use crate::spec::PortSpec;

/// Where the daemon is unless the command line says.
pub(crate) const DEFAULT_CONTROL: &str = "/run/hypernic/control.sock";

/// Where the daemon is.
#[derive(Args, Clone, Debug)]
pub struct Place {
    /// The daemon's control socket (control = "PATH" in its configuration file).
    #[arg(
        long,
        value_name = "PATH",
        global = true,
        default_value = DEFAULT_CONTROL
    )]
    pub control: PathBuf,
}

/// On what terms something is changed.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct Terms {
    /// Only say whether it can be done.
    #[arg(long)]
    pub check: bool,
    /// Write it into the daemon's configuration file, too.
    #[arg(long)]
    pub persist: bool,
    /// Only if the host still has this generation: it has not changed since you looked.
    #[arg(long, value_name = "N")]
    pub if_generation: Option<u64>,
}

impl Terms {
    /// The words of a call.
    pub(crate) fn words(self) -> (Option<bool>, Option<bool>, Option<u64>) {
        let on = |flag: bool| flag.then_some(true);
        (on(self.check), on(self.persist), self.if_generation)
    }
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

/// Descriptors that this program has inherited, and the daemon is to have.
#[derive(Debug, Default)]
pub(super) struct Hand(Vec<OwnedFd>);

impl Hand {
    /// The place of an inherited descriptor in a call.
    ///
    /// # Errors
    /// There is none of that number.
    pub fn place(&mut self, number: i32) -> Result<u32, Error> {
        self.0.push(fds::inherited(number).map_err(Error::Host)?);
        Ok(self.0.len() as u32 - 1)
    }

    /// A port, for the daemon.
    ///
    /// # Errors
    /// It is of a descriptor that was not inherited.
    pub fn port(&mut self, word: String) -> Result<String, Error> {
        // What is no port is refused by the daemon.
        let Ok(port) = word.parse::<PortSpec>() else {
            return Ok(word);
        };
        let Some(number) = port.fd() else {
            return Ok(word);
        };
        let place = self.place(number)?;
        Ok(port.with_fd(place as i32).to_string())
    }

    /// Asks the daemon, and hands over what the call names.
    ///
    /// # Errors
    /// It is not there, or refuses.
    pub fn ask<M: Method>(self, place: &Place, call: &M) -> Result<M::Reply, Error> {
        if self.0.is_empty() {
            return place.ask(call);
        }
        let fds: Vec<_> = self.0.iter().map(AsFd::as_fd).collect();
        with(place.connect()?.call_with(call, &fds))
    }
}

impl Place {
    /// Whether no other socket was named.
    pub(crate) fn is_default(&self) -> bool {
        self.control == Path::new(DEFAULT_CONTROL)
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
