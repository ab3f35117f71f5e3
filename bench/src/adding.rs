//! How long it takes to add a NIC to a daemon that has others, and to take it away, over the control socket: a part of `scale`.

use std::time::Instant;

use control::{AskError, Client, NicAdd, NicConfig, NicRemove};
use rig::paired::percentile;
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::fabric::Fabric;
use crate::machine;
use crate::options::Options;
use crate::page::Page;
use crate::stats::figure;

/// NICs that are there.
const COUNTS: [usize; 3] = [1, 100, 1000];

fn times(options: &Options) -> usize {
    if options.quick { 50 } else { 1000 }
}

/// How long it takes, in seconds.
pub fn estimate(options: &Options) -> f64 {
    5.0 + (COUNTS.len() * times(options)) as f64 * 0.004
}

/// Measures, and writes it down.
///
/// # Errors
/// When a daemon does not come up, or refuses.
pub fn run(options: &Options, page: &mut Page) -> Result<()> {
    page.heading("Adding one");
    page.text(&format!(
        "`Nic.Add` and `Nic.Remove` over the control socket, {} times each, with a socket of its own and a place on the switch: from \
         the call to its reply, in milliseconds. The daemon has the second processor, who asks the first. No NIC has a VMM.",
        times(options)
    ));
    let (mut rows, mut data) = (Vec::new(), Vec::new());
    for count in COUNTS {
        let (added, removed) = measure(options, count)?;
        let cell = |times: &[f64], p| figure(percentile(times, p).unwrap_or(f64::NAN));
        let cells = [&added, &removed].map(|times| [50.0, 99.0, 100.0].map(|p| cell(times, p)));
        eprintln!("  {count} NICs: one more in {} ms (p99)", cells[0][1]);
        let cells = cells.into_iter().flatten();
        rows.push([count.to_string()].into_iter().chain(cells).collect());
        data.push(json!({"nics": count, "add_ms": added, "remove_ms": removed}));
    }
    page.table(
        &[
            "NICs there",
            "add: median",
            "p99",
            "longest",
            "remove: median",
            "p99",
            "longest",
        ],
        &rows,
    );
    page.data("adding", Value::from(data));
    Ok(())
}

/// Milliseconds of each addition and removal.
fn measure(options: &Options, count: usize) -> Result<(Vec<f64>, Vec<f64>)> {
    let last = format!("n{}", count - 1);
    let file = |dir: &std::path::Path| {
        let control = dir.join("control.sock");
        let nics = (0..count).map(|n| {
            let socket = dir.join(format!("n{n}"));
            format!("[[nic]]\nname = \"n{n}\"\nsocket-path = {socket:?}\nport = \"switch:lan\"\n")
        });
        let nics: String = nics.collect();
        format!("control = {control:?}\n[[switch]]\nname = \"lan\"\n{nics}")
    };
    let fabric = Fabric::serve(&options.hypernic(), file, &last, Some(machine::cores().1))?;
    let dir = fabric.dir();
    let mut client = Client::connect(&dir.join("control.sock")).map_err(refused)?;
    let (mut added, mut removed) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        let asks = scope.spawn(|| {
            machine::pin(machine::cores().0);
            for _ in 0..times(options) {
                let nic = NicConfig {
                    name: "new".into(),
                    port: "switch:lan".into(),
                    socket_path: Some(dir.join("new").to_string_lossy().into()),
                    ..NicConfig::default()
                };
                let start = Instant::now();
                client.call(&NicAdd {
                    nic,
                    ..NicAdd::default()
                })?;
                added.push(start.elapsed().as_secs_f64() * 1e3);
                let start = Instant::now();
                client.call(&NicRemove {
                    name: "new".into(),
                    ..NicRemove::default()
                })?;
                removed.push(start.elapsed().as_secs_f64() * 1e3);
            }
            Ok::<_, AskError>(())
        });
        asks.join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
    .map_err(refused)?;
    Ok((added, removed))
}

fn refused(error: AskError) -> Error {
    Error::Tool {
        tool: "the control socket",
        what: error.to_string(),
    }
}
