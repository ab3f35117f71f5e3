//! The page of `peers`.

use serde_json::{Value, json};

use super::cores::name;
use super::ours::LIKE_DPDKS;
use super::party::{Party, Result1};
use crate::page::Page;
use crate::plot::{self, Bar, Plot, Whose};
use crate::stats::{Column, Summary, figure};

/// A party with its column.
type Shown<'a> = (&'a Party, &'a Column);

fn find<'a>(parties: &[Party], columns: &'a [Column], id: &str) -> Option<&'a Column> {
    let at = parties.iter().position(|p| p.id == id)?;
    columns.get(at).filter(|c| c.summary().is_some())
}

fn percent(column: &Column, name: &str) -> String {
    column
        .of(name)
        .summary()
        .map_or("–".to_owned(), |s| figure(s.median * 100.0))
}

fn ratio(of: Option<&Column>, over: &Column) -> String {
    of.map_or("–".to_owned(), |of| of.ratio_words(over))
}

/// Writes it.
pub fn write(page: &mut Page, parties: &[Party], results: &[Result1]) {
    page.text(
        "Frames per second that came through, in millions; one processor switches, another is both guests. Medians over rounds \
         (smallest–largest); the ratios are ours over the peer's, round by round: of the first row, and of the one with a CSB both \
         ways, which counts what DPDK's rows count and sends no messages either.",
    );
    explain(page);
    for (size, columns) in results {
        let shown: Vec<Shown<'_>> = parties
            .iter()
            .zip(columns)
            .filter(|(_, c)| c.summary().is_some())
            .collect();
        page.heading(&format!("{size} bytes"));
        rates(page, *size, parties, columns, &shown);
        cores(page, *size, parties, columns, &shown);
    }
    targets(page, parties, results);
    how(page, parties);
    let data: Vec<Value> = results
        .iter()
        .map(|(size, columns)| {
            json!({"size": size, "columns": columns.iter().map(Column::json).collect::<Vec<_>>()})
        })
        .collect();
    page.data("sizes", data);
}

/// What limits the measured rates besides the switch.
fn guests_cores(count: usize) -> &'static str {
    match count {
        1 => {
            "the rates above are measured with both guests on one processor, which may be the limit"
        }
        _ => {
            "the rates above are measured with a processor for each guest (both ends of vde_switch on one)"
        }
    }
}

/// What each column of the second table is.
fn explain(page: &mut Page) {
    page.list(&[
        "**switch, ns a frame**: processor time of the switching process over frames that came through. Who polls uses its \
         processor up whatever comes: there it is the core's time for a frame at this rate, and no cost."
            .to_owned(),
        "**of it work**: without the time in which it looked for frames and found none. Ours: time of the worker in turns that had \
         something to do (`work_ns`, as `hypernic top` shows it); looks between them are not in it. testpmd: cycles of polls that \
         found frames (`record-core-cycles`), counted for 0.12 s after each sample, since counting costs a reading of the clock a \
         poll; who waits for room in the other's ring is at work. Open vSwitch: its processing cycles (`pmd-stats-show`). Bridge: time of the writer's `write` calls. vde_switch: all \
         of its processor time, since it sleeps in its system calls."
            .to_owned(),
        format!(
            "**switch core alone**: frames for a second of that work: what the switch's core would carry if guests were no limit and \
             it found frames each time it looked. Computed; {}.",
            guests_cores(crate::machine::guest_cores().len())
        ),
        "**guests' core used**: processor time of the guests over wall clock. Each row's guests poll, so it says little. **At work**: \
         the part of the time in which they sent or took frames (ours: rounds that moved any; testpmd: cycles of polls that found \
         frames). **Looks with frames**: the part of their looks for received frames that found any."
            .to_owned(),
    ]);
}

fn rates(page: &mut Page, size: usize, parties: &[Party], columns: &[Column], shown: &[Shown<'_>]) {
    let first = &columns[0];
    let alike = find(parties, columns, LIKE_DPDKS);
    let gbit = |mpps: f64| figure(mpps * size as f64 * 8.0 / 1e3);
    let rows: Vec<Vec<String>> = shown
        .iter()
        .map(|(party, column)| {
            vec![
                party.title.to_owned(),
                column.words(),
                gbit(column.median()),
                first.ratio_words(column),
                ratio(alike, column),
            ]
        })
        .collect();
    page.table(
        &["", "Mpps", "Gbit/s", "ours / this", "CSB both ways / this"],
        &rows,
    );
    let (name, title) = (
        size.to_string(),
        format!("Frames of {size} bytes from guest to guest"),
    );
    page.plot(bars((&name, &title, "Mpps"), shown, |column| {
        column.summary()
    }));
    same_guests(page, size, parties, columns);
}

/// Ours over DPDK's where the guests are the same program with the same rings.
fn same_guests(page: &mut Page, size: usize, parties: &[Party], columns: &[Column]) {
    let rows: Vec<Vec<String>> = [
        ("packed rings in order", "virtio-packed", "vhost-packed"),
        ("split rings", "virtio-split", "vhost-split"),
        (
            "packed rings in order, Open vSwitch",
            "virtio-packed",
            "ovs-dpdk",
        ),
    ]
    .iter()
    .filter_map(|(what, ours, theirs)| {
        let ours = find(parties, columns, ours)?;
        let theirs = find(parties, columns, theirs)?;
        Some(vec![
            (*what).to_owned(),
            ours.words(),
            theirs.words(),
            ours.ratio_words(theirs),
            // Fewer nanoseconds are better: theirs over ours.
            theirs.of(name::WORK).ratio_words(&ours.of(name::WORK)),
        ])
    })
    .collect();
    if rows.is_empty() {
        return;
    }
    page.text(&format!(
        "With the same guests (testpmd, virtio-user, {size} bytes) at our back end and at theirs:"
    ));
    page.table(
        &[
            "",
            "ours, Mpps",
            "theirs",
            "ours / theirs",
            "work a frame, theirs / ours",
        ],
        &rows,
    );
}

fn cores(page: &mut Page, size: usize, parties: &[Party], columns: &[Column], shown: &[Shown<'_>]) {
    let memif = find(parties, columns, "memif").map(|c| c.of(name::WORK));
    let rows: Vec<Vec<String>> = shown
        .iter()
        .map(|(party, column)| {
            let work = column.of(name::WORK);
            let figures = |name: &str| column.of(name).words();
            vec![
                party.title.to_owned(),
                figures(name::SWITCH),
                work.words(),
                figures(name::ALONE),
                ratio(memif.as_ref(), &work),
                percent(column, name::GUESTS),
                percent(column, name::AT_WORK),
                percent(column, name::LOOKS),
            ]
        })
        .collect();
    page.table(
        &[
            "cores",
            "switch, ns a frame",
            "of it work",
            "switch core alone, Mpps",
            "work, memif / this",
            "guests' core used, %",
            "at work, %",
            "looks with frames, %",
        ],
        &rows,
    );
    let name = format!("{size}-work");
    let title = format!("The switch's work for a frame of {size} bytes");
    let work = |column: &Column| column.of(name::WORK).summary();
    page.plot(bars((&name, &title, "ns"), shown, work));
}

/// A bar for each that has the figure.
fn bars(
    (name, title, unit): (&str, &str, &str),
    shown: &[Shown<'_>],
    figure: impl Fn(&Column) -> Option<Summary>,
) -> Plot {
    let bars = shown.iter().filter_map(|(party, column)| {
        let found = figure(column)?;
        Some(Bar {
            name: party.name.to_owned(),
            whose: Whose::ours(party.ours),
            median: found.median,
            spread: (found.min, found.max),
        })
    });
    plot::bars(name, title, unit, bars.collect())
}

/// What was to be reached with frames of 60 bytes, and what was.
fn targets(page: &mut Page, parties: &[Party], results: &[Result1]) {
    let Some((size, columns)) = results.first() else {
        return;
    };
    let mut rows = Vec::new();
    for (what, id, target) in [
        ("with a CSB, one way", "csb", 25.0),
        ("with a CSB, both ways", "csb-both-ways", 25.0),
        ("doorbell pages, one way", "page", 60.0),
        ("doorbell pages, both ways", "page-both-ways", 60.0),
        ("doorbell pages of VFs, one way", "vf-page", 60.0),
        (
            "doorbell pages of VFs, both ways",
            "vf-page-both-ways",
            60.0,
        ),
    ] {
        if let Some(column) = find(parties, columns, id) {
            rows.push(vec![
                format!("{what}: the daemon's ns a frame"),
                column.of(name::WORK).words(),
                column.of(name::SWITCH).words(),
                format!("at most {target}"),
            ]);
        }
    }
    if let Some(memif) = find(parties, columns, "memif") {
        for (what, id) in [
            ("a CSB both ways", LIKE_DPDKS),
            ("doorbell pages of VFs both ways", "vf-page-both-ways"),
        ] {
            if let Some(column) = find(parties, columns, id) {
                let over = |name| memif.of(name).ratio_words(&column.of(name));
                rows.push(vec![
                    format!("memif's ns a frame over ours with {what}"),
                    over(name::WORK),
                    over(name::SWITCH),
                    "at least 2".to_owned(),
                ]);
            }
        }
    }
    if rows.is_empty() {
        return;
    }
    page.heading("To reach");
    page.text(&format!(
        "Frames of {size} bytes. Targets are meant for the switch's work; its whole processor time, looks included, is beside it."
    ));
    page.table(&["", "work", "all its time", "target"], &rows);
}

fn how(page: &mut Page, parties: &[Party]) {
    page.heading("How each was run");
    let how: Vec<String> = parties
        .iter()
        .map(|p| match &p.ready {
            Ok(_) => format!("**{}**: {}.", p.title, p.how),
            Err(why) => format!("**{}** does not run here: {}", p.title, reason(why)),
        })
        .collect();
    page.list(&how);
    page.text(
        "Those that poll are stopped (SIGSTOP) while another is measured. They are Debian's packages, installed or unpacked into a \
         private folder.",
    );
}

/// What a page needs of what a program said that did not come up: a daemon's own message, or the first line.
pub fn reason(why: &str) -> String {
    let said = |line: &str| {
        let line: Value = serde_json::from_str(line).ok()?;
        Some(line["message"].as_str()?.to_owned())
    };
    let message = why.lines().rev().find_map(said);
    message.unwrap_or_else(|| why.lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quiet::Quiet;
    use crate::stats::{Reading, in_turns};

    fn party(id: &'static str, ready: bool) -> Party {
        Party {
            id,
            name: id,
            ours: id != "memif",
            title: id,
            how: "somehow",
            ready: if ready {
                Ok(Vec::new())
            } else {
                Err("refused".to_owned())
            },
        }
    }

    /// Columns of one round: rate, all of the switch's time and its work.
    fn columns(of: &[(&str, Option<[f64; 3]>)]) -> Vec<Column> {
        let column = |&(id, figures): &(&str, Option<[f64; 3]>)| {
            let mut column = [Column::new(id)];
            if let Some([mpps, all, work]) = figures {
                let raw = json!({name::SWITCH: all, name::WORK: work, name::ALONE: 1e3 / work, name::GUESTS: 0.5});
                in_turns(&mut Quiet::new(true, 1), 1, &mut column, |_| {
                    Ok(Reading {
                        value: mpps,
                        raw: raw.clone(),
                    })
                })
                .unwrap();
            }
            let [column] = column;
            column
        };
        of.iter().map(column).collect()
    }

    fn page(of: &[(&'static str, Option<[f64; 3]>)]) -> String {
        let parties: Vec<Party> = of.iter().map(|(id, f)| party(id, f.is_some())).collect();
        let mut page = Page::new("peers", "t");
        write(&mut page, &parties, &[(60, columns(of))]);
        page.finish(&Quiet::new(true, 1)).markdown
    }

    #[test]
    fn a_row_states_both_cores_and_what_was_to_be_reached() {
        let text = page(&[
            ("hypernic", Some([10.0, 100.0, 50.0])),
            (LIKE_DPDKS, Some([40.0, 25.0, 20.0])),
            ("memif", Some([50.0, 20.0, 16.0])),
        ]);
        let row = |begin: &str| {
            let found = text.lines().find(|l| l.starts_with(begin));
            found.unwrap_or_else(|| panic!("no {begin} in {text}"))
        };
        // Ours with a CSB: 25 ns, 20 of them work, 50 Mpps alone, memif's work over it 0.8, half of the guests' core.
        let csb = format!(
            "| {LIKE_DPDKS} | **25.0** (25.0–25.0) | **20.0** (20.0–20.0) | **50.0** (50.0–50.0) | **0.800**"
        );
        assert!(row(&csb).ends_with("| 50.0 | – | – |"), "{text}");
        let target = row("| memif's ns a frame over ours with a CSB both ways");
        assert!(target.contains("**0.800**") && target.ends_with("at least 2 |"));
        assert!(row("| with a CSB, both ways").contains("**20.0** (20.0–20.0) | **25.0**"));
    }

    #[test]
    fn who_does_not_run_says_why_and_has_no_row() {
        let text = page(&[("hypernic", Some([10.0, 100.0, 50.0])), ("memif", None)]);
        assert!(
            text.contains("**memif** does not run here: refused"),
            "{text}"
        );
        assert!(!text.contains("| memif"), "{text}");
    }

    #[test]
    fn a_daemons_own_message_is_the_reason() {
        let why = "`hypernic` failed: should say `serving`, but it ended; its output:\n{\"level\":\"ERROR\",\"message\":\"n0: no \
                   doorbell page\"}\n";
        assert_eq!(reason(why), "n0: no doorbell page");
        assert_eq!(reason("refused\nmore"), "refused");
    }
}
