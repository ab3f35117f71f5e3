//! From a call to what it does.

use std::time::Instant;

use control::{
    Call, CaptureInfo, Captures, Description, Done, Failure, INTERFACES, Info, Interface,
    MetricsGet, Role, Status, UpgradeBegin, reply_written,
};
use parking_lot::RwLock;

use super::changes::{Terms, terms};
use super::rises::Rises;
use super::told::told;
use super::{cells, changes, chips, config, insight, lists, metrics, migrate, set, upgrade, vfs};
use crate::error::Error;
use crate::host::Host;
use crate::report::Section;

/// What calls are carried out on.
pub(super) struct Subject<'a> {
    pub host: &'a RwLock<Host>,
    /// Counters that are not the host's.
    pub besides: &'a dyn Fn() -> Vec<Section>,
    /// The caller is root, or the daemon's own user.
    pub trusted: bool,
    /// When losses rose last.
    pub rises: &'a Rises,
    /// Who captures.
    pub captures: &'a dyn Fn() -> Vec<CaptureInfo>,
}

/// A change of the host, on its call's terms.
macro_rules! change {
    ($host:expr, $call:expr, $does:expr) => {{
        let (host, terms) = (&mut $host.write(), terms!($call));
        terms.allow(host)?;
        let changed = $does(host, $call)?;
        told(changes::told(host, &terms, changed))
    }};
}

/// Something that is done to a virtual function or a chip.
macro_rules! act {
    ($host:expr, $call:expr, $name:expr, $known:expr, $does:expr) => {{
        let host = &$host.read();
        let terms = Terms {
            check: $call.check,
            persist: None,
            if_generation: $call.if_generation,
        };
        terms.allow(host)?;
        $known(host, $name)?;
        if terms.only_check() {
            return told(Done {});
        }
        done($does(host, $name))
    }};
}

impl Subject<'_> {
    /// Does what is asked, if the role allows it.
    pub fn carry_out(&self, call: &Call, role: Role) -> Result<Vec<u8>, Failure> {
        allowed(call, role)?;
        let host = self.host;
        if let Some(reply) = cells::answer(host, call)? {
            return Ok(reply);
        }
        if call.role() == Role::Owner {
            host.write().forget_moved();
        }
        match call {
            Call::InfoGet(_) => told(info()),
            Call::Described(call) => told(description(&call.interface)?),
            Call::CellList(_) => told(cells::list(host)),
            Call::StatusGet(_) => told(status(&host.read(), role)),
            Call::UpgradeStates(call) => told(upgrade::states(&host.read(), call)?),
            Call::UpgradeBegin(call) => self.upgrade(call),
            Call::MigrateSave(call) => told(migrate::save(&mut host.write(), call)?),
            Call::MigrateLoad(call) => told(migrate::load(&mut host.write(), call)?),
            Call::MigrateCommit(call) => told(migrate::commit(&mut host.write(), call)?),
            Call::MigrateAbort(call) => told(migrate::abort(&mut host.write(), call)?),
            Call::MigrateList(call) => told(migrate::list(&host.read(), call)?),
            Call::NicAdd(call) => change!(host, call, changes::add_nic),
            Call::NicSet(call) => change!(host, call, set::nic),
            Call::NicLink(call) => change!(host, call, set::link),
            Call::NicRemove(call) => change!(host, call, changes::remove_nic),
            Call::NicList(call) => told(lists::nics(&host.read(), call.name.as_deref())?),
            Call::NicInspect(call) => told(lists::registers(&host.read(), call)?),
            Call::NicInterrupts(call) => {
                let own = insight::vectors(&host.read(), call.name.as_deref())?;
                told(cells::vectors(host, call, own))
            }
            Call::NicTrace(call) => told(insight::trace(&host.read(), call)?),
            Call::NicMemory(call) => {
                let own = insight::regions(&host.read(), call.name.as_deref())?;
                told(cells::regions(host, call, own))
            }
            Call::SwitchAddresses(call) => {
                let own = insight::addresses(&host.read(), call.name.as_deref())?;
                told(cells::addresses(host, call, own))
            }
            Call::SwitchAdd(call) => change!(host, call, changes::add_switch),
            Call::SwitchSet(call) => change!(host, call, set::switch),
            Call::SwitchRemove(call) => change!(host, call, changes::remove_switch),
            Call::SwitchList(call) => told(lists::switches(&host.read(), call.name.as_deref())?),
            Call::PortAdd(call) => change!(host, call, changes::add_port),
            Call::PortRemove(call) => change!(host, call, changes::remove_port),
            Call::PortList(call) => told(lists::ports(&host.read(), call.switch.as_deref())?),
            Call::ChipAdd(call) => change!(host, call, chips::add),
            Call::ChipSet(call) => change!(host, call, chips::change),
            Call::ChipRemove(call) => change!(host, call, chips::remove),
            Call::ChipList(call) => told(chips::list(&host.read(), call.name.as_deref())?),
            Call::VfShow(call) => {
                let own = vfs::show(&host.read(), call.nic.as_deref())?;
                told(cells::vfs(host, call, own))
            }
            Call::VfSet(call) => change!(host, call, vfs::set),
            Call::VfRevive(call) => act!(host, call, &call.nic, vfs::known, Host::revive_vf),
            Call::VfLeave(call) => act!(host, call, &call.nic, vfs::known, Host::announce_removal),
            Call::VfReset(call) => act!(host, call, &call.chip, vfs::chip, Host::reset_chip),
            Call::ConfigDump(_) => told(config::dump(&host.read())),
            Call::ConfigPlan(call) => told(config::plan(&host.read(), call)?),
            Call::ConfigApply(call) => told(config::apply(&mut host.write(), call)?),
            Call::ConfigConfirm(_) => told(config::confirm(&mut host.write())?),
            Call::ConfigRollback(_) => told(config::roll_back(&mut host.write())?),
            Call::MetricsGet(call) => Ok(self.metrics(call)),
            // The server does, for those who ask for another protocol.
            Call::CaptureStart(_) => Err(Failure::invalid(
                "frames come as pcapng on the connection: call it with \"upgrade\"",
            )),
            Call::CaptureList(_) => told(Captures {
                captures: (self.captures)(),
            }),
            // The server does, for those who ask for more.
            Call::Subscribe(_) => Err(Failure::ExpectedMore {}),
            Call::Explain(call) => {
                let own = lists::explain(&self.sections(), self.rises, call)?;
                told(cells::explain(host, call, own))
            }
        }
    }

    /// All processes go on as another program, or none.
    fn upgrade(&self, call: &UpgradeBegin) -> Result<Vec<u8>, Failure> {
        let first = UpgradeBegin {
            check: Some(true),
            ..call.clone()
        };
        upgrade::begin(&self.host.read(), &first, self.trusted)?;
        cells::upgrade(self.host, &first)?;
        if call.check != Some(true) {
            cells::upgrade(self.host, call)?;
        }
        told(upgrade::begin(&self.host.read(), call, self.trusted)?)
    }

    /// The counters of all processes.
    fn metrics(&self, call: &MetricsGet) -> Vec<u8> {
        reply_written(|text| {
            let mut told = metrics::Writer::new(call, text);
            let mut names = cells::Names::default();
            // Without cells, a thousand NICs' names need not be kept.
            let has_cells = self.host.read().has_cells();
            self.each_section(&mut |section| {
                if has_cells {
                    names.add(section.kind, &section.name);
                }
                told.add(&section);
            });
            let others = cells::sections(self.host, call, names);
            others.iter().for_each(|section| told.add_told(section));
            told.end();
        })
    }

    fn sections(&self) -> Vec<Section> {
        let mut sections = Vec::new();
        self.each_section(&mut |section| sections.push(section));
        sections
    }

    fn each_section(&self, show: &mut dyn FnMut(Section)) {
        let mut look = self.rises.look(Instant::now());
        let mut shown = |section: Section| {
            look.see(&section);
            show(section);
        };
        self.host.read().each_section(&mut shown);
        (self.besides)().into_iter().for_each(shown);
    }
}

/// Whether the role allows the call.
pub(super) fn allowed(call: &Call, role: Role) -> Result<(), Failure> {
    let needs = call.role();
    if role >= needs {
        return Ok(());
    }
    let (needs, role) = (needs.name().to_owned(), role.name().to_owned());
    Err(Failure::NotAllowed {
        message: format!(
            "{} is for the role {needs}, and yours is {role}; see control-{needs} in docs/roles.md",
            call.method()
        ),
        needs,
        role,
    })
}

fn done(result: Result<(), Error>) -> Result<Vec<u8>, Failure> {
    result.map_err(|error| Failure::invalid(error.to_string()))?;
    told(Done {})
}

fn info() -> Info {
    Info {
        vendor: "hypernic".into(),
        product: "hypernic".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        url: "https://varlink.org".into(),
        interfaces: INTERFACES.iter().map(|one| one.name.into()).collect(),
    }
}

fn description(interface: &str) -> Result<Description, Failure> {
    let found = Interface::find(interface);
    let found = found.ok_or_else(|| Failure::InterfaceNotFound {
        interface: interface.into(),
    })?;
    Ok(Description {
        description: found.description(),
    })
}

fn status(host: &Host, role: Role) -> Status {
    let states = host.nic_names().filter_map(|nic| host.nic_state(nic));
    Status {
        version: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
        role: role.name().into(),
        nics: host.nic_names().count() as u64,
        connected: states.filter(|state| state.connected).count() as u64,
        switches: host.switch_count() as u64,
        generation: host.generation(),
        rollback_in: host.trial().map(|trial| {
            let left = trial.until.saturating_duration_since(Instant::now());
            left.as_secs()
        }),
        replaced: crate::upgrade::is_replaced(),
    }
}
