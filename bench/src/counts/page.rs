//! The page of `counts`.

use serde_json::Value;

use super::perf::{CALLS, EVENTS};
use crate::page::Page;
use crate::peers::reason;
use crate::stats::{Column, Summary, figure};

/// A figure's name in the raw data, and its column's.
type Named = (&'static str, &'static str);

/// What a frame costs, but for the daemon's system calls, which have two sources.
const COSTS: [Named; 10] = [
    ("guest_calls", "guests' drivers"),
    ("messages", "messages"),
    ("kicks", "kicks"),
    ("doorbells", "seen in memory"),
    ("interrupts", "interrupts"),
    ("register_reads", "register reads"),
    ("register_writes", "writes"),
    ("tx_descriptors", "descriptors sent"),
    ("rx_descriptors", "received"),
    ("daemon_ns", "daemon, ns"),
];

/// Where frames go.
const WAYS: [Named; 5] = [
    ("direct", "direct"),
    ("lent", "lent"),
    ("fifo", "through the FIFO"),
    ("waits", "sender found no buffer"),
    ("lost", "lost"),
];

/// A scene that does not run here, and why.
type Absent = (String, String);

/// The median of what is picked of each sample.
fn median(column: &Column, pick: &dyn Fn(&Value) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = column.readings().filter_map(|r| pick(&r.raw)).collect();
    Summary::of(&values).map(|s| s.median)
}

fn shown(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), figure)
}

fn of(column: &Column, name: &str) -> String {
    shown(median(column, &|raw| raw[name].as_f64()))
}

/// Writes it.
pub fn write(page: &mut Page, columns: &[Column], absent: &[Absent]) {
    page.text(
        "Two guests of one daemon, one sends to the other (virtio-net's guests send both ways); each figure is per frame that was \
         received (medians over rounds). Both guests share a processor, and the daemon has one: one worker.",
    );
    costs(page, columns);
    ways(page, columns);
    for (title, why) in absent {
        page.text(&format!("Not counted here: {title}: {}", reason(why)));
    }
    page.heading("Cache lines and copies");
    crate::lines::write(page);
    misses(page, columns);
    let data: Vec<Value> = columns.iter().map(Column::json).collect();
    page.data("scenes", data);
}

fn costs(page: &mut Page, columns: &[Column]) {
    page.heading("Costs of a frame");
    page.list(&[
        "**system calls, daemon**: as its own counters have them; in brackets as the kernel counts them (`perf stat -e \
         raw_syscalls:sys_enter`), where perf is there."
            .to_owned(),
        "**guests' drivers**: system calls of the drivers: messages and interrupts; of virtio-user, which is DPDK's, its kicks.".to_owned(),
        "**messages**: of vfio-user or vhost-user, both guests'.".to_owned(),
        "**kicks**: writes to a ring's eventfd that the daemon has heard; vfio-user has none.".to_owned(),
        "**seen in memory**: looks at a doorbell page that found something; no system call of anybody.".to_owned(),
        "**interrupts**: eventfds that the daemon has signalled.".to_owned(),
        "**register reads, writes**: those that were messages. **descriptors**: read from guests' memory, both ways.".to_owned(),
        "**daemon, ns**: its processor time, looks that found nothing included. **of it work**: time of its worker in turns that had \
         something to do; perf is at work meanwhile, which a system call feels."
            .to_owned(),
    ]);
    let mut head = vec!["", "system calls, daemon"];
    head.extend(COSTS.map(|(_, name)| name));
    head.push("of it work");
    let rows: Vec<Vec<String>> = columns
        .iter()
        .map(|column| {
            let kernel = median(column, &|raw| raw["perf"][CALLS].as_f64());
            let kernel = kernel.map_or(String::new(), |k| format!(" ({})", figure(k)));
            let mut row = vec![
                column.id.clone(),
                format!("{}{kernel}", of(column, "daemon_calls")),
            ];
            row.extend(COSTS.map(|(name, _)| of(column, name)));
            row.push(of(column, "work_ns"));
            row
        })
        .collect();
    page.table(&head, &rows);
}

fn ways(page: &mut Page, columns: &[Column]) {
    page.heading("Which way frames go");
    page.list(&[
        "**direct**: copied once, by their sender's turn, straight into the receiver's buffers.".to_owned(),
        "**lent**: the same under a lease, without the receiver's lock, because several senders are at it; 0 with one sender."
            .to_owned(),
        "**through the FIFO**: found no buffer and waited in the NIC's packet FIFO, which copies them a second time (82540EM; the \
         others have none)."
            .to_owned(),
        "**sender found no buffer**: times, for each frame, that a sender was told to wait with what it has.".to_owned(),
        "**lost**: sent and never received, of all that were sent.".to_owned(),
    ]);
    let mut head = vec!["share of frames"];
    head.extend(WAYS.map(|(_, name)| name));
    let rows: Vec<Vec<String>> = columns
        .iter()
        .map(|column| {
            let mut row = vec![column.id.clone()];
            row.extend(WAYS.map(|(name, _)| of(column, name)));
            row
        })
        .collect();
    page.table(&head, &rows);
}

fn misses(page: &mut Page, columns: &[Column]) {
    let have = columns
        .iter()
        .any(|c| c.readings().any(|r| r.raw["perf"][EVENTS[0]].is_number()));
    if !have {
        page.text(
            "Misses are not measured: this machine gives no hardware counters (`perf stat` says that they are not supported).",
        );
        return;
    }
    let rows: Vec<Vec<String>> = columns
        .iter()
        .map(|column| {
            let mut row = vec![column.id.clone()];
            row.extend(
                EVENTS.map(|event| shown(median(column, &|raw| raw["perf"][event].as_f64()))),
            );
            row
        })
        .collect();
    let mut head = vec!["per frame, user space"];
    head.extend(EVENTS);
    page.table(&head, &rows);
}
