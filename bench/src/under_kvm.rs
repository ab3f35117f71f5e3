//! What each NIC costs under KVM, counted: exits, interrupts, messages for a round trip and a frame.
//!
//! KVM runs in a guest whose processor is emulated ([`rig::KvmHost`]), so nothing here is about time.

mod bed;
mod marks;

use serde_json::{Value, json};

use self::bed::{BYTES, Bed, parties};
use self::marks::{Counts, SCENES};
use crate::error::Result;
use crate::options::Options;
use crate::page::Page;
use crate::report::Report;
use crate::stats::figure;

/// Round trips of a sample.
const PINGS: usize = 100;
/// Bytes of TCP payload in a frame of MTU 1500.
const PAYLOAD: f64 = 1448.0;

fn rounds(options: &Options) -> usize {
    if options.quick {
        1
    } else {
        options.rounds().min(5)
    }
}

/// How long the module takes, in seconds.
pub fn estimate(options: &Options) -> f64 {
    120.0 + (15 * parties().len() * rounds(options)) as f64
}

/// Runs the module.
///
/// # Errors
/// When this machine cannot run guests, or the inner guest fails.
pub fn run(options: &Options) -> Result<Report> {
    let rounds = rounds(options);
    let mut page = Page::new("under_kvm", "What each NIC costs under KVM");
    eprintln!(
        "  booting a guest with KVM, and in it one with {} NICs",
        parties().len()
    );
    let bed = Bed::start(&options.hypernic(), rounds, PINGS)?;
    let text = bed.marks(rounds, |round| {
        eprintln!("  round {} of {rounds}", round + 1)
    })?;
    bed.end()?;
    let frames = BYTES as f64 / PAYLOAD;
    let units = [PINGS as f64, frames, frames];
    let marks = marks::parse(&text)?;
    let found = (0..parties().len())
        .map(|nic| {
            let own: Vec<_> = marks
                .iter()
                .filter(|mark| mark.nic == nic)
                .cloned()
                .collect();
            let rounds = own.chunks(SCENES.len() + 2);
            rounds.map(|round| marks::scenes(round, units)).collect()
        })
        .collect::<Result<Vec<Vec<[Counts; 3]>>>>()?;
    write(&mut page, &found, rounds);
    Ok(page.finish(&options.quiet()))
}

/// The median over rounds of one count.
fn median(rounds: &[[Counts; 3]], scene: usize, read: impl Fn(&Counts) -> f64) -> f64 {
    let values: Vec<f64> = rounds.iter().map(|round| read(&round[scene])).collect();
    rig::paired::median(&values).unwrap_or(f64::NAN)
}

fn write(page: &mut Page, found: &[Vec<[Counts; 3]>], rounds: usize) {
    page.text(&format!(
        "One guest with all {} NICs, each before a TAP of its own, under KVM in a machine whose processor QEMU emulates: what is counted \
         is as on hardware, what takes time is not, so no rate is given. Medians of {rounds} rounds. The guest pings its host {PINGS} \
         times, fetches {} MiB and sends them back by TCP (MTU 1500). *Exits to QEMU* are accesses to registers, each of which \
         waits for QEMU; those that KVM answers itself (eventfds of virtio, the interrupt controller) are in *all exits*, with timers \
         and halts. What the marks between two scenes cost is subtracted. Messages and register accesses are hypernic's own counters; \
         QEMU's own NICs have none.",
        found.len(),
        BYTES >> 20,
    ));
    for (scene, (_, unit)) in SCENES.iter().enumerate() {
        page.heading(&format!("For each {unit}"));
        let rows: Vec<Vec<String>> = parties()
            .iter()
            .zip(found)
            .map(|(party, rounds)| {
                let ours = |at: usize| {
                    let has = rounds.iter().all(|round| round[scene].ours.is_some());
                    let value = |c: &Counts| c.ours.map_or(f64::NAN, |o| o[at]);
                    if has {
                        figure(median(rounds, scene, value))
                    } else {
                        "–".to_owned()
                    }
                };
                vec![
                    party.title.to_owned(),
                    figure(median(rounds, scene, |c| c.to_qemu)),
                    figure(median(rounds, scene, |c| c.exits)),
                    figure(median(rounds, scene, |c| c.interrupts)),
                    ours(0),
                    ours(1),
                    ours(2),
                ]
            })
            .collect();
        let head = [
            "NIC",
            "exits to QEMU",
            "all exits",
            "interrupts",
            "messages",
            "register reads",
            "writes",
        ];
        page.table(&head, &rows);
    }
    let data: Vec<Value> = parties()
        .iter()
        .zip(found)
        .map(|(party, rounds)| {
            let rounds: Vec<Value> = rounds
                .iter()
                .map(|round| {
                    let scenes = SCENES.iter().zip(round);
                    scenes
                        .map(|((name, _), c)| ((*name).to_owned(), c.json()))
                        .collect()
                })
                .collect();
            json!({"nic": party.id, "rounds": rounds})
        })
        .collect();
    page.data("nics", data);
}
