//! What a daemon knows of NICs that move to another host or from one, in a file beside its control socket: it must know that again
//! after it was killed. Each entry is written before it is acted upon.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use control::{MoveSide, MoveStep};
use serde::{Deserialize, Serialize};
use snapshot::{Kind, State, StateError};

/// Moves that have ended and are still known, so that they can be asked for again.
const MOST_ENDED: usize = 1024;

/// Moves that have not ended, at once.
pub(crate) const MOST_OPEN: usize = 1024;

/// The longest file that is looked at.
const MOST_BYTES: u64 = 1 << 30;

/// A move, as this daemon has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Move {
    /// The operator's name for it.
    pub id: String,
    /// The NIC.
    pub nic: String,
    /// What this daemon is to it.
    pub side: MoveSide,
    /// How far it has come here.
    pub step: MoveStep,
    /// The NIC's [`Words`], as JSON.
    pub words: String,
    /// What the NIC is. Kept for as long as it would be needed after a crash: until a VMM has had the NIC.
    pub state: Option<Vec<u8>>,
}

impl State for Move {
    const KIND: Kind = Kind::new("move");
    const VERSION: u32 = 1;
}

impl Move {
    /// The NIC stands still here.
    pub fn holds(&self) -> bool {
        self.step == MoveStep::Prepared
    }

    /// What is said of the NIC.
    ///
    /// # Errors
    /// As it was noted it says nothing: one line.
    pub fn said(&self) -> Result<Words, String> {
        Words::of_text(&self.words)
            .map_err(|error| format!("the note of the move {}: {error}", self.id))
    }

    /// The NIC has gone from here.
    pub fn is_away(&self) -> bool {
        (self.side, self.step) == (MoveSide::Source, MoveStep::Committed)
    }
}

/// What is said of a NIC that moves.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Words {
    /// Its words here.
    pub nic: control::NicConfig,
    /// Of a VF, which comes in place of another and leaves one behind.
    pub vf: Option<VfWords>,
}

/// What is laid down for a VF that moves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct VfWords {
    /// Wherever it is.
    pub policy: Box<control::VfConfig>,
    /// At the destination, what was laid down for the VF in whose place it comes.
    pub was: Option<control::VfConfig>,
}

/// The words of a VF as they are noted; those of another NIC stand alone.
#[derive(Serialize, Deserialize)]
struct NotedVf {
    nic: control::NicConfig,
    vf: VfWords,
}

impl Words {
    /// As they are noted.
    pub fn text(&self) -> String {
        let text = match &self.vf {
            Some(vf) => serde_json::to_string(&NotedVf {
                nic: self.nic.clone(),
                vf: vf.clone(),
            }),
            None => serde_json::to_string(&self.nic),
        };
        text.unwrap_or_default()
    }

    /// From what was noted.
    ///
    /// # Errors
    /// It is damaged, or of another program: one line.
    fn of_text(text: &str) -> Result<Self, String> {
        if let Ok(NotedVf { nic, vf }) = serde_json::from_str(text) {
            return Ok(Self { nic, vf: Some(vf) });
        }
        let nic = serde_json::from_str(text).map_err(|error| error.to_string())?;
        Ok(Self { nic, vf: None })
    }
}

/// All of them, the newest last.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    /// Nowhere, without a control socket.
    file: Option<PathBuf>,
    all: Vec<Move>,
}

impl Moves {
    /// Reads what a daemon with this control socket has noted.
    ///
    /// # Errors
    /// It cannot be read: one line, with the cure. It is not known then which NICs may live.
    pub fn read(control: Option<&Path>) -> Result<Self, String> {
        let Some(control) = control else {
            return Ok(Self::default());
        };
        let mut name = control.as_os_str().to_owned();
        name.push(".moves");
        let file = PathBuf::from(name);
        let bad = |why: String| {
            format!(
                "cannot read {}, which says which NICs move to other hosts: {why}; if none does, remove the file",
                file.display()
            )
        };
        let all = match contents(&file) {
            Ok(bytes) => opened(&bytes).map_err(|error| bad(error.to_string()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(bad(error.to_string())),
        };
        Ok(Self {
            file: Some(file),
            all,
        })
    }

    /// All, the newest last.
    pub fn all(&self) -> &[Move] {
        &self.all
    }

    /// The move of this name.
    pub fn get(&self, id: &str) -> Option<&Move> {
        self.all.iter().find(|one| one.id == id)
    }

    /// The last move of a NIC.
    pub fn of_nic(&self, nic: &str) -> Option<&Move> {
        self.all.iter().rev().find(|one| one.nic == nic)
    }

    /// The move by which a NIC has gone. One that it should have come back by, and did not, changes nothing.
    pub fn away(&self, nic: &str) -> Option<&Move> {
        let never_came =
            |one: &Move| (one.side, one.step) == (MoveSide::Destination, MoveStep::Aborted);
        let mut all = self.all.iter().rev().filter(|one| one.nic == nic);
        all.find(|one| !never_came(one)).filter(|one| one.is_away())
    }

    /// The move for which a NIC stands still.
    pub fn holding(&self, nic: &str) -> Option<&Move> {
        self.of_nic(nic).filter(|one| one.holds())
    }

    /// Notes how far a move has come. It is on the disk when this returns.
    ///
    /// # Errors
    /// It cannot be written: one line. Nothing has changed.
    pub fn put(&mut self, to: Move) -> Result<(), String> {
        let mut all = self.all.clone();
        all.retain(|one| one.id != to.id);
        all.push(to);
        self.become_these(all)
    }

    /// Forgets what those were of which this is true; a move stays known.
    ///
    /// # Errors
    /// As [`Moves::put`].
    pub fn forget_states(&mut self, of: impl Fn(&Move) -> bool) -> Result<(), String> {
        let done = |one: &Move| one.state.is_some() && !one.holds() && of(one);
        if !self.all.iter().any(done) {
            return Ok(());
        }
        let mut all = self.all.clone();
        for one in all.iter_mut().filter(|one| done(one)) {
            one.state = None;
            one.words.clear();
        }
        self.become_these(all)
    }

    /// Forgets that a NIC has gone: the operator wants another of its name.
    ///
    /// # Errors
    /// As [`Moves::put`].
    pub fn forget_away(&mut self, nic: &str) -> Result<(), String> {
        if self.away(nic).is_none() {
            return Ok(());
        }
        let mut all = self.all.clone();
        // The move stays known; its NIC is not this one any more.
        for one in all.iter_mut().filter(|one| one.nic == nic) {
            one.nic.insert_str(0, "was ");
        }
        self.become_these(all)
    }

    fn become_these(&mut self, mut all: Vec<Move>) -> Result<(), String> {
        let ended = |one: &Move| !one.holds() && one.state.is_none();
        let mut surplus = all.iter().filter(|one| ended(one)).count();
        surplus = surplus.saturating_sub(MOST_ENDED);
        all.retain(|one| {
            let goes = surplus > 0 && ended(one);
            surplus -= usize::from(goes);
            !goes
        });
        let Some(file) = &self.file else {
            return Err(
                "there is no control socket, and so no place for a note of the move".into(),
            );
        };
        write(file, &sealed(&all))
            .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
        self.all = all;
        Ok(())
    }
}

fn contents(file: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(file)?.take(MOST_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Another file takes its place at once, or none.
fn write(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut new = file.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut written = options.open(&new)?;
    written.write_all(bytes)?;
    written.sync_all()?;
    fs::rename(&new, file)?;
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        _ => Ok(()),
    }
}

fn sealed(all: &[Move]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for one in all {
        let one = snapshot::seal(one);
        bytes.extend((one.len() as u32).to_le_bytes());
        bytes.extend(one);
    }
    bytes
}

fn opened(mut rest: &[u8]) -> Result<Vec<Move>, StateError> {
    let mut all = Vec::new();
    while !rest.is_empty() {
        let short = |expected: u64| StateError::Length {
            found: rest.len() as u64,
            expected,
        };
        let (len, behind) = rest.split_first_chunk::<4>().ok_or_else(|| short(4))?;
        let len = u32::from_le_bytes(*len);
        let whole = behind.split_at_checked(len as usize);
        let (one, behind) = whole.ok_or_else(|| short(len.into()))?;
        all.push(snapshot::open(Move::KIND, one)?.decode()?);
        rest = behind;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(id: &str, step: MoveStep) -> Move {
        Move {
            id: id.into(),
            nic: "n0".into(),
            side: MoveSide::Source,
            step,
            words: "{}".into(),
            state: (step == MoveStep::Prepared).then(|| vec![7; 3000]),
        }
    }

    #[test]
    fn what_is_noted_is_read_again_and_nothing_else_is() {
        let dir = tempfile::tempdir().expect("a folder");
        let control = dir.path().join("c");
        let read = || Moves::read(Some(&control));
        let mut moves = read().expect("none");
        assert!(moves.all().is_empty());
        moves.put(moved("a", MoveStep::Prepared)).expect("written");
        moves.put(moved("b", MoveStep::Aborted)).expect("written");
        assert_eq!(read().expect("read").all(), moves.all());
        moves.put(moved("a", MoveStep::Committed)).expect("written");
        let again = read().expect("read");
        assert_eq!(again.all(), moves.all());
        assert_eq!(again.all().len(), 2);
        assert!(again.of_nic("n0").is_some_and(Move::is_away));
        moves.forget_away("n0").expect("written");
        assert!(moves.of_nic("n0").is_none() && moves.get("a").is_some());
        let file = dir.path().join("c.moves");
        let whole = fs::read(&file).expect("file");
        let ends = 4 + u32::from_le_bytes(*whole.first_chunk().expect("some")) as usize;
        for len in 1..whole.len() {
            fs::write(&file, &whole[..len]).expect("written");
            assert_eq!(read().is_ok(), len == ends, "{len} bytes");
        }
        for at in 0..whole.len() {
            let mut bad = whole.clone();
            bad[at] ^= 0x20;
            fs::write(&file, bad).expect("written");
            let why = read().expect_err("damaged");
            assert!(why.contains("c.moves") && !why.contains('\n'), "{why}");
        }
    }

    #[test]
    fn what_is_said_of_a_nic_or_a_vf_is_noted() {
        let nic = control::NicConfig {
            name: "n0".into(),
            cell: Some("x".into()),
            ..control::NicConfig::default()
        };
        let policy = control::VfConfig {
            index: 3,
            vlan: Some(7),
            ..control::VfConfig::default()
        };
        let vf = |was: Option<control::VfConfig>| VfWords {
            policy: Box::new(policy.clone()),
            was,
        };
        let one = moved("a", MoveStep::Prepared);
        for vf in [None, Some(vf(None)), Some(vf(Some(policy.clone())))] {
            let words = Words {
                nic: nic.clone(),
                vf,
            };
            let one = Move {
                words: words.text(),
                ..one.clone()
            };
            assert_eq!(one.said(), Ok(words));
        }
        // As programs before there were moves of VFs have noted it.
        let plain = serde_json::to_string(&nic).expect("text");
        let plain = Move {
            words: plain,
            ..one.clone()
        };
        assert_eq!(plain.said().map(|words| words.nic), Ok(nic));
        let why = one.said().expect_err("it says nothing");
        assert!(why.contains("the move a") && !why.contains('\n'), "{why}");
    }

    #[test]
    fn one_that_should_have_come_back_and_did_not_is_away() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut moves = Moves::read(Some(&dir.path().join("c"))).expect("none");
        let mut put = |id: &str, side: MoveSide, step: MoveStep| {
            let one = Move {
                side,
                ..moved(id, step)
            };
            moves.put(one).expect("put");
            moves.away("n0").map(|one| one.id.clone())
        };
        let (source, destination) = (MoveSide::Source, MoveSide::Destination);
        assert_eq!(put("a", source, MoveStep::Prepared), None);
        assert_eq!(put("a", source, MoveStep::Aborted), None);
        assert_eq!(put("b", source, MoveStep::Committed).as_deref(), Some("b"));
        assert_eq!(put("c", destination, MoveStep::Prepared), None);
        assert_eq!(
            put("c", destination, MoveStep::Aborted).as_deref(),
            Some("b")
        );
        assert_eq!(put("d", destination, MoveStep::Committed), None);
    }

    #[test]
    fn ended_moves_are_forgotten_in_the_end_and_open_ones_are_not() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut moves = Moves::read(Some(&dir.path().join("c"))).expect("none");
        moves.put(moved("open", MoveStep::Prepared)).expect("put");
        moves
            .all
            .extend((0..MOST_ENDED).map(|n| moved(&n.to_string(), MoveStep::Aborted)));
        moves.put(moved("last", MoveStep::Aborted)).expect("put");
        assert!(moves.get("0").is_none() && moves.get("1").is_some());
        assert!(moves.get("open").is_some_and(Move::holds));
        assert_eq!(moves.all().len(), MOST_ENDED + 1);
        // What a NIC was is kept until a VMM has had it.
        let live = Move {
            state: Some(vec![1]),
            ..moved("live", MoveStep::Committed)
        };
        moves.put(live).expect("put");
        assert_eq!(moves.all().len(), MOST_ENDED + 2);
        moves.forget_states(|one| one.id == "live").expect("forgot");
        assert!(moves.get("live").is_some_and(|one| one.state.is_none()));
        assert!(moves.get("open").is_some_and(|one| one.state.is_some()));
    }
}
