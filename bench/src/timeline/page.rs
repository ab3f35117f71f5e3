//! The page: what a round trip consists of, whose it is, and each step.

use rig::paired::median;
use serde_json::json;

use super::bed::Bed;
use super::found::{Found, From};
use super::rounds::{Shares, Typical, Whose, shares, typical};
use crate::error::Result;
use crate::page::Page;
use crate::plot::{self, Span};
use crate::stats::{Summary, figure};

/// From top to bottom.
const LANES: [&str; 4] = ["host", "port thread", "NIC worker", "QEMU and guest"];

/// Steps of one round trip that the page has at most; no driver has so many.
const MOST: usize = 80;

/// The name of a register of a NIC: its place has the BAR in the upper half.
pub(super) fn register(id: &str, place: u64) -> String {
    let (bar, offset) = (place >> 32, place as u32);
    let named = match id {
        "82540em" if bar == 0 => e1000::regs::table().find(offset).map(|found| {
            let table = e1000::regs::table();
            let register = table.register(found.id);
            element(register.name, register.count, found.element)
        }),
        "82576" if bar == 0 => igb::regs::table().find(offset).map(|found| {
            let table = igb::regs::table();
            let register = table.register(found.id);
            element(register.name, register.count, found.element)
        }),
        "virtio-vfio" => Some(structure(offset)),
        _ => None,
    };
    named.unwrap_or_else(|| format!("BAR {bar} {offset:#x}"))
}

fn element(name: &str, count: u32, element: u32) -> String {
    match count {
        1 => name.to_owned(),
        _ => format!("{name}[{element}]"),
    }
}

/// A virtio device has a page for each structure.
fn structure(offset: u32) -> String {
    use virtio_net::regs::page;
    let at = u64::from(offset);
    match at / page::LEN * page::LEN {
        page::COMMON => format!("common {at:#x}"),
        page::ISR => "ISR".to_owned(),
        page::DEVICE => format!("device {:#x}", at - page::DEVICE),
        page::NOTIFY => {
            let queue = (at - page::NOTIFY) / u64::from(page::NOTIFY_STEP);
            format!("doorbell of queue {queue}")
        }
        _ => format!("{at:#x}"),
    }
}

fn lane(whose: Whose) -> usize {
    match whose {
        Whose::Host => 0,
        Whose::PortWake | Whose::Port => 1,
        Whose::WorkerWake | Whose::Worker => 2,
        Whose::Guest => 3,
    }
}

fn colour(whose: Whose) -> plot::Whose {
    match whose {
        Whose::Port | Whose::Worker => plot::Whose::Ours,
        Whose::PortWake | Whose::WorkerWake => plot::Whose::Bound,
        Whose::Host | Whose::Guest => plot::Whose::Peer,
    }
}

fn way(from: From) -> &'static str {
    match from {
        From::Host => "the host pings the guest",
        From::Guest => "the guest pings the host",
    }
}

fn middle(values: &[f64]) -> String {
    figure(median(values).unwrap_or(f64::NAN))
}

fn quarters(values: &[f64]) -> String {
    Summary::of(values).map_or("–".to_owned(), |s| {
        format!("{} ({}–{})", figure(s.median), figure(s.q1), figure(s.q3))
    })
}

pub(super) fn fill(page: &mut Page, bed: &Bed, found: &[Found]) -> Result<()> {
    let kernel = bed.guest.run("uname -r")?;
    let accel = bed.rig.accel()?.to_string();
    page.environment("qemu", bed.rig.qemu().version());
    page.environment("accelerator", accel.clone());
    page.text(&format!(
        "One guest (Linux {}, under {accel}, {}) with {} NICs of ours, each before a TAP; one ping after the other, 10 ms apart. The \
         daemon stamps each of its steps (`HYPERNIC_TIMELINE`), and `perf` the calls and runs of threads (`sched_waking`, \
         `sched_switch`). Microseconds; medians, with the quartiles in brackets. A *wake-up* is the time from the call of a sleeping \
         thread until it knows why: ours where the thread is the port's or the NIC's worker. Of QEMU and the guest only the \
         scheduler tells: *called, not yet run* is the time that QEMU's threads (main loop, virtual CPU, vfio-user) spent between \
         their call and their run, one after the other or at once.",
        kernel.trim(),
        bed.rig.qemu().version(),
        bed.seats.len()
    ));
    let blind = found.iter().filter(|found| !found.called);
    let blind: Vec<String> = blind
        .map(|found| format!("{} ({})", found.title.replace('`', ""), way(found.from)))
        .collect();
    if !blind.is_empty() {
        page.text(&format!(
            "`perf` could not watch the scheduler here: wake-ups of the worker are within *QEMU and guest*. That is so of {}.",
            blind.join(", ")
        ));
    }
    summary(page, found);
    let mut raw = Vec::new();
    for found in found {
        raw.push(each(page, found));
    }
    page.data("round_trips", raw);
    Ok(())
}

fn summary(page: &mut Page, found: &[Found]) {
    page.heading("Whose time it is");
    page.text(
        "Round trips as the program that pings measures them: with only the daemon's stamps, and with `perf`. The parts are those of \
         the latter, from the request at the TAP (a guest's: from its doorbell) to the answer (a guest's: to the last access that \
         follows), medians of each part: they need not add up.",
    );
    let mut head = vec!["NIC", "", "ping", "with perf", "messages", "ours together"];
    head.extend(Whose::ALL.map(Whose::words));
    head.push("called, not yet run");
    let rows: Vec<Vec<String>> = found
        .iter()
        .map(|found| {
            let Shares {
                of,
                ours,
                vmm,
                messages,
                ..
            } = shares(&found.rounds);
            let mut row = vec![
                found.title.replace('`', ""),
                way(found.from).to_owned(),
                middle(&found.alone),
                middle(&found.watched),
                middle(&messages),
                middle(&ours),
            ];
            row.extend(
                Whose::ALL.map(|whose| of.get(&whose).map_or("–".to_owned(), |v| middle(v))),
            );
            row.push(middle(&vmm));
            row
        })
        .collect();
    page.table(&head, &rows);
}

fn each(page: &mut Page, found: &Found) -> serde_json::Value {
    let title = found.title.replace('`', "");
    page.heading(&format!("{title}: {}", way(found.from)));
    let (mut steps, alike) = typical(&found.rounds);
    steps.truncate(MOST);
    let all = found.rounds.len();
    page.text(&format!(
        "The steps of {alike} of {all} round trips; the others had some more or fewer, or in another order.{}",
        match found.lost {
            0 => String::new(),
            lost => format!(" {lost} stamps were lost."),
        }
    ));
    let rows: Vec<Vec<String>> = steps
        .iter()
        .enumerate()
        .map(|(at, step)| {
            let some = |value: f64| match value {
                v if v < 0.05 => String::new(),
                v => figure(v),
            };
            let Summary { median, q1, q3, .. } = step.took;
            vec![
                (at + 1).to_string(),
                step.what.clone(),
                step.whose.words().to_owned(),
                format!("{} ({}–{})", figure(median), figure(q1), figure(q3)),
                some(step.wake),
                match step.slept {
                    s if s < 0.005 => String::new(),
                    s => format!("{:.0}", s * 100.0),
                },
                some(step.vmm),
            ]
        })
        .collect();
    page.table(
        &[
            "",
            "ends with",
            "whose",
            "µs",
            "of it our wake-up",
            "had slept, %",
            "called, not yet run",
        ],
        &rows,
    );
    let name = format!(
        "{}-{}",
        found.id,
        if found.from == From::Host {
            "host"
        } else {
            "guest"
        }
    );
    let shown = format!("{title}: {}", way(found.from));
    page.plot(plot::lanes(&name, &shown, "µs", &LANES, spans(&steps)));
    let sums = shares(&found.rounds);
    let parts: serde_json::Map<_, _> = sums
        .of
        .iter()
        .map(|(whose, values)| (whose.words().to_owned(), json!(quarters(values))))
        .collect();
    json!({
        "nic": found.id, "from": way(found.from), "round_trips": all, "alike": alike, "lost": found.lost,
        "ping_us": found.alone, "ping_with_perf_us": found.watched, "parts_us": parts,
        "whole_us": quarters(&sums.all), "ours_us": quarters(&sums.ours),
        "steps": steps.iter().map(|step| json!({
            "ends_with": step.what, "whose": step.whose.words(), "us": step.took.json(),
            "wake_us": step.wake, "vmm_us": step.vmm, "slept": step.slept,
        })).collect::<Vec<_>>(),
    })
}

/// Boxes one after the other, at the medians. The numbers are those of the table.
fn spans(steps: &[Typical]) -> Vec<Span> {
    let mut spans = Vec::new();
    let mut now = 0.0;
    for (at, step) in steps.iter().enumerate() {
        let took = step.took.median;
        // What a guest's step has of our wake-up is at its end.
        let wake = match step.whose {
            Whose::Guest if step.slept > 0.5 => step.wake.min(took),
            _ => 0.0,
        };
        let mut add = |whose: Whose, length: f64| {
            if length > 0.0 {
                spans.push(Span {
                    name: (at + 1).to_string(),
                    lane: lane(whose),
                    whose: colour(whose),
                    from: now,
                    to: now + length,
                });
                now += length;
            }
        };
        add(step.whose, took - wake);
        add(Whose::WorkerWake, wake);
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_have_their_names() {
        assert_eq!(register("82540em", 0xc0), "ICR");
        assert_eq!(register("82540em", 1 << 32 | 0x10), "BAR 1 0x10");
        assert_eq!(register("82576", 0x1500), "ICR");
        assert_eq!(register("virtio-vfio", 0x3000), "doorbell of queue 0");
        assert_eq!(register("virtio-vfio", 0x2000 + 6), "device 0x6");
    }

    #[test]
    fn a_timeline_has_our_wake_up_at_the_end_of_what_the_guest_does() {
        let step = |whose, took: f64, wake: f64, slept: f64| Typical {
            what: "x".to_owned(),
            whose,
            took: Summary::of(&[took]).unwrap(),
            wake,
            vmm: 0.0,
            slept,
        };
        let steps = [
            step(Whose::Port, 2.0, 0.0, 0.0),
            step(Whose::Guest, 10.0, 4.0, 1.0),
            step(Whose::Guest, 10.0, 4.0, 0.2),
        ];
        let spans = spans(&steps);
        let found: Vec<_> = spans.iter().map(|s| (s.lane, s.from, s.to)).collect();
        assert_eq!(
            found,
            [
                (1, 0.0, 2.0),
                (3, 2.0, 8.0),
                (2, 8.0, 12.0),
                (3, 12.0, 22.0)
            ]
        );
        assert_eq!(spans[2].name, "2");
    }
}
