//! What this machine can do when everything is left out that is not the moving of bytes: bare copies, and the raw loop
//! between two rings, with and without a guest's thread beside it.

use std::time::Duration;

use ceiling::{Loop, Shape, across};
use serde_json::{Value, json};

use crate::copies::{self, Copies, SETS};
use crate::error::Result;
use crate::machine;
use crate::options::Options;
use crate::page::Page;
use crate::report::Report;
use crate::stats::{Column, Reading, in_turns};

/// Frame size, descriptors of a ring, burst.
const SHAPES: [(usize, u32, usize); 12] = [
    (60, 256, 1),
    (60, 256, 32),
    (60, 256, 256),
    (60, 1024, 32),
    (60, 1024, 256),
    (256, 256, 32),
    (256, 1024, 256),
    (1514, 256, 1),
    (1514, 256, 32),
    (1514, 1024, 256),
    (9014, 256, 32),
    (9014, 256, 256),
];

fn seconds(options: &Options) -> f64 {
    if options.quick { 0.1 } else { 0.3 }
}

/// How long the module takes, in seconds.
pub fn estimate(options: &Options) -> f64 {
    let samples = SHAPES.len() * 2 + SETS.len() * copies::SIZES.len() - 2;
    3.0 + (samples * options.rounds()) as f64 * (seconds(options) + 0.05)
}

/// A ring loop's shape.
pub fn shape(size: usize, ring: u32) -> Shape {
    Shape {
        size,
        ring,
        stride: size.next_multiple_of(2048),
    }
}

/// Runs the module.
///
/// # Errors
/// None of its own.
pub fn run(options: &Options) -> Result<Report> {
    let mut page = Page::new("ceiling", "The ceiling: what this machine can move");
    let (_, core) = machine::cores();
    let mut quiet = options.quiet();
    let length = Duration::from_secs_f64(seconds(options));

    let mut area = Copies::new();
    let cells: Vec<(usize, usize)> = copies::SIZES
        .iter()
        .flat_map(|&size| SETS.map(|(set, _)| (set, size)))
        .filter(|&(set, size)| copies::fits(set, size))
        .collect();
    let mut plain: Vec<Column> = cells
        .iter()
        .map(|(set, size)| Column::new(format!("{set}/{size}")))
        .collect();
    eprint!("  copies");
    in_turns(&mut quiet, options.rounds(), &mut plain, |i| {
        let (set, size) = cells[i];
        Ok(area.sample(set, size, length))
    })?;
    eprintln!();

    let mut alone: Vec<Column> = Vec::new();
    let mut beside: Vec<Column> = Vec::new();
    let mut loops: Vec<Loop> = Vec::new();
    for (size, ring, burst) in SHAPES {
        alone.push(Column::new(format!("{size}/{ring}/{burst} alone")));
        beside.push(Column::new(format!("{size}/{ring}/{burst} across")));
        loops.push(Loop::new(shape(size, ring)));
    }
    eprint!("  rings always ready");
    in_turns(&mut quiet, options.rounds(), &mut alone, |i| {
        let (size, _, burst) = SHAPES[i];
        let frames = (length.as_nanos() as usize) / (25 + size / 10);
        let ns = loops[i].sample(burst, frames.max(1000));
        Ok(Reading::bare(1e3 / ns))
    })?;
    eprint!("\n  a guest's thread beside it");
    in_turns(&mut quiet, options.rounds(), &mut beside, |i| {
        let (size, ring, burst) = SHAPES[i];
        Ok(Reading::bare(
            1e3 / beside_guest(size, ring, burst, length, core),
        ))
    })?;
    eprintln!();
    write(&mut page, &cells, &plain, &alone, &beside);
    Ok(page.finish(&quiet))
}

/// Nanoseconds per frame of the loop on the second processor with both guests on the first.
pub fn beside_guest(size: usize, ring: u32, burst: usize, length: Duration, core: usize) -> f64 {
    std::thread::scope(|scope| {
        let work = scope.spawn(move || {
            machine::pin(core);
            across(shape(size, ring), burst, length)
        });
        work.join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn write(
    page: &mut Page,
    cells: &[(usize, usize)],
    plain: &[Column],
    alone: &[Column],
    beside: &[Column],
) {
    page.heading("Bare copies");
    page.text(
        "One thread copies buffers 2 KiB apart (longer ones at the next multiple), in millions of copies per second of its processor \
         time; the sets are source and destination together. 60 bytes are moved as 64, inline. Medians over rounds \
         (smallest–largest).",
    );
    let mut head = vec!["set".to_owned()];
    head.extend(copies::SIZES.map(|size| format!("{size} B")));
    let rows: Vec<Vec<String>> = SETS
        .iter()
        .map(|(set, name)| {
            let mut row = vec![format!("{name} ({} KiB)", set >> 10)];
            for size in copies::SIZES {
                let at = cells.iter().position(|c| *c == (*set, size));
                row.push(at.map_or("–".to_owned(), |i| {
                    let gbit = plain[i].median() * size as f64 * 8.0 / 1e3;
                    format!("{}, {gbit:.0} Gbit/s", plain[i].words())
                }));
            }
            row
        })
        .collect();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    page.table(&head, &rows);
    page.heading("Between two rings");
    page.text(
        "Descriptors read, addresses translated and checked, destination looked up, frame copied, both descriptors written back; no \
         registers, counters, filters, learning, locks. *Alone*: one thread, rings always ready, in processor time. *Across*: the loop \
         on one processor, a thread that fills, drains and touches the head of each frame on the other, in wall time. Mpps.",
    );
    let rows: Vec<Vec<String>> = SHAPES
        .iter()
        .zip(alone.iter().zip(beside))
        .map(|((size, ring, burst), (alone, beside))| {
            let gbit = |c: &Column| format!("{:.1}", c.median() * *size as f64 * 8.0 / 1e3);
            vec![
                size.to_string(),
                ring.to_string(),
                burst.to_string(),
                alone.words(),
                gbit(alone),
                beside.words(),
                gbit(beside),
            ]
        })
        .collect();
    page.table(
        &[
            "bytes", "ring", "burst", "alone", "Gbit/s", "across", "Gbit/s",
        ],
        &rows,
    );
    let columns = |of: &[Column]| of.iter().map(Column::json).collect::<Vec<Value>>();
    let data =
        json!({"copies": columns(plain), "alone": columns(alone), "across": columns(beside)});
    page.data("ceiling", data);
}
