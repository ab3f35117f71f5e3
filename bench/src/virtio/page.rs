//! The page: what was to be reached, every figure with its spread, and where processor time, notifications and interrupts go.

use serde_json::{Value, json};

use super::calls::{PACES, ways};
use super::found::{BUFFERS, BURST, Case, Found, RINGS, SEGMENTS, usual};
use super::load::{LENGTHS, Load};
use super::party::{PARTIES, Party};
use crate::inside::virtio::{Rings, VirtioSpec};
use crate::page::Page;
use crate::peers::cores::name;
use crate::plot::{self, Bar, Scale, Whose};
use crate::stats::{Column, Summary, figure};

/// Numbers of a target: what it is, what was found, the bound, and whether that is the least.
struct Target {
    what: String,
    found: Option<String>,
    bound: String,
    met: bool,
}

fn least(what: &str, found: Option<Summary>, bound: f64) -> Target {
    Target {
        what: what.to_owned(),
        bound: format!("at least {bound}"),
        met: found.is_some_and(|f| f.median >= bound),
        found: found.map(|f| f.words()),
    }
}

fn targets(found: &Found) -> Vec<Target> {
    let of = |size: u32, ours: &str, peer: &str| {
        let load = usual(size);
        let [ours, peer] = [ours, peer].map(|id| found.column(1, load, id));
        ours.zip(peer).and_then(|(ours, peer)| ours.over(peer))
    };
    let mut all = Vec::new();
    for (size, ours, peer, bound) in [
        (60, "in-order", "vhost-in-order", 2.0),
        (60, "packed", "vhost-packed", 2.0),
        (60, "in-order", "ovs", 2.5),
        (1514, "in-order", "vhost-in-order", 2.5),
        (1514, "packed", "vhost-packed", 2.5),
        (1514, "in-order", "ovs", 2.5),
    ] {
        let what = format!("{size} bytes, {BURST} at once: `{ours}` over `{peer}`");
        all.push(least(&what, of(size, ours, peer), bound));
    }
    let raw = raw_segments();
    for rings in RINGS {
        let ours = Case::Ours(VirtioSpec::segments(SEGMENTS, rings, BUFFERS[0]));
        let share = found
            .case(raw)
            .zip(found.case(ours))
            .and_then(|(copy, ours)| copy.over(ours));
        let what = format!(
            "64 KiB whole, {} rings: share of the bare copy",
            rings.words()
        );
        all.push(least(&what, share, 0.8));
    }
    all.extend(interrupts(found));
    all
}

/// Interrupts at full rate, and how long sparse frames wait, by each way that is to hold.
fn interrupts(found: &Found) -> Vec<Target> {
    let mut all = Vec::new();
    for (way, what) in [
        ("coalesced", "`ethtool -C` rx-frames 64"),
        ("dim-third", "`ethtool -C` adaptive-rx on"),
        ("adaptive", "`\"adaptive\"`, the driver asks for nothing"),
    ] {
        let full = found.outcome(way, PACES[0].id);
        all.push(Target {
            what: format!("Frames for an interrupt at full rate: {what}"),
            found: full.map(|o| format!("**{}**", figure(1.0 / o.per_frame()))),
            bound: "at least 64".to_owned(),
            met: full.is_some_and(|o| o.per_frame() <= 1.0 / 64.0),
        });
    }
    for (way, what) in [
        ("dim-first", "`ethtool -C` adaptive-rx on"),
        ("adaptive", "`\"adaptive\"`"),
    ] {
        let sparse = [way, "guest"].map(|way| found.outcome(way, PACES[PACES.len() - 1].id));
        let ratio = match sparse {
            [Some(ours), Some(plain)] => Some(ours.wait(50.0) / plain.wait(50.0)),
            _ => None,
        };
        all.push(Target {
            what: format!("Wait of sparse frames over that without moderation: {what}"),
            found: ratio.map(|r| format!("**{}**", figure(r))),
            bound: "at most 1".to_owned(),
            met: ratio.is_some_and(|r| r <= 1.0),
        });
    }
    all
}

fn raw_segments() -> Case {
    let like = VirtioSpec::segments(SEGMENTS, Rings::Split, BUFFERS[0]);
    Case::Raw(like.size, SEGMENTS.into())
}

pub(super) fn write(page: &mut Page, found: &Found) {
    to_reach(page, found);
    for queues in [1, 2] {
        rates(page, found, queues);
    }
    costs(page, found);
    segments(page, found);
    within(page, found);
    calls(page, found);
    how(page, found);
    data(page, found);
}

fn to_reach(page: &mut Page, found: &Found) {
    page.heading("To reach");
    let rows: Vec<Vec<String>> = targets(found)
        .into_iter()
        .map(|target| {
            let verdict = match (&target.found, target.met) {
                (None, _) => "not measured",
                (Some(_), true) => "met",
                (Some(_), false) => "missed",
            };
            let words = target.found.unwrap_or("–".to_owned());
            vec![target.what, words, target.bound, verdict.to_owned()]
        })
        .collect();
    page.table(&["", "found", "target", ""], &rows);
    page.text("Real guests are on the page of `which_nic`, in one guest and run with QEMU's own virtio-net.");
}

fn rates(page: &mut Page, found: &Found, queues: u32) {
    let some: Vec<&(u32, Load, Vec<Column>)> = found
        .switched
        .iter()
        .filter(|(q, _, _)| *q == queues)
        .collect();
    if some.is_empty() {
        return;
    }
    page.heading(match queues {
        1 => "Guest to guest, a pair of queues each",
        _ => "Guest to guest, two pairs of queues each",
    });
    page.text(
        "Frames a second that both guests receive, in millions: the median over rounds (smallest–largest). In brackets behind a peer's \
         is what ours with rings of its kind (`memif`: packed in order) receive in the same rounds over it.",
    );
    for lengths in LENGTHS {
        let of: Vec<_> = some
            .iter()
            .filter(|(_, l, _)| l.lengths == lengths)
            .collect();
        if of.is_empty() {
            continue;
        }
        let heads: Vec<String> = of
            .iter()
            .map(|(_, l, _)| format!("{} at once", l.burst))
            .collect();
        let mut head = vec![""];
        head.extend(heads.iter().map(String::as_str));
        let rows: Vec<Vec<String>> = PARTIES
            .iter()
            .enumerate()
            .map(|(at, party)| {
                let mut row = vec![party.name.to_owned()];
                row.extend(
                    of.iter()
                        .map(|(_, _, columns)| cell(party, &columns[at], columns)),
                );
                row
            })
            .collect();
        page.text(&format!("**{}**", lengths.words()));
        page.table(&head, &rows);
        let sets = PARTIES.iter().enumerate().map(|(at, party)| {
            let points = of.iter().filter_map(|(_, load, columns)| {
                let median = Some(columns[at].median()).filter(|m| !m.is_nan())?;
                Some((f64::from(load.burst), median))
            });
            plot::set(party.name, Whose::ours(party.is_ours()), points)
        });
        let sets: Vec<_> = sets.collect();
        if of.len() > 1 {
            page.plot(plot::lines(
                &lengths.id(),
                &format!(
                    "Frames of {} from guest to guest, both ways",
                    lengths.words()
                ),
                Scale::log("most frames at once (log)"),
                Scale::log("Mpps (log)"),
                sets,
            ));
        }
    }
}

/// Figures, or a dash where all samples failed.
fn words(column: &Column) -> String {
    let failed = column.median().is_nan();
    if failed {
        "–".to_owned()
    } else {
        column.words()
    }
}

/// A rate, and for a peer how many times as much ours are.
fn cell(party: &Party, column: &Column, columns: &[Column]) -> String {
    let ours = PARTIES
        .iter()
        .position(|p| p.is_ours() && p.rings == party.rings)
        .filter(|_| !party.is_ours());
    let times = ours.and_then(|at| columns[at].over(column));
    let times = times.map_or(String::new(), |t| format!(" [{}]", figure(t.median)));
    format!("{}{times}", words(column))
}

/// The median of something in the raw data of a column.
fn raw(column: &Column, key: &str) -> f64 {
    let values = column.readings().filter_map(|r| r.raw[key].as_f64());
    rig::paired::median(&values.collect::<Vec<_>>()).unwrap_or(f64::NAN)
}

fn costs(page: &mut Page, found: &Found) {
    if found.switched.is_empty() {
        return;
    }
    page.heading("What a frame costs");
    page.text(
        "For each frame that came through: nanoseconds of the switch's processor, and of them those in which it had something to do, from which \
         follows what it would pass on if guests were no limit; the part of the guests' processor's time in which it had something \
         to do (near 1: the guests are the limit). For ours also notifications (messages by eventfd from \
         the guests' drivers) and interrupts (calls by eventfd, which drivers that poll do not ask for). DPDK's vhost and Open vSwitch \
         poll: their processor is always busy, and they ask for no notifications.",
    );
    let mut rows = Vec::new();
    for (queues, load, columns) in &found.switched {
        for (party, column) in PARTIES.iter().zip(columns) {
            if column.median().is_nan() || ![1, 32, BURST].contains(&load.burst) {
                continue;
            }
            let ours = |key| {
                let value = if party.is_ours() {
                    raw(column, key)
                } else {
                    f64::NAN
                };
                small(value)
            };
            rows.push(vec![
                party.name.to_owned(),
                queues.to_string(),
                load.lengths.words(),
                load.burst.to_string(),
                figure(raw(column, name::SWITCH)),
                figure(raw(column, name::WORK)),
                figure(raw(column, name::ALONE)),
                figure(raw(column, name::AT_WORK)),
                ours("kicks"),
                ours("calls"),
            ]);
        }
    }
    page.table(
        &[
            "",
            "pairs",
            "frames",
            "at once",
            "ns of the switch",
            "of work",
            "Mpps without a limit",
            "guests at work",
            "notifications",
            "interrupts",
        ],
        &rows,
    );
}

/// Counts for each frame may be very small.
fn small(value: f64) -> String {
    match value {
        v if v > 0.0 && v < 0.0005 => format!("{v:.1e}"),
        v => figure(v),
    }
}

fn segments(page: &mut Page, found: &Found) {
    let Some(copy) = found.case(raw_segments()) else {
        return;
    };
    page.heading("Segments of 64 KiB from guest to guest");
    page.text(
        "One thread of one process plays both guests, devices and switch: a TCP segment of 64 KiB with all headers, its checksum left to \
         the receiver, goes from a virtio-net to another and arrives whole. Beside it the bare copy of as many bytes between as many \
         buffers. The share is the copy's time over ours, in the same rounds.",
    );
    let gbit = |ns: f64| figure((VirtioSpec::segments(1, Rings::Split, 4096).size * 8) as f64 / ns);
    let mut rows = vec![vec![
        "bare copy".to_owned(),
        figure(copy.median() / 1e3),
        gbit(copy.median()),
        "1".to_owned(),
    ]];
    let mut bars = Vec::new();
    for buffer in BUFFERS {
        for rings in RINGS {
            let case = Case::Ours(VirtioSpec::segments(SEGMENTS, rings, buffer));
            let Some(column) = found.case(case) else {
                continue;
            };
            let share = copy.over(column);
            let name = format!("{}, buffers of {} KiB", rings.words(), buffer / 1024);
            rows.push(vec![
                name.clone(),
                figure(column.median() / 1e3),
                gbit(column.median()),
                share.map_or("–".to_owned(), |s| s.words()),
            ]);
            bars.extend(share.map(|s| Bar {
                name,
                whose: Whose::Ours,
                median: s.median,
                spread: (s.min, s.max),
            }));
        }
    }
    page.table(&["", "µs", "Gbit/s", "share of the bare copy"], &rows);
    let title = "64 KiB segments whole between two virtio-nets";
    page.plot(plot::bars(
        "segments",
        title,
        "share of the bare copy",
        bars,
    ));
}

fn within(page: &mut Page, found: &Found) {
    if found.within.is_empty() {
        return;
    }
    page.heading("Frames in one process");
    page.text(
        "The same thread with frames; the ceiling is the raw loop between two rings, which reads descriptors, looks up addresses, copies, \
         and does nothing else. The share is its time over ours.",
    );
    let mut rows = Vec::new();
    let mut ceiling = None;
    for (case, column) in &found.within {
        let spec = match case {
            Case::Raw(..) => {
                ceiling = Some((case, column));
                continue;
            }
            Case::Ours(spec) if spec.whole.is_some() => continue,
            Case::Ours(spec) => spec,
        };
        let fits = |case: &Case| *case == Case::Raw(spec.size, spec.burst.into());
        let alike = spec.mix == crate::spec::Mix::Alike;
        let ceiling = ceiling.filter(|(case, _)| alike && fits(case));
        rows.push(vec![
            if alike {
                spec.size.to_string()
            } else {
                "imix".to_owned()
            },
            spec.burst.to_string(),
            spec.rings.words().to_owned(),
            column.words(),
            figure(ceiling.map_or(f64::NAN, |(_, raw)| raw.median())),
            ceiling
                .and_then(|(_, raw)| raw.over(column))
                .map_or("–".to_owned(), |s| s.words()),
        ]);
    }
    page.table(
        &[
            "bytes",
            "at once",
            "rings",
            "ns a frame",
            "the ceiling's ns",
            "share of the ceiling",
        ],
        &rows,
    );
}

fn calls(page: &mut Page, found: &Found) {
    if found.calls.is_empty() {
        return;
    }
    page.heading("Interrupts for received frames");
    page.text(
        "Counted, not timed: the device is the real one, clock and driver are stand-ins, so every run gives these figures. The driver \
         takes 5 µs from an interrupt to its first look, 0.2 µs for a look and 0.3 µs for a frame, at most 64 of them at a look; when \
         there are no more it asks for an interrupt at the next (`EVENT_IDX`). Each cell has the frames for an interrupt, and from a \
         frame's coming until the driver has it the median and the 99th percentile in µs.",
    );
    let mut head = vec![""];
    head.extend(PACES.iter().map(|pace| pace.title));
    let rows: Vec<Vec<String>> = ways()
        .iter()
        .map(|way| {
            let mut row = vec![way.title.to_owned()];
            row.extend(PACES.iter().map(|pace| {
                let found = found.outcome(way.id, pace.id);
                found.map_or("–".to_owned(), |o| {
                    let lost = match o.lost {
                        0 => String::new(),
                        n => format!("; {n} of {} lost", n + o.frames),
                    };
                    let each = figure(1.0 / o.per_frame());
                    let [middle, late] = [50.0, 99.0].map(|p| figure(o.wait(p)));
                    format!("**{each}** ({middle}, {late}{lost})")
                })
            }));
            row
        })
        .collect();
    page.table(&head, &rows);
    page.text(
        "`ethtool -C` is obeyed over vfio-user only: vhost-user has no message for it, and a VMM answers that command itself. Its time is \
         what a lone frame waits, as asked for; `\"adaptive\"` has lone frames told at once, and so has `adaptive-rx on`, with which \
         Linux asks for more or less by what comes (here its first and its third profile). A driver that is done with a burst \
         before the next one comes wants to be called for each, and `\"adaptive\"` does not know that it has cost anything.",
    );
}

fn how(page: &mut Page, found: &Found) {
    page.heading("How each was run");
    let mut list = vec![
        "**Guests**: one testpmd with two `net_virtio_user` ports (memif: two clients), which sends out of one what came in by the other, \
         on one processor (where the machine has three, each port has one). 768 frames go round in each direction; both directions are counted. A burst is what it takes, and hands over, \
         at once at most. What it sends at first for two pairs of queues is of 256 flows."
            .to_owned(),
        "**hypernic**: one daemon with one worker on the other processor, two virtio-nets over vhost-user on its switch, which learns \
         and looks up addresses."
            .to_owned(),
        "**testpmd vhost**, **testpmd memif**: io forwarding on the other processor, 64 at once at most; it looks at no address."
            .to_owned(),
        "**OVS-DPDK**: two vhost-user ports, explicit flows, one polling thread on the other processor, huge pages.".to_owned(),
        "**VPP** does not run here: Debian has no package of it.".to_owned(),
    ];
    for (queues, at, why) in &found.absent {
        let name = PARTIES[*at].name;
        list.push(format!(
            "**{name}** does not run here with {queues} pair(s): {why}"
        ));
    }
    page.list(&list);
    page.text(
        "Imix is 60, 590 and 1514 bytes, 7 : 4 : 1, in no order. Those that poll are stopped (SIGSTOP) while another is measured. DPDK and \
         Open vSwitch are Debian's packages, unpacked into a private folder.",
    );
}

fn data(page: &mut Page, found: &Found) {
    let switched: Vec<Value> = found
        .switched
        .iter()
        .map(|(queues, load, columns)| {
            let columns: Vec<Value> = columns.iter().map(Column::json).collect();
            json!({
                "queue_pairs": queues, "lengths": load.lengths.id(), "burst": load.burst, "columns": columns,
            })
        })
        .collect();
    page.data("switched", switched);
    let within: Vec<Value> = found.within.iter().map(|(_, c)| c.json()).collect();
    page.data("within", within);
    let calls: Vec<Value> = found
        .calls
        .iter()
        .map(
            |(way, pace, outcome)| json!({"way": way.id, "pace": pace.id, "found": outcome.json()}),
        )
        .collect();
    page.data("calls", calls);
}
