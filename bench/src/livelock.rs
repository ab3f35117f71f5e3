//! Offered against delivered load, up to twenty times what the receiver can do: where receive livelock would show
//! ("Speeding up packet I/O in virtual machines", ANCS 2013, figure 3).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use drivers::e1000::poll::TxFrame;
use serde_json::{Value, json};

use crate::error::Result;
use crate::fabric::{Fabric, Guest, Traffic, aim, config, delta, driver, mac};
use crate::machine;
use crate::options::Options;
use crate::page::Page;
use crate::plot::{self, Scale, Whose};
use crate::report::Report;
use crate::stats::{Column, Reading, figure, in_turns};

/// What a received frame costs the receiving guest.
const COST: Duration = Duration::from_micros(20);

/// Offered load, in units of what the receiver could do were it disturbed by nothing.
const OFFERED: [f64; 10] = [0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0];

const SIZE: usize = 60;

fn capacity() -> f64 {
    1.0 / COST.as_secs_f64()
}

fn seconds(options: &Options) -> f64 {
    if options.quick { 0.5 } else { 1.5 }
}

/// How long the module takes, in seconds.
pub fn estimate(options: &Options) -> f64 {
    3.0 + (OFFERED.len() * options.rounds()) as f64 * (seconds(options) + 0.15)
}

/// Runs the module.
///
/// # Errors
/// When the daemon or its guests fail.
pub fn run(options: &Options) -> Result<Report> {
    let mut page = Page::new(
        "livelock",
        "Overload: offered and delivered, up to twenty times capacity",
    );
    let core = machine::cores().1;
    let fabric = Fabric::start(
        &options.hypernic(),
        2,
        "switch:lan",
        &options.daemon(),
        Some(core),
    )?;
    let kind = Traffic::Plain(SIZE);
    let mut sender = fabric.guest(0, &config(kind, 256))?;
    let mut receiver = fabric.guest(1, &config(kind, 256))?;
    aim(&mut sender, kind, mac(0), mac(1))?;
    aim(&mut receiver, kind, mac(1), mac(0))?;
    // The switch learns where the receiver is.
    receiver
        .send(1, |_, _| TxFrame::plain(SIZE as u32))
        .map_err(driver)?;
    let mut quiet = options.quiet();
    let mut columns: Vec<Column> = OFFERED
        .iter()
        .map(|times| Column::new(format!("{times}")))
        .collect();
    eprint!("  {} points", OFFERED.len());
    in_turns(&mut quiet, options.rounds(), &mut columns, |i| {
        let before = fabric.counters()?;
        let done = overload(
            &mut sender,
            &mut receiver,
            OFFERED[i] * capacity(),
            seconds(options),
        )?;
        let counted = delta(&before, &fabric.counters()?);
        let per = |n: u64| n as f64 / done.seconds;
        Ok(Reading {
            value: per(done.delivered),
            raw: json!({
                "offered": per(done.offered), "taken": per(done.taken), "interrupts": done.interrupts,
                "seconds": done.seconds, "daemon": counted,
            }),
        })
    })?;
    eprintln!();
    write(&mut page, &columns);
    Ok(page.finish(&quiet))
}

#[derive(Debug, Default)]
struct Done {
    offered: u64,
    taken: u64,
    delivered: u64,
    interrupts: u64,
    seconds: f64,
}

/// Sends at a rate from the daemon's processor, receives by interrupt on the other.
fn overload(sender: &mut Guest, receiver: &mut Guest, rate: f64, seconds: f64) -> Result<Done> {
    let over = AtomicBool::new(false);
    let start = Instant::now();
    let until = start + Duration::from_secs_f64(seconds);
    std::thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            machine::pin(machine::cores().0);
            receive(receiver, until, &over)
        });
        let sending = scope.spawn(|| {
            machine::pin(machine::cores().1);
            let mut done = Done::default();
            while Instant::now() < until {
                let due = (start.elapsed().as_secs_f64() * rate) as u64;
                let open = due.saturating_sub(done.offered).min(32);
                if open == 0 {
                    std::thread::yield_now();
                    continue;
                }
                // What the ring has no room for was offered all the same.
                let sent = sender.send(open as u32, |_, _| TxFrame::plain(SIZE as u32));
                done.taken += u64::from(sent.map_err(driver)?);
                done.offered += open;
            }
            over.store(true, Ordering::Release);
            Ok(done)
        });
        let sent: Result<Done> = sending
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let (delivered, interrupts) = receiving
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let mut done = sent?;
        done.delivered = delivered;
        done.interrupts = interrupts;
        done.seconds = seconds;
        Ok(done)
    })
}

/// A guest's driver: sleeps until an interrupt, looks until nothing is left, and every frame costs something. Gives what it
/// received in time and how often it was woken; what came late is taken away, but not counted.
fn receive(receiver: &mut Guest, until: Instant, over: &AtomicBool) -> Result<(u64, u64)> {
    let (mut frames, mut interrupts) = (0, 0);
    loop {
        let came = receiver
            .receive(32, |_| {
                let begun = Instant::now();
                while begun.elapsed() < COST {
                    std::hint::spin_loop();
                }
            })
            .map_err(driver)?;
        if Instant::now() < until {
            frames += u64::from(came);
        }
        if came > 0 {
            continue;
        }
        if over.load(Ordering::Acquire) {
            return Ok((frames, interrupts));
        }
        if receiver.wait(Duration::from_millis(20)).map_err(driver)? {
            interrupts += 1;
        }
    }
}

fn write(page: &mut Page, columns: &[Column]) {
    let peak = columns
        .iter()
        .map(Column::median)
        .filter(|v| v.is_finite())
        .fold(0.0, f64::max);
    page.text(&format!(
        "The receiving guest works by interrupt, as a kernel's driver does, and each frame costs it {} us, so that it could take \
         {:.0} frames/s were there nothing else to do. The sender offers up to twenty times that, paced, in bursts of up to 32; what finds \
         its ring full counts as offered. Daemon and sender share one processor, the receiver has the other. Frames of {SIZE} \
         bytes.",
        COST.as_micros(),
        capacity(),
    ));
    let raw = |column: &Column, name: &str| -> f64 {
        let values: Vec<f64> = column
            .readings()
            .filter_map(|r| r.raw[name].as_f64())
            .collect();
        rig::paired::median(&values).unwrap_or(f64::NAN)
    };
    let rows: Vec<Vec<String>> = columns
        .iter()
        .map(|column| {
            vec![
                column.id.clone(),
                figure(raw(column, "offered") / 1e3),
                figure(raw(column, "taken") / 1e3),
                column.summary().map_or("–".to_owned(), |s| {
                    format!(
                        "**{}** ({}–{})",
                        figure(s.median / 1e3),
                        figure(s.min / 1e3),
                        figure(s.max / 1e3)
                    )
                }),
                figure(column.median() / peak),
                figure(raw(column, "interrupts") / raw(column, "seconds")),
            ]
        })
        .collect();
    page.table(
        &[
            "offered / capacity",
            "offered, k/s",
            "taken by the NIC, k/s",
            "delivered, k/s",
            "of the peak",
            "interrupts/s",
        ],
        &rows,
    );
    let points: Vec<(f64, f64)> = columns
        .iter()
        .map(|c| (raw(c, "offered") / 1e3, c.median() / 1e3))
        .collect();
    let ideal: Vec<_> = points
        .iter()
        .map(|p| (p.0, p.0.min(capacity() / 1e3)))
        .collect();
    page.plot(plot::lines(
        "curve",
        "Delivered over offered load",
        Scale::log("offered, k/s (log)"),
        Scale::linear("delivered, k/s"),
        vec![
            plot::set("delivered", Whose::Ours, points),
            plot::set("what the receiver could do", Whose::Bound, ideal),
        ],
    ));
    let data: Vec<Value> = columns.iter().map(Column::json).collect();
    page.data("offered", data);
}
