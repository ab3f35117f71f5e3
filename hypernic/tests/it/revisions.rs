//! A model that shows guests something else than it did: those that go on see what they started with.

use std::fmt::Write;
use std::path::Path;

use hypernic::config::{HostConfig, SocketSpec};
use hypernic::host::Host;
use model::Nic;
use registry::{Function, MODELS, Model, Models, Settings};
use tempfile::TempDir;
use vfio_user::codec::feature::MigrationState;
use vfio_user::codec::region::CONFIG;
use vfio_user::{Client, ClientError};

/// Where a function's subsystem id is.
const SUBSYSTEM: u64 = 0x2e;

/// From the second revision on it has another subsystem id.
fn grown(settings: &Settings, function: &Function) -> Nic {
    let mut nic = (MODELS.0[0].make)(settings, function);
    nic.identity.subsystem = match settings.revision {
        Some(1) => 0x1111,
        Some(2) => 0x2222,
        other => panic!("asked for {other:?}"),
    };
    nic
}

static GROWN: Model = Model {
    name: "grown",
    aliases: &[],
    revisions: 2,
    make: grown,
    ..*MODELS.0[0]
};

const TABLE: Models = Models(&[&GROWN]);

fn configured(socket: &Path, more: &str) -> Result<HostConfig, String> {
    let text =
        format!("[[nic]]\nname = \"n0\"\nsocket-path = {socket:?}\nport = \"null\"\n{more}\n");
    HostConfig::parse_with(TABLE, "grown.toml".as_ref(), &text).map_err(|error| error.to_string())
}

struct One {
    host: Host,
    client: Client,
    _dir: TempDir,
}

impl One {
    fn new(more: &str) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let socket = dir.path().join("n0.sock");
        let host = Host::start(&configured(&socket, more).expect(more)).expect("a host");
        let client = Client::connect(&socket).expect("it is served");
        Self {
            host,
            client,
            _dir: dir,
        }
    }

    fn shown(&mut self) -> (u16, Option<u16>) {
        let mut id = [0; 2];
        let read = self.client.region_read(CONFIG, SUBSYSTEM, &mut id);
        read.expect("a subsystem id");
        let state = self.host.nic_state("n0").expect("the NIC");
        (u16::from_le_bytes(id), state.revision)
    }

    fn state(&mut self) -> Vec<u8> {
        let stopped = self.client.set_migration_state(MigrationState::StopCopy);
        stopped.expect("stopped");
        self.client.read_state(1000).expect("read")
    }

    fn become_it(&mut self, state: &[u8]) -> Result<(), ClientError> {
        self.client.set_migration_state(MigrationState::Resuming)?;
        self.client.write_state(state, 1000)?;
        self.client.set_migration_state(MigrationState::Running)?;
        Ok(())
    }
}

#[test]
fn a_guest_that_starts_sees_the_newest_revision_or_the_one_that_is_said() {
    assert_eq!(One::new("").shown(), (0x2222, Some(2)));
    assert_eq!(One::new("model-revision = 1").shown(), (0x1111, Some(1)));
    let error = configured("/n".as_ref(), "model-revision = 3").expect_err("there is none");
    assert!(
        error.contains(
            "grown.toml:5:18: the grown of this program has model revisions 1 to 2, not 3"
        ),
        "{error}"
    );
    let error = configured("/n".as_ref(), "model-revision = 0").expect_err("there is none");
    assert!(error.contains("not 0"), "{error}");
    let said = configured("/n".as_ref(), "model-revision = 1").expect("one there is");
    assert!(said.to_text().contains("model-revision = 1"));
    let silent = configured("/n".as_ref(), "").expect("nothing is said");
    assert!(
        !silent.to_text().contains("revision"),
        "an older program reads it"
    );
}

#[test]
fn a_state_is_taken_by_a_nic_of_its_revision_only() {
    let mut first = One::new("model-revision = 1");
    let state = first.state();
    let mut newest = One::new("");
    let refused = newest.become_it(&state).expect_err("another NIC");
    assert!(matches!(refused, ClientError::Refused { errno: 22, .. }));
    newest.client.reset().expect("reset");
    assert_eq!(newest.shown(), (0x2222, Some(2)));
    let mut same = One::new("model-revision = 1");
    same.become_it(&state).expect("its like");
    assert_eq!(same.shown(), (0x1111, Some(1)));
    // The other way round, and of the newest.
    let state = newest.state();
    assert!(same.become_it(&state).is_err());
    One::new("").become_it(&state).expect("its like");
}

/// All that a guest finds of a NIC before it writes anything: configuration space and registers.
fn found(host: &Host, client: &mut Client, nic: &str) -> String {
    let len = client.region_info(CONFIG).expect("a region").info.size;
    let mut space = vec![0; usize::try_from(len).expect("4 KiB at most")];
    client.region_read(CONFIG, 0, &mut space).expect("readable");
    let mut text = String::new();
    for (at, line) in space.chunks(16).enumerate() {
        if line.iter().any(|byte| *byte != 0) {
            let bytes: Vec<_> = line.iter().map(|byte| format!("{byte:02x}")).collect();
            let _ = writeln!(text, "{:03x} {}", 16 * at, bytes.join(" "));
        }
    }
    let registers = host.registers(nic).expect("it answers");
    if registers.is_empty() {
        for at in (0..0x100).step_by(4).filter(|at| *at != TIMER) {
            let value = client.read_u32(0, at).expect("a register");
            let _ = writeln!(text, "{at:05x} {value:#x}");
        }
    }
    for register in registers {
        let (name, value) = (register.name, register.value);
        let element = register
            .element
            .map_or(String::new(), |at| format!("[{at}]"));
        // Of an array that holds nothing one line would do, and nothing at all does.
        if value != 0 && !VARIES.contains(&name) {
            let _ = writeln!(text, "{:05x} {name}{element} {value:#x}", register.offset);
        }
    }
    text
}

/// A Realtek chip's TCTR.
const TIMER: u64 = 0x48;

/// Registers that show the time, or how far its PF is.
const VARIES: [&str; 7] = [
    "FRTIMER",
    "VTFRTIMER",
    "SYSTIML",
    "SYSTIMR",
    "TCTR",
    "VTSTATUS",
    "V2PMAILBOX",
];

/// The features that a virtio device offers.
fn offered(client: &mut Client) -> String {
    let words = [0u32, 1].map(|select| {
        client.write_u32(0, 0, select).expect("a register");
        client.read_u32(0, 4).expect("a register")
    });
    format!("features {:08x} {:08x}\n", words[1], words[0])
}

/// What guests saw of each revision when it was released. A change of this is a new revision: raise `revisions` of the model, have
/// it make the old ones too, and write the file of the new one with HYPERNIC_GOLDEN=write.
#[test]
fn what_guests_see_of_a_revision_never_changes() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/seen");
    for model in MODELS.0 {
        for revision in 1..=model.revisions {
            let vfs: &[&str] = if model.vfs.is_some() {
                &["", "vf"]
            } else {
                &[""]
            };
            for of in vfs {
                let dir = tempfile::tempdir().expect("a folder");
                let socket = dir.path().join("n0.sock");
                let more = match *of {
                    "vf" => {
                        "name = \"chip\"\nvfs = 1\nvf-socket-path = \"SOCKET\"\n[[nic.vf]]\nindex = 0\nmac = \"52:54:00:00:00:01\"\n"
                    }
                    _ => "name = \"n0\"\nmac = \"52:54:00:00:00:01\"\nsocket-path = \"SOCKET\"\n",
                };
                let mut path = socket.to_string_lossy().into_owned();
                if *of == "vf" {
                    path += "{}";
                }
                let text = format!(
                    "[[nic]]\nmodel = {:?}\nmodel-revision = {revision}\nport = \"null\"\n{}",
                    model.name,
                    more.replace("SOCKET", &path)
                );
                let config = HostConfig::parse("host.toml".as_ref(), &text).expect(&text);
                let (nic, SocketSpec::Path(socket)) =
                    (&config.nics[0].name, &config.nics[0].socket)
                else {
                    panic!("it has a path");
                };
                let host = Host::start(&config).expect("a host");
                let mut client = Client::connect(socket).expect("it is served");
                let mut seen = found(&host, &mut client, nic);
                if model.virtio.is_some() {
                    seen += &offered(&mut client);
                }
                assert!(seen.lines().count() > 10, "{text}{seen}");
                let path = format!("{folder}/{}{of}-{revision}.txt", model.name);
                model_testkit::golden(path, seen.as_bytes());
            }
        }
    }
}
