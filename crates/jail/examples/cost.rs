//! What the filters cost a system call: nanoseconds without, with that of the process, and with those of a worker.
#![forbid(unsafe_code)]

use std::time::Instant;

use jail::{Mode, Plan};
use rustix::event::{Timespec, poll};
use threads::Kind;

const CALLS: u32 = 50_000;
const ROUNDS: usize = 200;

/// The least of many rounds: others have the processor, too.
fn each() -> f64 {
    let round = || {
        let start = Instant::now();
        for _ in 0..CALLS {
            let _ = poll(&mut [], Some(&Timespec::default()));
        }
        start.elapsed().as_nanos() as f64 / f64::from(CALLS)
    };
    (0..ROUNDS).map(|_| round()).fold(f64::MAX, f64::min)
}

fn main() -> Result<(), String> {
    println!("ppoll of nothing: {:.0} ns without a filter", each());
    let plan = Plan {
        mode: Mode::Default,
        ..Plan::default()
    };
    println!("sandbox {}", jail::enter(plan)?);
    println!("{:.0} ns in the process", each());
    let worker = threads::spawn("worker", || {
        threads::enter(Kind::Data);
        each()
    });
    let worker = worker.map_err(|error| error.to_string())?;
    println!(
        "{:.0} ns on a worker",
        worker.join().map_err(|_| "it failed")?
    );
    Ok(())
}
