//! Calls of the main process to cells, and its words to the keeper that starts them.

use std::fmt;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use control::{AskError, Client, ConfigApply, Method};

/// How long a cell may take: to hear, and then to answer.
#[derive(Clone, Copy)]
pub(crate) struct Patience(pub(crate) Duration, Duration);

impl Patience {
    /// With one that nothing is asked of but to know.
    pub(crate) const LITTLE: Self = Self(Duration::ZERO, Duration::from_millis(200));
    /// With one whose NICs change. Its worker may be starting again just now.
    pub(crate) const SOME: Self = Self(Duration::from_secs(2), Duration::from_secs(3));
    /// With one that is to be started.
    pub(crate) const MUCH: Self = Self(Duration::from_secs(6), Duration::from_secs(3));
}

/// How long one may take that is only asked how it is: a tenant's cell that stands still holds nobody else up for longer.
pub(crate) const GLANCE: Duration = Duration::from_millis(500);

/// Why a cell does not know.
#[derive(Debug)]
pub(crate) enum Untold {
    /// It does not hear.
    Absent(String),
    /// It cannot do it.
    Refused(String),
}

impl fmt::Display for Untold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Untold::Absent(why) | Untold::Refused(why) => f.write_str(why),
        }
    }
}

/// The keeper starts these cells, with this text, and ends all others.
pub(crate) fn keep<'a>(text: &str, cells: impl Iterator<Item = &'a String>) -> io::Result<()> {
    let (text, cells) = (text.to_owned(), cells.cloned().collect::<Vec<_>>());
    threads::apart(move || {
        for cell in &cells {
            if !keeper::cell(cell, &text)? {
                return Err(io::Error::other("it has no room for another cell"));
            }
        }
        let names: Vec<_> = cells.iter().map(String::as_str).collect();
        keeper::end_other_cells(&names);
        Ok(())
    })
}

/// Connects to a cell, which may not be there yet.
///
/// # Errors
/// It is not.
pub(crate) fn reach(path: &Path, patience: Duration) -> Result<Client, AskError> {
    let until = Instant::now() + patience;
    loop {
        match Client::connect(path) {
            Ok(client) => return Ok(client),
            Err(_) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            Err(error) => return Err(error),
        }
    }
}

/// Has a cell be as this text says.
pub(crate) fn tell(path: &Path, text: &str, patience: Patience) -> Result<(), Untold> {
    let call = ConfigApply {
        text: Some(text.to_owned()),
        disconnect: Some(true),
        partly: Some(true),
        ..ConfigApply::default()
    };
    match ask_for(path, &call, patience) {
        Ok(plan) => match plan.cannot.into_iter().find(|one| one.kind != "head") {
            Some(one) => Err(Untold::Refused(format!(
                "{} {}: {}",
                one.kind, one.name, one.why
            ))),
            None => Ok(()),
        },
        Err(AskError::Refused(failure)) => Err(Untold::Refused(failure.to_string())),
        Err(error) => Err(Untold::Absent(error.to_string())),
    }
}

/// Asks a cell, which may take so long.
///
/// # Errors
/// It does not answer, or refuses.
pub(crate) fn ask_for<M: Method>(
    path: &Path,
    call: &M,
    Patience(hears, answers): Patience,
) -> Result<M::Reply, AskError> {
    reach(path, hears)?.ask(call, answers)
}

/// Asks a cell something that it answers at once.
///
/// # Errors
/// It does not, or refuses.
pub(crate) fn ask<M: Method>(path: &Path, call: &M) -> Result<M::Reply, AskError> {
    Client::connect(path)?.ask(call, GLANCE)
}
