//! What is shown, as tables of words.

use std::fmt::Write as _;

use super::rates::View;

/// What there is to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tab {
    Nics,
    Workers,
    Switches,
    Drops,
    Vfs,
}

pub(super) const TABS: [Tab; 5] = [Tab::Nics, Tab::Workers, Tab::Switches, Tab::Drops, Tab::Vfs];

impl Tab {
    pub fn title(self) -> &'static str {
        match self {
            Tab::Nics => "NICs",
            Tab::Workers => "workers",
            Tab::Switches => "switches",
            Tab::Drops => "drops",
            Tab::Vfs => "VFs",
        }
    }
}

/// One of them: columns, of which those before `numbers` are words, and rows with what they are sorted by.
pub(super) struct Table {
    pub columns: &'static [&'static str],
    /// From this column on, numbers stand at the right.
    pub numbers: usize,
    pub rows: Vec<Vec<Cell>>,
}

/// A word or a number.
#[derive(Clone, Debug)]
pub(super) enum Cell {
    Word(String),
    /// As it is shown, and as it is sorted.
    Number(String, f64),
}

impl Cell {
    pub fn shown(&self) -> &str {
        match self {
            Cell::Word(text) | Cell::Number(text, _) => text,
        }
    }
}

fn word(text: &str) -> Cell {
    // Nothing that a terminal would obey.
    let harmless = |c: char| if c.is_control() { '?' } else { c };
    Cell::Word(text.chars().map(harmless).collect())
}

/// Three digits and what they are thousands of.
fn number(value: f64) -> Cell {
    let mut shown = value;
    let mut unit = "";
    for next in ["k", "M", "G", "T"] {
        if shown < 999.5 {
            break;
        }
        shown /= 1000.0;
        unit = next;
    }
    let digits = usize::from(!unit.is_empty() && shown < 99.95 || shown > 0.0 && shown < 9.95);
    Cell::Number(format!("{shown:.digits$}{unit}"), value)
}

fn percent(part: f64) -> Cell {
    Cell::Number(format!("{:.1}%", part * 100.0), part)
}

fn wait(seconds: Option<f64>) -> Cell {
    match seconds {
        None => Cell::Number("-".into(), 0.0),
        Some(s) if s < 1e-3 => Cell::Number(format!("{:.0}us", s * 1e6), s),
        Some(s) => Cell::Number(format!("{:.0}ms", s * 1e3), s),
    }
}

impl Table {
    pub fn of(view: &View, tab: Tab) -> Self {
        match tab {
            Tab::Nics => nics(view),
            Tab::Workers => workers(view),
            Tab::Switches => switches(view),
            Tab::Drops => drops(view),
            Tab::Vfs => vfs(view),
        }
    }

    /// Sorts by a column: words up, numbers down.
    pub fn sort(&mut self, column: usize) {
        let by = |row: &Vec<Cell>| row.get(column).cloned();
        self.rows.sort_by(|a, b| match (by(a), by(b)) {
            (Some(Cell::Number(_, a)), Some(Cell::Number(_, b))) => b.total_cmp(&a),
            (Some(Cell::Word(a)), Some(Cell::Word(b))) => a.cmp(&b),
            _ => std::cmp::Ordering::Equal,
        });
    }
}

fn nics(view: &View) -> Table {
    let row = |nic: &super::rates::NicRow| {
        vec![
            word(&nic.nic),
            word(&nic.model),
            word(nic.state),
            number(nic.received_packets),
            number(8.0 * nic.received_bytes),
            number(nic.sent_packets),
            number(8.0 * nic.sent_bytes),
            number(nic.dropped),
            number(nic.accesses),
            number(nic.interrupts),
            percent(nic.work),
        ]
    };
    Table {
        columns: &[
            "NIC", "model", "state", "rx/s", "rx bit/s", "tx/s", "tx bit/s", "drop/s", "access/s",
            "irq/s", "work",
        ],
        numbers: 3,
        rows: view.nics.iter().map(row).collect(),
    }
}

fn workers(view: &View) -> Table {
    let row = |worker: &super::rates::WorkerRow| {
        vec![
            word(&worker.worker),
            number(worker.nics as f64),
            percent(worker.work),
            percent(worker.looking),
            number(worker.turns),
            number(worker.sleeps),
            number(worker.replies),
            wait(worker.replies_99_seconds),
        ]
    };
    Table {
        columns: &[
            "worker",
            "NICs",
            "work",
            "looking",
            "turn/s",
            "sleep/s",
            "reply/s",
            "99% within",
        ],
        numbers: 1,
        rows: view.workers.iter().map(row).collect(),
    }
}

fn switches(view: &View) -> Table {
    let row = |port: &super::rates::PortRow| {
        vec![
            word(&port.port),
            number(port.in_packets),
            number(8.0 * port.in_bytes),
            number(port.out_packets),
            number(8.0 * port.out_bytes),
            number(port.flooded),
            number(port.dropped),
        ]
    };
    Table {
        columns: &[
            "port",
            "in/s",
            "in bit/s",
            "out/s",
            "out bit/s",
            "flood/s",
            "drop/s",
        ],
        numbers: 1,
        rows: view.switches.iter().map(row).collect(),
    }
}

fn drops(view: &View) -> Table {
    let row = |loss: &super::rates::LossRow| {
        vec![
            word(&loss.kind),
            word(&loss.name),
            word(loss.reason),
            word(loss.class),
            number(loss.per_second),
            Cell::Number(loss.all.to_string(), loss.all as f64),
            word(loss.meaning),
        ]
    };
    Table {
        columns: &[
            "kind", "name", "reason", "class", "a second", "all", "meaning",
        ],
        numbers: 4,
        rows: view.drops.iter().map(row).collect(),
    }
}

fn vfs(view: &View) -> Table {
    let row = |vf: &super::rates::VfRow| {
        vec![
            word(&vf.nic),
            word(&format!("{} {}", vf.chip, vf.index)),
            word(&vf.address),
            word(&vf.state),
            number(vf.received_packets),
            number(vf.sent_packets),
            number(vf.refused as f64),
        ]
    };
    Table {
        columns: &["NIC", "chip", "address", "state", "rx/s", "tx/s", "refused"],
        numbers: 4,
        rows: view.vfs.iter().map(row).collect(),
    }
}

/// Whether a cell stands at the right.
pub(super) fn at_right(cell: &Cell) -> bool {
    matches!(cell, Cell::Number(..))
}

/// All tables that have rows, for a pipe.
pub(super) fn text(view: &View) -> String {
    let mut text = String::new();
    for tab in TABS {
        let table = Table::of(view, tab);
        if table.rows.is_empty() {
            continue;
        }
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", tab.title());
        let width = |column: usize| {
            let shown = |row: &Vec<Cell>| row[column].shown().chars().count();
            let rows = table.rows.iter().map(shown).max().unwrap_or(0);
            rows.max(table.columns[column].len())
        };
        let widths: Vec<_> = (0..table.columns.len()).map(width).collect();
        let mut line = |cells: &mut dyn Iterator<Item = (&str, bool)>| {
            let mut whole = String::new();
            for ((cell, right), width) in cells.zip(&widths) {
                let _ = match right {
                    true => write!(whole, "  {cell:>width$}"),
                    false => write!(whole, "  {cell:<width$}"),
                };
            }
            let _ = writeln!(text, "{}", whole.trim_end());
        };
        let first = &table.rows[0];
        line(
            &mut table
                .columns
                .iter()
                .zip(first)
                .map(|(name, cell)| (*name, at_right(cell))),
        );
        for row in &table.rows {
            line(&mut row.iter().map(|cell| (cell.shown(), at_right(cell))));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::rates::tests::two_seconds;
    use super::*;

    #[test]
    fn numbers_have_three_digits_at_most() {
        for (value, shown) in [
            (0.0, "0"),
            (0.04, "0.0"),
            (1.26, "1.3"),
            (12.6, "13"),
            (999.4, "999"),
            (999.6, "1.0k"),
            (1_234_567.0, "1.2M"),
            (123_456_789.0, "123M"),
            (5e15, "5000T"),
        ] {
            assert_eq!(number(value).shown(), shown, "{value}");
        }
    }

    #[test]
    fn tables_are_aligned_and_harmless_to_terminals() {
        let mut view = two_seconds();
        view.nics[0].model = "e\x1b[2J".into();
        let text = text(&view);
        assert!(text.contains("e?[2J") && !text.contains('\x1b'), "{text}");
        let workers = text.split("workers\n").nth(1).expect("workers");
        let mut lines = workers.lines();
        assert_eq!(
            lines.next(),
            Some("  worker  NICs   work  looking  turn/s  sleep/s  reply/s  99% within")
        );
        assert_eq!(
            lines.next(),
            Some("  0        1.0  25.0%    50.0%      44        0      100       300us")
        );
        assert!(!text.contains("VFs"), "{text}");
    }

    #[test]
    fn rows_are_sorted_by_any_column() {
        let mut view = two_seconds();
        view.nics.push(super::super::rates::NicRow {
            nic: "a0".into(),
            ..Default::default()
        });
        let first = |column| {
            let mut table = Table::of(&view, Tab::Nics);
            table.sort(column);
            table.rows[0][0].shown().to_owned()
        };
        assert_eq!(
            (first(0), first(3), first(99)),
            ("a0".into(), "n0".into(), "n0".into())
        );
    }
}
