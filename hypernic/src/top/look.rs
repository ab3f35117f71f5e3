//! One look at a daemon.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use control::{Client, MetricsGet, NicInfo, NicList, Vf, VfShow};

use super::names::NAMES;
use crate::client::{Place, with};
use crate::error::Error;
use crate::explain;
use crate::worker::histogram;

/// What a thing of a kind counted; what it does not name is 0.
pub(crate) type Counts = BTreeMap<String, u64>;

/// What there was at a time.
pub(crate) struct Sample {
    pub at: Instant,
    pub nics: Vec<NicInfo>,
    pub vfs: Vec<Vf>,
    /// By kind and name.
    pub counts: HashMap<String, BTreeMap<String, Counts>>,
}

impl Sample {
    /// Seconds between an earlier look and this one, never 0.
    pub fn since(&self, before: &Self) -> f64 {
        let seconds = self.at.duration_since(before.at).as_secs_f64();
        seconds.max(1e-3)
    }

    /// All of a kind.
    pub fn of(&self, kind: &str) -> impl Iterator<Item = (&str, &Counts)> {
        let all = self.counts.get(kind).into_iter().flatten();
        all.map(|(name, counts)| (name.as_str(), counts))
    }

    pub fn get(&self, kind: &str, name: &str) -> Option<&Counts> {
        self.counts.get(kind)?.get(name)
    }
}

/// A connection to the daemon that is looked at.
pub(crate) struct Look {
    client: Client,
    wanted: MetricsGet,
}

impl Look {
    pub fn connect(place: Place) -> Result<Self, Error> {
        let client = place.connect()?;
        let losses = explain::all().filter(|row| row.class.needs_cure());
        let names = losses.map(|row| row.name).chain(NAMES.iter().copied());
        let bounds = histogram().0.into_iter().map(|(_, name)| name);
        let wanted = MetricsGet {
            kind: None,
            things: None,
            names: Some(names.chain(bounds).map(str::to_owned).collect()),
            // What is 0 need not be told.
            zeros: Some(Vec::new()),
        };
        Ok(Self { client, wanted })
    }

    /// The connection, for other questions.
    pub fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    pub fn look(&mut self) -> Result<Sample, Error> {
        let nics = with(self.client.call(&NicList { name: None }))?.nics;
        let functions = nics.iter().any(|nic| nic.vf.is_some());
        let vfs = match functions {
            true => with(self.client.call(&VfShow { nic: None }))?.vfs,
            false => Vec::new(),
        };
        let sections = with(self.client.call(&self.wanted))?.sections;
        let at = Instant::now();
        let mut counts: HashMap<String, BTreeMap<String, Counts>> = HashMap::new();
        for section in sections {
            let of_kind = counts.entry(section.kind).or_default();
            of_kind.insert(section.name, section.values);
        }
        Ok(Sample {
            at,
            nics,
            vfs,
            counts,
        })
    }
}
