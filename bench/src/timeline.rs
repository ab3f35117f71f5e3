//! Where a round trip's time goes, step by step: a real guest with NICs of ours, each before a TAP; the host pings the
//! guest, and the guest the host. The daemon stamps what it does, and the kernel's scheduler says who was called when.

mod bed;
pub mod echo;
mod found;
mod page;
mod rounds;
mod stamps;

use self::bed::{Bed, PAUSE, Seat, Seen};
use self::found::{Found, From};
use self::rounds::{Around, Passed};
use crate::error::Result;
use crate::options::Options;
use crate::page::Page;
use crate::quiet::Quiet;
use crate::report::Report;

/// Which NICs: names among those of `which_nic`.
const NICS: [&str; 3] = ["82540em", "82576", "virtio-vfio"];

/// Pings in one sample.
fn pings(options: &Options) -> usize {
    if options.quick { 100 } else { 300 }
}

fn samples(options: &Options) -> usize {
    options.rounds().min(3)
}

/// How long the module takes, in seconds.
pub fn estimate(options: &Options) -> f64 {
    let one = pings(options) as f64 * 0.0115;
    // Each way with the scheduler watched and without.
    let each = 4.0 * one + 2.0 * 4.0;
    25.0 + (NICS.len() * samples(options)) as f64 * each
}

/// Runs the module.
///
/// # Errors
/// When this machine cannot run guests, or a measurement fails.
pub fn run(options: &Options) -> Result<Report> {
    let mut page = Page::new("timeline", "Where a round trip's time goes");
    let ids: Vec<&str> = NICS.into_iter().filter(|id| options.wants(id)).collect();
    eprintln!("  booting the guest with {} NICs", ids.len());
    let bed = Bed::new(&options.hypernic(), &ids)?;
    let mut quiet = options.quiet();
    let mut all = Vec::new();
    for seat in &bed.seats {
        for from in [From::Host, From::Guest] {
            let found = measure(&bed, seat, from, options, &mut quiet)?;
            eprintln!(
                "  {} {from:?}: {} round trips, {} lost",
                found.id,
                found.rounds.len(),
                found.lost
            );
            all.push(found);
        }
    }
    page::fill(&mut page, &bed, &all)?;
    Ok(page.finish(&quiet))
}

fn measure(
    bed: &Bed,
    seat: &Seat,
    from: From,
    options: &Options,
    quiet: &mut Quiet,
) -> Result<Found> {
    let mut found = Found {
        id: seat.party.id,
        title: seat.party.title,
        from,
        watched: Vec::new(),
        alone: Vec::new(),
        rounds: Vec::new(),
        called: true,
        lost: 0,
    };
    let count = pings(options);
    for _ in 0..samples(options) {
        for scheduler in [false, true] {
            let taken = quiet.take(|| one(bed, seat, from, count, scheduler))?;
            let Some(taken) = taken else { continue };
            let (times, rounds, called, lost) = taken.value;
            if scheduler {
                found.watched.extend(times);
                found.rounds.extend(rounds);
                found.called &= called;
                found.lost += lost;
            } else {
                found.alone.extend(times);
            }
        }
    }
    Ok(found)
}

type One = (Vec<f64>, Vec<Vec<Passed>>, bool, u64);

fn one(bed: &Bed, seat: &Seat, from: From, count: usize, scheduler: bool) -> Result<One> {
    let name = |place: u64| page::register(seat.party.id, place);
    let around = |seen: &Seen, cut: &dyn Fn(&Around<'_>) -> Vec<Vec<Passed>>| {
        cut(&Around {
            wakes: &seen.wakes,
            threads: &seen.threads,
            name: &name,
        })
    };
    let (times, rounds, seen) = match from {
        From::Host => {
            let (pairs, seen) = bed.watch(seat, scheduler, || bed.host_pings(seat, count))?;
            let times = pairs.iter().map(|(sent, came)| (came - sent) as f64 / 1e3);
            let rounds = around(&seen, &|around| around.of_host(&pairs, &seen.stamps));
            (times.collect(), rounds, seen)
        }
        From::Guest => {
            let (times, seen) = bed.watch(seat, scheduler, || bed.guest_pings(seat, count))?;
            let silence = PAUSE.as_nanos() as u64 / 3;
            let rounds = around(&seen, &|around| around.of_guest(&seen.stamps, silence));
            (times, rounds, seen)
        }
    };
    Ok((times, rounds, !seen.wakes.is_empty(), seen.lost))
}
