//! The host as a configuration file: what runs, what a file would change, and the change.

use std::path::Path;
use std::time::{Duration, Instant};

use control::{Cannot, Changed, ConfigApply, ConfigPlan, ConfigText, Failure};
use parking_lot::RwLock;

use super::changes::{Terms, failed, keep, terms};
use super::reach::open_to;
use crate::config::edit::{Edit, Written};
use crate::config::{HostConfig, Plan, Step};
use crate::error::Error;
use crate::host::Host;
use crate::sandbox;
use crate::upgrade;

/// The longest that a configuration may be on trial.
const TRIAL: u32 = 3600;

pub(super) fn dump(host: &Host) -> ConfigText {
    let text = host.configuration().to_text();
    ConfigText {
        text: format!(
            "# What runs, as hypernic {} has it.\n{text}",
            env!("CARGO_PKG_VERSION")
        ),
        generation: host.generation(),
    }
}

/// The host of a text, or of the daemon's own file.
fn wanted(host: &Host, text: Option<&str>, file: Option<&str>) -> Result<HostConfig, Failure> {
    let invalid = |error: Error| Failure::invalid(error.to_string());
    let said = host.head().said.clone();
    let config = match (text, &host.head().file) {
        (Some(text), _) => {
            let name = file.unwrap_or("the file");
            HostConfig::parse(Path::new(name), text).map_err(invalid)?
        }
        (None, Some(own)) => HostConfig::load(own).map_err(invalid)?,
        (None, None) => {
            return Err(Failure::invalid(
                "the daemon was started without a configuration file: name one",
            ));
        }
    };
    Ok(config.with_said(said))
}

pub(super) fn plan(host: &Host, call: &ConfigPlan) -> Result<control::Plan, Failure> {
    let wanted = wanted(host, call.text.as_deref(), call.file.as_deref())?;
    let plan = host.plan(&wanted, call.disconnect == Some(true));
    Ok(told(host, plan))
}

fn told(host: &Host, plan: Plan) -> control::Plan {
    control::Plan {
        steps: plan.told,
        cannot: plan.cannot,
        generation: host.generation(),
    }
}

pub(super) fn apply(host: &mut Host, call: &ConfigApply) -> Result<control::Plan, Failure> {
    let terms = terms!(call);
    terms.allow(host)?;
    if call
        .rollback_after
        .is_some_and(|after| !(1..=TRIAL).contains(&after))
    {
        let message = format!("rollback_after must be between 1 and {TRIAL} seconds");
        return Err(Failure::invalid(message));
    }
    let wanted = wanted(host, call.text.as_deref(), call.file.as_deref())?;
    let plan = host.plan(&wanted, call.disconnect == Some(true));
    if !plan.cannot.is_empty() && call.partly != Some(true) {
        return Err(not_while_running(&plan));
    }
    sandbox::permits_plan(&plan).map_err(Failure::failed)?;
    let file = match (terms.persist, &call.text) {
        (Some(true), Some(text)) => {
            let file = host.head().file_with(Edit::Text(text));
            Some(file.map_err(Failure::invalid)?)
        }
        _ => None,
    };
    if terms.only_check() {
        return Ok(told(host, plan));
    }
    if let Some(after) = call.rollback_after {
        let time = Duration::from_secs(after.into());
        host.try_out(&plan, time, file).map_err(failed)?;
    } else {
        let written = file.map(|(file, text)| Written::beside(&file, &text));
        let written = written.transpose().map_err(Failure::failed)?;
        host.apply(&plan).map_err(failed)?;
        host.forget_gone(&wanted);
        keep(written)?;
    }
    reach(host, &plan);
    upgrade::note(host);
    Ok(told(host, plan))
}

/// Has those reach the control socket who may.
fn reach(host: &Host, plan: &Plan) {
    let is_access = |step: &Step| matches!(step, Step::SetAccess(_));
    if plan.steps.iter().any(is_access) {
        reach_now(host);
    }
}

fn reach_now(host: &Host) {
    if let Some(path) = &host.head().control
        && let Err(error) = open_to(path, host.head())
    {
        tracing::error!("control: cannot change who reaches the socket: {error}");
    }
}

pub(super) fn not_while_running(plan: &Plan) -> Failure {
    let line = |cannot: &Cannot| format!("{} {}: {}", cannot.kind, cannot.name, cannot.why);
    let lines: Vec<_> = plan.cannot.iter().map(line).collect();
    Failure::NotWhileRunning {
        cannot: plan.cannot.iter().map(|one| one.name.clone()).collect(),
        message: format!("nothing was changed, because of {}", lines.join("; ")),
    }
}

pub(super) fn confirm(host: &mut Host) -> Result<Changed, Failure> {
    // Before all else: without it, what is on trial still is.
    let file = host.trial().and_then(|trial| trial.persist.as_ref());
    let written = file.map(|(file, text)| Written::beside(file, text));
    let written = written.transpose().map_err(Failure::failed)?;
    let changed = host.confirm();
    upgrade::note(host);
    keep(written)?;
    Ok(Changed {
        changed,
        generation: host.generation(),
    })
}

pub(super) fn roll_back(host: &mut Host) -> Result<Changed, Failure> {
    let changed = host.roll_back();
    reach_now(host);
    upgrade::note(host);
    Ok(Changed {
        changed,
        generation: host.generation(),
    })
}

/// Takes back what was on trial for its time.
pub(super) fn overdue(host: &RwLock<Host>) {
    let is_over = |host: &Host| {
        host.trial()
            .is_some_and(|trial| trial.until <= Instant::now())
    };
    if !is_over(&host.read()) {
        return;
    }
    let mut host = host.write();
    if is_over(&host) && host.roll_back() {
        reach_now(&host);
        upgrade::note(&host);
        tracing::warn!("the configuration was not confirmed in time: all is as it was before");
    }
}

/// Reads the daemon's own file again and does what can be done, without touching what VMMs have. A line for each thing
/// that cannot.
pub fn reload(host: &RwLock<Host>) {
    let mut host = host.write();
    let file = host.head().file.clone().unwrap_or_default();
    let call = ConfigApply {
        partly: Some(true),
        ..ConfigApply::default()
    };
    match apply(&mut host, &call) {
        Ok(plan) => say(&file, &plan),
        Err(failure) => tracing::error!("reload: nothing was changed: {failure}"),
    }
}

fn say(file: &Path, plan: &control::Plan) {
    for cannot in &plan.cannot {
        let Cannot { kind, name, why } = cannot;
        tracing::warn!("reload: {kind} {name} is as it was: {why}");
    }
    for step in &plan.steps {
        let (act, words) = (step.act.word(), step.words.join(", "));
        tracing::info!(words, "reload: {act} {} {}", step.kind, step.name);
    }
    let (changes, left) = (plan.steps.len(), plan.cannot.len());
    tracing::info!(changes, left, "reloaded {}", file.display());
}
