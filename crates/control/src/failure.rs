//! Why a call was not done. Nothing has changed then.

use serde::{Deserialize, Serialize};

/// A named error. The names that begin with `org.varlink.service` are Varlink's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "error", content = "parameters")]
pub enum Failure {
    /// There is no such interface.
    #[error("the daemon has no interface {interface}")]
    #[serde(rename = "org.varlink.service.InterfaceNotFound")]
    InterfaceNotFound {
        /// Its name.
        interface: String,
    },
    /// The interface has no such method.
    #[error("the daemon has no method {method}")]
    #[serde(rename = "org.varlink.service.MethodNotFound")]
    MethodNotFound {
        /// Its name.
        method: String,
    },
    /// A parameter is missing, unknown or of another type; or the message is no call.
    #[error("cannot parse the request: {parameter}")]
    #[serde(rename = "org.varlink.service.InvalidParameter")]
    InvalidParameter {
        /// What is wrong with which.
        parameter: String,
    },
    /// The method has several replies, and the call asks for one.
    #[error("the method has several replies: call it with \"more\"")]
    #[serde(rename = "org.varlink.service.ExpectedMore")]
    ExpectedMore {},
    /// The user may not do that.
    #[error("{message}")]
    #[serde(rename = "io.hypernic.Control.NotAllowed")]
    NotAllowed {
        /// The role that may.
        needs: String,
        /// What the user's role is.
        role: String,
        /// One line for people.
        message: String,
    },
    /// There is nothing of that name.
    #[error("{message}")]
    #[serde(rename = "io.hypernic.Control.Unknown")]
    Unknown {
        /// A NIC, a switch, a port …
        kind: String,
        /// The name.
        name: String,
        /// One line for people.
        message: String,
    },
    /// There is something else of that name.
    #[error("{message}")]
    #[serde(rename = "io.hypernic.Control.Exists")]
    Exists {
        /// A NIC, a switch, a port …
        kind: String,
        /// The name.
        name: String,
        /// The words in which it differs.
        differs: Vec<String>,
        /// One line for people.
        message: String,
    },
    /// Something else needs it.
    #[error("{message}")]
    #[serde(rename = "io.hypernic.Control.InUse")]
    InUse {
        /// A NIC, a switch, a port …
        kind: String,
        /// The name.
        name: String,
        /// What needs it.
        by: Vec<String>,
        /// One line for people.
        message: String,
    },
    /// The host has been changed since the caller looked.
    #[error("{message}")]
    #[serde(rename = "io.hypernic.Control.Stale")]
    Stale {
        /// The generation that the call names.
        expected: u64,
        /// The one that the host has.
        generation: u64,
        /// One line for people.
        message: String,
    },
    /// Some of it cannot be changed while the host runs.
    #[error("{message}")]
    #[serde(rename = "io.hypernic.Control.NotWhileRunning")]
    NotWhileRunning {
        /// What.
        cannot: Vec<String>,
        /// One line for people.
        message: String,
    },
    /// A NIC cannot move to another host.
    #[error("{message}")]
    #[serde(rename = "io.hypernic.Control.CannotMove")]
    CannotMove {
        /// The NIC.
        nic: String,
        /// Why, and what to do instead: one line.
        message: String,
    },
    /// A move is over here, and was ended otherwise.
    #[error("{message}")]
    #[serde(rename = "io.hypernic.Control.MoveDecided")]
    MoveDecided {
        /// The operator's name for the move.
        id: String,
        /// `committed` or `aborted`.
        step: String,
        /// One line for people.
        message: String,
    },
    /// What is asked for cannot be.
    #[error("{message}")]
    #[serde(rename = "io.hypernic.Control.Invalid")]
    Invalid {
        /// What is wrong, and what to do: one line.
        message: String,
    },
    /// The host refused something: a socket in use, a TAP, a file.
    #[error("{message}")]
    #[serde(rename = "io.hypernic.Control.Failed")]
    Failed {
        /// Cause and cure: one line.
        message: String,
    },
}

impl Failure {
    /// What is asked for cannot be.
    pub fn invalid(message: impl Into<String>) -> Self {
        Failure::Invalid {
            message: message.into(),
        }
    }

    /// The host refused something.
    pub fn failed(message: impl Into<String>) -> Self {
        Failure::Failed {
            message: message.into(),
        }
    }

    /// The same in one line, without what terminals and logs obey: names come from callers.
    #[must_use]
    pub fn printable(self) -> Self {
        let escaped = |text: &str| {
            let one = |c: char| match c.is_control() {
                true => c.escape_default().to_string(),
                false => c.to_string(),
            };
            text.chars().map(one).collect::<String>()
        };
        let Ok(mut value) = serde_json::to_value(&self) else {
            return self;
        };
        for member in ["message", "parameter", "method", "interface"] {
            if let Some(text) = value["parameters"].get_mut(member)
                && let Some(told) = text.as_str().map(escaped)
            {
                *text = told.into();
            }
        }
        serde_json::from_value(value).unwrap_or(self)
    }

    /// There is no `kind` called `name`. `known` are those there are.
    pub fn unknown<'a>(kind: &str, name: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        /// More would make no line.
        const SHOWN: usize = 8;
        let mut known: Vec<&str> = known.into_iter().collect();
        let more = known.len().saturating_sub(SHOWN);
        known.truncate(SHOWN);
        let mut list = known.join(", ");
        if more > 0 {
            list += &format!(" and {more} more");
        }
        if list.is_empty() {
            list = "none".into();
        }
        Failure::Unknown {
            kind: kind.into(),
            name: name.into(),
            message: format!("there is no {kind} {name:?} (there is: {list})"),
        }
    }

    /// Whether the message is no call at all: a mistake of the client program's and not of its user's.
    pub fn is_malformed(&self) -> bool {
        matches!(
            self,
            Failure::InterfaceNotFound { .. }
                | Failure::MethodNotFound { .. }
                | Failure::InvalidParameter { .. }
                | Failure::ExpectedMore {}
        )
    }

    /// The errors that are hypernic's, for the interface that declares them.
    pub(crate) const DECLARED: &'static str = "\
# The user's role does not allow the call.
error NotAllowed (needs: string, role: string, message: string)

# There is nothing of that name.
error Unknown (kind: string, name: string, message: string)

# There is something else of that name; `differs` names the words.
error Exists (kind: string, name: string, differs: []string, message: string)

# Something else needs it.
error InUse (kind: string, name: string, by: []string, message: string)

# The host has been changed since the caller looked.
error Stale (expected: int, generation: int, message: string)

# Some of it cannot be changed while the host runs.
error NotWhileRunning (cannot: []string, message: string)

# The NIC cannot move to another host.
error CannotMove (nic: string, message: string)

# The move is over here, and was ended otherwise: `committed` or `aborted`.
error MoveDecided (id: string, step: string, message: string)

# What is asked for cannot be.
error Invalid (message: string)

# The host refused something: a socket in use, a TAP, a file.
error Failed (message: string)
";
}
