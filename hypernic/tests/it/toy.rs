//! A model of 60 lines, registered in a table of its own: configured by name, served over a socket, read over its BAR.
//! CONTRIBUTING.md ("How to add a model") follows the same steps.

use std::path::Path;
use std::sync::Arc;

use frame::{Batch, Caps, Counted, Sink, Wake};
use hypernic::config::HostConfig;
use hypernic::host::Host;
use model::{
    Bar, Control, Env, Identity, Nic, PciState, Progress, Receive, ResetKind, Space, StateError,
    Transmit, Work,
};
use registry::{Choice, Model, Models, Moderation, Refusal};
use vfio_user::Client;
use vfio_user::codec::region::CONFIG;

const BAR0: u32 = 0;
/// Read-only: what the toy is known by.
const MAGIC: u32 = 0x746f_7921;
/// Read-write: keeps what was written.
const SCRATCH: u64 = 4;

#[derive(Default)]
struct Toy {
    scratch: [u8; 4],
}

impl Counted for Toy {
    fn counters(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        visit("scratch", u32::from_le_bytes(self.scratch).into());
    }
}

impl Control for Toy {
    fn read(&mut self, _: &Env, _: u8, offset: u64, data: &mut [u8]) {
        let registers = [MAGIC.to_le_bytes(), self.scratch].concat();
        for (at, byte) in data.iter_mut().enumerate() {
            let at = usize::try_from(offset).ok().and_then(|o| o.checked_add(at));
            *byte = at.and_then(|at| registers.get(at)).copied().unwrap_or(0);
        }
    }

    fn write(&mut self, _: &Env, _: u8, offset: u64, data: &[u8]) {
        if let (SCRATCH, Ok(word)) = (offset, data.try_into()) {
            self.scratch = word;
        }
    }

    fn take_work(&mut self) -> Work {
        Work::default()
    }

    fn reset(&mut self, _: &Env, _: ResetKind) {
        self.scratch = [0; 4];
    }

    fn pci(&mut self, _: &Env, _: PciState) {}
    fn tick(&mut self, _: &Env) {}
    fn set_link(&mut self, _: &Env, _: bool) {}

    fn save(&self, _: &Env) -> Vec<u8> {
        self.scratch.to_vec()
    }

    fn load(&mut self, _: &Env, blob: &[u8]) -> Result<(), StateError> {
        self.scratch = blob.try_into().map_err(|_| StateError::Field {
            field: "scratch",
            value: blob.len() as u64,
            why: "not four bytes",
        })?;
        Ok(())
    }
}

/// It sends nothing, and takes every frame.
struct NoRings;

impl Transmit for NoRings {
    fn run(&mut self, _: &Env, _: &dyn Sink, _: usize) -> Progress {
        Progress::Idle
    }
}

impl Receive for NoRings {
    fn deliver(&self, _: &Env, _: &Batch<'_>, picks: &[u16]) -> usize {
        picks.len()
    }

    fn caps(&self) -> Caps {
        Caps::NONE
    }

    fn want_room(&self, _: &Arc<dyn Wake>) {}
    fn poll(&self, _: &Env) {}
}

static TOY: Model = Model {
    name: "toy",
    aliases: &["plaything"],
    chip: "a toy",
    remark: "",
    revisions: 1,
    nvm: 0,
    moderation: Moderation::Guest,
    vfs: None,
    refuses: &[Refusal {
        choice: Choice::Csb,
        with_vfs_only: false,
        reason: "the toy has no csb: leave it out",
    }],
    make: |_, _| Nic {
        identity: Identity {
            model: "toy",
            vendor: 0x1af4,
            device: 0x10ff,
            class: [2, 0, 0],
            bars: vec![Bar {
                index: 0,
                space: Space::Memory32,
                size: 0x1000,
            }],
            ..Identity::default()
        },
        control: Box::new(Toy::default()),
        transmit: Box::new(NoRings),
        receive: Arc::new(NoRings),
        revision: 1,
    },
    virtio: None,
    page_hint: None,
};
const TABLE: Models = Models(&[&TOY]);

fn configured(model: &str, socket: &Path, more: &str) -> Result<HostConfig, String> {
    let text = format!(
        "[[nic]]\nname = \"n0\"\nmodel = \"{model}\"\nsocket-path = {socket:?}\nport = \"null\"\n{more}\n"
    );
    HostConfig::parse_with(TABLE, "toy.toml".as_ref(), &text).map_err(|error| error.to_string())
}

#[test]
fn a_model_of_the_table_is_configured_served_and_read() {
    let dir = tempfile::tempdir().expect("a folder");
    let socket = dir.path().join("n0.sock");
    for name in ["toy", "plaything"] {
        let config = configured(name, &socket, "").expect("the table has it");
        let host = Host::start(&config).expect("a host");
        let mut client = Client::connect(&socket).expect("a client");
        assert_eq!(client.read_u32(CONFIG, 0).expect("ids"), 0x10ff_1af4);
        assert_eq!(client.read_u32(BAR0, 0).expect("a register"), MAGIC);
        client.write_u32(BAR0, SCRATCH, 1234).expect("a register");
        assert_eq!(client.read_u32(BAR0, SCRATCH).expect("a register"), 1234);
        drop(client);
        host.stop();
    }
}

#[test]
fn what_the_table_does_not_have_or_the_model_does_not_take_is_refused() {
    let socket = Path::new("/nowhere/n0.sock");
    let error = configured("e1000", socket, "").expect_err("not in this table");
    assert!(
        error.contains("toy.toml:3:") && error.contains("toy (a toy)"),
        "{error}"
    );
    let error = configured("toy", socket, "vfs = 2").expect_err("it has no VFs");
    assert!(
        error.contains("the toy has no virtual functions"),
        "{error}"
    );
    let config = configured("toy", socket, "csb = true").expect("known when it is made");
    let error = Host::start(&config).err().expect("refused").to_string();
    assert!(error.contains("the toy has no csb"), "{error}");
}
