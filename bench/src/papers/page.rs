//! The page: each table of the papers beside ours.

use serde_json::{Value, json};

use super::found::Found;
use super::outcome::{Outcome, Outcomes};
use super::plan::{Experiment, Job, Look, Stream};
use super::plots::{bars, curves, plain, sweep};
use super::published::{COUNTS, Published, note};
use super::targets;
use crate::page::Page;
use crate::plot::{self, Whose};
use crate::stats::figure;

/// A speed-up that differs by more than this factor from the paper's has another shape.
const SHAPE: f64 = 2.0;

fn shown(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), small)
}

/// Counts per packet are small and their smallness is the point.
fn small(value: f64) -> String {
    if value > 0.0 && value < 0.01 {
        format!("{value:.5}")
    } else {
        figure(value)
    }
}

/// "theirs / **ours**".
fn pair(theirs: Option<f64>, ours: Option<f64>) -> String {
    match (theirs, ours) {
        (None, None) => "–".to_owned(),
        (None, Some(ours)) => format!("**{}**", small(ours)),
        (theirs, ours) => format!("{} / **{}**", shown(theirs), shown(ours)),
    }
}

/// Writes all of it.
pub fn write(
    page: &mut Page,
    published: &Published,
    experiments: &[Experiment],
    outcomes: &Outcomes,
    how_long: (f64, usize),
) {
    preface(page, published, how_long);
    // The rows with two chips alone have none, nor have those of virtio-nets.
    let targeted = |e: &Experiment| !e.compares_chips() && !e.compares_virtio();
    if experiments.iter().any(targeted) {
        targets::write(page, experiments, outcomes);
    }
    for experiment in experiments {
        section(page, published, experiment, outcomes);
    }
    page.data("measurements", raw(outcomes));
}

fn preface(page: &mut Page, published: &Published, (seconds, rounds): (f64, usize)) {
    page.text(&format!(
        "Theirs / **ours** in each cell, ours alone where the paper has no such row; each measurement is {} s long and taken {} \
         time(s), medians. *× base* is the rate over that of the table's first row with the same way, figure and number of VCPUs, \
         theirs over theirs and ours over ours: with guests under translation this, and the counts for each packet, are the result, and \
         rates stand beside the papers' as context.",
        seconds, rounds
    ));
    page.list(&[
        "*itr=N* is a moderation delay of N times 250 ns, *mair=N* the most interrupts a second that the driver asks for (the \
         driver's `InterruptThrottleRate`), *SC* Send Combining, *CSB* the status block: the patched driver of `guest/linux`, loaded without \
         transmit delays of its own (`TxIntDelay=0 TxAbsIntDelay=0`) on a NIC with `moderation = \"guest\"`. *adaptive* is the \
         stock driver's defaults on a NIC as the daemon is by default (`moderation = \"adaptive\"`), *fixed:4000* the same driver on a NIC \
         that the daemon limits to 4000 interrupts a second.".to_owned(),
        "*RTL8168C* rows are that chip with the patched r8169 in the same guests as the 82540EM, each compared with its own first row. *itr=250* is \
         then IntrMitigate with 65 us both ways (`ethtool -C`), and notifications are writes of TPPoll and RXKICK.".to_owned(),
        "*QEMU* rows are QEMU's own e1000 with the same driver in the same guest, *virtio* its virtio-net, both over TAP without vhost. QEMU \
         raises at most 7813 e1000 interrupts a second whatever the driver asks for.".to_owned(),
        "*Our virtio* rows are our virtio-net with the kernel's own driver in the same guest as QEMU's: over vfio-user with `moderation = \"guest\"` \
         unless they say *adaptive* or *vhost-user*; with *ethtool -C* the driver asks for an interrupt after 64 received packets or 250 us \
         after the first. Their notifications are messages of writes to the notification registers, or eventfds. QEMU's with `vhost=on` \
         is there where the machine has `/dev/vhost-net`.".to_owned(),
        "Small packets are datagrams of 18 bytes in frames of 60 (the papers' 8 bytes are padded to the same frame), sent by a loop around \
         `send` and read by a loop around `recv`; rows with *pktgen* have them sent by the guest's kernel, which under translation is the faster \
         sender by far and so the one that shows what batching does; TCP is in writes of 1460 bytes, TCPw of 16 KiB; RR is one byte there and back. \
         Segmentation offloads are off in guests and on the bridge, except for nic-emu's figures. Mbit/s count the frame without its CRC.".to_owned(),
        "Over TAP each NIC's TAP is a member of a bridge with an address of the host; guest to guest goes over that bridge. The switch is \
         the daemon's own, in place of VALE.".to_owned(),
        "Counted per frame of both directions (guest to guest: per frame sent by either, the costs of both guests together). Register reads \
         and writes, notifications (writes of TDT and RDT), messages and system calls are the daemon's own counters (system \
         calls: those on sockets, TAPs, eventfds and timers, and its waits); interrupts are the guest's `/proc/interrupts`. QEMU's register \
         accesses come from its trace of memory regions in a short run of their own (guest to host). – is not counted. \
         Every two seconds the driver looks after its NIC, whatever is sent: 66 register reads and 8 writes that are in these counts.".to_owned(),
        "On the switch a full receiver makes its sender wait, where VALE loses frames: what the generator was asked for counts as offered \
         in figure 3 of ANCS, whether it could be sent or not.".to_owned(),
        format!("≠ marks a speed-up that is more than {SHAPE} times, or less than 1/{SHAPE} of, the paper's."),
    ]);
    let papers = published.papers();
    page.list(
        &papers
            .iter()
            .map(|(name, title)| format!("*{name}*: {title}"))
            .collect::<Vec<_>>(),
    );
}

fn section(page: &mut Page, published: &Published, experiment: &Experiment, outcomes: &Outcomes) {
    page.heading(&format!(
        "{}: {}",
        published.place(experiment.id),
        experiment.title
    ));
    for says in published.says(experiment.id) {
        page.text(&format!("*Paper*: {says}"));
    }
    let found: Vec<Found<'_>> = experiment
        .lines
        .iter()
        .map(|line| Found::of(line, outcomes))
        .collect();
    let differs = match experiment.look {
        Look::Times => times(page, experiment, &found),
        Look::Polls => polls(page, published, &found),
        _ => table(page, published, &found),
    };
    match experiment.look {
        Look::Bars => bars(page, published, experiment, &found),
        Look::Sweep => sweep(page, experiment, &found),
        Look::Curves => curves(page, experiment, outcomes),
        Look::Times | Look::Polls => {}
    }
    let note = note(experiment.id);
    if !note.is_empty() {
        let about = if experiment.compares_chips() {
            "What differs, and why"
        } else {
            "Why ours differs"
        };
        page.text(&format!("*{about}*: {note}"));
    } else if !differs.is_empty() {
        page.text(&format!(
            "Another shape than the paper's: {}. No reason has been shown yet.",
            differs.join("; ")
        ));
    }
}

/// One row for each line; gives those that differ in shape.
fn table(page: &mut Page, published: &Published, found: &[Found<'_>]) -> Vec<String> {
    let mut rows = Vec::new();
    let mut differs = Vec::new();
    for f in found {
        let base = found.iter().find(|b| b.beside(f));
        let Some(stream) = f.line.jobs.first().map(|j| j.stream) else {
            continue;
        };
        let unit = stream.metric().1;
        let label = format!(
            "{}{}",
            match f.line.metric {
                "kpps" => String::new(),
                metric => format!("{} ", metric.to_uppercase()),
            },
            f.name()
        );
        let Some((job, outcome)) = f.best else {
            let mut row = vec![label, f.vcpus().to_string(), f.why.clone()];
            row.resize(10, String::new());
            rows.push(row);
            continue;
        };
        let theirs = f.theirs(published, f.line.metric);
        let spread = outcome
            .summary()
            .filter(|s| s.count > 1)
            .map_or(String::new(), |s| {
                format!(" ({}–{})", figure(s.min), figure(s.max))
            });
        let mut rate = format!("{}{spread} {unit}", pair(theirs, f.value()));
        if let Stream::Paced(_) | Stream::Generated(_) = job.stream {
            rate.push_str(&format!(" of {}", shown(f.raw("offered_kpps"))));
        }
        if let (Stream::Small | Stream::Kernel | Stream::Large, Some(received)) =
            (stream, f.raw("received_kpps"))
        {
            rate.push_str(&format!(", {} received", figure(received)));
        }
        let over = |a: Option<f64>, b: Option<f64>| Some(a? / b?).filter(|v| v.is_finite());
        let base_theirs = base.and_then(|b| b.theirs(published, b.line.metric));
        let ups = (
            over(theirs, base_theirs),
            over(f.value(), base.and_then(Found::value)),
        );
        let differ = matches!(ups, (Some(a), Some(b)) if b / a > SHAPE || a / b > SHAPE);
        if differ {
            differs.push(format!("{label} ({} VCPU)", f.vcpus()));
        }
        let mbit = match stream {
            Stream::Large => f.theirs(published, "udp1460_mbit"),
            _ => f.theirs(published, "mbit"),
        };
        let mut row = vec![
            label,
            f.vcpus().to_string(),
            rate,
            format!("{}{}", pair(ups.0, ups.1), if differ { " ≠" } else { "" }),
            pair(mbit, f.raw("mbit")),
        ];
        let (place, name) = f.line.theirs;
        for count in COUNTS {
            let theirs = published.per_packet(place, name, f.vcpus(), count);
            row.push(pair(theirs, f.count(count)));
        }
        row.push(shown(f.count("messages")));
        row.push(shown(f.count("calls")));
        rows.push(row);
    }
    page.table(
        &[
            "",
            "VCPUs",
            "rate",
            "× base",
            "Mbit/s",
            "register reads",
            "writes",
            "notifications",
            "interrupts",
            "messages",
            "system calls",
        ],
        &rows,
    );
    differs
}

/// Round trips.
fn times(page: &mut Page, experiment: &Experiment, found: &[Found<'_>]) -> Vec<String> {
    let rows: Vec<Vec<String>> = found
        .iter()
        .map(|f| {
            if f.best.is_none() {
                let mut row = vec![f.line.label.clone(), f.why.clone()];
                row.resize(6, String::new());
                return row;
            }
            vec![
                f.line.label.clone(),
                shown(f.raw("p0")),
                shown(f.value()),
                shown(f.raw("p99")),
                shown(f.raw("answered").map(|v| (1.0 - v) * 100.0)),
                shown(f.count("interrupts")),
            ]
        })
        .collect();
    page.table(
        &[
            "",
            "least, us",
            "median",
            "p99",
            "not answered, %",
            "interrupts per frame",
        ],
        &rows,
    );
    let sets: Vec<(String, Whose, Vec<f64>)> = found
        .iter()
        .filter_map(|f| {
            let (_, outcome) = f.best?;
            let all = outcome
                .readings()
                .flat_map(|r| r.raw["us"].as_array().into_iter().flatten())
                .filter_map(Value::as_f64);
            Some((f.line.label.clone(), f.line.whose(), all.collect()))
        })
        .collect();
    if !sets.is_empty() {
        let plot = plot::distributions(&plain(experiment.id), experiment.title, "us (log)", &sets);
        page.plot(plot);
    }
    page.text(
        "A program on the host asks, one in the guest answers (theirs: a generator on another machine and XDP in the guest).",
    );
    Vec::new()
}

/// Table 3.3.
fn polls(page: &mut Page, published: &Published, found: &[Found<'_>]) -> Vec<String> {
    let mut rows = Vec::new();
    for f in found {
        for size in ["0", "1", "2", "3+"] {
            let ours = f
                .best
                .and_then(|(_, o)| o.field(&|r| r.raw["polls"][size].as_f64()));
            rows.push(vec![
                size.to_owned(),
                shown(published.figure("t3.3", size, 1, "percent")),
                ours.map_or(f.why.clone(), |v| format!("**{}**", figure(v))),
            ]);
        }
    }
    page.table(&["packets", "theirs, %", "ours, %"], &rows);
    page.text("Counted in the guest by the kernel's tracepoint `napi:napi_poll`.");
    Vec::new()
}

/// Everything that was measured.
fn raw(outcomes: &Outcomes) -> Value {
    let one = |(job, outcome): (&Job, &Outcome)| {
        let samples: Vec<Value> = outcome
            .readings
            .iter()
            .map(|r| match r {
                Some(r) => json!({"counted": r.raw, "value": r.value}),
                None => Value::Null,
            })
            .collect();
        json!({
            "id": job.key(), "unit": job.stream.metric().1, "ours": job.setting.lan.ours(),
            "over_switch": job.setting.lan.switched(), "interrupts_allowed": job.driver.rate,
            "driver": format!("{:?}", job.driver.load), "samples": samples, "failed": outcome.failures,
        })
    };
    outcomes.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::super::plan::experiments;
    use super::*;
    use crate::quiet::Quiet;
    use crate::stats::Reading;

    fn measured(value: f64) -> Outcome {
        let raw = json!({
            "mbit": 9.9, "offered_kpps": 2.0 * value, "received_kpps": value, "us": [1.0, 2.0], "p0": 1.0,
            "per": {"reads": 0.0036, "writes": 1.5, "notifications": 0.25, "interrupts": 0.5, "messages": 4.0, "calls": 7.0},
            "polls": {"0": 1.0, "1": 97.0, "2": 1.0, "3+": 1.0},
        });
        Outcome {
            readings: vec![Some(Reading { value, raw })],
            failures: Vec::new(),
        }
    }

    fn text(outcomes: &Outcomes, experiments: &[Experiment]) -> String {
        let published = Published::read().unwrap();
        let mut page = Page::new("test", "A test");
        for experiment in experiments {
            section(&mut page, &published, experiment, outcomes);
        }
        page.data("measurements", raw(outcomes));
        page.finish(&Quiet::new(true, 1)).markdown
    }

    #[test]
    fn theirs_stands_beside_ours_with_speed_ups_and_counts() {
        let all = experiments(true);
        let chosen = &all[..1];
        let outcomes: Outcomes = super::super::plan::jobs(chosen)
            .into_iter()
            .map(|job| {
                (
                    job,
                    measured(if job.setting.name == "itr=0" {
                        10.0
                    } else {
                        20.0
                    }),
                )
            })
            .collect();
        let text = text(&outcomes, chosen);
        let row = text
            .lines()
            .find(|l| l.starts_with("| mair=4000 | 1 |"))
            .unwrap();
        assert!(row.contains("47.8 / **20.0**"), "{row}");
        assert!(row.contains("2.32 / **2.00** |"), "{row}");
        assert!(row.contains("0.241 / **0.00360**"), "{row}");
        // 7.9 times in the paper, twice here.
        let row = text
            .lines()
            .find(|l| l.starts_with("| mair=4000 SC | 1 |"))
            .unwrap();
        assert!(row.contains('≠'), "{row}");
        // Its note takes the place of the list of rows that differ.
        assert!(text.contains("*Why ours differs*: "), "{text}");
    }

    #[test]
    fn what_failed_is_a_row_with_its_reason_and_the_rest_is_there() {
        let all = experiments(true);
        let chosen = &all[..1];
        let outcomes: Outcomes = super::super::plan::jobs(chosen)
            .into_iter()
            .map(|job| {
                let failed = Outcome {
                    readings: Vec::new(),
                    failures: vec!["the guest\nended | badly".to_owned()],
                };
                let good = job.setting.name == "itr=0";
                (job, if good { measured(10.0) } else { failed })
            })
            .collect();
        let text = text(&outcomes, chosen);
        assert!(
            text.contains("| mair=4000 | 1 | failed: the guest ended / badly |"),
            "{text}"
        );
        assert!(text.contains("20.6 / **10.0**"), "{text}");
    }

    #[test]
    fn every_section_is_written_with_and_without_figures() {
        let all = experiments(false);
        let outcomes: Outcomes = super::super::plan::jobs(&all)
            .into_iter()
            .map(|job| (job, measured(5.0)))
            .collect();
        let full = text(&outcomes, &all);
        assert_eq!(full.matches("\n## ").count(), all.len());
        assert!(full.contains("plots/test-f3_3.svg") && full.contains("plots/test-n6_2.svg"));
        let empty = text(&Outcomes::new(), &all);
        assert!(empty.contains("not measured"), "{empty}");
    }
}
