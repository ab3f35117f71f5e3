//! `hypernic upgrade`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use control::{Client, ConfigDump, NicList, StatusGet, UpgradeBegin, UpgradeStates};
use model::{Clock, Env, Interrupts, Nanos, Pme, StateError, Timer};
use program::LogFormat;
use registry::Function;

use super::place::{Place, Printed, with};
use crate::config::{HostConfig, NicConfig};
use crate::error::Error;
use crate::hex;
use crate::make::make;

/// How long the next process may take to serve.
const PATIENCE: Duration = Duration::from_secs(60);

/// `hypernic upgrade`.
#[derive(Args, Debug)]
pub struct UpgradeCommand {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    printed: Printed,
    /// The program that goes on; without, the one that runs, as it is on disk now.
    program: Option<PathBuf>,
    /// Only say whether this program could go on in the place of the daemon's.
    #[arg(long, conflicts_with = "program")]
    check: bool,
    /// Only if the daemon runs another program than is on disk now, as after an upgrade of the package.
    #[arg(long, conflicts_with_all = ["program", "check"])]
    if_replaced: bool,
}

/// What is printed.
#[derive(Debug, serde::Serialize)]
struct Done {
    /// The program; none if the daemon was to go on only with another one.
    program: Option<String>,
    /// Its version.
    version: String,
    /// The version that ran before.
    from: String,
    /// NICs whose VMMs go on.
    nics: u64,
    /// Milliseconds until the next process served.
    milliseconds: u64,
}

impl Done {
    fn text(&self) -> String {
        match &self.program {
            None => format!("{} is the program on disk and runs already\n", self.version),
            Some(program) => format!(
                "{} to {} ({program}): {} NICs go on, after {} ms\n",
                self.from, self.version, self.nics, self.milliseconds
            ),
        }
    }
}

impl UpgradeCommand {
    /// Asks the daemon, and waits for the next one.
    ///
    /// # Errors
    /// A daemon that is not there or cannot go on, a program that cannot go on in its place: nothing has changed then.
    pub fn execute(self, format: LogFormat) -> Result<String, Error> {
        let mut client = self.place.connect()?;
        if self.check {
            let nics = judge(&mut client)?;
            return Ok(format!(
                "{} can go on with {nics} NICs that VMMs have\n",
                env!("CARGO_PKG_VERSION")
            ));
        }
        let before = with(client.call(&StatusGet {}))?;
        if self.if_replaced && before.replaced == Some(false) {
            let done = Done {
                program: None,
                version: before.version.clone(),
                from: before.version,
                nics: before.connected,
                milliseconds: 0,
            };
            return Ok(self.printed.show(format, &done, Done::text));
        }
        let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        let program = self.program.map(absolute);
        let program = program.map(|path| path.to_string_lossy().into_owned());
        let mut begin = UpgradeBegin {
            program,
            check: Some(true),
        };
        let would = with(client.call(&begin))?;
        let control = &self.place.control;
        ask_program(Path::new(&would.program), control)?;
        begin.check = None;
        let begun = Instant::now();
        let told = with(client.call(&begin))?;
        drop(client);
        let status = loop {
            std::thread::sleep(Duration::from_millis(5));
            let status = Client::connect(control).and_then(|mut client| client.call(&StatusGet {}));
            match status {
                Ok(status) if status.pid != told.pid => break status,
                _ if begun.elapsed() < PATIENCE => {}
                Ok(_) => {
                    return Err(Error::Usage(
                        "the daemon runs on as before; its log says why".into(),
                    ));
                }
                Err(error) => {
                    return Err(Error::Usage(format!(
                        "the daemon does not come back: {error}"
                    )));
                }
            }
        };
        let done = Done {
            program: Some(told.program),
            version: status.version,
            from: before.version,
            nics: status.connected,
            milliseconds: begun.elapsed().as_millis() as u64,
        };
        Ok(self.printed.show(format, &done, Done::text))
    }
}

/// Has the program that is to go on say whether it can.
fn ask_program(program: &Path, control: &Path) -> Result<(), Error> {
    let refused = |why: String| {
        Error::Usage(format!(
            "{} cannot go on in the place of the daemon, and nothing has changed: {why}",
            program.display()
        ))
    };
    let asked = Command::new(program)
        .args(["upgrade", "--check", "--control"])
        .arg(control)
        .output()
        .map_err(|error| refused(error.to_string()))?;
    if asked.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&asked.stderr);
    let last = said.lines().last().unwrap_or("it says nothing");
    Err(refused(last.to_owned()))
}

/// Whether this program understands all that the daemon would leave to it.
fn judge(client: &mut Client) -> Result<usize, Error> {
    let refused = |what: &str, why: String| Error::Usage(format!("{what}: {why}"));
    let text = with(client.call(&ConfigDump {}))?.text;
    let host = HostConfig::parse_running("the host that runs".as_ref(), &text)?;
    let mut good = 0;
    for info in with(client.call(&NicList { name: None }))?.nics {
        let nic = info.config.name;
        let left = with(client.call(&UpgradeStates { nic: nic.clone() }))?;
        let (Some(told), Some(state)) = (left.client, left.state) else {
            continue;
        };
        let config = host.nics.iter().find(|config| config.name == nic);
        let config = config.ok_or_else(|| refused(&nic, "there is no such NIC".into()))?;
        let bytes =
            |text: &str| hex::bytes(text).ok_or_else(|| refused(&nic, "no hexadecimal".into()));
        let (told, state) = (bytes(&told)?, bytes(&state)?);
        vfio_user::check_state(&told).map_err(|error| refused(&nic, error.to_string()))?;
        load(config, &state).map_err(|why| refused(&nic, why))?;
        good += 1;
    }
    Ok(good)
}

/// Loads the state of a chip into one that is not used.
fn load(config: &NicConfig, state: &[u8]) -> Result<(), String> {
    let text = |error: StateError| error.to_string();
    let revision = snapshot::revision_of(state).or(config.revision);
    let revision = revision.unwrap_or(config.model.revisions);
    config.model.check_revision(revision)?;
    let state = &*snapshot::stamped(state, revision).map_err(text)?;
    // Functions of a chip with VFs are read only: there is no chip here.
    if config.vf.is_some() {
        return igb::vf_state::read(state).map(drop).map_err(text);
    }
    if config.rules.is_some() {
        return igb::state::read(state).map(drop).map_err(text);
    }
    let config = NicConfig {
        eeprom: None,
        ..config.clone()
    };
    let (mut nic, _) = make(&config, Some(revision), &Function::Alone, false)?;
    let nothing = Arc::new(Nothing);
    let env = Env {
        memory: guest_mem::Memory::new(),
        irq: Arc::clone(&nothing) as _,
        clock: Arc::clone(&nothing) as _,
        timer: nothing,
    };
    let loaded = nic.control.load(&env, state);
    loaded.map_err(|error| error.to_string())
}

/// The surroundings of a chip that is not used.
struct Nothing;

impl Interrupts for Nothing {
    fn set_line(&self, _: bool) {}
    fn msi(&self, _: u16) {}
    fn msix(&self, _: u16) {}
    fn set_pme(&self, _: Pme) {}
}

impl Clock for Nothing {
    fn now(&self) -> Nanos {
        0
    }
}

impl Timer for Nothing {
    fn arm(&self, _: Option<Nanos>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_program_cannot_show_a_guest_is_refused_by_name() {
        let text =
            "[[nic]]\nname = \"n0\"\nmodel = \"82576\"\nsocket-path = \"/n\"\nport = \"null\"\n";
        let host = HostConfig::parse("host.toml".as_ref(), text).expect("good");
        let config = &host.nics[0];
        let (nic, _) = make(config, None, &Function::Alone, false).expect("a chip");
        let nothing = Arc::new(Nothing);
        let env = Env {
            memory: guest_mem::Memory::new(),
            irq: Arc::clone(&nothing) as _,
            clock: Arc::clone(&nothing) as _,
            timer: nothing,
        };
        let state = nic.control.save(&env);
        assert_eq!(load(config, &state), Ok(()));
        let newer = snapshot::stamp(state, 2);
        let why = "the 82576 of this program has model revision 1 only, not 2";
        assert_eq!(load(config, &newer), Err(why.into()));
    }
}
