//! Changes, where they are allowed: the daemon says whether this user may make them.

use std::path::PathBuf;

use control::{
    AskError, Failure, Method, NicRemove, PortRemove, State, VfChange, VfLeave, VfRevive, VfSet,
};
use parking_lot::Mutex;
use serde::Deserialize;

use crate::http::Answer;

/// What the page asks for. Each only if the host has the generation that the page has seen.
#[derive(Debug, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case", deny_unknown_fields)]
enum Wish {
    /// What a virtual function is told of its link.
    VfLink {
        nic: String,
        state: State,
        generation: u64,
    },
    /// Lets a virtual function try again that was shut down.
    VfRevive { nic: String, generation: u64 },
    /// Tells a virtual function that it will be taken away.
    VfLeave { nic: String, generation: u64 },
    /// Takes a NIC away; its VMM is disconnected.
    NicRemove { nic: String, generation: u64 },
    /// Closes a port of a switch.
    PortRemove {
        switch: String,
        port: String,
        generation: u64,
    },
}

pub(super) struct Changes {
    control: PathBuf,
    /// One at a time.
    busy: Mutex<()>,
}

impl Changes {
    pub fn new(control: PathBuf) -> Self {
        Self {
            control,
            busy: Mutex::new(()),
        }
    }

    /// Makes a change. Returns JSON.
    ///
    /// # Errors
    /// It cannot be made: the answer.
    pub fn make(&self, body: &[u8]) -> Result<String, Answer> {
        let wish: Wish = serde_json::from_slice(body)
            .map_err(|error| Answer::line("400 Bad Request", &error.to_string()))?;
        let Some(_busy) = self.busy.try_lock() else {
            return Err(Answer::line("409 Conflict", "another change is under way"));
        };
        tracing::info!("a page asks: {wish:?}");
        let made = match wish {
            Wish::VfLink {
                nic,
                state,
                generation,
            } => self.ask(&VfSet {
                nic,
                change: VfChange {
                    state: Some(state),
                    ..VfChange::default()
                },
                if_generation: Some(generation),
                ..VfSet::default()
            }),
            Wish::VfRevive { nic, generation } => self.ask(&VfRevive {
                nic,
                if_generation: Some(generation),
                ..VfRevive::default()
            }),
            Wish::VfLeave { nic, generation } => self.ask(&VfLeave {
                nic,
                if_generation: Some(generation),
                ..VfLeave::default()
            }),
            Wish::NicRemove { nic, generation } => self.ask(&NicRemove {
                name: nic,
                if_generation: Some(generation),
                ..NicRemove::default()
            }),
            Wish::PortRemove {
                switch,
                port,
                generation,
            } => self.ask(&PortRemove {
                switch,
                port,
                if_generation: Some(generation),
                ..PortRemove::default()
            }),
        };
        made.map_err(|error| {
            let status = match error {
                AskError::Refused(Failure::NotAllowed { .. }) => "403 Forbidden",
                AskError::Refused(_) => "409 Conflict",
                _ => "502 Bad Gateway",
            };
            Answer::line(status, &error.to_string())
        })
    }

    fn ask<M: Method>(&self, call: &M) -> Result<String, AskError> {
        let reply = control::ask(&self.control, call)?;
        Ok(serde_json::to_string(&reply).unwrap_or_default())
    }
}
