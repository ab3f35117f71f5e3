//! What a worker that ends by itself leaves of its NICs to the next one, so that their guests notice nothing.
//!
//! The next one may be another build, so all of it is plain data in the container of the crate `snapshot`, NIC by NIC.

use std::os::fd::{IntoRawFd, RawFd};

use keeper::Handover;
use serde::{Deserialize, Serialize};
use snapshot::{Kind, State, StateError};

/// A NIC whose VMM goes on.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Left {
    /// The NIC's name.
    pub name: String,
    /// The model's name.
    pub model: String,
    /// The client of the vfio-user server, and the numbers of its files.
    pub client: Vec<u8>,
    /// See `client`.
    pub files: Vec<RawFd>,
    /// The model.
    pub state: Vec<u8>,
    /// Whether the cable is in.
    pub link: bool,
    /// What its chip knows of it, if it is a function of one with VFs.
    pub granted: Option<Vec<u8>>,
}

impl State for Left {
    const KIND: Kind = Kind::new("nic-left");
    const VERSION: u32 = 1;
}

/// A part of the host's text; all of them come before its NICs.
#[derive(Serialize, Deserialize)]
struct Head {
    config: Vec<u8>,
}

/// Bytes of a part, well within what a state may have.
const PART: usize = 1 << 19;

impl State for Head {
    const KIND: Kind = Kind::new("hostleft");
    const VERSION: u32 = 1;
}

/// Addresses that a switch has learned, or some of them.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Seen {
    /// The switch.
    pub switch: String,
    /// Each address, its VLAN, its port, and nanoseconds since it was seen.
    pub macs: Vec<([u8; 6], u16, String, u64)>,
}

impl State for Seen {
    const KIND: Kind = Kind::new("fdb-left");
    const VERSION: u32 = 1;
}

/// Addresses of a part, well within what a state may have.
const ADDRESSES: usize = 4096;

/// All NICs of a worker.
#[derive(Debug, Default)]
pub struct AllLeft {
    nics: Vec<Left>,
    /// What switches have learned.
    seen: Vec<Seen>,
    /// The host that they were of, as the text of a file.
    config: Option<String>,
    /// What is to be said when there is a log.
    complaints: Vec<String>,
    /// There was a worker before, which ended by itself.
    came: bool,
    /// From where their files are taken.
    files: Option<Handover>,
}

/// A NIC that is to go on, with its files.
pub(crate) struct Arrived {
    pub left: Left,
    pub client: vfio_user::Handover,
}

impl AllLeft {
    /// The host that it is of.
    pub(crate) fn be(&mut self, config: String) {
        self.config = Some(config);
    }

    pub(crate) fn add(&mut self, left: Left) {
        self.nics.push(left);
    }

    /// What a switch has learned.
    pub(crate) fn add_seen(&mut self, switch: &str, macs: &[vale::MacInfo]) {
        let told = |info: &vale::MacInfo| {
            let age = u64::try_from(info.age.as_nanos()).unwrap_or(u64::MAX);
            (info.mac.0, info.vlan, info.port.clone(), age)
        };
        self.seen.extend(macs.chunks(ADDRESSES).map(|part| Seen {
            switch: switch.to_owned(),
            macs: part.iter().map(told).collect(),
        }));
    }

    /// All that switches have learned, and where; without ages.
    pub(crate) fn places(&self) -> Vec<(&str, [u8; 6], u16, &str)> {
        let seen = self.seen.iter().flat_map(|seen| {
            let macs = seen.macs.iter();
            macs.map(|(mac, vlan, port, _)| (seen.switch.as_str(), *mac, *vlan, port.as_str()))
        });
        seen.collect()
    }

    /// So many nanoseconds have gone by since it was written down.
    pub(crate) fn age(&mut self, by: u64) {
        let ages = self.seen.iter_mut().flat_map(|seen| &mut seen.macs);
        ages.for_each(|(.., age)| *age = age.saturating_add(by));
    }

    /// What the switches of another one had learned is known in this one.
    pub(crate) fn learn(&mut self, other: Self) {
        self.seen.extend(other.seen);
    }

    /// What switches had learned, once.
    pub(crate) fn take_seen(&mut self) -> Vec<Seen> {
        std::mem::take(&mut self.seen)
    }

    /// The text of the host that they were of, once.
    pub(crate) fn take_config(&mut self) -> Option<String> {
        self.config.take()
    }

    /// Something to be said when there is a log.
    pub(crate) fn complain(&mut self, what: String) {
        self.complaints.push(what);
    }

    /// Whether there was a worker before that has ended by itself.
    pub fn came(&self) -> bool {
        self.came
    }

    /// NICs in it.
    pub fn len(&self) -> usize {
        self.nics.len()
    }

    /// None is in it.
    pub fn is_empty(&self) -> bool {
        self.nics.is_empty()
    }

    /// The descriptors that are to stay open, and the rest.
    pub fn seal(&self) -> (Vec<RawFd>, Vec<u8>) {
        let files = self.nics.iter().flat_map(|left| left.files.iter().copied());
        let text = self.config.as_deref().unwrap_or_default();
        let parts = text.as_bytes().chunks(PART).map(|part| {
            let config = part.to_vec();
            snapshot::seal(&Head { config })
        });
        let mut bytes = Vec::new();
        let seen = self.seen.iter().map(snapshot::seal);
        for sealed in parts
            .chain(seen)
            .chain(self.nics.iter().map(snapshot::seal))
        {
            bytes.extend((sealed.len() as u32).to_le_bytes());
            bytes.extend(sealed);
        }
        (files.collect(), bytes)
    }

    /// Reads what [`Self::seal`] has written.
    ///
    /// # Errors
    /// It is damaged, or of a program that this one does not know.
    pub fn open(payload: &[u8]) -> Result<Self, StateError> {
        let mut rest = payload;
        let mut nics = Vec::new();
        let mut seen = Vec::new();
        let mut config = Vec::new();
        while let Some((len, behind)) = rest.split_first_chunk::<4>() {
            let len = u32::from_le_bytes(*len) as usize;
            let whole = behind.split_at_checked(len);
            let (sealed, behind) = whole.ok_or(StateError::Length {
                found: behind.len() as u64,
                expected: len as u64,
            })?;
            match snapshot::open(Head::KIND, sealed) {
                Ok(head) => config.extend(head.decode::<Head>()?.config),
                Err(StateError::Kind { found, .. }) if found == Seen::KIND => {
                    seen.push(snapshot::open(Seen::KIND, sealed)?.decode()?);
                }
                Err(StateError::Kind { .. }) => {
                    nics.push(snapshot::open(Left::KIND, sealed)?.decode()?);
                }
                Err(error) => return Err(error),
            }
            rest = behind;
        }
        Ok(Self {
            nics,
            seen,
            config: String::from_utf8(config)
                .ok()
                .filter(|text| !text.is_empty()),
            complaints: Vec::new(),
            came: true,
            files: None,
        })
    }

    /// What the worker before has left to this one, if it has. What cannot be read is closed, and said.
    pub fn arrive() -> Self {
        let Some(handover) = keeper::current().and_then(keeper::Shared::take_handover) else {
            return Self::default();
        };
        match Self::open(&handover.payload) {
            Ok(all) => Self {
                files: Some(handover),
                ..all
            },
            Err(error) => Self {
                came: true,
                complaints: vec![format!(
                    "what the worker before has left is refused: {error}; its VMMs lose their NICs"
                )],
                ..Self::default()
            },
        }
    }

    /// Whether there is a NIC of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.nics.iter().any(|left| left.name == name)
    }

    /// The revision of the model that the guest of the NIC of this name has started with.
    pub(crate) fn revision(&self, name: &str) -> Option<u16> {
        let left = self.nics.iter().find(|left| left.name == name)?;
        snapshot::revision_of(&left.state)
    }

    /// The NIC of this name, with its files.
    pub(crate) fn take(&mut self, name: &str) -> Option<Arrived> {
        let at = self.nics.iter().position(|left| left.name == name)?;
        let mut left = self.nics.swap_remove(at);
        let files = self.files.as_mut()?;
        let numbers = std::mem::take(&mut left.files);
        let client = vfio_user::Handover {
            state: std::mem::take(&mut left.client),
            // One that is missing is found by its place, so none may move up.
            files: numbers.iter().map_while(|fd| files.take(*fd)).collect(),
        };
        Some(Arrived { left, client })
    }

    /// Closes what nobody has taken, and says what there is to say.
    pub(crate) fn end(self) {
        keeper::end_lines();
        for complaint in &self.complaints {
            tracing::error!("{complaint}");
        }
        for left in &self.nics {
            tracing::error!(
                nic = %left.name,
                "its VMM loses it: the configuration has no such NIC any more"
            );
        }
    }
}

impl Left {
    /// Of a client as its server hands it over.
    pub fn new(client: vfio_user::Handover, state: Vec<u8>) -> Self {
        let files = client.files.into_iter().map(IntoRawFd::into_raw_fd);
        Self {
            name: String::new(),
            model: String::new(),
            client: client.state,
            files: files.collect(),
            state,
            link: true,
            granted: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(name: &str, files: Vec<RawFd>) -> Left {
        Left {
            name: name.into(),
            model: "82540EM".into(),
            client: vec![1, 2, 3],
            files,
            state: vec![4; 70_000],
            link: false,
            granted: Some(vec![5]),
        }
    }

    /// What a program of version 1 has left, once and for all.
    #[test]
    fn what_is_left_in_version_1_is_read_by_every_later_program() {
        let mut all = AllLeft::default();
        all.be("workers = 1\n".into());
        let seen = vale::MacInfo {
            mac: wire::MacAddr([2, 0, 0, 0, 0, 1]),
            vlan: 7,
            port: "a".into(),
            age: std::time::Duration::from_secs(3),
        };
        all.add_seen("lan", &[seen]);
        all.add(Left {
            state: vec![4; 100],
            ..left("a", vec![7, 300])
        });
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/golden/left-v1.bin");
        let bytes = model_testkit::golden(path, &all.seal().1);
        let again = AllLeft::open(&bytes).expect("it loads");
        assert_eq!(format!("{:?}", again.nics), format!("{:?}", all.nics));
        assert_eq!(format!("{:?}", again.seen), format!("{:?}", all.seen));
        assert_eq!(again.config, all.config);
    }

    #[test]
    fn what_is_left_is_read_as_it_was_written_and_nothing_else_is() {
        let mut all = AllLeft::default();
        all.be("workers = 1\n".into());
        all.add_seen("lan", &[]);
        let seen = vale::MacInfo {
            mac: wire::MacAddr([2, 0, 0, 0, 0, 1]),
            vlan: 7,
            port: "a".into(),
            age: std::time::Duration::from_secs(3),
        };
        all.add_seen("lan", &[seen]);
        let state = snapshot::stamp(snapshot::seal(&Head { config: vec![] }), 3);
        all.add(Left {
            state,
            ..left("a", vec![7, 8])
        });
        all.add(left("b", vec![9]));
        let (files, bytes) = all.seal();
        assert_eq!(files, [7, 8, 9]);
        let mut again = AllLeft::open(&bytes).expect("sound");
        assert_eq!(again.revision("a"), Some(3));
        assert_eq!(again.revision("b"), None, "no model has said that");
        assert_eq!(again.take_config().as_deref(), Some("workers = 1\n"));
        assert_eq!(format!("{:?}", again.nics), format!("{:?}", all.nics));
        assert_eq!(format!("{:?}", again.seen), format!("{:?}", all.seen));
        assert_eq!(again.take_seen().len(), 1);
        // After each part it may end.
        let next = |at: usize| {
            let len: [u8; 4] = std::array::from_fn(|n| bytes[at + n]);
            at + 4 + u32::from_le_bytes(len) as usize
        };
        let ends = [next(0), next(next(0)), next(next(next(0)))];
        for len in (5..bytes.len()).step_by(997) {
            let end = ends
                .iter()
                .any(|end| (0..4).contains(&len.wrapping_sub(*end)));
            assert_eq!(AllLeft::open(&bytes[..len]).is_ok(), end, "{len}");
        }
        for at in (0..bytes.len()).step_by(1009) {
            let mut bad = bytes.clone();
            bad[at] ^= 0x10;
            assert!(AllLeft::open(&bad).is_err(), "byte {at}");
        }
        assert_eq!(AllLeft::open(&[]).expect("nothing").len(), 0);
    }
}
