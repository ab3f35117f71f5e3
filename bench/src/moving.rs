//! What it costs a guest that a NIC is saved and loaded while it stands still: the last steps of a move by the VMM.

mod full;

use std::time::Instant;

use drivers::SocketBus;
use rig::paired::percentile;
use serde_json::{Value, json};
use vfio_user::codec::feature::MigrationState;
use vfio_user::{Client, ClientError};

use self::full::{Nic, RING, SIZE};
use crate::error::{Error, Result};
use crate::fabric::Fabric;
use crate::machine;
use crate::options::Options;
use crate::page::Page;
use crate::quiet::Quiet;
use crate::report::Report;
use crate::stats::figure;

/// NICs without a driver, by the word that chooses them.
const MODELS: [(&str, &str); 5] = [
    ("82540EM", "e1000"),
    ("82576", "82576"),
    ("RTL8168C", "r8168"),
    ("RTL8168H", "r8168h"),
    ("virtio-net", "virtio-net"),
];
/// Bytes that a VMM reads or writes at once.
const AT_ONCE: u32 = 1 << 16;
/// Saved and loaded so often before it counts.
const WARM: usize = 20;

fn times(options: &Options) -> usize {
    if options.quick { 50 } else { 500 }
}

/// How long the module takes, in seconds.
pub fn estimate(options: &Options) -> f64 {
    10.0 + 30.0 * times(options) as f64 / 500.0
}

fn refused(error: ClientError) -> Error {
    Error::Tool {
        tool: "the vfio-user client",
        what: error.to_string(),
    }
}

/// What was measured of one NIC, in microseconds.
#[derive(Default)]
struct Found {
    bytes: usize,
    saves: Vec<f64>,
    loads: Vec<f64>,
}

/// Stops a NIC, takes its state, and has it go on with that, again and again.
fn save_and_load(client: &mut Client, times: usize) -> Result<Found, ClientError> {
    let mut found = Found::default();
    for round in 0..WARM + times {
        let start = Instant::now();
        client.set_migration_state(MigrationState::StopCopy)?;
        let state = client.read_state(AT_ONCE)?;
        let saved = start.elapsed();
        client.set_migration_state(MigrationState::Stop)?;
        let start = Instant::now();
        client.set_migration_state(MigrationState::Resuming)?;
        client.write_state(&state, AT_ONCE as usize)?;
        client.set_migration_state(MigrationState::Running)?;
        if round >= WARM {
            found.saves.push(saved.as_secs_f64() * 1e6);
            found.loads.push(start.elapsed().as_secs_f64() * 1e6);
        }
        found.bytes = state.len();
    }
    Ok(found)
}

fn at_rest(options: &Options, model: &str, times: usize) -> Result<Found> {
    let words = ["--model".to_owned(), model.to_owned()];
    let core = Some(machine::cores().1);
    let fabric = Fabric::start(&options.hypernic(), 1, "null", &words, core)?;
    let bus = SocketBus::connect(fabric.socket(0));
    let mut bus = bus.map_err(|e| Error::Usage(e.to_string()))?;
    save_and_load(bus.client(), times).map_err(refused)
}

/// Runs the module.
///
/// # Errors
/// When a daemon or its client fails.
pub fn run(options: &Options) -> Result<Report> {
    let mut page = Page::new("moving", "Saving and loading a NIC");
    let mut quiet: Quiet = options.quiet();
    let times = times(options);
    let mut rows = Vec::new();
    let mut data: Vec<Value> = Vec::new();
    let mut note = |quiet: &mut Quiet, name: &str, take: &mut dyn FnMut() -> Result<Found>| {
        let Some(taken) = quiet.take(&mut *take)? else {
            rows.push(
                [&[name][..], &["–"; 5]]
                    .concat()
                    .into_iter()
                    .map(str::to_owned)
                    .collect(),
            );
            return Ok(());
        };
        let found = taken.value;
        let of = |all: &[f64], p| figure(percentile(all, p).unwrap_or(f64::NAN));
        rows.push(vec![
            name.to_owned(),
            found.bytes.to_string(),
            of(&found.saves, 50.0),
            of(&found.saves, 99.0),
            of(&found.loads, 50.0),
            of(&found.loads, 99.0),
        ]);
        data.push(json!({"nic": name, "bytes": found.bytes, "saves_us": found.saves, "loads_us": found.loads}));
        Ok::<_, Error>(())
    };
    for (name, word) in MODELS {
        note(&mut quiet, &format!("{name}, no driver"), &mut || {
            at_rest(options, word, times)
        })?;
    }
    for nic in Nic::ALL {
        note(&mut quiet, nic.name(), &mut || {
            let measure = |client: &mut Client| save_and_load(client, times).map_err(refused);
            nic.use_with(options, measure)
        })?;
    }
    page.text(&format!(
        "A VMM stops a NIC, reads its state, and has it go on with the same state, {times} times each, over a real socket. *Saving* is from \
         `STOP_COPY` being written until the last byte is read, *loading* from `RESUMING` being written until `RUNNING` is answered: both are \
         parts of the time for which a guest that moves stands still. Microseconds. \
         Where a receive ring is full, its driver has sent two rings of frames of {SIZE} bytes to itself (a VF: to the other one of its chip), \
         over rings of {RING} descriptors."
    ));
    page.table(
        &[
            "NIC",
            "bytes",
            "saving, median",
            "p99",
            "loading, median",
            "p99",
        ],
        &rows,
    );
    page.data("nics", data);
    Ok(page.finish(&quiet))
}
