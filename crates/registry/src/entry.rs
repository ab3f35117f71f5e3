//! What the table says of a model.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use igb::Moderation;
use model::Nic;

/// An entry of the table.
pub struct Model {
    /// As users write it.
    pub name: &'static str,
    /// Other names that users may write.
    pub aliases: &'static [&'static str],
    /// The chip, for those who ask which models there are.
    pub chip: &'static str,
    /// What to know when choosing: a few words for `--help`, or none.
    pub remark: &'static str,
    /// Revisions there are of what its guests see: capabilities, reset values, feature bits. A change of these is one more, and
    /// those before it can still be made.
    pub revisions: u16,
    /// Bytes of its non-volatile memory, the EEPROM of configuration files.
    pub nvm: usize,
    /// When it interrupts if the operator does not say.
    pub moderation: Moderation,
    /// The most VFs that a guest's PF controls; `None` where the model has no VFs at all.
    pub vfs: Option<u32>,
    /// The options it does not take; it takes all others.
    pub refuses: &'static [Refusal],
    /// Makes one. What it refuses is not asked for, and the image of its NVM, if any, has the right length.
    pub make: fn(&Settings, &Function) -> Nic,
    /// Makes its device without PCI, for transports that are virtio's own; `None` where it has none.
    pub virtio: Option<fn(&Settings) -> virtio_net::Device>,
    /// What an operator is to know who lets VMMs map its doorbells, if anything.
    pub page_hint: Option<&'static str>,
}

/// An option that not every model takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The Communication Status Block.
    Csb,
    /// The link partner offers pause frames.
    Pause,
    /// Receive throttling.
    ReceiveThrottling,
    /// Several pairs of queues.
    QueuePairs,
    /// Split rings only.
    SplitRings,
    /// An MTU that drivers are told.
    Mtu,
    /// Stand in for another NIC.
    Standby,
    /// Hashes of flows.
    HashReport,
}

/// An option that a model does not take.
#[derive(Clone, Copy, Debug)]
pub struct Refusal {
    /// The option.
    pub choice: Choice,
    /// Only a PF with VFs refuses it.
    pub with_vfs_only: bool,
    /// The error for the operator: why not, and what to do.
    pub reason: &'static str,
}

/// Which function of its chip a NIC is.
#[derive(Clone, Default)]
pub enum Function {
    /// The only one.
    #[default]
    Alone,
    /// A virtual function, by its channel to the PF.
    Vf(Arc<igb::VfChannel>),
    /// The physical function that controls the VFs of this hub.
    PfWithVfs(Arc<igb::Hub>),
}

/// What can be chosen of any NIC.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Station address, as the NVM holds it when it is new.
    pub mac: [u8; 6],
    /// The image of the NVM; `None` for a new one.
    pub nvm: Option<Vec<u8>>,
    /// When interrupts are raised.
    pub moderation: Moderation,
    /// The link partner offers pause frames.
    pub pause: bool,
    /// Receive throttling.
    pub receive_throttling: bool,
    /// Offer a Communication Status Block.
    pub csb: bool,
    /// With a CSB: how long the transmitter looks for new tails before it sleeps.
    pub csb_poll: Duration,
    /// A PF may say where the rings of its VFs are, as on the chip, and so have the chip read and write memory of
    /// their guests.
    pub pf_places_vf_rings: bool,
    /// Pairs of queues, 1 to 16.
    pub queue_pairs: u16,
    /// Offer no packed rings.
    pub split_rings: bool,
    /// The MTU that drivers are told.
    pub mtu: Option<u16>,
    /// Stand in for another NIC with the same address.
    pub standby: bool,
    /// Tell drivers the hash of each frame's flow.
    pub hash_report: bool,
    /// How long the link negotiates; as long as the chip's usual if `None`.
    pub negotiation: Option<Duration>,
    /// The revision of the model; the newest if `None`.
    pub revision: Option<u16>,
}

impl Settings {
    /// The usual NIC with this address. As the guest's driver says is when it interrupts.
    pub fn new(mac: [u8; 6]) -> Self {
        Self {
            mac,
            nvm: None,
            moderation: Moderation::Guest,
            pause: false,
            receive_throttling: false,
            csb: false,
            csb_poll: Duration::ZERO,
            pf_places_vf_rings: false,
            queue_pairs: 1,
            split_rings: false,
            mtu: None,
            standby: false,
            hash_report: false,
            negotiation: None,
            revision: None,
        }
    }

    /// The same, whose link is up at once: what fuzzers start from.
    pub fn ready(mac: [u8; 6]) -> Self {
        Self {
            negotiation: Some(Duration::ZERO),
            ..Self::new(mac)
        }
    }

    fn asks(&self, choice: Choice) -> bool {
        match choice {
            Choice::Csb => self.csb,
            Choice::Pause => self.pause,
            Choice::ReceiveThrottling => self.receive_throttling,
            Choice::QueuePairs => self.queue_pairs != 1,
            Choice::SplitRings => self.split_rings,
            Choice::Mtu => self.mtu.is_some(),
            Choice::Standby => self.standby,
            Choice::HashReport => self.hash_report,
        }
    }
}

impl Model {
    /// Whether it takes all options of `settings`.
    ///
    /// # Errors
    /// The reason for one that it does not take.
    pub fn check(&self, settings: &Settings, function: &Function) -> Result<(), String> {
        let with_vfs = matches!(function, Function::PfWithVfs(_));
        let asked = |refusal: &&Refusal| {
            settings.asks(refusal.choice) && (with_vfs || !refusal.with_vfs_only)
        };
        if let Some(refusal) = self.refuses.iter().find(asked) {
            return Err(refusal.reason.into());
        }
        match settings.revision {
            Some(revision) => self.check_revision(revision),
            None => Ok(()),
        }
    }

    /// Whether this program can make that revision of it.
    ///
    /// # Errors
    /// One line, which says what there is.
    pub fn check_revision(&self, revision: u16) -> Result<(), String> {
        let (name, newest) = (self.name, self.revisions);
        if (1..=newest).contains(&revision) {
            return Ok(());
        }
        Err(match newest {
            1 => format!("the {name} of this program has model revision 1 only, not {revision}"),
            _ => format!(
                "the {name} of this program has model revisions 1 to {newest}, not {revision}"
            ),
        })
    }

    /// A NIC of this model.
    ///
    /// # Errors
    /// As [`Model::check`], or an NVM image of another length.
    pub fn nic(&self, settings: &Settings, function: &Function) -> Result<Nic, String> {
        self.check(settings, function)?;
        if let Some(image) = &settings.nvm
            && image.len() != self.nvm
        {
            let (found, right) = (image.len(), self.nvm);
            return Err(format!("an EEPROM image of {found} bytes, not {right}"));
        }
        let revision = settings.revision.unwrap_or(self.revisions);
        let settings = Settings {
            revision: Some(revision),
            ..settings.clone()
        };
        Ok(Nic {
            revision,
            ..(self.make)(&settings, function)
        })
    }
}

impl PartialEq for Model {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Model {}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A table of models. Its first entry is the default.
#[derive(Clone, Copy, Debug)]
pub struct Models(pub &'static [&'static Model]);

impl Models {
    /// The model that users get who name none.
    ///
    /// # Panics
    /// Of an empty table.
    pub fn default_model(self) -> &'static Model {
        self.0[0]
    }

    /// The model of a name or an alias.
    pub fn find(self, name: &str) -> Option<&'static Model> {
        let named = |model: &&&Model| model.name == name || model.aliases.contains(&name);
        self.0.iter().find(named).copied()
    }

    /// The model of a word that a user wrote.
    ///
    /// # Errors
    /// Where there is none: one line that lists those there are.
    pub fn parse(self, word: &str) -> Result<&'static Model, String> {
        self.find(word)
            .ok_or_else(|| format!("unknown model \"{word}\"; write {}", self.list()))
    }

    /// The usual NIC of a model with this address: what tests and oracles start from.
    ///
    /// # Errors
    /// There is no such model.
    pub fn usual(self, name: &str, mac: [u8; 6]) -> Result<Nic, String> {
        self.nic(name, &Settings::new(mac), &Function::Alone)
    }

    /// A NIC of a model by its name.
    ///
    /// # Errors
    /// There is no such model, or [`Model::nic`]'s.
    pub fn nic(self, name: &str, settings: &Settings, function: &Function) -> Result<Nic, String> {
        self.parse(name)?.nic(settings, function)
    }

    /// The models with their chips, for an error.
    pub fn list(self) -> String {
        let all: Vec<_> = self
            .0
            .iter()
            .map(|model| format!("{} ({})", model.name, model.chip))
            .collect();
        all.join(", ")
    }

    /// The models with what to know when choosing, for `--help`.
    pub fn remarks(self) -> String {
        let remark = |model: &&Model| match model.remark {
            "" => model.name.to_owned(),
            remark => format!("{} ({remark})", model.name),
        };
        let all: Vec<_> = self.0.iter().map(remark).collect();
        all.join(", ")
    }

    /// The first model that a virtio transport can serve.
    pub fn with_virtio(self) -> Option<&'static Model> {
        self.0.iter().find(|model| model.virtio.is_some()).copied()
    }

    /// The first model that has virtual functions.
    pub fn with_vfs(self) -> Option<&'static Model> {
        self.0.iter().find(|model| model.vfs.is_some()).copied()
    }
}
