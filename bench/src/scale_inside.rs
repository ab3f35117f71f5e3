//! Ten senders and a thousand in one process, without sockets: a part of `scale`. What is left of the difference there is memory.

use ceiling::{Loop, thread_time};
use serde_json::{Value, json};

use crate::error::Result;
use crate::inside::fleet::Fleet;
use crate::options::Options;
use crate::page::Page;
use crate::quiet::Quiet;
use crate::spec::Spec;
use crate::stats::{Column, Reading, figure, in_turns};

/// How many send.
const COUNTS: [u16; 2] = [10, 1000];
/// Frames of a sample at least: some rounds of a thousand.
const FRAMES: u64 = 640_000;

fn spec() -> Spec {
    Spec::frames(60, 128, 32)
}

fn cases() -> [(&'static str, Spec, bool); 4] {
    let vf = spec().between_vfs();
    [
        ("82540EM", spec(), true),
        ("82540EM, nothing fetched ahead", spec(), false),
        ("82576 VF", vf, true),
        ("82576 VF, nothing fetched ahead", vf, false),
    ]
}

/// How long it takes, in seconds.
pub fn estimate(options: &Options) -> f64 {
    8.0 + (options.rounds() * COUNTS.len() * (cases().len() + 1)) as f64 * 0.2
}

/// Millions of frames a second of one thread that has moved so many in so many nanoseconds each.
fn rate(nanos: f64) -> Reading {
    Reading::bare(1e3 / nanos)
}

/// Nanoseconds of processor time for each frame of raw loops over as many rings and buffers.
fn sample(loops: &mut [Loop]) -> f64 {
    let mut moved = 0;
    let begun = thread_time();
    while moved < FRAMES {
        for raw in &mut *loops {
            moved += (0..2).map(|_| raw.burst(32) as u64).sum::<u64>();
        }
    }
    (thread_time() - begun) as f64 / moved as f64
}

/// Measures, and writes it down.
///
/// # Errors
/// When samples fail.
pub fn run(options: &Options, page: &mut Page, quiet: &mut Quiet) -> Result<()> {
    page.heading("Without sockets");
    page.text(
        "The models and the switch in this process, one thread that serves all NICs in turn, each of which sends 32 frames of 60 bytes to its \
         partner; rings of 128. *Ahead* means that the processor is told what the next NIC's turn touches while the present one is served, as \
         a worker of the daemon does when several NICs want a turn. The raw loops are over as many rings and buffers, in the same run.",
    );
    let mut rows = Vec::new();
    let mut data = Vec::new();
    for (name, spec, ahead) in cases() {
        let mut fleets = COUNTS.map(|count| Fleet::new(count, spec));
        if ahead {
            fleets.iter_mut().for_each(Fleet::look_ahead);
        }
        let columns = measure(options, quiet, |i| fleets[i].sample(FRAMES))?;
        rows.push(row(name, &columns));
        data.push(json!({"case": name, "columns": columns.iter().map(Column::json).collect::<Vec<Value>>()}));
    }
    let mut loops = COUNTS
        .map(|count| -> Vec<Loop> { (0..count / 2).map(|_| Loop::new(spec().shape())).collect() });
    // Each buffer once: the first touch is the kernel's.
    loops.iter_mut().for_each(|loops| {
        sample(loops);
    });
    let columns = measure(options, quiet, |i| sample(&mut loops[i]))?;
    rows.push(row("raw loops", &columns));
    data.push(
        json!({"case": "raw", "columns": columns.iter().map(Column::json).collect::<Vec<Value>>()}),
    );
    page.table(
        &["", "10 send: Mpps", "1000 send: Mpps", "1000 over 10"],
        &rows,
    );
    page.data("without_sockets", data);
    Ok(())
}

fn measure(
    options: &Options,
    quiet: &mut Quiet,
    mut sample: impl FnMut(usize) -> f64,
) -> Result<Vec<Column>> {
    let mut columns: Vec<Column> = COUNTS.iter().map(|n| Column::new(format!("{n}"))).collect();
    in_turns(quiet, options.rounds(), &mut columns, |i| {
        Ok(rate(sample(i)))
    })?;
    Ok(columns)
}

fn row(name: &str, columns: &[Column]) -> Vec<String> {
    let ratio = columns[1].over(&columns[0]);
    let ratio = ratio.map_or("–".to_owned(), |ratio| ratio.words());
    eprintln!(
        "  {name}: {} and {} Mpps, {ratio}",
        figure(columns[0].median()),
        figure(columns[1].median())
    );
    vec![
        name.to_owned(),
        columns[0].words(),
        columns[1].words(),
        ratio,
    ]
}
